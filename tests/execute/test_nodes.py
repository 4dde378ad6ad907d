"""A run on a cluster of several nodes, simulated on this machine, one of which goes away in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reodsl.ir.cluster import Cluster
from reodsl.store.store import Store
from tests.execute.bench import Bench
from tests.graph import studies as make

HERE = Path(__file__).resolve().parent

SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from tests.execute.bench import Bench
from tests.graph import studies as make
from reodsl.plan.registry import Machine
from ray.cluster_utils import Cluster

small = {{"num_cpus": 1, "object_store_memory": 80_000_000}}
cluster = Cluster(initialize_head=True, head_node_args={{**small, "include_dashboard": False}})
nodes = [cluster.add_node(**small)]
bench = Bench(Path(sys.argv[1]), Machine(address=cluster.address))
bench.knobs(vanilla__train__s1={{"sleep": 0.5}}, shrink__train__long__s1={{"sleep": 0.5}})

def leave(event):
    if event.kind == "progress" and nodes:
        cluster.remove_node(nodes.pop(), allow_graceful=False)

bench.on_event = leave
results = bench.run(make.four())
assert not results.failed, results.failed
assert not nodes
(bench.folder / "keys").write_text(" ".join(sorted(results.keys.values())))
"""


@pytest.mark.heavy
def test_a_node_that_goes_away_costs_its_tasks_a_retry(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    paths = [str(HERE.parent.parent)]
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(paths=paths), tmp_path / "nodes"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
    )
    assert out.returncode == 0, out.stderr[-2000:]
    assert (tmp_path / "nodes" / "keys").read_text().split() == sorted(bench.run(make.four()).keys.values())


PLACED = """
import json, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from tests.execute.bench import Bench
from tests.graph import studies as make
from tests.execute import toys
from reodsl.graph.lower import lower
from reodsl.ir.cluster import Cluster as Declared
from reodsl.plan.registry import Machine
from ray.cluster_utils import Cluster
from runners.execute.check import check

def on(spec, nodes):
    declared = Declared(name="pair", nodes=nodes, gpus_per_node=2, gpu="H200", memory_gib=141)
    return spec.model_copy(update={{"study": spec.study.model_copy(update={{"cluster": declared}})}})

OWN = Declared(name="own", nodes=1, gpus_per_node=2, gpu="H200", memory_gib=141)
FIRST = make.base().model_copy(update={{"cluster": OWN}})
SPEC = make.spec(make.arm("vanilla", make.trained("vanilla", make.ppo(make.outcome()), start=make.end(FIRST))))
toys.RUNNERS["train"] = "tests.execute.placed:placed"
small = {{"num_cpus": 2, "object_store_memory": 80_000_000}}
cluster = Cluster(initialize_head=True, head_node_args={{**small, "include_dashboard": False}})
nodes = [cluster.add_node(**small, num_gpus=2) for _ in range(3)]
machine = Machine(address=cluster.address)
folder = Path(sys.argv[1])
bench = Bench(folder, machine)

lacks = check(lower(on(SPEC, 5)).tasks, on(SPEC, 5), folder, machine)
told = [[each.code, each.message, sorted(note.split()[-1] for note in each.notes)] for each in lacks]

bench.knobs(vanilla__train__s1={{"sleep": 0.3, "pause": True}})
def leave(event):
    if event.kind != "progress" or event.task != "vanilla.train.s1":
        return
    lines = map(json.loads, (folder / "places.jsonl").read_text().splitlines())
    at = [line["node"] for line in lines if line["task"] == event.task]
    if len(nodes) == 3:
        gone = next(node for node in nodes if node.node_id == at[-1])
        nodes.remove(gone)
        cluster.remove_node(gone, allow_graceful=False)
    elif len(at) == 2:  # not before: a process may outlive its node for a moment, and end its task
        (folder / "go").touch()

bench.on_event = leave
results = bench.run(on(SPEC, 2))
assert not results.failed, results.failed
assert len(nodes) == 2
(folder / "found.json").write_text(json.dumps([told, results.keys]))
"""


@pytest.mark.heavy
def test_tasks_are_placed_by_the_cluster_and_go_on_elsewhere_when_a_node_is_gone(
    bench: Bench, tmp_path: Path
) -> None:
    """Six GPUs that are only said to be there, on three nodes; four of them train together, and one of their nodes goes.

    What that training starts from has two GPUs for itself.
    """
    place = tmp_path / "nodes"
    place.mkdir()
    paths = [str(HERE.parent.parent)]
    out = subprocess.run(
        [sys.executable, "-c", PLACED.format(paths=paths), place],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
    )
    assert out.returncode == 0, out.stderr[-3000:]
    told, keys = json.loads((place / "found.json").read_text())
    assert told == [
        ["E0971", "the spec runs on 5 x 2 H200, and the Ray cluster has 6 GPUs", ["0", "2", "2", "2"]]
    ]
    lines = [json.loads(line) for line in (place / "places.jsonl").read_text().splitlines()]
    many = {"overthinker.train.s1": 2, "vanilla.train.s1": 4}
    assert {line["task"] for line in lines} == set(many)
    assert all(line["bundles"] == [{"CPU": 1.0, "GPU": 1.0}] * many[line["task"]] for line in lines)
    assert all(line["gpus"] == 1 for line in lines)
    twice = [line["node"] for line in lines if line["task"] == "vanilla.train.s1"]
    assert len(twice) == len(set(twice)) == 2
    pair = Cluster(name="pair", nodes=2, gpus_per_node=2, gpu="H200", memory_gib=141)
    first = make.base().model_copy(update={"cluster": pair.model_copy(update={"name": "own", "nodes": 1})})
    vanilla = make.trained("vanilla", make.ppo(make.outcome()), start=make.end(first))
    spec = make.spec(make.arm("vanilla", vanilla))
    spec = spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": pair})})
    assert keys == bench.run(spec).keys
    elsewhere = Store(place / "store")
    for key in keys.values():
        assert elsewhere.get(key).digest == bench.store.get(key).digest  # type: ignore[union-attr]


