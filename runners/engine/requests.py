"""Refuse requests that a model cannot serve, before an engine starts on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reodsl.diagnostics import problem
from runners.engine.protocol import Request, Response, Sampling


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest sequence a model reads, and how many tokens it knows."""

    context: int
    vocab: int

    def check(self, requests: Sequence[Request], sampling: Sampling) -> None:
        """Check requests. Raises E0807 for no tokens, unknown ones, or more than the context."""
        for request in requests:
            self._check([request], sampling, request.limit(sampling))

    def check_forced(
        self,
        requests: Sequence[Request],
        responses: Sequence[Response],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: Sampling,
    ) -> None:
        """Check that answers can be forced. Raises E0807."""
        if min((cut for wanted in cuts for cut in wanted), default=0) < 0:
            raise problem(
                "E0807",
                "a response cannot be cut before its first token",
                help="force answers at 0 tokens or more",
            )
        for request, response, wanted in zip(requests, responses, cuts, strict=True):
            inside = [cut for cut in wanted if cut < len(response.tokens)]
            if inside:
                self._check([request], sampling, max(inside) + len(forcing) + sampling.max_tokens)
        self._check_tokens(forcing)

    def _check(self, requests: Sequence[Request], sampling: Sampling, room: int) -> None:
        if sampling.max_tokens < 1:
            raise problem(
                "E0807",
                f"at least one token has to be asked for, not {sampling.max_tokens}",
                help="set `max_tokens` to 1 or more",
            )
        for request in requests:
            if not request.prompt:
                raise problem(
                    "E0807", "a prompt has no tokens", help="give it at least one token to go on from"
                )
            if len(request.prompt) + room > self.context:
                raise problem(
                    "E0807",
                    f"a prompt of {len(request.prompt)} tokens and {room} to come are more than the model's context "
                    f"of {self.context} tokens",
                    help="lower the longest response, or leave out longer prompts",
                )
            self._check_tokens(request.prompt)

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        if tokens and not (min(tokens) >= 0 and max(tokens) < self.vocab):
            bad = next(token for token in tokens if not 0 <= token < self.vocab)
            raise problem(
                "E0807",
                f"token {bad} is outside the model's vocabulary of {self.vocab}",
                help="the tokenizer belongs to another model",
            )
