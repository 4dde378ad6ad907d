"""Prefill: put sequences' keys and values in a cache, and give the logits after each sequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from runners.engine.embedded.cache import Cache
from runners.engine.embedded.cohort import Cohort
from runners.engine.embedded.decoder import Decoder


def prefill(
    decoder: Decoder, sequences: Sequence[Sequence[int]], cache: Cache, tokens_at_once: int
) -> torch.Tensor:
    """Fills row i of `cache` with sequence i, from column 0.

    Returns logits [rows, vocab] at the end of each sequence. Sequences are padded on the right, where causal
    attention never looks; sort them by length to waste little.
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
        logits.append(_block(decoder, sequences[first:last], longest, cache.rows(slice(first, last))))
        first = last
    return torch.cat(logits)


def _block(decoder: Decoder, sequences: Sequence[Sequence[int]], longest: int, cache: Cache) -> torch.Tensor:
    shape, device = decoder.shape, decoder.device
    rows = len(sequences)
    padded = torch.tensor([[*s, *[0] * (longest - len(s))] for s in sequences], device=device)
    lengths = torch.tensor([len(s) for s in sequences], device=device)
    ends = torch.arange(rows, device=device) * longest + lengths - 1
    decoder.cover(longest)

    def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(0, (rows, longest)) for part in (queries, keys, values))
        cache.write(layer, slice(longest), k, v)
        k, v = (part.transpose(1, 2).repeat_interleave(shape.group, 1) for part in (k, v))
        mixed = functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(rows * longest, -1)

    positions = torch.arange(longest, device=device).repeat(rows)
    return decoder.run(padded.flatten(), positions, attend, ends)


def admit(
    decoder: Decoder, groups: Sequence[tuple[Sequence[int], Sequence[int]]], room: int, tokens_at_once: int
) -> tuple[Cohort, torch.Tensor]:
    """A new cohort from (prompt, requests with it) pairs, each prompt read once; logits [rows, vocab] by slot.

    `room` is the number of columns after the prompts.
    """
    prompts = [prompt for prompt, _ in groups]
    longest = max(map(len, prompts))
    owners = [owner for _, members in groups for owner in members]
    lengths = [len(prompt) for prompt, members in groups for _ in members]
    cohort = Cohort(decoder.shape, owners, lengths, longest + room, decoder.like)
    once = Cache.empty(decoder.shape, len(groups), longest, decoder.like)
    logits = prefill(decoder, prompts, once, tokens_at_once)
    slot = 0
    for index, (prompt, members) in enumerate(groups):
        rows = slice(slot, slot + len(members))
        # Prompts end at one column, so that every row's next token goes to the same one.
        columns, read = slice(longest - len(prompt), longest), len(prompt)
        cohort.cache.keys[:, rows, ..., columns] = once.keys[:, index, None, ..., :read]
        cohort.cache.values[:, rows, :, columns] = once.values[:, index, None, :, :read]
        slot = rows.stop
    sizes = torch.tensor([len(members) for _, members in groups], device=logits.device)
    return cohort, logits.repeat_interleave(sizes, 0, output_size=len(owners))
