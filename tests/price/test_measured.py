"""The miniature: what was priced against what was measured, on stored runs of the quickstart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.ir.cluster import Cluster, Hardware
from reodsl.language import compile_file
from reodsl.price.history import Past, PastResults
from reodsl.price.machine import Devices, adapt_to_width, devices_of
from reodsl.price.memory import process_bytes
from reodsl.price.prices import calibrate, price, simulate_elapsed
from reodsl.price.tasks import price_task
from reodsl.price.value import Price

ROOT = Path(__file__).resolve().parents[2]
GPU = Hardware(flops=1e12, bandwidth=1e10, interconnect=1e10)


def here() -> Devices:
    devices = devices_of(None)
    assert devices is not None
    return devices


def priced(past: Past) -> Price:
    return price_task(past.kind, past.payload, past.sizes, past.facts, here(), past.words)


def without(history: PastResults, left_out: Past) -> PastResults:
    return PastResults(tuple(past for past in history.results if past is not left_out))


def corrected(past: Past, history: PastResults) -> float:
    """Seconds of a result, priced with what all the others tell."""
    found = calibrate(without(history, past), here())
    assert found is not None
    assert found.start is not None
    terms = priced(past).seconds
    return found.start + sum(
        seconds * found.factors.get(term if past.kind == "train" else "responses", 1.0)
        for term, seconds in terms.items()
        if term != "start"
    )


def test_there_is_a_whole_run(measured: PastResults) -> None:
    kinds = [past.kind for past in measured.results]
    assert kinds.count("evaluate") == 6
    assert kinds.count("train") == 7


def test_a_run_is_priced_within_a_factor_of_two_before_any_was_measured(measured: PastResults) -> None:
    total = sum(past.seconds for past in measured.results)
    assert total / 2 < sum(priced(past).total_seconds for past in measured.results) < total * 2


def test_every_task_of_the_quickstart_is_priced_within_a_factor_of_two_before_any_run(
    spent: dict[str, float],
) -> None:
    """With nothing but the spec: lengths assumed, and a laptop's core."""
    compiled = compile_file(str(ROOT / "specs" / "quickstart.reo")).spec
    assert compiled is not None
    prices = price(lower(compiled), compiled).tasks
    assert set(prices) == set(spent)
    ratios = {name: prices[name].total_seconds / spent[name] for name in spent if spent[name] > 2}
    assert {name: each for name, each in ratios.items() if not 0.5 < each < 2} == {}
    assert 0.8 < sum(each.total_seconds for each in prices.values()) / sum(spent.values()) < 1.25


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_the_quickstart_takes_about_as_long_as_is_said_before_any_run(
    cores: int, spent: dict[str, float]
) -> None:
    """Every task laid out with the seconds that it was measured to take, beside the plan's own."""
    compiled = compile_file(str(ROOT / "specs" / "quickstart.reo")).spec
    assert compiled is not None
    graph = lower(compiled)
    prices = price(graph, compiled, cores=cores)
    told = {name: replace(each, seconds={"start": spent[name]}) for name, each in prices.tasks.items()}
    said, took = (
        simulate_elapsed(graph, prices, spent),
        simulate_elapsed(graph, replace(prices, tasks=told), spent),
    )
    assert said is not None
    assert took is not None
    assert 0.85 < said.seconds / took.seconds < 1.15


def test_a_processor_reaches_more_of_its_peak_with_wider_models() -> None:
    """The share of 100 GFLOP/s that 14 steps of SFT reached, measured on widths 64 to 512."""
    devices = here()
    reached = {width: adapt_to_width(devices, width).hardware for width in (64, 128, 256, 512, 4096)}
    measured = {64: 0.160, 128: 0.322, 256: 0.558, 512: 0.700}
    for width, share in measured.items():
        assert share / 1.35 < reached[width].mfu_train < share * 1.35
    assert reached[4096].mfu_train == pytest.approx(devices.hardware.mfu_train, rel=0.01)
    gpu = replace(devices, narrow=0.0)
    assert adapt_to_width(gpu, 64) is gpu


def test_a_run_is_priced_within_a_factor_of_two_of_the_measured(measured: PastResults) -> None:
    total = sum(past.seconds for past in measured.results)
    found = sum(corrected(past, measured) for past in measured.results)
    assert total / 2 < found < total * 2


def test_every_training_with_a_reward_is_within_a_factor_of_about_two(measured: PastResults) -> None:
    for past in measured.results:
        # The last stage of `shrink` generates 16 tokens a response and takes a few seconds.
        if past.terms.get("generation", 0.0) > 3:
            assert 0.45 < corrected(past, measured) / past.seconds < 2.2, past.task


