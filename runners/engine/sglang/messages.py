"""Write requests to a server as JSON, and read tokens and log-probabilities from its answers."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reodsl.diagnostics import problem
from runners.engine.embedded.generation import not_finite
from runners.engine.protocol import NO_NUMBERS, Generation, Request, TokenSampling

_SEED_MASK = (1 << 63) - 1
"""Seeds of 64 bits lose their highest: the server takes signed ones."""

_FORCED_PRIORITY = 1
"""The priority of forced answers; prompts have the lowest. The keys and values of a response may be gone later."""


def drawing(sampling: TokenSampling, seed: int, num_sampled: int = 0) -> dict[str, Any]:
    """Return the `sampling_params` of a server's request.

    A server samples each token by the seed and the token's position in the sequence. A response has the same tokens if
    it is requested in two parts.

    Args:
        sampling: How tokens are sampled, with the limit of the full response.
        seed: The seed of the response.
        num_sampled: The number of the response's tokens that the prompt already has.
    """
    return {
        "max_new_tokens": sampling.max_tokens - num_sampled,
        "temperature": sampling.temperature,
        "top_p": min(sampling.top_p, 1.0),
        "top_k": sampling.top_k if sampling.top_k > 0 else -1,
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": not sampling.stop_ids,
        "sampling_seed": seed & _SEED_MASK,
    }


@dataclass(slots=True)
class Draft:
    """A response while it is generated: its tokens so far, and the versions of the weights that sampled them."""

    request: Request
    """The request."""
    sampling: TokenSampling
    """The sampling of the response's tokens, with the request's own limit of tokens."""
    probes: bool = False
    """True to request log-probabilities also as a test: one that is not finite shows broken weights."""
    tokens: list[int] = field(default_factory=list)
    """The tokens so far."""
    logprobs: array[float] = field(default_factory=lambda: array("d"))
    """The log-probabilities of `tokens`; empty if they were not requested."""
    sampling_logprobs: array[float] = field(default_factory=lambda: array("d"))
    """The log-probabilities of `tokens` under the sampling distribution, if it differs from the model's; else empty."""
    versions: list[int] = field(default_factory=list)
    """The versions of the weights, in the order of tokens."""

    def message(self) -> dict[str, Any]:
        """Return the message that requests the next tokens, up to the limit of the response."""
        return {
            "input_ids": [*self.request.prompt, *self.tokens],
            "sampling_params": drawing(self.sampling, self.request.seed, len(self.tokens)),
        } | self._logprobs()

    def _logprobs(self) -> dict[str, Any]:
        """Return the fields of the message that request log-probabilities; empty if they are not requested.

        They are most of an answer's bytes. The sampling mask, which SGLang needs for `sampling_logprobs`, is requested
        if tokens are sampled at random from another distribution than the model's own.
        """
        if not (self.sampling.logprobs or self.probes):
            return {}
        return {
            "return_logprob": True,
            "logprob_start_len": -1,
            "return_sampling_mask": not self.sampling.plain and self.sampling.temperature != 0.0,
        }

    def take(self, answer: Mapping[str, Any]) -> Generation | None:
        """Append the tokens and log-probabilities of a server's answer.

        Args:
            answer: The JSON object of the answer.

        A server may stop early: at an end token that the model's config names but `stop_ids` does not, or after an
        abort. The response has ended only at a token of `stop_ids` or at the limit of tokens.

        Returns:
            The response if it has ended; None if more tokens have to be requested.

        Raises:
            Problem: E0802 for a log-probability that is not finite, E0824 for an answer that does not fit the request.
        """
        meta = answer["meta_info"]
        new = answer["output_ids"]
        if not new:
            raise explain_bad_answer("a response was aborted")
        self.tokens += new
        if self.sampling.logprobs or self.probes:
            self._take_logprobs(meta, len(new))
        spans = [int(span["version"]) for span in meta.get("weight_versions") or ()]
        self.versions += spans or [int(meta["weight_version"])]
        finished = bool(self.tokens) and self.tokens[-1] in self.sampling.stop_ids
        # A server also stops at the end tokens of the model's config or after an abort: then the rest is requested.
        if not finished and len(self.tokens) < self.sampling.max_tokens:
            return None
        with_logprobs = self.sampling.logprobs
        logprobs = self.logprobs if with_logprobs else NO_NUMBERS
        plain = self.sampling.plain or not with_logprobs
        return Generation(
            tokens=tuple(self.tokens),
            logprobs=logprobs,
            sampling_logprobs=logprobs if plain else self.sampling_logprobs,
            finish="stop" if finished else "length",
            weight_versions=tuple(dict.fromkeys(self.versions)),
        )

    def _take_logprobs(self, meta: Mapping[str, Any], count: int) -> None:
        """Append the log-probabilities of an answer's `count` tokens, from its `meta_info`.

        Raises:
            Problem: E0802 for a log-probability that is not finite, E0824 if their number is wrong.
        """
        values = values_of(meta["output_token_logprobs"])
        if len(values) != count:
            raise explain_bad_answer(f"{count} tokens with {len(values)} log-probabilities")
        # A NaN or infinity makes the sum not finite; JSON writes it as null.
        if None in values or not math.isfinite(sum(values)):
            raise not_finite(len(self.tokens))
        self.logprobs.extend(values)
        if self.sampling.temperature == 0.0:
            self.sampling_logprobs.extend([0.0] * count)
        elif not self.sampling.plain:
            values_drawn = meta.get("output_token_sampling_logprobs")
            if values_drawn is None or len(values_drawn) != count:
                raise explain_bad_answer("no log-probabilities under the sampling distribution")
            self.sampling_logprobs.extend(map(float, values_drawn))


