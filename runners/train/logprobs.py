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
"""Logits in memory at once: 128 MiB in float32, and 512 MiB on a GPU, whose products need more rows to be fast."""


class _TokenLogprobs(Function):
    """The log-probabilities of targets in chunks of tokens, without kept logits; the backward pass makes them again."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float) -> Tensor:
        """Return the log-probabilities of `token_logprobs`.

        Returns:
            [tokens].
        """
        chunk = chunk_rows(weight)
        norms, parts = [], []
        keep = hidden.shape[0] <= chunk
        logits = hidden.new_empty(0)
        for start in range(0, hidden.shape[0], chunk):
            logits = make_logits(hidden[start : start + chunk], weight, temperature)
            picked, norm = compile_kernel(_pick, logits.device)(logits, targets[start : start + chunk])
            norms.append(norm)
            parts.append(picked)
        norm = torch.cat(norms) if norms else hidden.new_empty(0)
        ctx.save_for_backward(hidden, weight, targets, norm, *([logits] if keep else []))
        ctx.temperature, ctx.chunk = temperature, chunk
        return torch.cat(parts) if parts else hidden.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        """Return the gradients with respect to the hidden states and the output matrix.

        Returns:
            [tokens, hidden], and [vocabulary, hidden] or None if the matrix is not trained.
        """
        hidden, weight, targets, norm, *saved = ctx.saved_tensors
        grad = grads[0] / ctx.temperature
        # Summed in float32: a chunk's share would be lost in a bfloat16 sum of many.
        d_hidden = torch.empty_like(hidden)
        # With adapters the output matrix is not trained, and its gradient would take as much memory as the matrix.
        learns = ctx.needs_input_grad[1]
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if learns else None
        for start in range(0, hidden.shape[0], ctx.chunk):
            rows = slice(start, start + ctx.chunk)
            logits = saved[0] if saved else make_logits(hidden[rows], weight, ctx.temperature)
            slopes = compile_kernel(_slopes, logits.device)
            flow = slopes(logits, norm[rows], targets[rows], grad[rows], hidden.dtype)
            d_hidden[rows] = flow @ weight
            if d_weight is not None:
                add_product(d_weight, flow, hidden[rows])
        return d_hidden, None if d_weight is None else d_weight.to(weight.dtype), None, None


def chunk_rows(weight: Tensor) -> int:
    """Return how many tokens' logits are in memory at once.

    Args:
        weight: The output matrix, [vocabulary, hidden].

    Returns:
        Tokens of a chunk.
    """
    most = CHUNK_ELEMENTS if weight.device.type == "cpu" else GPU_CHUNK_ELEMENTS
    return max(1, most // weight.shape[0])


def make_logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """Return hidden @ weight.T / temperature in float32.

    Returns:
        Logits, [tokens, vocabulary], from [tokens, hidden] and [vocabulary, hidden].
    """
    logits = _wide_product(hidden, weight)
    return logits if temperature == 1.0 else logits.div_(temperature)


def _wide_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight.T` in float32. Of half-precision tensors the sums are never rounded to half precision."""
    if _sums_wide(x):
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return F.linear(x.float(), weight.float())


def add_product(total: Tensor, flow: Tensor, hidden: Tensor) -> None:
    """Add `flow.T @ hidden` to a float32 matrix: in place on CUDA, because the product is as large as the matrix.

    Args:
        total: The sum, [vocabulary, hidden].
        flow: Gradients by logits, [tokens, vocabulary].
        hidden: Hidden states, [tokens, hidden].
    """
    if _sums_wide(flow):
        torch.addmm(total, flow.t(), hidden, out_dtype=torch.float32, out=total)
    else:
        total += (flow.t() @ hidden).float()


def _sums_wide(x: Tensor) -> bool:
    """Return whether products of these tensors are made in half precision and summed in float32."""
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
    """Return the entropy of softmax(hidden @ weight.T / temperature) at each token.

    The backward pass makes a chunk's logits again, so that only one chunk of logits is in memory.

    Args:
        hidden: Hidden states, [tokens, hidden].
        weight: The output matrix, [vocabulary, hidden].
        temperature: Of the distribution.

    Returns:
        Entropies in nats, [tokens], with a gradient.
    """
    rows = hidden.split(chunk_rows(weight))
    parts = [checkpoint(_entropies, chunk, weight, temperature, use_reentrant=False) for chunk in rows]
    return torch.cat(parts)