def test_a_machine_that_is_slower_throughout_is_priced_so(measured: PastResults) -> None:
    slow = PastResults(
        tuple(
            replace(
                past,
                seconds=3 * past.seconds,
                terms={term: 3 * seconds for term, seconds in past.terms.items()},
            )
            for past in measured.results
        )
    )
    before, after = calibrate(measured, here()), calibrate(slow, here())
    assert before is not None
    assert after is not None
    for term in ("generation", "forcing", "training"):
        assert after.factors[term] == pytest.approx(3 * before.factors[term])
    assert after.start == pytest.approx(3 * (before.start or 0.0))
    assert after.mfu_train == pytest.approx((before.mfu_train or 0.0) / 3)


def test_the_utilisation_is_flops_over_seconds_and_peak(measured: PastResults) -> None:
    # Of one training alone: its priced FLOPs over what its updates took, as a share of the processor's stated peak.
    past = next(past for past in measured.results if past.task == "vanilla.train.s1")
    found = calibrate(PastResults((past,)), here())
    assert found is not None
    hardware = here().hardware
    mfu = adapt_to_width(here(), past.sizes.hidden).hardware.mfu_train
    flops = priced(past).seconds["training"] * hardware.flops * mfu
    assert found.mfu_train == pytest.approx(flops / past.terms["training"] / hardware.flops)
    assert found.results == 1


def test_the_clock_counts_only_where_nothing_tells_what_processors_spent(measured: PastResults) -> None:
    slow = [replace(past, seconds=9 * past.seconds) for past in measured.results]
    slow = [replace(past, processor=False) for past in slow]
    told = list(measured.results[:6])
    assert calibrate(PastResults((*slow, *told)), here()) == calibrate(PastResults(tuple(told)), here())
    assert calibrate(PastResults(tuple(slow)), here()) != calibrate(measured, here())


@pytest.mark.parametrize("change", [{"device": "cuda"}, {"model": "Pentium"}, {"model": ""}])
def test_what_other_devices_took_is_left_out(measured: PastResults, change: dict[str, str]) -> None:
    other = PastResults(tuple(replace(past, **change) for past in measured.results))
    assert calibrate(other, here()) is None


@pytest.mark.parametrize(
    ("gpu", "ran_on", "counts"),
    [
        ("H800", "NVIDIA H800", True),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("H100", "NVIDIA H200", False),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("A100", "", False),
        ("-", "NVIDIA A100-SXM4-80GB", False),
    ],
)
def test_only_gpus_of_the_same_model_count(
    measured: PastResults, gpu: str, ran_on: str, counts: bool
) -> None:
    cluster = Cluster(
        name="c",
        nodes=1,
        gpus_per_node=1,
        gpu=gpu,
        memory_gib=80,
        hardware=GPU,
    )
    devices = devices_of(cluster)
    assert devices is not None
    results = tuple(replace(past, device="cuda", model=ran_on) for past in measured.results)
    found = calibrate(PastResults((*results, *measured.results)), devices)
    assert (found is not None and found.results == len(results)) is counts
    assert (found is None) is not counts


def test_peaks_that_were_measured_tell_how_far_off_priced_ones_are(measured: PastResults) -> None:
    def peaks(more: float) -> tuple[Past, ...]:
        return tuple(
            replace(past, peak=process_bytes(priced(past).memory) + more) for past in measured.results
        )

    def found(*results: Past) -> float | None:
        told = calibrate(PastResults(results), here())
        assert told is not None
        return told.memory

    assert found(*(replace(past, peak=None) for past in measured.results)) is None
    assert found(*peaks(5e7)) == pytest.approx(5e7)
    assert found(*peaks(-3e7)) == pytest.approx(-3e7)
    first, *others = peaks(5e7)
    # One that is far off is outvoted.
    assert found(replace(first, peak=1e12), *others) == pytest.approx(5e7)
    # Of GPUs only what tensors had is measured, and nothing is concluded.
    gpu = [replace(past, device="cuda", model="NVIDIA H800") for past in peaks(5e7)]
    cluster = Cluster(name="c", nodes=1, gpus_per_node=1, gpu="H800", memory_gib=80, hardware=GPU)
    devices = devices_of(cluster)
    assert devices is not None
    told = calibrate(PastResults(tuple(gpu)), devices)
    assert told is not None
    assert told.memory is None


def test_a_process_needs_what_the_larger_of_its_roles_does() -> None:
    """Each role's figure has what the other keeps meanwhile, and libraries and kernels."""
    assert process_bytes({"trainer": 7.0, "engine": 5.0}) == 7.0
    assert process_bytes({"engine": 5.0}) == 5.0
    assert process_bytes({}) == 0.0


def test_sizes_on_disk_are_those_that_were_stored(measured: PastResults) -> None:
    # Bytes of checkpoint, optimizer state and rollouts in the store of that run.
    stored = {
        "overthinker.train.clean.s1": 1_410_768 + 1_445_424,
        "vanilla.train.s1": 1_410_768 + 2_824_768 + 24_416,
        "reo_exp.train.s1": 1_410_768 + 2_824_768 + 60_000,
    }
    found = {past.task: priced(past).disk for past in measured.results}
    for task, size in stored.items():
        assert found[task] == pytest.approx(size, rel=0.1)
