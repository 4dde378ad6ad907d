"""Let no Ctrl-C be lost: it is given again until what it was to end has ended.

Python raises KeyboardInterrupt wherever the main thread is. In a callback, such as that of a weak reference, nothing can be
raised; a library may catch all that is raised; and an event loop's own handler only asks a coroutine that does not wait.
What was half imported is worse than lost: a process that imports it again may crash.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType, ModuleType

_AGAIN = signal.SIGURG
"""The signal that gives an interrupt again. Others count each SIGINT, and this one does nothing where it comes late."""
LOOK = 0.1
"""Seconds between two looks at whether an interrupt is due again."""
IMPORTING = 5.0
"""Seconds that an import may take to end, once it is interrupted."""
SECONDS = 5.0
"""Seconds after an interrupt, in which the block may clean up, until it is given again."""


@contextmanager
def insist_on_interrupts(importing: float = IMPORTING) -> Iterator[None]:
    """Have a Ctrl-C end the block as KeyboardInterrupt, whatever swallows it; blocks do not nest.

    Args:
        importing: seconds that an import may take to end once it is interrupted.
    """
    main, before = threading.main_thread(), signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not main or not callable(before):
        yield
        return
    ended, outside, came, due = threading.Event(), _imports(sys._getframe()), 0.0, 0.0

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal came, due
        came = came or time.monotonic()
        due = time.monotonic()
        if due < came + importing and _imports(frame) > outside:
            return
        due += SECONDS
        with suppress(KeyboardInterrupt):
            before(signal.SIGINT, frame)
        raise KeyboardInterrupt

    def watch() -> None:
        while not ended.wait(LOOK):
            if came and due <= time.monotonic():
                signal.pthread_kill(main.ident or 0, _AGAIN)

    threading.Thread(target=watch, daemon=True).start()
    other = signal.signal(_AGAIN, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(_AGAIN, other)
        ended.set()
        if came and not isinstance(sys.exception(), KeyboardInterrupt | SystemExit):
            # Some libraries make another error of it, and the block may have ended before it was given again.
            raise KeyboardInterrupt


def import_whole(name: str) -> ModuleType:
    """Import a module in a thread, which no interrupt reaches. It goes on without whoever waits for it."""
    imported: Future[ModuleType] = Future()

    def work() -> None:
        try:
            imported.set_result(import_module(name))
        except BaseException as fault:
            imported.set_exception(fault)

    threading.Thread(target=work, daemon=True).start()
    return imported.result()


def _imports(frame: FrameType | None) -> int:
    """Return how many imports a frame is within."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    return count
