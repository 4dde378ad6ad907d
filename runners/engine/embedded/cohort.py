"""Keep keys and values of requests that are decoded together, and read their prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from runners.engine.embedded.model import Decoder, Shape


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys [layers, rows, kv_heads, head_dim, columns] and values [layers, rows, kv_heads, columns, head_dim].

    A key is a column of its row's matrix. A product of queries and keys then reads memory in order, which makes an
    attention step a fifth faster than with keys in rows.
    """

    keys: torch.Tensor
    values: torch.Tensor

    @staticmethod
    def empty(shape: Shape, rows: int, columns: int, like: torch.Tensor) -> Cache:
        """Return a cache of zeros.

        Memory that is not initialised could contain NaN. A column that a mask hides has weight 0, and 0 times NaN is
        NaN.

        Args:
            shape: The sizes of the decoder.
            rows: The number of rows of the cache.
            columns: The number of tokens of each row.
            like: A tensor with the precision and device of the cache.
        """
        heads = (shape.layers, rows, shape.kv_heads)
        return Cache(
            like.new_zeros(*heads, shape.head_dim, columns), like.new_zeros(*heads, columns, shape.head_dim)
        )

    @property
    def bytes(self) -> int:
        """Return the memory of the cache in bytes."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def rows(self, rows: slice) -> Cache:
        """Return a view of the cache's `rows`, without a copy."""
        return Cache(self.keys[:, rows], self.values[:, rows])

    def write(self, layer: int, columns: slice, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write the keys and values of new tokens of all rows into a layer.

        Args:
            layer: The layer's index.
            columns: The columns of the new tokens.
            keys: [rows, new, kv_heads, head_dim].
            values: [rows, new, kv_heads, head_dim].
        """
        self.keys[layer, ..., columns] = keys.permute(0, 2, 3, 1)
        self.values[layer, ..., columns, :] = values.transpose(1, 2)

    def flat(self, layer: int, rows: slice, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views of the keys and values of some rows for batched matrix products.

        Args:
            layer: The layer's index.
            rows: The rows of the cache.
            columns: The number of columns, from the first.

        Returns:
            Keys [rows × kv_heads, head_dim, columns] and values [rows × kv_heads, columns, head_dim].
        """
        keys = self.keys[layer, rows].flatten(0, 1)[..., :columns]
        return keys, self.values[layer, rows].flatten(0, 1)[:, :columns]

    def swap(self, first: int, second: int, columns: int) -> None:
        """Exchange the first `columns` columns of the rows `first` and `second`."""
        for view in (self.keys[..., :columns], self.values[..., :columns, :]):
            saved = view[:, first].clone()
            view[:, first] = view[:, second]
            view[:, second] = saved


class Cohort:
    """Responses that started together and share a preallocated cache; those that still run come first.

    Prompts end at the same column, so every live row writes its next token to the same column. A row that finishes
    changes places with the last live row: decoding reads live rows alone, and finished rows keep their cache for forced
    answers, ordered from the last to finish to the first.
    """

    def __init__(
        self, shape: Shape, owners: Sequence[int], prompts: Sequence[int], columns: int, like: torch.Tensor
    ) -> None:
        """Allocate the cache of a cohort, with no keys or values yet.

        A slot is a row of the cache, for one response.

        Args:
            shape: The sizes of the decoder.
            owners: For each slot, the index of its request.
            prompts: For each slot, the number of tokens of its prompt.
            columns: The number of tokens for which each slot has memory: prompt, padding, and response.
            like: A tensor with the precision and device of the cache.
        """
        rows = len(owners)
        self.cache = Cache.empty(shape, rows, columns, like)
        self.owner: NDArray[np.int64] = np.array(owners, dtype=np.int64)
        self.prompt: NDArray[np.int64] = np.array(prompts, dtype=np.int64)
        self.filled = int(self.prompt.max())
        self.start: NDArray[np.int64] = self.filled - self.prompt
        self.live = rows
        self._width = self.filled
        self._bias: torch.Tensor | None = None
        self._mask()

    def positions(self) -> NDArray[np.int64]:
        """Return the position of the token last written in each live row."""
        return self.filled - 1 - self.start[: self.live]

    def attend(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Write the keys and values of the live rows' new tokens, and compute the attention of these tokens.

        Each new token attends to all tokens of its row, including itself; a mask hides the padding before the prompt.

        Args:
            layer: The layer's index.
            queries: [live, heads, head_dim], scaled and contiguous.
            keys: [live, kv_heads, head_dim].
            values: [live, kv_heads, head_dim].
            out: Filled with the result, [live, heads, head_dim].
        """
        live, kv_heads = self.live, keys.shape[1]
        newest = slice(self.filled - 1, self.filled)
        self.cache.rows(slice(live)).write(layer, newest, keys.unsqueeze(1), values.unsqueeze(1))
        past_keys, past_values = self.cache.flat(layer, slice(live), self.filled)
        grouped = (live * kv_heads, -1, queries.shape[-1])
        scores = torch.bmm(queries.view(grouped), past_keys)
        if self._bias is not None:
            scores.view(live, kv_heads, -1, self.filled)[..., : self._width].add_(self._bias[:live])
        weights = torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
        torch.bmm(weights, past_values, out=out.view(grouped))

    def retire(self, finished: Sequence[int]) -> NDArray[np.int64]:
        """Move finished slots behind the live slots, by exchanging their rows.

        Args:
            finished: The live slots whose responses have ended.

        Returns:
            For each slot after the move, its number before, [slots].
        """
        order = np.arange(len(self.owner))
        remaining = self.live - len(finished)
        holes = [slot for slot in finished if slot < remaining]
        retired = set(finished)
        # There are as many live slots behind `remaining` as finished slots before it.
        movers = [slot for slot in range(remaining, self.live) if slot not in retired]
        for hole, mover in zip(holes, movers, strict=True):
            order[[hole, mover]] = order[[mover, hole]]
            self.cache.swap(hole, mover, self.filled)
        self.live = remaining
        self.owner, self.prompt, self.start = self.owner[order], self.prompt[order], self.start[order]
        if holes:
            self._mask()
        return order

    def _mask(self) -> None:
        """Compute `_bias`, the mask that is added to attention scores to hide the padding before each prompt.

        It is 0 for the columns of a prompt and -inf for its padding, [slots, 1, 1, columns of the longest prompt].
        Without padding, if all prompts are equally long, it stays None.
        """
        if not self.start.any():
            return
        like = self.cache.keys
        start = torch.from_numpy(self.start).to(like.device, non_blocking=True)
        hidden = torch.arange(self._width, device=like.device) < start[:, None]
        bias = torch.zeros(hidden.shape, device=like.device, dtype=like.dtype).masked_fill_(
            hidden, -torch.inf
        )
        self._bias = bias[:, None, None, :]


def prefill(
    decoder: Decoder, sequences: Sequence[Sequence[int]], cache: Cache, tokens_at_once: int
) -> torch.Tensor:
    """Fill row i of `cache` with the keys and values of sequence i, from column 0.

    A pass of the model reads as many of the next sequences as fit, each padded on the right to the longest of them.
    Causal attention never reads this padding. Sequences that are sorted by length need the least padding.

    Args:
        decoder: The model.
        sequences: Token ids.
        cache: The cache to fill.
        tokens_at_once: The most tokens of a pass, padding included, except for a single longer sequence.

    Returns:
        Logits at the end of each sequence, [rows, vocab].
    """
    logits = []
    first = 0
    while first < len(sequences):
        last, longest = first, 0
        while last < len(sequences):
            longest_with = max(longest, len(sequences[last]))
            if last > first and longest_with * (last + 1 - first) > tokens_at_once:
                break
            last, longest = last + 1, longest_with
        logits.append(_prefill_block(decoder, sequences[first:last], longest, cache.rows(slice(first, last))))
        first = last
    return torch.cat(logits)


def _prefill_block(
    decoder: Decoder, sequences: Sequence[Sequence[int]], longest: int, cache: Cache
) -> torch.Tensor:
    """Fill the rows of a cache with sequences, in one pass of the model.

    Args:
        decoder: The model.
        sequences: Token ids; sequence i fills row i.
        longest: The length of the longest sequence, to which the others are padded.
        cache: The rows to fill.

    Returns:
        Logits at the end of each sequence, [rows, vocab].
    """
    shape, device = decoder.shape, decoder.device
    rows = len(sequences)
    padded = torch.tensor([[*s, *[0] * (longest - len(s))] for s in sequences]).to(device, non_blocking=True)
    lengths = torch.tensor([len(s) for s in sequences]).to(device, non_blocking=True)
    ends = torch.arange(rows, device=device) * longest + lengths - 1
    decoder.cover(longest)

    def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Write a layer's keys and values to the cache, and return causal attention within each sequence."""
        q, k, v = (tensor.unflatten(0, (rows, longest)) for tensor in (queries, keys, values))
        cache.write(layer, slice(longest), k, v)
        k, v = (tensor.transpose(1, 2).repeat_interleave(shape.group, 1) for tensor in (k, v))
        mixed = functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(rows * longest, -1)

    positions = torch.arange(longest, device=device).repeat(rows)
    return decoder.run(padded.flatten(), positions, attend, ends)


def admit(
    decoder: Decoder,
    groups: Sequence[tuple[Sequence[int], Sequence[int]]],
    response_columns: int,
    tokens_at_once: int,
) -> tuple[Cohort, torch.Tensor]:
    """Make a cohort, a batch of responses that start together, and run the model over each different prompt once.

    The keys and values of a prompt are copied to the row of each request that has this prompt. Each row is filled so
    that all prompts end at the same column.

    Args:
        decoder: The model.
        groups: For each different prompt, its tokens and the indices of the requests that have it.
        response_columns: The number of columns after the prompts.
        tokens_at_once: The most tokens of a pass through the model.

    Returns:
        The cohort, and logits by slot, [rows, vocab].
    """
    prompts = [prompt for prompt, _ in groups]
    longest = max(map(len, prompts))
    owners = [owner for _, members in groups for owner in members]
    lengths = [len(prompt) for prompt, members in groups for _ in members]
    cohort = Cohort(decoder.shape, owners, lengths, longest + response_columns, decoder.like)
    prompts_cache = Cache.empty(decoder.shape, len(groups), longest, decoder.like)
    logits = prefill(decoder, prompts, prompts_cache, tokens_at_once)
    slot = 0
    for index, (prompt, members) in enumerate(groups):
        rows = slice(slot, slot + len(members))
        # Prompts end at one column, so that every row's next token goes to the same one.
        columns, read = slice(longest - len(prompt), longest), len(prompt)
        cohort.cache.keys[:, rows, ..., columns] = prompts_cache.keys[:, index, None, ..., :read]
        cohort.cache.values[:, rows, :, columns] = prompts_cache.values[:, index, None, :, :read]
        slot = rows.stop
    sizes = torch.tensor([len(members) for _, members in groups]).to(logits.device, non_blocking=True)
    return cohort, logits.repeat_interleave(sizes, 0, output_size=len(owners))
