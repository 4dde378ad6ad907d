"""A trainer's task and two engines on nodes of their own, which are lost while they answer: a script, JSON out.

Nodes are simulated, GPUs only said to be there, and the servers those of `speaking.py`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from reodsl.graph.job import Resources
from runners.engine.protocol import Ahead, Request, TokenSampling
from runners.execute.placement import bundles

APART = Resources(device="cuda", engine="sglang", engines=2, trainers=1, apart=True)
REQUESTS = [Request((5, 6 + number), 100 + number) for number in range(8)]
WHOLE, ANSWER = TokenSampling(12), TokenSampling(3)
CUTS, FORCING = (0, 4, 9), (7, 8)
VERSION = 3


def rollouts(model: Path, logs: Path) -> dict[str, Any]:
    """What a task does that trains: engines with its weights, responses, and answers forced out of them."""
    from runners.engine.open import open_engine

    engine: Any = open_engine(model, APART, 64, logs)
    try:
        far = [not host.near for host in engine.fleet.hosts]
        engine.load_weights(model, VERSION)
        responses = engine.generate(REQUESTS, WHOLE, Ahead(lambda _, __: CUTS, FORCING, ANSWER))
        forced = engine.force(REQUESTS, responses, [CUTS] * len(REQUESTS), FORCING, ANSWER)
    finally:
        engine.close()
    return {
        "far": far,
        "tokens": [one.tokens for one in responses],
        "versions": [one.weight_versions for one in responses],
        "forced": [[(one.cut, one.tokens) for one in own] for own in forced],
    }


def told(model: Path) -> list[dict[str, Any]]:
    """What servers were told so far."""
    place = model / "told.jsonl"
    return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


def until(true: Callable[[], bool]) -> None:
    """Waits for it."""
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def home(pid: int, nodes: list[Any]) -> Any:
    """The simulated node that a server's process belongs to."""
    above = {parent.pid for parent in psutil.Process(pid).parents()}
    (found,) = (node for node in nodes if node.all_processes["raylet"][0].process.pid in above)
    return found


def answering(model: Path) -> list[int]:
    """The servers that have answered something, the first that did so first."""
    return list(dict.fromkeys(line["pid"] for line in told(model) if line["path"] == "/generate"))


if __name__ == "__main__":
    model, logs = Path(sys.argv[1]), Path(sys.argv[2])
    small = {"object_store_memory": 80_000_000}
    own = {**small, "num_cpus": 1, "num_gpus": 1}
    cluster = Cluster(
        initialize_head=True, head_node_args={**small, "num_cpus": 0, "include_dashboard": False}
    )
    nodes = [cluster.add_node(**own) for _ in range(3)]
    ray.init(address=cluster.address, log_to_driver=False)
    group = placement_group([bundle.as_ray() for bundle in bundles("train", APART)], strategy="PACK")
    inside = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
    task = ray.remote(rollouts).options(num_cpus=1, num_gpus=1, scheduling_strategy=inside, max_retries=0)
    work = task.remote(model, logs)

    # Each server holds back all but its first answers: requests of both are open.
    until(lambda: len(answering(model)) == 2)
    one, other = answering(model)
    places = placement_group_table(group)["bundles_to_node_id"]
    os.kill(one, signal.SIGKILL)
    until(lambda: len({line["pid"] for line in told(model)}) == 3)
    # Meanwhile the other one took all that was open; it is lost with its node.
    cluster.remove_node(home(other, nodes), allow_graceful=False)
    cluster.add_node(**own)
    until(lambda: len(answering(model)) == 3 and len({line["pid"] for line in told(model)}) == 4)
    (model / "go").touch()
    found = ray.get(work, timeout=200)
    print(json.dumps(found | {"told": told(model), "nodes": len(set(places.values()))}))
