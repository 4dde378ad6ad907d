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

_SEED = (1 << 63) - 1
"""Seeds of 64 bits lose their highest: the server takes signed ones."""

_BEFORE_PROMPTS = 1
"""The priority of forced answers; prompts have the lowest. The keys and values of a response may be gone later."""


def drawing(sampling: TokenSampling, seed: int, drawn: int = 0) -> dict[str, Any]:
    """Return the server's `sampling_params` for the rest of a response that has `drawn` tokens.

    The draw of a token depends on the seed and its place in the sequence: going on later draws the same tokens.
    """
    return {
        "max_new_tokens": sampling.max_tokens - drawn,
        "temperature": sampling.temperature,
        "top_p": min(sampling.top_p, 1.0),
        "top_k": sampling.top_k if sampling.top_k > 0 else -1,
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": not sampling.stop_ids,
        "sampling_seed": seed & _SEED,
    }


@dataclass(slots=True)
class Draft:
    """A response while it is made: the parts that came so far, each with the weights that made it."""

    request: Request
    sampling: TokenSampling
    watched: bool = False
    """Log-probabilities are asked for even where nothing reads them: one that is not finite tells of weights that
    are none."""
    tokens: list[int] = field(default_factory=list)
    logprobs: array[float] = field(default_factory=lambda: array("d"))
    behaviour: array[float] = field(default_factory=lambda: array("d"))
    versions: list[int] = field(default_factory=list)

    def message(self) -> dict[str, Any]:
        """Return the message that asks for the rest."""
        return {
            "input_ids": [*self.request.prompt, *self.tokens],
            "sampling_params": drawing(self.sampling, self.request.seed, len(self.tokens)),
        } | self._logprobs()

    def _logprobs(self) -> dict[str, Any]:
        """Return the part that asks for log-probabilities, if anything reads them: they are most of an answer's bytes."""
        if not (self.sampling.logprobs or self.watched):
            return {}
        return {
            "return_logprob": True,
            "logprob_start_len": -1,
            "return_sampling_mask": not self.sampling.whole and self.sampling.temperature != 0.0,
        }

    def take(self, answer: Mapping[str, Any]) -> Generation | None:
        """Take a part in; return the response, if that ended it. Raises E0802 for a log-probability that is not finite."""
        meta = answer["meta_info"]
        new = answer["output_ids"]
        if not new:
            raise explain_spoilt("a response was aborted")
        self.tokens += new
        if self.sampling.logprobs or self.watched:
            self._take_logprobs(meta, len(new))
        spans = [int(span["version"]) for span in meta.get("weight_versions") or ()]
        self.versions += spans or [int(meta["weight_version"])]
        ended = bool(self.tokens) and self.tokens[-1] in self.sampling.stop_ids
        # A server also stops where the model's own config says, or is asked to abort: then the rest is asked for.
        if not ended and len(self.tokens) < self.sampling.max_tokens:
            return None
        with_logprobs = self.sampling.logprobs
        logprobs = self.logprobs if with_logprobs else NO_NUMBERS
        return Generation(
            tokens=tuple(self.tokens),
            logprobs=logprobs,
            behaviour=logprobs if self.sampling.whole or not with_logprobs else self.behaviour,
            finish="stop" if ended else "length",
            weight_versions=tuple(dict.fromkeys(self.versions)),
        )

    def _take_logprobs(self, meta: Mapping[str, Any], count: int) -> None:
        values = values_of(meta["output_token_logprobs"])
        if len(values) != count:
            raise explain_spoilt(f"{count} tokens with {len(values)} log-probabilities")
        # One that is not finite makes the sum so; JSON has no word for it but null.
        if None in values or not math.isfinite(sum(values)):
            raise not_finite(len(self.tokens))
        self.logprobs.extend(values)
        if self.sampling.temperature == 0.0:
            self.behaviour.extend([0.0] * count)
        elif not self.sampling.whole:
            drawn = meta.get("output_token_sampling_logprobs")
            if drawn is None or len(drawn) != count:
                raise explain_spoilt(
                    "no log-probabilities under the distribution that tokens were drawn from"
                )
            self.behaviour.extend(map(float, drawn))


def values_of(logprobs: Sequence[Any]) -> list[Any]:
    """Return an answer's log-probabilities: listed by themselves, as our servers do, or each with its token and text."""
    return [item[0] for item in logprobs] if logprobs and isinstance(logprobs[0], list) else list(logprobs)


def forced_message(
    tokens: Sequence[int],
    cuts: Sequence[int],
    forcing: Sequence[int],
    seeds: Sequence[int],
    sampling: TokenSampling,
) -> dict[str, Any]:
    """Ask for an answer after `tokens[:cut]` and the forcing text, for each cut, with a seed each.

    The server cuts the tokens itself (`launch.py`), so they are sent once.
    """
    return {
        "tokens": list(tokens),
        "cuts": list(cuts),
        "forcing": list(forcing),
        "seeds": [seed & _SEED for seed in seeds],
        "sampling_params": drawing(sampling, 0),
        "priority": _BEFORE_PROMPTS,
    }


def forced_tokens(answer: Mapping[str, Any], sampling: TokenSampling) -> tuple[int, ...]:
    """Return the tokens of an answer. Raises E0824 if the server gave up on it."""
    tokens = tuple(int(token) for token in answer["output_ids"])
    reason = (answer["meta_info"].get("finish_reason") or {}).get("type")
    if reason == "abort" or not tokens:
        raise explain_spoilt("an answer was aborted")
    return tokens[: sampling.max_tokens]


def explain_spoilt(words: str) -> Exception:
    """Return the problem of an answer that is not what was asked for."""
    return problem(
        "E0824",
        f"the SGLang server's answer cannot be used: {words}",
        help="the server was started by something else, or its version differs: reodsl is made for 0.5.23",
    )
