"""End a command that was asked to stop and does not, whatever hangs in it.

Python hears of a signal between two of its own steps: not while foreign code computes, and nothing ends while a thread goes
on. So a second process waits beside the command, which this file is as a script. The kernel's own handler writes each
signal's number to it, and seconds later it kills the command. A killed run loses nothing that was kept.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

SECONDS = 8.0
"""After a signal, in which a run lets go of what it holds."""
AGAIN = 1.0
"""Seconds after a signal from which on another one kills at once; both may be of one key."""


def end_when_stopped() -> None:
    """Have this process killed where it is still there some seconds after it was asked to stop."""
    import subprocess

    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    # A session of its own keeps a Ctrl-C at the terminal from it.
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(SECONDS)],
        stdin=reads,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(reads)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)


def leave(code: int) -> None:
    """End this process with an exit code soon, where a thread of it would go on for ever."""
    import threading

    late = threading.Timer(SECONDS / 2, os._exit, (code,))
    late.daemon = True
    late.start()


def _wait(command: int, seconds: float) -> None:
    """Wait for signals of the command, until it ends; kill it where it goes on for `seconds` after one."""
    stopping = False
    while not stopping:
        numbers = os.read(0, 1)
        if not numbers:
            return
        stopping = numbers[0] in (signal.SIGINT, signal.SIGTERM)
    since = time.monotonic()
    while (left := since + seconds - time.monotonic()) > 0 and select.select([0], [], [], left)[0]:
        numbers = os.read(0, 1)
        if not numbers:
            return
        if time.monotonic() - since > AGAIN and numbers[0] in (signal.SIGINT, signal.SIGTERM):
            break
    if os.getppid() == command:
        shown = "\x1b[?25h" if sys.stderr.isatty() else ""
        sys.stderr.write(
            f"{shown}\nkilled: it did not stop by itself; what is done is kept, and the same command goes on\n"
        )
        os.kill(command, signal.SIGKILL)


if __name__ == "__main__":
    _wait(int(sys.argv[1]), float(sys.argv[2]))
