"""Generate forced answers as branches of the cached responses that they cut.

All branches of a response go through the model in one pass. Branch i's tokens see the response's cached columns
up to its cut, and the branch's own tokens before them: a tree whose trunk is the response. Answers of
several tokens go on one token at a time over the same tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from runners.data.draws import uniforms
from runners.engine.embedded.cohort import Cache
from runners.engine.embedded.generation import draw, not_finite
from runners.engine.embedded.model import Decoder
from runners.engine.protocol import TokenSampling

# Attention scores of one block: a megabyte stays near a processor, half a gigabyte is little on a GPU.
_CPU_SCORES = 1 << 18
_CUDA_SCORES = 1 << 26


@dataclass(frozen=True, slots=True)
class Branches:
    """Branches [b] over the rows of a cache, sorted by slot.

    Branch j follows columns `start[j]:end[j]` of row `slot[j]`; its first token has position `position[j]`. `tokens`
    [b, m] are read before the first draw, `streams` [b] are the hashed seeds of its draws.
    """

    slot: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    position: NDArray[np.int64]
    tokens: NDArray[np.int64]
    streams: NDArray[np.uint64]

    def select(self, index: NDArray[np.int64] | slice) -> Branches:
        """Return the branches at `index`, in its order."""
        return Branches(
            self.slot[index],
            self.start[index],
            self.end[index],
            self.position[index],
            self.tokens[index],
            self.streams[index],
        )


@dataclass(frozen=True, slots=True)
class _Block:
    """Neighbouring rows whose branches attend together, each padded to the most branches of any row."""

    rows: slice
    branches: slice
    width: int
    columns: int
    order: torch.Tensor | None
    bias: torch.Tensor


def answer(
    decoder: Decoder, cache: Cache, branches: Branches, sampling: TokenSampling, tokens_at_once: int
) -> list[list[int]]:
    """Return the answer tokens of each branch, sampled as `sampling` says. Raises E0802 for logits that are not finite."""
    answers: list[list[int]] = []
    for rows in _split(branches, tokens_at_once):
        answers.extend(_answer(decoder, cache, branches.select(rows), sampling))
    return answers


def _split(branches: Branches, tokens_at_once: int) -> list[slice]:
    """Split branches into slices with at most `tokens_at_once` tokens, without splitting a row."""
    limit = max(1, tokens_at_once // branches.tokens.shape[1])
    edges = np.append(np.flatnonzero(np.diff(branches.slot, prepend=-1)), len(branches.slot)).tolist()
    parts, first = [], 0
    for before, edge in pairwise(edges):
        if edge - first > limit and before > first:
            parts.append(slice(first, before))
            first = before
    return [*parts, slice(first, edges[-1])]


def _answer(decoder: Decoder, cache: Cache, branches: Branches, sampling: TokenSampling) -> list[list[int]]:
    """Return the answer tokens of branches that fit into a pass together."""
    shape = decoder.shape
    count, read = branches.tokens.shape
    answers: list[list[int]] = [[] for _ in range(count)]
    tail = Cache.empty(shape, count, read + sampling.max_tokens - 1, cache.keys)
    ids = np.arange(count)
    tokens, filled = branches.tokens, 0
    for step in range(sampling.max_tokens):
        logits = _pass(decoder, cache, tail, branches, tokens, filled)
        filled += tokens.shape[1]
        chance = torch.from_numpy(uniforms(branches.streams, step)).to(logits.device)
        sampled, logprobs, _ = draw(logits, chance, sampling)
        # Together, since each time that the program asks a GPU for something it waits for it.
        chosen, logprobs_here = torch.stack((sampled.double(), logprobs.double())).cpu().numpy()
        if not np.isfinite(logprobs_here).all():
            raise not_finite(step)
        chosen = chosen.astype(np.int64)
        for branch, token in zip(ids.tolist(), chosen.tolist(), strict=True):
            answers[branch].append(token)
        going = np.flatnonzero(~np.isin(chosen, np.array(sampling.stop_ids, dtype=np.int64)))
        if len(going) == 0:
            break
        if len(going) < len(ids):
            ids, chosen, branches = ids[going], chosen[going], branches.select(going)
            going_there = torch.from_numpy(going).to(tail.keys.device)
            tail = Cache(tail.keys[:, going_there], tail.values[:, going_there])
        tokens = chosen[:, None]
    return answers


def _pass(
    decoder: Decoder,
    cache: Cache,
    tail: Cache,
    branches: Branches,
    tokens: NDArray[np.int64],
    filled: int,
) -> torch.Tensor:
    """Read `tokens` [b, m] after the `filled` tokens of each branch; return logits [b, vocab] after the last."""
    shape, device = decoder.shape, decoder.device
    count, new = tokens.shape
    total = filled + new
    places = (branches.position[:, None] + filled + np.arange(new)).ravel()
    decoder.cover(int(places.max()) + 1)
    lanes = new * shape.group
    blocks = _blocks(branches, lanes, shape.kv_heads, total, cache)
    causal = torch.ones(new, total, device=device, dtype=torch.bool).triu_(filled + 1)
    hidden = torch.zeros(new, total, device=device, dtype=cache.keys.dtype)
    hidden = hidden.masked_fill_(causal, -torch.inf).unsqueeze(1)
    scale = shape.head_dim**-0.5

    def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        k, v = (tensor.unflatten(0, (count, new)) for tensor in (keys, values))
        tail.write(layer, slice(filled, total), k, v)
        # [b, kv_heads, lanes, head_dim]: a branch's new tokens times the query heads of one key-value head.
        q = (queries * scale).view(count, new, shape.kv_heads, shape.group, shape.head_dim).transpose(1, 2)
        q = q.reshape(count, shape.kv_heads, lanes, shape.head_dim)
        tail_scores = torch.matmul(q, tail.keys[layer, ..., :total]).view(
            count, shape.kv_heads, new, shape.group, total
        )
        if new > 1:
            tail_scores.add_(hidden)
        tail_scores = tail_scores.view(count, shape.kv_heads, lanes, total)
        out = torch.empty_like(q)
        for block in blocks:
            rows = block.branches
            trunk = cache.flat(layer, block.rows, block.columns)
            own = tail.values[layer, rows, :, :total]
            out[rows] = _block(block, *trunk, q[rows], tail_scores[rows], own)
        mixed = out.view(count, shape.kv_heads, new, shape.group, shape.head_dim).transpose(1, 2)
        return mixed.reshape(count * new, -1)

    last = torch.arange(count, device=device) * new + new - 1
    flat = torch.from_numpy(tokens.ravel()).to(device)
    return decoder.run(flat, torch.from_numpy(places).to(device), attend, last)


def _block(
    block: _Block,
    trunk_keys: torch.Tensor,
    trunk_values: torch.Tensor,
    q: torch.Tensor,
    tail_scores: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """Return attention of a block: over its rows' cached columns and each branch's own, under one softmax."""
    _, kv_heads, lanes, _ = q.shape
    rows = block.rows.stop - block.rows.start

    def pad(tensor: torch.Tensor) -> torch.Tensor:
        """Rearrange [branches, kv, lanes, x] as [rows × kv, width × lanes, x]."""
        if block.order is not None:
            full = tensor.new_zeros(rows * block.width, *tensor.shape[1:])
            full[block.order] = tensor
            tensor = full
        tensor = tensor.view(rows, block.width, kv_heads, lanes, -1).transpose(1, 2)
        return tensor.reshape(rows * kv_heads, block.width * lanes, tensor.shape[-1])

    def unpad(tensor: torch.Tensor) -> torch.Tensor:
        """Invert `pad`."""
        tensor = tensor.view(rows, kv_heads, block.width, lanes, -1).transpose(1, 2)
        tensor = tensor.reshape(rows * block.width, kv_heads, lanes, -1)
        return tensor if block.order is None else tensor[block.order]

    columns = block.columns
    trunk_scores = torch.bmm(pad(q), trunk_keys)
    trunk_scores.view(rows, kv_heads, block.width, lanes, columns).add_(block.bias)
    scores = torch.cat((trunk_scores, pad(tail_scores)), -1)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
    mixed = torch.bmm(weights[..., :columns], trunk_values)
    return unpad(mixed).add_(torch.matmul(unpad(weights[..., columns:]), values))


def _blocks(branches: Branches, lanes: int, kv_heads: int, tail: int, cache: Cache) -> list[_Block]:
    """Cut the branches into blocks whose scores stay near the processor (or, on CUDA, within memory)."""
    limit = _CPU_SCORES if cache.keys.device.type == "cpu" else _CUDA_SCORES
    slots, first, counts = np.unique(branches.slot, return_index=True, return_counts=True)
    blocks: list[_Block] = []
    low = 0
    while low < len(slots):
        high, width, columns = low, 0, 0
        while high < len(slots):
            wider = max(width, int(counts[high]))
            inside = slice(int(first[high]), int(first[high] + counts[high]))
            longer = max(columns, int(branches.end[inside].max()))
            rows = int(slots[high] - slots[low]) + 1
            if high > low and rows * kv_heads * wider * lanes * (longer + tail) > limit:
                break
            high, width, columns = high + 1, wider, longer
        blocks.append(_make_block(branches, slots, first, counts, low, high, width, columns, cache))
        low = high
    return blocks


def _make_block(
    branches: Branches,
    slots: NDArray[np.int64],
    first: NDArray[np.int64],
    counts: NDArray[np.int64],
    low: int,
    high: int,
    width: int,
    columns: int,
    cache: Cache,
) -> _Block:
    """Return the block of slots `low` to `high`, with the mask of its branches' columns."""
    inside = slice(int(first[low]), int(first[high - 1] + counts[high - 1]))
    base, rows = int(slots[low]), int(slots[high - 1] - slots[low]) + 1
    ranks = np.arange(inside.stop - inside.start) - np.repeat(first[low:high] - first[low], counts[low:high])
    lanes = (branches.slot[inside] - base) * width + ranks
    # What no branch fills sees everything, since a softmax over nothing is not a number.
    seen = np.tile(np.array([[0], [columns]], dtype=np.int64), rows * width)
    seen[0, lanes], seen[1, lanes] = branches.start[inside], branches.end[inside]
    device = cache.keys.device
    start, end = torch.from_numpy(seen).to(device).unsqueeze(2)
    column = torch.arange(columns, device=device)
    bias = torch.zeros(rows * width, columns, device=device, dtype=cache.keys.dtype)
    bias.masked_fill_((column < start) | (column >= end), -torch.inf)
    full = len(lanes) == rows * width
    return _Block(
        rows=slice(base, base + rows),
        branches=inside,
        width=width,
        columns=columns,
        order=None if full else torch.from_numpy(lanes).to(device),
        bias=bias.view(rows, 1, width, 1, columns),
    )
