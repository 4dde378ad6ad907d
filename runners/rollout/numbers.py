"""Numbers of questions that rewards and wordings read: found in metadata, and required before a task begins."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from reodsl.diagnostics import Diagnostic, error
from reodsl.ir.base import IR, Node, values_of
from reodsl.ir.expression import READINGS, Given
from reodsl.ir.training import Ppo
from reodsl.ir.wording import Wording
from reodsl.language.suggest import suggest

_EXAMPLES = 3


def read_facts(meta: str) -> dict[str, Any]:
    """Return what a question's JSON metadata holds, each value by its path: `info.level` for a number in a record."""
    try:
        fields = json.loads(meta)
    except ValueError:
        return {}
    return dict(_walk(fields, "")) if isinstance(fields, dict) else {}


def _walk(record: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _walk(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def is_number(value: object) -> bool:
    """Return whether a value of metadata is a number, which `true` and `false` are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read_numbers(meta: str) -> dict[str, float]:
    """Return the numbers of a question's JSON metadata by their paths."""
    return {name: float(value) for name, value in read_facts(meta).items() if is_number(value)}


def list_fields(rule: IR | Node) -> list[str]:
    """Return the numbers of a question that a reward or a condition reads, each once."""
    fields = dict.fromkeys(each.field for each in values_of(rule, Given))
    return [field for field in fields if field.partition("@")[0] not in READINGS]


def list_readers(method: Ppo) -> Iterator[tuple[str, str]]:
    """Yield who reads a number of the questions of a training, as "the reward `paid`", and which; not a wording's budget."""
    for field in list_fields(method.reward):
        if field != "budget" or not method.wordings:
            yield f"the reward `{method.reward.name}`", field
    yield from list_choosers(method.wordings)


def list_choosers(wordings: Sequence[Wording]) -> Iterator[tuple[str, str]]:
    """Yield which wording is chosen by a number of the questions, and by which."""
    for place, wording in enumerate(wordings):
        name = f"the wording `{wording.name}`" if wording.name else f"wording {place + 1}"
        for field in list_fields(wording.when) if wording.when is not None else ():
            yield name, field


def find_missing_number(
    asker: str, field: str, questions: Iterable[tuple[str, Mapping[str, Any]]]
) -> Diagnostic | None:
    """Return E0922 where questions lack a number that is read: none has it, some do not, or it is no number there.

    `questions` are ids with what `read_facts` finds.
    """
    rows = list(questions)
    wrong = [(name, facts.get(field)) for name, facts in rows if not is_number(facts.get(field))]
    if not wrong:
        return None
    other = [(name, value) for name, value in wrong if value is not None]
    shown = [
        f"question {name}: {json.dumps(value, default=str)[:60]}" if value is not None else f"question {name}"
        for name, value in (other or wrong)[:_EXAMPLES]
    ]
    if other:
        kind = (
            "true or false"
            if isinstance(other[0][1], bool)
            else "a list"
            if isinstance(other[0][1], list)
            else "text"
        )
        says = f"is {kind} in {len(other)} of {len(rows)} questions"
        helps = "write a number in each row of that column"
    elif len(wrong) < len(rows):
        says = f"{len(wrong)} of {len(rows)} questions do not have"
        helps = "give each question the number, or take these rows out of the data"
    else:
        there = {name for _, facts in rows[:1000] for name, value in facts.items() if is_number(value)}
        says, shown = "no question has", []
        helps = (
            suggest(field, there, "the questions have the numbers")
            if there
            else "add it to the questions' `meta`"
        )
    return error(
        "E0922",
        f"{asker} reads `x.{field}`, which {says}",
        where=asker.removeprefix("the ").replace("`", ""),
        notes=shown,
        help=helps,
    )
