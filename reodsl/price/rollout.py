"""Generation and answer forcing: from how many responses of which lengths to tokens and seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from reodsl.price.lengths import Lengths
from reodsl.price.machine import RUNNING, STEP_FLOOR, Devices
from reodsl.price.memory import cache_tokens
from reodsl.price.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Load:
    """Responses generated in one round: `responses` of them to `prompts` different prompts of `prompt` tokens."""

    responses: float
    prompts: float
    prompt: float
    lengths: Lengths


@dataclass(frozen=True, slots=True)
class Forcing:
    """Answers forced in one round.

    `answers` in all; `tokens` are those of forcing texts and answers; `read_again` those of prefixes that no
    engine had kept. `seconds` is how long it takes.
    """

    answers: float
    tokens: float
    read_again: float
    seconds: float


def generation_seconds(load: Load, sizes: Sizes, devices: Devices) -> float:
    """Seconds of one round: prompts are read, then every engine decodes until its last response ends.

    A decode step reads all weights and the cached keys and values of what is running: bandwidth bounds it, unless
    the products do or the step is too short to matter. A round ends with its longest response, on the engine whose
    responses have most to read.
    """
    hardware, engines = devices.hardware, min(devices.engines, max(1.0, load.responses))
    each = load.responses / engines
    prompt, lengths = load.prompt, load.lengths
    read = sizes.forward_flops(load.prompts * prompt, load.prompts * prompt**2 / 2)
    prefill = read / engines / (devices.tensor_parallel * hardware.flops * hardware.mfu_prefill)
    context = _attended(load)
    at_once = min(each, cache_tokens(sizes, devices) / max(1.0, context / lengths.mean))
    steps = max(lengths.longest_of(load.responses), each * lengths.mean / max(at_once, 1.0))
    most = context * heaviest(load, each, engines)
    moved = steps * sizes.products * devices.width + each * most * sizes.kv_bytes(devices.width)
    flops = each * sizes.forward_flops(lengths.mean, most)
    return prefill + _decode(moved, flops, steps, devices)


def heaviest(load: Load, each: float, engines: float) -> float:
    """What the responses of the busiest engine attend to, over the mean of engines with `each` responses.

    A sum of `each` draws is taken as gamma-distributed with their mean and variance; its quantile is Wilson and
    Hilferty's (1931), at the place where the largest of `engines` is expected (Blom 1958). At most what only the
    longest responses attend to.
    """
    prompt, lengths = load.prompt, load.lengths
    mean = _attended(load)
    square = prompt**2 * lengths.moment(2) + prompt * lengths.moment(3) + lengths.moment(4) / 4
    spread = (square / mean**2 - 1) / max(each, 1.0)
    if spread <= 1e-9:
        return 1.0
    place = NormalDist().inv_cdf((engines - 0.375) / (engines + 0.25))
    largest = max(0.0, 1 - spread / 9 + place * math.sqrt(spread) / 3) ** 3
    return min(max(1.0, largest), (prompt * lengths.longest + lengths.longest**2 / 2) / mean)


def _attended(load: Load) -> float:
    """Positions that a response's tokens attend to, in all: its prompt's and those before each."""
    return load.prompt * load.lengths.mean + load.lengths.square / 2


def force(
    load: Load, cuts: Sequence[float], text: float, answer: float, sizes: Sizes, devices: Devices
) -> Forcing:
    """Answers forced at each of `cuts` tokens, from every response that is longer.

    `text` and `answer` are tokens of the forcing text and of the answer. Where engines keep what they have read, a
    prefix costs nothing but attention to it; what their memory cannot keep, or all of it, is read again.
    """
    counts = [load.responses * load.lengths.beyond(cut) for cut in cuts]
    answers = sum(counts)
    if not answers:
        return Forcing(0.0, 0.0, 0.0, 0.0)
    hardware, engines = devices.hardware, min(devices.engines, max(1.0, load.responses))
    before = [load.prompt + cut for cut in cuts]
    cached = load.responses / engines * (load.prompt + load.lengths.mean)
    kept = min(1.0, cache_tokens(sizes, devices) / cached) if hardware.prefix_cache else 0.0
    again = (1 - kept) * sum(count * prefix for count, prefix in zip(counts, before, strict=True))
    attended = sum(count * prefix for count, prefix in zip(counts, before, strict=True))
    squared = sum(count * prefix**2 for count, prefix in zip(counts, before, strict=True))
    read = sizes.forward_flops(answers * text + again, text * attended + (1 - kept) * squared / 2)
    prefill = read / engines / (devices.tensor_parallel * hardware.flops * hardware.mfu_prefill)
    steps = answer * math.ceil(answers / engines / RUNNING)
    context = answer * (attended + answers * text)
    moved = steps * sizes.products * devices.width + context / engines * sizes.kv_bytes(devices.width)
    flops = sizes.forward_flops(answers * answer, context) / engines
    seconds = prefill + _decode(moved, flops, steps, devices)
    return Forcing(answers, answers * (text + answer), again, seconds)


def _decode(moved: float, flops: float, steps: float, devices: Devices) -> float:
    """Seconds to decode: bytes over bandwidth, or FLOPs over FLOP/s, or the floor of a step, whichever is longest."""
    hardware = devices.hardware
    bandwidth = devices.tensor_parallel * hardware.bandwidth * hardware.mbu_decode
    compute = devices.tensor_parallel * hardware.flops * hardware.mfu_prefill
    return max(moved / bandwidth, flops / compute, steps * STEP_FLOOR)
