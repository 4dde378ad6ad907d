"""The arrays that a reward reads of a step's responses: lengths, verdicts, splits, features and reference samples."""

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
    """Verdicts or numbers of responses at cuts, as a sorted table.

    `keys` [cuts] are increasing, each `response * width + cut`, where `width` exceeds every cut. `values` [cuts] belong
    to the keys.
    """

    keys: Ints
    values: NDArray[Any]
    width: int

    @staticmethod
    def of(triples: Iterable[tuple[int, int, float]], width: int, dtype: type = np.bool_) -> CutVerdicts:
        """Build the table from verdicts in any order.

        Args:
            triples: Response index, cut in tokens, and verdict; responses are numbered question by question.
            width: A number above every cut.
            dtype: The type of the values.
        """
        rows = sorted((response * width + cut, verdict) for response, cut, verdict in triples)
        return CutVerdicts(
            np.array([key for key, _ in rows], dtype=np.int64),
            np.array([verdict for _, verdict in rows], dtype=dtype),
            width,
        )

    def look_up(self, response: Ints, cut: Ints) -> NDArray[Any]:
        """Return the stored values of responses at cuts, in the shape of `response`.

        Args:
            response: Response indices, of any shape.
            cut: Cuts in tokens, of the shape of `response`.

        Raises:
            KeyError: The table lacks a pair of response and cut.
        """
        if len(self.keys) == 0:
            assert response.size == 0
            return np.zeros(response.shape, dtype=self.values.dtype)
        keys = response * self.width + cut
        indices = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        if not np.array_equal(self.keys[indices], keys):
            raise KeyError("there is no verdict at this cut")
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
    def of(responses: Sequence[Sequence[tuple[float, float]]]) -> PastResponses:
        """Build padded arrays from the responses to each question.

        Args:
            responses: For each question, the length in tokens and the verdict (1 or 0) of each earlier response.
        """
        width = max(1, *map(len, responses))
        rows = [[*row, *[(0.0, 0.0)] * (width - len(row))] for row in responses]
        table = np.array(rows, dtype=float)
        present = np.array([[k < len(row) for k in range(width)] for row in responses], dtype=np.bool_)
        return PastResponses(table[:, :, 0], table[:, :, 1], present)


@dataclass(frozen=True, slots=True)
class RewardInputs:
    """The arrays of a step's responses that a reward reads.

    Arrays are [questions, rollouts], or [questions, samples] for the reference model's samples and past responses.
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
    """Return splits as arrays in which all responses have equally many; padding repeats a response's last split.

    A split is a position, in tokens, at which a response is divided into sections.

    Args:
        split_tokens: The increasing splits of each response, by question and rollout; at least one for each response.

    Returns:
        Splits in tokens, and a mask that is false for padding, both [questions, rollouts, splits].
    """
    width = max(len(row) for group in split_tokens for row in group)
    padded = np.array(
        [[[*row, *[row[-1]] * (width - len(row))] for row in group] for group in split_tokens], dtype=float
    )
    present = np.array(
        [[[s < len(row) for s in range(width)] for row in group] for group in split_tokens], dtype=np.bool_
    )
    return padded, present


def budget_places(split: Split, stored_budgets: Mapping[str, object] | None) -> tuple[int, ...] | None:
    """Return the splits that all questions share: the positions L_1 … L_{N+1}, in tokens, at which responses are divided.

    Args:
        split: The splits of the reward.
        stored_budgets: The content of `budgets.json` of a `budgets` task; read only for `OracleBudgets`.

    Returns:
        The budgets followed by `l_max`; None if each question or each response has its own splits.

    Raises:
        Problem: E0925, if the splits are `OracleBudgets` and the file lacks the budgets.
    """
    if isinstance(split, Budgets):
        return (*split.budgets, split.l_max)
    if isinstance(split, OracleBudgets):
        budgets = (stored_budgets or {}).get("budgets")
        if not isinstance(budgets, list):
            raise _no_budgets("`budgets`, a list of tokens")
        return (*(int(budget) for budget in budgets), split.l_max)
    return None


def question_places(
    split: QuestionBudgets, stored_budgets: Mapping[str, object] | None, ids: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """Return the splits of each question by its id: its budget and `l_max`, both in tokens.

    A question without a stored budget (no rollout solved it, or no training drew it) has `l_max` as its budget too. If
    `unsolved = drop`, the question is left out instead.

    Args:
        split: The splits of the reward.
        stored_budgets: The content of `budgets.json` of a `budgets` task.
        ids: The ids of the step's questions.

    Raises:
        Problem: E0925, if the file lacks the budgets.
    """
    questions = (stored_budgets or {}).get("questions")
    if not isinstance(questions, dict):
        raise _no_budgets("`questions`, a budget by question id")
    default = None if split.unsolved == "drop" else split.l_max
    budgets = {name: questions.get(name, default) for name in ids}
    return {name: (int(budget), split.l_max) for name, budget in budgets.items() if budget is not None}


def step_places(split: Steps, tokens: Sequence[int], decode: Decode) -> tuple[int, ...]:
    """Return the ends of a response's reasoning steps in tokens; the last is the response's end, at most `l_max`.

    The text is divided at `separator` into chunks. A chunk that starts with a keyword opens a new step, if the last step
    was opened at least `min_chunks` chunks before. A step ends before the token with the first character of the next
    step.

    Args:
        split: The settings of the steps. Ends above `l_max` become `l_max`.
        tokens: Token ids of the response.
        decode: Returns the text of token ids.
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
    """Return the character offsets at which the second and later reasoning steps of a text begin; see `step_places`."""
    openings: list[int] = []
    offset, chunks_since = 0, 0
    for index, chunk in enumerate(text.split(split.separator)):
        indent = len(chunk) - len(chunk.lstrip())
        if index and chunks_since >= split.min_chunks and chunk.lstrip().startswith(split.keywords):
            openings.append(offset + indent)
            chunks_since = 0
        chunks_since += 1
        offset += len(chunk) + len(split.separator)
    return openings


