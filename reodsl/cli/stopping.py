"""End a command that was asked to stop and does not, whatever hangs in it.

Python handles a signal between two of its own steps: not while foreign code computes, and nothing ends while a thread
runs. So a second process waits beside the command and runs this file as a script. The kernel's own handler writes
each signal's number to it, and seconds later it kills the command. A killed run loses nothing that was stored.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

GRACE_SECONDS = 8.0
"""After a signal, in which a run lets go of what it holds."""
REPEAT_SECONDS = 1.0
"""Seconds after a signal from which on another one kills at once; both may be of one key."""


def end_when_stopped() -> None:
    """Start a process that kills this one if it still runs `GRACE_SECONDS` after it was asked to stop."""
    import subprocess

    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    # A session of its own keeps a Ctrl-C at the terminal from it.
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(GRACE_SECONDS)],
        stdin=reads,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(reads)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)


def leave(code: int) -> None:
    """End this process with an exit code after half of `GRACE_SECONDS`, even if a thread keeps running."""
    import threading

    late = threading.Timer(GRACE_SECONDS / 2, os._exit, (code,))
    late.daemon = True
    late.start()


def _wait(command: int, seconds: float) -> None:
    """Wait for signals until the command ends; kill the command if it runs for `seconds` after a signal."""
    stopping = False
    while not stopping:
        numbers = os.read(0, 1)
        if not numbers:
            return
        stopping = numbers[0] in (signal.SIGINT, signal.SIGTERM)
    since = time.monotonic()
    while (remaining := since + seconds - time.monotonic()) > 0 and select.select([0], [], [], remaining)[0]:
        numbers = os.read(0, 1)
        if not numbers:
            return
        if time.monotonic() - since > REPEAT_SECONDS and numbers[0] in (signal.SIGINT, signal.SIGTERM):
            break
    if os.getppid() == command:
        show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        sys.stderr.write(
            f"{show_cursor}\nkilled: it did not stop by itself; finished work is kept; run the same command to resume\n"
        )
        os.kill(command, signal.SIGKILL)


if __name__ == "__main__":
    _wait(int(sys.argv[1]), float(sys.argv[2]))
