"""A Ctrl-C ends what runs, wherever it falls and whatever swallows it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from reodsl.interrupts import IMPORTING, import_whole, insist_on_interrupts

ENOUGH = 5.0
"""Seconds in which an interrupt that is given again has to come."""


@pytest.fixture(autouse=True)
def notebook() -> Iterator[None]:
    """Signals are handled as where a notebook runs a cell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    """Interrupt this process, and take some steps in which Python hears of it."""
    signal.raise_signal(signal.SIGINT)
    for _ in range(100):
        pass


def work() -> None:
    """Compute for a while, and reach the end where nothing interrupts it."""
    ends = time.monotonic() + ENOUGH
    while time.monotonic() < ends:
        time.sleep(0.01)


class Thing:
    """Something that a weak reference may refer to."""


def in_a_callback() -> None:
    thing = Thing()
    reference = weakref.ref(thing, lambda _: interrupt())
    del thing
    assert reference() is None


def in_a_finalizer() -> None:
    class Last:
        def __del__(self) -> None:
            interrupt()

    Last()


def in_a_library_that_catches_all() -> None:
    with suppress(BaseException):
        interrupt()


def in_one_that_goes_on_after_another_error() -> None:
    try:
        try:
            interrupt()
        except BaseException as fault:
            raise ImportError("it is not installed") from fault
    except ImportError:
        pass


def end_interrupted(run: Callable[[], None], importing: float = IMPORTING) -> KeyboardInterrupt:
    """Run something as a cell is run, which an interrupt has to end before it ends by itself."""
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as caught:
        insist_on_interrupts(importing)(run)()
    assert time.monotonic() - began < ENOUGH
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return caught.value


@pytest.mark.parametrize(
    "swallow",
    [in_a_callback, in_a_finalizer, in_a_library_that_catches_all, in_one_that_goes_on_after_another_error],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_was_swallowed_comes_again(
    swallow: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reodsl.interrupts.SECONDS", 0.3)

    def cell() -> None:
        swallow()
        work()

    end_interrupted(cell)
    # None comes afterwards.
    time.sleep(0.6)


def test_one_is_not_given_again_while_it_is_on_its_way() -> None:
    ended = []

    def cell() -> None:
        try:
            interrupt()
        finally:
            time.sleep(0.5)
            ended.append(True)

    end_interrupted(cell)
    assert ended


def test_one_that_is_too_long_on_its_way_is_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reodsl.interrupts.SECONDS", 0.3)

    def cell() -> None:
        try:
            interrupt()
        finally:
            work()

    end_interrupted(cell)


def test_an_event_loop_that_only_asks_its_task_to_stop_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reodsl.interrupts.SECONDS", 0.3)

    async def cell() -> None:
        with insist_on_interrupts():
            interrupt()
            work()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell())
    assert time.monotonic() - began < ENOUGH


def test_what_came_of_one_is_an_interrupt_all_the_same() -> None:
    def cell() -> None:
        try:
            interrupt()
        except BaseException:
            raise ValueError("no module") from None

    assert isinstance(end_interrupted(cell).__context__, ValueError)


def test_an_import_is_let_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = "import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep(0.3)\nwhole = True\n"
    (tmp_path / "reodsl_half.py").write_text(half)
    monkeypatch.syspath_prepend(tmp_path)

    def cell() -> None:
        import_module("reodsl_half")
        work()

    end_interrupted(cell)
    assert sys.modules.pop("reodsl_half").whole


def test_an_import_that_does_not_end_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = f"import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep({ENOUGH})\n"
    (tmp_path / "reodsl_slow.py").write_text(slow)
    monkeypatch.syspath_prepend(tmp_path)
    end_interrupted(lambda: import_module("reodsl_slow") and None, importing=0.3)


def test_an_import_in_a_thread_goes_on_without_whoever_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reodsl_whole.py").write_text("import time\ntime.sleep(1.5)\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        import_whole("reodsl_whole")
    assert not hasattr(sys.modules["reodsl_whole"], "whole")
    assert import_whole("reodsl_whole").whole
    del sys.modules["reodsl_whole"]
    with pytest.raises(ModuleNotFoundError, match="reodsl_absent"):
        import_whole("reodsl_absent")


def test_where_interrupts_are_ignored_they_stay_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with insist_on_interrupts():
        interrupt()
        time.sleep(0.3)


def test_a_thread_hears_of_none() -> None:
    def run() -> None:
        with insist_on_interrupts():
            heard.append(signal.getsignal(signal.SIGINT))

    heard: list[object] = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert heard == [signal.default_int_handler]
