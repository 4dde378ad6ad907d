"""The runner of `select` tasks: traces, pairs or kept questions, and how many were lost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Problem, problem
from reodsl.graph.job import Job, Progress
from reodsl.ir.reward import Choice, Pick, ResponseGroup, RewardedResponse, Selection
from runners.rewards.interpret import measure

ROLES = ("trace", "preferred", "rejected")
"""The roles that a pick chooses, in this order."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The positions of what a pick takes, by role, and its margin (0 where it has none)."""

    roles: dict[str, int]
    margin: float = 0.0


def choose(selection: Selection, group: ResponseGroup) -> list[tuple[Chosen, ...]]:
    """Return the choice of each pick: one thing, as many as meet its condition, or nothing."""
    numbers = _numbers(selection, group)
    return [_picked(_describe(selection), pick, group, numbers) for pick in selection.picks]


def keeps(selection: Selection, group: ResponseGroup) -> bool:
    """Return whether a selection of questions keeps this one; what is not a number is no reason to."""
    if selection.keep is None:
        return False
    value = measure(_describe(selection), selection.keep, group, {}, _numbers(selection, group))
    return value != 0 and not math.isnan(value)


def _describe(selection: Selection) -> str:
    """Return a selection's name in messages."""
    return f"the selection `{selection.name}`"


def _numbers(selection: Selection, group: ResponseGroup) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for let in selection.lets:
        numbers[let.name] = measure(_describe(selection), let.value, group, {}, numbers)
    return numbers


def drop_lowest(margins: list[float], drop: float) -> list[int]:
    """Return the positions left, in order, without the share `drop` with the lowest margins; of equals the last go.

    As many go as the share has in whole: of 7 with 15%, one. What is not a number counts as lowest.
    """
    lowest = [(-math.inf if math.isnan(margin) else margin, -at) for at, margin in enumerate(margins)]
    gone = {-at for _, at in sorted(lowest)[: math.floor(drop * len(margins) + 1e-9)]}
    return [at for at in range(len(margins)) if at not in gone]


def _picked(asker: str, pick: Pick, group: ResponseGroup, numbers: dict[str, float]) -> tuple[Chosen, ...]:
    if pick.trace is not None and pick.trace.fn == "each":
        taken = [{"trace": at} for at in _find_met(asker, pick.trace, group, {}, numbers)]
    else:
        one = _choose_one(asker, pick, group, numbers)
        taken = [] if one is None else [one]
    weighed = [_weighed(asker, pick, group, roles, numbers) for roles in taken]
    return tuple(each for each in weighed if each is not None)


def _choose_one(
    asker: str, pick: Pick, group: ResponseGroup, numbers: dict[str, float]
) -> dict[str, int] | None:
    """Return the positions of the one trace or pair of a pick, without its own conditions."""
    positions: dict[str, int] = {}
    responses: dict[str, RewardedResponse] = {}
    for role in ROLES:
        choice: Choice | None = getattr(pick, role)
        if choice is None:
            continue
        position = _find_best(asker, choice, group, responses, numbers)
        if position is None or position in positions.values():
            return None
        positions[role], responses[role] = position, group.rollouts[position]
    return positions


def _weighed(
    asker: str, pick: Pick, group: ResponseGroup, roles: dict[str, int], numbers: dict[str, float]
) -> Chosen | None:
    responses = {role: group.rollouts[position] for role, position in roles.items()}
    if pick.where is not None and measure(asker, pick.where, group, responses, numbers) == 0:
        return None
    margin = 0.0 if pick.margin is None else measure(asker, pick.margin, group, responses, numbers)
    return Chosen(roles, margin)


def _find_met(
    asker: str,
    choice: Choice,
    group: ResponseGroup,
    responses: dict[str, RewardedResponse],
    numbers: dict[str, float],
) -> Iterator[int]:
    """Yield the positions of the responses that meet a choice's condition."""
    for position, member in enumerate(group.rollouts):
        names = {**responses, choice.var: member}
        if choice.where is None or measure(asker, choice.where, group, names, numbers) != 0:
            yield position


def _find_best(
    asker: str,
    choice: Choice,
    group: ResponseGroup,
    responses: dict[str, RewardedResponse],
    numbers: dict[str, float],
) -> int | None:
    """Return the position with the least or greatest key, the first of equals; NaN is not a key."""
    best: tuple[float, int] | None = None
    for position in _find_met(asker, choice, group, responses, numbers):
        names = {**responses, choice.var: group.rollouts[position]}
        key = measure(asker, choice.key, group, names, numbers)
        key = -key if choice.fn == "argmax" else key
        if not math.isnan(key) and (best is None or key < best[0]):
            best = key, position
    return None if best is None else best[1]


COLUMNS = ["question", "text", "gold", "sample", "response", "tokens", "finish", "correct"]


Response = tuple[str, str, bool]
"""The prefix that a response was given, its text, and whether it came to its end."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A question's responses over all wordings, in the order of the pools and of the samples."""

    id: str
    text: str
    gold: str
    group: ResponseGroup
    responses: tuple[Response, ...]


