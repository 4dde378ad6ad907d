"""Generate responses: requests are admitted as rows and bytes get free, and every step draws a token for each."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from reodsl.diagnostics import problem
from runners.data.draws import hash_seeds, skip_uniforms, uniforms, wrap_seeds
from runners.engine.embedded.cohort import Cohort, admit
from runners.engine.embedded.model import Decoder, EmbeddedSettings
from runners.engine.protocol import NO_NUMBERS, Generation, Request, TokenSampling, look

# A prompt and the requests that have it.
Group = tuple[tuple[int, ...], list[int]]


def groups_of(requests: Sequence[Request]) -> deque[Group]:
    """Group requests by equal prompt, in rising order of the prompt's length: neighbours waste little padding."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for index, request in enumerate(requests):
        by_prompt.setdefault(request.prompt, []).append(index)
    return deque(sorted(by_prompt.items(), key=lambda item: len(item[0])))


def take(waiting: deque[Group], rows: int, tokens: int, max_tokens: int, alone: bool) -> list[Group]:
    """Take the groups of the next cohort from `waiting`: at most `rows` rows and `tokens` tokens of cache.

    Every row has the columns of the longest prompt and `max_tokens` more. A group stays whole, so that its prompt
    is read once, unless it fits nowhere: `alone`, when nothing runs, splits it, and starts one row at least.
    """
    taken: list[Group] = []
    count = 0
    while waiting:
        prompt, members = waiting[0]
        # Prompts come in rising order of length: this one would set the columns of the whole cohort.
        room = min(rows, tokens // (len(prompt) + max_tokens)) - count
        if alone and not taken:
            room = max(room, 1)
            if room < len(members):
                waiting[0] = (prompt, members[room:])
                return [(prompt, members[:room])]
        if room < len(members):
            break
        taken.append(waiting.popleft())
        count += len(members)
    return taken


def draw(
    logits: torch.Tensor, uniforms: torch.Tensor, sampling: TokenSampling
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw tokens [n], with log-probabilities [n] and behaviour log-probabilities [n] (see `Generation`), fp32.

    A draw inverts the cumulative distribution at its uniform, in double precision: over tokens in the order of their ids,
    or in falling order of probability when top-k or top-p cut the distribution. `logits` is [n, vocab], `uniforms` [n] in
    double precision. Logits that are not finite give a log-probability that is not finite, which the caller reports.
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
        behaviour = logprobs if tempered is model else tempered.gather(1, tokens)[:, 0]
        return tokens[:, 0], logprobs, behaviour
    ordered, ids = torch.sort(tempered, dim=-1, descending=True, stable=True)
    if 0 < sampling.top_k < ordered.shape[1]:
        ordered, ids = ordered[:, : sampling.top_k], ids[:, : sampling.top_k]
        ordered = torch.log_softmax(ordered, -1)
    mass = ordered.exp()
    before = torch.cumsum(mass, -1, dtype=torch.float64) - mass
    kept = before < sampling.top_p
    kept[:, 0] = True
    ordered = torch.log_softmax(ordered.masked_fill(~kept, -torch.inf), -1)
    ranks = _invert(ordered.exp(), uniforms)
    tokens = ids.gather(1, ranks)
    return tokens[:, 0], model.gather(1, tokens)[:, 0], ordered.gather(1, ranks)[:, 0]


def _invert(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return the first index [n, 1] whose cumulative probability passes `uniforms` of the total."""
    cumulative = torch.cumsum(probabilities, -1, dtype=torch.float64)
    target = uniforms.unsqueeze(1) * cumulative[:, -1:]
    ranks = torch.searchsorted(cumulative, target, right=True)
    # Only a row that is not finite can run past the end.
    return ranks.clamp_(max=probabilities.shape[1] - 1)


Step = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


@dataclass(slots=True)
class Running:
    """A cohort while it decodes: what was drawn last in each live slot, and everything drawn so far."""

    cohort: Cohort
    streams: NDArray[np.uint64]
    limits: NDArray[np.int64]
    stop_ids: NDArray[np.int64]
    max_tokens: int
    drawn: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    steps: list[Step] = field(default_factory=list)

    def uniforms(self) -> NDArray[np.float64]:
        """Return the uniforms of the next draw."""
        return uniforms(self.streams[: self.cohort.live], len(self.steps))

    def record(
        self, tokens: NDArray[np.int64], logprobs: NDArray[np.float64], behaviour: NDArray[np.float64]
    ) -> None:
        """Record one draw for each live slot and retire the slots that it finishes."""
        cohort = self.cohort
        self.steps.append((cohort.owner[: cohort.live].copy(), tokens, logprobs, behaviour))
        self.drawn = tokens
        if len(self.steps) == self.max_tokens:
            cohort.live = 0
            return
        full = self.limits[: cohort.live] <= len(self.steps)
        finished = np.flatnonzero(np.isin(tokens, self.stop_ids) | full)
        if len(finished):
            order = cohort.retire(finished.tolist())
            self.streams, self.limits = self.streams[order], self.limits[order]
            self.drawn = tokens[order[: cohort.live]]

    def responses(self, version: int, with_logprobs: bool) -> dict[int, Generation]:
        """Return the finished responses by request; `with_logprobs`, with their log-probabilities."""
        owners = np.concatenate([step[0] for step in self.steps])
        # A stable sort by owner leaves each owner's tokens in the order of their steps.
        order = np.argsort(owners, kind="stable")
        requests, first = np.unique(owners[order], return_index=True)
        tokens, logprobs, behaviour = (
            np.split(np.concatenate([step[column] for step in self.steps])[order], first[1:])
            for column in (1, 2, 3)
        )
        responses = {}
        for index, request in enumerate(requests.tolist()):
            kept = array("d", logprobs[index].tobytes())
            drawn_with = array("d", behaviour[index].tobytes())
            stopped = bool(np.isin(tokens[index][-1], self.stop_ids))
            responses[request] = Generation(
                tokens=tuple(tokens[index].tolist()),
                logprobs=kept if with_logprobs else NO_NUMBERS,
                behaviour=(kept if drawn_with == kept else drawn_with) if with_logprobs else NO_NUMBERS,
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
    """Return responses in the order of the requests, and the finished cohorts that fit in the cache's memory.

    Cohorts of different ages run in one step: the matrix products see all live rows, attention each cohort's own columns.
    As rows finish, the next cohort is admitted.
    """
    waiting = groups_of(requests)
    drawn = wrap_seeds(request.drawn for request in requests)
    streams = skip_uniforms(hash_seeds(wrap_seeds(request.seed for request in requests)), drawn)
    limits = np.array([request.limit(sampling) for request in requests], dtype=np.int64)
    stop_ids = np.array(sampling.stop_ids, dtype=np.int64)
    running: list[Running] = []
    kept: deque[Cohort] = deque()
    responses: dict[int, Generation] = {}
    while waiting or running:
        look()
        while waiting:
            groups = _next(waiting, decoder, sampling, settings, running, kept)
            if not groups:
                break
            cohort, logits = admit(decoder, groups, sampling.max_tokens, settings.prefill_tokens)
            new = Running(cohort, streams[cohort.owner], limits[cohort.owner], stop_ids, sampling.max_tokens)
            running.append(new)
            _draw(logits, [new], sampling)
        step = [one for one in running if one.cohort.live]
        if step:
            _draw(_logits(decoder, step), step, sampling)
        for one in running:
            if not one.cohort.live:
                responses.update(one.responses(version, sampling.logprobs))
                kept.append(one.cohort)
        running = [one for one in running if one.cohort.live]
    return [responses[index] for index in range(len(requests))], list(kept)


def _next(
    waiting: deque[Group],
    decoder: Decoder,
    sampling: TokenSampling,
    settings: EmbeddedSettings,
    running: Sequence[Running],
    kept: deque[Cohort],
) -> list[Group]:
    """Return the groups of the next cohort; none while half the rows, or memory, must first come free.

    Caches kept for forcing give way to responses that wait.
    """
    free = settings.rows - sum(one.cohort.live for one in running)
    left = sum(len(members) for _, members in waiting)
    if running and free < min(settings.rows // 2, left):
        return []
    token = decoder.shape.cache_bytes(decoder.like.element_size())
    room = settings.cache_bytes - sum(one.cohort.cache.bytes for one in running)
    taken = take(waiting, free, room // token, sampling.max_tokens, alone=not running)
    if taken:
        columns = len(taken[-1][0]) + sampling.max_tokens
        room -= token * columns * sum(len(members) for _, members in taken)
        while kept and sum(cohort.cache.bytes for cohort in kept) > room:
            kept.popleft()
    return taken


def _logits(decoder: Decoder, step: Sequence[Running]) -> torch.Tensor:
    """Feed each live row the token that it drew last; return logits [live rows of all cohorts, vocab]."""
    shape = decoder.shape
    for one in step:
        one.cohort.filled += 1
    tokens = torch.from_numpy(np.concatenate([one.drawn for one in step])).to(decoder.device)
    places = np.concatenate([one.cohort.positions() for one in step])
    decoder.cover(int(places.max()) + 1)
    scale = shape.head_dim**-0.5

    def attend(layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        scaled = queries * scale
        out = torch.empty_like(scaled)
        first = 0
        for one in step:
            rows = slice(first, first + one.cohort.live)
            one.cohort.attend(layer, scaled[rows], keys[rows], values[rows], out[rows])
            first = rows.stop
        return out.view(first, -1)

    return decoder.run(tokens, torch.from_numpy(places).to(decoder.device), attend)


def _draw(logits: torch.Tensor, step: Sequence[Running], sampling: TokenSampling) -> None:
    """Draw the next token of every live row and records it. Raises E0802 when logits are not finite."""
    chance = torch.from_numpy(np.concatenate([one.uniforms() for one in step])).to(logits.device)
    tokens, logprobs, behaviour = draw(logits, chance, sampling)
    table = torch.stack((tokens.double(), logprobs.double(), behaviour.double())).cpu().numpy()
    if not np.isfinite(table).all():
        raise not_finite(len(step[0].steps))
    first = 0
    ids = table[0].astype(np.int64)
    for one in step:
        rows = slice(first, first + one.cohort.live)
        one.record(ids[rows], table[1, rows], table[2, rows])
        first = rows.stop


def not_finite(token: int) -> Exception:
    """Return the problem of a model whose logits are NaN or infinite."""
    return problem(
        "E0802",
        f"the model's logits are not finite at token {token} of a response",
        help="its weights have diverged: lower `optim.lr` of its training, or start from an earlier checkpoint",
    )
