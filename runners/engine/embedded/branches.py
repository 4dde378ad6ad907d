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

_CPU_SCORES = 1 << 18
_CUDA_SCORES = 1 << 26
"""The most attention scores of a block: a megabyte fits into a processor's cache, half a gigabyte is little on a GPU."""


@dataclass(frozen=True, slots=True)
class Branches:
    """Forced answers [b] as branches of the cached responses that they cut, sorted by slot (row of the cache).

    Branch j continues the tokens in columns `start[j]:end[j]` of row `slot[j]`, and its first token has position
    `position[j]` in the sequence. The model reads `tokens` [b, m], the forcing text, before the first token of the
    answer is sampled; `streams` [b] are the hashed seeds of the answers.
    """

    slot: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    position: NDArray[np.int64]
    tokens: NDArray[np.int64]
    streams: NDArray[np.uint64]

    def select(self, index: NDArray[np.int64] | slice) -> Branches:
        """Return the branches at the positions `index`, in the order of `index`."""
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
    """Neighbouring rows of a cache whose branches attend in one matrix product."""

    rows: slice
    """Rows of the cache."""
    branches: slice
    """The branches of these rows."""
    width: int
    """Branches of each row, padding included: the most of any row."""
    columns: int
    """The number of columns that the product reads."""
    order: torch.Tensor | None
    """The index of each branch among the rows × width padded branches; None if no row is padded."""
    bias: torch.Tensor
    """0 for the columns that a branch sees, else -inf, [rows, 1, width, 1, columns]."""


def answer(
    decoder: Decoder, cache: Cache, branches: Branches, sampling: TokenSampling, tokens_at_once: int
) -> list[list[int]]:
    """Return the answer tokens of each branch, including a stop token.

    Args:
        decoder: The model.
        cache: Keys and values of the responses that the branches continue.
        branches: The answers to sample.
        sampling: How tokens are sampled.
        tokens_at_once: The most tokens of a pass through the model, except if one response has more.

    Raises:
        Problem: E0802 for logits that are not finite.
    """
    answers: list[list[int]] = []
    for rows in _split_by_row(branches, tokens_at_once):
        answers.extend(_answer_together(decoder, cache, branches.select(rows), sampling))
    return answers


