"""Micro-batches: sequences in, padded token tensors of similar lengths out, in an order that never changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CPU_TOKENS, GPU_TOKENS = 2048, 32768
"""Padded tokens of one micro-batch: few enough for a processor's caches, enough to fill an accelerator."""


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and the tokens after it that are trained; the arrays have one number for each of those tokens.

    `weights` multiply each token's loss; `advantages`, `old` (log-probabilities when sampled) and `reference` (those of the
    frozen model, where there is one) are PPO's.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    weights: NDArray[np.float32]
    advantages: NDArray[np.float32] | None = None
    old: NDArray[np.float32] | None = None
    reference: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.prompt) + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Microbatch:
    """`members` are the rows' positions among the examples; `ids` [rows, width], padded on the right; the rest
    [trained tokens], row after row.

    `at` is the flat position in `ids` whose output predicts the token, `targets` that token.
    """

    members: tuple[int, ...]
    ids: Tensor
    at: Tensor
    targets: Tensor
    weights: Tensor
    advantages: Tensor
    old: Tensor
    reference: Tensor


def token_bound(device: torch.device) -> int:
    """How many padded tokens a micro-batch may have on this device."""
    return CPU_TOKENS if device.type == "cpu" else GPU_TOKENS


def by_length(lengths: Sequence[int], bound: int) -> list[list[int]]:
    """Positions grouped by length, rising, with rows times longest at most `bound` in each group (or one row)."""
    groups: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if groups and (len(groups[-1]) + 1) * lengths[position] <= bound:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def dealt(lengths: Sequence[int], bound: int, world: int) -> list[list[list[int]]]:
    """For each of `world` processes the groups of positions (as `by_length`) that it works through, as many for each.

    Longest first, a row goes to the process with the fewest tokens so far. Where one has fewer groups than another its
    last ones are empty, because all processes have to go through the same passes.
    """
    own: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    for position in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        lightest = loads.index(min(loads))
        own[lightest].append(position)
        loads[lightest] += lengths[position]
    found = []
    for rows in own:
        rows.sort()
        groups = by_length([lengths[i] for i in rows], bound)
        found.append([[rows[i] for i in group] for group in groups])
    most = max(len(groups) for groups in found)
    return [groups + [[] for _ in range(most - len(groups))] for groups in found]


def microbatches(
    examples: Sequence[Example], bound: int, device: torch.device, rank: int = 0, world: int = 1
) -> list[Microbatch]:
    """Length-sorted micro-batches of this process's share of all examples, none with more than `bound` padded tokens
    unless of one row. Without `members` one is blank: a single token of no weight.
    """
    groups = dealt([len(example) for example in examples], bound, world)[rank]
    return [_padded([examples[i] for i in group], tuple(group), device) for group in groups]


def _padded(rows: Sequence[Example], members: tuple[int, ...], device: torch.device) -> Microbatch:
    if not rows:
        nothing = np.zeros(1, dtype=np.float32)
        rows = [Example((0,), (0,), nothing, nothing, nothing, nothing)]
    # The last token is never an input: nothing is predicted from it.
    width = max(len(row) for row in rows) - 1
    ids = np.zeros((len(rows), max(width, 1)), dtype=np.int64)
    at = []
    for number, row in enumerate(rows):
        whole = (*row.prompt, *row.tokens)
        ids[number, : len(whole) - 1] = whole[:-1]
        first = number * ids.shape[1] + len(row.prompt) - 1
        at.append(np.arange(first, first + len(row.tokens)))

    def floats(parts: list[NDArray[np.float32] | None]) -> Tensor:
        held = [part for part in parts if part is not None]
        return torch.from_numpy(np.concatenate(held) if held else np.zeros(0, np.float32)).to(device)

    return Microbatch(
        members=members,
        ids=torch.from_numpy(ids).to(device),
        at=torch.from_numpy(np.concatenate(at)).to(device),
        targets=torch.tensor([token for row in rows for token in row.tokens], device=device),
        weights=floats([row.weights for row in rows]),
        advantages=floats([row.advantages for row in rows]),
        old=floats([row.old for row in rows]),
        reference=floats([row.reference for row in rows]),
    )
