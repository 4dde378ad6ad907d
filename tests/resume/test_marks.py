"""Which processes the harness kills: all that carry a mark, also one that is just becoming another program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.resume.harness import marked, seam


def stat(memory: int, environment_ends: int) -> str:
    """A line of /proc/PID/stat with these two fields."""
    fields = ["R", *(["1"] * 49)]
    fields[23 - 3], fields[51 - 3] = str(memory), str(environment_ends)
    return f"9 (a (name) of one) {' '.join(fields)}\n"


@pytest.mark.parametrize(
    ("memory", "environment_ends", "looked_at_again"),
    [(4096, 0, True), (0, 0, False), (4096, 7, False)],
    ids=["becoming another program", "ended or the kernel's", "started with no environment"],
)
def test_a_process_without_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, environment_ends: int, looked_at_again: bool
) -> None:
    process = tmp_path / str(2**30)
    process.mkdir()
    (process / "environ").touch()
    (process / "stat").write_text(stat(memory, environment_ends))
    monkeypatch.setattr(seam, "PROCESSES", tmp_path)
    killed: list[int] = []

    def kill(pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        killed.append(pid)
        (process / "environ").write_bytes(b"")
        (process / "stat").write_text(stat(0, 0))

    looks = []

    def look(mark: str, real: object = seam._look) -> tuple[list[int], bool]:
        seen: tuple[list[int], bool] = real(mark)  # type: ignore[operator]
        looks.append(seen)
        if len(looks) == 1 and seen[1]:
            (process / "environ").write_text(f"A=b\0{seam.MARK}=there\0")
        return seen

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(seam, "_look", look)
    seam.kill_marked("there")
    assert looks[0] == ([], looked_at_again)
    assert killed == ([2**30] if looked_at_again else [])


def test_a_process_that_starts_others_is_killed_with_them() -> None:
    starts = "import subprocess, sys\nwhile True: subprocess.Popen([sys.executable, '-S', '-c', 'input()'], stdin=-1).pid"
    environment = os.environ | {seam.MARK: "started"}
    with subprocess.Popen([sys.executable, "-c", starts], env=environment) as process:
        while len(marked("started")) < 3:
            pass
        seam.kill_marked("started")
        assert process.wait(timeout=120) == -signal.SIGKILL
    assert marked("started") == []
