"""What running tasks leave for those who look on: steps that are never read half, and how far a task is."""

from __future__ import annotations

import json
import math
from pathlib import Path

from reodsl.graph.job import Progress
from reodsl.store.live import STEPS, Teller, add_step, begin_steps, can_go_on, read_live, read_steps


def test_steps_are_read_as_they_were_written(tmp_path: Path) -> None:
    work = tmp_path / "key"
    begin_steps(work, [])
    assert not work.exists()
    for step in (1, 2, 3):
        add_step(work, {"step": step, "loss": 1 / step})
    assert read_steps(work) == [
        {"step": 1, "loss": 1.0},
        {"step": 2, "loss": 0.5},
        {"step": 3, "loss": 1 / 3},
    ]
    assert not can_go_on(work)
    (work / "state").write_text("")
    assert can_go_on(work)


def test_a_line_that_was_cut_off_is_not_read(tmp_path: Path) -> None:
    add_step(tmp_path, {"step": 1, "loss": 1.0})
    whole = json.dumps({"step": 2, "loss": 0.25})
    for cut in range(len(whole) + 1):
        with (tmp_path / STEPS).open("a") as file:
            file.write(whole[:cut])
        assert [row["step"] for row in read_steps(tmp_path)] == [1]
        begin_steps(tmp_path, [{"step": 1, "loss": 1.0}])


def test_an_attempt_that_goes_on_begins_with_the_steps_it_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        add_step(tmp_path, {"step": step, "loss": 0.0})
    begin_steps(tmp_path, [{"step": 1, "loss": 9.0}, {"step": 2, "loss": 9.0}])
    add_step(tmp_path, {"step": 3, "loss": 9.0})
    assert [row["loss"] for row in read_steps(tmp_path)] == [9.0, 9.0, 9.0]
    begin_steps(tmp_path, [])
    assert read_steps(tmp_path) == []


def test_other_files_and_numbers_that_are_none(tmp_path: Path) -> None:
    assert read_steps(tmp_path) == []
    add_step(tmp_path, {"step": 1, "loss": math.nan})
    assert math.isnan(read_steps(tmp_path)[0]["loss"])
    (tmp_path / STEPS).write_text("[1]\nnothing\n")
    assert read_steps(tmp_path) == []
    (tmp_path / STEPS).write_bytes(b"\xff\xfe\n")
    assert read_steps(tmp_path) == []
    (tmp_path / "file").write_text("")
    add_step(tmp_path / "file", {"step": 1})


def test_how_far_a_task_is(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    assert read_live(tmp_path, "k") is None
    teller = Teller(tmp_path, "k", "a.train.s1")
    found = read_live(tmp_path, "k")
    assert found is not None
    assert (found.task, found.progress) == ("a.train.s1", None)
    teller.tell(Progress(2, 2, {"reward": 0.5}))
    found = read_live(tmp_path, "k")
    assert found is not None
    assert found.progress == Progress(2, 2, {"reward": 0.5})
    (tmp_path / "live" / "k.json").write_text('{"task": "a"')
    assert read_live(tmp_path, "k") is None
    # A store that is gone is for the result to complain of.
    Teller(tmp_path / "none", "k", "a").tell(Progress(1, 1))
