"""The embedded engine: samples responses and forces answers with a config and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reodsl.price.show import memory
from runners.data.draws import forced_seeds, hash_seeds, wrap_seeds
from runners.engine.embedded.branches import Branches, answer
from runners.engine.embedded.cohort import Cohort, prefill
from runners.engine.embedded.generation import generate
from runners.engine.embedded.model import Decoder, EmbeddedSettings, shape_of, weights_of
from runners.engine.protocol import (
    ForcedTokens,
    ForcingPlan,
    Generation,
    Limits,
    OnResponse,
    Request,
    SharedWeights,
    TokenSampling,
    Weights,
)
from runners.machine.memory import explain_oom
from runners.models.tensors import read_state

Key = tuple[Request, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class CacheRow:
    """The row of a response in a cache: its slot and the column of its prompt's first token."""

    cohort: Cohort
    slot: int
    start: int


@dataclass(frozen=True, slots=True)
class ForcedJob:
    """A forced answer to make: of response `index`, at `cut`."""

    index: int
    cut: int


def cached_rows(
    cohorts: Sequence[Cohort], requests: Sequence[Request], responses: Sequence[Generation]
) -> dict[Key, CacheRow]:
    """Return the cache row of each response of a generation."""
    rows = {}
    for cohort in cohorts:
        places = zip(cohort.owner.tolist(), cohort.start.tolist(), strict=True)
        for slot, (owner, start) in enumerate(places):
            rows[(requests[owner], responses[owner].tokens)] = CacheRow(cohort, slot, start)
    return rows


