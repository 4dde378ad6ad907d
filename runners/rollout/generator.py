"""Generate responses with an engine, and force answers out of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reodsl.diagnostics import Problem
from reodsl.ir import training
from reodsl.ir.model import Forcing
from runners.conversations import EarlierTurn, Talk, converse, force
from runners.engine.protocol import Ahead, Ended, Engine, Forced, Request, Response, Sampling
from runners.models.tokenizer import require_written
from runners.prompts import continuation_tokens

CutsOf = Callable[[int, Response], Sequence[int]]
"""The cuts of the response to a request, as far as the two tell them."""


@dataclass(frozen=True, slots=True)
class Generator:
    """An engine, how responses are drawn from it, and how an answer is forced out of them."""

    engine: Engine
    tokenizer: Any
    sampling: Sampling
    forcing: Forcing | None = None

    def generate(
        self,
        requests: Sequence[Request],
        talks: Sequence[Talk | None],
        metas: Sequence[str],
        cuts: CutsOf | None = None,
        ended: Ended | None = None,
    ) -> tuple[list[Response], list[tuple[EarlierTurn, ...]]]:
        """Return a response for each request, and the turns before its last one.

        With a talk, a response may call tools; `metas` are the metadata of the questions. `cuts` and `ended` are for an
        engine that reports responses as they end.
        """
        if any(talks):
            return converse(self.engine, requests, self.sampling, talks, metas)
        responses = self.engine.generate(requests, self.sampling, self._ahead(cuts), ended)
        return responses, [()] * len(responses)

    def force(
        self, requests: Sequence[Request], responses: Sequence[Response], cuts: Sequence[Sequence[int]]
    ) -> list[list[Forced]]:
        """Return the answers forced at `cuts[i]` of response i. Raises E0810 where the tokenizer lacks the text's words."""
        if self.forcing is None or not any(cuts):
            return [[] for _ in requests]
        require_written(self.tokenizer, self.forcing.text, "the text that forces an answer")
        text = continuation_tokens(self.tokenizer, self.forcing.text)
        return force(self.engine, requests, responses, cuts, text, self._forced_sampling(self.forcing))

    def _ahead(self, cuts: CutsOf | None) -> Ahead | None:
        if self.forcing is None or cuts is None:
            return None
        try:
            text = continuation_tokens(self.tokenizer, self.forcing.text)
        except Problem:
            # A text that the tokenizer lacks words of is a problem only where something is forced after all.
            return None
        return Ahead(cuts, text, self._forced_sampling(self.forcing))

    def _forced_sampling(self, forcing: Forcing) -> Sampling:
        stop = self.sampling.stop_ids
        return Sampling(forcing.answer_tokens, forcing.temperature, forcing.top_p, stop_ids=stop)


def sampling_of(rule: training.Sampling, stop: tuple[int, ...], logprobs: bool) -> Sampling:
    """Return the engine's form of a sampling rule."""
    return Sampling(rule.max_tokens, rule.temperature, rule.top_p, rule.top_k, stop, logprobs)


def forced_length(forcing: Forcing | None, tokenizer: Any) -> int:
    """Return the most tokens that forcing an answer adds to a sequence: the text's and the answer's."""
    if forcing is None:
        return 0
    return len(continuation_tokens(tokenizer, forcing.text)) + forcing.answer_tokens
