"""A run that is killed ends, after the same command, with the bytes of one that nobody touched."""

from __future__ import annotations

import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from reodsl import load
from reodsl.graph.lower import lower
from reodsl.graph.task import VERSIONS
from tests.resume.conftest import finished
from tests.resume.harness import EVERY_KIND, HERE, SHORT, SPEC, Forks, Moment, Place, assert_gone, same
from tests.resume.moments_of_runs import AROUND, KEY, PUBLISHING, WORKING

pytestmark = pytest.mark.slow


def test_the_spec_has_every_kind_of_task() -> None:
    assert {task.kind for task in lower(load(HERE / SPEC, target="every_kind").spec).tasks} == set(VERSIONS)


def test_a_killed_run_ends_like_one_that_nobody_touched(place: Place, untouched: Place) -> None:
    """A few moments; `make heavy` has all."""
    few = {"before_it_is_seen", "standing_cut", "rollouts_of_a_step", "chunk", "task_noted", "linked"}
    moments = [replace(m, times=1) for m in (*PUBLISHING, *WORKING, *AROUND) if m.name in few]
    place.run_through(moments)
    assert set(place.fatal()) == few
    place.assert_tidy()
    same(untouched.contents(), place.contents())


@pytest.mark.heavy
def test_damage_is_found_on_reading_and_made_anew(place: Place, untouched: Place) -> None:
    """One bit of the weights that others start from, when one of those is to be made again."""
    place.run()
    keys = {place.task_of(key): key for key in place.store}
    weights = place.store.path(keys["start.train.two.s1"]) / "checkpoint" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.chmod(0o644)
    weights.write_bytes(data)
    place.store.remove(keys["vanilla.eval.s1"])
    place.store.remove(keys["vanilla.train.s1"])
    running = place.run()
    assert "damaged  start.train.two.s1  computing it again" in running.text
    assert running.made() == ["start.train.two.s1", "vanilla.train.s1", "vanilla.eval.s1"]
    place.assert_tidy()
    same(untouched.contents(), place.contents())


@pytest.mark.heavy
def test_every_task_may_be_killed_at_every_moment(place: Place, every_kind: Place) -> None:
    """Each of some 35 tasks at four moments of its publishing and wherever its kind writes, and the run around them."""
    place.options = EVERY_KIND
    moments = (*(replace(m, times=10**6) for m in (*PUBLISHING, *WORKING)), *AROUND)
    place.run_through(moments)
    fatal = place.fatal()
    assert set(fatal) == {moment.name for moment in moments}
    for moment in PUBLISHING[:3]:
        assert fatal[moment.name] == set(VERSIONS)
    for name in ("standing_cut", "shard_cut", "index_of_shards"):
        assert fatal[name] == {"train"}
    assert fatal["chunk"] == {"sample", "evaluate"}
    print(f"{place.kills} kills at {len(fatal)} moments")
    place.assert_tidy()
    same(every_kind.contents(), place.contents())


@pytest.mark.heavy
def test_a_run_whose_rollouts_lag_may_be_killed_at_every_moment(
    place: Place, forks: Forks, tmp_path: Path
) -> None:
    """While one thread generates what the next step learns from: as that is kept, and wherever training writes."""
    options = (*SHORT, "--amend", "vanilla.lag=1 step")
    whole = finished(tmp_path / "whole", forks, options)
    place.options = options
    names = {"standing_cut", "standing", "rollouts_of_a_step", "checkpoint", "metrics", "before_it_is_seen"}
    moments = [replace(each, times=2) for each in (*PUBLISHING, *WORKING) if each.name in names]
    moments += [
        Moment(f"waiting_{event}", f"os.{event}", rf"/work/{KEY}/waiting", 3) for event in ("rename", "mkdir")
    ]
    place.run_through(moments)
    assert {*names, "waiting_rename"} <= set(place.fatal())
    place.assert_tidy()
    same(whole.contents(), place.contents())


@pytest.mark.heavy
def test_two_processes_may_be_killed_as_they_save(place: Place, every_kind: Place) -> None:
    """In the middle of a shard's file, before a shard counts, before the index does, and before the older shards go."""
    place.options = EVERY_KIND
    shutil.copytree(every_kind.store.root, place.store.root)
    keys = {place.task_of(key): key for key in place.store}
    place.store.remove(keys["sharded.train.s1"])
    moments = [moment for moment in WORKING if "shard" in moment.name]
    place.run_through(moments)
    assert place.fatal() == {moment.name: {"train"} for moment in moments}
    # A run outlives the death of its second process, and goes on with another.
    assert place.kills >= 1
    place.assert_tidy()
    same(every_kind.contents(), place.contents())


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_may_be_killed_at_any_time(place: Place, every_kind: Place, seed: int) -> None:
    """At 40 random times, with all its processes or alone, by a clock that knows nothing of what happens."""
    place.options = EVERY_KIND
    draw = random.Random(seed)
    while place.kills < 40:
        running = place.start()
        time.sleep(draw.uniform(0.02, 1.5))
        code = running.kill(alone=draw.random() < 0.5)
        if code == 0:
            # It came to its end: from the beginning, to kill it more.
            place.assert_tidy()
            same(every_kind.contents(), place.contents())
            shutil.rmtree(place.store.root)
            shutil.rmtree(place.folder / "out")
            continue
        assert code == -signal.SIGKILL, running.text
        place.kills += 1
        assert_gone(running.mark)
        place.assert_whole()
    place.run()
    place.assert_tidy()
    same(every_kind.contents(), place.contents())
