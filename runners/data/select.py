"""The runner of `select` tasks, which pick traces, pairs of responses, or questions from pools of samples."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Problem, problem
from reodsl.graph.job import Job, Progress
from reodsl.ir.expression import Expression
from reodsl.ir.reward import Choice, Pick, ResponseGroup, RewardedResponse, Selection
from runners.grade import read_texts
from runners.rewards.interpret import measure

ROLES = ("trace", "preferred", "rejected")
"""The roles of responses that a pick chooses, in this order: a worked solution, or the two responses of a pair."""


@dataclass(frozen=True, slots=True)
class PickedResponses:
    """The responses to a question that a pick takes: a trace, or a preferred and a rejected response."""

    roles: dict[str, int]
    """The index of the response in its group, by role."""
    margin: float = 0.0
    """The pick's margin; 0 if it has none."""


def choose(selection: Selection, group: ResponseGroup) -> list[tuple[PickedResponses, ...]]:
    """Return what each pick of a selection takes from the responses to a question.

    Args:
        selection: The selection with its picks.
        group: All responses to the question.

    Returns:
        For each pick, what it takes: several traces for a pick of `each`, else one result or none.
    """
    value_of = _measure_group(selection, group)
    return [_pick_responses(pick, group, value_of) for pick in selection.picks]


def keeps(selection: Selection, group: ResponseGroup) -> bool:
    """Return whether a selection keeps a question: its condition `keep` is true for the question's responses.

    The result is False if the selection has no `keep`, or if its value is 0 or NaN.
    """
    if selection.keep is None:
        return False
    value = _measure_group(selection, group)(selection.keep, {})
    return value != 0 and not math.isnan(value)


ValueOf = Callable[[Expression, Mapping[str, RewardedResponse]], float]
"""A function from an expression, and the responses that it names, to the value of the expression for a question."""


def _measure_group(selection: Selection, group: ResponseGroup) -> ValueOf:
    """Return the function that evaluates a selection's expressions, which may read its `let` names, for a question."""
    reader, numbers = f"the selection `{selection.name}`", dict[str, float]()

    def value_of(node: Expression, responses: Mapping[str, RewardedResponse]) -> float:
        """Return the value of an expression that names these responses."""
        return measure(reader, node, group, responses, numbers)

    for let in selection.lets:
        numbers[let.name] = value_of(let.value, {})
    return value_of


def drop_lowest(margins: list[float], drop: float) -> list[int]:
    """Return the indices of the margins that remain, in order, after the lowest margins are dropped.

    Args:
        margins: The margins of picked responses. NaN counts as lowest. Of equal margins the last is dropped first.
        drop: The share of margins to drop, from 0 to 1. The number of dropped margins is rounded down: 15% of 7 is 1.
    """
    lowest = [(-math.inf if math.isnan(margin) else margin, -i) for i, margin in enumerate(margins)]
    dropped = {-i for _, i in sorted(lowest)[: math.floor(drop * len(margins) + 1e-9)]}
    return [i for i in range(len(margins)) if i not in dropped]


def _pick_responses(pick: Pick, group: ResponseGroup, value_of: ValueOf) -> tuple[PickedResponses, ...]:
    """Return what a pick takes from the responses to a question, with margins.

    A pick of `each` takes all traces that meet its condition; any other pick takes a trace, or a pair of a preferred and a
    rejected response, or nothing. What does not meet the condition of the pick itself is left out.
    """
    if pick.trace is not None and pick.trace.fn == "each":
        roles_of = [{"trace": position} for position in _find_matching(pick.trace, group, {}, value_of)]
    else:
        roles_of = _choose_one(pick, group, value_of)
    picked = []
    for roles in roles_of:
        responses = {role: group.rollouts[position] for role, position in roles.items()}
        if pick.where is None or value_of(pick.where, responses) != 0:
            margin = 0.0 if pick.margin is None else value_of(pick.margin, responses)
            picked.append(PickedResponses(roles, margin))
    return tuple(picked)


def _choose_one(pick: Pick, group: ResponseGroup, value_of: ValueOf) -> list[dict[str, int]]:
    """Return the index of a response for each role of a pick, before the condition of the pick is checked.

    Roles are chosen in the order of `ROLES`, and the condition of a role may use the responses of earlier roles. The
    result is empty if a role has no response, or if two roles have the same response.
    """
    positions: dict[str, int] = {}
    responses: dict[str, RewardedResponse] = {}
    for role in ROLES:
        choice: Choice | None = getattr(pick, role)
        if choice is None:
            continue
        position = _find_best(choice, group, responses, value_of)
        if position is None or position in positions.values():
            return []
        positions[role], responses[role] = position, group.rollouts[position]
    return [positions]


def _find_matching(
    choice: Choice, group: ResponseGroup, responses: Mapping[str, RewardedResponse], value_of: ValueOf
) -> Iterator[int]:
    """Yield the indices of the responses that meet the condition of a role.

    Args:
        choice: The choice of a response for the role.
        group: The responses.
        responses: The responses that earlier roles have, by their variables.
        value_of: Evaluates an expression for the question.
    """
    for position, member in enumerate(group.rollouts):
        if choice.where is None or value_of(choice.where, {**responses, choice.var: member}) != 0:
            yield position


