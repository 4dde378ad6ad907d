"""Runs with trackers, each the real package, offline: what it has in the end, after a resume too, and when it fails."""

from __future__ import annotations

import importlib.util
import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.diagnostics.render import render
from reodsl.graph.job import Event, Progress
from reodsl.graph.task import Graph, Task
from reodsl.store.live import TRACKED, add_step, begin_steps
from reodsl.store.store import Store
from reodsl.track import trackers as trackers_module
from reodsl.track.trackers import Trackers, _SentSteps, chosen, read_trackers
from reodsl.track.worker import SINKS, TrackedTask, work
from tests.bad_input.commands import SPEC
from tests.called import call

pytestmark = pytest.mark.slow

KEY = "ab" * 32


def need(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: make trackers")


@pytest.fixture
def place(tmp_path: Path, undrawn: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small spec, where every tracker keeps what it gets, and no network."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }.items():
        monkeypatch.setenv(name, value)
    Path("tiny.reo").write_text(SPEC)
    return tmp_path


# What a tracker has of a run: its steps' rewards in their order, by run, read with its own means.
def of_tensorboard(place: Path) -> dict[str, list[float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for folder in (place / ".reodsl" / "tensorboard").glob("*/*train*"):
        events = EventAccumulator(str(folder))
        events.Reload()
        # Files of one second are read in the order of their processes' numbers.
        rows = sorted(events.Scalars("reward"), key=lambda each: each.step)
        found[folder.name] = [each.value for each in rows]
    return found


def of_trackio(place: Path) -> dict[str, list[float]]:
    code = (
        "import trackio, json; api = trackio.Api();"
        "from trackio.sqlite_storage import SQLiteStorage as S;"
        "found = {run: [row['reward'] for row in S.get_logs(p, run) if 'reward' in row]"
        " for p in S.get_projects() for run in S.get_runs(p)};"
        "print(json.dumps({k: v for k, v in found.items() if 'train' in k}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(out.stdout.strip().splitlines()[-1]))


def of_wandb(place: Path) -> dict[str, list[float]]:
    from wandb.proto import wandb_internal_pb2

    found: dict[str, list[float]] = {}
    for path in sorted(place.glob("wandb/offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime):
        name, values = "", []
        for data in wandb_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                name = f"{record.run.display_name}-{record.run.run_id}"
            if record.HasField("history"):
                values += [
                    json.loads(item.value_json)
                    for item in record.history.item
                    if item.key == "reward" or list(item.nested_key) == ["reward"]
                ]
        if "train" in name:
            found.setdefault(name, []).extend(values)
    return found


def wandb_records(data: bytes) -> list[bytes]:
    """The records of an offline run: LevelDB's log format after a head of seven bytes, in blocks of 32 KiB."""
    found, part, at = [], b"", 7
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            found.append(part)
            part = b""
    return found


READ: dict[str, Callable[[Path], dict[str, list[float]]]] = {
    "tensorboard": of_tensorboard,
    "trackio": of_trackio,
    "wandb": of_wandb,
}


@pytest.mark.parametrize("name", SINKS)
def test_a_run_is_in_the_tracker(name: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    need(name)
    assert call("run", "tiny.reo", "--local", "--track", name, "--set", "length=4") == 0
    assert "W0806" not in capfd.readouterr().err
    (metrics,) = place.glob(".reodsl/objects/*/*/metrics.parquet")
    wanted = pl.read_parquet(metrics)["reward"].to_list()
    (found,) = READ[name](place).values()
    assert found == pytest.approx(wanted)
    # What is done is not sent again.
    assert call("run", "tiny.reo", "--local", "--track", name, "--set", "length=4") == 0
    (found,) = READ[name](place).values()
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("name", SINKS)
def test_a_resume_goes_on_in_the_same_run(name: str, place: Path) -> None:
    need(name)
    store, graph = Store(place / ".reodsl").open(), Graph((train(),))
    folder = store.root / "work" / KEY
    for begin, end in ((1, 6), (4, 9)):
        # The second attempt goes on from step 3, which was saved last, and does steps 4 and 5 once more.
        begin_steps(folder, [{"step": step, "reward": step / 10} for step in range(1, begin)])
        running = Trackers([name], store, graph, "study")
        running.hear(Event("started", "a.train", key=KEY))
        for step in range(begin, end):
            add_step(folder, {"step": step, "reward": step / 10, "loss": float("nan")})
            running.hear(Event("progress", "a.train", Progress(step, 8)))
        running.close()
        assert running.news() == []
        assert (folder / f"{TRACKED}{name}").read_text() == str(end - 1)
    found = READ[name](place)
    assert len(found) == 1, found
    assert next(iter(found.values())) == pytest.approx([step / 10 for step in range(1, 9)])


def test_several_at_once_and_from_the_configuration(place: Path) -> None:
    for name in ("tensorboard", "wandb"):
        need(name)
    (place / "config" / "reodsl").mkdir(parents=True)
    (place / "config" / "reodsl" / "config.toml").write_text('track = ["tensorboard", "wandb"]\n')
    assert call("run", "tiny.reo", "--local") == 0
    assert len(of_tensorboard(place)) == len(of_wandb(place)) == 1


def train() -> Task:
    return Task("a.train", "train", {"stage": {"steps": 8}}, {}, "a", 1)


class Bad:
    """A tracker that misbehaves."""

    how = ""

    def __init__(self, opening: TrackedTask) -> None:
        if self.how == "open":
            raise RuntimeError("nobody is logged in")

    def log(self, step: int, values: Any) -> None:
        if self.how == "log":
            raise OSError("disk full")

    def close(self, status: str) -> None:
        if self.how == "close":
            raise ValueError("no answer")


@pytest.mark.parametrize("how", ["open", "log", "close"])
def test_what_a_tracker_fails_in_is_said_once(how: str, tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    state = {"folder": "f", "state": str(tmp_path / "s"), "facts": {}, "study": "s", "task": "t"}
    orders = [
        {"do": "open", "key": "k", **state},
        {"do": "log", "key": "k", "rows": [{"step": 1, "a": 1.0}]},
        {"do": "log", "key": "k", "rows": [{"step": 2, "a": 1.0}]},
        {"do": "close", "key": "k", "task": "t", "status": "finished"},
    ]
    work(map(json.dumps, orders), type("Worse", (Bad,), {"how": how}), said.append)
    assert len(said) == 1


@pytest.mark.parametrize("code", ["import os; os._exit(7)", "import time; time.sleep(600)", "print('{}')"])
def test_a_tracker_that_ends_or_hangs_does_not_end_the_run(
    code: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trackers_module, "FAREWELL", 0.5)
    real = subprocess.Popen
    monkeypatch.setattr(
        trackers_module.subprocess,
        "Popen",
        lambda command, **more: real([sys.executable, "-c", code], **more),
    )
    assert call("run", "tiny.reo", "--local", "--track", "tensorboard") == 0
    err = capsys.readouterr().err
    assert err.count("W0806") == (0 if "print" in code and "W0806" not in err else 1)
    assert "Traceback" not in err


def test_all_trackers_share_one_time_to_finish(tmp_path: Path) -> None:
    trackers = Trackers((), Store(tmp_path), Graph(()), "s")
    ends: list[float] = []
    worker = SimpleNamespace(end=lambda: None, wait=ends.append)
    trackers.workers = [worker, worker]  # type: ignore[list-item]
    trackers.close()
    assert len(ends) == 2
    assert len(set(ends)) == 1


@pytest.mark.parametrize("name", ["json", "nonsense"])
def test_a_tracker_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(Problem, match="no tracker called"):
        chosen([name])


def test_a_step_is_sent_once_though_an_attempt_repeats_it(tmp_path: Path) -> None:
    sent = _SentSteps("k", tmp_path)
    assert sent.select([{"step": 1}, {"step": 2}]) == [{"step": 1}, {"step": 2}]
    assert sent.select([{"step": 1}, {"step": 2}, {"step": 3}]) == [{"step": 3}]
    assert sent.select([{"step": 1}]) == []
    assert sent.select([{"step": 3}, {"step": 4}]) == [{"step": 4}]


def test_a_tracker_that_is_not_installed(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("reodsl.track.trackers.is_installed", lambda name: False)
    assert call("run", "tiny.reo", "--local", "--track", "wandb") == 1
    refusal("commands/E0121-tracker.txt", capsys.readouterr().err)
    (place / "config" / "reodsl").mkdir(parents=True)
    (place / "config" / "reodsl" / "config.toml").write_text('track = "wandb"\n')
    names, findings = chosen(())
    assert names == ()
    refusal("runs/W0806.txt", render(findings, {}), (str(place), "PLACE"))


@pytest.mark.parametrize(
    ("text", "names", "doubts"),
    [
        ("", (), 0),
        ('track = ["wandb", "wandb"]', ("wandb",), 0),
        ('track = "trackio"', ("trackio",), 0),
        ("track = [", (), 1),
        ('track = ["other"]', (), 1),
        ('track = "mlflow"', (), 1),
        ("track = 3", (), 1),
    ],
)
def test_a_line_of_the_configuration(tmp_path: Path, text: str, names: tuple[str, ...], doubts: int) -> None:
    path = tmp_path / "config.toml"
    assert read_trackers(path) == ((), ())
    path.write_text(text)
    found, findings = read_trackers(path)
    assert (found, len(findings)) == (names, doubts)


def test_from_python(place: Path) -> None:
    import reodsl

    reodsl.load("tiny.reo").run(local=True, quiet=True, track=["tensorboard"])
    assert len(of_tensorboard(place)) == 1


def test_no_tracker_is_part_of_a_key(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "tiny.reo", "--local", "--track", "tensorboard", "--quiet") == 0
    capsys.readouterr()
    assert call("plan", "tiny.reo") == 0
    assert "track" not in next(place.glob(".reodsl/runs/*.spec")).read_text()
