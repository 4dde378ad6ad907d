"""Kill a command that hangs after a signal to stop.

Python handles a signal only between two bytecode instructions, so not while C code computes; and a process does not end
while a thread runs. So a second process runs this file as a script. Python's wakeup descriptor sends it the number of
each signal, and `GRACE_SECONDS` later it kills the command. A killed run loses nothing that was stored.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

GRACE_SECONDS = 8.0
"""Seconds after a signal in which a run may end by itself, and free its devices and locks."""
REPEAT_SECONDS = 1.0
"""Seconds after a signal from which a second signal kills at once; an earlier one may come from the same key press."""


def end_when_stopped() -> None:
    """Start a second process, which kills this process if it still runs `GRACE_SECONDS` after SIGINT or SIGTERM.

    Python writes the number of each signal into a pipe (its wakeup descriptor), which the second process reads.
    """
    import subprocess

    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    # In a new session, a Ctrl-C at the terminal does not reach the second process.
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(GRACE_SECONDS)],
        stdin=read_end,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(read_end)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)


def leave(code: int) -> None:
    """Start a timer that ends this process with an exit code after half of `GRACE_SECONDS`.

    It ends the process even if a thread still runs; Python itself would wait for the thread.
    """
    import threading

    timer = threading.Timer(GRACE_SECONDS / 2, os._exit, (code,))
    timer.daemon = True
    timer.start()


def _wait(command: int, seconds: float) -> None:
    """Read signal numbers from stdin until the command ends, and kill the command if it runs too long after a signal.

    Args:
        command: Process id of the command, which is this process's parent.
        seconds: Time from the first SIGINT or SIGTERM until the kill; a second signal shortens it.
    """
    stopping = False
    while not stopping:
        signal_bytes = os.read(0, 1)
        if not signal_bytes:
            return
        stopping = signal_bytes[0] in (signal.SIGINT, signal.SIGTERM)
    since = time.monotonic()
    while (remaining := since + seconds - time.monotonic()) > 0 and select.select([0], [], [], remaining)[0]:
        signal_bytes = os.read(0, 1)
        if not signal_bytes:
            return
        if time.monotonic() - since > REPEAT_SECONDS and signal_bytes[0] in (signal.SIGINT, signal.SIGTERM):
            break
    if os.getppid() == command:
        show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        sys.stderr.write(
            f"{show_cursor}\nkilled: the command did not stop by itself; finished work is kept; run it again to resume\n"
        )
        os.kill(command, signal.SIGKILL)


if __name__ == "__main__":
    _wait(int(sys.argv[1]), float(sys.argv[2]))
