"""The embedded engine: samples responses and forces answers with a config and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from runners.engine.embedded.forcing import CacheRow, Key, force, kept_rows
from runners.engine.embedded.generation import generate
from runners.engine.embedded.model import Decoder, EmbeddedSettings, shape_of, weights_of
from runners.engine.protocol import Ahead, Ended, Forced, Request, Response, Sampling, SharedWeights, Weights
from runners.engine.requests import Limits
from runners.exhaustion import explain_generation_oom
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
        self._limits = Limits(self._shape.context, self._shape.vocab)
        self._kept: dict[Key, CacheRow] = {}
        self._held: Decoder | None = None
        self.load_weights(state, version)

    def load_weights(self, state: Weights, version: int) -> None:
        """Copy new weights in and drop every cache made with the old ones. Raises E0803 to E0806, E0816."""
        if isinstance(state, SharedWeights):
            # Outside of inference mode: what a trainer puts together there, it could not learn from any more.
            state = state.whole()
        tensors = read_state(state) if isinstance(state, Path) else state
        self._kept = {}
        with torch.inference_mode(), self._explain_oom("taking new weights"):
            self._held = Decoder(self._shape, weights_of(tensors, self._shape, self._settings))
        self._version = version

    @torch.inference_mode()
    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        ahead: Ahead | None = None,
        ended: Ended | None = None,
    ) -> list[Response]:
        """See `Engine.generate`; caches stay for `force`, which needs no word ahead, and answers after all have ended.

        Raises E0802 when logits are not finite, E0807 for an impossible request, E0816 when memory runs out.
        """
        self._limits.check(requests, sampling)
        self._kept = {}
        with self._explain_oom(f"generating {len(requests)} responses of up to {sampling.max_tokens} tokens"):
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
        self._limits.check_forced(requests, responses, cuts, forcing, sampling)
        with self._explain_oom(f"forcing {sum(map(len, cuts))} answers"):
            return force(
                self._decoder, self._kept, requests, responses, cuts, forcing, sampling, self._settings
            )

    def release(self) -> None:
        """Drop the weights and caches: a trainer of this process takes their memory."""
        self._kept = {}
        self._held = None

    def close(self) -> None:
        """Release the memory, as `release` does."""
        self.release()

    @property
    def _decoder(self) -> Decoder:
        assert self._held is not None, "weights have to be loaded first"
        return self._held

    def _explain_oom(self, doing: str) -> AbstractContextManager[None]:
        return explain_generation_oom(doing, self._settings.device, self._settings.cache_bytes)
