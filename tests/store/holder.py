"""Another process that holds a lock for a while."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = """
import sys, pathlib
from reodsl.store.files import hold
with hold(pathlib.Path(sys.argv[1])) as got:
    print(got, flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_process_holds(place: Path) -> Iterator[subprocess.Popen[str]]:
    """Inside the block; it ends by being killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "True"
        yield child
    finally:
        child.kill()
        child.wait()
