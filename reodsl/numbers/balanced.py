"""The balanced subset: questions that every model mostly solves, and the lengths of right answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reodsl.diagnostics import problem

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class BalancedQuestions:
    """`questions`: their positions in the input; by model the mean `length` in tokens of right answers, and `accuracy`.

    Both are None where no question is in the subset.
    """

    questions: tuple[int, ...]
    length: dict[str, float | None]
    accuracy: dict[str, float | None]


def balance_questions(
    correct: Mapping[str, ArrayLike], lengths: Mapping[str, ArrayLike]
) -> BalancedQuestions:
    """Compare models as the paper's tab:frontier does, where each is right on more than half of its samples.

    `correct[m]` (0 or 1) and `lengths[m]` (tokens) have shape [questions, samples]; the questions are the same in the
    same order for all models, the number of samples may differ. A model's length is the mean over the subset's
    questions of the mean over that question's correct samples.
    """
    import numpy as np

    if not correct:
        raise problem("E0432", "there are no models to compare", help="give the samples of at least one")
    right: dict[str, np.ndarray] = {}
    for name, values in correct.items():
        array = np.asarray(values, dtype=np.float64)
        spent = np.asarray(lengths[name]) if name in lengths else np.empty(0)
        if array.ndim != 2 or array.shape[1] == 0 or array.shape != spent.shape:
            raise problem(
                "E0432",
                f"`{name}` has grades of shape {list(array.shape)} and lengths of shape {list(spent.shape)}",
                help="give both the shape [questions, samples]",
            )
        right[name] = array
    counts = {name: array.shape[0] for name, array in right.items()}
    if len(set(counts.values())) > 1:
        raise problem(
            "E0432",
            "the models were graded on different questions",
            notes=[f"`{name}`: {count} questions" for name, count in counts.items()],
            help="keep the questions that all models have, in one order",
        )
    shared = np.all([array.mean(axis=1) > 0.5 for array in right.values()], axis=0)
    questions = tuple(int(q) for q in np.flatnonzero(shared))
    length: dict[str, float | None] = dict.fromkeys(right)
    accuracy: dict[str, float | None] = dict.fromkeys(right)
    if questions:
        for name, array in right.items():
            hit = array[shared]
            spent = np.asarray(lengths[name], dtype=np.float64)[shared]
            length[name] = float(((hit * spent).sum(axis=1) / hit.sum(axis=1)).mean())
            accuracy[name] = float(hit.mean())
    return BalancedQuestions(questions, length, accuracy)
