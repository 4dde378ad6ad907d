"""`doctor` on machines that are described: what it says of them, of specs that fit and do not, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reodsl.cli.doctor import fit
from reodsl.diagnostics import Problem, problem, warning
from reodsl.plan.registry import Machine, MachinePart, Registry
from reodsl.price import machine
from reodsl.price.machine import Measures
from runners.engine.sglang.settings import REMEDY
from runners.execute import check as checking
from runners.execute.placement import RayNode
from runners.registry import REGISTRY
from tests.called import call

ROOT = Path(__file__).resolve().parent.parent.parent
LAPTOP = Measures(cores=2, memory=8 * 2**30, disk=40 * 10**9)
PARTS = (
    MachinePart("torch", "ok", "2.13.0, on the processor: this machine has no GPU"),
    MachinePart("ray", "ok", "2.60.0"),
    MachinePart("sglang", "missing", "not installed", REMEDY, needed=False),
)


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with specs on a small machine without a GPU, weights or data."""
    for name in ("quickstart.reo", "qwen3_4b_reo_exp.reo"):
        place = tmp_path / "specs" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text((ROOT / "specs" / name).read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("REODSL_SGLANG_PYTHON", str(tmp_path / "none"))
    monkeypatch.setattr(checking, "gpus", lambda: 0)
    monkeypatch.setattr(checking, "shown_gpus", lambda: 0)
    monkeypatch.setattr("reodsl.cli.doctor.measure", lambda place: LAPTOP)
    monkeypatch.setattr("platform.python_version", lambda: "3.11.7")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    runners(monkeypatch, PARTS)
    return tmp_path


def runners(monkeypatch: pytest.MonkeyPatch, parts: tuple[MachinePart, ...]) -> None:
    found = replace(REGISTRY, survey=lambda: parts)
    monkeypatch.setattr("reodsl.cli.doctor.load_registry", lambda: found)


@pytest.mark.usefixtures("laptop")
@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("overview", (), 0),
        ("one", ("specs/qwen3_4b_reo_exp.reo",), 1),
        ("fits", ("specs/quickstart.reo",), 0),
    ],
)
def test_looks_as_it_did(
    name: str,
    arguments: tuple[str, ...],
    code: int,
    golden: Callable[[str, str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("doctor", *arguments) == code
    golden(f"doctor/{name}.txt", capsys.readouterr().out)


@pytest.mark.usefixtures("laptop")
def test_nodes_look_as_they_did(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Path, str | None]] = []
    fine = {"left": (MachinePart("driver", "ok", "580.65.06"), MachinePart("compiler", "ok", "gcc 12.2.0"))}
    lacking = {
        "right": (MachinePart("driver", "broken", "the kernel has loaded no driver", "install driver 580"),)
    }

    def probing(found: dict[str, tuple[MachinePart, ...]]) -> None:
        probe = lambda store, address: asked.append((store, address)) or found  # noqa: E731
        monkeypatch.setattr("reodsl.cli.doctor.load_registry", lambda: replace(REGISTRY, probe=probe))

    probing(fine)
    assert call("doctor", "--node", "--address", "auto", "--store", "shared") == 0
    probing(fine | lacking)
    assert call("doctor", "--node") == 1
    golden("doctor/node.txt", capsys.readouterr().out)
    assert asked == [(Path("shared"), "auto"), (Path(".reodsl"), None)]


@pytest.mark.usefixtures("laptop")
def test_json_has_every_lack_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("doctor", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ready"] is True
    assert {part["name"]: part["state"] for part in told["parts"]}["sglang"] == "missing"
    fits = {each["path"]: (each["fits"], {lack["code"] for lack in each["lacks"]}) for each in told["specs"]}
    assert fits == {
        "specs/quickstart.reo": (True, set()),
        "specs/qwen3_4b_reo_exp.reo": (False, {"E0820", "E0971", "E0850", "E0973"}),
    }


def test_a_missing_part_that_every_run_needs_fails(
    laptop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runners(monkeypatch, (MachinePart("torch", "broken", "cannot be imported", "install it again"),))
    assert call("doctor") == 1
    told = capsys.readouterr().out
    assert "- torch      cannot be imported" in told
    assert "install it again  (for torch)" in told


def test_without_runners_it_still_tells_the_rest(
    laptop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> Registry:
        raise problem("E0121", "no runners are installed", help="pip install 'reodsl[run]'")

    monkeypatch.setattr("reodsl.cli.doctor.load_registry", none)
    assert call("doctor", "specs/quickstart.reo") == 1
    told = capsys.readouterr().out
    assert "- runners    no runners are installed" in told
    assert "pip install 'reodsl[run]'  (for runners)" in told


def test_memory_and_disk_are_compared_with_what_the_spec_needs(
    laptop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refusal: Callable[..., None],
) -> None:
    little = Measures(cores=1, memory=2**20, disk=10**6)
    monkeypatch.setattr("reodsl.cli.doctor.measure", lambda place: little)
    assert call("doctor", "specs/quickstart.reo", "--json") == 1
    (told,) = json.loads(capsys.readouterr().out)["specs"]
    assert [lack["code"] for lack in told["lacks"]] == ["E0973", "E0973"]
    lacks = fit(Path("specs/quickstart.reo"), REGISTRY, little, Machine()).lacks
    for name, lack in zip(("E0973", "E0973-disk"), lacks, strict=True):
        refusal(f"doctor/{name}.txt", Problem(lack))


def test_a_spec_with_errors_does_not_fit(laptop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (laptop / "wrong.reo").write_text("experiment a = nothing { }\n")
    assert call("doctor", "wrong.reo", "--json") == 1
    (told,) = json.loads(capsys.readouterr().out)["specs"]
    assert told["lacks"][0]["code"].startswith("E02")
    assert call("doctor", "none.reo") == 1


@pytest.mark.usefixtures("laptop")
def test_what_is_said_of_a_spec_is_what_a_run_would_refuse_it_for() -> None:
    from reodsl.graph.lower import lower
    from reodsl.language import compile_file

    spec = compile_file("specs/qwen3_4b_reo_exp.reo").spec
    assert spec is not None
    refused = REGISTRY.check(lower(spec).tasks, spec, Path("specs"), Machine())
    lacks = fit(Path("specs/qwen3_4b_reo_exp.reo"), REGISTRY, replace(LAPTOP, disk=10**12), Machine()).lacks
    assert [each.code for each in lacks] == [each.code for each in refused]


@pytest.mark.usefixtures("laptop")
def test_an_address_without_a_cluster_and_a_store_that_is_none_do_not_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("doctor", "specs/quickstart.reo", "--address", "nowhere") == 1
    assert "`nowhere` is not an address of a Ray cluster" in capsys.readouterr().out
    Path("taken").write_text("mine")
    assert call("doctor", "specs/quickstart.reo", "--store", "taken") == 1
    assert "this folder cannot be used as a store: it is a file" in capsys.readouterr().out
    Path("bare").mkdir()
    assert call("doctor", "bare") == 1
    assert "error[E0101]: no .reo file in this folder" in capsys.readouterr().err


def test_a_ray_clusters_room_is_looked_at(
    laptop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    there = tuple(RayNode(f"node{number}", 64, 8) for number in range(15))
    monkeypatch.setattr("runners.execute.instance.nodes_at", lambda address: asked.append(address) or there)
    assert call("doctor", "specs/qwen3_4b_reo_exp.reo", "--address", "10.0.0.7:6379", "--json") == 1
    (told,) = json.loads(capsys.readouterr().out)["specs"]
    messages = [lack["message"] for lack in told["lacks"] if lack["code"] == "E0971"]
    assert messages == ["the spec runs on 16 x 8 H800, and the Ray cluster has 120 GPUs"]
    assert asked == ["10.0.0.7:6379"]


def test_other_gpus_than_the_specs_are_told_and_do_not_keep_it_from_fitting(
    laptop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = (warning("W0971", "the GPUs there are A100", help="say what there is"),)
    found = replace(REGISTRY, survey=lambda: PARTS, check=lambda *asked: told)
    monkeypatch.setattr("reodsl.cli.doctor.load_registry", lambda: found)
    assert call("doctor", "specs/quickstart.reo") == 0
    out = capsys.readouterr().out
    assert "+ specs/quickstart.reo  fits\n      the GPUs there are A100" in out
    assert "say what there is  (for specs/quickstart.reo)" in out
    assert call("doctor", "specs/quickstart.reo", "--json") == 0
    (spec,) = json.loads(capsys.readouterr().out)["specs"]
    assert (spec["fits"], [each["code"] for each in spec["lacks"]]) == (True, ["W0971"])
    assert call("doctor") == 0
    assert "+ specs/quickstart.reo" in capsys.readouterr().out


def test_a_container_has_the_memory_it_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = machine.measure(tmp_path / "not" / "yet").memory
    (tmp_path / "max").write_text("1048576\n")
    monkeypatch.setattr(machine, "_LIMITS", (str(tmp_path / "none"), str(tmp_path / "max")))
    assert machine.measure(tmp_path).memory == 2**20 < whole
    (tmp_path / "max").write_text("max\n")
    assert machine.measure(tmp_path).memory >= whole


def test_a_model_folder_that_is_not_there_is_named(laptop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = laptop / "mine.reo"
    spec.write_text(
        "from std.miniature import chain_suite\n"
        'model mine { source = folder("weights/mine"), context = 256 tokens }\n'
        "study look { arm mine = mine { eval = chain_suite } }\n"
    )
    assert call("doctor", "mine.reo") == 1
    assert "weights/mine: there is no model folder here\n" in capsys.readouterr().out