def force(
    decoder: Decoder,
    cached: Mapping[Key, CacheRow],
    requests: Sequence[Request],
    responses: Sequence[Generation],
    cuts: Sequence[Sequence[int]],
    forcing: Sequence[int],
    sampling: TokenSampling,
    settings: EmbeddedSettings,
) -> list[list[ForcedTokens]]:
    """Return answers as `Engine.force`. A cut that is asked for twice is answered once."""
    jobs: dict[Key, set[ForcedJob]] = {}
    for index, (request, response, row_cuts) in enumerate(zip(requests, responses, cuts, strict=True)):
        inside = {ForcedJob(index, cut) for cut in row_cuts if cut < len(response.tokens)}
        if inside:
            jobs.setdefault((request, response.tokens), set()).update(inside)
    answers: dict[ForcedJob, tuple[int, ...]] = {}
    by_cohort: dict[int, list[tuple[CacheRow, list[ForcedJob]]]] = {}
    loose: list[list[ForcedJob]] = []
    for key, group in jobs.items():
        ordered = sorted(group, key=lambda job: (job.cut, job.index))
        row = cached.get(key)
        if row is None:
            loose.append(ordered)
        else:
            by_cohort.setdefault(id(row.cohort), []).append((row, ordered))

    def run(placed: list[tuple[CacheRow, list[ForcedJob]]]) -> None:
        placed.sort(key=lambda item: item[0].slot)
        flat = [job for _, group in placed for job in group]
        branches = _branches(placed, flat, requests, responses, forcing)
        cache = placed[0][0].cohort.cache
        answered = answer(decoder, cache, branches, sampling, settings.prefill_tokens)
        answers.update((job, tuple(tokens)) for job, tokens in zip(flat, answered, strict=True))

    for placed in by_cohort.values():
        run(placed)
    loose.sort(key=lambda group: -_reach(group, requests))
    while loose:
        longest = _reach(loose[0], requests)
        row_bytes = longest * decoder.shape.cache_bytes(decoder.like.element_size())
        count = max(1, min(settings.rows, settings.cache_bytes // row_bytes))
        run(_prefill(decoder, loose[:count], requests, responses, settings))
        loose = loose[count:]
    return [
        [ForcedTokens(cut, answers.get(ForcedJob(index, cut), ())) for cut in row_cuts]
        for index, row_cuts in enumerate(cuts)
    ]


def _reach(group: Sequence[ForcedJob], requests: Sequence[Request]) -> int:
    """Return the tokens of prompt and response before the last cut of a group."""
    return len(requests[group[0].index].prompt) + group[-1].cut


def _prefill(
    decoder: Decoder,
    groups: Sequence[list[ForcedJob]],
    requests: Sequence[Request],
    responses: Sequence[Generation],
    settings: EmbeddedSettings,
) -> list[tuple[CacheRow, list[ForcedJob]]]:
    """Read each response once, up to its last cut, into a fresh cache."""
    sequences = [
        requests[group[0].index].prompt + responses[group[0].index].tokens[: group[-1].cut]
        for group in groups
    ]
    longest = len(sequences[0])
    rows = range(len(groups))
    cohort = Cohort(decoder.shape, rows, [longest] * len(groups), longest, decoder.like)
    prefill(decoder, sequences, cohort.cache, settings.prefill_tokens)
    return [(CacheRow(cohort, slot, 0), group) for slot, group in zip(rows, groups, strict=True)]


def _branches(
    placed: Sequence[tuple[CacheRow, list[ForcedJob]]],
    flat: Sequence[ForcedJob],
    requests: Sequence[Request],
    responses: Sequence[Generation],
    forcing: Sequence[int],
) -> Branches:
    """Return the branches of a cache; without a forcing text, the prefix's last token is read again."""
    counts = [len(group) for _, group in placed]
    slot = np.repeat(np.array([row.slot for row, _ in placed], dtype=np.int64), counts)
    start = np.repeat(np.array([row.start for row, _ in placed], dtype=np.int64), counts)
    cut = np.array([job.cut for job in flat], dtype=np.int64)
    position = np.array([len(requests[job.index].prompt) for job in flat], dtype=np.int64) + cut
    if forcing:
        tokens = np.tile(np.array(forcing, dtype=np.int64), (len(flat), 1))
    else:
        ends = [(requests[job.index].prompt + responses[job.index].tokens[: job.cut])[-1] for job in flat]
        tokens, position = np.array(ends, dtype=np.int64)[:, None], position - 1
    seeds = wrap_seeds(requests[job.index].seed for job in flat)
    sampled = np.array([requests[job.index].num_sampled for job in flat], dtype=np.int64)
    return Branches(
        slot=slot,
        start=start,
        end=start + position,
        position=position,
        tokens=tokens,
        streams=hash_seeds(forced_seeds(seeds, sampled + cut)),
    )


class EmbeddedEngine:
    """Rollouts in this process. The caches of the last `generate` stay for `force`, within `cache_bytes`."""

    def __init__(
        self,
        config: Any,
        state: Mapping[str, torch.Tensor] | Path,
        version: int = 0,
        settings: EmbeddedSettings | None = None,
    ) -> None:
        """`config` is a transformers config, `state` as for `load_weights`. Raises E0801, E0803."""
        self._settings = settings or EmbeddedSettings()
        self._shape = shape_of(config)
        self._limits = Limits(self._shape.context, self._shape.vocab)
        self._kept: dict[Key, CacheRow] = {}
        self._held: Decoder | None = None
        self.load_weights(state, version)

    def load_weights(self, state: Weights, version: int) -> None:
        """Copy new weights, and drop every cache of the old weights. Raises E0803, E0937."""
        if isinstance(state, SharedWeights):
            # Outside of inference mode: what a trainer puts together there, it could not learn from any more.
            state = state.assemble(None)
        tensors = read_state(state) if isinstance(state, Path) else state
        self._kept = {}
        with torch.inference_mode(), self._explain_oom("taking new weights"):
            self._held = Decoder(self._shape, weights_of(tensors, self._shape, self._settings))
        self._version = version

    @torch.inference_mode()
    def generate(
        self,
        requests: Sequence[Request],
        sampling: TokenSampling,
        plan: ForcingPlan | None = None,
        on_response: OnResponse | None = None,
    ) -> list[Generation]:
        """Return responses as `Engine.generate`; caches stay for `force`, so a plan is not needed.

        Raises E0802 for logits that are not finite, E0807 for an impossible request, E0937 if memory runs out.
        """
        self._limits.check(requests, sampling)
        self._kept = {}
        with self._explain_oom(f"generating {len(requests)} responses of up to {sampling.max_tokens} tokens"):
            responses, cohorts = generate(self._decoder, requests, sampling, self._settings, self._version)
        self._kept = cached_rows(cohorts, requests, responses)
        return responses

    @torch.inference_mode()
    def force(
        self,
        requests: Sequence[Request],
        responses: Sequence[Generation],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: TokenSampling,
    ) -> list[list[ForcedTokens]]:
        """Return answers as `Engine.force`; responses that are not cached are read again, once. Raises as `generate`."""
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
        caches = f"caches of keys and values may have {memory(self._settings.cache_bytes)}"
        help = "shorten the longest response, see what else uses the device, or write `engine = sglang`"
        return explain_oom(torch.device(self._settings.device), lambda: (f"while {doing}", [caches], help))
