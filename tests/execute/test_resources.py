"""What tasks of a run get of the machines: each of its own cluster."""

from __future__ import annotations

import pytest

import runners.execute
from reodsl.graph.job import Resources
from reodsl.graph.task import Task
from reodsl.ir.cluster import Cluster
from reodsl.plan.registry import Execution, Machine, RunResults
from tests.execute.bench import Bench
from tests.graph import studies as make


def test_a_task_gets_what_its_own_cluster_has(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Resources] = {}

    def schedule(run: Execution, start: object, resources: object) -> RunResults:
        assert callable(resources)
        task: Task
        for task in run.graph.tasks:
            found[task.id] = resources(task)
        return RunResults()

    monkeypatch.setattr(runners.execute, "schedule", schedule)
    whole = Cluster(name="whole", nodes=2, gpus_per_node=8, gpu="H800", memory_gib=80)
    part = whole.model_copy(update={"name": "part", "nodes": 1, "tensor_parallel": 2})
    first = make.base().model_copy(update={"cluster": part})
    spec = make.spec(
        make.arm("base", first),
        make.arm("a", make.trained("a", make.ppo(make.outcome()), start=make.end(first))),
    )
    placed = {"cluster": whole, "engine": "sglang"}
    spec = spec.model_copy(update={"study": spec.study.model_copy(update=placed)})
    bench.machine = Machine(address="10.0.0.1:6379")
    bench.run(spec)
    assert found["overthinker.train.s1"].trainers == 8
    assert (found["a.train.s1"].trainers, found["a.train.s1"].engines) == (16, 16)
    assert found["base.eval.s1"].engines == 16
    assert {each.device for name, each in found.items() if name.endswith(("train.s1", "eval.s1"))} == {"cuda"}
    # Without a cluster, what is not on this machine is not a GPU either.
    bench.run(make.four())
    assert found["vanilla.train.s1"].device == ("cuda" if runners.execute.gpus() else "cpu")
