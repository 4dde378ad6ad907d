"""Repeat a Ctrl-C until the code that it should end has ended.

Python raises KeyboardInterrupt at the present line of the main thread, and the exception may be lost there. Python ignores
exceptions in callbacks, such as a weak reference's; a library may catch every exception; and the handler of an event loop
only cancels a coroutine that waits. During an import an exception is worse than lost: the module is then half imported, and
a second import may crash the process.
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
"""The signal that repeats an interrupt. A repeated SIGINT could be counted by others; a late SIGURG has no effect."""
LOOK = 0.1
"""Seconds between two checks whether the interrupt must be repeated."""
IMPORTING = 5.0
"""Seconds that an import may take to end after an interrupt."""
SECONDS = 5.0
"""Seconds between an interrupt and its repetition, in which the block may clean up."""


@contextmanager
def insist_on_interrupts(importing: float = IMPORTING) -> Iterator[None]:
    """Make a Ctrl-C end the block with KeyboardInterrupt, even if a library catches the exception.

    Every `SECONDS` the exception is raised again, until the block ends. During an import it is delayed, since
    a half-imported module may crash the process. Outside the main thread, or if the process ignores SIGINT,
    the block runs unchanged. Blocks do not nest.

    Args:
        importing: The seconds that an import may take to end after an interrupt.
    """
    main, handler = threading.main_thread(), signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not main or not callable(handler):
        yield
        return
    finished, outer, pressed_at, repeat_at = threading.Event(), _count_imports(sys._getframe()), 0.0, 0.0

    def interrupt(_: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt at a signal, after calling the process's own handler of SIGINT.

        During an import that began in the block nothing is raised for the first `importing` seconds; `watch`
        then sends the signal again.
        """
        nonlocal pressed_at, repeat_at
        pressed_at = pressed_at or time.monotonic()
        repeat_at = time.monotonic()
        if repeat_at < pressed_at + importing and _count_imports(frame) > outer:
            return
        repeat_at += SECONDS
        with suppress(KeyboardInterrupt):
            handler(signal.SIGINT, frame)
        raise KeyboardInterrupt

    def watch() -> None:
        """Send the signal again when a repetition is due, until the block has ended."""
        while not finished.wait(LOOK):
            if pressed_at and repeat_at <= time.monotonic():
                signal.pthread_kill(main.ident or 0, _AGAIN)

    threading.Thread(target=watch, daemon=True).start()
    old_handler = signal.signal(_AGAIN, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.signal(_AGAIN, old_handler)
        finished.set()
        if pressed_at and not isinstance(sys.exception(), KeyboardInterrupt | SystemExit):
            # A library may have replaced the KeyboardInterrupt by another error, or the block ended before it.
            raise KeyboardInterrupt


def import_whole(name: str) -> ModuleType:
    """Import a module in another thread, and return it.

    Python raises KeyboardInterrupt only in the main thread, so a Ctrl-C cannot interrupt the import.
    """
    imported: Future[ModuleType] = Future()

    def work() -> None:
        """Import the module, and pass the module or the exception to the caller."""
        try:
            imported.set_result(import_module(name))
        except BaseException as fault:
            imported.set_exception(fault)

    threading.Thread(target=work, daemon=True).start()
    return imported.result()


def _count_imports(frame: FrameType | None) -> int:
    """Return how many frames of Python's import system are on the stack of a frame: more than 0 during an import."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    return count
