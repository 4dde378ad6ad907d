"""Q-Spec budgets: from checkpoints' accuracy on bare prefixes to the smallest budget that each question needs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from reodsl.diagnostics import problem

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Unsolved = Literal["formula", "l_max", "drop"]


@dataclass(frozen=True, slots=True)
class QuestionMinimum:
    """`budgets`: L^x in tokens by question; `unsolved`: those nobody solves at `l_max`, whatever became of them."""

    budgets: dict[str, int]
    l_max: int
    unsolved: tuple[str, ...]


def question_min(
    means: Mapping[str, ArrayLike], grid: Sequence[int], l_max: int, unsolved: Unsolved = "formula"
) -> QuestionMinimum:
    """L^x of the paper's REO-RL (Q-Spec): the smallest budget at which the best checkpoint does as well as at `l_max`.

    `means[x]` has shape [checkpoints, budgets]: a checkpoint's mean correctness over its rollouts of question x when
    each is cut to `grid[k]` tokens and graded with nothing forced. `grid` increases and holds `l_max`; L runs
    over its points in 1 … l_max, so 0 never wins. The checkpoint that is best early need not be the one that is best
    at `l_max`, as the formula has it.

    `unsolved` says what becomes of a question that no checkpoint solves at `l_max`: `formula` follows the paper's
    formula, by which every L is as good as `l_max` and L^x = 1; `l_max` gives it the full budget, so that only whole
    responses count; `drop` leaves it out.
    """
    import numpy as np

    if any(b <= a for a, b in itertools.pairwise(grid)) or l_max not in grid or l_max < 1:
        raise problem(
            "E0429",
            f"question budgets need an increasing grid that holds the longest response, {l_max} tokens",
            notes=[f"the grid has {len(grid)} points" + (f", {grid[0]} to {grid[-1]}" if grid else "")],
            help="grade the bare prefixes at every point of one grid and at the full length",
        )
    allowed = [k for k, budget in enumerate(grid) if 1 <= budget <= l_max]
    budgets: dict[str, int] = {}
    nobody: list[str] = []
    for question, values in means.items():
        table = np.asarray(values, dtype=np.float64)
        if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] != len(grid):
            raise problem(
                "E0429",
                f"question `{question}` has means of shape {list(table.shape)}, not [checkpoints, {len(grid)}]",
                help="give each question a row per checkpoint and a column per budget of the grid",
            )
        if not ((table >= 0) & (table <= 1)).all():
            raise problem(
                "E0429",
                f"question `{question}` has a mean correctness that is no number from 0 to 1",
                help="leave out checkpoints without rollouts of a question",
            )
        best = table[:, allowed].max(axis=0)
        if best[-1] > 0:
            budgets[question] = grid[allowed[int(np.argmax(best >= best[-1]))]]
            continue
        nobody.append(question)
        if unsolved != "drop":
            budgets[question] = 1 if unsolved == "formula" else l_max
    return QuestionMinimum(budgets, l_max, tuple(nobody))