def _entropies(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    logprobs = torch.log_softmax(F.linear(hidden, weight).float() / temperature, -1)
    return -(logprobs.exp() * logprobs).sum(-1)


def token_logprobs(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Return log softmax(hidden @ weight.T / temperature) at the targets.

    Args:
        hidden: Hidden states, [tokens, hidden].
        weight: The output matrix, [vocabulary, hidden].
        targets: Token ids, [tokens].
        temperature: Of the distribution.

    Returns:
        Log-probabilities in nats, [tokens], with a gradient.
    """
    logprobs: Tensor = _TokenLogprobs.apply(hidden, weight, targets, temperature)
    return logprobs


LOGIT_COPIES = 4
"""Matrices of logits that are in memory at once: both models', and what is computed from them."""


@dataclass(frozen=True, slots=True)
class Distributions:
    """The distributions to compare the policy's with: hidden states [tokens, hidden], an output matrix, and the form."""

    hidden: Tensor
    weight: Tensor
    form: Loss


@dataclass(frozen=True, slots=True)
class TopkDistributions:
    """The most likely tokens of the distributions that the policy's are compared with, and the form.

    `ids` are [tokens, k], and `logprobs` are theirs and last that of all other tokens together, [tokens, k + 1].
    """

    ids: Tensor
    logprobs: Tensor
    form: Loss


@torch.no_grad()
def find_topk(hidden: Tensor, weight: Tensor, count: int, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the k most likely tokens of softmax(hidden @ weight.T / temperature).

    Args:
        hidden: Hidden states, [tokens, hidden].
        weight: The output matrix, [vocabulary, hidden].
        count: k, at most the vocabulary less 1.
        temperature: Of the distribution.

    Returns:
        `ids` and `logprobs` of `TopkDistributions`.
    """
    count = min(count, len(weight) - 1)
    ids = torch.empty(len(hidden), count, dtype=torch.int32, device=hidden.device)
    logprobs = torch.empty(len(hidden), count + 1, device=hidden.device)
    for chunk in _chunks(hidden, weight):
        every = _logprobs(hidden[chunk], weight, temperature)
        top = every.topk(count, -1)
        ids[chunk] = top.indices.int()
        logprobs[chunk, :count] = top.values
        logprobs[chunk, count] = every.scatter_(1, top.indices, -math.inf).logsumexp(-1)
    return ids, logprobs


def score_tokens(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float,
    entropies: bool,
    other: Distributions | TopkDistributions | None,
) -> Tensor:
    """Return the log-probabilities of targets, and in rows below entropies and divergences, if asked for.

    Args:
        hidden: Hidden states, [tokens, hidden].
        weight: The output matrix, [vocabulary, hidden].
        targets: Token ids, [tokens].
        temperature: Of the distribution.
        entropies: Whether entropies are asked for.
        other: The distributions to compare with, None for no divergence.

    Returns:
        Nats, [tokens], or [2 or 3, tokens].
    """
    rows = [token_logprobs(hidden, weight, targets, temperature)]
    if entropies:
        rows.append(token_entropies(hidden, weight, temperature))
    if other is not None:
        rows.append(token_divergences(hidden, weight, other, temperature))
    return torch.stack(rows) if len(rows) > 1 else rows[0]


def token_divergences(
    hidden: Tensor, weight: Tensor, other: Distributions | TopkDistributions, temperature: float = 1.0
) -> Tensor:
    """Return the divergence of p, the policy's distribution, from q, the other, at each token.

    p is softmax(hidden @ weight.T / temperature), and q is made alike. If one model's vocabulary is padded further,
    only the tokens of both count. With the mixture m = beta q + (1 - beta) p the forms are

    - `reverse`: KL(p || q).
    - `forward`: KL(q || p).
    - `jsd`: beta KL(q || m) + (1 - beta) KL(p || m).

    Of `TopkDistributions` the divergence is over k + 1 outcomes, the last of which has the rest of p and of q. It is at
    most that over the vocabulary, and 0 if p and q agree on each of the k tokens.

    The gradient is by p alone. Only a chunk of logits is in memory: the backward pass makes them again.

    Args:
        hidden: Hidden states, [tokens, hidden].
        weight: The output matrix, [vocabulary, hidden].
        other: q, and the form.
        temperature: Of both distributions.

    Returns:
        Divergences in nats, [tokens], with a gradient.

    Source: `reverse`: Gu et al. 2024, MiniLLM; `jsd`: Agarwal et al. 2024, On-Policy Distillation of Language Models,
        eq. 1.
    """
    if isinstance(other, TopkDistributions):
        theirs, matrix = other.ids.long(), other.logprobs
    else:
        rows = min(len(weight), len(other.weight))
        weight, theirs, matrix = weight[:rows], other.hidden, other.weight[:rows]
    divergences: Tensor = _Divergences.apply(hidden, weight, theirs, matrix, temperature, other.form)
    return divergences


class _Divergences(Function):
    """The divergences of `token_divergences`, made in chunks of tokens."""

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
        """Return the divergences.

        Returns:
            [tokens].
        """
        ctx.save_for_backward(hidden, weight, theirs, matrix)
        ctx.temperature, ctx.form = temperature, form
        kl = torch.empty(len(hidden), device=hidden.device)
        for rows in _chunks(hidden, weight):
            kl[rows] = _outcomes(hidden[rows], weight, theirs[rows], matrix, rows, temperature, form)[0]
        return kl

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        """Return the gradients by hidden states and the output matrix.

        Returns:
            [tokens, hidden], and [vocabulary, hidden] or None if the matrix is not trained.
        """
        hidden, weight, theirs, matrix = ctx.saved_tensors
        grad = grads[0] / ctx.temperature
        d_hidden = torch.empty_like(hidden)
        # Beside adapters the output matrix is not trained, and its gradient would be as large.
        learns = ctx.needs_input_grad[1]
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if learns else None
        for rows in _chunks(hidden, weight):
            slopes = _outcomes(hidden[rows], weight, theirs[rows], matrix, rows, ctx.temperature, ctx.form)[1]
            flow = slopes.mul_(grad[rows, None]).to(hidden.dtype)
            d_hidden[rows] = flow @ weight
            if d_weight is not None:
                add_product(d_weight, flow, hidden[rows])
        return d_hidden, None if d_weight is None else d_weight.to(weight.dtype), None, None, None, None


def _chunks(hidden: Tensor, weight: Tensor) -> list[slice]:
    size = max(1, chunk_rows(weight) // LOGIT_COPIES)
    return [slice(start, min(start + size, len(hidden))) for start in range(0, len(hidden), size)]


def _logprobs(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    return torch.log_softmax(make_logits(hidden, weight, temperature), -1)


def _outcomes(
    hidden: Tensor,
    weight: Tensor,
    theirs: Tensor,
    matrix: Tensor,
    chunk: slice,
    temperature: float,
    form: Loss,
) -> tuple[Tensor, Tensor]:
    """Return a chunk's divergences and their slopes by its logits; `theirs` are hidden states, or ids of likely tokens.

    A token outside the k has its share of the slope by the last outcome, the rest of the vocabulary.
    """
    every = _logprobs(hidden, weight, temperature)
    if theirs.dtype != torch.int64:
        return _compare(every, _logprobs(theirs, matrix, temperature), form)
    rest = every.scatter(1, theirs, -math.inf).logsumexp(-1, keepdim=True)
    kl, slopes = _compare(torch.cat((every.gather(1, theirs), rest), 1), matrix[chunk], form)
    shared = (every - rest).exp_().mul_(slopes[:, -1:])
    return kl, shared.scatter_(1, theirs, slopes[:, :-1])


def _compare(mine: Tensor, theirs: Tensor, form: Loss) -> tuple[Tensor, Tensor]:
    """Return the divergences of rows of log-probabilities, and their slopes by the first rows' logits.

    A divergence's slope by a logit is p times the excess of its term over the mean term: for `reverse` the terms are
    log p - log q, for `jsd` 1 - beta times log p - log m. For `forward` the slope is p - q.
    """
    p, q = mine.exp(), theirs.exp()
    if form.estimator == "forward":
        return (q * (theirs - mine)).sum(-1), p - q
    if form.estimator == "reverse":
        terms = mine - theirs
        kl = (p * terms).sum(-1)
        return kl, p * (terms - kl[:, None])
    beta = form.jsd_beta
    mixed = torch.logaddexp(mine + math.log1p(-beta), theirs + math.log(beta))
    terms = mine - mixed
    policy_kl = (p * terms).sum(-1)
    kl = beta * (q * (theirs - mixed)).sum(-1) + (1 - beta) * policy_kl
    return kl, (1 - beta) * p * (terms - policy_kl[:, None])
