"""What a rehearsal with real models measured: kept in the store, and what a plan makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import Graph
from reodsl.ir import Spec
from reodsl.language import compile_file
from reodsl.price import price, show
from reodsl.price.history import Facts, History, MeasuredTask, keep_rehearsal, read_history, read_rehearsals
from reodsl.price.machine import devices_of
from reodsl.price.memory import Sizes
from reodsl.price.tasks import price_task
from reodsl.rehearse import Size, StandIns, shrink
from reodsl.store.store import Store

FLAGSHIP = Path(__file__).resolve().parents[2] / "specs" / "qwen3_4b_reo_exp.reo"
TRAIN = "qwen3_4b_reo_exp.train.s1"
SLOWER = {"generation": 3.0, "training": 2.0}


@pytest.fixture(scope="module")
def flagship() -> Spec:
    spec = compile_file(FLAGSHIP).spec
    assert spec is not None
    return spec


def rehearsed(spec: Spec, sizes: Sizes, gpu: str = "NVIDIA H800") -> MeasuredTask:
    """The training of a rehearsal that took three times what is priced to generate, and twice to train."""
    graph: Graph = lower(shrink(spec, Size(longest=2048, prompts=128, pool=128), StandIns()))
    task = graph[TRAIN]
    devices = devices_of(task.cluster)
    assert devices is not None
    known = price_task("train", task.payload, sizes, Facts(600.0, 150.0), devices, False)
    terms = {term: SLOWER[term] * known.seconds[term] for term in SLOWER}
    return MeasuredTask(
        task=task.id,
        kind="train",
        payload=json.loads(json.dumps(task.payload, default=list)),
        facts=Facts(600.0),
        seconds=sum(terms.values()) + 90.0,
        terms=terms,
        device="cuda",
        model=gpu,
        peak=known.memory["trainer"] + 2**31,
        generating=128,
        training=128,
    )


def test_a_plan_goes_by_what_was_rehearsed(flagship: Spec, qwen3_4b: Sizes, tmp_path: Path) -> None:
    """The whole run's generation takes three times as long, since that of two short steps did."""
    graph = lower(flagship)
    store = Store(tmp_path / ".reodsl").open()
    before = price(graph, flagship).tasks[TRAIN]
    keep_rehearsal(store.root, "flagship", [rehearsed(flagship, qwen3_4b)])
    prices = price(graph, flagship, read_history(store, (), {TRAIN}))
    after = prices.tasks[TRAIN]
    for term, factor in SLOWER.items():
        assert after.seconds[term] == pytest.approx(factor * before.seconds[term])
    assert after.seconds["verification"] == before.seconds["verification"]
    assert after.seconds["start"] == pytest.approx(90.0)
    assert after.memory["trainer"] == pytest.approx(before.memory["trainer"] + 2**31)
    assert after.memory["engine"] == before.memory["engine"]
    assert after.basis == "rehearsal"
    assert any("1 by a rehearsed result" in line for line in show.summary(prices, list(prices.tasks)))


def test_a_smaller_batch_tells_of_no_smaller_memory(flagship: Spec, qwen3_4b: Sizes) -> None:
    small = replace(rehearsed(flagship, qwen3_4b), peak=2.0**30)
    graph = lower(flagship)
    prices = price(graph, flagship, History(rehearsed={TRAIN: small}))
    assert prices.tasks[TRAIN].memory == price(graph, flagship).tasks[TRAIN].memory


def test_a_run_counts_before_a_rehearsal_and_another_gpu_for_nothing(flagship: Spec, qwen3_4b: Sizes) -> None:
    graph, one = lower(flagship), rehearsed(flagship, qwen3_4b)
    ran = replace(one, terms={term: seconds / SLOWER[term] for term, seconds in one.terms.items()})
    before = price(graph, flagship).tasks[TRAIN]
    both = price(graph, flagship, History({TRAIN: ran}, rehearsed={TRAIN: one})).tasks[TRAIN]
    assert both.basis == "result"
    other = replace(one, model="NVIDIA L4")
    assert price(graph, flagship, History(rehearsed={TRAIN: other})).tasks[TRAIN] == before
    fewer = replace(one, generating=64, training=64)
    assert price(graph, flagship, History(rehearsed={TRAIN: fewer})).tasks[TRAIN] == before


def test_the_last_rehearsal_of_each_study_is_kept(flagship: Spec, qwen3_4b: Sizes, tmp_path: Path) -> None:
    one = rehearsed(flagship, qwen3_4b)
    keep_rehearsal(tmp_path, "a", [replace(one, seconds=1.0)])
    keep_rehearsal(tmp_path, "b", [one])
    keep_rehearsal(tmp_path, "a", [one])
    assert read_rehearsals(tmp_path) == {TRAIN: one}
    (tmp_path / "rehearsed.json").write_text('{"a": [{}], "b": 3}')
    assert read_rehearsals(tmp_path) == {}
    (tmp_path / "rehearsed.json").write_text("[")
    assert read_rehearsals(tmp_path) == {}
