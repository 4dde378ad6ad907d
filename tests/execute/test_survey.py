"""The survey: what is installed with its version, and every way in which torch and SGLang can be missing."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from reodsl.plan.registry import MachinePart
from runners.execute import survey as surveying
from runners.execute.survey import survey
from tests.engine.sglang.environments import python_with

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REODSL_SGLANG_PYTHON", "/nowhere/bin/python")


def parts() -> dict[str, MachinePart]:
    return {part.name: part for part in survey()}


def answers(monkeypatch: pytest.MonkeyPatch, told: object) -> None:
    monkeypatch.setattr(surveying, "_run_code", lambda python, code: told)


def test_this_machine_runs_specs() -> None:
    found = parts()
    assert {name: part.state for name, part in found.items() if part.needed} == dict.fromkeys(
        ("torch", "transformers", "safetensors", "polars", "math-verify", "ray"), "ok"
    )
    assert version("torch") in found["torch"].says
    assert found["transformers"].says == version("transformers")


def test_what_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = parts()
    del found["sandbox"]  # the kernel's
    assert {part.state for part in found.values()} == {"missing"}
    assert all(part.help for part in found.values())
    assert not found["sglang"].needed


def test_a_torch_that_does_not_import_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "_TORCH", "raise ImportError('libcudart.so.13 is not there')")
    found = parts()["torch"]
    assert found.state == "broken"
    assert "libcudart.so.13 is not there" in found.says


def test_devices_are_counted_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, ["2.13.0", "13.0", [["NVIDIA H200", 141 * 2**30]] * 8, "torch multiplies", None])
    assert parts()["torch"].says == "2.13.0, 8 x NVIDIA H200, 141 GiB"


def test_a_wrong_library_of_products_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "multiplies" in parts()["torch"].says
    monkeypatch.setenv("REODSL_PRODUCTS", "mkl")
    found = parts()["torch"]
    assert (found.state, "`mkl` is not a library" in found.says) == ("broken", True)
    assert "REODSL_PRODUCTS=onednn" in (found.help or "")


def test_a_torch_that_sees_no_gpu_where_there_is_one_is_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers(monkeypatch, ["2.13.0+cpu", None, [], "torch multiplies", None])
    real = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda self, text: [Path("/dev/nvidia0")] if text == "nvidia*" else real(self, text)
    )
    found = parts()["torch"]
    assert found.state == "broken"
    assert found.says == "2.13.0+cpu cannot use the GPU here: it was built without CUDA"
    assert "constraints/cuda.txt" in (found.help or "")


def test_sglang_is_found_in_its_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert surveying._find_sglang().state == "missing"
    python = tmp_path / ".venv-sglang" / "bin" / "python"
    (tmp_path / ".venv-sglang" / "lib" / "python3.11" / "site-packages" / "sglang").mkdir(parents=True)
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setenv("REODSL_SGLANG_PYTHON", str(python))
    monkeypatch.setattr(
        surveying, "_SGLANG", "import json; print('hello'); print(json.dumps(['0.5.23', '2.13.0']))"
    )
    assert surveying._find_sglang().says == f"0.5.23 with torch 2.13.0, in {tmp_path / '.venv-sglang'}"
    monkeypatch.setattr(surveying, "_SGLANG", "raise SystemExit(3)")
    assert surveying._find_sglang() == MachinePart(
        "sglang", "broken", f"{python} does not run: exit code 3", "make sglang", needed=False
    )


@pytest.mark.parametrize("there", [True, False])
def test_what_lets_servers_give_memory_back_is_named_where_there_is_a_gpu(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = python_with(tmp_path, *("sglang", "torch_memory_saver")[: 2 if there else 1])
    monkeypatch.setenv("REODSL_SGLANG_PYTHON", str(python))
    monkeypatch.setattr(surveying, "shown_gpus", lambda: 0)
    assert surveying._find_saver() == ()
    monkeypatch.setattr(surveying, "shown_gpus", lambda: 1)
    (found,) = surveying._find_saver()
    assert (found.state, found.needed) == ("ok" if there else "missing", False)
    assert (found.help is None) == there
    assert there or f"{python} -P -m pip install torch_memory_saver" in (found.help or "")


def test_what_confines_answers_is_named_or_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "lacking", lambda: "the kernel (4.4) has no Landlock")
    sandbox = parts()["sandbox"]
    assert (sandbox.state, sandbox.needed) == ("missing", False)
    assert "refused" in sandbox.says
    assert sandbox.help is not None
    assert "--without-sandbox" in sandbox.help
