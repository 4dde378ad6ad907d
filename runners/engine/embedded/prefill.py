"""Prefill: token sequences in, their keys and values in a cache and the logits after each sequence out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from runners.engine.embedded.cohort import Cohort
from runners.engine.embedded.decoder import Decoder


def prefill(
    decoder: Decoder, sequences: Sequence[Sequence[int]], cache: torch.Tensor, tokens_at_once: int
) -> torch.Tensor:
    """Fills `cache` [layers, 2, rows, kv_heads, columns, head_dim], row i from column 0 with sequence i.

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
        logits.append(_block(decoder, sequences[first:last], longest, cache[:, :, first:last]))
        first = last
    return torch.cat(logits)


def _block(
    decoder: Decoder, sequences: Sequence[Sequence[int]], longest: int, cache: torch.Tensor
) -> torch.Tensor:
    shape, device = decoder.shape, decoder.device
    rows = len(sequences)
    padded = torch.tensor([[*s, *[0] * (longest - len(s))] for s in sequences], device=device)
    lengths = torch.tensor([len(s) for s in sequences], device=device)
    ends = torch.arange(rows, device=device) * longest + lengths - 1
    decoder.cover(longest)

    def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.view(rows, longest, -1, shape.head_dim).transpose(1, 2) for part in (queries, keys, values)
        )
        cache[layer, 0, :, :, :longest] = k
        cache[layer, 1, :, :, :longest] = v
        mixed = functional.scaled_dot_product_attention(
            q,
            k.repeat_interleave(shape.group, 1),
            v.repeat_interleave(shape.group, 1),
            is_causal=True,
        )
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
    cohort = Cohort(decoder.shape, owners, lengths, longest + room, decoder.weights.embedding)
    _, _, _, kv_heads, _, width = cohort.cache.shape
    once = cohort.cache.new_zeros(decoder.shape.layers, 2, len(groups), kv_heads, longest, width)
    logits = prefill(decoder, prompts, once, tokens_at_once)
    slot = 0
    for index, (prompt, members) in enumerate(groups):
        rows = slice(slot, slot + len(members))
        # Prompts end at one column, so that every row's next token goes to the same one.
        cohort.cache[:, :, rows, :, longest - len(prompt) : longest] = once[
            :, :, index, None, :, : len(prompt)
        ]
        slot = rows.stop
    sizes = torch.tensor([len(members) for _, members in groups], device=logits.device)
    return cohort, logits.repeat_interleave(sizes, 0)