def values_of(logprobs: Sequence[Any]) -> list[Any]:
    """Return the numbers of an answer's list of log-probabilities.

    Args:
        logprobs: Numbers, as servers of `launch.py` send them, or lists of number, token and text, as SGLang does.
    """
    return [item[0] for item in logprobs] if logprobs and isinstance(logprobs[0], list) else list(logprobs)


def forced_message(
    tokens: Sequence[int],
    cuts: Sequence[int],
    forcing: Sequence[int],
    seeds: Sequence[int],
    sampling: TokenSampling,
) -> dict[str, Any]:
    """Return the message that requests forced answers at several cuts of a sequence.

    The message contains the sequence once, and the server cuts it at each cut.

    Args:
        tokens: The prompt and the response.
        cuts: For each answer, the number of `tokens` before the forcing text.
        forcing: The tokens of the forcing text.
        seeds: The seed of each answer.
        sampling: How the answers' tokens are sampled.
    """
    return {
        "tokens": list(tokens),
        "cuts": list(cuts),
        "forcing": list(forcing),
        "seeds": [seed & _SEED_MASK for seed in seeds],
        "sampling_params": drawing(sampling, 0),
        "priority": _FORCED_PRIORITY,
    }


def forced_tokens(answer: Mapping[str, Any], sampling: TokenSampling) -> tuple[int, ...]:
    """Return the tokens of a forced answer, at most `sampling.max_tokens`.

    Args:
        answer: The JSON object of the server's answer.
        sampling: The sampling of the request, for the limit of tokens.

    Raises:
        Problem: E0824 if the server aborted the answer or sent no token.
    """
    tokens = tuple(int(token) for token in answer["output_ids"])
    reason = (answer["meta_info"].get("finish_reason") or {}).get("type")
    if reason == "abort" or not tokens:
        raise explain_bad_answer("an answer was aborted")
    return tokens[: sampling.max_tokens]


def explain_bad_answer(reason: str) -> Exception:
    """Return E0824, the error of a server's answer that does not fit its request."""
    return problem(
        "E0824",
        f"the SGLang server's answer cannot be used: {reason}",
        help="another program started the server, or its version differs: reodsl is made for 0.5.23",
    )
