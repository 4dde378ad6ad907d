"""Every setting and argument that is a number gets values of each type and unit, and what the message says is obeyed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reodsl.diagnostics.model import Diagnostic
from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import AnyOf, Kind, ListOf, Num, Range, Setting, Type
from reodsl.language.context import NoValue
from reodsl.language.declare import new_context
from reodsl.language.evaluate import evaluate_as
from reodsl.language.functions import SIGNATURES
from reodsl.language.modules import Modules, ParsedFile
from reodsl.language.units import Quantity
from reodsl.language.values import Scope, Value
from reodsl.syntax import parse_expression
from reodsl.syntax.source import Source

PLAIN = ["0", "3", "-1", "0.25", "2.5", "95", "100.5", "40%", "250%", "1e-9", "1e15", "1e30", "3K", "1 / 0"]
UNITS = ["tokens", "steps", "gpu_hours", "seconds", "GiB"]
WITH_UNITS = [f"{number} {unit}" for unit in UNITS for number in ("0", "3", "2.5", "-4", "3K", "300")]
OTHERS = [
    *('"3"', '"0.5"', '"4K tokens"', "true", "[3]", "[3 tokens]", "[2.5 steps]"),
    *("2..8", "8..2", "2 tokens..8 tokens", "3 tokens / 2", "100 steps / 3 tokens"),
]
WORDS = {
    "add to the list",
    "divide by a number that cannot be _",
    "write a schedule, such as _, or a list of budgets that ends with the longest response",
    "write a smaller one",
    "write the smaller number first",
}
"""Advice in words: who reads it chooses what to write. `write a number above _`, a type or a range, is more of it."""
TYPE = re.compile(r"write (?:a |an |the word )[^`]*(?:number|none|numbers)[^`]*")


def is_numeric(type_: Type) -> bool:
    match type_:
        case Num() | Range():
            return True
        case ListOf():
            return is_numeric(type_.item)
        case AnyOf():
            return any(map(is_numeric, type_.options))
    return False


def list_numeric() -> list[tuple[Kind, str, Setting]]:
    return [
        (kind, name, field)
        for kind in [*KINDS.values(), *SIGNATURES.values()]
        for name, field in kind.fields.items()
        if is_numeric(field.type)
    ]


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> ParsedFile:
    path: Path = tmp_path_factory.mktemp("numbers") / "spec.reo"
    path.write_text("reward r { correct(y) }\n")
    parsed = Modules(path.parent).main(path)
    assert parsed is not None
    return parsed


def read(text: str, name: str, field: Setting, main: ParsedFile) -> Value | Diagnostic:
    """Return the value that a text has as a setting, or the first thing that is wrong with it."""
    context = new_context(Modules(Path(main.key).parent))
    context.modules.sources["x"] = text
    expression = parse_expression(Source("x", text)).expression
    assert expression is not None, text
    try:
        return evaluate_as(context, expression, Scope(main), field.type, name, field.example)
    except NoValue:
        return context.own_findings[0]


def obey(text: str, kind: Kind, name: str, finding: Diagnostic) -> str | None:
    """Return a text after what the help says was written in its place; None for advice in words, or a whole call."""
    help_ = finding.help or ""
    written = re.search(rf"(?:write|its unit:) `({name} ?[=:] ?)?([^`]+)`", help_)
    if written is None:
        template = re.sub(r"`[^`]*`|[\d.,]*\d", "_", help_)
        assert template in WORDS or TYPE.fullmatch(template), help_
        return None
    if written[2].startswith(f"{kind.name}("):
        return None
    if written[1]:
        return written[2]
    span = finding.labels[0].span
    return text[: span.column - 1] + written[2] + text[span.end_column - 1 :]


@pytest.mark.parametrize("value", [*PLAIN, *WITH_UNITS, *OTHERS])
def test_a_number_of_any_unit_has_a_remedy_that_mends(value: str, main: ParsedFile) -> None:
    mended = 0
    for kind, name, field in list_numeric():
        text, found = value, read(value, name, field, main)
        for _ in range(3):
            # Each end of a range may lack its unit.
            better = obey(text, kind, name, found) if isinstance(found, Diagnostic) else None
            if better is None:
                break
            text, found = better, read(better, name, field, main)
            mended += 1
        else:
            assert isinstance(found, Value), (kind.name, name, value, text, found)
    assert mended or value in ("1 / 0", "1e30"), value


@pytest.mark.parametrize(
    ("text", "name", "kind", "number"),
    [
        ("3", "max_tokens", "rollout", 3),
        ("3K", "max_tokens", "rollout", 3072),
        ("3 steps", "max_tokens", "rollout", 3),
        ("-4 tokens", "max_tokens", "rollout", 4),
        ("2.5 tokens", "max_tokens", "rollout", 2),
        ("4 tokens", "steps", "experiment", 4),
        ("-4 steps", "steps", "experiment", 4),
        ("3 tokens", "limit", "study", 3),
        ("-4 gpu_hours", "limit", "study", 4),
        ("2 steps", "kl", "experiment", 2),
        ("40", "top_p", "suite", 0.4),
        ("3 tokens", "prompts", "batch", 3),
        ("2.5", "prompts", "batch", 2),
    ],
)
def test_the_remedy_keeps_the_number(
    text: str, name: str, kind: str, number: float, main: ParsedFile
) -> None:
    field = KINDS[kind].fields[name]
    found = read(text, name, field, main)
    if isinstance(found, Diagnostic):
        better = obey(text, KINDS[kind], name, found)
        assert better is not None, found.help
        found = read(better, name, field, main)
    assert isinstance(found, Value)
    assert isinstance(found.data, Quantity)
    assert found.data.number == number


@pytest.mark.parametrize(
    ("text", "name", "kind", "help_"),
    [
        ("50", "lr", "optim", "write `5e-6`, for example"),
        ("90", "top_p", "rollout", "write `90%`, if a share is meant"),
        ("0.25", "samples", "suite", "write `1`"),
        ("7.5 tokens", "samples", "suite", "write `samples = 32`, for example"),
        ("0.2", "steps", "experiment", "write `1 step`"),
    ],
)
def test_what_is_suggested(text: str, name: str, kind: str, help_: str, main: ParsedFile) -> None:
    found = read(text, name, KINDS[kind].fields[name], main)
    assert isinstance(found, Diagnostic)
    assert found.help == help_


def test_there_are_settings_of_each_unit() -> None:
    units = {field.type.unit for _, _, field in list_numeric() if isinstance(field.type, Num)}
    assert units >= {"", "tokens", "steps", "gpu_hours", "seconds", "GiB"}
    assert len(list_numeric()) > 200
