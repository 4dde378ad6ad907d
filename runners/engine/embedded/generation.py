"""Generate responses: requests are admitted as rows and bytes become free, and every step samples a token for each."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from reodsl.diagnostics import group, problem
from runners.data.draws import hash_seeds, skip_uniforms, uniforms, wrap_seeds
from runners.engine.embedded.cohort import Cohort, admit
from runners.engine.embedded.model import Decoder, EmbeddedSettings
from runners.engine.protocol import NO_NUMBERS, Generation, Request, TokenSampling, check_cancelled

Group = tuple[tuple[int, ...], list[int]]
"""A prompt and the indices of the requests that have this prompt."""


def groups_of(requests: Sequence[Request]) -> deque[Group]:
    """Group the indices of requests by equal prompts, in rising order of the prompt's length.

    Neighbouring groups then have prompts of similar length, which need little padding in a cohort.
    """
    by_prompt = group((request.prompt, index) for index, request in enumerate(requests))
    return deque(sorted(by_prompt.items(), key=lambda item: len(item[0])))


def take_groups(waiting: deque[Group], rows: int, tokens: int, max_tokens: int, is_idle: bool) -> list[Group]:
    """Take the groups of the next cohort, a batch of responses that start together, from `waiting`.

    Every row of a cohort has the columns of the longest prompt and `max_tokens` more. Groups are taken while all rows
    of the next group fit too. The result is empty if the first group does not fit, except if `is_idle`.

    Args:
        waiting: The groups in rising order of the prompt's length. Those returned are removed.
        rows: The most rows of the cohort.
        tokens: The most tokens of the cohort's cache.
        max_tokens: The most tokens of a response.
        is_idle: True if no cohort runs. Then the first group is split if it does not fit, and at least one row starts.
    """
    groups: list[Group] = []
    count = 0
    while waiting:
        prompt, members = waiting[0]
        # Prompts come in rising order of length: this one would set the columns of the whole cohort.
        free_rows = min(rows, tokens // (len(prompt) + max_tokens)) - count
        if is_idle and not groups:
            free_rows = max(free_rows, 1)
            if free_rows < len(members):
                waiting[0] = (prompt, members[free_rows:])
                return [(prompt, members[:free_rows])]
        if free_rows < len(members):
            break
        groups.append(waiting.popleft())
        count += len(members)
    return groups


def draw(
    logits: torch.Tensor, uniforms: torch.Tensor, sampling: TokenSampling
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sample a token for each row of logits.

    At temperature 0 the token is the most likely. Otherwise sampling inverts the cumulative distribution at the row's
    uniform number, in double precision. The tokens are in the order of their ids, or in falling order of probability if
    top-k or top-p truncate the distribution. Logits that are not finite give a log-probability that is not finite,
    which the caller reports.

    Args:
        logits: [n, vocab].
        uniforms: Uniform numbers in double precision, [n].
        sampling: How tokens are sampled.

    Returns:
        Tokens, log-probabilities and sampling log-probabilities (see `Generation`) in float32, each [n].
    """
    model = torch.log_softmax(logits.float(), -1)
    if sampling.temperature == 0.0:
        tokens = model.argmax(-1, keepdim=True)
        logprobs = model.gather(1, tokens)
        # NaN minus itself stays NaN, so a broken row shows in both.
        return tokens[:, 0], logprobs[:, 0], (logprobs - logprobs)[:, 0]
    tempered = (
        model if sampling.temperature == 1.0 else torch.log_softmax(logits.float() / sampling.temperature, -1)
    )
    if sampling.top_p >= 1.0 and sampling.top_k <= 0:
        tokens = _invert(tempered.exp(), uniforms)
        logprobs = model.gather(1, tokens)[:, 0]
        sampling_logprobs = logprobs if tempered is model else tempered.gather(1, tokens)[:, 0]
        return tokens[:, 0], logprobs, sampling_logprobs
    ordered, ids = torch.sort(tempered, dim=-1, descending=True, stable=True)
    if 0 < sampling.top_k < ordered.shape[1]:
        ordered, ids = ordered[:, : sampling.top_k], ids[:, : sampling.top_k]
        ordered = torch.log_softmax(ordered, -1)
    mass = ordered.exp()
    before = torch.cumsum(mass, -1, dtype=torch.float64) - mass
    in_nucleus = before < sampling.top_p
    in_nucleus[:, 0] = True
    ordered = torch.log_softmax(ordered.masked_fill(~in_nucleus, -torch.inf), -1)
    ranks = _invert(ordered.exp(), uniforms)
    tokens = ids.gather(1, ranks)
    return tokens[:, 0], model.gather(1, tokens)[:, 0], ordered.gather(1, ranks)[:, 0]


