"""A process that runs untrusted work in confined copies of itself.

    sandbox = Sandbox(python_folders())
    ...                      # import, load, warm up: all that copies shall start with
    sandbox.enter()          # from here on: reads those folders, starts copies, nothing else
    reply = sandbox.call(lambda: work(text), seconds=5.0)

Each call runs in a copy (a fork) that ends with it, so nothing that it changes is there for the next one. A copy computes
and reads, and has one way out: the pipe that its bytes come by. Where the function runs code that is not trusted, that
code can give any bytes it likes: **compare them outside**, with what the copy never had.

`Sandbox.here` does without the copy, and is for work that runs no code of others: `call` costs a few milliseconds more.
Nothing here needs root or a package. It imports nothing beyond this package and Python's own.
"""

from __future__ import annotations

import gc
import json
import math
import mimetypes
import os
import resource
import select
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from runners.sandbox import kernel
from runners.sandbox.kernel import COMPUTE, FORK, KernelRefusal, assemble, lacking

LONGEST_REPLY = 2**20
_SPENT = 3
_WINDOW = 1.0
"""Seconds of the clock within which a process that computes gets some of a processor, however busy the machine is."""
_NEEDED = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo")
# Signals by which somebody else ends a process: an operator, or a system short of memory.
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)


class Expired(BaseException):
    """Raised by the timer inside a call; no `except Exception` on the way catches it."""


Ending = Literal["done", "timeout", "failed", "lost"]
"""`timeout`: its processor time was used up. `failed`: it raised, ended early, or gave more than it may. `lost`: somebody
else ended its process, which says nothing of what it ran."""


@dataclass(frozen=True, slots=True)
class CallReply:
    """The end of a call, its bytes if it is `done`, and the exit status of a copy, below 0 for a signal."""

    status: Ending
    data: bytes = b""
    code: int = 0


