"""Differentiable pieces of a decoder layer on a processor with products in bfloat16, with gradients written by hand.

Weights come in float32 and are rounded for each micro-batch; their gradients go back in float32, rounded once. What is
multiplied is bfloat16, sums inside a product, softmax, norms and the residual stream are float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from runners.rounded import HALF, rounded, rounded_inputs
from runners.rows import filled


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x, weight = x.to(HALF), weight.to(HALF)
        ctx.save_for_backward(x, weight)
        return torch.nn.functional.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        grad = grads[0].to(HALF).contiguous()
        return grad @ weight, (grad.t() @ x).float()


class _Attention(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, width, kv_heads, group, dim = q.shape
        q, k, v = _by_head(q), _by_head(k), _by_head(v)
        scores = torch.baddbmm(_hidden(width, group), q, k.transpose(1, 2), alpha=dim**-0.5)
        weights = torch.softmax(scores, -1)
        ctx.save_for_backward(q, k, v, weights)
        ctx.sizes = rows, kv_heads, width, group, dim
        return _by_token(torch.bmm(weights, v), *ctx.sizes)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, weights = ctx.saved_tensors
        rows, kv_heads, width, _, dim = ctx.sizes
        grad = _by_head(grads[0].to(HALF))
        flow = torch.bmm(grad, v.transpose(1, 2))
        flow = torch.ops.aten._softmax_backward_data(flow, weights, -1, HALF)
        d_q = torch.bmm(flow, k).mul_(dim**-0.5)
        d_k = torch.bmm(flow.transpose(1, 2), q).mul_(dim**-0.5)
        d_v = torch.bmm(weights.transpose(1, 2), grad)
        single = (rows, kv_heads, width, 1, dim)
        return _by_token(d_q, *ctx.sizes), _by_token(d_k, *single), _by_token(d_v, *single)


def _by_head(x: Tensor) -> Tensor:
    """Rearrange [rows, width, kv heads, group, dim] as [rows × kv heads, width × group, dim]."""
    rows, width, kv_heads, group, dim = x.shape
    return x.transpose(1, 2).reshape(rows * kv_heads, width * group, dim)


def _by_token(x: Tensor, rows: int, kv_heads: int, width: int, group: int, dim: int) -> Tensor:
    """Invert `_by_head`."""
    return x.view(rows, kv_heads, width, group, dim).transpose(1, 2)


def _hidden(width: int, group: int) -> Tensor:
    """Return minus infinity where a query would see a later key: [width × group, width]."""
    query = torch.arange(width).repeat_interleave(group)
    later = torch.arange(width)[None, :] > query[:, None]
    return torch.zeros(width * group, width, dtype=HALF).masked_fill_(later, -torch.inf)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight.T` in bfloat16, for x [rows, in] and weight [out, in] in float32."""
    return _Linear.apply(x, weight)


def linear_add(x: Tensor, weight: Tensor, onto: Tensor) -> Tensor:
    """Return `onto + x @ weight.T` in float32, for `onto` [rows, out]."""
    return onto + _Linear.apply(x, weight)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention: q [rows, width, kv heads, group, dim], k and v with a group of 1, in bfloat16; as q."""
    return _Attention.apply(q, k, v)


class _TokenLogprobs(Function):
    """Log-probabilities of tokens, as in `logprobs`, with logits in float32 of rounded inputs.

    Their slopes are kept in bfloat16, as the backward products take them, so that nothing is computed again.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float) -> Tensor:
        rows, vocabulary = hidden.shape[0], weight.shape[0]
        learns = any(ctx.needs_input_grad)
        slopes = torch.empty(rows if learns else 0, vocabulary, dtype=HALF)
        logprobs = hidden.new_empty(rows)
        logits = torch.empty(min(CHUNK, rows), vocabulary)
        columns = rounded(weight).t()
        with rounded_inputs():
            for start in range(0, rows, CHUNK):
                part = slice(start, min(start + CHUNK, rows))
                scores = logits[: part.stop - part.start]
                torch.mm(rounded(hidden[part]), columns, out=scores)
                if temperature != 1.0:
                    scores.div_(temperature)
                torch._log_softmax(scores, -1, False, out=scores)
                logprobs[part] = scores.gather(1, targets[part, None]).squeeze(1)
                if learns:
                    # softmax - onehot, minus d logp / d logits: 1 - p is small where the model is sure, and rounded last.
                    scores.exp_().scatter_(1, targets[part, None], torch.expm1(logprobs[part, None]))
                    slopes[part] = scores
        if learns:
            ctx.save_for_backward(hidden.to(HALF), weight.to(HALF), slopes)
        ctx.temperature = temperature
        return logprobs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden, weight, slopes = ctx.saved_tensors
        grad = (grads[0] / ctx.temperature).to(HALF)
        flow = slopes * -grad[:, None]
        return (flow @ weight).float(), (flow.t() @ hidden).float(), None, None


CHUNK = 512
"""Rows whose float32 logits are held at once."""


def token_logprobs(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Return log softmax(hidden @ weight.T / temperature) at `targets`.

    [tokens] from [tokens, hidden] and [vocabulary, hidden].
    """
    logprobs: Tensor = _TokenLogprobs.apply(filled(hidden), weight, filled(targets), temperature)
    return logprobs[: len(targets)]
