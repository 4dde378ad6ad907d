"""The runner's own scheduler over simulated engines, on a clock that nothing has to wait for.

Everything on the client's side is the code of a run: requests are dealt by `_places`, sent by `Round`, and forced answers
are asked for as each response ends. Servers are replaced by `Engine`, which takes the seconds that memory and products
need. It batches, caches, evicts and retracts as SGLang 0.5.23 does.

Lengths and budgets may be counted in grains of several tokens, so that a hundred engines are simulated in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import random
import selectors
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from reodsl.ir.training import FromModel
from reodsl.language import compile_file
from reodsl.price.machine import RUNNING, STEP_FLOOR, Devices, devices_of
from reodsl.price.memory import cache_tokens
from reodsl.price.rollout import Lengths
from reodsl.price.sizes import Sizes, sizes_of
from runners.engine.protocol import Ahead, Request, Sampling
from runners.engine.sglang.engine import _places
from runners.engine.sglang.messages import Draft
from runners.engine.sglang.rounds import Read, Round, Work
from runners.engine.sglang.server import FORCED, Address

TRIP = 5e-3
"""Seconds of a message to a server and of its answer back, together with what the client does about it."""
CLIP, RATIO, LEAST_RATIO, DECAY = 4096, 0.7, 0.098, 600
"""SGLang 0.5.23: a request is let in if the caches have room for what is expected of it. That is a share of its longest
length, of at most 4,096 tokens. The share falls from 0.7 to 0.098 within 600 decode steps, and rises as requests are put
off.
"""


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to whatever is due next. It raises RuntimeError where nothing is."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Instant(self))

    def time(self) -> float:
        """The simulated seconds since the start."""
        return self.now


class _Instant(selectors.DefaultSelector):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing is due")
        self._clock.now += max(0.0, timeout)
        return []


@dataclass(slots=True)
class _Running:
    """One sequence on an engine: `context` tokens are there, `left` are to come, at most `most` as far as the engine knows.

    It is read from `prompt` tokens, of which the last `text` force an answer; a response has none. `stored` of its tokens
    are in the caches for it alone; `group` is the response whose cached tokens a forced answer uses.
    """

    group: int
    prompt: int
    text: int
    left: int
    most: int
    done: asyncio.Future[int]
    context: int = 0
    stored: int = 0
    decoded: int = 0
    new: bool = False

    @property
    def forced(self) -> bool:
        """Whether it is an answer that is forced out of a response."""
        return self.text > 0


@dataclass(slots=True)
class Counts:
    """Tokens that engines read: of prompts, of forcing texts, of prefixes once more, and of sequences that were put off."""

    prompts: int = 0
    texts: int = 0
    read_again: int = 0
    put_off: int = 0
    generated: int = 0
    answers: int = 0


class Engine:
    """One simulated server: continuous batches, a prefix cache that forgets the least recently used response first."""

    def __init__(self, sizes: Sizes, devices: Devices, counts: Counts) -> None:
        self._sizes, self._counts = sizes, counts
        hardware = devices.hardware
        self._slowdown = devices.slowdown
        self._flops = devices.tensor_parallel * hardware.flops * hardware.mfu_prefill
        self._bandwidth = devices.tensor_parallel * hardware.bandwidth * hardware.mbu_decode
        self._weights = sizes.products * devices.width
        self._kv = sizes.kv_bytes(devices.width)
        self.capacity = int(cache_tokens(sizes, devices))
        self._used = 0
        self._kept: OrderedDict[int, int] = OrderedDict()
        self._locked: Counter[int] = Counter()
        self._waiting: list[tuple[int, int, _Running]] = []
        self._running: list[_Running] = []
        self._prompts: set[int] = set()
        self._ratio = RATIO
        self._number = 0
        self._called = asyncio.Event()

    def ask(
        self, question: int, group: int, prompt: int, text: int, left: int, most: int
    ) -> asyncio.Future[int]:
        """Puts a sequence in the queue; what is returned is the tokens that were cached, once its last token is there."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        work = _Running(group, prompt, text, left, most, done)
        work.new = question not in self._prompts
        self._prompts.add(question)
        self._queue(work)
        return done

    async def serve(self) -> None:
        """Goes on until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._called.clear()
            seconds = self._admit()
            if seconds:
                await asyncio.sleep(seconds)
                continue
            if not self._running:
                await self._called.wait()
                continue
            steps = min(work.left for work in self._running)
            steps = min(steps, self._free() // len(self._running))
            if steps < 1:
                self._put_off()
                continue
            began = loop.time()
            try:
                async with asyncio.timeout(self._seconds(steps)):
                    await self._called.wait()
                steps = self._steps(loop.time() - began, steps)
                await asyncio.sleep(max(0.0, began + self._seconds(steps) - loop.time()))
            except TimeoutError:
                pass
            self._advance(steps)

    def _queue(self, work: _Running) -> None:
        self._number += 1
        # Forced answers before prompts, and within both the first that came.
        heapq.heappush(self._waiting, (0 if work.forced else 1, self._number, work))
        self._called.set()

    def _admit(self) -> float:
        """Lets in what there is room for; the seconds of reading what it brings."""
        tokens = positions = 0.0
        expected = sum(self._expected(each) for each in self._running)
        while self._waiting and len(self._running) < RUNNING:
            work = self._waiting[0][2]
            cached = self._cached(work)
            stored = work.prompt + work.decoded - cached
            unused = 0 if work.group in self._locked else self._kept.get(work.group, 0)
            more = stored + self._expected(work)
            if self._running and more + expected > self._free() - unused:
                break
            heapq.heappop(self._waiting)
            if cached:
                self._kept.move_to_end(work.group)
                self._locked[work.group] += 1
            self._take(stored)
            work.context, work.stored = work.prompt + work.decoded, stored
            self._running.append(work)
            expected += self._expected(work)
            read = self._read(work, stored)
            tokens, positions = tokens + read, positions + read * (work.context - read / 2)
        return self._slowdown * self._sizes.forward_flops(tokens, positions) / self._flops

    def _cached(self, work: _Running) -> int:
        """The tokens of a forced answer's prefix that are still there."""
        return min(self._kept.get(work.group, 0), work.prompt - work.text) if work.forced else 0

    def _read(self, work: _Running, stored: int) -> int:
        """Counts what has to be read of a sequence that is let in, and returns it."""
        counts = self._counts
        if work.decoded:
            counts.put_off += stored
            return stored
        if work.forced:
            counts.answers += 1
            counts.texts += work.text
            counts.read_again += stored - work.text
            return stored
        # A question's prompt is read for the first of its responses.
        read = work.prompt if work.new else 0
        counts.prompts += read
        return read

    def _free(self) -> int:
        """Tokens that there is room for, once all that nobody uses is forgotten."""
        unused = sum(size for group, size in self._kept.items() if not self._locked[group])
        return self.capacity - self._used + unused

    def _expected(self, work: _Running) -> float:
        return min(work.most - work.decoded, CLIP) * (1.0 if work.forced else self._ratio)

    def _take(self, tokens: int) -> None:
        """Room for tokens, for which the response that was used longest ago is forgotten."""
        self._used += tokens
        while self._used > self.capacity:
            oldest = next((group for group in self._kept if not self._locked[group]), None)
            if oldest is None:
                return
            self._used -= self._kept.pop(oldest)

    def _seconds(self, steps: int) -> float:
        """Seconds of some decode steps of what runs."""
        many = len(self._running)
        context = sum(work.context for work in self._running)
        moved = steps * self._weights + (steps * context + many * steps * (steps - 1) / 2) * self._kv
        return self._slowdown * max(moved / self._bandwidth, steps * STEP_FLOOR)

    def _steps(self, seconds: float, most: int) -> int:
        """How many steps have begun within some seconds."""
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._seconds(middle) >= seconds else (middle + 1, high)
        return low

    def _advance(self, steps: int) -> None:
        self._ratio = max(LEAST_RATIO, self._ratio - steps * (RATIO - LEAST_RATIO) / DECAY)
        self._take(steps * len(self._running))
        ended = []
        for work in self._running:
            work.left -= steps
            work.decoded += steps
            work.context += steps
            work.stored += steps
            if not work.left:
                ended.append(work)
        self._running = [work for work in self._running if work.left]
        for work in ended:
            if work.forced:
                # What follows a cut is of no use to anybody, and is forgotten before anything else.
                self._release(work)
            else:
                self._kept[work.group] = work.stored
                self._counts.generated += work.decoded
            work.done.set_result(work.context - work.stored)

    def _put_off(self) -> None:
        """Takes back the sequence with the fewest tokens, and lets others in more carefully."""
        if len(self._running) == 1:
            raise RuntimeError("the caches do not hold one sequence")
        work = min(self._running, key=lambda each: (each.decoded, -each.prompt))
        self._running.remove(work)
        self._release(work)
        decoded = sum(each.decoded for each in self._running)
        most = sum(each.most for each in self._running)
        self._ratio = min(1.0, (decoded + 20 * len(self._running)) / most)
        self._queue(work)

    def _release(self, work: _Running) -> None:
        self._used -= work.stored
        if self._locked[work.group]:
            self._locked[work.group] -= 1


