"""The examples of settings in the reference are values that their settings take."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import Flag, Kind, Num, OneOf, Text
from reodsl.language.declare import new_context
from reodsl.language.evaluate import evaluate
from reodsl.language.fitting import TypeMismatch, coerce
from reodsl.language.modules import Modules, ParsedFile
from reodsl.language.values import Scope
from reodsl.syntax import parse, parse_expression, tree
from reodsl.syntax.source import Source


def value_text(kind: Kind, name: str, example: str) -> str:
    """The value in an example: `steps = 400 steps`, `count: 4096`, or a whole call."""
    sign = ":" if kind.form == "call" else "="
    head, found, tail = example.partition(sign)
    return tail if found and head.strip() == name else example


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_the_examples_of_the_table_are_legal(kind: Kind) -> None:
    module = ParsedFile("example", "example", parse(Source("example", "")).module, False, {}, {})
    for name, field in kind.fields.items():
        assert field.doc, name
        assert field.example or not field.required, f"{kind.name}.{name} is required and has no example"
        if not field.example:
            continue
        expression = parse_expression(Source("example", value_text(kind, name, field.example))).expression
        assert expression is not None, field.example
        if isinstance(field.type, (Num, Text, Flag, OneOf)) and not isinstance(expression, tree.Call):
            context = new_context(Modules(Path()))
            value = evaluate(context, expression, Scope(module), field.type)
            assert value is not None, field.example
            assert not isinstance(coerce(value, field.type), TypeMismatch), field.example
