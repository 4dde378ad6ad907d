"""What is said to a server and back: requests as JSON out, JSON answers as tokens and log-probabilities in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reodsl.diagnostics import problem
from runners.engine.embedded.generation import not_finite
from runners.engine.protocol import Request, Response, Sampling

_SEED = (1 << 63) - 1
"""Seeds of 64 bits lose their highest: the server takes signed ones."""


def drawing(sampling: Sampling, seed: int, made: int = 0) -> dict[str, Any]:
    """The server's `sampling_params` for what is left of a response of which `made` tokens are there.

    The draw of a token depends on the seed and its place in the sequence: going on later draws the same tokens.
    """
    return {
        "max_new_tokens": sampling.max_tokens - made,
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
    sampling: Sampling
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    behaviour: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def message(self) -> dict[str, Any]:
        """What asks for the rest."""
        return {
            "input_ids": [*self.request.prompt, *self.tokens],
            "sampling_params": drawing(self.sampling, self.request.seed, len(self.tokens)),
            "return_logprob": True,
            "logprob_start_len": -1,
            "return_sampling_mask": not self.sampling.whole and self.sampling.temperature != 0.0,
        }

    def take(self, answer: Mapping[str, Any]) -> Response | None:
        """Takes a part in; the response, if that ended it. Raises E0802 for a log-probability that is not finite."""
        meta = answer["meta_info"]
        new = [int(token) for token in answer["output_ids"]]
        told = [float("nan") if item[0] is None else float(item[0]) for item in meta["output_token_logprobs"]]
        if not new:
            raise spoilt("a response was aborted")
        if len(told) != len(new):
            raise spoilt(f"{len(new)} tokens with {len(told)} log-probabilities")
        self.tokens += new
        self.logprobs += told
        if not all(map(math.isfinite, told)):
            raise not_finite(len(self.tokens))
        if self.sampling.temperature == 0.0:
            self.behaviour += [0.0] * len(new)
        elif not self.sampling.whole:
            drawn = meta.get("output_token_sampling_logprobs")
            if drawn is None or len(drawn) != len(new):
                raise spoilt("no log-probabilities under the distribution that tokens were drawn from")
            self.behaviour += map(float, drawn)
        spans = [int(span["version"]) for span in meta.get("weight_versions") or ()]
        self.versions += spans or [int(meta["weight_version"])]
        ended = bool(self.tokens) and self.tokens[-1] in self.sampling.stop_ids
        # A server also stops where the model's own config says, or is told to abort: then the rest is asked for.
        if not ended and len(self.tokens) < self.sampling.max_tokens:
            return None
        logprobs = tuple(self.logprobs)
        return Response(
            tokens=tuple(self.tokens),
            logprobs=logprobs,
            behaviour=logprobs if self.sampling.whole else tuple(self.behaviour),
            finish="stop" if ended else "length",
            weight_versions=tuple(dict.fromkeys(self.versions)),
        )


def forced_message(
    prefixes: Sequence[Sequence[int]], seeds: Sequence[int], sampling: Sampling
) -> dict[str, Any]:
    """What asks for an answer after each prefix, all in one message."""
    return {
        "input_ids": [list(prefix) for prefix in prefixes],
        "sampling_params": [drawing(sampling, seed) for seed in seeds],
    }


def forced_tokens(answer: Mapping[str, Any], sampling: Sampling) -> tuple[int, ...]:
    """The tokens of an answer. Raises E0824 where the server gave up on it."""
    tokens = tuple(int(token) for token in answer["output_ids"])
    reason = (answer["meta_info"].get("finish_reason") or {}).get("type")
    if reason == "abort" or not tokens:
        raise spoilt("an answer was aborted")
    return tokens[: sampling.max_tokens]


def spoilt(words: str) -> Exception:
    """The problem of an answer that is not what was asked for."""
    return problem(
        "E0824",
        f"the SGLang server's answer cannot be used: {words}",
        help="the server was started by something else, or its version differs: reodsl is made for 0.5.23",
    )
