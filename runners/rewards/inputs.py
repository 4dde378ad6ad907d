"""Numbers that a reward reads: of each response, its places, and the reference's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reodsl.diagnostics import Problem, problem
from reodsl.ir.expression import TokenRun
from reodsl.ir.reward import Budgets, OracleBudgets, QuestionBudgets, Split, Steps
from runners.rewards.offsets import Decode, Offsets

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CutVerdicts:
    """Verdicts, or numbers, at cuts: `keys` rise, each `response * width + cut`; `width` exceeds every cut."""

    keys: Ints
    values: NDArray[Any]
    width: int

    @staticmethod
    def of(triples: Iterable[tuple[int, int, float]], width: int, dtype: type = np.bool_) -> CutVerdicts:
        """Make it from (response, cut, verdict), responses numbered row by row."""
        rows = sorted((response * width + cut, verdict) for response, cut, verdict in triples)
        return CutVerdicts(
            np.array([key for key, _ in rows], dtype=np.int64),
            np.array([verdict for _, verdict in rows], dtype=dtype),
            width,
        )

    def look_up(self, response: Ints, cut: Ints) -> NDArray[Any]:
        """Return verdicts for arrays of one shape; every pair must be there."""
        if len(self.keys) == 0:
            assert response.size == 0
            return np.zeros(response.shape, dtype=self.values.dtype)
        wanted = response * self.width + cut
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        if not np.array_equal(self.keys[at], wanted):
            raise KeyError("a verdict at a cut that was not asked for")
        return self.values[at]


@dataclass(frozen=True, slots=True)
class Earlier:
    """Responses of the steps before to each question, [questions, samples], and which of them there are."""

    length: Floats
    correct: Floats
    present: Bools

    @staticmethod
    def of(questions: Sequence[Sequence[tuple[float, float]]]) -> Earlier:
        """Make it from the lengths and verdicts (1 or 0) of each question's."""
        width = max(1, *map(len, questions))
        rows = [[*each, *[(0.0, 0.0)] * (width - len(each))] for each in questions]
        table = np.array(rows, dtype=float)
        present = np.array([[k < len(each) for k in range(width)] for each in questions], dtype=np.bool_)
        return Earlier(table[:, :, 0], table[:, :, 1], present)


@dataclass(frozen=True, slots=True)
class RewardInputs:
    """The responses of a step. Arrays are [questions, rollouts]; the reference's and earlier ones' [questions, samples].

    `places` [questions, rollouts, splits] in tokens, or with 1 for an axis that it does not vary along; `present`
    likewise says which splits a response has. An outcome reward has one split. `tracks` are their values at the step.
    `tokens` look up what statistics over tokens (`Tokens.of_any`) are, for responses numbered row by row and cuts.
    """

    questions: tuple[str, ...]
    length: Floats
    correct: Floats
    places: Floats
    present: Bools
    given: Mapping[str, Floats] = field(default_factory=dict)
    reference_length: Floats | None = None
    reference_correct: Floats | None = None
    reference_given: Mapping[str, Floats] = field(default_factory=dict)
    earlier: Earlier | None = None
    tracks: Mapping[str, float] = field(default_factory=dict)
    tokens: Mapping[TokenRun, Callable[[Ints, Ints], NDArray[Any]]] = field(default_factory=dict)


def pad_places(places: Sequence[Sequence[Sequence[int]]]) -> tuple[Floats, Bools]:
    """Return ragged places by question and rollout as those of `RewardInputs`; padding repeats the last place."""
    width = max(len(row) for group in places for row in group)
    padded = np.array(
        [[[*row, *[row[-1]] * (width - len(row))] for row in group] for group in places], dtype=float
    )
    present = np.array(
        [[[s < len(row) for s in range(width)] for row in group] for group in places], dtype=np.bool_
    )
    return padded, present


def budget_places(split: Split, chosen: Mapping[str, object] | None) -> tuple[int, ...] | None:
    """Return L_1 … L_{N+1} where all questions share them, else None. `chosen` is `budgets.json` of a `budgets` task."""
    if isinstance(split, Budgets):
        return (*split.budgets, split.l_max)
    if isinstance(split, OracleBudgets):
        budgets = (chosen or {}).get("budgets")
        if not isinstance(budgets, list):
            raise _no_budgets("`budgets`, a list of tokens")
        return (*(int(budget) for budget in budgets), split.l_max)
    return None