class Copy:
    """A copy that runs, as the process sees it that started it: what goes to its stdin, and what comes of its stdout.

    `said` is for whoever reads lines of it: what has come and was not taken yet.
    """

    def __init__(self, pid: int, writes: int, reads: int, seconds: float) -> None:
        self.writes, self.reads = writes, reads
        self.said = b""
        self._pid, self._seconds = pid, seconds
        self._spent = self._waited = 0.0
        self._ended: tuple[Ending, float] | None = None

    def wait(self, reads: Sequence[int], writes: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return which of its pipes are ready; none once it has computed and waited for its seconds.

        Whoever finds none has to end, and it ends with that process. It waits while it gets nothing of a processor.
        """
        while self._ended is None:
            readable, writable, _ = select.select(reads, writes, (), _WINDOW)
            if readable or writable:
                return readable, writable
            # The clock of another process's processor time, as `clock_getcpuclockid` has it.
            spent = time.clock_gettime((~self._pid << 3) | 2)
            self._waited += 0.0 if spent > self._spent else _WINDOW
            self._spent = spent
            if spent + self._waited >= self._seconds:
                self._ended = "timeout", self._seconds
        return [], []

    def end_input(self) -> None:
        """Let it read the end of its stdin."""
        if self.writes >= 0:
            os.close(self.writes)
            self.writes = -1

    def close(self) -> tuple[Ending, float]:
        """Close its pipes and wait for its end: how it ended, and its processor time in seconds."""
        if self._ended is None:
            self.end_input()
            os.close(self.reads)
            self._ended = _end_of(self._pid, self._seconds)[:2]
        return self._ended


class Sandbox:
    """The confinement of this process and of the copies that `call` starts."""

    def __init__(self, readable: Iterable[str], confined: bool = True) -> None:
        """`readable` are the files and folders that can be read; what is not there is left out.

        With `confined` false, processes have their limits of time alone. Raises OSError where `kernel.lacking()` has
        something to say.
        """
        self.confined = confined
        self._readable = tuple(readable)
        self._ruleset = -1
        self._filter = b""
        self._null = -1

    def enter(self) -> None:
        """Lock this process, which has one thread and has loaded what it needs."""
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        # Tables of the system, which libraries read as they are loaded: what they say differs by machine.
        mimetypes.knownfiles.clear()
        if self.confined:
            here = kernel.architecture()
            assert here is not None
            self._ruleset = kernel.make_ruleset(self._readable)
            self._filter = assemble(here, COMPUTE)
            kernel.hide()
            kernel.restrict(self._ruleset)
            kernel.install(assemble(here, {**COMPUTE, **FORK}))
        # What is there now is never looked at again, so that copies share its memory.
        gc.collect()
        gc.freeze()

    def call(self, work: Callable[[], bytes], seconds: float) -> CallReply:
        """Return the bytes that `work` gives in a copy of this process, within `seconds` of processor time.

        Nothing bounds the time by the clock: end this process for that, and its copy ends with it.
        """
        reads, writes = os.pipe()
        copy = self._fork(work, seconds, (self._null, self._null), writes)
        os.close(writes)
        try:
            data = _read_all(reads)
        finally:
            os.close(reads)
            ending, _, code = _end_of(copy, seconds)
        if ending == "done" and len(data) > LONGEST_REPLY:
            return CallReply("failed", code=1)
        return CallReply(ending, data if ending == "done" else b"", code)

    def start(self, work: Callable[[], bytes], seconds: float) -> Copy:
        """Return a copy of this process in which `work` runs, with pipes of this process as its stdin and stdout.

        What it writes there is not to be trusted. The bytes that `work` gives come last. Limits are those of `call`.
        """
        its_stdin, writes = os.pipe()
        reads, its_stdout = os.pipe()
        copy = self._fork(work, seconds, (its_stdin, its_stdout), 1)
        os.close(its_stdin)
        os.close(its_stdout)
        return Copy(copy, writes, reads, seconds)

    def _fork(self, work: Callable[[], bytes], seconds: float, streams: tuple[int, int], writes: int) -> int:
        parent = os.getpid()
        _limit_time(None)
        copy = os.fork()
        if copy == 0:
            # Whatever happens, the copy must not return into the loop of this process.
            try:
                self._in_copy(work, seconds, streams, writes, parent)
            finally:
                os._exit(1)
        return copy

    def here(self, work: Callable[[], bytes], seconds: float) -> CallReply:
        """Do as `call` in this process itself: what `work` changes stays, and what no timer interrupts ends it all."""
        _limit_time(seconds)
        return _timed(work, seconds)

    def _in_copy(
        self,
        work: Callable[[], bytes],
        seconds: float,
        streams: tuple[int, int],
        writes: int,
        parent: int,
    ) -> None:
        if sys.platform == "linux":
            kernel.end_with_parent(parent)
        for stream, place in enumerate((*streams, self._null)):
            os.dup2(place, stream)
        # The streams stay, and what it answers by.
        keep = sorted({2, writes, self._ruleset} - {-1})
        for low, high in zip(keep, [*keep[1:], 2**16], strict=True):
            os.closerange(low + 1, high)
        _limit_time(seconds, for_good=True)
        if self.confined:
            # A domain within its parent's: it can look into no process, its parent included.
            kernel.restrict(self._ruleset)
            os.close(self._ruleset)
            kernel.install(self._filter)
        reply = _timed(work, seconds)
        if reply.status == "done":
            with suppress(OSError):
                write_all(writes, reply.data)
                os._exit(0)
        os._exit(_SPENT if reply.status == "timeout" else 1)


def _end_of(copy: int, seconds: float) -> tuple[Ending, float, int]:
    """Wait for the end of a copy, and return how it ended, its processor time, and its exit status.

    One that used up its time timed out, whatever ended it.
    """
    _, status, usage = os.wait4(copy, 0)
    code, spent = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
    if code == 0:
        return "done", spent, code
    # A timer may be a little early. Code can give this exit status by itself.
    if spent >= seconds or (code == _SPENT and spent >= seconds / 2):
        return "timeout", spent, code
    return "lost" if -code in _OUTSIDE else "failed", spent, code


def _timed(work: Callable[[], bytes], seconds: float) -> CallReply:
    """Return the result of `work`, unless its timer ends it first; an exit that it asks for is a failure of it."""
    try:
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            return CallReply("done", work())
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except Expired:
        return CallReply("timeout")
    except (Exception, SystemExit):
        return CallReply("failed")


def python_folders(modules: Iterable[str] = ()) -> list[str]:
    """Return the folders that Python reads: its library, packages, those of named modules, the system's libraries."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")}
    for name in modules:
        module = sys.modules.get(name.partition(".")[0])
        folders.update(getattr(module, "__path__", ()))
    # Several of them are links, and what is read is where they lead.
    return sorted({*_SYSTEM, *folders, *(os.path.realpath(folder) for folder in folders)})


def empty_environment(environment: Mapping[str, str], **added: str) -> dict[str, str]:
    """Return an environment with nothing in it but where Python and its packages are, and what is `added`."""
    return {**{name: environment[name] for name in _NEEDED if name in environment}, **added}


def limit_memory(mebibytes: int) -> None:
    """Address space at most so large, no file written, and no core file when a limit kills the process."""
    size = mebibytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _limit_time(seconds: float | None, for_good: bool = False) -> None:
    """Set the kernel's limit for what no timer can interrupt, or what turns its timer off; None for no limit."""
    signal.signal(signal.SIGPROF, _expire)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = hard
    if seconds is not None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        most = math.ceil(usage.ru_utime + usage.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most if for_good else hard))


