"""A run on a cluster of several nodes, simulated on this machine, one of which goes away in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import studies as make
from bench import Bench

from runners.execute.cluster import sees

HERE = Path(__file__).resolve().parent

SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from bench import Bench
import studies as make
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
    paths = [str(HERE), str(HERE.parent / "graph"), str(HERE.parent.parent)]
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(paths=paths), tmp_path / "nodes"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
    )
    assert out.returncode == 0, out.stderr[-2000:]
    assert (tmp_path / "nodes" / "keys").read_text().split() == sorted(bench.run(make.four()).keys.values())


def test_a_node_sees_a_store_by_its_mark(tmp_path: Path) -> None:
    assert not sees(str(tmp_path))
    (tmp_path / "format").write_text("")
    assert sees(str(tmp_path))