def question_places(
    split: QuestionBudgets, chosen: Mapping[str, object] | None, asked: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """Return `(L^x, l_max)` by id of each question `asked` with a budget. `chosen` is `budgets.json` of a `budgets` task.

    Of a question that no rollout tells of, the whole response alone counts; it has none where unsolved ones are dropped.
    """
    questions = (chosen or {}).get("questions")
    if not isinstance(questions, dict):
        raise _no_budgets("`questions`, a budget by question id")
    unmet = None if split.unsolved == "drop" else split.l_max
    budgets = {name: questions.get(name, unmet) for name in asked}
    return {name: (int(budget), split.l_max) for name, budget in budgets.items() if budget is not None}


def step_places(split: Steps, tokens: Sequence[int], decode: Decode) -> tuple[int, ...]:
    """Return the ends of a response's reasoning steps in tokens, the last its own end.

    The text is cut at `separator` into chunks; a chunk that starts with a keyword opens a new step, at least
    `min_chunks` chunks after the last opening. A step ends before the token that holds the next opening's first
    character.
    """
    offsets = Offsets(tokens, decode)
    places: list[int] = []
    for opening in _openings(split, offsets.text):
        place = offsets.reaching(opening + 1) - 1
        if place > (places[-1] if places else 0):
            places.append(place)
    if not places or places[-1] < len(tokens):
        places.append(len(tokens))
    return tuple(min(place, split.l_max) for place in places)


def _openings(split: Steps, text: str) -> list[int]:
    """Return character offsets at which a step after the first opens."""
    openings: list[int] = []
    offset, since = 0, 0
    for number, chunk in enumerate(text.split(split.separator)):
        lead = len(chunk) - len(chunk.lstrip())
        if number and since >= split.min_chunks and chunk.lstrip().startswith(split.keywords):
            openings.append(offset + lead)
            since = 0
        since += 1
        offset += len(chunk) + len(split.separator)
    return openings


def _no_budgets(what: str) -> Problem:
    return problem(
        "E0925",
        "the training's budgets are missing or of another form",
        where="budgets.json",
        notes=[f"expected {what}"],
        help="run the study that estimates them (its frontier, or the rollouts of other arms), or give explicit budgets",
    )


def not_finite(
    reward: str, question: str, rollout: int, split: int | None, value: float, seen: Mapping[str, float]
) -> Problem:
    """Return the error of a reward that is NaN or infinite."""
    at = "" if split is None else f", split {split + 1}"
    return problem(
        "E0920",
        f"the reward `{reward}` is {value} for a response",
        where=f"question {question}, rollout {rollout}{at}",
        notes=["there " + ", ".join(f"{name} = {number:g}" for name, number in seen.items())] if seen else [],
        help="guard the division, logarithm or root with `if`, `max(…, 1)` or `clip`, and give aggregates an `empty:`",
    )


def given_missing(asker: str, field: str, available: Sequence[str]) -> Problem:
    """Return the error of a number of the question that the data does not give to its asker, as "the reward `paid`"."""
    there = ", ".join(f"`{name}`" for name in available) or "none"
    return problem(
        "E0922",
        f"{asker} uses the given number `{field}`, which the questions do not have",
        where=asker.removeprefix("the ").replace("`", ""),
        notes=[f"given numbers of the questions: {there}"],
        help="add the number to the questions' `meta`, or use one that is there",
    )


def reference_missing(reward: str) -> Problem:
    """Return the error of statistics over `ref` without reference samples."""
    return problem(
        "E0505",
        f"the reward `{reward}` uses the reference's responses, and there are none for this question",
        where=f"reward {reward}",
        help="set `reference_samples` to at least 1, so that the reference model's responses are sampled first",
    )


def reference_not_cut(reward: str) -> Problem:
    """Return the error of forced or bare answers of reference samples, which are never cut."""
    return problem(
        "E0505",
        f"the reward `{reward}` cuts the reference's responses, which are only measured whole",
        where=f"reward {reward}",
        help="use `len(z)` and `correct(z)` over `ref`, and cut the responses of `group`",
    )
