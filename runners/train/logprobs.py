"""Differentiable log-probabilities, entropies and divergences of tokens, from hidden states and output matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from reodsl.ir.training import Loss
from runners.models.products import apply_linear, multiply
from runners.train.attention import compile_kernel

CHUNK_ELEMENTS, GPU_CHUNK_ELEMENTS = 1 << 25, 1 << 27
"""The number of logits in memory at once: 128 MiB in float32, and 512 MiB on a GPU, whose matrix products need more rows
to be fast."""


class _TokenLogprobs(Function):
    """The log-probabilities of target tokens, chunk by chunk; the backward pass recomputes the logits."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float) -> Tensor:
        """Return the log-probabilities of the targets, [tokens]; the arguments are those of `token_logprobs`.

        The logits are saved for the backward pass only if all tokens fit in one chunk.
        """
        chunk = chunk_rows(weight)
        log_sums, logprobs = [], []
        is_one_chunk = hidden.shape[0] <= chunk
        logits = hidden.new_empty(0)
        for start in range(0, hidden.shape[0], chunk):
            logits = make_logits(hidden[start : start + chunk], weight, temperature)
            picked, log_sum = compile_kernel(_pick, logits.device)(logits, targets[start : start + chunk])
            log_sums.append(log_sum)
            logprobs.append(picked)
        log_sum = torch.cat(log_sums) if log_sums else hidden.new_empty(0)
        ctx.save_for_backward(hidden, weight, targets, log_sum, *([logits] if is_one_chunk else []))
        ctx.temperature, ctx.chunk = temperature, chunk
        return torch.cat(logprobs) if logprobs else hidden.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        """Return the gradients with respect to the hidden states and the output matrix.

        Args:
            ctx: The tensors that `forward` saved.
            *grads: The gradient with respect to the log-probabilities, [tokens].

        Returns:
            [tokens, hidden], [vocabulary, hidden] or None if the matrix is not trained, and None for the other inputs.
        """
        hidden, weight, targets, log_sum, *saved = ctx.saved_tensors
        grad = grads[0] / ctx.temperature
        # Sum in float32: in bfloat16 a chunk's small addend would be rounded away.
        d_hidden = torch.empty_like(hidden)
        # With adapters the output matrix is not trained, and its gradient would take as much memory as the matrix.
        trains_weight = ctx.needs_input_grad[1]
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if trains_weight else None
        for start in range(0, hidden.shape[0], ctx.chunk):
            rows = slice(start, start + ctx.chunk)
            logits = saved[0] if saved else make_logits(hidden[rows], weight, ctx.temperature)
            logit_gradient = compile_kernel(_slopes, logits.device)
            d_logits = logit_gradient(logits, log_sum[rows], targets[rows], grad[rows], hidden.dtype)
            d_hidden[rows] = multiply(d_logits, weight.t())
            if d_weight is not None:
                add_product(d_weight, d_logits, hidden[rows])
        return d_hidden, None if d_weight is None else d_weight.to(weight.dtype), None, None


