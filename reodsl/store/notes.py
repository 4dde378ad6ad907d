"""Keep what the processes of a rehearsal note in a folder that all of them see, each process in a file of its own."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reodsl.store.plain import read_lines

HOLD = "hold"
"""The file with the ids of trainings that wait at their last step while it is there, to lose their node then."""
LOSE = "lose a server"
"""The file that the first server takes which is asked with new weights; it ends then."""

Note = dict[str, Any]


def note(folder: Path, did: str, **facts: object) -> None:
    """Add a note of what this process `did`, with the time and what else is to be known of it."""
    line = json.dumps({"did": did, "at": time.time(), "by": f"{platform.node()} {os.getpid()}", **facts})
    with (folder / f"{platform.node()}-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def read_notes(folder: Path) -> list[Note]:
    """Return all notes in the order of their times; a line that is cut off is not one yet."""
    return sorted(_read_all(folder), key=lambda each: float(each["at"]))


def _read_all(folder: Path) -> Iterator[Note]:
    for file in folder.glob("*.jsonl"):
        for line in read_lines(file):
            try:
                yield json.loads(line)
            except ValueError:
                break


def take(folder: Path, name: str) -> bool:
    """Take a file of the folder away; return whether this process is the one that did."""
    try:
        (folder / name).unlink()
    except FileNotFoundError:
        return False
    return True
