"""A stranger's spec: whatever its sources name, no command that only looks hangs, or reads what it should not."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from reodsl.language import compile_file
from reodsl.lsp.analysis import analyse, list_findings
from reodsl.plan.verdict import Keys, make_plan, prepare_study
from tests.bad_input.commands import FROM_FOLDER, SPEC, Place, permissions_count

SECONDS = 60
"""In which everything is through, on a busy machine too; each takes a fraction of one."""
COMMANDS = (("check",), ("graph",), ("plan",), ("diff", "tiny.reo"), ("doctor",))
MODELS = {
    "a revision that is a device": ('hub("a/b", revision: "/dev/zero")', "E0317"),
    "a revision that is a pipe": ('hub("a/b", revision: "{here}/pipe")', "E0317"),
    "a revision above": ('hub("a/b", revision: "../../../../etc/passwd")', "E0317"),
    "an absolute repository": ('hub("/proc")', "E0317"),
    "a repository above": ('hub("../../x")', "E0317"),
    "a folder of processes": ('folder("/proc")', "E0803"),
    "a folder of this process": ('folder("/proc/self")', "E0803"),
    "a folder of devices": ('folder("/dev")', "E0803"),
    "a folder of the kernel": ('folder("/sys/kernel")', "E0803"),
    "a folder of libraries": ('folder("/usr/lib")', "E0803"),
    "a link to processes": ('folder("processes")', "E0803"),
    "a name too long": ('folder("' + "x" * 300 + '")', "E0317"),
    "a path too long": ('folder("' + "x/" * 600 + '")', "E0317"),
    "pipes for weights": ('folder("pipes")', "E0803"),
    "devices for weights": ('folder("devices")', "E0803"),
    "a terabyte that is not there": ('folder("sparse")', None),
    "links that go in circles": ('folder("circle")', "E0803"),
    "a config of brackets": ('folder("nested")', None),
    "no rights": ('folder("shut")', "E0803"),
}
DATA = {
    "a device": ('file("/dev/zero")', "E0317"),
    "a terminal": ('file("/dev/tty")', "E0317"),
    "the kernel's messages": ('file("/proc/kmsg")', "E0317"),
    "its memory": ('file("/proc/self/mem")', "E0317"),
    "a link to a device": ('file("zero.jsonl")', "E0706"),
    "a link to the kernel's messages": ('file("kmsg.jsonl")', "E0706"),
    "a pipe": ('file("pipe.jsonl")', "E0706"),
    "a socket": ('file("socket.jsonl")', "E0706"),
    "a link to itself": ('file("self.jsonl")', "E0706"),
    "a terabyte that is not there": ('file("sparse.jsonl")', "E0706"),
    "a file that may not be read": ('file("shut.jsonl")', "E0706"),
    "a folder": ('file("folder.jsonl")', "E0706"),
    "a repository above": ('hub("../x")', "E0317"),
    "an absolute repository": ('hub("/proc")', "E0317"),
    "a split above": ('hub("own/deep", split: "../../..")', "E0317"),
    "a split that is a pattern": ('hub("own/deep", split: "**/*")', "E0317"),
    "an absolute part": ('hub("own/deep", name: "/proc")', "E0317"),
    "a revision that is a device": ('hub("own/none", revision: "/dev/zero")', "E0317"),
    "a deep copy": ('hub("own/deep")', "E0850"),
    "a copy of links that go in circles": ('hub("own/circle")', "E0850"),
    "a copy that is processes": ('hub("own/processes")', "E0850"),
    "a copy of a pipe": ('hub("own/pipe")', "E0706"),
    "a copy of a device": ('hub("own/device")', "E0706"),
    "a package that is this program": ('package("__main__", task: "x", count: 1, seed: 1)', "E0317"),
    "a package of the library": ('package("os", task: "x", count: 1, seed: 1)', "E0709"),
}
SPECS = {
    **{f"model: {name}": (FROM_FOLDER, 'folder("weights")', *each) for name, each in MODELS.items()},
    **{
        f"data: {name}": (SPEC, "generated(chain_easy, count: 4, seed: 1)", *each)
        for name, each in DATA.items()
    },
}


@contextmanager
def bounded(seconds: int = SECONDS) -> Iterator[None]:
    """Fails what takes longer."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"it takes more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def trap(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder from a stranger, in which everything is something else than its name says."""
    here = place.folder
    monkeypatch.setenv("HF_HUB_CACHE", str(here / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("runners.execute.survey.survey", tuple)
    monkeypatch.chdir(here)
    for name in ("pipe", "pipe.jsonl"):
        os.mkfifo(here / name)
    for name, target in (
        ("zero.jsonl", "/dev/zero"),
        ("kmsg.jsonl", "/proc/kmsg"),
        ("self.jsonl", "self.jsonl"),
        ("processes", "/proc"),
    ):
        (here / name).symlink_to(target)
    with socket.socket(socket.AF_UNIX) as own:
        own.bind("socket.jsonl")
    (here / "shut.jsonl").write_text("{}")
    (here / "shut.jsonl").chmod(0)
    (here / "folder.jsonl").mkdir()
    _sparse(here / "sparse.jsonl")
    for name in ("pipes", "devices", "sparse", "circle", "nested", "shut"):
        (here / name).mkdir()
        (here / name / "tokenizer.json").write_text("{}")
        (here / name / "config.json").write_text("{}")
    for name in ("config.json", "model.safetensors"):
        (here / "pipes" / name).unlink(missing_ok=True)
        os.mkfifo(here / "pipes" / name)
        (here / "devices" / name).unlink(missing_ok=True)
        (here / "devices" / name).symlink_to("/dev/zero")
    _sparse(here / "sparse" / "model.safetensors")
    (here / "circle" / "model.safetensors").symlink_to("model.safetensors")
    (here / "nested" / "config.json").write_text("[" * 100_000)
    (here / "nested" / "model.safetensors").write_text("")
    (here / "shut" / "model.safetensors").write_text("")
    (here / "shut" / "model.safetensors").chmod(0)
    (here / "data" / "own").mkdir(parents=True)
    (here / "data" / "own" / "deep" / "/".join(["d"] * 500)).mkdir(parents=True)
    for name, link, target in (
        ("circle", "up", ".."),
        ("circle", "programs", "/usr"),
        ("device", "train.jsonl", "/dev/zero"),
    ):
        (here / "data" / "own" / name).mkdir(exist_ok=True)
        (here / "data" / "own" / name / link).symlink_to(target)
    (here / "data" / "own" / "processes").symlink_to("/proc")
    (here / "data" / "own" / "pipe").mkdir()
    os.mkfifo(here / "data" / "own" / "pipe" / "train.jsonl")
    return place


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("name", SPECS)
def test_no_command_that_looks_is_caught(trap: Place, name: str) -> None:
    """The finding is a named one at its line, or none of a command that does not open what the source names."""
    text, setting, source, code = SPECS[name]
    written = source.replace("{here}", str(trap.folder))
    trap.write(text.replace(setting, written, 1), "theirs.reo")
    with bounded(), permissions_count():
        # What does not compile is the same to every command.
        for command in (("check",), ("plan",)) if code == "E0317" else COMMANDS:
            told = trap.call(*command, "theirs.reo")
            codes = {each for each in told.findings() if each.startswith("E")}
            assert not codes & {"E0990", "E0119"}, told.err
            if code == "E0317":
                assert codes == {code}, told.err
                assert written[:30] in told.err
            elif command[0] in ("check", "graph"):
                assert not codes, told.err
        path = trap.folder / "theirs.reo"
        errors = {
            each.code
            for each in list_findings(analyse(path, {path: path.read_text()}))
            if each.code[0] == "E"
        }
        assert errors == ({code} if code == "E0317" else set())
        if code is not None and code != "E0317":
            assert code in trap.call("doctor", "theirs.reo", "--json").out
    assert not (trap.folder / ".reodsl").exists()


def test_what_is_too_large_for_a_plan_is_read_by_a_run(trap: Place) -> None:
    (trap.folder / "large.jsonl").write_text('{"question": "1 + 1", "answer": "2"}\n' * 40)
    trap.write(SPEC.replace("generated(chain_easy, count: 4, seed: 1)", 'file("large.jsonl")', 1), "own.reo")
    spec = compile_file("own.reo").spec
    assert spec is not None
    ready = prepare_study(spec, Path("own.reo"), None)
    few = Keys(ready.store, ready.keys.folder, 1000)
    plans = (make_plan(spec, ready.graph, ready.store, keys) for keys in (few, few.for_run()))
    before, after = (next(each for each in plan.items if each.task.id.startswith("asked")) for plan in plans)
    assert (before.verdict, before.key) == ("run", None)
    assert "a run reads them" in before.reason
    assert after.key is not None
