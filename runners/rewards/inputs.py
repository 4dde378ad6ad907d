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
    """Verdicts or numbers at cuts.

    `keys` [cuts] rise, each `response * width + cut`; `values` [cuts]; `width` exceeds every cut.
    """

    keys: Ints
    values: NDArray[Any]
    width: int

    @staticmethod
    def of(triples: Iterable[tuple[int, int, float]], width: int, dtype: type = np.bool_) -> CutVerdicts:
        """Build the table from unsorted verdicts.

        Args:
            triples: response, cut in tokens, and verdict; responses are numbered row by row.
            width: a number above every cut.
            dtype: the type of a verdict.
        """
        rows = sorted((response * width + cut, verdict) for response, cut, verdict in triples)
        return CutVerdicts(
            np.array([key for key, _ in rows], dtype=np.int64),
            np.array([verdict for _, verdict in rows], dtype=dtype),
            width,
        )

    def look_up(self, response: Ints, cut: Ints) -> NDArray[Any]:
        """Return the verdict of each response at its cut, for two arrays of equal shape.

        Raises:
            KeyError: a pair has no verdict.
        """
        if len(self.keys) == 0:
            assert response.size == 0
            return np.zeros(response.shape, dtype=self.values.dtype)
        keys = response * self.width + cut
        indices = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        if not np.array_equal(self.keys[indices], keys):
            raise KeyError("a verdict at a cut that was not asked for")
        return self.values[indices]


@dataclass(frozen=True, slots=True)
class PastResponses:
    """Responses of earlier steps to each question.

    All arrays are [questions, samples]: `length` in tokens, `correct` 1 or 0, and `present`, false for padding.
    """

    length: Floats
    correct: Floats
    present: Bools

    @staticmethod
    def of(questions: Sequence[Sequence[tuple[float, float]]]) -> PastResponses:
        """Pad the responses of each question to a table.

        Args:
            questions: length in tokens and verdict (1 or 0) of each response, by question.
        """
        width = max(1, *map(len, questions))
        rows = [[*row, *[(0.0, 0.0)] * (width - len(row))] for row in questions]
        table = np.array(rows, dtype=float)
        present = np.array([[k < len(row) for k in range(width)] for row in questions], dtype=np.bool_)
        return PastResponses(table[:, :, 0], table[:, :, 1], present)


@dataclass(frozen=True, slots=True)
class RewardInputs:
    """The numbers of a step's responses that a reward reads.

    Arrays are [questions, rollouts], or [questions, samples] for the reference's and past responses.
    """

    questions: tuple[str, ...]  # ids
    length: Floats  # tokens
    correct: Floats  # verdicts, 1 or 0
    split_tokens: Floats  # [questions, rollouts, splits], ends in tokens; 1 for an axis without variation
    present: Bools  # whether a response has a split, in the shape of `split_tokens`
    features: Mapping[str, Floats] = field(default_factory=dict)  # numbers by name
    reference_length: Floats | None = None  # tokens
    reference_correct: Floats | None = None  # verdicts, 1 or 0
    reference_features: Mapping[str, Floats] = field(default_factory=dict)  # numbers by name
    earlier: PastResponses | None = None  # responses of earlier steps
    tracks: Mapping[str, float] = field(default_factory=dict)  # values at the step, by name
    # Statistics over tokens (`Tokens.of_any`), for responses numbered row by row and cuts.
    tokens: Mapping[TokenRun, Callable[[Ints, Ints], NDArray[Any]]] = field(default_factory=dict)


def pad_places(split_tokens: Sequence[Sequence[Sequence[int]]]) -> tuple[Floats, Bools]:
    """Pad ragged split ends by question and rollout; padding repeats the last end.

    Args:
        split_tokens: ends of the splits in tokens, by question and rollout.

    Returns:
        Ends and their presence, both [questions, rollouts, splits].
    """
    width = max(len(row) for group in split_tokens for row in group)
    padded = np.array(
        [[[*row, *[row[-1]] * (width - len(row))] for row in group] for group in split_tokens], dtype=float
    )
    present = np.array(
        [[[s < len(row) for s in range(width)] for row in group] for group in split_tokens], dtype=np.bool_
    )
    return padded, present


