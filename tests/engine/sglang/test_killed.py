"""A training whose rollouts lag, on a real server, killed at several moments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.resume.harness import HERE, SPEC, Moment, Place
from tests.resume.moments_of_runs import KEY, WORKING

pytestmark = [pytest.mark.sglang, pytest.mark.heavy]

LAGGING = """
reward shorter { correct(y) - len(y) / 32 tokens }

experiment lagging = small { reward = shorter, lag = 1 step }

study alone {
  engine = sglang
  arm lagging = lagging
}
"""
OPTIONS = ("--local", "--target", "alone")


MOMENTS = (
    # Once for each stage that saves, of which the last has the server.
    *(replace(moment, times=3) for moment in WORKING if moment.name == "standing_cut"),
    Moment("waiting", "os.rename", rf"/work/{KEY}/waiting", alone=True),
)


def place(folder: Path) -> Place:
    """With a reward of the length: this model is never right, and would learn nothing else."""
    folder.mkdir()
    (folder / SPEC).write_text((HERE / SPEC).read_text() + LAGGING)
    return Place(folder, options=OPTIONS)


def trained(done: Place) -> Path:
    """The result of the stage that had the server."""
    (key,) = (key for key in done.store if done.task_of(key) == "lagging.train.s1")
    return done.store.path(key)


def alike(whole: Path, killed: Path) -> None:
    """The same responses, rewards and versions of weights to the byte, and weights equal but for rounding.

    On a processor a log-probability's last bits depend on what else the server computes, and ratios divide by them.
    """
    for name in ("rollouts.parquet", "train.json"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
    one, other = (load_file(out / "checkpoint" / "model.safetensors") for out in (whole, killed))
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, atol=1e-5, rtol=0)


@pytest.mark.usefixtures("python")
def test_a_run_whose_rollouts_lag_ends_alike_after_kills(tmp_path: Path) -> None:
    """The command with its server as it saves, and alone as it keeps what the next step learns from."""
    whole, killed = place(tmp_path / "whole"), place(tmp_path / "killed")
    whole.run()
    killed.run_through(MOMENTS)
    assert set(killed.fatal()) == {moment.name for moment in MOMENTS}
    killed.assert_tidy()
    alike(trained(whole), trained(killed))