AFTER = """
import sys
from pathlib import Path
from tests.execute.bench import Bench
from tests.graph import studies as make
from tests.execute import toys
from reodsl.ir.cluster import Cluster
from reodsl.plan.registry import Machine
from runners.execute.instance import import_ray
toys.RUNNERS["train"] = "tests.execute.placed:placed"
made = import_ray().init("local", num_cpus=2, num_gpus=1, include_dashboard=False, object_store_memory=80_000_000)
spec = make.spec(make.arm("vanilla", make.trained("vanilla", make.ppo(make.outcome()), start=make.end(make.base()))))
one = Cluster(name="one", nodes=1, gpus_per_node=1, gpu="H200", memory_gib=141)
spec = spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": one})})
assert not Bench(Path(sys.argv[1]), Machine(address=made.address_info["gcs_address"])).run(spec).failed
"""


@pytest.mark.slow
def test_a_process_that_had_a_gpu_does_no_other_task(tmp_path: Path) -> None:
    """CUDA stays with the GPU that a process began with, whichever Ray gives it next, and keeps memory of it."""
    # Else Ray would write a token of its own into the user's home.
    asked = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    out = subprocess.run(
        [sys.executable, "-c", AFTER, tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(HERE.parent.parent), **asked},
    )
    assert out.returncode == 0, out.stderr[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "places.jsonl").read_text().splitlines()]
    assert [line["gpus"] for line in lines] == [1, 1]
    assert len({line["process"] for line in lines}) == 2


PROTECTED = """
import json, os, subprocess, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from tests.execute.bench import Bench
from tests.graph import studies as make
from reodsl.diagnostics import Problem
from reodsl.plan.registry import Machine
folder = Path(sys.argv[1])
if len(sys.argv) == 2:
    from ray.cluster_utils import Cluster
    small = {{"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    bare = {{name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}}
    for name, env in (("owner", {{}}), ("nobody", bare), ("other", {{**os.environ, "RAY_AUTH_TOKEN": "b" * 64}})):
        (folder / name).mkdir()
        call = [sys.executable, sys.argv[0], str(folder / name), cluster.address]
        subprocess.run(call, env=env or os.environ, check=True, stderr=subprocess.DEVNULL)
else:
    bench = Bench(folder, Machine(address=sys.argv[2]))
    try:
        told = bench.run(make.spec(make.arm("base", make.base()))).keys
    except Problem as caught:
        found = caught.diagnostics[0]
        told = [found.code, found.help]
    (folder / "told.json").write_text(json.dumps(told))
"""


@pytest.mark.heavy
def test_a_cluster_that_wants_a_token_runs_for_who_has_it(bench: Bench, tmp_path: Path) -> None:
    place = tmp_path / "protected"
    place.mkdir()
    paths = [str(HERE.parent.parent)]
    (place / "script.py").write_text(PROTECTED.format(paths=paths))
    asked = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    out = subprocess.run(
        [sys.executable, place / "script.py", place],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": ":".join(paths), **asked},
    )
    assert out.returncode == 0, out.stderr[-3000:]
    told = {
        name: json.loads((place / name / "told.json").read_text()) for name in ("owner", "nobody", "other")
    }
    assert told["owner"] == bench.run(make.spec(make.arm("base", make.base()))).keys
    assert told["nobody"][0] == told["other"][0] == "E0962"
    assert "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN set" in told["nobody"][1]
    assert "has the cluster's token" in told["other"][1]


@pytest.mark.heavy
def test_trainers_and_engines_sit_on_the_gpus_that_are_theirs() -> None:
    """Two nodes of four GPUs that are only said to be there; engines take two each."""
    out = subprocess.run(
        [sys.executable, str(HERE / "seats.py")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(HERE.parent.parent)},
    )
    assert out.returncode == 0, out.stderr[-3000:]
    found = json.loads(out.stdout.splitlines()[-1])
    every = {(node, device) for told in found["colocated"]["trainers"] for node, (device,) in [told]}
    assert len(every) == 8
    assert len({node for node, _ in every}) == 2
    for node, devices in found["colocated"]["engines"]:
        assert {(node, device) for device in devices} <= every
    shared = [(node, device) for node, devices in found["colocated"]["engines"] for device in devices]
    assert sorted(shared) == sorted(every)
    apart = [
        (node, device) for told in found["apart"].values() for node, devices in told for device in devices
    ]
    assert [len(devices) for _, devices in found["apart"]["engines"]] == [2, 2, 2]
    assert sorted(apart) == sorted(every), "each GPU is one's alone"
