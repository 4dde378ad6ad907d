"""Specs to their trees: golden files for whole ones, and what each part of a few lines becomes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics import Span
from reodsl.syntax import Source, parse, parse_expression, tree
from reodsl.syntax.tree import children, same, walk
from tests.syntax.trees import EVERY_SPEC, SPECS, dump, source


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_trees_are_as_they_were(path: Path, golden: Callable[[str, str], None]) -> None:
    result = parse(source(path))
    assert result.diagnostics == ()
    comments = "".join(
        f"\n{c.span.line}:{c.span.column} {'own line' if c.own_line else 'trailing'} {c.text}"
        for c in result.comments
    )
    golden(f"syntax/trees/{path.stem}.txt", dump(result.module) + comments + "\n")


@pytest.mark.parametrize("path", EVERY_SPEC, ids=lambda path: path.stem)
def test_every_spec_of_the_project_reads_without_errors(path: Path) -> None:
    assert parse(source(path)).ok


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_spans_hold_their_children_and_spell_their_names(path: Path) -> None:
    text = source(path)
    lines = text.text.split("\n")
    for node in walk(parse(text).module):
        span = node.span
        start, end = (span.line, span.column), (span.end_line, span.end_column)
        assert start <= end
        for child in children(node):
            assert start <= (child.span.line, child.span.column)
            assert (child.span.end_line, child.span.end_column) <= end
        if isinstance(node, tree.Ident | tree.Number) and span.line == span.end_line:
            written = lines[span.line - 1][span.column - 1 : span.end_column - 1]
            assert written == (node.name if isinstance(node, tree.Ident) else written)
            if isinstance(node, tree.Number):
                assert written.startswith(node.text)
                assert written.endswith(node.unit or node.text)


def expression(text: str) -> tree.Expr:
    result = parse_expression(Source("expression", text))
    assert result.expression is not None, result.diagnostics
    return result.expression


@pytest.mark.parametrize(
    ("text", "bracketed"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a - b - c", "(a - b) - c"),
        ("a / b * c", "(a / b) * c"),
        ("-a ^ b", "-(a ^ b)"),
        ("a ^ -b ^ c", "a ^ (-(b ^ c))"),
        ("a ^ b.c(d)", "a ^ ((b.c)(d))"),
        ("not a and b or c", "((not a) and b) or c"),
        ("a or b and not c == d", "a or (b and (not (c == d)))"),
        ("a + b < c * d", "(a + b) < (c * d)"),
        ("a if b else c if d else e", "a if b else (c if d else e)"),
        ("a or b if c or d else e", "(a or b) if (c or d) else e"),
        ("1..2 + 3", "1..(2 + 3)"),
        ("a in 1..2", "(a) in (1..2)"),
        ("a { } .b", "(a { }).b"),
        ("f(x) { } [1]", "((f(x)) { })[1]"),
    ],
)
def test_what_binds_tighter(text: str, bracketed: str) -> None:
    assert same(expression(text), expression(bracketed))


@pytest.mark.parametrize(
    ("text", "other"),
    [("a - b - c", "a - (b - c)"), ("(-a) ^ b", "-a ^ b"), ("a and b or c", "a and (b or c)")],
)
def test_brackets_matter(text: str, other: str) -> None:
    assert not same(expression(text), expression(other))


def test_a_number_keeps_its_suffix_and_unit() -> None:
    number = expression("16K tokens")
    assert isinstance(number, tree.Number)
    assert (number.text, number.value, number.suffix, number.unit) == ("16K", 16, "K", "tokens")
    assert number.unit_span == Span("expression", 1, 5, 1, 11)
    percent = expression("0.2%")
    assert isinstance(percent, tree.Number)
    assert (percent.value, percent.suffix, percent.unit) == (0.2, "%", None)


def test_the_forms_of_an_argument() -> None:
    call = expression("f(a, n: 1, v in w, (v in w), x: v in w, g(z) for z in y if p(z), q for r in s)")
    assert isinstance(call, tree.Call)
    kinds = [(arg.name and arg.name.name, type(arg.value).__name__) for arg in call.args]
    assert kinds == [
        (None, "Name"),
        ("n", "Number"),
        (None, "Binding"),
        (None, "Compare"),
        ("x", "Compare"),
        (None, "Comprehension"),
        (None, "Comprehension"),
    ]
    conditions = [arg.value.condition for arg in call.args if isinstance(arg.value, tree.Comprehension)]
    assert [condition is not None for condition in conditions] == [True, False]


@pytest.mark.parametrize(
    ("text", "lower", "upper"), [("y[:]", 0, 0), ("y[a:]", 1, 0), ("y[:b]", 0, 1), ("y[a:b]", 1, 1)]
)
def test_slices(text: str, lower: int, upper: int) -> None:
    found = expression(text)
    assert isinstance(found, tree.Slice)
    assert ((found.lower is not None), (found.upper is not None)) == (bool(lower), bool(upper))


def items(text: str) -> tuple[tree.BlockItem, ...]:
    result = parse(Source("items", f"kind name {{\n{text}\n}}\n"))
    assert result.diagnostics == ()
    (decl,) = result.module.items
    assert isinstance(decl, tree.Decl)
    assert decl.block is not None
    return decl.block.items


@pytest.mark.parametrize("between", ["\n", ",", ";", ",\n", "\n\n# why\n", " ; # why\n"])
def test_what_separates_items(between: str) -> None:
    found = items(between.join(["a = 1", "b { c = 2 }", "f(x)"]) + between)
    assert [type(item).__name__ for item in found] == ["Assignment", "NamedBlock", "ExprStatement"]


def test_a_block_as_statement_or_as_value() -> None:
    found = items("a { }\nf(x) { }\n(a { })\na.b { }\nk n { }\nk n = a { }")
    assert [type(item).__name__ for item in found] == [
        "NamedBlock",
        "NamedBlock",
        "ExprStatement",
        "ExprStatement",
        "Decl",
        "Decl",
    ]


def test_docstrings() -> None:
    text = (
        '"""File.\n\n  Two.\n"""\n'
        'param n: int = 1 in 0..2 """Param."""\n'
        'reward r(a: int) { """Reward.\n     More.""" a }\n'.replace(" a }", "\n a }")
        + 'budgets b = f(1) """Budgets."""\n'
        'study s = t { """Study."""\n a = 1 """Setting."""\n b = """Value.""" }\n'
    )
    module = parse(Source("docs", text)).module
    assert module.doc == "File.\n\nTwo."
    param, reward, budgets, study = module.items
    assert (param.doc, reward.doc, budgets.doc, study.doc) == (
        "Param.",
        "Reward.\nMore.",
        "Budgets.",
        "Study.",
    )
    assert isinstance(study, tree.Decl)
    assert isinstance(study.value, tree.Amend)
    first, second = study.value.block.items
    assert isinstance(first, tree.Assignment)
    assert isinstance(second, tree.Assignment)
    assert (first.doc, second.doc) == ("Setting.", None)


def test_a_long_text_is_taken_as_it_stands() -> None:
    (setting,) = items('text = """\\[ \\boxed{\n  "quoted" # no comment"""')
    assert isinstance(setting, tree.Assignment)
    assert isinstance(setting.value, tree.String)
    assert setting.value.value == '\\[ \\boxed{\n  "quoted" # no comment'


@pytest.mark.parametrize(
    ("text", "module", "names"),
    [
        ("from std.data import a", "std.data", [("a", None)]),
        ("from . import a as b", ".", [("a", "b")]),
        ("from ..x.y import (a,\n b as c,\n)", "..x.y", [("a", None), ("b", "c")]),
        ("from .....etc import passwd", ".....etc", [("passwd", None)]),
    ],
)
def test_imports(text: str, module: str, names: list[tuple[str, str | None]]) -> None:
    (found,) = parse(Source("imports", text)).module.imports
    assert found.module == module
    assert [(n.name.name, n.alias and n.alias.name) for n in found.names] == names


def test_a_comment_knows_whether_it_has_its_line() -> None:
    comments = parse(
        Source("comments", "# one\nstudy s { # two\n  # three\n  a = [1, # four\n 2] }\n#five")
    ).comments
    assert [(c.text, c.own_line) for c in comments] == [
        ("# one", True),
        ("# two", False),
        ("# three", True),
        ("# four", False),
        ("#five", True),
    ]


def test_trees_that_stand_elsewhere_are_the_same() -> None:
    text = "study s { a = 1_000 + f(b) # c\n }"
    one, other = (
        parse(Source("one", text)).module,
        parse(Source("other", "\n\n" + text.replace("1_000", "1000"))).module,
    )
    assert one != other
    assert same(one, other)
    assert not same(one, parse(Source("one", text.replace("b", "c"))).module)
    assert not same(one, parse(Source("one", text.replace("1_000", "1000 steps"))).module)
