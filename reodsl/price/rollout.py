"""Rollouts: from how many responses of which lengths to draws, tokens and seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from reodsl.price.machine import DRAWN, RUNNING, STEP_FLOOR, Devices
from reodsl.price.memory import Sizes, cache_tokens

_EULER = 0.5772156649015329


@dataclass(frozen=True, slots=True)
class Lengths:
    """Exponential lengths with scale `scale`, cut off at `longest`; `mean` is after the cut.

    One parameter is all that a mean gives, and a constant rate of ending is the plainest choice. `scale` is infinite
    where every response reaches the maximum.
    """

    mean: float
    longest: float
    scale: float

    @staticmethod
    @cache
    def of(mean: float, longest: float) -> Lengths:
        """Return the lengths with this mean; one at or past `longest` means that all are that long."""
        mean = max(mean, 1e-9)
        if mean >= longest * 0.9999:
            return Lengths(longest, longest, math.inf)
        low, high = math.log(mean / 2), math.log(longest * 1e5)
        for _ in range(80):
            middle = (low + high) / 2
            scale = math.exp(middle)
            if -scale * math.expm1(-longest / scale) < mean:
                low = middle
            else:
                high = middle
        return Lengths(mean, longest, math.exp(high))

    def beyond(self, tokens: float) -> float:
        """Return the share of responses that are longer than `tokens`."""
        if tokens >= self.longest:
            return 0.0
        return 1.0 if math.isinf(self.scale) else math.exp(-tokens / self.scale)

    def quantiles(self, count: int) -> list[float]:
        """Return `count` lengths, the middles of equal shares of all responses: their mean is near the mean."""
        return [self._at((i + 0.5) / count) for i in range(count)]

    def _at(self, share: float) -> float:
        """Return the length that this share of all responses does not pass."""
        if math.isinf(self.scale):
            return self.longest
        return min(self.longest, -self.scale * math.log1p(-share))

    def moment(self, power: int) -> float:
        """Return the mean of the length to this power, a whole number of at least 1."""
        if math.isinf(self.scale):
            return self.longest**power
        ratio = self.longest / self.scale
        # The incomplete gamma function of a whole number: its series from `power` on, where one minus the rest would cancel.
        terms = [ratio**k / math.factorial(k) for k in range(power + 30 if ratio < 1 else power)]
        inside = math.exp(-ratio) * sum(terms[power:]) if ratio < 1 else 1 - math.exp(-ratio) * sum(terms)
        return math.factorial(power) * self.scale**power * inside

    @property
    def square(self) -> float:
        """Return the mean of the squared length."""
        return self.moment(2)

    def longest_of(self, count: float) -> float:
        """Estimate how long the longest of `count` responses is: the scale times the harmonic number."""
        if math.isinf(self.scale):
            return self.longest
        expected = self.scale * (math.log(max(count, 1.0)) + _EULER)
        return min(self.longest, max(expected, self.mean))


_NEGLIGIBLE = 1e-9


def equal_groups(rollouts: int) -> float:
    """Return the share of questions whose responses are all right or all wrong, as long as it is not measured.

    A question that is answered with a chance `p` has such a group with `p^n + (1 - p)^n`; over questions with
    every chance from 0 to 1 equally likely, that is `2 / (n + 1)`.
    """
    return 2 / (rollouts + 1)


def expected_draws(prompts: int, most: int, equal: float) -> float:
    """Return the draws of `prompts` questions, at most `most`, until as many questions as one draw has give a gradient.

    Each question gives none with the chance `equal`, independently: after `k` draws those that do are binomial,
    and one draw more is made where they are fewer than `prompts`.
    """
    expected = 1.0
    for draws in range(1, most):
        short = _fewer(prompts, draws * prompts, 1 - equal)
        expected += short
        if short < _NEGLIGIBLE:
            break
    return expected


def _fewer(wanted: int, tries: int, chance: float) -> float:
    """Return the probability that fewer than `wanted` of `tries` succeed."""
    if chance <= 0:
        return 1.0
    if chance >= 1:
        return 0.0
    whole = math.lgamma(tries + 1)
    logs = (
        whole
        - math.lgamma(successes + 1)
        - math.lgamma(tries - successes + 1)
        + successes * math.log(chance)
        + (tries - successes) * math.log1p(-chance)
        for successes in range(wanted)
    )
    return min(1.0, math.fsum(math.exp(each) for each in logs))


@dataclass(frozen=True, slots=True)
class Load:
    """Responses generated in one round: `responses` of them to `prompts` different prompts of `prompt` tokens."""

    responses: float
    prompts: float
    prompt: float
    lengths: Lengths


@dataclass(frozen=True, slots=True)
class ForcedRound:
    """Answers forced in one round.

    `answers` in all; `tokens` are those of forcing texts and answers; `read_again` those of prefixes that no
    engine had kept. `seconds` is how long it takes.
    """

    answers: float
    tokens: float
    read_again: float
    seconds: float


def drawing_seconds(load: Load, draw: str, sizes: Sizes, devices: Devices) -> float:
    """Return the seconds in which engines on GPUs draw the tokens of one round, in a way that `DRAWN` names."""
    if devices.unit != "gpu_hours":
        return 0.0
    tokens = load.responses / min(devices.engines, max(1.0, load.responses)) * load.lengths.mean
    rate = devices.hardware.bandwidth * devices.hardware.mbu_decode
    return tokens * sizes.vocabulary * DRAWN[draw] / rate


def generation_seconds(load: Load, sizes: Sizes, devices: Devices) -> float:
    """Return the seconds of one round: engines read prompts, then decode until their last responses end.

    A decode step reads all weights and the cached keys and values of what is running: bandwidth bounds it, unless
    the products do or the step is too short to matter. A round ends with its longest response, on the engine whose
    responses have most to read.
    """
    hardware, engines = devices.hardware, min(devices.engines, max(1.0, load.responses))
    each = load.responses / engines
    prompt, lengths = load.prompt, load.lengths
    read = sizes.forward_flops(load.prompts * prompt, load.prompts * prompt**2 / 2)
    prefill = read / engines / (devices.tensor_parallel * hardware.flops * hardware.mfu_prefill)
    context = _count_attended(load)
    at_once = min(each, cache_tokens(sizes, devices) / max(1.0, context / lengths.mean))
    steps = max(lengths.longest_of(load.responses), each * lengths.mean / max(at_once, 1.0))
    most = context * heaviest(load, each, engines)
    moved = steps * sizes.products * devices.width + each * most * sizes.kv_bytes(devices.cache_width)
    flops = each * sizes.forward_flops(lengths.mean, most)
    return devices.slowdown * (prefill + _decode(moved, flops, steps, devices))


def heaviest(load: Load, each: float, engines: float) -> float:
    """Return how much the busiest engine attends to, over the mean of engines with `each` responses.

    It is at most what only the longest responses attend to.
    """
    prompt, lengths = load.prompt, load.lengths
    mean = _count_attended(load)
    square = prompt**2 * lengths.moment(2) + prompt * lengths.moment(3) + lengths.moment(4) / 4
    largest = _largest((square / mean**2 - 1) / max(each, 1.0), engines)
    return min(largest, (prompt * lengths.longest + lengths.longest**2 / 2) / mean)


def _largest(spread: float, engines: float) -> float:
    """Return the largest of `engines` sums of mean 1 and variance `spread`.

    They are taken as gamma-distributed; the quantile is Wilson and Hilferty's (1931), at the place where the largest is
    expected (Blom 1958).
    """
    if spread <= 1e-9:
        return 1.0
    place = NormalDist().inv_cdf((engines - 0.375) / (engines + 0.25))
    return max(1.0, max(0.0, 1 - spread / 9 + place * math.sqrt(spread) / 3) ** 3)


def _count_attended(load: Load) -> float:
    """Return how many positions a response's tokens attend to in all: its prompt's and those before each."""
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
) -> ForcedRound:
    """Force answers at each of `cuts` tokens, from every response that is longer.

    `text` and `answer` are tokens of the forcing text and of the answer. If engines keep what they have read, a
    prefix costs only attention to it; what their memory cannot keep, or all of it, is read again. With `soon`
    answers are forced as each response ends, and no more responses are requested than caches hold, so that all
    prefixes are still cached.
    """
    counts = [load.responses * load.lengths.beyond(cut) for cut in cuts]
    answers = sum(counts)
    if not answers:
        return ForcedRound(0.0, 0.0, 0.0, 0.0)
    hardware, engines = devices.hardware, min(devices.engines, max(1.0, load.responses))
    before = [load.prompt + cut for cut in cuts]
    cached = load.responses / engines * (load.prompt + load.lengths.mean)
    fits = 1.0 if soon else min(1.0, cache_tokens(sizes, devices) / cached)
    kept = fits if hardware.prefix_cache else 0.0
    attended = sum(count * prefix for count, prefix in zip(counts, before, strict=True))
    again = (1 - kept) * attended
    squared = sum(count * prefix**2 for count, prefix in zip(counts, before, strict=True))
    read = sizes.forward_flops(answers * text + again, text * attended + (1 - kept) * squared / 2)
    prefill = read / engines / (devices.tensor_parallel * hardware.flops * hardware.mfu_prefill)
    steps = answer * math.ceil(answers / engines / RUNNING)
    context = answer * (attended + answers * text)
    moved = steps * sizes.products * devices.width + context / engines * sizes.kv_bytes(devices.cache_width)
    flops = sizes.forward_flops(answers * answer, context) / engines
    seconds = devices.slowdown * (prefill + _decode(moved, flops, steps, devices))
    return ForcedRound(answers, answers * (text + answer), again, seconds)


def _decode(moved: float, flops: float, steps: float, devices: Devices) -> float:
    """Return the seconds to decode: bytes over bandwidth, FLOPs over FLOP/s, or the floor of a step, the longest."""
    hardware = devices.hardware
    bandwidth = devices.tensor_parallel * hardware.bandwidth * hardware.mbu_decode
    compute = devices.tensor_parallel * hardware.flops * hardware.mfu_prefill
    return max(moved / bandwidth, flops / compute, steps * STEP_FLOOR)