def chunk_rows(weight: Tensor) -> int:
    """Return the number of tokens in a chunk; the logits of one chunk are in memory at once.

    Args:
        weight: The output matrix, [vocabulary, hidden].
    """
    max_elements = CHUNK_ELEMENTS if weight.device.type == "cpu" else GPU_CHUNK_ELEMENTS
    return max(1, max_elements // weight.shape[0])


def make_logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """Return hidden @ weight.T / temperature in float32.

    Args:
        hidden: Hidden states, [tokens, hidden].
        weight: The output matrix, [vocabulary, hidden].
        temperature: The divisor of the logits.

    Returns:
        Logits, [tokens, vocabulary].
    """
    logits = _wide_product(hidden, weight)
    return logits if temperature == 1.0 else logits.div_(temperature)


def _wide_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x @ weight.T` in float32, accumulated in float32 also for half-precision inputs."""
    if _sums_wide(x):
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return multiply(x.float(), weight.float())


def add_product(total: Tensor, d_logits: Tensor, hidden: Tensor) -> None:
    """Add `d_logits.T @ hidden` to a float32 matrix in place.

    For half precision on CUDA, the sum needs no second matrix of the size of `total`.

    Args:
        total: The sum, [vocabulary, hidden].
        d_logits: Gradients with respect to logits, [tokens, vocabulary].
        hidden: Hidden states, [tokens, hidden].
    """
    if _sums_wide(d_logits):
        torch.addmm(total, d_logits.t(), hidden, out_dtype=torch.float32, out=total)
    else:
        total += multiply(d_logits.t(), hidden.t()).float()


def _sums_wide(x: Tensor) -> bool:
    """Return whether a matrix product of this tensor can have a float32 result without a cast of the inputs.

    This holds for bfloat16 and float16 on CUDA.
    """
    return x.device.type == "cuda" and x.dtype in (torch.bfloat16, torch.float16)


def _pick(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the targets, and the log-sum-exp of each row of logits.

    Args:
        logits: [tokens, vocabulary].
        targets: Token ids, [tokens].

    Returns:
        Log-probabilities and log-sum-exps, both [tokens].
    """
    log_sum = torch.logsumexp(logits, -1)
    return logits.gather(1, targets[:, None]).squeeze(1) - log_sum, log_sum


def _slopes(
    logits: Tensor, log_sums: Tensor, targets: Tensor, d_logprobs: Tensor, dtype: torch.dtype
) -> Tensor:
    """Return the gradient with respect to the logits: (onehot(target) - softmax(logits)) times `d_logprobs`.

    Args:
        logits: [tokens, vocabulary].
        log_sums: The log-sum-exp of each row of logits, [tokens].
        targets: Token ids, [tokens].
        d_logprobs: The gradient with respect to the log-probabilities, [tokens].
        dtype: The type of the result.

    Returns:
        [tokens, vocabulary].
    """
    d_logits = torch.exp(logits - log_sums[:, None]).mul_(-d_logprobs[:, None])
    return d_logits.scatter_add_(1, targets[:, None], d_logprobs[:, None]).to(dtype)


def token_entropies(hidden: Tensor, weight: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the entropy of softmax(hidden @ weight.T / temperature) at each token.

    The tokens are divided into chunks, and the backward pass recomputes the logits. Only one chunk of logits is then in
    memory.

    Args:
        hidden: Hidden states, [tokens, hidden].
        weight: The output matrix, [vocabulary, hidden].
        temperature: The divisor of the logits.

    Returns:
        Entropies in nats, [tokens], with a gradient.
    """
    rows = hidden.split(chunk_rows(weight))
    parts = [checkpoint(_entropies, chunk, weight, temperature, use_reentrant=False) for chunk in rows]
    return torch.cat(parts)


def _entropies(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """Return the entropies of `token_entropies` for one chunk of tokens."""
    logprobs = torch.log_softmax(apply_linear(hidden, weight).float() / temperature, -1)
    return -(logprobs.exp() * logprobs).sum(-1)


def token_logprobs(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Return log softmax(hidden @ weight.T / temperature) at the targets.

    Args:
        hidden: Hidden states, [tokens, hidden].
        weight: The output matrix, [vocabulary, hidden].
        targets: Token ids, [tokens].
        temperature: The divisor of the logits.

    Returns:
        Log-probabilities in nats, [tokens], with a gradient.
    """
    logprobs: Tensor = _TokenLogprobs.apply(hidden, weight, targets, temperature)
    return logprobs


LOGIT_COPIES = 4
"""The number of logit matrices in memory at once: those of both models, and two temporary results."""


@dataclass(frozen=True, slots=True)
class Distributions:
    """The distributions q to compare the policy's distributions with, and the form of the divergence.

    `hidden` are the other model's hidden states, [tokens, hidden], and `weight` is its output matrix, [vocabulary,
    hidden].
    """

    hidden: Tensor
    weight: Tensor
    form: Loss


@dataclass(frozen=True, slots=True)
class TopkDistributions:
    """The most likely tokens of distributions q to compare the policy's with, and the form of the divergence.

    `ids` are the k most likely tokens, [tokens, k]. `logprobs` are the log-probabilities of these tokens, and in the
    last column that of all other tokens together, [tokens, k + 1].
    """

    ids: Tensor
    logprobs: Tensor
    form: Loss


@torch.no_grad()
def find_topk(hidden: Tensor, weight: Tensor, count: int, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the k most likely tokens of softmax(hidden @ weight.T / temperature), with their log-probabilities.

    Args:
        hidden: Hidden states, [tokens, hidden].
        weight: The output matrix, [vocabulary, hidden].
        count: k; larger values are lowered to the size of the vocabulary minus 1.
        temperature: The divisor of the logits.

    Returns:
        Token ids, [tokens, k], and log-probabilities, [tokens, k + 1], of which the last column is that of all other
        tokens together.
    """
    count = min(count, len(weight) - 1)
    ids = torch.empty(len(hidden), count, dtype=torch.int32, device=hidden.device)
    logprobs = torch.empty(len(hidden), count + 1, device=hidden.device)
    for chunk in _chunks(hidden, weight):
        logprobs_of_all = _logprobs(hidden[chunk], weight, temperature)
        top = logprobs_of_all.topk(count, -1)
        ids[chunk] = top.indices.int()
        logprobs[chunk, :count] = top.values
        logprobs[chunk, count] = logprobs_of_all.scatter_(1, top.indices, -math.inf).logsumexp(-1)
    return ids, logprobs


def score_tokens(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float,
    with_entropies: bool,
    other: Distributions | TopkDistributions | None,
) -> Tensor:
    """Return the log-probabilities of targets, and entropies and divergences in further rows if requested.

    Args:
        hidden: Hidden states, [tokens, hidden].
        weight: The output matrix, [vocabulary, hidden].
        targets: Token ids, [tokens].
        temperature: The divisor of the logits.
        with_entropies: Whether to compute entropies.
        other: The distributions from which divergences are computed; None for no divergences.

    Returns:
        Nats, [tokens] for log-probabilities alone, else [2 or 3, tokens].
    """
    rows = [token_logprobs(hidden, weight, targets, temperature)]
    if with_entropies:
        rows.append(token_entropies(hidden, weight, temperature))
    if other is not None:
        rows.append(token_divergences(hidden, weight, other, temperature))
    return torch.stack(rows) if len(rows) > 1 else rows[0]


def token_divergences(
    hidden: Tensor, weight: Tensor, other: Distributions | TopkDistributions, temperature: float = 1.0
) -> Tensor:
    """Return the divergence between p, the policy's distribution, and q, another model's, at each token.

    p is softmax(hidden @ weight.T / temperature); q is computed in the same way. If one output matrix has more rows, as
    padding, only the first rows that both have are compared. With the mixture m = beta q + (1 - beta) p the forms are

    - `reverse`: KL(p || q).
    - `forward`: KL(q || p).
    - `jsd`: beta KL(q || m) + (1 - beta) KL(p || m).

    For `TopkDistributions` the divergence is over k + 1 outcomes: the k tokens, and all other tokens together. It is at
    most the divergence over the vocabulary, and 0 if p and q agree on each of the k tokens.

    The gradient is with respect to p alone. The backward pass recomputes the logits chunk by chunk, to keep few of them
    in memory.

    Args:
        hidden: The policy's hidden states, [tokens, hidden].
        weight: The policy's output matrix, [vocabulary, hidden].
        other: q, and the form of the divergence.
        temperature: The divisor of the logits of p and q.

    Returns:
        Divergences in nats, [tokens], with a gradient.

    Source: `reverse`: Gu et al. 2024, MiniLLM; `jsd`: Agarwal et al. 2024, On-Policy Distillation of Language Models,
    eq. 1.
    """
    if isinstance(other, TopkDistributions):
        rows_q, matrix_q = other.ids.long(), other.logprobs
    else:
        rows = min(len(weight), len(other.weight))
        weight, rows_q, matrix_q = weight[:rows], other.hidden, other.weight[:rows]
    divergences: Tensor = _Divergences.apply(hidden, weight, rows_q, matrix_q, temperature, other.form)
    return divergences


class _Divergences(Function):
    """The divergences of `token_divergences`, computed chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        rows_q: Tensor,
        matrix_q: Tensor,
        temperature: float,
        form: Loss,
    ) -> Tensor:
        """Return the divergences, [tokens].

        Args:
            ctx: Keeps tensors for `backward`.
            hidden: The policy's hidden states, [tokens, hidden].
            weight: The policy's output matrix, [vocabulary, hidden].
            rows_q: q's hidden states, [tokens, hidden], or the int64 ids of its most likely tokens, [tokens, k].
            matrix_q: q's output matrix, [vocabulary, hidden], or `logprobs` of `TopkDistributions`, [tokens, k +
                1].
            temperature: The divisor of the logits.
            form: The form of the divergence.
        """
        ctx.save_for_backward(hidden, weight, rows_q, matrix_q)
        ctx.temperature, ctx.form = temperature, form
        kl = torch.empty(len(hidden), device=hidden.device)
        for rows in _chunks(hidden, weight):
            kl[rows], _ = _compare_chunk(
                hidden[rows], weight, rows_q[rows], matrix_q, rows, temperature, form
            )
        return kl

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        """Return the gradients with respect to the policy's hidden states and output matrix.

        Args:
            ctx: The tensors that `forward` saved.
            *grads: The gradient with respect to the divergences, [tokens].

        Returns:
            [tokens, hidden], [vocabulary, hidden] or None if the matrix is not trained, and None for the other inputs.
        """
        hidden, weight, rows_q, matrix_q = ctx.saved_tensors
        grad = grads[0] / ctx.temperature
        d_hidden = torch.empty_like(hidden)
        # With adapters the output matrix is not trained, and its gradient would take as much memory as the matrix.
        trains_weight = ctx.needs_input_grad[1]
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if trains_weight else None
        for rows in _chunks(hidden, weight):
            gradients = _compare_chunk(
                hidden[rows], weight, rows_q[rows], matrix_q, rows, ctx.temperature, ctx.form
            )[1]
            d_logits = gradients.mul_(grad[rows, None]).to(hidden.dtype)
            d_hidden[rows] = multiply(d_logits, weight.t())
            if d_weight is not None:
                add_product(d_weight, d_logits, hidden[rows])
        return d_hidden, None if d_weight is None else d_weight.to(weight.dtype), None, None, None, None


def _chunks(hidden: Tensor, weight: Tensor) -> list[slice]:
    """Return slices of the tokens, small enough that `LOGIT_COPIES` logit matrices of a slice fit in memory."""
    size = max(1, chunk_rows(weight) // LOGIT_COPIES)
    return [slice(start, min(start + size, len(hidden))) for start in range(0, len(hidden), size)]


def _logprobs(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """Return log softmax(hidden @ weight.T / temperature), [tokens, vocabulary]."""
    return torch.log_softmax(make_logits(hidden, weight, temperature), -1)


def _compare_chunk(
    hidden: Tensor,
    weight: Tensor,
    rows_q: Tensor,
    matrix_q: Tensor,
    chunk: slice,
    temperature: float,
    form: Loss,
) -> tuple[Tensor, Tensor]:
    """Return a chunk's divergences, and their gradients with respect to the policy's logits divided by the temperature.

    If q is given by its most likely tokens, all other tokens form one outcome. The gradient of this outcome is divided
    among these other tokens in proportion to their probabilities.

    Args:
        hidden: The policy's hidden states of the chunk, [tokens, hidden].
        weight: The policy's output matrix, [vocabulary, hidden].
        rows_q: q's hidden states of the chunk, [tokens, hidden]; or the int64 ids of q's most likely tokens, [tokens,
            k]. The dtype says which of the two.
        matrix_q: q's output matrix, [vocabulary, hidden], or `logprobs` of `TopkDistributions` of all chunks.
        chunk: The rows of `matrix_q` that belong to the chunk, if `matrix_q` has log-probabilities.
        temperature: The divisor of the logits.
        form: The form of the divergence.

    Returns:
        Divergences, [tokens], and gradients, [tokens, vocabulary].
    """
    logprobs = _logprobs(hidden, weight, temperature)
    if rows_q.dtype != torch.int64:
        return _compare(logprobs, _logprobs(rows_q, matrix_q, temperature), form)
    rest_logprob = logprobs.scatter(1, rows_q, -math.inf).logsumexp(-1, keepdim=True)
    kl, gradients = _compare(torch.cat((logprobs.gather(1, rows_q), rest_logprob), 1), matrix_q[chunk], form)
    rest_gradients = (logprobs - rest_logprob).exp_().mul_(gradients[:, -1:])
    return kl, rest_gradients.scatter_(1, rows_q, gradients[:, :-1])


def _compare(policy_logprobs: Tensor, other_logprobs: Tensor, form: Loss) -> tuple[Tensor, Tensor]:
    """Return the divergences between rows of log-probabilities, and their gradients with respect to the policy's logits.

    For `forward` the gradient is p - q. For `reverse` and `jsd` it is p times the excess of a term over the term's mean
    under p. The terms are log p - log q for `reverse`, and (1 - beta) (log p - log m) for `jsd`.

    Args:
        policy_logprobs: log p, [tokens, outcomes].
        other_logprobs: log q, [tokens, outcomes].
        form: The form of the divergence.

    Returns:
        Divergences, [tokens], and gradients, [tokens, outcomes].
    """
    p, q = policy_logprobs.exp(), other_logprobs.exp()
    if form.estimator == "forward":
        return (q * (other_logprobs - policy_logprobs)).sum(-1), p - q
    if form.estimator == "reverse":
        terms = policy_logprobs - other_logprobs
        kl = (p * terms).sum(-1)
        return kl, p * (terms - kl[:, None])
    beta = form.jsd_beta
    mixture_logprobs = torch.logaddexp(policy_logprobs + math.log1p(-beta), other_logprobs + math.log(beta))
    terms = policy_logprobs - mixture_logprobs
    policy_kl = (p * terms).sum(-1)
    kl = beta * (q * (other_logprobs - mixture_logprobs)).sum(-1) + (1 - beta) * policy_kl
    return kl, (1 - beta) * p * (terms - policy_kl[:, None])
