"""Sample a batch's next tokens, each row by its own kind: greedy, from the full distribution, or from a truncated one.

Loaded by the launcher inside SGLang's processes, so it imports torch alone. Sorting a vocabulary is the cost of
sampling: only rows with top-k, top-p or min-p are sorted, whatever else is in their batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Pick = Callable[[Any, Any], Any]
"""Samples a token id for each row of weights, as a column [n, 1].

The arguments are weights [n, vocab], by token id, and the indices of these n rows in the batch, which have their seeds.
"""


def draw_rows(
    probs: Any, top_ks: Any, top_ps: Any, min_ps: Any | None, pick: Pick
) -> tuple[Any, Any, Any, Any]:
    """Sample a token from each row of probabilities: greedily, from the full distribution, or after truncation.

    Random numbers belong to token ids, so a row's sample does not depend on the other rows of its batch.

    Args:
        probs: Probabilities, [rows, vocab].
        top_ks: The number of most likely tokens that remain, [rows]; 1 for greedy sampling (the lowest id of equals).
        top_ps: The share of the remaining probability that top-p keeps, [rows].
        min_ps: The least probability relative to the most likely token, [rows]; None if no row has a minimum.
        pick: Samples a token at random from each row of weights, which are not normalised (see `Pick`).

    Returns:
        Tokens [rows, 1], weights after truncation [rows, vocab], the token id of each weight [rows, vocab], and the
        weight of the sampled token [rows].
    """
    rows, vocab = probs.shape
    top_ks, top_ps = top_ks.view(-1), top_ps.view(-1)
    is_greedy = top_ks <= 1
    is_full = ~is_greedy & (top_ks >= vocab) & (top_ps >= 1.0)
    if min_ps is not None:
        is_full &= min_ps.view(-1) <= 0.0
    tokens = torch.empty(rows, 1, dtype=torch.long, device=probs.device)
    weights, ids = probs.clone(), torch.arange(vocab, device=probs.device).repeat(rows, 1)
    samplers = ((is_greedy, _draw_greedy), (is_full, _draw_full), (~(is_greedy | is_full), _draw_truncated))
    for mask, draw in samplers:
        i = mask.nonzero().view(-1)
        if len(i):
            limits = (top_ks[i], top_ps[i], None if min_ps is None else min_ps.view(-1)[i])
            tokens[i], weights[i], ids[i] = draw(probs[i], *limits, lambda weights, i=i: pick(weights, i))
    return tokens, weights, ids, torch.where(ids == tokens, weights, 0.0).sum(dim=-1)


def draw_uncut(probs: Any, top_ks: Any, pick: Pick) -> Any:
    """Return the tokens of `draw_rows` for a batch without truncated rows: each row is greedy or fully sampled.

    This is faster, because it neither sorts nor copies probabilities, nor waits for the device.

    Args:
        probs: Probabilities, [rows, vocab].
        top_ks: 1 or less for greedy rows, [rows].
        pick: Samples a token at random from each row of weights (see `Pick`).

    Returns:
        Tokens [rows, 1].
    """
    most_likely = probs.argmax(dim=-1, keepdim=True)
    return torch.where(top_ks.view(-1, 1) <= 1, most_likely, pick(probs, slice(None)))


def _draw_greedy(probs: Any, top_ks: Any, top_ps: Any, min_ps: Any, pick: Any) -> tuple[Any, Any, Any]:
    """Return the most likely token of each row, whose weight is its probability; all other weights are 0.

    Only `probs` is used.

    Args:
        probs: Probabilities, [rows, vocab].
        top_ks: The number of most likely tokens that remain, [rows].
        top_ps: The share of the remaining probability that top-p keeps, [rows].
        min_ps: The least probability relative to the most likely token, [rows]; None for no minimum.
        pick: Samples a token from each row of weights.

    Returns:
        Tokens [rows, 1], weights [rows, vocab], and the token id of each weight [rows, vocab].
    """
    tokens = probs.argmax(dim=-1, keepdim=True)
    masked = torch.zeros_like(probs).scatter_(-1, tokens, probs.gather(-1, tokens))
    return tokens, masked, torch.arange(probs.shape[-1], device=probs.device).expand_as(probs)


def _draw_full(probs: Any, top_ks: Any, top_ps: Any, min_ps: Any, pick: Any) -> tuple[Any, Any, Any]:
    """Sample each row from its full distribution; only `probs` and `pick` are used.

    Args:
        probs: Probabilities, [rows, vocab].
        top_ks: The number of most likely tokens that remain, [rows].
        top_ps: The share of the remaining probability that top-p keeps, [rows].
        min_ps: The least probability relative to the most likely token, [rows]; None for no minimum.
        pick: Samples a token from each row of weights.

    Returns:
        Tokens [rows, 1], weights [rows, vocab], and the token id of each weight [rows, vocab].
    """
    return pick(probs), probs, torch.arange(probs.shape[-1], device=probs.device).expand_as(probs)


def _draw_truncated(probs: Any, top_ks: Any, top_ps: Any, min_ps: Any, pick: Any) -> tuple[Any, Any, Any]:
    """Sample each row after truncation by top-k, then top-p, then min-p.

    The returned weights are sorted in falling order, with 0 for tokens that truncation removed. Truncation always
    leaves the most likely token.

    Args:
        probs: Probabilities, [rows, vocab].
        top_ks: The number of most likely tokens that remain, [rows].
        top_ps: The share of the remaining probability that top-p keeps, [rows].
        min_ps: The least probability relative to the most likely token, [rows]; None for no minimum.
        pick: Samples a token from each row of weights.

    Returns:
        Tokens [rows, 1], weights [rows, vocab], and the token id of each weight [rows, vocab].
    """
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
