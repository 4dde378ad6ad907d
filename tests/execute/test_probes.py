"""Probes of nodes: machines that are described, this one, and two nodes of a Ray cluster."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from reodsl import __version__
from reodsl.diagnostics import Problem
from reodsl.plan.registry import MachinePart
from runners.execute import probes
from runners.execute.probes import (
    EVERYTHING,
    SERVERS,
    NodeParts,
    ProbeFailed,
    Site,
    ask_nodes,
    compare,
    diagnose,
    probe,
)
from tests.called import call
from tests.engine.sglang.environments import python_with
from tests.execute.clusters import simulated

H100 = "NVIDIA H100 80GB HBM3, 81559, 14"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder@U16)\nGCC version:\n"


def node(place: Path, driver: str = "580.65.06", gpus: str = f"{H100}\n{H100}", gcc: str = "12.2.0") -> Site:
    """A node with two H100, as a folder has its files and a function its commands."""
    for file in ("dev/nvidia0", "dev/nvidia1", "proc/driver/nvidia/version", "include/Python.h"):
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).touch()
    (place / "proc/driver/nvidia/version").write_text(OPEN.format(driver))
    python = python_with(place / "sglang", "sglang")

    def ask(*command: str) -> str:
        answers = {
            sys.executable: "16 MiB of cuda:0 are read by another process",
            "nvidia-smi": gpus,
            "gcc": gcc,
            "c++": gcc,
            str(python): str(place / "include"),
        }
        return answers[command[0]]

    return Site(root=place, ask=ask, libc="glibc 2.35", include=place / "include", python=python)


def rows(site: Site) -> dict[str, tuple[str, str]]:
    return {part.name: (part.state, part.says) for part in probe(site, EVERYTHING)}


def test_a_node_that_has_everything(tmp_path: Path) -> None:
    assert rows(node(tmp_path)) == {
        "driver": ("ok", "580.65.06"),
        "glibc": ("ok", "glibc 2.35"),
        "compiler": ("ok", "gcc 12.2.0"),
        "Python.h": ("ok", str(tmp_path / "include")),
        "sglang": ("ok", str(tmp_path / "sglang/bin/python")),
        "gpus": ("ok", "2 x NVIDIA H100 80GB HBM3, 80 GiB"),
        "hand-over": ("ok", "16 MiB of cuda:0 are read by another process"),
    }


A100 = "NVIDIA A100-SXM4-80GB, 81920, 14"


@pytest.mark.parametrize(
    ("name", "said", "change"),
    [
        ("driver", "575.57.08, and CUDA 13 needs 580 or newer", {"driver": "575.57.08"}),
        ("compiler", "gcc 9, and C++20 needs 11", {"gcc": "9"}),
        ("gpus", "1 x NVIDIA H100 80GB HBM3, 80 GiB and 1 x NVIDIA A100-SXM4-80GB, 80 GiB, and all wait for the slowest",
         {"gpus": f"{H100}\n{A100}"}),
        ("gpus", "2 x NVIDIA H100 80GB HBM3, 80 GiB, and other programs use memory of GPU 1",
         {"gpus": f"{H100}\n{H100.replace(' 14', ' 40000')}"}),
    ],
)  # fmt: skip
def test_what_a_node_lacks_is_one_row(tmp_path: Path, name: str, said: str, change: dict[str, str]) -> None:
    found = rows(node(tmp_path, **change))
    assert {row: told for row, (state, told) in found.items() if state == "broken"} == {name: said}


def test_what_is_not_there_at_all(tmp_path: Path) -> None:
    bare = replace(node(tmp_path), libc="glibc 2.31", include=tmp_path, python=None, ask=probes.ask_command)
    (tmp_path / "proc/driver/nvidia/version").unlink()
    with pytest.MonkeyPatch.context() as nothing:
        nothing.setenv("PATH", str(tmp_path))
        found = {part.name: part for part in probe(bare, SERVERS)}
    assert {name: part.says for name, part in found.items()} == {
        "driver": "the kernel has loaded no driver",
        "glibc": "glibc 2.31, and SGLang is built for 2.34",
        "compiler": "there is no `gcc`",
        "Python.h": f"it is missing in {tmp_path}",
        "sglang": "not installed",
        "gpus": "there is no `nvidia-smi`",
    }
    assert all(part.help for part in found.values())


def test_this_machine_has_a_compiler_and_headers_and_a_disk(tmp_path: Path) -> None:
    """Those rows are of nodes with GPUs: here a device is made up, and what is asked about it is not."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    (tmp_path / "mark").touch()
    names = frozenset({"glibc", "compiler", "Python.h", "store", "disk"})
    found = probe(Site(tmp_path / "mark", root=tmp_path, python=None), names)
    assert [part.state for part in found] == ["ok"] * 5, found
    assert probe(Site(tmp_path / "mark", python=None), SERVERS) == () or Path("/dev/nvidia0").exists()


def test_a_store_that_is_not_there_or_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lack(site: Site) -> str:
        (row,) = probe(site, probes.STORE)
        assert row.state == "broken"
        return row.says

    assert lack(Site(tmp_path / "none" / "mark")) == f"{tmp_path / 'none'} does not exist"
    (tmp_path / "mark").touch()

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    assert lack(Site(tmp_path / "mark")) == f"{tmp_path}: No space left on device"


