"""Draw a batch's next tokens, each row by its own kind: the likeliest, of the whole distribution, or of a cut one.

Loaded by the launcher inside SGLang's processes, so it imports torch alone. Sorting a vocabulary is what drawing costs:
only rows with top-k, top-p or min-p are sorted, whatever else is in their batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Pick = Callable[[Any, Any], Any]
"""A function of rows of probabilities and their places in the batch, to one token each, as a column."""


def draw_rows(
    probs: Any, top_ks: Any, top_ps: Any, min_ps: Any | None, pick: Pick
) -> tuple[Any, Any, Any, Any]:
    """Draw a token from each row of probabilities; return it, the weights, the token of each, and the drawn one's weight.

    Random numbers go to tokens by id, so what a row draws does not depend on the rows beside it. `top_ks` of 1 take the
    likeliest token, the first of equals; top-p keeps its share of what top-k left. `min_ps` is None where no row has any.
    """
    rows, width = probs.shape
    top_ks, top_ps = top_ks.view(-1), top_ps.view(-1)
    greedy = top_ks <= 1
    whole = ~greedy & (top_ks >= width) & (top_ps >= 1.0)
    if min_ps is not None:
        whole &= min_ps.view(-1) <= 0.0
    tokens = torch.empty(rows, 1, dtype=torch.long, device=probs.device)
    weights, ids = probs.clone(), torch.arange(width, device=probs.device).repeat(rows, 1)
    for kind, draw in ((greedy, _likeliest), (whole, _any), (~(greedy | whole), _cut)):
        at = kind.nonzero().view(-1)
        if len(at):
            limits = top_ks[at], top_ps[at], None if min_ps is None else min_ps.view(-1)[at]
            tokens[at], weights[at], ids[at] = draw(probs[at], *limits, lambda kept, at=at: pick(kept, at))
    drawn = torch.where(ids == tokens, weights, 0.0).sum(dim=-1)
    return tokens, weights, ids, drawn


def draw_uncut(probs: Any, top_ks: Any, pick: Pick) -> Any:
    """Draw what `draw_rows` draws where no row is cut, and each is of the likeliest token or the whole distribution.

    Nothing is sorted or copied, and the device is not waited for: forced answers run beside responses at most times.
    """
    likeliest = probs.argmax(dim=-1, keepdim=True)
    return torch.where(top_ks.view(-1, 1) <= 1, likeliest, pick(probs, slice(None)))


def _likeliest(probs: Any, top_ks: Any, top_ps: Any, min_ps: Any, pick: Any) -> tuple[Any, Any, Any]:
    tokens = probs.argmax(dim=-1, keepdim=True)
    kept = torch.zeros_like(probs).scatter_(-1, tokens, probs.gather(-1, tokens))
    return tokens, kept, torch.arange(probs.shape[-1], device=probs.device).expand_as(probs)


def _any(probs: Any, top_ks: Any, top_ps: Any, min_ps: Any, pick: Any) -> tuple[Any, Any, Any]:
    return pick(probs), probs, torch.arange(probs.shape[-1], device=probs.device).expand_as(probs)


def _cut(probs: Any, top_ks: Any, top_ps: Any, min_ps: Any, pick: Any) -> tuple[Any, Any, Any]:
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
