"""The embedded engine: a config and weights in, an `Engine` that samples and forces answers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from reodsl.diagnostics import problem
from runners.engine.embedded.decoder import Decoder
from runners.engine.embedded.forcing import Key, Row, force, kept_rows
from runners.engine.embedded.generation import generate
from runners.engine.embedded.settings import EmbeddedSettings
from runners.engine.embedded.shape import shape_of
from runners.engine.embedded.weights import weights_of
from runners.engine.protocol import Forced, Request, Response, Sampling
from runners.models.tensors import read_state


class EmbeddedEngine:
    """Rollouts in this process. The caches of the last `generate` stay for `force`, within `cache_bytes`."""

    def __init__(
        self,
        config: Any,
        state: Mapping[str, torch.Tensor] | Path,
        version: int = 0,
        settings: EmbeddedSettings | None = None,
    ) -> None:
        """`config` is a transformers config, `state` as for `load_weights`. Raises E0801, E0806."""
        self._settings = settings or EmbeddedSettings()
        self._shape = shape_of(config)
        self._kept: dict[Key, Row] = {}
        self.load_weights(state, version)

    @torch.inference_mode()
    def load_weights(self, state: Mapping[str, torch.Tensor] | Path, version: int) -> None:
        """Copies new weights in and drops every cache made with the old ones. Raises E0803 to E0806."""
        tensors = read_state(state) if isinstance(state, Path) else state
        self._kept = {}
        self._decoder = Decoder(self._shape, weights_of(tensors, self._shape, self._settings))
        self._version = version

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """See `Engine.generate`. Raises E0802 when logits are not finite, E0807 for an impossible request."""
        self._check(requests, sampling, sampling.max_tokens)
        self._kept = {}
        responses, cohorts = generate(self._decoder, requests, sampling, self._settings, self._version)
        self._kept = kept_rows(cohorts, requests, responses)
        return responses

    @torch.inference_mode()
    def force(
        self,
        requests: Sequence[Request],
        responses: Sequence[Response],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: Sampling,
    ) -> list[list[Forced]]:
        """See `Engine.force`. Responses that are not cached are read again, each once. Raises as `generate`."""
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
        return force(self._decoder, self._kept, requests, responses, cuts, forcing, sampling, self._settings)

    def close(self) -> None:
        """Drops the weights and caches."""
        self._kept = {}
        del self._decoder

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
            if len(request.prompt) + room > self._shape.context:
                raise problem(
                    "E0807",
                    f"a prompt of {len(request.prompt)} tokens and {room} to come are more than the model's context "
                    f"of {self._shape.context} tokens",
                    help="lower the longest response, or leave out longer prompts",
                )
            self._check_tokens(request.prompt)

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        if tokens and not (min(tokens) >= 0 and max(tokens) < self._shape.vocab):
            bad = next(token for token in tokens if not 0 <= token < self._shape.vocab)
            raise problem(
                "E0807",
                f"token {bad} is outside the model's vocabulary of {self._shape.vocab}",
                help="the tokenizer belongs to another model",
            )
