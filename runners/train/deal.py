"""Which rows are run together, and by which process: lengths in, positions out, in an order that never changes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

CPU_TOKENS, GPU_TOKENS = 2048, 32768
"""Padded tokens of one micro-batch: few enough for a processor's caches, enough to fill an accelerator."""


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


def deal_padded(lengths: Sequence[int], bound: int, world: int) -> list[list[list[int]]]:
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
