"""History: facts of results in a store, read as they were written, and none of what cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import Task
from reodsl.ir import Spec, digest
from reodsl.price import price, show
from reodsl.price.history import History, TaskFacts, read_history
from reodsl.price.machine import processor
from reodsl.price.memory import process_bytes
from reodsl.store import runs
from reodsl.store.store import Store, adopt
from tests.graph import studies as make

CONFIG = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "intermediate_size": 16,
    "vocab_size": 5,
    "tie_word_embeddings": True,
}

METRICS = pl.DataFrame(
    {
        "step": [1, 2],
        "length": [8.0, 6.0],
        "tokens": [64.0, 48.0],
        "trained_tokens": [32.0, 24.0],
        "equal_groups": [0.5, 0.25],
    }
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / ".reodsl").open()


def put(
    store: Store,
    task: Task,
    files: dict[str, Any],
    inputs: dict[str, str],
    device: str = "cpu",
    spent: float | None = None,
) -> str:
    material = {"kind": task.kind, "payload": task.payload, "inputs": inputs}
    key = digest(material)
    out = store.begin(key)
    for name, content in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, pl.DataFrame):
            content.write_parquet(path)
        else:
            path.write_text(json.dumps(content))
    made = {
        "seconds": 12.5,
        "processor_seconds": spent,
        "device": device,
        "device_model": processor(),
        "peak_memory": 3 * 2**30,
        **({"trainers": 8, "parts": 4, "engines": 2, "tensor_parallel": 4} if device != "cpu" else {}),
        "inputs": inputs,
    }
    store.commit(key, out, material, made)
    return key


def filled(
    store: Store,
    spec: Spec,
    metrics: pl.DataFrame = METRICS,
    device: str = "cpu",
    slowed: float | None = None,
) -> None:
    """The results of one training with a reward and its evaluation, in a record.

    With `slowed`, by how much other work on the machine stretched their 12.5 seconds of processor.
    """
    graph = lower(spec)
    spent = None if slowed is None else 12.5 / slowed
    record = runs.begin(store, spec, digest(spec))
    data = put(
        store,
        graph[graph["vanilla.train.s1"].inputs["data"]],
        {"questions.parquet": pl.DataFrame({"id": ["a"]})},
        {},
        device,
        spent,
    )
    took = {"generate": [2.0, 1.0], "update": [3.0, 4.0]}
    timings = pl.DataFrame({"step": [1, 2], **{f"seconds_{part}": each for part, each in took.items()}})
    if slowed is not None:
        timings = timings.with_columns(
            **{f"processor_{part}": pl.Series(each) / slowed for part, each in took.items()}
        )
    train = put(
        store,
        graph["vanilla.train.s1"],
        {"checkpoint/config.json": CONFIG, "metrics.parquet": metrics, "timings.parquet": timings},
        {"data": data},
        device,
        spent,
    )
    summary = {
        "easy": {"length": 5.0, "questions": 10},
        "hard": {"length": 11.0, "questions": 20},
        "mean": {"length": 8.0, "questions": 30},
    }
    evaluation = put(
        store, graph["vanilla.eval.s1"], {"summary.json": summary}, {"start": train}, device, spent
    )
    record.tasks = {
        graph["vanilla.train.s1"].inputs["data"]: data,
        "vanilla.train.s1": train,
        "vanilla.eval.s1": evaluation,
    }
    runs.end(store, record, "finished")


TASKS = {"filed.data", *(task.id for task in lower(make.four()).tasks)}
DATA = lower(make.four())["vanilla.train.s1"].inputs["data"]


def read(store: Store) -> History:
    return read_history(store, runs.records(store), TASKS)


def test_facts_of_a_training_and_an_evaluation(store: Store) -> None:
    filled(store, make.four())
    train, evaluation = read(store).results.values()
    assert (train.task, train.device, train.seconds) == ("vanilla.train.s1", "cpu", 12.5)
    assert (train.facts.length, train.facts.trained_share, train.facts.steps) == (7.0, 0.5, 2)
    assert (train.model, train.facts.equal, train.facts.draws) == (processor(), 0.375, None)
    assert train.terms == {"generation": 3.0, "training": 7.0}
    # Nothing is said of how many devices it was.
    assert (train.generating, train.training) == (0, 0)
    # Every question counts once, whichever benchmark it belongs to.
    assert (evaluation.facts.length, evaluation.facts.questions) == (9.0, 30)


def test_other_work_on_the_machine_stretches_no_price(store: Store) -> None:
    filled(store, make.four(), slowed=5.0)
    found = read(store)
    train, evaluation = found.results.values()
    assert (train.seconds, evaluation.seconds) == (2.5, 2.5)
    assert train.terms == {"generation": pytest.approx(0.6), "training": pytest.approx(1.4)}
    assert dict(found.light) == {DATA: 2.5}


def test_on_a_gpu_the_clock_counts(store: Store) -> None:
    filled(store, make.four(), device="cuda:0", slowed=5.0)
    train, evaluation = read(store).results.values()
    assert (train.seconds, evaluation.seconds) == (12.5, 12.5)
    assert (train.generating, train.training) == (8, 8)
    assert train.terms == {"generation": 3.0, "training": 7.0}


def test_facts_of_a_training_that_draws_again(store: Store) -> None:
    rounds = pl.DataFrame(
        {
            "step": [1, 2],
            "length": [8.0, 6.0],
            "tokens": [192.0, 48.0],
            "trained_tokens": [64.0, 36.0],
            "equal_groups": [0.5, 0.0],
            "rounds": [3.0, 1.0],
        }
    )
    filled(store, make.four(), rounds)
    (train, _) = read(store).results.values()
    # Two draws a step on average. A batch has 64 tokens, then 48; of three draws half of the groups gave nothing.
    assert train.facts.draws == 2.0
    assert train.facts.trained_share == pytest.approx(100 / 112)
    assert train.facts.equal == pytest.approx((3 * 0.5 + 0.0) / 4)


def test_a_task_without_a_device_takes_as_long_as_it_did(store: Store) -> None:
    filled(store, make.four())
    found = read(store)
    assert dict(found.light) == {DATA: 12.5}
    graph = lower(make.four())
    prices = price(graph, make.four(), found)
    kinds = {task.kind: prices.tasks[task.id].total_seconds for task in graph.tasks}
    assert prices.tasks[DATA].total_seconds == 12.5
    assert kinds["report"] == 8.0


def test_the_plan_says_what_past_runs_told(store: Store) -> None:
    filled(store, make.four())
    prices = price(lower(make.four()), make.four(), read(store))
    assert (prices.count("result"), prices.count("rehearsal")) == (2, 0)
    train = prices.tasks["vanilla.train.s1"]
    # 12.5 seconds in all, of which 10 were of steps.
    assert train.seconds["start"] == 2.5
    assert (train.seconds["generation"], train.seconds["training"]) == pytest.approx((3.0, 7.0))
    # A model of nothing: what a process holds is nearly all that it needs.
    assert process_bytes(train.memory) == pytest.approx(3 * 2**30, rel=0.01)
    assert "Times of tasks: 2 by a past result, all others estimated." in show.summary(
        prices, list(prices.tasks)
    )


def test_a_training_of_which_nothing_that_counts_is_the_same_keeps_its_lengths_alone(store: Store) -> None:
    filled(store, make.four())
    history = read(store)
    (graph, task), past = ((lower(make.four()), "vanilla.train.s1")), history.results["vanilla.train.s1"]
    assert TaskFacts(graph, history).facts(graph[task]).trained_share == 0.5
    payload = json.loads(json.dumps(past.payload))
    payload["stage"]["method"]["batch"]["rollouts"] += 1
    changed = replace(history, results={task: replace(past, payload=payload)})
    found = TaskFacts(graph, changed).facts(graph[task])
    assert (found.length, found.trained_share, found.equal) == (7.0, 0.5, None)


def test_what_is_broken_is_left_out(store: Store) -> None:
    filled(store, make.four())
    (record,) = runs.records(store)
    file = store.path(record.tasks["vanilla.train.s1"]) / "metrics.parquet"
    file.chmod(0o644)
    file.write_bytes(b"x" * file.stat().st_size)
    assert list(read(store).results) == ["vanilla.eval.s1"]


def test_what_was_accepted_for_other_settings_tells_no_price(store: Store) -> None:
    spec = make.spec(make.arm("vanilla", make.trained("vanilla", make.ppo(make.outcome()))))
    filled(store, spec)
    (record,) = runs.records(store)
    key = record.tasks["vanilla.train.s1"]
    old = store.get(key)
    assert old is not None
    with_more_steps = {**(store.material(key) or {}), "version": 99}
    new = adopt(store, old, digest(with_more_steps), "vanilla.train.s1", with_more_steps, "as good", ())
    record.tasks["vanilla.train.s1"] = new.key
    assert list(read_history(store, (record,), TASKS).results) == ["vanilla.eval.s1"]


def test_an_empty_store_has_no_history(store: Store, tmp_path: Path) -> None:
    assert read_history(store, (), TASKS).results == {}
    assert read_history(Store(tmp_path / "none"), (), TASKS).results == {}


def test_rows_are_counted_where_a_source_does_not_tell(store: Store) -> None:
    stage = make.sft(data=make.file_data("a.jsonl"))
    spec = make.spec(make.arm("a", make.trained("a", stage)))
    record = runs.begin(store, spec, digest(spec))
    table = pl.DataFrame({"id": ["a", "b", "c"]})
    record.tasks = {"filed.data": put(store, lower(spec)["filed.data"], {"questions.parquet": table}, {})}
    runs.end(store, record, "finished")
    assert read(store).questions == {"filed.data": 3}