def _no_budgets(content: str) -> Problem:
    """Return E0925 about a `budgets.json` without the expected content."""
    return problem(
        "E0925",
        "the training's budgets are missing or have another form",
        where="budgets.json",
        notes=[f"expected {content}"],
        help="run the study that estimates them (its frontier, or the rollouts of other arms), or give explicit budgets",
    )


def not_finite(
    reward: str, question: str, rollout: int, split: int | None, value: float, numbers: Mapping[str, float]
) -> Problem:
    """Return E0920 for a reward that is NaN or infinite.

    Args:
        reward: The reward's name.
        question: The question's id.
        rollout: The index of the rollout.
        split: The index of the split, or None for an outcome.
        value: The reward.
        numbers: Values of the response to show, by name.
    """
    position = "" if split is None else f", split {split + 1}"
    return problem(
        "E0920",
        f"the reward `{reward}` is {value} for a response",
        where=f"question {question}, rollout {rollout}{position}",
        notes=["there " + ", ".join(f"{name} = {number:g}" for name, number in numbers.items())]
        * bool(numbers),
        help="guard the division, logarithm or root with `if`, `max(…, 1)` or `clip`, and give aggregates an `empty:`",
    )


def given_missing(reader: str, field: str, available: Sequence[str]) -> Problem:
    """Return E0922 for a number that a setting reads and the questions lack.

    Args:
        reader: The setting in words, e.g. "the reward `paid`".
        field: The number's name.
        available: The names of the questions' numbers.
    """
    listed = ", ".join(f"`{name}`" for name in available) or "none"
    return problem(
        "E0922",
        f"{reader} uses the given number `{field}`, which the questions do not have",
        where=reader.removeprefix("the ").replace("`", ""),
        notes=[f"given numbers of the questions: {listed}"],
        help="add the number to the questions' `meta`, or use a number that the questions have",
    )


def reference_missing(reward: str) -> Problem:
    """Return E0505 for a reward that reads the reference model's samples of a question without samples."""
    return problem(
        "E0505",
        f"the reward `{reward}` uses the reference model's responses, and this question has none",
        where=f"reward {reward}",
        help="set `reference_samples` to at least 1, so that the reference model's responses are sampled first",
    )


def reference_not_cut(reward: str) -> Problem:
    """Return E0505 for a reward that cuts the reference model's samples, which have no verdicts at cuts."""
    return problem(
        "E0505",
        f"the reward `{reward}` cuts the reference model's responses, which are only graded in full",
        where=f"reward {reward}",
        help="use `len(z)` and `correct(z)` over `ref`, and cut the responses of `group`",
    )
