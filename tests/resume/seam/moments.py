"""Kills or stops a run from inside at chosen operations on files: moments as JSON in the environment in, signals out."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK, MOMENTS = "REODSL_TEST_MARK", "REODSL_TEST_MOMENTS"
PROCESSES = Path("/proc")
_KEY = re.compile(r"[0-9a-f]{64}")


def arm(text: str) -> None:
    """Watch for moments: `{"fired": folder, "moments": [{"name", "event", "path", "times", "cut", "alone", "stop"}]}`.

    `event` is an audit event of Python, `path` a pattern of one of its paths. A moment is fatal once for each key of the
    store in the path, and `times` times in all; what was fatal is a file in the folder `fired`. With `cut` the file is
    first cut in half, as a write is that was not finished. `alone` leaves the run's other processes alive; with `stop`
    the process stops there, to go on when it is told to.
    """
    told = json.loads(text)
    fired = Path(told["fired"])
    moments = [(re.compile(moment["path"]), moment) for moment in told["moments"]]
    events = {moment["event"] for _, moment in moments}
    busy = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal busy
        if event not in events or busy:
            return
        paths = [os.fsdecode(item) for item in arguments if isinstance(item, (str, bytes, os.PathLike))]
        for pattern, moment in moments:
            path = next((path for path in paths if pattern.search(path)), None)
            if moment["event"] == event and path is not None:
                busy = True
                if _due(fired, moment, path):
                    _end(moment, path)
                busy = False

    sys.addaudithook(hook)


def _due(fired: Path, moment: dict[str, Any], path: str) -> bool:
    """Whether the moment is fatal now; it is never again for this key."""
    if len(list(fired.glob(f"{moment['name']}.*"))) >= moment["times"]:
        return False
    found = _KEY.findall(path)
    try:
        (fired / f"{moment['name']}.{found[-1] if found else ''}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _end(moment: dict[str, Any], path: str) -> None:
    if moment.get("cut"):
        os.truncate(path, os.path.getsize(path) // 2)
    if moment.get("stop"):
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    if not moment.get("alone"):
        kill_marked(os.environ[MARK])
    os.kill(os.getpid(), signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """The other processes that were started with this mark in their environment and have not ended."""
    return _look(mark)[0]


def kill_marked(mark: str) -> None:
    """SIGKILL to all of them, until none is left that could start another.

    What is just becoming another program shows no environment, and is looked at again, for a second at most.
    """
    end = time.monotonic() + 1.0
    while True:
        pids, becoming = _look(mark)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids and (not becoming or time.monotonic() > end):
            return


def _look(mark: str) -> tuple[list[int], bool]:
    """The processes with the mark, and whether another one is just becoming another program."""
    wanted = f"{MARK}={mark}".encode()
    found, becoming = [], False
    for folder in PROCESSES.glob("[0-9]*"):
        pid = int(folder.name)
        if pid == os.getpid():
            continue
        with suppress(OSError):
            environment = (folder / "environ").read_bytes()
            if wanted in environment.split(b"\0"):
                found.append(pid)
            elif not environment:
                # Of proc(5): it has memory (field 23), and its environment no place there (51).
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                becoming |= fields[23 - 3] != "0" and fields[51 - 3] == "0"
    return found, becoming
