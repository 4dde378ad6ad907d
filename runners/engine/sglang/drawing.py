"""Sample a batch's next tokens, each row by its own kind: greedy, from the full distribution, or from a truncated one.

Loaded by the launcher inside SGLang's processes, so it imports torch alone. Sorting a vocabulary is the cost of
sampling: only rows with top-k, top-p or min-p are sorted, whatever else is in their batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Pick = Callable[[Any, Any], Any]
"""A function of rows of probabilities and their positions in the batch, to a token for each, as a column."""


def draw_rows(
    probs: Any, top_ks: Any, top_ps: Any, min_ps: Any | None, pick: Pick
) -> tuple[Any, Any, Any, Any]:
    """Sample a token from each row of probabilities.

    Random numbers go to tokens by id, so a row's sample does not depend on its batch. `top_ks` of 1 take the most
    likely token, the first of equals; top-p keeps its share of what top-k left.

    Args:
        probs: [rows, vocab].
        top_ks: [rows].
        top_ps: [rows].
        min_ps: [rows], or None if no row has it.
        pick: The random choice.

    Returns:
        Tokens [rows, 1]; weights [rows, vocab] after truncation; the token of each weight; and the sampled token's
            weight,
        [rows].
    """
    rows, width = probs.shape
    top_ks, top_ps = top_ks.view(-1), top_ps.view(-1)
    greedy = top_ks <= 1
    uncut = ~greedy & (top_ks >= width) & (top_ps >= 1.0)
    if min_ps is not None:
        uncut &= min_ps.view(-1) <= 0.0
    tokens = torch.empty(rows, 1, dtype=torch.long, device=probs.device)
    weights, ids = probs.clone(), torch.arange(width, device=probs.device).repeat(rows, 1)
    for kind, draw in ((greedy, _draw_greedy), (uncut, _draw_full), (~(greedy | uncut), _draw_cut)):
        i = kind.nonzero().view(-1)
        if len(i):
            limits = (top_ks[i], top_ps[i], None if min_ps is None else min_ps.view(-1)[i])
            tokens[i], weights[i], ids[i] = draw(probs[i], *limits, lambda kept, i=i: pick(kept, i))
    weight = torch.where(ids == tokens, weights, 0.0).sum(dim=-1)
    return tokens, weights, ids, weight


def draw_uncut(probs: Any, top_ks: Any, pick: Pick) -> Any:
    """Return the tokens of `draw_rows` if no row is truncated: each row is greedy or of the full distribution.

    Nothing is sorted or copied, and the device is not waited for: forced answers run beside responses at most times.
    """
    likeliest = probs.argmax(dim=-1, keepdim=True)
    return torch.where(top_ks.view(-1, 1) <= 1, likeliest, pick(probs, slice(None)))


def _draw_greedy(probs: Any, top_ks: Any, top_ps: Any, min_ps: Any, pick: Any) -> tuple[Any, Any, Any]:
    """Return the most likely token of each row."""
    tokens = probs.argmax(dim=-1, keepdim=True)
    masked = torch.zeros_like(probs).scatter_(-1, tokens, probs.gather(-1, tokens))
    return tokens, masked, torch.arange(probs.shape[-1], device=probs.device).expand_as(probs)


def _draw_full(probs: Any, top_ks: Any, top_ps: Any, min_ps: Any, pick: Any) -> tuple[Any, Any, Any]:
    """Sample each row from its full distribution."""
    return pick(probs), probs, torch.arange(probs.shape[-1], device=probs.device).expand_as(probs)


def _draw_cut(probs: Any, top_ks: Any, top_ps: Any, min_ps: Any, pick: Any) -> tuple[Any, Any, Any]:
    """Sample each row after top-k, top-p and min-p."""
    falling, ids = probs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    falling = falling.masked_fill(rank >= top_ks.view(-1, 1), 0.0)
    share = falling / falling.sum(dim=-1, keepdim=True)
    before = torch.cumsum(share, dim=-1) - share
    top_ps = top_ps.view(-1, 1)
    falling = falling.masked_fill((before >= top_ps) & (top_ps < 1.0) & (rank > 0), 0.0)
    if min_ps is not None:
        falling = falling.masked_fill(falling < falling[:, :1] * min_ps.view(-1, 1), 0.0)
    return pick(torch.zeros_like(probs).scatter_(-1, ids, falling)), falling, ids
