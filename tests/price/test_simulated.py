"""The price of a round against the runner's own scheduler over simulated engines, and those engines against sums by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.simulated import RESULTS, Case, Outcome, draw_lengths, simulate, table
from reodsl.ir.training import FromModel
from reodsl.language import compile_file
from reodsl.price.machine import Devices, devices_of
from reodsl.price.memory import cache_tokens
from reodsl.price.rollout import Lengths, Load, force, generation_seconds
from reodsl.price.sizes import Sizes, sizes_of
from runners.engine.sglang import silence

LENGTHS = Lengths.of(10240, 32768)
CUTS = (1024, 2048, 4096, 8192, 16384)
GRID = [*range(64, 1024, 64), *range(1024, 32768, 1024)]


@pytest.fixture(scope="module")
def sizes() -> Sizes:
    spec = compile_file(Path(__file__).resolve().parents[2] / "specs" / "qwen3_4b_reo_exp.reo").spec
    assert spec is not None
    (start,) = [arm.checkpoint for arm in spec.study.arms if isinstance(arm.checkpoint, FromModel)]
    found = sizes_of(start.model)
    assert found is not None
    return found


def h800(gpus: int) -> Devices:
    spec = compile_file(Path(__file__).resolve().parents[2] / "specs" / "qwen3_4b_reo_exp.reo").spec
    assert spec is not None
    devices = devices_of(spec.study.cluster)
    assert devices is not None
    return replace(devices, gpus=gpus, generating=gpus, training=gpus)


def compare(engines: int, sizes: Sizes) -> tuple[float, float]:
    """Seconds of a step's rollouts: simulated, and priced."""
    case = Case(draw_lengths(16 * engines, LENGTHS), 16, 32768, 150, CUTS)
    # On the client's side 64 tokens are one: engines count single ones.
    found = simulate(case, sizes, h800(engines), grain=64)
    assert found.counts.generated == sum(case.lengths)
    assert found.counts.read_again == 0
    return found.generation, generation_seconds(
        Load(16 * engines, engines, 150, LENGTHS), sizes, h800(engines)
    )


def test_a_slow_machine_takes_no_engine_for_one_that_hangs(
    sizes: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines answer on a clock of their own: that of the machine says nothing of them."""
    monkeypatch.setattr(silence, "_SILENCE", 0.0)
    monkeypatch.setattr(silence, "_PAUSE", 0.0)
    simulated, priced = compare(2, sizes)
    assert simulated == pytest.approx(priced, rel=0.3)


def test_eight_engines_take_what_is_priced(sizes: Sizes) -> None:
    simulated, priced = compare(8, sizes)
    assert simulated == pytest.approx(priced, rel=0.15)


@pytest.mark.heavy
def test_128_engines_take_what_is_priced(sizes: Sizes) -> None:
    simulated, priced = compare(128, sizes)
    assert simulated == pytest.approx(priced, rel=0.15)


def test_one_response_takes_its_bytes(sizes: Sizes) -> None:
    """A prompt is read, and each token reads all weights and the keys and values before it."""
    devices = h800(1)
    found = simulate(Case([1000], 1, 1000, 150), sizes, devices)
    moved = 1000 * sizes.products * 2 + (1000 * 150 + 1000 * 999 / 2) * sizes.kv_bytes(2)
    hardware = devices.hardware
    seconds = moved / (hardware.bandwidth * hardware.mbu_decode)
    seconds += sizes.forward_flops(150, 150**2 / 2) / (hardware.flops * hardware.mfu_prefill)
    assert found.generation == pytest.approx(seconds + 5e-3, rel=1e-6)


def test_answers_asked_late_read_again_what_caches_forgot(sizes: Sizes) -> None:
    """Caches for three whole responses, of which there are eight: five are forgotten when all have ended."""
    devices = h800(1)
    each = sizes.kv_bytes(2) * 10_200
    weights = sizes.parameters * 2
    devices = replace(devices, memory=(weights + 3.05 * each) / 0.85)
    assert 3 * 10_200 < cache_tokens(sizes, devices) < 4 * 10_200
    case = Case([10_000] * 8, 8, 10_000, 150, (4096,), late=True)
    assert simulate(case, sizes, devices).counts.read_again >= 5 * (150 + 4096)
    soon = simulate(replace(case, late=False), sizes, devices, at_once=3)
    assert soon.counts.read_again == 0
    assert soon.counts.answers == 8


def evaluated(engines: int, sizes: Sizes, says_room: bool) -> Outcome:
    """As many responses an engine as `math_reg` has on 128: 92, of which caches hold about 40."""
    lengths = draw_lengths(92 * engines, Lengths.of(11264, 32768))
    case = Case(lengths, 32, 32768, 150, GRID)
    return simulate(case, sizes, h800(engines), grain=32, says_room=says_room)


def test_responses_are_held_back_that_caches_have_no_room_for(sizes: Sizes) -> None:
    held, queued = evaluated(4, sizes, True), evaluated(4, sizes, False)
    assert queued.counts.read_again > 1_000_000
    assert held.counts.read_again <= 0.1 * queued.counts.read_again
    assert held.counts.generated == queued.counts.generated
    assert held.seconds < 1.05 * queued.seconds


@pytest.mark.heavy
def test_an_evaluation_reads_again_and_takes_what_is_priced(sizes: Sizes) -> None:
    found = evaluated(8, sizes, True)
    load = Load(32 * 23, 23, 150, Lengths.of(11264, 32768))
    forced = force(load, GRID, 28, 20, sizes, h800(8), soon=True)
    assert forced.read_again == found.counts.read_again == 0
    priced = generation_seconds(load, sizes, h800(8)) + forced.seconds
    assert found.seconds == pytest.approx(priced, rel=0.15)


def test_the_page_has_what_was_simulated() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "PRICE.md").read_text()
    assert table(json.loads(RESULTS.read_text())) in page