def _split_by_row(branches: Branches, tokens_at_once: int) -> list[slice]:
    """Divide the branches into slices with at most `tokens_at_once` tokens each.

    The branches of a row of the cache stay together: a row with more tokens is a slice of its own.

    Args:
        branches: The branches, sorted by slot.
        tokens_at_once: The most tokens of a slice.
    """
    limit = max(1, tokens_at_once // branches.tokens.shape[1])
    edges = np.append(np.flatnonzero(np.diff(branches.slot, prepend=-1)), len(branches.slot)).tolist()
    parts, first = [], 0
    for before, edge in pairwise(edges):
        if edge - first > limit and before > first:
            parts.append(slice(first, before))
            first = before
    return [*parts, slice(first, edges[-1])]


def _answer_together(
    decoder: Decoder, cache: Cache, branches: Branches, sampling: TokenSampling
) -> list[list[int]]:
    """Return the answer tokens of branches that fit into one pass of the model.

    Each step samples the next token of all unfinished branches, at most `sampling.max_tokens` times. A branch is
    finished when it samples a stop token. The local `tail` caches the keys and values of the branches' own tokens
    (forcing text and answer), and `ids` are the indices of the unfinished branches.

    Args:
        decoder: The model.
        cache: Keys and values of the responses that the branches continue.
        branches: The answers to sample.
        sampling: How tokens are sampled.
    """
    shape = decoder.shape
    count, read = branches.tokens.shape
    answers: list[list[int]] = [[] for _ in range(count)]
    tail = Cache.empty(shape, count, read + sampling.max_tokens - 1, cache.keys)
    ids = np.arange(count)
    tokens, filled = branches.tokens, 0
    for step in range(sampling.max_tokens):
        logits = _pass(decoder, cache, tail, branches, tokens, filled)
        filled += tokens.shape[1]
        chance = torch.from_numpy(uniforms(branches.streams, step)).to(logits.device, non_blocking=True)
        sampled, logprobs, _ = draw(logits, chance, sampling)
        # One copy for both, because each copy from a GPU waits for the GPU.
        chosen, logprobs_here = torch.stack((sampled.double(), logprobs.double())).cpu().numpy()
        if not np.isfinite(logprobs_here).all():
            raise not_finite(step)
        chosen = chosen.astype(np.int64)
        for branch, token in zip(ids.tolist(), chosen.tolist(), strict=True):
            answers[branch].append(token)
        unfinished = np.flatnonzero(~np.isin(chosen, np.array(sampling.stop_ids, dtype=np.int64)))
        if len(unfinished) == 0:
            break
        if len(unfinished) < len(ids):
            ids, chosen, branches = ids[unfinished], chosen[unfinished], branches.select(unfinished)
            on_device = torch.from_numpy(unfinished).to(tail.keys.device, non_blocking=True)
            tail = Cache(tail.keys[:, on_device], tail.values[:, on_device])
        tokens = chosen[:, None]
    return answers


def _pass(
    decoder: Decoder, cache: Cache, tail: Cache, branches: Branches, tokens: NDArray[np.int64], filled: int
) -> torch.Tensor:
    """Run the model over the next tokens of each branch, and return the logits after each branch's last token.

    A token attends to two sets of columns: the cached response before the cut (`cache`, the trunk), and the branch's
    own tokens so far (`tail`). Locals: `places` are the tokens' positions in their sequences; `lanes` is the number of
    queries of a branch for each key-value head.

    Args:
        decoder: The model.
        cache: Keys and values of the responses that the branches continue.
        tail: The cache of the branches' own tokens, to which the keys and values of `tokens` are written.
        branches: The branches, [b].
        tokens: The next tokens of each branch, [b, m].
        filled: The number of tokens that `tail` has already of each branch.

    Returns:
        Logits, [b, vocab].
    """
    shape, device = decoder.shape, decoder.device
    count, new = tokens.shape
    total = filled + new
    places = (branches.position[:, None] + filled + np.arange(new)).ravel()
    decoder.cover(int(places.max()) + 1)
    lanes = new * shape.group
    blocks = _make_blocks(branches, lanes, shape.kv_heads, total, cache)
    is_later = torch.ones(new, total, device=device, dtype=torch.bool).triu_(filled + 1)
    causal_bias = torch.zeros(new, total, device=device, dtype=cache.keys.dtype)
    causal_bias = causal_bias.masked_fill_(is_later, -torch.inf).unsqueeze(1)
    scale = shape.head_dim**-0.5

    def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return a layer's attention of the new tokens to the cached response before the cut and to the branch's tokens."""
        k, v = (tensor.unflatten(0, (count, new)) for tensor in (keys, values))
        tail.write(layer, slice(filled, total), k, v)
        # [b, kv_heads, lanes, head_dim]: a branch's new tokens times the query heads of one key-value head.
        q = (queries * scale).view(count, new, shape.kv_heads, shape.group, shape.head_dim).transpose(1, 2)
        q = q.reshape(count, shape.kv_heads, lanes, shape.head_dim)
        tail_scores = torch.matmul(q, tail.keys[layer, ..., :total]).view(
            count, shape.kv_heads, new, shape.group, total
        )
        if new > 1:
            tail_scores.add_(causal_bias)
        tail_scores = tail_scores.view(count, shape.kv_heads, lanes, total)
        out = torch.empty_like(q)
        for block in blocks:
            rows = block.branches
            trunk = cache.flat(layer, block.rows, block.columns)
            tail_values = tail.values[layer, rows, :, :total]
            out[rows] = _attend_block(block, *trunk, q[rows], tail_scores[rows], tail_values)
        mixed = out.view(count, shape.kv_heads, new, shape.group, shape.head_dim).transpose(1, 2)
        return mixed.reshape(count * new, -1)

    last = torch.arange(count, device=device) * new + new - 1
    flat = torch.from_numpy(tokens.ravel()).to(device, non_blocking=True)
    return decoder.run(flat, torch.from_numpy(places).to(device, non_blocking=True), attend, last)


def _attend_block(
    block: _Block,
    trunk_keys: torch.Tensor,
    trunk_values: torch.Tensor,
    q: torch.Tensor,
    tail_scores: torch.Tensor,
    tail_values: torch.Tensor,
) -> torch.Tensor:
    """Return the attention of a block's branches over their response and their own tokens, in one softmax.

    Args:
        block: The block.
        trunk_keys: Keys of the responses, [rows × kv_heads, head_dim, columns].
        trunk_values: Values of the responses, [rows × kv_heads, columns, head_dim].
        q: Scaled queries, [branches, kv_heads, lanes, head_dim]; lanes are new tokens × query heads per key-value head.
        tail_scores: Products of the queries and the keys of the branch's own tokens, [branches, kv_heads, lanes, own].
        tail_values: Values of the branches' own tokens, [branches, kv_heads, own, head_dim].

    Returns:
        [branches, kv_heads, lanes, head_dim].
    """
    _, kv_heads, lanes, _ = q.shape
    rows = block.rows.stop - block.rows.start

    def pad(tensor: torch.Tensor) -> torch.Tensor:
        """Rearrange [branches, kv, lanes, x] as [rows × kv, width × lanes, x], with zeros for missing branches."""
        if block.order is not None:
            full = tensor.new_zeros(rows * block.width, *tensor.shape[1:])
            full[block.order] = tensor
            tensor = full
        tensor = tensor.view(rows, block.width, kv_heads, lanes, -1).transpose(1, 2)
        return tensor.reshape(rows * kv_heads, block.width * lanes, tensor.shape[-1])

    def unpad(tensor: torch.Tensor) -> torch.Tensor:
        """Rearrange [rows × kv, width × lanes, x] as [branches, kv, lanes, x], the inverse of `pad`."""
        tensor = tensor.view(rows, kv_heads, block.width, lanes, -1).transpose(1, 2)
        tensor = tensor.reshape(rows * block.width, kv_heads, lanes, -1)
        return tensor if block.order is None else tensor[block.order]

    columns = block.columns
    trunk_scores = torch.bmm(pad(q), trunk_keys)
    trunk_scores.view(rows, kv_heads, block.width, lanes, columns).add_(block.bias)
    scores = torch.cat((trunk_scores, pad(tail_scores)), -1)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
    mixed = torch.bmm(weights[..., :columns], trunk_values)
    return unpad(mixed).add_(torch.matmul(unpad(weights[..., columns:]), tail_values))


def _make_blocks(branches: Branches, lanes: int, kv_heads: int, tail: int, cache: Cache) -> list[_Block]:
    """Group the branches into blocks of neighbouring rows of the cache.

    A block has at most `_CPU_SCORES` or `_CUDA_SCORES` attention scores, including the padding to the widest row and
    the longest response. A single row with more scores is a block too.

    Args:
        branches: The branches, sorted by slot.
        lanes: New tokens × query heads per key-value head.
        kv_heads: Key-value heads.
        tail: The number of each branch's own tokens.
        cache: The cache of the responses.
    """
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
    """Return the block of the rows `slots[low:high]`, with the mask of the columns that each branch sees.

    The block also contains the rows between these that have no branches. Every row is padded to `width` branches;
    padding sees all columns, since its result is never read. A row of the mask has 0 for the columns from the branch's
    `start` to its `end`.

    Args:
        branches: The branches, sorted by slot.
        slots: The rows of the cache that have branches, in rising order.
        first: For each of `slots`, the index of its first branch.
        counts: For each of `slots`, the number of its branches.
        low: The index in `slots` of the block's first row.
        high: The index in `slots` after the block's last row.
        width: The most branches of a row.
        columns: The number of columns that the block reads.
        cache: The cache of the responses.
    """
    inside = slice(int(first[low]), int(first[high - 1] + counts[high - 1]))
    base, rows = int(slots[low]), int(slots[high - 1] - slots[low]) + 1
    ranks = np.arange(inside.stop - inside.start) - np.repeat(first[low:high] - first[low], counts[low:high])
    padded_index = (branches.slot[inside] - base) * width + ranks
    # Padding sees all columns, because a softmax over no columns gives NaN.
    seen = np.tile(np.array([[0], [columns]], dtype=np.int64), rows * width)
    seen[0, padded_index], seen[1, padded_index] = branches.start[inside], branches.end[inside]
    device = cache.keys.device
    start, end = torch.from_numpy(seen).to(device, non_blocking=True).unsqueeze(2)
    column = torch.arange(columns, device=device)
    bias = torch.zeros(rows * width, columns, device=device, dtype=cache.keys.dtype)
    bias.masked_fill_((column < start) | (column >= end), -torch.inf)
    is_full = len(padded_index) == rows * width
    return _Block(
        rows=slice(base, base + rows),
        branches=inside,
        width=width,
        columns=columns,
        order=None if is_full else torch.from_numpy(padded_index).to(device, non_blocking=True),
        bias=bias.view(rows, 1, width, 1, columns),
    )
