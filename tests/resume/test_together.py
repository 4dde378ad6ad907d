"""Two runs at once on one store: neither hurts the other, and what both need is computed once."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from reodsl.cli.main import main
from tests.resume.harness import EVERY_KIND, HERE, ON_RAY, SPEC, Place, Running, assert_gone, same
from tests.resume.moments_of_runs import AT_A_CHECKPOINT

pytestmark = pytest.mark.slow

SHARED = "start.train.one.s1"
WAITING = f"waiting  {SHARED}  another run computes it"


def both_end(*runs: Running) -> list[str]:
    """All tasks that were computed, by whichever run."""
    for run in runs:
        assert run.wait() == 0, run.text
        assert_gone(run.mark)
    return [task for run in runs for task in run.made()]


@pytest.mark.heavy
def test_the_second_waits_for_the_first_and_computes_nothing_twice(place: Place, untouched: Place) -> None:
    first = place.stopped(AT_A_CHECKPOINT)
    second = place.start()
    second.until(WAITING)
    assert second.text.count(f"start    {SHARED}") == 1
    first.go_on()
    made = both_end(first, second)
    assert sorted(made) == sorted(set(made)) == sorted(untouched.runs[0].made())
    assert SHARED in first.made()
    place.assert_tidy()
    same(untouched.contents(), place.contents())


def test_the_second_takes_over_from_a_first_that_dies(place: Place, untouched: Place) -> None:
    first = place.stopped(AT_A_CHECKPOINT)
    second = place.start()
    second.until(WAITING)
    first.kill()
    assert set(both_end(second)) | set(first.made()) == set(untouched.runs[0].made())
    assert second.text.index(WAITING) < second.text.rindex(f"start    {SHARED}")
    place.run()
    place.assert_tidy()
    same(untouched.contents(), place.contents())


def overlapping(place: Place) -> None:
    """Another spec there, whose arm `selected` trains for a step less, and so fast that it answers otherwise; the rest is
    shared.
    """
    text = (HERE / SPEC).read_text()
    quicker = "  steps      = 2 steps\n  optim { lr = 1e-2 }"
    other = text.replace("  steps      = 3 steps", quicker, 1).replace("study short", "study other")
    assert other != text
    (place.folder / "other.reo").write_text(other)


OTHER = ("--target", "other")
DIFFERING = ["selected.train.s1", "selected.eval.s1", "score.s1", "report"]


@pytest.mark.heavy
def test_specs_that_overlap_share_what_they_have_in_common(place: Place, untouched: Place) -> None:
    overlapping(place)
    runs = [place.start(), place.start((), *OTHER, spec="other.reo", out="other")]
    made = both_end(*runs)
    assert sorted(made) == sorted([*untouched.runs[0].made(), *DIFFERING])
    place.run()
    ours = {name: data for name, data in place.contents().items() if name in untouched.contents()}
    same(untouched.contents(), ours)


def command(*arguments: str | Path) -> None:
    """A command on the store that ends well, in this process."""
    try:
        code = main([*map(str, arguments)])
    except SystemExit as ended:
        code = ended.code
    assert not code


@pytest.mark.heavy
def test_tidying_up_and_accepting_while_a_run_goes_on(place: Place, untouched: Place) -> None:
    """What it has not come to yet is named by the run before it alone, and stays."""
    overlapping(place)
    shutil.copytree(untouched.store.root, place.store.root)
    keys = {place.task_of(key): key for key in place.store}
    place.store.remove(keys["vanilla.train.s1"])
    running = place.stopped(AT_A_CHECKPOINT)
    store = ("--store", place.store.root)
    command("gc", *store, "--yes")
    told = ("--because", "a step less is as good", "--result", keys["selected.train.s1"], *OTHER)
    command("accept", place.folder / "other.reo", "selected.train.s1", *told, *store)
    command("gc", *store, "--yes")
    running.go_on()
    assert both_end(running) == ["vanilla.train.s1"]
    other = place.run(*OTHER, spec="other.reo", out="other")
    assert other.made() == ["report"]
    place.run()
    ours = {name: data for name, data in place.contents().items() if name in untouched.contents()}
    same(untouched.contents(), ours)
    place.assert_whole()


@pytest.mark.heavy
def test_many_runs_that_are_killed_and_started_again(place: Place, every_kind: Place) -> None:
    """Four at once on a store that none of them has made yet; one dies every other second, and another takes its place."""
    place.options = EVERY_KIND
    draw = random.Random(3)
    runs = [place.start() for _ in range(4)]
    for _ in range(12):
        time.sleep(draw.uniform(0.2, 2.0))
        which = draw.randrange(4)
        runs[which].kill()
        runs[which] = place.start()
    both_end(*runs)
    place.run()
    place.assert_tidy()
    same(every_kind.contents(), place.contents())


@pytest.mark.heavy
def test_ten_at_once_while_one_is_killed_and_results_are_tidied_up(place: Place, untouched: Place) -> None:
    """Five runs of each of two specs that overlap: every task is computed once, and that of the dead one by another."""
    overlapping(place)
    draw = random.Random(5)
    victim = place.stopped(AT_A_CHECKPOINT, out="out0")
    runs = [
        place.start((), *(OTHER if n % 2 else ()), spec="other.reo" if n % 2 else SPEC, out=f"out{n}")
        for n in range(1, 10)
    ]
    for run in runs:
        run.until(WAITING)
    command("gc", "--store", place.store.root, "--yes")
    victim.kill()
    for _ in range(4):
        command("gc", "--store", place.store.root, "--yes")
        time.sleep(draw.uniform(0.5, 2.0))
    made = [*both_end(*runs), *victim.made()]
    assert sorted(made) == sorted([*untouched.runs[0].made(), *DIFFERING])
    shutil.rmtree(place.folder / "out", ignore_errors=True)
    place.run()
    ours = {name: data for name, data in place.contents().items() if name in untouched.contents()}
    same(untouched.contents(), ours)
    place.assert_whole()


@pytest.mark.heavy
def test_one_in_a_process_and_one_on_ray(tmp_path: Path, every_kind: Place) -> None:
    place = Place(tmp_path, every_kind.forks, EVERY_KIND)
    on_ray = Place(tmp_path, None, ON_RAY)
    runs = [on_ray.start(out="ray"), place.start()]
    made = both_end(*runs)
    assert sorted(made) == sorted(every_kind.runs[0].made())
    place.assert_tidy()
    same(every_kind.contents(), place.contents())
