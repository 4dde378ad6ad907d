"""Colours of words, and the outline of an editor."""

from __future__ import annotations

import pytest

from reodsl.lsp.analysis import analyse
from reodsl.lsp.colours import OutlineSymbol, colours, symbols
from tests.lsp.quickstart import PATH, TEXT


def words(text: str) -> list[tuple[str, str]]:
    lines = text.split("\n")
    return [
        (lines[each.span.line - 1][each.span.column - 1 : each.span.end_column - 1], each.sort)
        for each in colours(text)
    ]


@pytest.mark.parametrize(
    ("line", "sorts"),
    [
        (
            "from std.rewards import reo, outcome as o",
            "keyword namespace namespace keyword variable variable keyword variable",
        ),
        ("param n: int = 5 in 1..16  # few", "keyword variable type number keyword number number comment"),
        (
            "experiment mine = ppo { lr = 5e-4, steps = 40 steps }",
            "keyword class variable property number property number type",
        ),
        ("batch { prompts = 32 }", "property property number"),
        ("at = exp(from: 4 tokens, n: n)", "property function keyword number type parameter variable"),
        (
            "let a = mean(len(z) for z in group)",
            "keyword variable function function variable keyword variable keyword variable",
        ),
        ('title = "a"; correct(y)', "property string function variable"),
        ("a = true if not b else 1", "property keyword keyword keyword variable keyword number"),
    ],
)
def test_words_have_their_sorts(line: str, sorts: str) -> None:
    assert [sort for _, sort in words(line)] == sorts.split()


def test_a_text_over_lines_is_cut_at_their_ends() -> None:
    assert words('"""one\n\n  two"""\nx = 1') == [
        ('"""one', "string"),
        ('  two"""', "string"),
        ("x", "property"),
        ("1", "number"),
    ]


@pytest.mark.parametrize("text", ["", "}}} (", '"""never', "a = [1,\n{ b", "'x' 32k ?", "from\nimport ,"])
def test_any_text_has_colours_that_lie_in_it(text: str) -> None:
    for words_of, _ in words(text):
        assert words_of


def test_the_outline_holds_declarations_within_declarations() -> None:
    main = analyse(PATH, {PATH: TEXT}).program.main
    assert main is not None
    found = {each.name: each for each in symbols(main.module.items)}
    assert (found["n"].kind, found["small"].kind) == ("param", "recipe")
    study = found["quickstart"]
    assert isinstance(study, OutlineSymbol)
    assert [each.name for each in study.children][:2] == ["base", "vanilla"]
    report = study.children[-1]
    assert (report.name, [each.name for each in report.children]) == ("report", ["main", "curves"])
    assert study.span.line <= study.name_span.line <= study.children[0].span.line <= study.span.end_line
