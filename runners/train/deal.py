"""Deal rows to processes and group those that are run together, in an order that never changes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import torch

CPU_TOKENS, GPU_TOKENS = 2048, 49152
"""Tokens of one micro-batch, padding and all: few enough for a processor's caches; on an accelerator room to put short
sequences together until they cost as much as the longest one of 32K, which attends to so much more."""
TRIES, WORTH = 3, 0.01
"""Numbers of groups that are tried, and the share of the work that one more has to save."""


def token_bound(device: torch.device) -> int:
    """Return how many tokens a micro-batch may have on this device."""
    return CPU_TOKENS if device.type == "cpu" else GPU_TOKENS


def group_by_length(lengths: Sequence[int], bound: int) -> list[list[int]]:
    """Return positions grouped by length, rising, with rows times longest at most `bound` in each group (or one row)."""
    groups: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if groups and (len(groups[-1]) + 1) * lengths[position] <= bound:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def deal_padded(lengths: Sequence[int], bound: int, world: int) -> list[list[list[int]]]:
    """Return for each of `world` processes the groups of positions (`group_by_length`) that it runs, as many for each.

    Longest first, a row goes to the process with the fewest tokens so far. Where one has fewer groups than another its
    last ones are empty, because all processes have to go through the same passes.
    """
    rows_of: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    for position in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        lightest = loads.index(min(loads))
        rows_of[lightest].append(position)
        loads[lightest] += lengths[position]
    dealt = []
    for rows in rows_of:
        rows.sort()
        groups = group_by_length([lengths[i] for i in rows], bound)
        dealt.append([[rows[i] for i in group] for group in groups])
    most = max(len(groups) for groups in dealt)
    return [groups + [[] for _ in range(most - len(groups))] for groups in dealt]


def deal_packed(
    lengths: Sequence[int], costs: Sequence[float], bound: int, world: int
) -> list[list[list[int]]]:
    """Return for each of `world` processes the groups of positions that it works through packed, as many for each.

    A group has at most `bound` tokens, or one row. All processes work through their n-th groups together, and the one whose
    group costs most keeps the others waiting: groups that are run together cost about the same. `costs` are those of rows,
    in any unit. Of few numbers of groups the least is taken, or one more where fewer processes wait for it.
    """
    if not lengths:
        return [[] for _ in range(world)]
    least = max(1, -(-sum(lengths) // (bound * world)))
    best: list[list[list[int]]] = []
    wait, tried = math.inf, 0
    for count in range(least, max(least, len(lengths)) + 1):
        groups = _balance(lengths, costs, bound, count * world)
        if groups is None:
            continue
        rounds = [groups[at : at + world] for at in range(0, len(groups), world) if groups[at]]
        # What each process spends on working and waiting.
        spent = sum(sum(costs[i] for i in round_[0]) for round_ in rounds)
        if spent < wait * (1 - WORTH):
            best, wait = rounds, spent
        tried += 1
        if tried == TRIES:
            break
    return [[sorted(round_[rank]) for round_ in best] for rank in range(world)]


def _balance(
    lengths: Sequence[int], costs: Sequence[float], bound: int, count: int
) -> list[list[int]] | None:
    """Return positions in so many groups within the bound, dearest first; None where they do not fit.

    Dearest first, a row goes to the group that has cost least so far and has room for it.
    """
    groups: list[list[int]] = [[] for _ in range(count)]
    tokens = [0] * count
    heap = [(0.0, group) for group in range(count)]
    for position in sorted(range(len(lengths)), key=lambda i: (-costs[i], i)):
        full = []
        while heap:
            load, group = heapq.heappop(heap)
            if not groups[group] or tokens[group] + lengths[position] <= bound:
                groups[group].append(position)
                tokens[group] += lengths[position]
                heapq.heappush(heap, (load + costs[position], group))
                break
            full.append((load, group))
        else:
            return None
        for each in full:
            heapq.heappush(heap, each)
    order = sorted(range(count), key=lambda g: (-sum(costs[i] for i in groups[g]), g))
    return [groups[group] for group in order]