def test_a_kernel_is_compiled_and_linked_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = python_with(tmp_path, "sglang")
    home = tmp_path / "lib/python3.11/site-packages/nvidia/cu13"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").write_text("#!/bin/sh\necho 'error: incompatible' >&2; exit 1\n")
    (home / "bin" / "nvcc").chmod(0o755)
    (row,) = probe(Site(python=python), frozenset({"build"}))
    assert (row.state, row.says) == ("broken", "error: incompatible")


@pytest.mark.heavy
def test_a_tensor_in_shared_memory_is_read_by_another_process() -> None:
    assert probes.hand_over("cpu", sys.executable) == "16 MiB of cpu are read by another process"


def test_why_another_process_reads_nothing_is_its_last_line(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\ncat > /dev/null; echo 'OSError: no shared memory' >&2; exit 1\n")
    other.chmod(0o755)
    with pytest.raises(ProbeFailed, match="a server would read OSError: no shared memory"):
        probes.hand_over("cpu", str(other))
    with pytest.raises(ProbeFailed, match=r"^two$"):
        probes.ask_command("sh", "-c", "echo one >&2; echo two >&2; exit 3")


def test_what_does_not_end_in_time_says_so_and_the_rest_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging disk or driver costs its own row, and what fails as nobody foresaw has its words in one."""
    monkeypatch.setattr(probes, "_PROBE_SECONDS", 0.6)
    slow, over = node(tmp_path), Event()

    def ask(*command: str) -> str:
        if command[0] == "nvidia-smi":
            over.wait(60)
        if command[0] == "gcc":
            raise MemoryError("no room")
        return slow.ask(*command)

    found = rows(replace(slow, ask=ask))
    over.set()
    assert {name: says for name, (state, says) in found.items() if state == "broken"} == {
        "gpus": "not done after 0.6 seconds",
        "compiler": "no room",
    }
    assert {"driver", "hand-over"} <= found.keys()


def of(node: str, **rows: str) -> dict[str, tuple[MachinePart, ...]]:
    return {node: tuple(MachinePart(name, "ok", says) for name, says in rows.items())}


def test_what_differs_between_nodes_is_one_sentence(refusal: Callable[..., None]) -> None:
    old = MachinePart("driver", "broken", "575.57.08, and CUDA 13 needs 580 or newer", "install driver 580")
    unseen = MachinePart("store", "broken", "/shared/reo does not exist", "put it on a file system")
    found: NodeParts = {
        **of("left", driver="580.65.06", gpus="8 x NVIDIA H100, 80 GiB", glibc="glibc 2.35"),
        **of("right", driver="580.82.07", gpus="8 x NVIDIA A100, 80 GiB", glibc="glibc 2.36"),
        **of("head"),
        **{f"node{number}": (old, unseen) for number in range(6)},
    }
    assert [row.name for row in compare(found)] == ["driver", "gpus"]
    driver, store, *warnings = diagnose(found)
    refusal("execute/E0977-store.txt", Problem(store))
    refusal("execute/E0977.txt", Problem(driver))
    assert [each.message for each in warnings] == [
        "driver: 580.65.06 on left; 580.82.07 on right",
        "gpus: 8 x NVIDIA H100, 80 GiB on left; 8 x NVIDIA A100, 80 GiB on right",
    ]
    refusal("execute/W0977.txt", Problem(warnings[1]))
    assert compare(of("left", driver="580.65.06") | of("right", driver="580.65.06")) == ()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_node_of_another_version_or_without_an_answer_has_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    ((node, (clock,)),) = ask_nodes(None, probes.STORE).items()
    assert (clock.name, clock.says) == ("clock", "as here")
    monkeypatch.setattr(probes, "__version__", "9.9")
    ((_, (row,)),) = ask_nodes(None, SERVERS).items()
    assert row.says == f"is {__version__}, and this command has 9.9"
    monkeypatch.setattr(probes, "ANSWER_SECONDS", 0.0)
    assert ask_nodes(None, SERVERS)[node][0].says == "no answer within 0 seconds"
    assert probes._probe_group({}, Path())[0].says == "no node sees the store, by which processes connect"
    ray = SimpleNamespace(get=lambda answer: answer, exceptions=SimpleNamespace(RayError=OSError))
    (late,) = probes._read_answer(ray, ("9.9", (), 100.0), 160.0)
    assert (late.state, late.says, late.needed) == ("broken", "60 seconds behind", False)


PAIR = """
import sys
from ray.cluster_utils import Cluster

small = {"num_cpus": 1, "object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
cluster.add_node(**small)
print(cluster.address, flush=True)
sys.stdin.read()
"""


@pytest.mark.heavy
def test_both_nodes_of_a_cluster_are_asked_and_meet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulated(PAIR) as cluster:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        code = call("doctor", "--node", "--address", address, "--store", str(tmp_path / "store"), "--json")
    printed = capsys.readouterr()
    assert code == 0, printed
    told = json.loads(printed.out)["nodes"]
    *nodes, every = told
    assert every["name"] == "all nodes"
    assert [
        [part["state"] for part in each["parts"] if part["name"] in ("clock", "store", "disk")]
        for each in nodes
    ] == [["ok"] * 3] * 2
    assert [part["name"] for part in every["parts"]] == ["group", "network"]
    assert every["parts"][1]["says"].endswith(" GB/s from node to node by one connection")
    assert every["parts"][0]["says"].startswith("4 processes add up tensors at ")
    assert list(tmp_path.iterdir()) == []