def _expire(signum: int, frame: FrameType | None) -> None:
    raise Expired


def write_all(writes: int, data: bytes) -> None:
    """Write everything to a pipe. Raises OSError where nobody reads it."""
    while data:
        data = data[os.write(writes, data) :]


def _read_all(reads: int) -> bytes:
    """Everything that comes by a pipe, or one byte more than a reply may have."""
    data = b""
    while len(data) <= LONGEST_REPLY:
        part = os.read(reads, 2**16)
        if not part:
            break
        data += part
    return data


_POLL_SECONDS = 10.0
LONGEST_WORDS = 500
Tell = Callable[[Mapping[str, object]], None]


def serve(prepare: Callable[[Tell], Callable[[], None]]) -> None:
    """Tell the parent whether `prepare` could load and confine what is needed, then run what it returns.

    stdout goes to stderr from here on, so that whatever prints is out of the way of what is told.
    """
    out = os.dup(1)
    os.dup2(2, 1)

    def tell(message: Mapping[str, object]) -> None:
        write_all(out, json.dumps(message).encode("ascii") + b"\n")

    try:
        answer = prepare(tell)
    except KernelRefusal as refused:
        tell({"ready": False, "lacking": refused.strerror})
    except Exception as failure:
        tell({"ready": False, "why": f"{type(failure).__name__}: {failure}"[:LONGEST_WORDS].rstrip(": ")})
    else:
        tell({"ready": True})
        answer()


def confinable(must: bool = True) -> bool:
    """Return whether this process can be confined. Raises Refused where it cannot be and `must`."""
    missing = lacking()
    if missing is not None and must:
        raise KernelRefusal(0, missing)
    return missing is None


def lines(parent: int) -> Iterator[bytes]:
    """Lines from stdin until it ends, or until the process `parent` is no longer this one's parent."""
    buffer = bytearray()
    while True:
        while (end := buffer.find(b"\n")) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            yield line
        if not select.select([0], [], [], _POLL_SECONDS)[0]:
            if os.getppid() != parent:
                return
            continue
        part = os.read(0, 2**16)
        if not part:
            return
        buffer += part
