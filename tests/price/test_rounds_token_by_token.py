"""The price of a round against engines that are simulated token by token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reodsl.ir.training import FromModel
from reodsl.language import compile_file
from reodsl.price.machine import MOST_RUNNING, STEP_SECONDS, Devices, devices_of
from reodsl.price.memory import Sizes, cache_tokens, sizes_of
from reodsl.price.rollout import LengthDistribution, RolloutBatch, generation_seconds

PROMPT, SAMPLES = 150, 16


@pytest.fixture(scope="module")
def flagship() -> tuple[Sizes, Devices]:
    """The model of the paper's Qwen3-4B run, and its devices."""
    spec = compile_file(Path(__file__).resolve().parents[2] / "specs" / "qwen3_4b_reo_exp.reo").spec
    assert spec is not None
    (start,) = [arm.checkpoint for arm in spec.study.arms if isinstance(arm.checkpoint, FromModel)]
    sizes, devices = sizes_of(start.model), devices_of(spec.study.cluster)
    assert sizes is not None
    assert devices is not None
    return sizes, devices


def engine_seconds(lengths: list[int], expected: float, sizes: Sizes, devices: Devices) -> float:
    """Return the seconds of one engine: it reads each prompt once, then decodes a token of all that run in each step.

    A step reads all weights and the keys and values of all that run. A response begins once the caches have room for it and
    for what runs to have `expected` tokens.
    """
    hardware, room = devices.hardware, cache_tokens(sizes, devices)
    prompts = sizes.forward_flops(PROMPT, PROMPT**2 / 2) * len(lengths) / SAMPLES
    seconds = prompts / (hardware.flops * hardware.mfu_prefill)
    weights, kv = sizes.products * devices.width, sizes.kv_bytes(devices.width)
    waiting, left, context = list(lengths), np.zeros(0), np.zeros(0)
    while waiting or len(left):
        while waiting and len(left) < MOST_RUNNING and (len(left) + 1) * (PROMPT + expected) <= room:
            left, context = np.append(left, waiting.pop(0)), np.append(context, PROMPT)
        moved = weights + context.sum() * kv
        seconds += max(moved / (hardware.bandwidth * hardware.mbu_decode), STEP_SECONDS)
        left, context = left - 1, context + 1
        left, context = left[left > 0], context[left > 0]
    return devices.slowdown * seconds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engines", "each", "mean"),
    # A step of the paper's run; shorter responses; and more than the caches hold at once.
    [(16, 16, 10240), (8, 16, 4096), (8, 92, 11264)],
)
def test_a_round_takes_what_is_priced(
    flagship: tuple[Sizes, Devices], engines: int, each: int, mean: int
) -> None:
    sizes, devices = flagship
    devices = replace(devices, gpus=engines, generating=engines, training=engines)
    lengths = LengthDistribution.of(mean, 32768)
    # Lengths in their expected shares, dealt at random: one draw's longest may be far from what is expected.
    dealt = np.random.default_rng(1).permutation(lengths.quantiles(engines * each)).reshape(engines, each)
    slowest = max(engine_seconds(one.tolist(), lengths.mean, sizes, devices) for one in np.ceil(dealt))
    priced = generation_seconds(
        RolloutBatch(engines * each, engines * each / SAMPLES, PROMPT, lengths), sizes, devices
    )
    assert slowest == pytest.approx(priced, rel=0.15)


def test_one_response_takes_its_bytes(flagship: tuple[Sizes, Devices]) -> None:
    """A token reads all weights, and the keys and values before it."""
    sizes, devices = flagship
    hardware = devices.hardware
    moved = 1000 * sizes.products * 2 + (1000 * PROMPT + 1000 * 999 / 2) * sizes.kv_bytes(2)
    seconds = moved / (hardware.bandwidth * hardware.mbu_decode)
    seconds += sizes.forward_flops(PROMPT, PROMPT**2 / 2) / SAMPLES / (hardware.flops * hardware.mfu_prefill)
    assert engine_seconds([1000], 1000, sizes, devices) == pytest.approx(devices.slowdown * seconds, rel=1e-9)
