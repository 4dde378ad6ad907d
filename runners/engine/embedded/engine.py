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
    """The row of a cache that has a response's keys and values.

    `slot` is the row in the cache of `cohort`, and `start` is the column of the prompt's first token.
    """

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
    """Return the row of a cache that has the keys and values of a response, by the request and the response's tokens.

    Responses whose cohort is no longer cached have no entry.

    Args:
        cohorts: The batches of responses of a generation that still have their caches.
        requests: All requests of the generation.
        responses: The responses to the requests.
    """
    return {
        (requests[owner], responses[owner].tokens): CacheRow(cohort, slot, start)
        for cohort in cohorts
        for slot, (owner, start) in enumerate(zip(cohort.owner.tolist(), cohort.start.tolist(), strict=True))
    }


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
    """Return the answers that the model gives after cuts of its responses and the forcing text.

    The answers of a cached response continue from its row of the cache. The model first reads a response without a
    cached row again, up to its last cut. Equal requests with equal responses share a row.

    Args:
        decoder: The model.
        cached: The cached rows of the last generation's responses.
        requests: The requests of the responses.
        responses: The responses to cut.
        cuts: For each response, after how many of its tokens an answer is forced.
        forcing: The tokens of the forcing text.
        sampling: How the tokens of answers are sampled.
        settings: Bounds of rows, cache and tokens.

    Returns:
        For each response, the answer of each cut, in the order of the cuts; empty at or past the response's end.
    """
    jobs: dict[Key, set[ForcedJob]] = {}
    for index, (request, response, row_cuts) in enumerate(zip(requests, responses, cuts, strict=True)):
        inside = {ForcedJob(index, cut) for cut in row_cuts if cut < len(response.tokens)}
        if inside:
            jobs.setdefault((request, response.tokens), set()).update(inside)
    answers: dict[ForcedJob, tuple[int, ...]] = {}
    by_cohort: dict[int, list[tuple[CacheRow, list[ForcedJob]]]] = {}
    uncached: list[list[ForcedJob]] = []
    for key, group in jobs.items():
        ordered = sorted(group, key=lambda job: (job.cut, job.index))
        row = cached.get(key)
        if row is None:
            uncached.append(ordered)
        else:
            by_cohort.setdefault(id(row.cohort), []).append((row, ordered))

    def run(jobs_of_rows: list[tuple[CacheRow, list[ForcedJob]]]) -> None:
        """Add to `answers` the forced answers of rows that share a cache."""
        jobs_of_rows.sort(key=lambda item: item[0].slot)
        flat = [job for _, group in jobs_of_rows for job in group]
        branches = _make_branches(jobs_of_rows, flat, requests, responses, forcing)
        cache = jobs_of_rows[0][0].cohort.cache
        answered = answer(decoder, cache, branches, sampling, settings.prefill_tokens)
        answers.update((job, tuple(tokens)) for job, tokens in zip(flat, answered, strict=True))

    for jobs_of_rows in by_cohort.values():
        run(jobs_of_rows)
    uncached.sort(key=lambda group: -_prefix_length(group, requests))
    while uncached:
        longest = _prefix_length(uncached[0], requests)
        row_bytes = longest * decoder.shape.cache_bytes(decoder.like.element_size())
        count = max(1, min(settings.rows, settings.cache_bytes // row_bytes))
        run(_prefill(decoder, uncached[:count], requests, responses, settings))
        uncached = uncached[count:]
    return [
        [ForcedTokens(cut, answers.get(ForcedJob(index, cut), ())) for cut in row_cuts]
        for index, row_cuts in enumerate(cuts)
    ]


def _prefix_length(group: Sequence[ForcedJob], requests: Sequence[Request]) -> int:
    """Return the number of tokens of a prompt and its response before the last cut of the response.

    Args:
        group: The forced answers of one response, in rising order of their cuts.
        requests: All requests.
    """
    return len(requests[group[0].index].prompt) + group[-1].cut


def _prefill(
    decoder: Decoder,
    groups: Sequence[list[ForcedJob]],
    requests: Sequence[Request],
    responses: Sequence[Generation],
    settings: EmbeddedSettings,
) -> list[tuple[CacheRow, list[ForcedJob]]]:
    """Run the model over prompts and responses, up to the last cut of each response, into a new cache.

    Args:
        decoder: The model.
        groups: For each response, its forced answers in rising order of cuts; the longest prefix comes first.
        requests: All requests.
        responses: All responses.
        settings: The bound of tokens of a pass.

    Returns:
        For each group, the cached row of its response and the group.
    """
    sequences = [
        requests[group[0].index].prompt + responses[group[0].index].tokens[: group[-1].cut]
        for group in groups
    ]
    longest = len(sequences[0])
    rows = range(len(groups))
    cohort = Cohort(decoder.shape, rows, [longest] * len(groups), longest, decoder.like)
    prefill(decoder, sequences, cohort.cache, settings.prefill_tokens)
    return [(CacheRow(cohort, slot, 0), group) for slot, group in zip(rows, groups, strict=True)]


def _make_branches(
    jobs_of_rows: Sequence[tuple[CacheRow, list[ForcedJob]]],
    flat: Sequence[ForcedJob],
    requests: Sequence[Request],
    responses: Sequence[Generation],
    forcing: Sequence[int],
) -> Branches:
    """Return the forced answers of a cache as branches of its rows.

    The model has to read at least one token of a branch before it can sample the next. With a forcing text, these are
    the tokens of the text. Without one, it reads the last token before the cut again, and the branch does not see the
    cached column of this token.

    Args:
        jobs_of_rows: The forced answers of each cached row, sorted by slot.
        flat: All these forced answers in the same order.
        requests: All requests.
        responses: All responses.
        forcing: The tokens of the forcing text.
    """
    counts = [len(group) for _, group in jobs_of_rows]
    slot = np.repeat(np.array([row.slot for row, _ in jobs_of_rows], dtype=np.int64), counts)
    start = np.repeat(np.array([row.start for row, _ in jobs_of_rows], dtype=np.int64), counts)
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
        """Load a model.

        Args:
            config: The `transformers` config of the model.
            state: The weights, by their `transformers` names or as a folder.
            version: The number of the weights, which responses have in `weight_versions`.
            settings: The device, precision and bounds; None for the defaults.

        Raises:
            Problem: E0801 for another architecture, E0803 for weights that do not fit the config, E0937 if memory runs
                out.
        """
        self._settings = settings or EmbeddedSettings()
        self._shape = shape_of(config)
        self._limits = Limits(self._shape.context, self._shape.vocab)
        self._cached: dict[Key, CacheRow] = {}
        self._loaded: Decoder | None = None
        self.load_weights(state, version)

    def load_weights(self, state: Weights, version: int) -> None:
        """Copy new weights to the engine's device, and drop every cache of the old weights.

        Args:
            state: The new weights: tensors by their `transformers` names, a folder, or shards of several processes.
            version: The number of the new weights, which responses have in `weight_versions`.

        Raises:
            Problem: E0803 for weights that do not fit the config, E0937 if memory runs out.
        """
        if isinstance(state, SharedWeights):
            # Outside of inference mode, whose tensors a trainer could not use for gradients.
            state = state.assemble(None)
        tensors = read_state(state) if isinstance(state, Path) else state
        self._cached = {}
        with torch.inference_mode(), self._explain_oom("loading new weights"):
            self._loaded = Decoder(self._shape, weights_of(tensors, self._shape, self._settings))
        self._version = version

    @torch.inference_mode()
    def generate(
        self,
        requests: Sequence[Request],
        sampling: TokenSampling,
        plan: ForcingPlan | None = None,
        on_response: OnResponse | None = None,
    ) -> list[Generation]:
        """Return a response for each request, and keep the caches of responses for `force`.

        Args:
            requests: The prompts with their seeds.
            sampling: How tokens are sampled.
            plan: Not used, since forcing from the caches is cheap.
            on_response: Never called.

        Raises:
            Problem: E0802 for logits that are not finite, E0807 for an impossible request, E0937 if memory runs out.
        """
        self._limits.check(requests, sampling)
        self._cached = {}
        with self._explain_oom(f"generating {len(requests)} responses of up to {sampling.max_tokens} tokens"):
            responses, cohorts = generate(self._decoder, requests, sampling, self._settings, self._version)
        self._cached = cached_rows(cohorts, requests, responses)
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
        """Return the answers after cuts of responses; the model reads responses without a cache once more.

        Args:
            requests: The requests of the responses.
            responses: The responses to cut.
            cuts: For each response, after how many of its tokens an answer is forced.
            forcing: The tokens of the forcing text.
            sampling: How the tokens of answers are sampled.

        Returns:
            For each response, the answer of each cut, in the order of the cuts.

        Raises:
            Problem: E0802 for logits that are not finite, E0807 for impossible cuts, E0937 if memory runs out.
        """
        self._limits.check_forced(requests, responses, cuts, forcing, sampling)
        with self._explain_oom(f"forcing {sum(map(len, cuts))} answers"):
            return force(
                self._decoder, self._cached, requests, responses, cuts, forcing, sampling, self._settings
            )

    def release(self) -> None:
        """Drop the weights and caches, so that a trainer of this process can use their memory."""
        self._cached = {}
        self._loaded = None

    def close(self) -> None:
        """Release the memory, as `release` does."""
        self.release()

    @property
    def _decoder(self) -> Decoder:
        """Return the model, which `load_weights` sets and `release` drops."""
        assert self._loaded is not None, "weights have to be loaded first"
        return self._loaded

    def _explain_oom(self, activity: str) -> AbstractContextManager[None]:
        """Turn an out-of-memory error inside a `with` block into E0937, which says during which `activity` it came."""
        caches = f"caches of keys and values may have {memory(self._settings.cache_bytes)}"
        help = "shorten the longest response, see what else uses the device, or write `engine = sglang`"
        return explain_oom(torch.device(self._settings.device), lambda: (f"while {activity}", [caches], help))
