"""Rollouts beside training: prices against rounds that are drawn and dealt one by one, and against AReaL's hours."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.ir.model import Dimensions
from reodsl.language import compile_file
from reodsl.price import Price, price
from reodsl.price.machine import Devices, devices_of
from reodsl.price.memory import Sizes, from_dimensions
from reodsl.price.rollout import LengthDistribution
from runners.engine.protocol import Request
from runners.engine.sglang.engine import _assign_servers
from tests.language.test_changes import experiment

FLAGSHIP = Path(__file__).resolve().parents[2] / "specs" / "qwen3_4b_reo_exp.reo"
TASK = "qwen3_4b_reo_exp.train.s1"
CLUSTER = "cluster = h800_16x8"
BESIDE = CLUSTER + " { placement = apart, rollout_share = 75% }\n  lag = 1 step\n  "


def flagship(tmp_path: Path, said: str, caches: str = "auto") -> Price:
    path = tmp_path / "spec.reo"
    path.write_text(FLAGSHIP.read_text().replace(CLUSTER, said))
    spec = compile_file(path, amends={"qwen3_4b_reo_exp.rollout.caches": caches}).spec
    assert spec is not None
    return price(lower(spec), spec).tasks[TASK]


def test_an_overlapped_step_costs_its_longer_half(tmp_path: Path) -> None:
    beside = flagship(tmp_path, BESIDE)
    assert flagship(tmp_path, CLUSTER).overlapped_seconds == 0 < beside.overlapped_seconds
    rollouts = sum(beside.seconds[term] for term in ("generation", "forcing", "verification"))
    longer = max(rollouts, beside.seconds["training"] - beside.sync)
    # All steps cost the longer half, and one the other half as well: its rollouts come first, its training last.
    shorter = min(rollouts, beside.seconds["training"] - beside.sync)
    total = beside.seconds["start"] + longer + beside.sync + shorter / beside.steps
    assert beside.total_seconds == pytest.approx(total)


@pytest.mark.parametrize(
    ("said", "caches", "hours"),
    [(CLUSTER, "auto", 16.2), (BESIDE, "auto", 15.5), (CLUSTER, "fp8", 11.7), (BESIDE, "fp8", 10.2)],
)
def test_the_page_says_what_a_step_costs(tmp_path: Path, said: str, caches: str, hours: float) -> None:
    page = (FLAGSHIP.parents[1] / "docs" / "PRICE.md").read_text(encoding="utf-8")
    of_lags = page.split("\n### Lag", 1)[1].split("\n## ", 1)[0]
    assert f" {hours}" in of_lags
    assert flagship(tmp_path, said, caches).hours_a_step == pytest.approx(hours, abs=0.06)


def test_in_turn_a_lag_costs_what_none_does(tmp_path: Path) -> None:
    plain = flagship(tmp_path, CLUSTER)
    lagging = flagship(tmp_path, CLUSTER + "\n  lag = 1 step")
    # But that ratios divide by what the engine recorded, which saves a pass.
    assert lagging.seconds["generation"] == plain.seconds["generation"]
    assert lagging.overlapped_seconds == 0


def h800(generating: int, training: int) -> Devices:
    spec = compile_file(FLAGSHIP).spec
    assert spec is not None
    assert spec.study.cluster is not None
    devices = devices_of(spec.study.cluster)
    assert devices is not None
    return replace(
        devices, gpus=generating + training, generating=generating, training=training, disaggregated=True
    )


def busiest(
    rows: Sequence[tuple[int, int, int]], engines: int, sizes: Sizes, devices: Devices, most: int, host: float
) -> float:
    """Seconds until the last engine is through with rows of (question, tokens before, tokens to come), dealt as in a run.

    Each decode step reads all weights, `host` seconds beside, and of what runs the keys and values before it.
    """
    hardware = devices.hardware
    bandwidth, flops = hardware.bandwidth * hardware.mbu_decode, hardware.flops * hardware.mfu_prefill
    prompts = [Request((question, *([0] * (before // 64))), 0) for question, before, _ in rows]
    places = _assign_servers(prompts, engines, most // 64)
    seconds = []
    for engine in range(engines):
        own = [row for row, place in zip(rows, places, strict=True) if place == engine]
        attended = sum(before * count + count**2 / 2 for _, before, count in own)
        steps = max((count for _, _, count in own), default=0)
        again = [before for _, before, _ in own if before > PROMPT]
        read = sizes.forward_flops(sum(again), sum(before**2 for before in again) / 2)
        moved = steps * sizes.products * devices.width + attended * sizes.kv_bytes(devices.width)
        seconds.append(read / flops + steps * host + moved / bandwidth)
    return max(seconds)


PROMPT = 150


def rounds(
    questions: int,
    rollouts: int,
    scale: float,
    longest: int,
    segment: int,
    engines: int,
    sizes: Sizes,
    devices: Devices,
    host: float = 0.0,
    count: int = 4,
) -> float:
    """The mean seconds of rounds in which `questions` are begun and all go on for a segment, each length drawn."""
    draw = random.Random(1)
    live: list[tuple[int, int, int]] = []
    seconds = []
    first = -(-longest // segment) - 1
    for number in range(first + count):
        for question in range(questions):
            for _ in range(rollouts):
                length = min(longest, 1 + int(draw.expovariate(1 / scale)))
                live.append((1 + number * questions + question, 0, length))
        # A question's responses share its prompt until they have tokens of their own.
        rows = [
            (-at if before else question, PROMPT + before, min(segment, length - before))
            for at, (question, before, length) in enumerate(live)
        ]
        if number >= first:
            seconds.append(busiest(rows, engines, sizes, devices, segment, host))
        live = [(q, before + segment, length) for q, before, length in live if length > before + segment]
    return sum(seconds) / len(seconds)


# AReaL (Fu et al. 2025, table 1): hours of 250 steps, synchronous and not, on nodes of 8 H800. Its runs have 512 prompts,
# 16 responses each of at most 27,648 tokens (the repository's nightly run of the 1.5B model), one pass over each batch.
QWEN2_1_5B = Dimensions(
    parameters=1777088000,
    layers=28,
    hidden=1536,
    heads=12,
    kv_heads=2,
    head_dim=128,
    intermediate=8960,
    vocabulary=151936,
)
QWEN2_7B = Dimensions(
    parameters=7615616512,
    layers=28,
    hidden=3584,
    heads=28,
    kv_heads=4,
    head_dim=128,
    intermediate=18944,
    vocabulary=152064,
)
PUBLISHED = {"1.5B": (QWEN2_1_5B, 16, 41.0, 14.8), "7B": (QWEN2_7B, 24, 57.7, 25.4)}
HOST = 14e-3
"""Seconds of a decode step beside what memory takes: the one number that is fitted, to the first of the four hours."""
MFU = 0.3
"""Share of the peak that its trainer is taken to reach; AReaL publishes none."""
SCALE = 8
"""The simulation has an eighth of the batch on an eighth of the GPUs, with as much for each."""


def areal(name: str) -> tuple[float, float]:
    """Hours of 250 steps in turn on all GPUs, and with three quarters of them generating beside the others."""
    dimensions, nodes, _, _ = PUBLISHED[name]
    sizes, gpus, longest = from_dimensions(dimensions), nodes * 8 // SCALE, 27648
    lengths, questions = LengthDistribution.of(10800, longest), 512 // SCALE

    def training(devices: Devices) -> float:
        # Forward and backward, and one forward pass for the log-probabilities of before.
        flops = 4 * sizes.forward_flops(lengths.mean, lengths.square / 2) * questions * 16
        return flops / (devices.training * devices.hardware.flops * MFU)

    def generation(devices: Devices, segment: int) -> float:
        return rounds(
            questions, 16, lengths.scale, longest, segment, devices.generating, sizes, devices, HOST, 2
        )

    whole, parts = h800(gpus, gpus), h800(gpus * 3 // 4, gpus // 4)
    in_turn = generation(whole, longest) + training(whole)
    beside = max(generation(parts, 4096), training(parts))
    return 250 * in_turn / 3600, 250 * beside / 3600


@pytest.mark.parametrize("name", PUBLISHED)
def test_areals_gain_comes_out_of_drawn_lengths(name: str) -> None:
    _, _, in_turn, beside = PUBLISHED[name]
    hours = areal(name)
    assert hours[0] / hours[1] == pytest.approx(in_turn / beside, rel=0.25)
    assert hours == pytest.approx((in_turn, beside), rel=0.25)


@pytest.mark.parametrize(
    ("reward", "beside"),
    [
        ("mean(prob(t) for t in y)", True),
        ("mean(entropy(t) for t in y)", False),
        ("mean(prob(t) for t in truth(y))", False),
        ("mean(prob(t, under: teacher) for t in y)", False),
    ],
)
def test_trainers_that_are_asked_about_tokens_do_not_learn_beside(
    tmp_path: Path, reward: str, beside: bool
) -> None:
    """What the engine knows of its own tokens is asked of no trainer."""
    path = tmp_path / "spec.reo"
    text = FLAGSHIP.read_text().replace(CLUSTER, BESIDE)
    path.write_text(f"{text}\nreward likely {{ {reward} }}\n")
    spec = compile_file(path, amends={"qwen3_4b_reo_exp.reward": "likely"}).spec
    assert spec is not None
    assert (price(lower(spec), spec).tasks[TASK].overlapped_seconds > 0) == beside
    stage = experiment(spec, TASK.partition(".")[0]).stages[0]
    assert stage.method.asks_trainers is not beside
