"""GPUs by their names: which can be the same, what the driver and Ray call them, and what is said of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from reodsl.diagnostics.render import render
from reodsl.graph.lower import lower
from reodsl.ir.cluster import Cluster
from reodsl.plan.registry import Machine
from runners.execute import check as checking
from runners.execute import instance
from runners.execute.placement import RayNode, gpu_here, model_words, other_gpus
from tests.graph import studies as make


def lab(gpu: str) -> Cluster:
    return Cluster(name="lab", nodes=2, gpus_per_node=8, gpu=gpu, memory_gib=80)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA H100 80GB HBM3", {"H100"}),
        ("H800", {"H800"}),
        ("A100-80G", {"A100"}),
        ("NVIDIA A100-SXM4-40GB", {"A100", "SXM4"}),
        ("GeForce-RTX-5090", {"5090"}),
        ("Tesla V100-SXM2-16GB", {"V100", "SXM2"}),
        ("h200 141 GiB", {"H200", "141"}),
        ("a GPU", set()),
        ("", set()),
    ],
)
def test_a_name_holds_the_number_of_a_model(name: str, found: set[str]) -> None:
    assert model_words(name) == found


@pytest.mark.parametrize(
    ("said", "there", "told"),
    [
        ("H800", "H800", False),
        ("H100 SXM", "H100", False),
        ("h100", "NVIDIA H100 80GB HBM3", False),
        ("RTX 5090", "GeForce-RTX-5090", False),
        ("H800", "H100", True),
        ("H100 80GB", "A100-80G", True),
        ("anything", "H100", False),
        ("H800", "", False),
    ],
)
def test_another_kind_is_told_where_both_are_known(said: str, there: str, told: bool) -> None:
    nodes = [RayNode("head", 4, 0, "T4"), RayNode("left", 64, 8, there)]
    assert (other_gpus(lab(said), nodes, None) is not None) == told


def test_it_is_a_warning_that_says_what_depends_on_it(golden: Callable[[str, str], None]) -> None:
    nodes = [RayNode("left", 64, 8, "A100"), RayNode("right", 64, 8, "H800"), RayNode("third", 8, 1, "T4")]
    found = other_gpus(lab("H800"), nodes, "cluster `lab`")
    assert found is not None
    golden("execute/W0971.txt", render([found], {}))


def test_the_driver_tells_of_this_machines_gpus(tmp_path: Path) -> None:
    for number, name in enumerate(("NVIDIA H200", "NVIDIA T4")):
        folder = tmp_path / f"0000:0{number}:00.0"
        folder.mkdir()
        (folder / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 77\n")
    assert gpu_here(tmp_path) == "NVIDIA H200"
    assert gpu_here(tmp_path / "none") == ""


def test_ray_tells_of_its_nodes_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [
        {
            "NodeManagerHostname": "a",
            "Alive": True,
            "Resources": {"CPU": 4.0, "GPU": 2.0, "accelerator_type:A100": 1.0},
        },
        {"NodeManagerHostname": "b", "Alive": True, "Resources": {"CPU": 4.0, "memory": 9.0}},
        {"NodeManagerHostname": "c", "Alive": False, "Resources": {}},
    ]
    monkeypatch.setattr(instance, "import_ray", lambda: SimpleNamespace(nodes=lambda: there))
    assert instance.nodes() == (RayNode("a", 4.0, 2.0, "A100"), RayNode("b", 4.0, 0.0, ""))


def test_it_is_told_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make.four()
    spec = spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": lab("H800")})})
    there = (RayNode("left", 64, 8, "A100"), RayNode("right", 64, 8, "A100"))
    monkeypatch.setattr(instance, "nodes_at", lambda _: there)
    monkeypatch.setattr(checking, "ask_at", lambda _: {})
    machine = Machine(address="10.0.0.1:6379")
    (found,) = checking.check(lower(spec).tasks, spec, tmp_path, machine)
    assert (found.code, found.severity) == ("W0971", "warning")
    monkeypatch.setattr(checking, "gpus", lambda: 16)
    monkeypatch.setattr(checking, "gpu_here", lambda: "NVIDIA A100-SXM4-40GB")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    (found,) = checking.check(lower(spec).tasks, spec, tmp_path, Machine())
    assert found.message == "the spec runs on H800, but the nodes have NVIDIA A100-SXM4-40GB"