def _find_best(
    choice: Choice, group: ResponseGroup, responses: Mapping[str, RewardedResponse], value_of: ValueOf
) -> int | None:
    """Return the index of the best response for a role, among the responses that meet the role's condition.

    The best response has the least key (`argmin`) or the greatest key (`argmax`). Of equal keys the first counts.
    Responses whose key is NaN are ignored. The result is None if no response remains.

    Args:
        choice: The choice of a response for the role (trace, preferred or rejected), with `argmin` or `argmax`.
        group: The responses.
        responses: The responses that earlier roles have, by their variables.
        value_of: Evaluates an expression for the question.
    """
    keys = {
        position: value_of(choice.key, {**responses, choice.var: group.rollouts[position]})
        for position in _find_matching(choice, group, responses, value_of)
    }
    numeric = [position for position, key in keys.items() if not math.isnan(key)]
    return (max if choice.fn == "argmax" else min)(numeric, key=keys.__getitem__, default=None)


COLUMNS = ["question", "text", "gold", "sample", "response", "tokens", "finish", "correct", "answer"]


Response = tuple[str, str, bool]
"""The prefix that a response was given as its beginning, the sampled text, and whether it ended before the token limit."""


@dataclass(frozen=True, slots=True)
class QuestionSamples:
    """A question with its responses in all pools, in the order of the pools and the samples."""

    id: str
    text: str
    gold: str
    group: ResponseGroup
    """The responses' lengths and verdicts, for conditions."""
    responses: tuple[Response, ...]
    """The responses' texts."""


def select(job: Job) -> None:
    """Run a `select` task: pick responses or questions from pools of samples.

    A pool is a set of sampled responses to all questions. A selection of questions (`keep`) writes rows of the pool's
    data unchanged to `questions.parquet`. A selection of responses writes a row for each trace or pair that its picks
    take, in the order of the pool: the question, and for each role the response, its prefix, and whether it ended. The
    share `drop` of these rows, those with the lowest margins, is left out.

    `select.json` has the counts: `questions`, `picked` rows, `lost` questions of which nothing is picked, and
    `lost_by_pick`, for each pick the questions of which it takes nothing.

    Raises:
        Problem: E0316 if nothing is picked, E0513 if a pool lacks responses.
    """
    selection: Selection = job.task.work["selection"]
    samples, prefixes = job.task.work["samples"], job.task.work["prefixes"]
    folders = [job.inputs[f"pool:{index}"] for index in range(len(prefixes))]
    if selection.keep is not None:
        _keep(job, selection, read_sampled(selection, folders, prefixes, samples))
        return
    rows: list[dict[str, object]] = []
    margins: list[float] = []
    questions = lost = 0
    missed = [0] * len(selection.picks)
    for question in read_sampled(selection, folders, prefixes, samples):
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
    """Write the rows of the data whose questions a selection keeps, in their order, and the counts.

    Args:
        job: The task.
        selection: The selection of questions.
        questions: The questions with their responses.

    Raises:
        Problem: E0316 if no question is kept.
    """
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
    """Write the selected rows and the counts of a task.

    Args:
        job: The task, whose progress gets the counts.
        table: The rows, for `questions.parquet`.
        facts: The counts, for `select.json`.
    """
    table.write_parquet(job.out / "questions.parquet")
    (job.out / "select.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    counts = {name: facts[name] for name in ("questions", "picked", "lost")}
    job.progress(Progress(1, 1, counts))


def _nothing(job: Job, questions: int) -> Problem:
    """Return E0316, the error of a selection that picks nothing from pools with `questions` questions."""
    responses = job.task.work["samples"] * len(job.task.work["prefixes"])
    return problem(
        "E0316",
        f"the selection picks nothing from {questions} questions with {responses} responses each",
        where=job.task.id,
        help="sample more responses, take a checkpoint with more right answers, or loosen the conditions",
    )


def read_sampled(
    selection: Selection, folders: list[Path], prefixes: list[str], samples: int
) -> Iterator[QuestionSamples]:
    """Yield every question with its responses in all pools.

    Args:
        selection: The selection, which says what is read in the texts of responses.
        folders: The folder of each pool, with its `samples.parquet`.
        prefixes: For each pool, the text that its wording begins every response with. The index of the pool is the `mode`
            of its responses.
        samples: The number of responses to a question in each pool.

    Raises:
        Problem: E0513 if a question has another number of responses.
    """
    pools = []
    for folder in folders:
        table = pl.read_parquet(folder / "samples.parquet", columns=COLUMNS, glob=False)
        numbers = read_texts(selection, table.get_column, (table.height,))
        table = table.with_columns(pl.Series(key, values) for key, values in numbers.items())
        pools.append(table.partition_by("question", maintain_order=True, as_dict=True))
    for key, first in pools[0].items():
        rollouts: list[RewardedResponse] = []
        texts: list[Response] = []
        for mode, (by_question, prefix) in enumerate(zip(pools, prefixes, strict=True)):
            answers = by_question.get(key, first.clear()).sort("sample")
            if answers.height != samples:
                raise problem(
                    "E0513",
                    f"question `{key[0]}` has {answers.height} responses in its pool instead of {samples}",
                    where="samples.parquet",
                    help="find damaged results with `reodsl ls --verify`, and run the spec again to sample them again",
                )
            for row in answers.iter_rows(named=True):
                features = {"mode": float(mode), **{key: row[key] for key in numbers}}
                rollouts.append(RewardedResponse(int(row["tokens"]), bool(row["correct"]), features=features))
                texts.append((prefix, str(row["response"]), row["finish"] == "stop"))
        group = ResponseGroup(str(key[0]), tuple(rollouts))
        yield QuestionSamples(str(key[0]), str(first["text"][0]), str(first["gold"][0]), group, tuple(texts))
