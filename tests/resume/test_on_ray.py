"""Kills of runs on a local Ray: of all their processes, of the command alone, and of workers alone."""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.resume.conftest import finished
from tests.resume.harness import ON_RAY, SHORT, Forks, Moment, Place, assert_gone, marked, same
from tests.resume.moments_of_runs import AROUND, KEY, PUBLISHING, WORKING

pytestmark = pytest.mark.heavy


@pytest.fixture
def on_ray(tmp_path: Path) -> Place:
    """A folder for runs by `reodsl run` itself, on a Ray of its own each time."""
    return Place(tmp_path, None, ON_RAY)


def test_all_processes_are_killed(on_ray: Place, every_kind: Place) -> None:
    """As results are published, in the middle of tasks of several kinds, and at the run's own files."""
    working = {"standing_cut", "rollouts_of_a_step", "chunk", "selection", "budgets", "page"}
    around = {"record", "task_noted", "linked"}
    chosen = [*PUBLISHING, *(moment for moment in (*WORKING, *AROUND) if moment.name in working | around)]
    moments = [replace(moment, times=1) for moment in chosen]
    on_ray.run_through(moments)
    assert set(on_ray.fatal()) == {moment.name for moment in moments}
    # Two tasks at once may each come to a moment before the first of them ends all.
    assert len(moments) - 3 <= on_ray.kills <= len(moments) == 13
    print(f"{on_ray.kills} kills on Ray at {sorted(on_ray.fatal())}")
    on_ray.assert_tidy()
    same(every_kind.contents(), on_ray.contents())


def test_a_worker_is_killed_and_another_takes_its_task(on_ray: Place, every_kind: Place) -> None:
    """The run itself goes on, and what the worker had saved is not done again."""
    names = {"standing_cut", "chunk", "selection", "frontier", "budgets", "tables"}
    moments = [replace(moment, alone=True) for moment in WORKING if moment.name in names]
    running = on_ray.start(moments)
    assert running.wait() == 0, running.text
    assert_gone(running.mark)
    assert set(on_ray.fatal()) == names
    on_ray.assert_tidy()
    same(every_kind.contents(), on_ray.contents())


@pytest.mark.parametrize("alone", [False, True])
def test_rollouts_that_lag_are_killed_at_every_phase(tmp_path: Path, forks: Forks, alone: bool) -> None:
    """All processes, or the worker alone: as it keeps rollouts, what waits for later steps and the state, and publishes."""
    amends = ("--amend", "vanilla.lag=1 step")
    whole = finished(tmp_path / "whole", forks, (*SHORT, *amends))
    place = Place(tmp_path / "killed", None, (*SHORT[1:], *amends))
    names = {"standing_cut", "standing", "rollouts_of_a_step", "checkpoint", "metrics", "before_it_is_seen"}
    moments = [
        *(each for each in (*PUBLISHING, *WORKING) if each.name in names),
        Moment("waiting", "os.rename", rf"/work/{KEY}/waiting", 3),
    ]
    place.run_through([replace(each, times=1, alone=alone) for each in moments])
    assert set(place.fatal()) == {*names, "waiting"}
    place.assert_tidy()
    same(whole.contents(), place.contents())


def test_each_of_two_trainers_is_killed_as_they_save(on_ray: Place, every_kind: Place) -> None:
    """The stage begins again with two others, and goes on from what both had saved."""
    shutil.copytree(every_kind.store.root, on_ray.store.root)
    keys = {on_ray.task_of(key): key for key in on_ray.store}
    on_ray.store.remove(keys["sharded.train.s1"])
    # A third end before anything is saved would be the task's.
    names = {"shard", "index_of_shards", "older_shards"}
    moments = [replace(moment, alone=True) for moment in WORKING if moment.name in names]
    on_ray.run_through(moments)
    assert on_ray.fatal() == {moment.name: {"train"} for moment in moments}
    on_ray.assert_tidy()
    same(every_kind.contents(), on_ray.contents())


def test_a_run_needs_no_home(tmp_path: Path, untouched: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the command, nor Ray, nor a worker writes there: nothing can be made in it, whoever tries."""
    monkeypatch.setenv("HOME", "/dev/null/home")
    for name in list(os.environ):
        if name.startswith(("XDG_", "HF_", "RAY_")):
            monkeypatch.delenv(name)
    place = Place(tmp_path, None, SHORT[1:])
    place.run()
    place.assert_tidy()
    same(untouched.contents(), place.contents())


def test_the_command_alone_is_killed_and_its_workers_go_with_it(on_ray: Place, every_kind: Place) -> None:
    """As when memory runs out: nobody tells Ray, and the same command comes at once, with workers not gone yet."""
    draw = random.Random(4)
    while on_ray.kills < 6:
        running = on_ray.start()
        running.until("start    ")
        time.sleep(draw.uniform(0.0, 8.0))
        assert marked(running.mark)
        if running.kill(alone=True) == 0:
            break
        on_ray.kills += 1
        on_ray.assert_whole()
    assert on_ray.kills >= 3
    on_ray.run()
    for running in on_ray.runs:
        # An agent of Ray that lost its node asks for its cluster for a minute before it ends.
        assert_gone(running.mark, within=180)
    on_ray.assert_tidy()
    same(every_kind.contents(), on_ray.contents())
