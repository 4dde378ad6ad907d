"""Differentiable log-probabilities of given tokens, [tokens], from hidden states and the output matrix."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from runners.products import rounded_inputs
from runners.train.fused import compile_kernel

CHUNK_ELEMENTS, GPU_CHUNK_ELEMENTS = 1 << 25, 1 << 27
"""Logits that are held at once: 128 MiB in float32, and 512 MiB on a GPU, whose products need more rows to be fast."""


class _TokenLogprobs(Function):
    """Works through the tokens in chunks and keeps no logits; the backward pass makes them again, a chunk at a time."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float) -> Tensor:
        chunk = chunk_rows(weight)
        norms, parts = [], []
        keep = hidden.shape[0] <= chunk
        logits = hidden.new_empty(0)
        for start in range(0, hidden.shape[0], chunk):
            logits = make_logits(hidden[start : start + chunk], weight, temperature)
            part, norm = compile_kernel(_pick, logits.device)(logits, targets[start : start + chunk])
            norms.append(norm)
            parts.append(part)
        norm = torch.cat(norms) if norms else hidden.new_empty(0)
        ctx.save_for_backward(hidden, weight, targets, norm, *([logits] if keep else []))
        ctx.temperature, ctx.chunk = temperature, chunk
        return torch.cat(parts) if parts else hidden.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        hidden, weight, targets, norm, *kept = ctx.saved_tensors
        grad = grads[0] / ctx.temperature
        # Summed in float32: a chunk's share would be lost in a bfloat16 sum of many.
        d_hidden = torch.empty_like(hidden)
        # Beside adapters the output matrix is not trained, and its gradient would be as large.
        learns = ctx.needs_input_grad[1]
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if learns else None
        for start in range(0, hidden.shape[0], ctx.chunk):
            rows = slice(start, start + ctx.chunk)
            logits = kept[0] if kept else make_logits(hidden[rows], weight, ctx.temperature)
            slopes = compile_kernel(_slopes, logits.device)
            flow = slopes(logits, norm[rows], targets[rows], grad[rows], hidden.dtype)
            d_hidden[rows] = flow @ weight
            if d_weight is not None:
                add_product(d_weight, flow, hidden[rows])
        return d_hidden, None if d_weight is None else d_weight.to(weight.dtype), None, None


def chunk_rows(weight: Tensor) -> int:
    """Return how many tokens' logits are held at once."""
    most = CHUNK_ELEMENTS if weight.device.type == "cpu" else GPU_CHUNK_ELEMENTS
    return max(1, most // weight.shape[0])


def make_logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """Return hidden @ weight.T / temperature in float32, [tokens, vocabulary]."""
    logits = _wide_product(hidden, weight)
    return logits if temperature == 1.0 else logits.div_(temperature)


def _wide_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight.T` in float32. Of half-precision tensors the sums are never rounded to half precision."""
    if _sums_wide(x):
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    if x.dtype == torch.float32:
        return F.linear(x, weight)
    with rounded_inputs():
        return F.linear(x.float(), weight.float())


def add_product(total: Tensor, flow: Tensor, hidden: Tensor) -> None:
    """Add `flow.T @ hidden` to a float32 matrix: in place on CUDA, where the product is as large as the matrix."""
    if _sums_wide(flow):
        torch.addmm(total, flow.t(), hidden, out_dtype=torch.float32, out=total)
    else:
        total += (flow.t() @ hidden).float()


def _sums_wide(x: Tensor) -> bool:
    """Return whether products of such tensors are made in half precision and summed in float32."""
    return x.device.type == "cuda" and x.dtype in (torch.bfloat16, torch.float16)


def _pick(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the targets, and the logarithm of each row's sum."""
    norm = torch.logsumexp(logits, -1)
    return logits.gather(1, targets[:, None]).squeeze(1) - norm, norm


def _slopes(logits: Tensor, norm: Tensor, targets: Tensor, grad: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gradient by the logits: `onehot - softmax` times that by the log-probability."""
    flow = torch.exp(logits - norm[:, None]).mul_(-grad[:, None])
    return flow.scatter_add_(1, targets[:, None], grad[:, None]).to(dtype)


def token_entropies(hidden: Tensor, weight: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the entropy in nats of softmax(hidden @ weight.T / temperature), row by row: [tokens], as of `token_logprobs`.

    The backward pass makes a chunk's logits again, so that no more than one chunk's are held.
    """
    rows = hidden.split(chunk_rows(weight))
    parts = [checkpoint(_entropies, part, weight, temperature, use_reentrant=False) for part in rows]
    return torch.cat(parts)


def _entropies(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    logprobs = torch.log_softmax(F.linear(hidden, weight).float() / temperature, -1)
    return -(logprobs.exp() * logprobs).sum(-1)


def token_logprobs(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Return log softmax(hidden @ weight.T / temperature) at `targets`.

    [tokens] from [tokens, hidden] and [vocabulary, hidden].
    """
    logprobs: Tensor = _TokenLogprobs.apply(hidden, weight, targets, temperature)
    return logprobs
