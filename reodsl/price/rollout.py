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
    return devices.slowdown * (prefill + _decode(moved, flops, steps, devices))


@dataclass(frozen=True, slots=True)
class _Round:
    """A round of segments, for each response that is begun in it: what goes on from earlier ones counts with it.

    `attended` are the positions that its tokens attend to, and `variance` that of such a sum; `read` and `read_context`
    are tokens that are read again because new weights came, and the positions that those attend to. `live` responses
    run at once.
    """

    live: float
    attended: float
    variance: float
    read: float
    read_context: float


def segment_seconds(load: Load, segment: float, sizes: Sizes, devices: Devices) -> float:
    """Seconds of one round of segments, in which as many responses are begun as `load` has, once such rounds follow each
    other: all responses that are not done go on for at most `segment` tokens, and none is waited for.

    What goes on was made by older weights, so its prefix is read again first.
    """
    hardware, engines = devices.hardware, min(devices.engines, max(1.0, load.responses))
    each = load.responses / engines
    one = _round_of(load, segment)
    begun = sizes.forward_flops(load.prompts * load.prompt, load.prompts * load.prompt**2 / 2)
    again = sizes.forward_flops(load.responses * one.read, load.responses * one.read_context)
    prefill = (begun + again) / engines / (devices.tensor_parallel * hardware.flops * hardware.mfu_prefill)
    most = one.attended * _largest(one.variance / one.attended**2 / max(each, 1.0), engines)
    context = one.attended / load.lengths.mean
    at_once = min(each * one.live, cache_tokens(sizes, devices) / max(1.0, context))
    steps = max(min(segment, load.lengths.longest), each * load.lengths.mean / max(at_once, 1.0))
    moved = steps * sizes.products * devices.width + each * most * sizes.kv_bytes(devices.width)
    flops = each * sizes.forward_flops(load.lengths.mean, most)
    return devices.slowdown * (prefill + _decode(moved, flops, steps, devices))


SHARES = 512
"""Lengths that stand for all of them where a sum over a response's segments has no closed form."""


def _round_of(load: Load, segment: float) -> _Round:
    """The round that follows from responses of all ages, each of them once."""
    prompt, lengths = load.prompt, load.lengths.quantiles(SHARES)
    live = attended = variance = read = context = 0.0
    for stage in range(math.ceil(load.lengths.longest / segment)):
        before = prompt + stage * segment
        tokens = [min(max(length - stage * segment, 0.0), segment) for length in lengths]
        sums = [before * count + count**2 / 2 for count in tokens]
        mean = sum(sums) / SHARES
        there = sum(count > 0 for count in tokens) / SHARES
        live, attended = live + there, attended + mean
        # How old a response is an engine's share is dealt by; what varies is where in the segment it ends. Those of other
        # ages are other responses, so that variances add up.
        variance += sum(value**2 for value in sums) / SHARES - mean**2 / max(there, 1 / SHARES)
        if stage:
            read, context = read + there * before, context + there * before**2 / 2
    return _Round(live, attended, variance, read, context)


def heaviest(load: Load, each: float, engines: float) -> float:
    """What the responses of the busiest engine attend to, over the mean of engines with `each` responses.

    At most what only the longest responses attend to.
    """
    prompt, lengths = load.prompt, load.lengths
    mean = _attended(load)
    square = prompt**2 * lengths.moment(2) + prompt * lengths.moment(3) + lengths.moment(4) / 4
    largest = _largest((square / mean**2 - 1) / max(each, 1.0), engines)
    return min(largest, (prompt * lengths.longest + lengths.longest**2 / 2) / mean)


def _largest(spread: float, engines: float) -> float:
    """The largest of `engines` sums of mean 1 and variance `spread`.

    They are taken as gamma-distributed; the quantile is Wilson and Hilferty's (1931), at the place where the largest is
    expected (Blom 1958).
    """
    if spread <= 1e-9:
        return 1.0
    place = NormalDist().inv_cdf((engines - 0.375) / (engines + 0.25))
    return max(1.0, max(0.0, 1 - spread / 9 + place * math.sqrt(spread) / 3) ** 3)


def _attended(load: Load) -> float:
    """Positions that a response's tokens attend to, in all: its prompt's and those before each."""
    return load.prompt * load.lengths.mean + load.lengths.square / 2


def force(
    load: Load,
    cuts: Sequence[float],
    text: float,
    answer: float,
    sizes: Sizes,
    devices: Devices,
    *,
    soon: bool = False,
) -> Forcing:
    """Answers forced at each of `cuts` tokens, from every response that is longer.

    `text` and `answer` are tokens of the forcing text and of the answer. Where engines keep what they have read, a
    prefix costs nothing but attention to it; what their memory cannot keep, or all of it, is read again.
    With `soon` answers are asked for as each response ends, and no more responses are asked for than caches hold, so that
    all of its prefixes are still there.
    """
    counts = [load.responses * load.lengths.beyond(cut) for cut in cuts]
    answers = sum(counts)
    if not answers:
        return Forcing(0.0, 0.0, 0.0, 0.0)
    hardware, engines = devices.hardware, min(devices.engines, max(1.0, load.responses))
    before = [load.prompt + cut for cut in cuts]
    cached = load.responses / engines * (load.prompt + load.lengths.mean)
    fits = 1.0 if soon else min(1.0, cache_tokens(sizes, devices) / cached)
    kept = fits if hardware.prefix_cache else 0.0
    again = (1 - kept) * sum(count * prefix for count, prefix in zip(counts, before, strict=True))
    attended = sum(count * prefix for count, prefix in zip(counts, before, strict=True))
    squared = sum(count * prefix**2 for count, prefix in zip(counts, before, strict=True))
    read = sizes.forward_flops(answers * text + again, text * attended + (1 - kept) * squared / 2)
    prefill = read / engines / (devices.tensor_parallel * hardware.flops * hardware.mfu_prefill)
    steps = answer * math.ceil(answers / engines / RUNNING)
    context = answer * (attended + answers * text)
    moved = steps * sizes.products * devices.width + context / engines * sizes.kv_bytes(devices.width)
    flops = sizes.forward_flops(answers * answer, context) / engines
    seconds = devices.slowdown * (prefill + _decode(moved, flops, steps, devices))
    return Forcing(answers, answers * (text + answer), again, seconds)


def _decode(moved: float, flops: float, steps: float, devices: Devices) -> float:
    """Seconds to decode: bytes over bandwidth, or FLOPs over FLOP/s, or the floor of a step, whichever is longest."""
    hardware = devices.hardware
    bandwidth = devices.tensor_parallel * hardware.bandwidth * hardware.mbu_decode
    compute = devices.tensor_parallel * hardware.flops * hardware.mfu_prefill
    return max(moved / bandwidth, flops / compute, steps * STEP_FLOOR)
