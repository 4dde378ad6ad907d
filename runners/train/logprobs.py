"""Differentiable numbers of tokens, from hidden states and output matrices: log-probabilities, entropies, divergences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from reodsl.ir.training import Loss
from runners.train.attention import compile_kernel

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


HELD = 4
"""Matrices of logits that are held at once: both models', and what is made of them."""


@dataclass(frozen=True, slots=True)
class Distributions:
    """The distributions that a policy's are compared with: hidden states [tokens, hidden] and an output matrix, and how."""

    hidden: Tensor
    weight: Tensor
    form: Loss


@dataclass(frozen=True, slots=True)
class Likeliest:
    """The most likely tokens of the other distributions, and how.

    `ids` are [tokens, k], and `logprobs` theirs and then that of all others together, [tokens, k + 1].
    """

    ids: Tensor
    logprobs: Tensor
    form: Loss


@torch.no_grad()
def find_likeliest(hidden: Tensor, weight: Tensor, count: int, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the ids and log-probabilities of `Likeliest`, of softmax(hidden @ weight.T / temperature)."""
    count = min(count, len(weight) - 1)
    ids = torch.empty(len(hidden), count, dtype=torch.int32, device=hidden.device)
    logprobs = torch.empty(len(hidden), count + 1, device=hidden.device)
    for part in _chunks(hidden, weight):
        every = _logprobs(hidden[part], weight, temperature)
        top = every.topk(count, -1)
        ids[part] = top.indices.int()
        logprobs[part, :count] = top.values
        logprobs[part, count] = every.scatter_(1, top.indices, -math.inf).logsumexp(-1)
    return ids, logprobs


def score_tokens(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float,
    entropies: bool,
    other: Distributions | Likeliest | None,
) -> Tensor:
    """Return the log-probabilities of targets, [tokens]; with entropies or divergences from `other` those in rows below."""
    rows = [token_logprobs(hidden, weight, targets, temperature)]
    if entropies:
        rows.append(token_entropies(hidden, weight, temperature))
    if other is not None:
        rows.append(token_divergences(hidden, weight, other, temperature))
    return torch.stack(rows) if len(rows) > 1 else rows[0]


def token_divergences(
    hidden: Tensor, weight: Tensor, other: Distributions | Likeliest, temperature: float = 1.0
) -> Tensor:
    """Return how far p is from q at each token, in nats [tokens], with p the policy's distribution and q the other.

    p is softmax(hidden @ weight.T / temperature), and q is made alike. A vocabulary that is padded further in one model than
    in the other counts as far as both go. With the mixture m = beta q + (1 - beta) p the forms are

    - `reverse`: KL(p || q), as in MiniLLM (Gu et al. 2024).
    - `forward`: KL(q || p).
    - `jsd`: beta KL(q || m) + (1 - beta) KL(p || m) (Agarwal et al. 2024, On-Policy Distillation of Language Models, eq. 1).

    Of `Likeliest` tokens these are over k + 1 outcomes, of which the last has what is left of p and of q. That is never more
    than over the vocabulary, and 0 where p and q agree on each of the k.

    The gradient is by p alone. No more than a chunk's logits are held: the backward pass makes them again.
    """
    if isinstance(other, Likeliest):
        theirs, matrix = other.ids.long(), other.logprobs
    else:
        rows = min(len(weight), len(other.weight))
        weight, theirs, matrix = weight[:rows], other.hidden, other.weight[:rows]
    apart: Tensor = _Divergences.apply(hidden, weight, theirs, matrix, temperature, other.form)
    return apart


class _Divergences(Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        theirs: Tensor,
        matrix: Tensor,
        temperature: float,
        form: Loss,
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, theirs, matrix)
        ctx.temperature, ctx.form = temperature, form
        apart = torch.empty(len(hidden), device=hidden.device)
        for part in _chunks(hidden, weight):
            apart[part] = _outcomes(hidden[part], weight, theirs[part], matrix, part, temperature, form)[0]
        return apart

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        hidden, weight, theirs, matrix = ctx.saved_tensors
        grad = grads[0] / ctx.temperature
        d_hidden = torch.empty_like(hidden)
        # Beside adapters the output matrix is not trained, and its gradient would be as large.
        learns = ctx.needs_input_grad[1]
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if learns else None
        for part in _chunks(hidden, weight):
            slopes = _outcomes(hidden[part], weight, theirs[part], matrix, part, ctx.temperature, ctx.form)[1]
            flow = slopes.mul_(grad[part, None]).to(hidden.dtype)
            d_hidden[part] = flow @ weight
            if d_weight is not None:
                add_product(d_weight, flow, hidden[part])
        return d_hidden, None if d_weight is None else d_weight.to(weight.dtype), None, None, None, None


def _chunks(hidden: Tensor, weight: Tensor) -> list[slice]:
    size = max(1, chunk_rows(weight) // HELD)
    return [slice(start, min(start + size, len(hidden))) for start in range(0, len(hidden), size)]


def _logprobs(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    return torch.log_softmax(make_logits(hidden, weight, temperature), -1)


def _outcomes(
    hidden: Tensor,
    weight: Tensor,
    theirs: Tensor,
    matrix: Tensor,
    part: slice,
    temperature: float,
    form: Loss,
) -> tuple[Tensor, Tensor]:
    """Return a chunk's divergences and their slopes by its logits; `theirs` are hidden states, or ids of likely tokens.

    A token of the last outcome, of all others together, has its share of the slope by that.
    """
    every = _logprobs(hidden, weight, temperature)
    if theirs.dtype != torch.int64:
        return _compare(every, _logprobs(theirs, matrix, temperature), form)
    rest = every.scatter(1, theirs, -math.inf).logsumexp(-1, keepdim=True)
    apart, slopes = _compare(torch.cat((every.gather(1, theirs), rest), 1), matrix[part], form)
    shared = (every - rest).exp_().mul_(slopes[:, -1:])
    return apart, shared.scatter_(1, theirs, slopes[:, :-1])


def _compare(mine: Tensor, theirs: Tensor, form: Loss) -> tuple[Tensor, Tensor]:
    """Return the divergences of rows of log-probabilities, and their slopes by the first as logits of its outcomes.

    A divergence's slope by a logit is p times what its own term is past the mean of all: for `reverse` the terms are
    log p - log q, for `jsd` 1 - beta times log p - log m. For `forward` it is p - q.
    """
    p, q = mine.exp(), theirs.exp()
    if form.estimator == "forward":
        return (q * (theirs - mine)).sum(-1), p - q
    if form.estimator == "reverse":
        terms = mine - theirs
        apart = (p * terms).sum(-1)
        return apart, p * (terms - apart[:, None])
    beta = form.jsd_beta
    mixed = torch.logaddexp(mine + math.log1p(-beta), theirs + math.log(beta))
    terms = mine - mixed
    near = (p * terms).sum(-1)
    apart = beta * (q * (theirs - mixed)).sum(-1) + (1 - beta) * near
    return apart, (1 - beta) * p * (terms - near[:, None])
