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
class PickedResponses:
    """The positions of the responses that a pick takes, by role, and its margin (0 without a margin)."""

    roles: dict[str, int]
    margin: float = 0.0


def choose(selection: Selection, group: ResponseGroup) -> list[tuple[PickedResponses, ...]]:
    """Return the choices of each pick: one, or as many as meet its condition, or none."""
    numbers = _numbers(selection, group)
    return [_pick_responses(_describe(selection), pick, group, numbers) for pick in selection.picks]


def keeps(selection: Selection, group: ResponseGroup) -> bool:
    """Return whether a selection of questions keeps this question; NaN does not keep it."""
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
    """Return the remaining positions, in order, after dropping the lowest margins; of equal margins the last go.

    Args:
        margins: a margin for each position; NaN counts as lowest.
        drop: the share to drop (0 to 1), rounded down: of 7 margins 15% is 1.
    """
    lowest = [(-math.inf if math.isnan(margin) else margin, -i) for i, margin in enumerate(margins)]
    dropped = {-i for _, i in sorted(lowest)[: math.floor(drop * len(margins) + 1e-9)]}
    return [i for i in range(len(margins)) if i not in dropped]


def _pick_responses(
    asker: str, pick: Pick, group: ResponseGroup, numbers: dict[str, float]
) -> tuple[PickedResponses, ...]:
    if pick.trace is not None and pick.trace.fn == "each":
        roles_of = [{"trace": position} for position in _find_matching(asker, pick.trace, group, {}, numbers)]
    else:
        pair = _choose_one(asker, pick, group, numbers)
        roles_of = [] if pair is None else [pair]
    weighed = [_with_margin(asker, pick, group, roles, numbers) for roles in roles_of]
    return tuple(choice for choice in weighed if choice is not None)


def _choose_one(
    asker: str, pick: Pick, group: ResponseGroup, numbers: dict[str, float]
) -> dict[str, int] | None:
    """Return the positions of a pick's trace or pair, before the pick's own conditions."""
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


def _with_margin(
    asker: str, pick: Pick, group: ResponseGroup, roles: dict[str, int], numbers: dict[str, float]
) -> PickedResponses | None:
    responses = {role: group.rollouts[position] for role, position in roles.items()}
    if pick.where is not None and measure(asker, pick.where, group, responses, numbers) == 0:
        return None
    margin = 0.0 if pick.margin is None else measure(asker, pick.margin, group, responses, numbers)
    return PickedResponses(roles, margin)


def _find_matching(
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
    """Return the position with the least or greatest key, the first among equal keys, ignoring NaN."""
    best: tuple[float, int] | None = None
    for position in _find_matching(asker, choice, group, responses, numbers):
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
class QuestionSamples:
    """A question's responses over all wordings, in the order of the pools and of the samples."""

    id: str
    text: str
    gold: str
    group: ResponseGroup
    responses: tuple[Response, ...]


def select(job: Job) -> None:
    """Pick from every question's responses: rows of `questions.parquet` in the pool's order, and `select.json`.

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
    questions = lost = 0
    missed = [0] * len(selection.picks)
    for question in read_sampled(folders, prefixes, samples):
        questions += 1
        picks = choose(selection, question.group)
        lost += not any(picks)
        missed = [misses + (not pick) for misses, pick in zip(missed, picks, strict=True)]
        for choice in (choice_of_pick for pick in picks for choice_of_pick in pick):
            row: dict[str, object] = {
                "id": question.id, "question": question.text, "answer": question.gold, "meta": None
            }  # fmt: skip
            for role, position in choice.roles.items():
                row[f"{role}_prefix"], row[role], row[f"{role}_ended"] = question.responses[position]
            rows.append(row)
            margins.append(choice.margin)
    picked = len(rows)
    rows = [rows[i] for i in drop_lowest(margins, selection.drop)]
    if not rows:
        raise _nothing(job, questions)
    schema: dict[str, type[pl.DataType]] = dict.fromkeys(("id", "question", "answer", "meta"), pl.String)
    for role in selection.roles:
        schema |= {role: pl.String, f"{role}_prefix": pl.String, f"{role}_ended": pl.Boolean}
    facts = {"questions": questions, "picked": len(rows), "lost": lost, "lost_by_pick": missed}
    if selection.drop:
        facts["dropped"] = picked - len(rows)
    _write(job, pl.DataFrame(rows, schema=schema), facts)


def _keep(job: Job, selection: Selection, questions: Iterator[QuestionSamples]) -> None:
    """Keep the rows of the questions of a selection, in the order of the data."""
    count, ids = 0, set[str]()
    for question in questions:
        count += 1
        if keeps(selection, question.group):
            ids.add(question.id)
    if not ids:
        raise _nothing(job, count)
    table = pl.read_parquet(job.inputs["data"] / "questions.parquet", glob=False).filter(
        pl.col("id").is_in(ids)
    )
    facts = {"questions": count, "picked": table.height, "lost": count - table.height, "lost_by_pick": []}
    _write(job, table, facts)


def _write(job: Job, table: pl.DataFrame, facts: dict[str, Any]) -> None:
    table.write_parquet(job.out / "questions.parquet")
    (job.out / "select.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    counts = {name: facts[name] for name in ("questions", "picked", "lost")}
    job.progress(Progress(1, 1, counts))


def _nothing(job: Job, questions: int) -> Problem:
    responses = job.task.work["samples"] * len(job.task.work["prefixes"])
    return problem(
        "E0316",
        f"the selection picks nothing of {questions} questions with {responses} responses each",
        where=job.task.id,
        help="sample more responses, take a checkpoint that is right now and then, or loosen the conditions",
    )


def read_sampled(folders: list[Path], prefixes: list[str], samples: int) -> Iterator[QuestionSamples]:
    """Yield every question with its responses over all pools. A response's `mode` is the position of its wording."""
    tables = [pl.read_parquet(folder / "samples.parquet", columns=COLUMNS, glob=False) for folder in folders]
    pools = [table.partition_by("question", maintain_order=True, as_dict=True) for table in tables]
    for key, first in pools[0].items():
        rollouts: list[RewardedResponse] = []
        texts: list[Response] = []
        for mode, (by_question, prefix) in enumerate(zip(pools, prefixes, strict=True)):
            answers = by_question.get(key, first.clear()).sort("sample")
            if answers.height != samples:
                raise problem(
                    "E0513",
                    f"question `{key[0]}` has {answers.height} responses in its pool, and not {samples}",
                    where="samples.parquet",
                    help="find what is damaged with `reodsl ls --verify`; running the spec again samples it anew",
                )
            for text, tokens, finish, correct in answers.select(COLUMNS[4:]).iter_rows():
                rollouts.append(RewardedResponse(int(tokens), bool(correct), features={"mode": float(mode)}))
                texts.append((prefix, str(text), finish == "stop"))
        group = ResponseGroup(str(key[0]), tuple(rollouts))
        yield QuestionSamples(str(key[0]), str(first["text"][0]), str(first["gold"][0]), group, tuple(texts))