def budget_places(split: Split, chosen: Mapping[str, object] | None) -> tuple[int, ...] | None:
    """Return the budgets L_1 … L_{N+1} in tokens if all questions share them, else None.

    Args:
        split: the reward's splits.
        chosen: `budgets.json` of a `budgets` task.

    Raises:
        Problem: the file has no such budgets (E0925).
    """
    if isinstance(split, Budgets):
        return (*split.budgets, split.l_max)
    if isinstance(split, OracleBudgets):
        budgets = (chosen or {}).get("budgets")
        if not isinstance(budgets, list):
            raise _no_budgets("`budgets`, a list of tokens")
        return (*(int(budget) for budget in budgets), split.l_max)
    return None


def question_places(
    split: QuestionBudgets, chosen: Mapping[str, object] | None, ids: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """Return the budget and `l_max` in tokens of each question that has a budget, by id.

    A question that no rollout solves or meets has `l_max` as its only split, or no budget if unsolved questions are dropped.

    Args:
        split: the reward's splits.
        chosen: `budgets.json` of a `budgets` task.
        ids: ids of the step's questions.

    Raises:
        Problem: the file has no such budgets (E0925).
    """
    questions = (chosen or {}).get("questions")
    if not isinstance(questions, dict):
        raise _no_budgets("`questions`, a budget by question id")
    unmet = None if split.unsolved == "drop" else split.l_max
    budgets = {name: questions.get(name, unmet) for name in ids}
    return {name: (int(budget), split.l_max) for name, budget in budgets.items() if budget is not None}


def step_places(split: Steps, tokens: Sequence[int], decode: Decode) -> tuple[int, ...]:
    """Return the ends of a response's reasoning steps in tokens; the last is the response's end.

    The text is cut at `separator` into chunks; a chunk that starts with a keyword opens a new step, at least
    `min_chunks` chunks after the last opening. A step ends before the token that holds the next opening's first
    character.
    """
    offsets = Offsets(tokens, decode)
    ends: list[int] = []
    for opening in _openings(split, offsets.text):
        end = offsets.reaching(opening + 1) - 1
        if end > (ends[-1] if ends else 0):
            ends.append(end)
    if not ends or ends[-1] < len(tokens):
        ends.append(len(tokens))
    return tuple(min(end, split.l_max) for end in ends)


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


def _no_budgets(content: str) -> Problem:
    return problem(
        "E0925",
        "the training's budgets are missing or of another form",
        where="budgets.json",
        notes=[f"expected {content}"],
        help="run the study that estimates them (its frontier, or the rollouts of other arms), or give explicit budgets",
    )


def not_finite(
    reward: str, question: str, rollout: int, split: int | None, value: float, seen: Mapping[str, float]
) -> Problem:
    """Return E0920 for a reward that is NaN or infinite.

    Args:
        reward: the reward's name.
        question: the question's id.
        rollout: the rollout's number.
        split: the split's index, or None for an outcome.
        value: the reward.
        seen: numbers of the response, by name.
    """
    position = "" if split is None else f", split {split + 1}"
    return problem(
        "E0920",
        f"the reward `{reward}` is {value} for a response",
        where=f"question {question}, rollout {rollout}{position}",
        notes=["there " + ", ".join(f"{name} = {number:g}" for name, number in seen.items())] if seen else [],
        help="guard the division, logarithm or root with `if`, `max(…, 1)` or `clip`, and give aggregates an `empty:`",
    )


def given_missing(asker: str, field: str, available: Sequence[str]) -> Problem:
    """Return E0922 for a number that `asker`, for example "the reward `paid`", reads and the questions' data lack."""
    listed = ", ".join(f"`{name}`" for name in available) or "none"
    return problem(
        "E0922",
        f"{asker} uses the given number `{field}`, which the questions do not have",
        where=asker.removeprefix("the ").replace("`", ""),
        notes=[f"given numbers of the questions: {listed}"],
        help="add the number to the questions' `meta`, or use one that is there",
    )


def reference_missing(reward: str) -> Problem:
    """Return E0505 for statistics over `ref` without reference samples."""
    return problem(
        "E0505",
        f"the reward `{reward}` uses the reference's responses, and there are none for this question",
        where=f"reward {reward}",
        help="set `reference_samples` to at least 1, so that the reference model's responses are sampled first",
    )


def reference_not_cut(reward: str) -> Problem:
    """Return E0505 for forced or bare answers of reference samples, which are never cut."""
    return problem(
        "E0505",
        f"the reward `{reward}` cuts the reference's responses, which are only measured whole",
        where=f"reward {reward}",
        help="use `len(z)` and `correct(z)` over `ref`, and cut the responses of `group`",
    )
