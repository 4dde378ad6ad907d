"""Machines of a cluster that go away while models train on them: the run goes on elsewhere, and ends with the same bytes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.execute.clusters import simulated
from tests.resume.harness import SHORT, Place, same

# One node with all the cores beside a head that has none: what runs when it goes away is lost with it.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
memory = {"object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args={**memory, "num_cpus": 0, "include_dashboard": False})
node = cluster.add_node(**memory, num_cpus=2)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(node, allow_graceful=False)
    node = cluster.add_node(**memory, num_cpus=2)
    print("replaced", flush=True)
"""


@pytest.fixture
def cluster() -> Iterator[subprocess.Popen[str]]:
    with simulated(CLUSTER) as process:
        yield process


def saved(place: Place) -> list[Path]:
    """Weights in the folders of tasks that are under way, any of which may end and take its folder along meanwhile."""
    found = os.walk(place.store.root / "work")
    return [
        Path(folder, name) for folder, _, names in found for name in names if name.endswith(".safetensors")
    ]


@pytest.mark.heavy
def test_training_goes_on_from_its_checkpoint_on_another_node(
    cluster: subprocess.Popen[str], untouched: Place, tmp_path: Path
) -> None:
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    address = cluster.stdout.readline().strip()
    place = Place(tmp_path, None, (*SHORT[1:], "--address", address))
    running = place.start()
    lost: list[str] = []
    until = time.monotonic() + 900
    while len(lost) < 3 and running.process is not None and running.process.poll() is None:
        assert time.monotonic() < until, running.text
        # A checkpoint of a training task that is under way, and that no node was lost with before.
        standing = {path.relative_to(place.store.root / "work").parts[0] for path in saved(place)}
        for key in standing - set(lost):
            lost.append(key)
            cluster.stdin.write("replace\n")
            cluster.stdin.flush()
            assert cluster.stdout.readline().strip() == "replaced"
        time.sleep(0.02)
    assert running.wait() == 0, running.text
    assert lost, running.text
    # `SHORT` runs in one process; the report says nothing of where it ran.
    place.assert_tidy()
    same(untouched.contents(), place.contents())
