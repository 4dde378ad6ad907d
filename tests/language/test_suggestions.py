"""What a diagnostic of a number says to write instead is itself accepted, for every setting and argument in the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import Between, Either, Many, Num, Setting, Type
from reodsl.language.context import attempt
from reodsl.language.declare import new_context
from reodsl.language.evaluate import evaluate
from reodsl.language.fitting import Misfit, fit
from reodsl.language.functions import SIGNATURES
from reodsl.language.modules import Modules, ParsedFile
from reodsl.language.values import Scope, Value
from reodsl.syntax import parse, parse_expression
from reodsl.syntax.source import Source

WRONG = (
    "-1", "0", "0.25", "0.5", "1", "1.5", "7.5", "50", "95", "100", "100.5", "101", "5000.25", "1e9", "1e15", "1e30", "3%",
    "250%", "5 tokens", "0.5 tokens", "64K tokens", "5 steps", "2.5 gpu_hours", "80 GiB", "-5 tokens", "0 steps", "300 GiB",
)  # fmt: skip


def value_of(text: str) -> Value | None:
    """The value of an expression without names."""
    modules = Modules(Path())
    module = parse(Source("spec.reo", "")).module
    expression = parse_expression(Source("value", text)).expression
    assert expression is not None
    scope = Scope(ParsedFile("", "spec.reo", module, False, {}, {}))
    return attempt(lambda: evaluate(new_context(modules), expression, scope))


def numbers(type_: Type) -> Iterator[Num]:
    """The types of numbers in a setting's type."""
    match type_:
        case Num():
            yield type_
        case Many() | Between():
            yield from numbers(type_.item)
        case Either():
            for option in type_.options:
                yield from numbers(option)


def suggested(misfit: Misfit, field: Setting) -> str | None:
    """The value that a person is told to write, in the reason itself or by the setting's example."""
    found = re.search(r"(?:write|its unit:) `([^`]+)`", misfit.help or "")
    if found:
        return found[1]
    if misfit.help or not field.example or "(" in field.example:
        return None
    return re.sub(r"^\w+ *[=:] *", "", field.example)


SETTINGS = {
    f"{kind.name}.{name}": field
    for kind in (*KINDS.values(), *SIGNATURES.values())
    for name, field in kind.fields.items()
    if any(numbers(field.type))
}


def test_there_are_many() -> None:
    assert len(SETTINGS) > 100


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_suggested_is_accepted(name: str) -> None:
    field = SETTINGS[name]
    for type_ in numbers(field.type):
        for text in WRONG:
            value = value_of(text)
            misfit = None if value is None else fit(value, type_)
            if not isinstance(misfit, Misfit):
                continue
            assert misfit.help or field.example or misfit.otherwise, f"{name} = {text}"
            told = suggested(misfit, field)
            if told is None:
                continue
            instead = value_of(told)
            assert instead is not None, (text, told)
            whole = type_ if not isinstance(field.type, (Many, Between)) or misfit.help else field.type
            assert isinstance(fit(instead, whole), Value), f"{name} = {text}: {misfit.help or field.example}"


@pytest.mark.parametrize(
    ("setting", "text", "help"),
    [
        ("optim.lr", "50", "write `5e-6`, for example"),
        ("optim.betas", "95", "write `0.95`, for example"),
        ("rollout.top_p", "90", "write `90%`, if a share is meant"),
        ("cluster.rollout_share", "100", None),
        ("suite.samples", "0.25", "write `1`"),
        ("suite.samples", "7.5 tokens", None),
        ("experiment.steps", "0.2", "write `1 step`"),
    ],
)
def test_what_is_suggested(setting: str, text: str, help: str | None) -> None:
    value = value_of(text)
    assert value is not None
    (type_,) = numbers(SETTINGS[setting].type)
    misfit = fit(value, type_)
    assert isinstance(misfit, Misfit)
    assert misfit.help == help