def _invert(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return the category that each uniform number selects from a discrete distribution.

    Args:
        probabilities: Probabilities, not necessarily normalised, [n, categories].
        uniforms: Numbers between 0 and 1, [n].

    Returns:
        The first index whose cumulative probability is above `uniforms` times the total, [n, 1].
    """
    cumulative = torch.cumsum(probabilities, -1, dtype=torch.float64)
    target = uniforms.unsqueeze(1) * cumulative[:, -1:]
    ranks = torch.searchsorted(cumulative, target, right=True)
    # Only a row that is not finite can run past the end.
    return ranks.clamp_(max=probabilities.shape[1] - 1)


Step = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
"""A step's request indices, tokens, log-probabilities and sampling log-probabilities, each [live rows]."""


@dataclass(slots=True)
class LiveCohort:
    """A cohort while it decodes, with everything that was sampled so far."""

    cohort: Cohort
    """Its responses and their cache."""
    streams: NDArray[np.uint64]
    """The hashed seed of each slot, [slots]."""
    limits: NDArray[np.int64]
    """The most tokens of each slot, [slots]."""
    stop_ids: NDArray[np.int64]
    """Token ids that end a response."""
    max_tokens: int
    """The most tokens of any slot."""
    last_tokens: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The token sampled last in each live slot, [live slots]."""
    steps: list[Step] = field(default_factory=list)
    """Everything sampled so far, step by step."""

    def uniforms(self) -> NDArray[np.float64]:
        """Return the uniform random numbers that sample the next token of each live slot, [live slots]."""
        return uniforms(self.streams[: self.cohort.live], len(self.steps))

    def record(
        self, tokens: NDArray[np.int64], logprobs: NDArray[np.float64], sampling_logprobs: NDArray[np.float64]
    ) -> None:
        """Record the next token of each live slot, and retire the slots whose responses end with this token.

        Args:
            tokens: Token ids, [live slots].
            logprobs: Log-probabilities of the tokens, [live slots].
            sampling_logprobs: Log-probabilities under the sampling distribution, [live slots].
        """
        cohort = self.cohort
        self.steps.append((cohort.owner[: cohort.live].copy(), tokens, logprobs, sampling_logprobs))
        self.last_tokens = tokens
        if len(self.steps) == self.max_tokens:
            cohort.live = 0
            return
        at_limit = self.limits[: cohort.live] <= len(self.steps)
        finished = np.flatnonzero(np.isin(tokens, self.stop_ids) | at_limit)
        if len(finished):
            order = cohort.retire(finished.tolist())
            self.streams, self.limits = self.streams[order], self.limits[order]
            self.last_tokens = tokens[order[: cohort.live]]

    def responses(self, version: int, with_logprobs: bool) -> dict[int, Generation]:
        """Return the responses of this cohort by the index of their request, after all of them have ended.

        Each step has recorded a token of every response that still ran, with the index of its request (`owners`). The
        response of a request is the sequence of its tokens in the order of steps.

        Args:
            version: The number of the weights that sampled the responses.
            with_logprobs: Whether the responses carry their log-probabilities.
        """
        owners = np.concatenate([step[0] for step in self.steps])
        # A stable sort by owner leaves each owner's tokens in the order of their steps.
        order = np.argsort(owners, kind="stable")
        requests, first = np.unique(owners[order], return_index=True)
        tokens, logprobs, sampling_logprobs = (
            np.split(np.concatenate([step[column] for step in self.steps])[order], first[1:])
            for column in (1, 2, 3)
        )
        responses = {}
        for index, request in enumerate(requests.tolist()):
            model_logprobs = array("d", logprobs[index].tobytes())
            sampled = array("d", sampling_logprobs[index].tobytes())
            # Without top-p, and at temperature 1, both are equal, and are kept once.
            sampled = model_logprobs if sampled == model_logprobs else sampled
            stopped = bool(np.isin(tokens[index][-1], self.stop_ids))
            responses[request] = Generation(
                tokens=tuple(tokens[index].tolist()),
                logprobs=model_logprobs if with_logprobs else NO_NUMBERS,
                sampling_logprobs=sampled if with_logprobs else NO_NUMBERS,
                finish="stop" if stopped else "length",
                weight_versions=(version,),
            )
        return responses


def generate(
    decoder: Decoder,
    requests: Sequence[Request],
    sampling: TokenSampling,
    settings: EmbeddedSettings,
    version: int,
) -> tuple[list[Generation], list[Cohort]]:
    """Sample a response for each request, in cohorts: batches of responses that start together and share a cache.

    Each step samples a token for every live row, a row whose response has not ended, of all running cohorts. Matrix
    products are over the live rows of all cohorts together, attention over one cohort's cache at a time. The next
    cohort starts when enough rows are free (see `_next_groups`).

    Args:
        decoder: The model.
        requests: The prompts with their seeds.
        sampling: How tokens are sampled.
        settings: Bounds of rows, cache and tokens.
        version: The number of the weights.

    Returns:
        The responses in the order of the requests, and the finished cohorts whose caches fit into the memory for caches.

    Raises:
        Problem: E0802 for logits that are not finite.
    """
    waiting = groups_of(requests)
    sampled = wrap_seeds(request.num_sampled for request in requests)
    streams = skip_uniforms(hash_seeds(wrap_seeds(request.seed for request in requests)), sampled)
    limits = np.array([request.limit(sampling) for request in requests], dtype=np.int64)
    stop_ids = np.array(sampling.stop_ids, dtype=np.int64)
    running: list[LiveCohort] = []
    cached: deque[Cohort] = deque()
    responses: dict[int, Generation] = {}
    while waiting or running:
        check_cancelled()
        while waiting:
            groups = _next_groups(waiting, decoder, sampling, settings, running, cached)
            if not groups:
                break
            cohort, logits = admit(decoder, groups, sampling.max_tokens, settings.prefill_tokens)
            new = LiveCohort(
                cohort, streams[cohort.owner], limits[cohort.owner], stop_ids, sampling.max_tokens
            )
            running.append(new)
            _sample_step(logits, [new], sampling)
        unfinished = [member for member in running if member.cohort.live]
        if unfinished:
            _sample_step(_logits(decoder, unfinished), unfinished, sampling)
        for member in running:
            if not member.cohort.live:
                responses.update(member.responses(version, sampling.logprobs))
                cached.append(member.cohort)
        running = [member for member in running if member.cohort.live]
    return [responses[index] for index in range(len(requests))], list(cached)


def _next_groups(
    waiting: deque[Group],
    decoder: Decoder,
    sampling: TokenSampling,
    settings: EmbeddedSettings,
    running: Sequence[LiveCohort],
    cached: deque[Cohort],
) -> list[Group]:
    """Take the requests of the next cohort, a batch of responses that start together, grouped by prompt.

    While other cohorts run, a new cohort starts only if half of `settings.rows` are free, or as many rows as requests
    wait.

    Args:
        waiting: The groups that have not started. Those returned are removed.
        decoder: The model.
        sampling: The limit of tokens.
        settings: The bounds of rows and of the caches' memory.
        running: The cohorts that decode.
        cached: The finished cohorts whose caches are kept for forcing, oldest first. The oldest are dropped if the new
            cohort needs their memory.

    Returns:
        The groups; empty if too few rows are free, or if the memory is too small for the first waiting group.
    """
    free = settings.rows - sum(member.cohort.live for member in running)
    waiting_rows = sum(len(members) for _, members in waiting)
    if running and free < min(settings.rows // 2, waiting_rows):
        return []
    token = decoder.shape.cache_bytes(decoder.like.element_size())
    free_bytes = settings.cache_bytes - sum(member.cohort.cache.bytes for member in running)
    groups = take_groups(waiting, free, free_bytes // token, sampling.max_tokens, is_idle=not running)
    if groups:
        columns = len(groups[-1][0]) + sampling.max_tokens
        free_bytes -= token * columns * sum(len(members) for _, members in groups)
        while cached and sum(cohort.cache.bytes for cohort in cached) > free_bytes:
            cached.popleft()
    return groups


def _logits(decoder: Decoder, cohorts: Sequence[LiveCohort]) -> torch.Tensor:
    """Run the model over the last token of each live row, and return the logits of the next token.

    Args:
        decoder: The model.
        cohorts: The batches of responses that decode, whose caches get a filled column more.

    Returns:
        [live rows of all cohorts, vocab].
    """
    shape = decoder.shape
    for member in cohorts:
        member.cohort.filled += 1
    last_tokens = np.concatenate([member.last_tokens for member in cohorts])
    tokens = torch.from_numpy(last_tokens).to(decoder.device, non_blocking=True)
    positions = np.concatenate([member.cohort.positions() for member in cohorts])
    decoder.cover(int(positions.max()) + 1)
    scale = shape.head_dim**-0.5

    def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return the attention of a layer for the new token of each live row, over the cache of its cohort."""
        scaled = queries * scale
        out = torch.empty_like(scaled)
        first = 0
        for member in cohorts:
            rows = slice(first, first + member.cohort.live)
            member.cohort.attend(layer, scaled[rows], keys[rows], values[rows], out[rows])
            first = rows.stop
        return out.view(first, -1)

    return decoder.run(tokens, torch.from_numpy(positions).to(decoder.device, non_blocking=True), attend)


def _sample_step(logits: torch.Tensor, cohorts: Sequence[LiveCohort], sampling: TokenSampling) -> None:
    """Sample the next token of every live row, and record it in the row's cohort.

    Args:
        logits: [live rows of all cohorts, vocab], cohort after cohort.
        cohorts: The cohorts of these rows.
        sampling: How tokens are sampled.

    Raises:
        Problem: E0802 for logits that are not finite.
    """
    uniforms = np.concatenate([member.uniforms() for member in cohorts])
    chance = torch.from_numpy(uniforms).to(logits.device, non_blocking=True)
    tokens, logprobs, sampling_logprobs = draw(logits, chance, sampling)
    # One copy of the three, because each copy from a GPU waits for the GPU.
    numbers = torch.stack((tokens.double(), logprobs.double(), sampling_logprobs.double())).cpu().numpy()
    if not np.isfinite(numbers).all():
        raise not_finite(len(cohorts[0].steps))
    first = 0
    ids = numbers[0].astype(np.int64)
    for member in cohorts:
        rows = slice(first, first + member.cohort.live)
        member.record(ids[rows], numbers[1, rows], numbers[2, rows])
        first = rows.stop


def not_finite(token: int) -> Exception:
    """Return E0802 for a model whose logits are NaN or infinite at the index `token` of a response."""
    return problem(
        "E0802",
        f"the model's logits are not finite at token {token} of a response",
        help="its weights have diverged: lower `optim.lr` of its training, or start from an earlier checkpoint",
    )