def select(job: Job) -> None:
    """Pick of every question's responses: rows of `questions.parquet` in the order of the pool, and `select.json`.

    A selection of questions keeps their rows of the pool's data as they are.

    Of all that is picked, the selection's share with the lowest margins is dropped. Beside a trace (or a preferred and a
    rejected response) stand the prefix that it was given and whether it came to its end. Raises E0316 where nothing at all
    is picked, E0513 where a pool lacks responses.
    """
    selection: Selection = job.task.work["selection"]
    samples, prefixes = job.task.work["samples"], job.task.work["prefixes"]
    folders = [job.inputs[f"pool:{index}"] for index in range(len(prefixes))]
    if selection.keep is not None:
        _keep(job, selection, read_sampled(folders, prefixes, samples))
        return
    rows: list[dict[str, object]] = []
    margins: list[float] = []
    asked = lost = 0
    missed = [0] * len(selection.picks)
    for question in read_sampled(folders, prefixes, samples):
        asked += 1
        picks = choose(selection, question.group)
        lost += not any(picks)
        missed = [known + (not pick) for known, pick in zip(missed, picks, strict=True)]
        for taken in (each for pick in picks for each in pick):
            row: dict[str, object] = {
                "id": question.id, "question": question.text, "answer": question.gold, "meta": None
            }  # fmt: skip
            for role, position in taken.roles.items():
                row[f"{role}_prefix"], row[role], row[f"{role}_ended"] = question.responses[position]
            rows.append(row)
            margins.append(taken.margin)
    picked = len(rows)
    rows = [rows[at] for at in drop_lowest(margins, selection.drop)]
    if not rows:
        raise _nothing(job, asked)
    schema: dict[str, type[pl.DataType]] = dict.fromkeys(("id", "question", "answer", "meta"), pl.String)
    for role in selection.roles:
        schema |= {role: pl.String, f"{role}_prefix": pl.String, f"{role}_ended": pl.Boolean}
    facts = {"questions": asked, "picked": len(rows), "lost": lost, "lost_by_pick": missed}
    if selection.drop:
        facts["dropped"] = picked - len(rows)
    _write(job, pl.DataFrame(rows, schema=schema), facts)


def _keep(job: Job, selection: Selection, questions: Iterator[Sampled]) -> None:
    """Keep the rows of the questions of a selection, in the order of the data."""
    asked, ids = 0, set[str]()
    for question in questions:
        asked += 1
        if keeps(selection, question.group):
            ids.add(question.id)
    if not ids:
        raise _nothing(job, asked)
    table = pl.read_parquet(job.inputs["data"] / "questions.parquet", glob=False).filter(
        pl.col("id").is_in(ids)
    )
    facts = {"questions": asked, "picked": table.height, "lost": asked - table.height, "lost_by_pick": []}
    _write(job, table, facts)


def _write(job: Job, table: pl.DataFrame, facts: dict[str, Any]) -> None:
    table.write_parquet(job.out / "questions.parquet")
    (job.out / "select.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    counts = {name: facts[name] for name in ("questions", "picked", "lost")}
    job.progress(Progress(1, 1, counts))


def _nothing(job: Job, asked: int) -> Problem:
    responses = job.task.work["samples"] * len(job.task.work["prefixes"])
    return problem(
        "E0316",
        f"the selection picks nothing of {asked} questions with {responses} responses each",
        where=job.task.id,
        help="sample more responses, take a checkpoint that is right now and then, or loosen the conditions",
    )


def read_sampled(folders: list[Path], prefixes: list[str], samples: int) -> Iterator[Sampled]:
    """Yield every question with its responses over all pools. A response's `mode` is the position of its wording."""
    tables = [pl.read_parquet(folder / "samples.parquet", columns=COLUMNS, glob=False) for folder in folders]
    parts = [table.partition_by("question", maintain_order=True, as_dict=True) for table in tables]
    for key, first in parts[0].items():
        rollouts: list[RewardedResponse] = []
        texts: list[Response] = []
        for mode, (part, prefix) in enumerate(zip(parts, prefixes, strict=True)):
            answers = part.get(key, first.clear()).sort("sample")
            if answers.height != samples:
                raise problem(
                    "E0513",
                    f"question `{key[0]}` has {answers.height} responses in its pool, and not {samples}",
                    where="samples.parquet",
                    help="find what is damaged with `reodsl ls --verify`; running the spec again samples it anew",
                )
            for text, tokens, finish, correct in answers.select(COLUMNS[4:]).iter_rows():
                rollouts.append(RewardedResponse(int(tokens), bool(correct), given={"mode": float(mode)}))
                texts.append((prefix, str(text), finish == "stop"))
        group = ResponseGroup(str(key[0]), tuple(rollouts))
        yield Sampled(str(key[0]), str(first["text"][0]), str(first["gold"][0]), group, tuple(texts))
