"""Engines on machines of their own that are lost while a task on another one waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import polars as pl
import psutil
import pytest

import reodsl
from tests.execute.clusters import simulated

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


CLUSTER = """
import sys
from ray.cluster_utils import Cluster
memory = {"object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args={**memory, "num_cpus": 0, "include_dashboard": False})
for _ in range(2):
    cluster.add_node(**memory, num_cpus=1)
print(cluster.address, flush=True)
sys.stdin.read()
"""
PAIR = """
experiment longer = small { reward = outcome, steps = 6 steps }
study pair {
  engine = sglang
  arm base   = checkpoint(start)
  arm longer = longer
  report { table main { rows = arms, columns = [accuracy, length] } }
}
"""


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of two nodes of one core each."""
    with simulated(CLUSTER) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


def servers(folder: Path) -> dict[int, psutil.Process]:
    """Those that serve a model of this folder, by process."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        at = words.index("--model-path") + 1 if "--model-path" in words else 0
        if at and words[at].startswith(str(folder)) and process.ppid() not in found:
            found[process.pid] = process
    return found


@pytest.mark.sglang
@pytest.mark.heavy
def test_a_run_over_two_nodes_goes_on_when_its_servers_are_killed(
    python: Path, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node evaluates while the other trains, each with a real server; responses are those of a run that was let be."""
    text = (ROOT / "tests" / "resume" / "every_kind.reo").read_text() + PAIR
    runs = {}
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pair.reo").write_text(text)
    place = tmp_path / "killed"
    command = "from reodsl.cli.main import entry; entry()"
    given = ["run", "pair.reo", "--target", "pair", "--out", "out", "--address", cluster]
    with (place / "log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, "-c", command, *given],
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )
        seen: set[int] = set()
        killed: set[int] = set()
        while run.poll() is None:
            there = servers(place)
            seen |= set(there)
            if not killed and glob(f"{place}/.reodsl/work/**/rollouts/*", recursive=True):
                killed = set(there)
                for pid in killed:
                    os.killpg(pid, signal.SIGKILL)
            time.sleep(0.1)
    assert run.returncode == 0, (place / "log").read_text()
    assert killed
    assert seen - killed, "others took their places"
    for name in ("killed", "whole"):
        monkeypatch.chdir(tmp_path / name)
        loaded = reodsl.load(tmp_path / name / "pair.reo", target="pair")
        # What the cluster has made is there.
        assert {*loaded.plan().values()} == {"reuse"} or name == "whole"
        runs[name] = loaded.run(tmp_path / name / "out", local=True)
    one, other = (runs[name].samples("base", 1) for name in ("killed", "whole"))
    assert one["response"].to_list() == other["response"].to_list()
    assert one["correct"].to_list() == other["correct"].to_list()
    assert runs["killed"].table("training").filter(pl.col("arm") == "longer").height == 6
