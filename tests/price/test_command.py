"""Prices on the command line: in the plan, as JSON, and the refusal of what costs more than its limit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.called import call

ROOT = Path(__file__).resolve().parents[2]
PAPER = str(ROOT / "specs" / "qwen3_4b_reo_exp.reo")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def test_the_plan_of_the_papers_run_shows_its_price(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plan", PAPER, "--store", store) == 2
    out = capsys.readouterr().out
    assert "A step of qwen3_4b_reo_exp.train.s1: 16.2 gpu_hours on 16 x 8 H800 (generation" in out
    assert "4K gpu_hours buy 247 of these steps; the spec has 240" in out
    assert out.splitlines()[-1].startswith("Plan: 12 run. 3.98K gpu_hours now, at most 3.98K of 4K")
    assert "prefix tokens read again" not in out
    # 3.98K GPU hours on 128 GPUs, nearly all of them the one training.
    assert (
        "From start to report: at least 1d 7h on 128 GPUs; the longest chain of tasks alone takes 1d 6h."
        in out
    )


def test_all_shows_every_tasks_tokens_and_memory(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    call("plan", PAPER, "--store", store, "--all")
    out = capsys.readouterr().out
    assert "5.03G tokens generated, 71.7M forced, 10.1G trained, 2.02M answers checked" in out
    assert "peak memory trainer 20.4 GiB, engine 31.7 GiB, disk 48.3 GB" in out


def test_the_json_has_the_same_numbers(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    call("plan", PAPER, "--store", store, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    hours = sum(task["price"]["gpu_hours"] for task in found["tasks"])
    assert found["price"]["hours_now"] == pytest.approx(hours)
    assert found["price"]["limit"] == 4000
    assert found["price"]["unit"] == "gpu_hours"
    train = next(task for task in found["tasks"] if task["id"] == "qwen3_4b_reo_exp.train.s1")
    assert sum(train["price"]["gpu_hours_per_step"].values()) == pytest.approx(16.2, rel=0.01)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_more_than_the_limit_is_refused(
    command: str, store: str, capsys: pytest.CaptureFixture[str], refusal: Callable[..., None]
) -> None:
    assert call(command, PAPER, "--store", store, "--amend", "qwen3_4b_reo_exp.steps=800") == 1
    # A run says first how many tasks it has.
    err = re.sub(r"\A\[0/12\] plan .*\n", "", capsys.readouterr().err)
    refusal("commands/E0610.txt", err, (PAPER, "SPEC"))
    steps = re.search(r"(\d+) steps of qwen3_4b_reo_exp.train.s1 would fit", err)
    assert steps is not None
    assert re.search(r"specs/qwen3_4b_reo_exp.reo:\d+", err)
    assert not Path(store).exists()
    # So many do fit, and one more does not.
    for more, code in ((0, 2), (1, 1)):
        amend = f"qwen3_4b_reo_exp.steps={int(steps[1]) + more}"
        assert call("plan", PAPER, "--store", store, "--amend", amend) == code
    assert not Path(store).exists()


def test_a_limit_of_the_command_line_is_named_as_it_was_given(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("plan", PAPER, "--store", store, "--amend", "limit=100") == 1
    assert "--> --amend limit=100\n" in capsys.readouterr().err


def test_prices_stand_in_one_column(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    call("plan", str(ROOT / "specs" / "quickstart.reo"), "--store", store)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  + ")]
    priced = [line for line in rows if re.search(r" \d+s$", line)]
    assert len({len(line) for line in priced}) == 1
    assert len(priced) > 10
