"""A frontier's area without the winner's curse: arms are chosen on one part of the data and valued on another.

The best of several noisy curves is too high: who is ahead by chance is taken, and the chance is counted. Here one part of
the seeds and questions says which arm is best at each budget, and another part says how good that arm is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

HALVINGS = 20
"""The number of times that questions are halved anew: the area is the mean over them, and hardly depends on the halves."""

GROUPS = 24
"""Groups of questions, at most, that are halved and left out together: what is computed does not grow with the questions."""

SEED_PARTS = 5
"""Parts of the seeds, at most: each is valued by what the others choose."""


@dataclass(frozen=True, slots=True)
class CrossFit:
    """The area under a benchmark's frontier, in tokens.

    `cells`, shape [seeds, groups]: its parts, whose mean weighted by the groups' sizes it is. `without`, shape [groups]:
    the area when a group's questions are left out, of choosing as well as of valuing.
    """

    area: float
    cells: Floats
    without: Floats


def group_questions(benchmark: str, questions: int) -> Ints:
    """Return the group of each question, from 0: random, the same on every machine, of sizes that differ by at most 1."""
    import numpy as np

    order = shuffle_positions(f"groups\0{benchmark}", questions)
    groups = np.empty(questions, dtype=np.int64)
    groups[order] = np.arange(questions) % min(GROUPS, questions)
    return groups


def crossfit(benchmark: str, sums: Floats, sizes: Floats, weights: Floats) -> CrossFit:
    """Return the cross-fitted frontier of arms.

    `sums` are their scores summed over a group's questions: [arms, seeds, groups, budgets]. `sizes` counts each
    group's questions, and `weights` (tokens) make an area of scores at the budgets. For each half of the groups and
    part of the seeds, the other half and the other parts choose an arm at each budget, and their own scores of that
    arm count: every score of the data counts once in each of the halvings. With one seed the halves have it in
    common, and with one group nothing is halved.
    """
    import numpy as np

    _, seeds, groups, _ = sums.shape
    parts = min(seeds, SEED_PARTS)
    cells, without = np.zeros((seeds, groups)), np.zeros(groups)
    every = np.arange(groups)
    for number in range(HALVINGS):
        half = np.empty(groups, dtype=np.int64)
        half[shuffle_positions(f"halves\0{benchmark}\0{number}", groups)] = every % 2
        part = np.empty(seeds, dtype=np.int64)
        part[shuffle_positions(f"parts\0{benchmark}\0{number}", seeds)] = np.arange(seeds) % parts
        for here in range(parts):
            judged = sums[:, part == here]
            summed = judged.sum(axis=1)
            choosing = sums[:, part != here].sum(axis=1) if parts > 1 else summed
            both = [sum_half(choosing, half, side) for side in (0, 1)]
            if groups == 1:
                both = [both[0], both[0]]
            chosen = np.stack([scores.argmax(axis=0) for scores in (both[1], both[0])])
            cells[part == here] += area(judged, chosen[half][None], weights)
            valued = area(summed, chosen[half], weights)
            halves = np.array([valued[half == side].sum() for side in (0, 1)])
            # Without a group its own half is chosen for as before, and the other half by what is left.
            less = np.stack(both)[half].swapaxes(0, 1) - choosing
            others = np.stack([sum_half(summed, half, side) for side in (0, 1)])[1 - half].swapaxes(0, 1)
            without += halves[half] - valued + area(others, less.argmax(axis=0), weights)
    everything = sizes.sum() * seeds * HALVINGS
    return CrossFit(
        float(cells.sum() / everything),
        cells / (sizes * HALVINGS),
        without / np.maximum(everything - sizes * seeds * HALVINGS, 1),
    )


def sum_half(scores: Floats, half: Ints, side: int) -> Floats:
    """Sum over the groups of one half: [arms, groups, budgets] to [arms, budgets]."""
    summed: Floats = scores[:, half == side].sum(axis=1)
    return summed


def area(scores: Floats, chosen: Ints, weights: Floats) -> Floats:
    """Sum the chosen arms' scores, weighted, over budgets: [arms, …, budgets] and arms [(1,) …, budgets] to […]."""
    import numpy as np

    index = np.broadcast_to(chosen, scores.shape[1:])[None]
    picked = np.take_along_axis(scores, index, axis=0)[0]
    return np.einsum("...k,k->...", picked, weights)  # type: ignore[no-any-return]


def shuffle_positions(key: str, count: int) -> Ints:
    """Return an order of `count` things that depends on `key` alone, by words of a counter-based generator, Philox."""
    import numpy as np

    words = np.frombuffer(hashlib.sha256(key.encode()).digest()[:16], dtype="<u8")
    order: Ints = np.argsort(np.random.Philox(key=words).random_raw(count), kind="stable")
    return order
