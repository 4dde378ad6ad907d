"""The miniature: what was priced against what was measured, on stored runs of the quickstart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import Task
from reodsl.ir.cluster import Cluster, Hardware
from reodsl.language import compile_file
from reodsl.price.history import Facts, History, MeasuredTask, TaskFacts
from reodsl.price.machine import Devices, adapt_to_width, devices_of, processor
from reodsl.price.memory import Sizes, process_bytes
from reodsl.price.prices import _ran_alike, bound_elapsed, price
from reodsl.price.tasks import price_task
from reodsl.price.value import Price

ROOT = Path(__file__).resolve().parents[2]
GPU = Hardware(flops=1e12, bandwidth=1e10, interconnect=1e10)


def here() -> Devices:
    devices = devices_of(None)
    assert devices is not None
    return devices


Measured = dict[str, tuple[MeasuredTask, Sizes]]


def priced(past: MeasuredTask, sizes: Sizes) -> Price:
    return price_task(past.kind, past.payload, sizes, past.facts, here(), words=True)


def test_there_is_a_whole_run(measured: Measured) -> None:
    kinds = [past.kind for past, _ in measured.values()]
    assert kinds.count("evaluate") == 6
    assert kinds.count("train") == 7


def test_a_run_is_priced_within_a_factor_of_two_before_any_was_measured(measured: Measured) -> None:
    total = sum(past.seconds for past, _ in measured.values())
    assert total / 2 < sum(priced(*each).total_seconds for each in measured.values()) < total * 2


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
        bound_elapsed(graph, prices, spent),
        bound_elapsed(graph, replace(prices, tasks=told), spent),
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


def quickstart(
    past: Mapping[str, MeasuredTask], rehearsed: Mapping[str, MeasuredTask] | None = None
) -> dict[str, Price]:
    spec = compile_file(str(ROOT / "specs" / "quickstart.reo")).spec
    assert spec is not None
    return dict(price(lower(spec), spec, History(past, rehearsed=rehearsed or {})).tasks)


def last(task: str, price_: Price, slower: float = 3.0) -> MeasuredTask:
    """A result of a task of the quickstart that took so many times what is priced, and held 4 GB."""
    spec = compile_file(str(ROOT / "specs" / "quickstart.reo")).spec
    assert spec is not None
    found = lower(spec)[task]
    terms = (
        {}
        if found.kind == "evaluate"
        else {term: slower * seconds for term, seconds in price_.seconds.items() if term != "start"}
    )
    seconds = 2.0 + slower * (price_.total_seconds - price_.seconds["start"])
    facts = Facts(length=8.0, questions=TaskFacts(lower(spec), History()).facts(found).questions)
    return MeasuredTask(task, found.kind, found.payload, facts, seconds, terms, "cpu", processor(), 4e9)


@pytest.mark.parametrize("task", ["vanilla.train.s1", "reo_exp.train.s1"])
def test_a_training_that_ran_is_priced_by_what_it_took(task: str) -> None:
    """Its formula for the lengths that it had is corrected: by hand, twice the steps take twice the seconds."""
    again = last(task, quickstart({})[task])
    found = quickstart({task: again})
    assert found[task].basis == "result"
    assert found[task].seconds["start"] == pytest.approx(2.0)
    for term, took in again.terms.items():
        if took > 1e-3:
            assert found[task].seconds[term] == pytest.approx(took, rel=1e-6), term
    assert process_bytes(found[task].memory) == pytest.approx(4e9, rel=0.01)
    others = {name: each for name, each in found.items() if name != task}
    assert others == {name: each for name, each in quickstart({}).items() if name != task}


def test_an_evaluation_that_ran_takes_as_long_again() -> None:
    task = "vanilla.eval.s1"
    again = last(task, quickstart({})[task])
    assert quickstart({task: again})[task].total_seconds == pytest.approx(again.seconds)


def test_a_rehearsal_counts_until_the_task_has_run() -> None:
    task = "vanilla.train.s1"
    rehearsed = last(task, quickstart({})[task])
    assert quickstart({}, {task: rehearsed})[task].basis == "rehearsal"
    ran = last(task, quickstart({})[task], 1.0)
    assert quickstart({task: ran}, {task: rehearsed})[task] == quickstart({task: ran})[task]


@pytest.mark.parametrize(
    "change", [{"device": "cuda"}, {"model": "Pentium"}, {"model": ""}, {"payload": {"model": {}}}]
)
def test_what_another_device_or_model_took_is_left_out(change: dict[str, Any]) -> None:
    task = "vanilla.train.s1"
    kept = last(task, quickstart({})[task])
    other = replace(
        kept, **(change if "payload" not in change else {"payload": kept.payload | change["payload"]})
    )
    assert quickstart({task: other})[task].basis == "formula"


def test_a_result_with_settings_of_another_version_is_left_out() -> None:
    task = "vanilla.train.s1"
    kept = last(task, quickstart({})[task])
    old = replace(kept, payload=kept.payload | {"stage": kept.payload["stage"] | {"dropped": 3}})
    assert quickstart({task: old})[task].basis == "formula"


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
def test_only_a_gpu_of_the_same_name_counts(gpu: str, ran_on: str, counts: bool) -> None:
    cluster = Cluster(name="c", nodes=1, gpus_per_node=1, gpu=gpu, memory_gib=80, hardware=GPU)
    devices = devices_of(cluster)
    assert devices is not None
    task = Task("a", "evaluate", {}, {}, "a", 1)
    past = MeasuredTask("a", "evaluate", {}, Facts(), 1.0, {}, "cuda", ran_on)
    assert _ran_alike(past, task, devices) is counts


def test_a_process_needs_what_the_larger_of_its_roles_does() -> None:
    """Each role's figure has what the other keeps meanwhile, and libraries and kernels."""
    assert process_bytes({"trainer": 7.0, "engine": 5.0}) == 7.0
    assert process_bytes({"engine": 5.0}) == 5.0
    assert process_bytes({}) == 0.0


def test_sizes_on_disk_are_those_that_were_stored(measured: Measured) -> None:
    # Bytes of checkpoint, optimizer state and rollouts in the store of that run.
    stored = {
        "overthinker.train.clean.s1": 1_410_768 + 1_445_424,
        "vanilla.train.s1": 1_410_768 + 2_824_768 + 24_416,
        "reo_exp.train.s1": 1_410_768 + 2_824_768 + 60_000,
    }
    found = {task: priced(*each).disk for task, each in measured.items()}
    for task, size in stored.items():
        assert found[task] == pytest.approx(size, rel=0.1)
