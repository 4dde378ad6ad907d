"""Rollouts: draws, tokens and seconds from the number of responses and the distribution of their lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from reodsl.price.machine import MOST_RUNNING, SAMPLING_BYTES, STEP_SECONDS, Devices
from reodsl.price.memory import Sizes, cache_tokens

_EULER = 0.5772156649015329


@dataclass(frozen=True, slots=True)
class LengthDistribution:
    """The distribution of response lengths: exponential, cut off at `longest`.

    Only the mean is known, which determines one parameter: a constant rate of ending is the simplest model.
    """

    mean: float
    """Mean tokens, after the cut."""
    longest: float
    """Most tokens."""
    scale: float
    """Scale in tokens; infinite if every response reaches the maximum."""

    @staticmethod
    @cache
    def of(mean: float, longest: float) -> LengthDistribution:
        """Return the distribution with a given mean; if the mean is at least `longest`, all responses are that long.

        The scale of the exponential is found by bisection.

        Args:
            mean: mean tokens.
            longest: most tokens.
        """
        mean = max(mean, 1e-9)
        if mean >= longest * 0.9999:
            return LengthDistribution(longest, longest, math.inf)
        low, high = math.log(mean / 2), math.log(longest * 1e5)
        for _ in range(80):
            middle = (low + high) / 2
            scale = math.exp(middle)
            if -scale * math.expm1(-longest / scale) < mean:
                low = middle
            else:
                high = middle
        return LengthDistribution(mean, longest, math.exp(high))

    def beyond(self, tokens: float) -> float:
        """Return the share of responses that are longer than `tokens`.

        Args:
            tokens: length to compare with.

        Returns:
            Share from 0 to 1.
        """
        if tokens >= self.longest:
            return 0.0
        return 1.0 if math.isinf(self.scale) else math.exp(-tokens / self.scale)

    def quantiles(self, count: int) -> list[float]:
        """Return `count` lengths in tokens that divide all responses evenly: quantiles at (i + 1/2) / count.

        Args:
            count: number of lengths.
        """
        if math.isinf(self.scale):
            return [self.longest] * count
        return [min(self.longest, -self.scale * math.log1p(-(i + 0.5) / count)) for i in range(count)]

    def moment(self, power: int) -> float:
        """Return the mean of the length raised to a power.

        Args:
            power: whole number of at least 1.
        """
        if math.isinf(self.scale):
            return self.longest**power
        ratio = self.longest / self.scale
        # The incomplete gamma function of a whole number. For small ratios 1 - head would cancel, so the tail is summed.
        terms = [ratio**k / math.factorial(k) for k in range(power + 30 if ratio < 1 else power)]
        inside = math.exp(-ratio) * sum(terms[power:]) if ratio < 1 else 1 - math.exp(-ratio) * sum(terms)
        return math.factorial(power) * self.scale**power * inside

    @property
    def square(self) -> float:
        """Return the mean of the squared length.

        Returns:
            Square tokens.
        """
        return self.moment(2)

    def longest_of(self, count: float) -> float:
        """Return the expected longest of several responses: about the scale times a harmonic number.

        Args:
            count: number of responses.
        """
        if math.isinf(self.scale):
            return self.longest
        expected = self.scale * (math.log(max(count, 1.0)) + _EULER)
        return min(self.longest, max(expected, self.mean))


_NEGLIGIBLE = 1e-9


def equal_groups(rollouts: int) -> float:
    """Return the assumed share of questions whose responses are all right or all wrong.

    If responses are right with probability `p`, a group is equal with probability `p^n + (1 - p)^n`; the mean over
    uniform `p` is `2 / (n + 1)`.

    Args:
        rollouts: responses to a question, `n`.
    """
    return 2 / (rollouts + 1)


def expected_draws(prompts: int, most: int, equal: float) -> float:
    """Return how often a step draws questions on average until a full batch of them gives a gradient.

    A draw samples `prompts` questions. Each gives no gradient with probability `equal`, independently. After `k` draws
    the number of questions with a gradient is binomial, and another draw is made if it is below `prompts`.

    Args:
        prompts: questions of a draw and of a batch.
        most: most draws of a step.
        equal: share of questions without a gradient.
    """
    expected = 1.0
    for draws in range(1, most):
        short = _chance_of_fewer(prompts, draws * prompts, 1 - equal)
        expected += short
        if short < _NEGLIGIBLE:
            break
    return expected


def _chance_of_fewer(least: int, tries: int, chance: float) -> float:
    """Return the probability of fewer than `least` successes in independent tries: a binomial tail.

    Args:
        least: the least number of successes that is enough.
        tries: number of tries.
        chance: probability of success in a try.
    """
    if chance <= 0:
        return 1.0
    if chance >= 1:
        return 0.0
    log_total = math.lgamma(tries + 1)
    logs = (
        log_total
        - math.lgamma(successes + 1)
        - math.lgamma(tries - successes + 1)
        + successes * math.log(chance)
        + (tries - successes) * math.log1p(-chance)
        for successes in range(least)
    )
    return min(1.0, math.fsum(math.exp(log) for log in logs))


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """The responses that are generated in a round, all requested at once."""

    responses: float
    """Number of responses."""
    prompts: float
    """Number of different prompts."""
    prompt: float
    """Tokens of a prompt."""
    lengths: LengthDistribution


@dataclass(frozen=True, slots=True)
class ForcedRound:
    """The answers that are forced in a round, and their cost."""

    answers: float
    """Number of answers."""
    tokens: float
    """Tokens of forcing texts and answers."""
    read_again: float
    """Tokens of prefixes that no engine had cached."""
    seconds: float
    """Seconds of the round."""


def drawing_seconds(load: RolloutBatch, draw: str, sizes: Sizes, devices: Devices) -> float:
    """Return the seconds in which engines on GPUs sample tokens from logits in a round; 0 on this machine.

    It is the time to move the entries of the vocabulary through memory.

    Args:
        load: responses of the round.
        draw: way of sampling, a key of `SAMPLING_BYTES`.
        sizes: sizes of the model.
        devices: devices of the engines.
    """
    if devices.unit != "gpu_hours":
        return 0.0
    tokens = load.responses / min(devices.engines, max(1.0, load.responses)) * load.lengths.mean
    rate = devices.hardware.bandwidth * devices.hardware.mbu_decode
    return tokens * sizes.vocabulary * SAMPLING_BYTES[draw] / rate


def generation_seconds(load: RolloutBatch, sizes: Sizes, devices: Devices) -> float:
    """Return the seconds of a round: engines read the prompts, then decode until their last responses end.

    A decode step reads all weights, and the cached keys and values of running requests. It is bound by memory
    bandwidth, by FLOPs, or by a minimum. A round ends with its longest response, on the engine with most to read.

    Args:
        load: responses of the round.
        sizes: sizes of the model.
        devices: devices of the engines.
    """
    hardware, engines = devices.hardware, min(devices.engines, max(1.0, load.responses))
    per_engine = load.responses / engines
    prompt, lengths = load.prompt, load.lengths
    read = sizes.forward_flops(load.prompts * prompt, load.prompts * prompt**2 / 2)
    prefill = read / engines / (devices.tensor_parallel * hardware.flops * hardware.mfu_prefill)
    context = _count_attended(load)
    at_once = min(per_engine, cache_tokens(sizes, devices) / max(1.0, context / lengths.mean))
    steps = max(lengths.longest_of(load.responses), per_engine * lengths.mean / max(at_once, 1.0))
    most = context * heaviest(load, per_engine, engines)
    moved = steps * sizes.products * devices.width + per_engine * most * sizes.kv_bytes(devices.cache_width)
    flops = per_engine * sizes.forward_flops(lengths.mean, most)
    return devices.slowdown * (prefill + _decode_seconds(moved, flops, steps, devices))


def heaviest(load: RolloutBatch, per_engine: float, engines: float) -> float:
    """Return how many positions the busiest engine attends to, over the mean number per engine: a ratio of at least 1.

    Responses are spread over engines at random. The ratio is at most that of an engine with only the longest responses.

    Args:
        load: responses of the round.
        per_engine: responses of an engine.
        engines: number of engines.
    """
    prompt, lengths = load.prompt, load.lengths
    mean = _count_attended(load)
    square = prompt**2 * lengths.moment(2) + prompt * lengths.moment(3) + lengths.moment(4) / 4
    largest = _largest_sum((square / mean**2 - 1) / max(per_engine, 1.0), engines)
    return min(largest, (prompt * lengths.longest + lengths.longest**2 / 2) / mean)


def _largest_sum(spread: float, engines: float) -> float:
    """Return the expected largest of `engines` independent sums with mean 1 and variance `spread`.

    Sums are assumed to be gamma-distributed. The quantile is Wilson and Hilferty's (1931), at the expected rank of
    the largest (Blom 1958).
    """
    if spread <= 1e-9:
        return 1.0
    quantile = NormalDist().inv_cdf((engines - 0.375) / (engines + 0.25))
    return max(1.0, max(0.0, 1 - spread / 9 + quantile * math.sqrt(spread) / 3) ** 3)


def _count_attended(load: RolloutBatch) -> float:
    """Return the number of positions that all tokens of a mean response attend to: the prompt and earlier tokens."""
    return load.prompt * load.lengths.mean + load.lengths.square / 2


def force(
    load: RolloutBatch,
    cuts: Sequence[float],
    text: float,
    answer: float,
    sizes: Sizes,
    devices: Devices,
    *,
    soon: bool = False,
) -> ForcedRound:
    """Return the cost of forcing an answer at each of `cuts`, from every response that is longer than the cut.

    An engine that caches keys and values reads only the forcing text after a prefix that is still cached. All other
    prefixes are read again.

    Args:
        load: responses of the round.
        cuts: cuts in tokens.
        text: tokens of the forcing text.
        answer: tokens of an answer.
        sizes: sizes of the model.
        devices: devices of the engines.
        soon: whether each response's answers are forced as soon as it ends, and requests are limited to what caches
            hold, so that all prefixes are still cached.
    """
    counts = [load.responses * load.lengths.beyond(cut) for cut in cuts]
    answers = sum(counts)
    if not answers:
        return ForcedRound(0.0, 0.0, 0.0, 0.0)
    hardware, engines = devices.hardware, min(devices.engines, max(1.0, load.responses))
    before = [load.prompt + cut for cut in cuts]
    cached = load.responses / engines * (load.prompt + load.lengths.mean)
    fits = 1.0 if soon else min(1.0, cache_tokens(sizes, devices) / cached)
    cached_share = fits if hardware.prefix_cache else 0.0
    attended = sum(count * prefix for count, prefix in zip(counts, before, strict=True))
    reread = (1 - cached_share) * attended
    squared = sum(count * prefix**2 for count, prefix in zip(counts, before, strict=True))
    read = sizes.forward_flops(answers * text + reread, text * attended + (1 - cached_share) * squared / 2)
    prefill = read / engines / (devices.tensor_parallel * hardware.flops * hardware.mfu_prefill)
    steps = answer * math.ceil(answers / engines / MOST_RUNNING)
    context = answer * (attended + answers * text)
    moved = steps * sizes.products * devices.width + context / engines * sizes.kv_bytes(devices.cache_width)
    flops = sizes.forward_flops(answers * answer, context) / engines
    seconds = devices.slowdown * (prefill + _decode_seconds(moved, flops, steps, devices))
    return ForcedRound(answers, answers * (text + answer), reread, seconds)


def _decode_seconds(moved: float, flops: float, steps: float, devices: Devices) -> float:
    """Return the seconds to decode: the largest of bytes over bandwidth, FLOPs over FLOP/s, and a minimum per step.

    Args:
        moved: bytes that each engine reads.
        flops: FLOPs of each engine.
        steps: decode steps.
        devices: devices of the engines.
    """
    hardware = devices.hardware
    bandwidth = devices.tensor_parallel * hardware.bandwidth * hardware.mbu_decode
    compute = devices.tensor_parallel * hardware.flops * hardware.mfu_prefill
    return max(moved / bandwidth, flops / compute, steps * STEP_SECONDS)
