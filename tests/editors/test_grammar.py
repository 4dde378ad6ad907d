"""The TextMate grammar: up to date, and it agrees with the lexer of documents on every spec."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pygments.token import Comment, Keyword, Name, Number, String

from editors.grammar import PLACE, text
from reodsl.highlight import ReoLexer
from reodsl.language.reference import words

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted([*ROOT.glob("specs/**/*.reo"), *ROOT.glob("stdlib/**/*.reo")])
GRAMMAR = json.loads(PLACE.read_text())
SCOPES = {
    Comment.Single: "comment.",
    String: "string.",
    Number: "constant.numeric",
    # `from` is also an argument and a setting, and the grammar says so.
    Keyword: (
        "keyword.",
        "storage.type",
        "constant.language",
        "variable.parameter",
        "variable.other.property",
    ),
    Name.Class: ("entity.name.type", "variable.other.property"),
    Name.Attribute: ("variable.other.property", "storage.type", "keyword."),
}
"""What a token of the lexer is called in the grammar."""


def test_the_grammar_is_up_to_date(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-goldens"):
        PLACE.write_text(text())
    assert PLACE.read_text() == text(), "run `make golden` and read the difference"


def test_the_words_are_the_languages_own() -> None:
    known = words()
    assert {"experiment", "study", "arm", "stage"} <= set(known.kinds)
    assert {"if", "dense", "import"} <= set(known.keywords)
    assert {"exp", "greedy", "trapezoid", "file"} <= set(known.functions)
    assert {"tokens", "gpu_hours"} <= set(known.units)


def scopes(line: str, open_rule: dict[str, Any] | None) -> tuple[list[str], dict[str, Any] | None]:
    """The scope of each character of a line, and the rule that is still open at its end: what an editor does."""
    marked, at = [""] * len(line), 0
    while at <= len(line):
        if open_rule is not None:
            end = re.compile(open_rule["end"]).search(line, at)
            inner = [re.compile(each["match"]).search(line, at) for each in open_rule.get("patterns", ())]
            inner = [each for each in inner if each is not None]
            if end is None:
                marked[at:] = [open_rule["name"]] * (len(line) - at)
                return marked, open_rule
            first = min([end, *inner], key=lambda each: each.start())
            marked[at : first.end()] = [open_rule["name"]] * (first.end() - at)
            at, open_rule = first.end(), None if first is end else open_rule
            if first is end and at == len(line):
                return marked, None
            continue
        found = [
            (match.start(), number, match, rule)
            for number, rule in enumerate(GRAMMAR["patterns"])
            if (match := re.compile(rule.get("match") or rule["begin"]).search(line, at)) is not None
        ]
        if not found:
            return marked, None
        _, _, match, rule = min(found, key=lambda each: each[:2])
        if "name" in rule:
            marked[match.start() : match.end()] = [rule["name"]] * (match.end() - match.start())
        for group, capture in rule.get("captures", {}).items():
            start, end_ = match.span(int(group))
            marked[start:end_] = [capture["name"]] * (end_ - start)
        open_rule = rule if "begin" in rule else None
        at = match.end() if match.end() > at or open_rule else at + 1
    return marked, open_rule


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_it_colours_as_the_lexer_does(spec: Path) -> None:
    text, open_rule, marked = spec.read_text(), None, list[str]()
    for line in text.split("\n"):
        found, open_rule = scopes(line, open_rule)
        marked += [*found, ""]
    assert open_rule is None
    wrong = [
        (text.count("\n", 0, at) + 1, piece, token, marked[at])
        for at, token, piece in ReoLexer().get_tokens_unprocessed(text)
        if token in SCOPES and not marked[at].startswith(SCOPES[token])
    ]
    assert not wrong