@dataclass(frozen=True, slots=True)
class Case:
    """Responses of given lengths, the first `rollouts` of them to the first question and so on.

    `cuts` are the budgets at which each is forced to answer. All are tokens, as `prompt`, `text` and `answer` are.
    Answers are forced as each response ends, or with `late` when all have ended.
    """

    lengths: Sequence[int]
    rollouts: int
    longest: int
    prompt: int
    cuts: Sequence[int] = ()
    text: int = 28
    answer: int = 20
    late: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Simulated seconds until the last response and until the last answer, and what engines read."""

    generation: float
    seconds: float
    counts: Counts


class _Client:
    """What `Round` has for a connection: it asks an engine, and answers in SGLang's words."""

    def __init__(self, engine: Engine, case: Case, grain: int) -> None:
        self._engine, self._case, self._grain = engine, case, grain

    async def __aenter__(self) -> _Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def post(self, path: str, content: bytes, headers: Mapping[str, str]) -> _Reply:
        await asyncio.sleep(TRIP)
        message = orjson.loads(content)
        reply = await (self._force(message) if path == FORCED else self._generate(message))
        return _Reply(orjson.dumps(reply))

    async def _generate(self, message: Mapping[str, Any]) -> dict[str, Any]:
        case, index = self._case, message["sampling_params"]["sampling_seed"]
        length = case.lengths[index]
        await self._engine.ask(index // case.rollouts, index, case.prompt, 0, length, case.longest)
        tokens = [index + _NUMBERED, *[0] * (max(2, round(length / self._grain)) - 2), _STOP]
        return {"output_ids": tokens, "meta_info": {"weight_version": "0"}}

    async def _force(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        case, before = self._case, message["tokens"]
        start = _prompt_grains(case, self._grain)
        index = before[start] - _NUMBERED if len(before) > start else -1
        whole = [case.prompt + (cut - start) * self._grain + case.text for cut in message["cuts"]]
        asked = [
            self._engine.ask(index // case.rollouts, index, prompt, case.text, case.answer, case.answer)
            for prompt in whole
        ]
        cached = await asyncio.gather(*asked)
        return [
            {"output_ids": [_STOP], "meta_info": {"prompt_tokens": prompt, "cached_tokens": count}}
            for prompt, count in zip(whole, cached, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Reply:
    content: bytes
    status_code: int = 200


_STOP, _NUMBERED = 1, 2
"""The token that ends a response, and the number that its first token has beyond its place among all."""


def _prompt_grains(case: Case, grain: int) -> int:
    return max(1, round(case.prompt / grain))


def simulate(
    case: Case,
    sizes: Sizes,
    devices: Devices,
    grain: int = 1,
    at_once: int = 512,
    says_room: bool = True,
) -> Outcome:
    """A round of generation, and of forced answers, by the scheduler of a run on simulated engines.

    At most `at_once` responses are asked of an engine at a time, and, if it `says_room`, as many as its caches are expected
    to hold. On the client's side a token stands for `grain` tokens.
    """
    clock = Clock()
    try:
        return clock.run_until_complete(_simulate(case, sizes, devices, grain, at_once, says_room))
    finally:
        clock.close()


async def _simulate(
    case: Case, sizes: Sizes, devices: Devices, grain: int, at_once: int, says_room: bool
) -> Outcome:
    counts, loop = Counts(), asyncio.get_running_loop()
    engines = [Engine(sizes, devices, counts) for _ in range(devices.engines)]
    serving = [asyncio.create_task(engine.serve()) for engine in engines]
    rooms = [engine.capacity // grain if says_room else 0 for engine in engines]
    addresses = [Address(str(number), "", cuts=True, room=room) for number, room in enumerate(rooms)]
    prompt = _prompt_grains(case, grain)
    requests = [
        Request((_NUMBERED + index // case.rollouts,) * prompt, index) for index in range(len(case.lengths))
    ]
    sampling = Sampling(max_tokens=max(2, case.longest // grain), stop_ids=(_STOP,), logprobs=False)
    answering = Sampling(max_tokens=1, temperature=0.0, stop_ids=(_STOP,), logprobs=False)
    places = _places(requests, len(engines), sampling.max_tokens)
    works = [
        Work(index, request, place, Draft(request, sampling))
        for index, (request, place) in enumerate(zip(requests, places, strict=True))
    ]
    grid = sorted({max(0, round(cut / grain)) for cut in case.cuts})
    ended = 0.0

    def cuts(_: int, response: Any) -> Sequence[int]:
        nonlocal ended
        ended = loop.time()
        return [cut for cut in grid if cut < len(response.tokens)]

    def connect(address: Address, _: int) -> Any:
        return _Client(engines[int(address.url)], case, grain)

    ahead = Ahead(cuts, (_STOP,), answering)
    none = Ahead(lambda index, response: cuts(index, response)[:0], (_STOP,), answering)
    rounds = [(works, none if case.late else ahead)]
    if case.late:
        rounds.append((works, ahead))
    for asked, then in rounds:
        await Round(asked, addresses, at_once, then, Read(), connect).run()
        if case.late and then is none:
            for work in works:
                work.cuts = tuple(cuts(0, work.response))
            ended = loop.time()
    for task in serving:
        task.cancel()
    for result in await asyncio.gather(*serving, return_exceptions=True):
        if not isinstance(result, asyncio.CancelledError):
            raise result  # type: ignore[misc]
    return Outcome(ended, loop.time(), counts)


def draw_lengths(count: int, lengths: Lengths, seed: int = 1) -> list[int]:
    """Lengths of responses, drawn from the price's own distribution."""
    draw = random.Random(seed)
    return [max(1, round(min(lengths.longest, draw.expovariate(1 / lengths.scale)))) for _ in range(count)]


def evaluation(
    engines: int, questions: int, samples: int, late: bool, at_once: int, says_room: bool, grain: int
) -> dict[str, Any]:
    """What `math_reg` of Qwen3-4B asks of H800s: simulated seconds, GPU hours, and tokens read again."""
    path = Path(__file__).resolve().parents[1] / "specs" / "qwen3_4b_reo_exp.reo"
    spec = compile_file(path).spec
    assert spec is not None
    devices = devices_of(spec.study.cluster)
    (start,) = [arm.checkpoint for arm in spec.study.arms if isinstance(arm.checkpoint, FromModel)]
    sizes = sizes_of(start.model)
    assert devices is not None
    assert sizes is not None
    devices = replace(devices, gpus=engines, generating=engines)
    lengths = Lengths.of(11 * 1024, 32 * 1024)
    cuts = [*range(64, 1024, 64), *range(1024, 32 * 1024, 1024)]
    case = Case(draw_lengths(questions * samples, lengths), samples, 32 * 1024, 150, cuts, late=late)
    seen = simulate(case, sizes, devices, grain, at_once, says_room)
    return {
        "seconds": round(seen.seconds),
        "gpu_hours": round(seen.seconds * engines / 3600, 2),
        "prefix_tokens_read_again": seen.counts.read_again,
        "tokens_read_again_of_what_was_put_off": seen.counts.put_off,
        "answers": seen.counts.answers,
    }


RESULTS = Path(__file__).with_suffix(".json")
WAYS = {
    "when all responses have ended": (True, 512, False),
    "as each response ends": (False, 512, False),
    "the same, with at most 32 responses asked of an engine at a time": (False, 32, False),
    "the same, with as many as its caches are expected to hold: what runs do": (False, 512, True),
}
"""Whether answers are asked for late, how many responses at most at a time, and whether engines say what room they have."""


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of docs/PRICE.md: 8 engines with 23 questions stand for 128 with 368."""
    rows = [
        f"| {name} | {one['seconds'] * 128 / 3600:.1f} | {one['prefix_tokens_read_again'] * 16 / 1e6:,.0f}M |"
        for name, one in results.items()
    ]
    head = "| answers are asked for | simulated GPU hours of 128 engines | prefix tokens read again |"
    return "\n".join([head, "| --- | --- | --- |", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grain", type=int, default=32, help="tokens that are one on the client's side")
    args = parser.parse_args()
    results = {
        name: evaluation(8, 23, 32, late, at_once, says, args.grain)
        for name, (late, at_once, says) in WAYS.items()
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
