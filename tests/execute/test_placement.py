"""Placement: bundles of every way to share a cluster, seats that stay inside them, and nodes that do not have the room."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reodsl.graph.job import Resources
from reodsl.graph.task import Task
from reodsl.ir.cluster import Cluster
from runners.execute.perform import Order
from runners.execute.placement import (
    Bundle,
    RayNode,
    bundles,
    cores_of,
    declared_nodes,
    lacking,
    resources_of,
    threads_beside,
)
from runners.machine.placement import engine_bundle, shared_devices, trainer_bundle


def cluster(nodes: int = 2, gpus: int = 8, **change: object) -> Cluster:
    return Cluster(name="c", nodes=nodes, gpus_per_node=gpus, gpu="H800", memory_gib=80).model_copy(
        update=change
    )


def room(nodes: int, gpus: float, cpus: float = 64) -> list[RayNode]:
    return [RayNode(f"node{number}", cpus, gpus) for number in range(nodes)]


def test_without_a_cluster_or_gpus_a_task_is_one_process() -> None:
    for found in (
        resources_of("train", None, "cuda"),
        resources_of("train", cluster(), "cpu"),
        resources_of("data", cluster(), "cuda", "sglang"),
    ):
        assert (found.trainers, found.engines, found.disaggregated) == (1, 1, False)
    assert resources_of("data", cluster(), "cuda").device == "cpu"
    assert bundles("data", Resources()) == (Bundle("worker", 1.0, 0.0),)


@pytest.mark.parametrize(
    ("nodes", "change", "parts"),
    [
        (2, {}, 16),
        (2, {"sharding": "node"}, 8),
        (1, {"sharding": "node"}, 8),
        # Of 16 GPUs 4 train, and of 24 there are 6, which fill no node.
        (2, {"sharding": "node", "placement": "apart", "rollout_share": 0.75}, 4),
        (3, {"sharding": "node", "placement": "apart", "rollout_share": 0.75}, 2),
    ],
)
def test_a_copy_of_the_weights_is_on_all_that_train_or_on_a_node(nodes: int, change: Any, parts: int) -> None:
    found = resources_of("train", cluster(nodes, **change), "cuda", "sglang")
    assert found.parts == parts
    assert found.trainers % parts == 0
    assert resources_of("evaluate", cluster(nodes, **change), "cuda", "sglang").parts is None


def test_a_rehearsal_reserves_gpus_and_declares_as_many_as_the_largest_clusters_have() -> None:
    given = Resources(engine="sglang", engines=2, disaggregated=True, notes=Path("notes"))
    assert bundles("train", given) == (Bundle("trainer", 1.0, 1.0), *(Bundle("engine", 1.0, 1.0),) * 2)
    nodes = declared_nodes([cluster(2, 2), cluster(1, 4)])
    assert [(node.name, node.gpus) for node in nodes] == [("node-1", 4), ("node-2", 4)]
    assert lacking(bundles("train", given), nodes, None) is None
    assert declared_nodes([]) == ()


@pytest.mark.parametrize(
    ("lag", "given", "cores"),
    [
        (0, Resources(), 1),
        (1, Resources(), 2),
        (1, Resources(engine="sglang"), 1),
        (1, Resources(device="cuda"), 1),
        (1, Resources(notes=Path("notes")), 1),
    ],
)
def test_rollouts_beside_training_on_a_processor_take_a_core_more(
    lag: int, given: Resources, cores: int
) -> None:
    payload = {"stage": {"method": {"kind": "ppo", "lag": lag}}}
    task = Task("a.train.s1", "train", payload, {})
    order = Order(task, "toys:run", "0", {}, {}, Path("."), Path("."), given)
    assert cores_of(order) == cores


@pytest.mark.parametrize(
    ("device", "nodes", "threads"),
    [
        ("cuda", [(96.0, 8.0), (64.0, 8.0), (4.0, 0.0)], 8),
        ("cuda", [(500.0, 4.0)], 16),
        ("cuda", [(4.0, 8.0)], 1),
        ("cuda", [(4.0, 0.0)], 1),
        ("cpu", [(96.0, 8.0)], 1),
    ],
)
def test_threads_beside_gpus_share_the_cores_of_the_poorest_node(
    device: str, nodes: list[tuple[float, float]], threads: int
) -> None:
    assert threads_beside(Resources(device=device), nodes).threads == threads


def test_colocated_all_gpus_train_and_generate_in_turn() -> None:
    found = resources_of("train", cluster(tensor_parallel=4), "cuda", "sglang")
    assert (found.trainers, found.engines, found.tensor_parallel, found.disaggregated) == (16, 4, 4, False)
    assert bundles("train", found) == (Bundle("worker", 4.0, 4.0),) * 4


def test_apart_some_generate_and_the_others_train() -> None:
    apart = cluster(placement="apart", tensor_parallel=2)
    found = resources_of("train", apart, "cuda", "sglang")
    assert (found.trainers, found.engines, found.disaggregated) == (4, 6, True)
    assert bundles("train", found) == (Bundle("trainer", 1.0, 1.0),) * 4 + (Bundle("engine", 1.0, 2.0),) * 6
    for kind in ("sample", "evaluate"):
        whole = resources_of(kind, apart, "cuda", "sglang")
        assert (whole.trainers, whole.engines, whole.disaggregated) == (1, 8, False)
        assert bundles(kind, whole) == (Bundle("engine", 1.0, 2.0),) * 8


def test_the_embedded_engine_generates_where_the_task_runs() -> None:
    found = resources_of("evaluate", cluster(), "cuda")
    assert bundles("evaluate", found) == (Bundle("worker", 1.0, 1.0),)
    assert bundles("train", resources_of("train", cluster(), "cuda")) == (Bundle("trainer", 1.0, 1.0),) * 16


@pytest.mark.parametrize("engine", ["embedded", "sglang"])
@pytest.mark.parametrize("placement", ["colocated", "apart"])
@pytest.mark.parametrize(("nodes", "gpus", "wide"), [(1, 1, 1), (1, 8, 1), (2, 8, 4), (16, 8, 8), (3, 2, 2)])
def test_nobody_sits_on_more_gpus_than_a_bundle_has(
    engine: str, placement: str, nodes: int, gpus: int, wide: int
) -> None:
    found = resources_of(
        "train", cluster(nodes, gpus, placement=placement, tensor_parallel=wide), "cuda", engine
    )
    places = bundles("train", found)
    assert sum(place.gpus for place in places) <= nodes * gpus
    trainers = Counter(trainer_bundle(found, rank) for rank in range(found.trainers))
    assert all(places[at].gpus >= count for at, count in trainers.items())
    engines = Counter(engine_bundle(found, number) for number in range(found.engines))
    assert all(places[at].gpus >= count * found.tensor_parallel for at, count in engines.items())
    if found.disaggregated:
        assert not set(trainers) & set(engines)
    assert lacking(places, room(nodes, gpus), None) is None


def test_an_engine_that_shares_gpus_uses_those_of_the_trainers_beside_it() -> None:
    """Two nodes that number their GPUs alike, and trainers that Ray gave them in some order."""
    found = resources_of("train", cluster(2, 4, tensor_parallel=2), "cuda", "sglang")
    held = {0: [3], 1: [1], 2: [0], 3: [2], 4: [0], 5: [1], 6: [2], 7: [3]}
    assert shared_devices(found, held) == ("3,1", "0,2", "0,1", "2,3")
    assert shared_devices(found, {}) == ()
    apart = resources_of("train", cluster(2, 4, placement="apart"), "cuda", "sglang")
    assert shared_devices(apart, {0: [0], 1: [1]}) == ()
    assert shared_devices(resources_of("train", cluster(), "cuda"), held) == ()


def test_what_is_missing_is_said_with_numbers_and_names() -> None:
    wanted = bundles("train", resources_of("train", cluster(placement="apart"), "cuda", "sglang"))
    found = lacking(wanted, [RayNode("a", 16, 8), RayNode("b", 1, 2)], "cluster `c`")
    assert found is not None
    assert found.code == "E0971"
    assert found.message == (
        "a task needs 4 trainers of 1 GPU and 1 core, 12 engines of 1 GPU and 1 core, 16 GPUs and 16 cores in all, "
        "and the nodes have 10 GPUs and 17 cores"
    )
    assert found.notes == ("a has 8 GPUs and 16 cores", "b has 2 GPUs and 1 core")


def test_an_engine_has_to_fit_one_node() -> None:
    wanted = (Bundle("engine", 1.0, 4.0),) * 2
    assert lacking(wanted, room(4, 2), None) is not None
    assert lacking(wanted, [*room(1, 8)], None) is None
    assert lacking(wanted, [*room(2, 4, cpus=0.5)], None) is not None


def test_mixed_nodes_are_filled_as_well_as_any_order_would() -> None:
    """Against trying every assignment, on small cases."""
    sizes = (1.0, 2.0, 4.0)
    for wanted in itertools.combinations_with_replacement(sizes, 4):
        for shape in itertools.combinations_with_replacement((0.0, 2.0, 3.0, 4.0, 5.0), 3):
            places = [Bundle("engine", 1.0, gpus) for gpus in wanted]
            nodes = [RayNode(str(number), 64, gpus) for number, gpus in enumerate(shape)]
            possible = any(
                all(
                    sum(g for g, at in zip(wanted, where, strict=True) if at == n) <= shape[n]
                    for n in range(3)
                )
                for where in itertools.product(range(3), repeat=4)
            )
            assert (lacking(places, nodes, None) is None) == possible, (wanted, shape)
