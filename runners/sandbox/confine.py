"""A process that runs untrusted work in confined copies of itself.

    sandbox = Sandbox(python_folders())
    ...                      # import, load, warm up: all that copies shall start with
    sandbox.enter()          # from here on: reads those folders, starts copies, nothing else
    reply = sandbox.call(lambda: work(text), seconds=5.0)

Each call runs in a copy (a fork) that ends with it, so nothing that it changes is there for the next one. A copy computes
and reads, and has one way out: the pipe that its bytes come by. Where the function runs code that is not trusted, that
code can give any bytes it likes: **compare them outside**, with what the copy never had.

`Sandbox.run_in_process` makes no copy, and is for work that runs no foreign code: `call` costs a few milliseconds more.
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
_TIMED_OUT_STATUS = 3
_WAIT_SECONDS = 1.0
"""Seconds of the clock within which a process that computes gets some of a processor, however busy the machine is."""
_KEPT_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo")
# Signals by which somebody else ends a process: an operator, or a system short of memory.
_OUTSIDE_SIGNALS = (signal.SIGKILL, signal.SIGTERM)


class CallTimeout(BaseException):
    """The end of a call by its timer, which no `except Exception` on the way catches."""


Ending = Literal["done", "timeout", "failed", "lost"]
"""`timeout`: its processor time was used up. `failed`: it raised, ended early, or gave more than it may. `lost`: somebody
else ended its process, which says nothing of what it ran."""


@dataclass(frozen=True, slots=True)
class CallReply:
    """The end of a call, its bytes if it is `done`, and the fork's exit status, below 0 for a signal."""

    status: Ending
    data: bytes = b""
    code: int = 0


class SandboxedFork:
    """A running fork as its parent sees it: a pipe to its stdin, and a pipe from its stdout."""

    def __init__(self, pid: int, writes: int, reads: int, seconds: float) -> None:
        self.writes, self.reads = writes, reads
        self._pid, self._seconds = pid, seconds
        self._spent = self._waited = 0.0
        self._ended: tuple[Ending, float] | None = None

    def wait(self, reads: Sequence[int], writes: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return which of its pipes are ready; none once it has computed and waited for its seconds.

        The fork ends with this process if none is ready. It waits while it gets nothing of a processor.

        Args:
            reads: descriptors to read from.
            writes: descriptors to write to.
        """
        while self._ended is None:
            readable, writable, _ = select.select(reads, writes, (), _WAIT_SECONDS)
            if readable or writable:
                return readable, writable
            # The clock of another process's processor time, as `clock_getcpuclockid` has it.
            cpu_seconds = time.clock_gettime((~self._pid << 3) | 2)
            self._waited += 0.0 if cpu_seconds > self._spent else _WAIT_SECONDS
            self._spent = cpu_seconds
            if cpu_seconds + self._waited >= self._seconds:
                self._ended = "timeout", self._seconds
        return [], []

    def end_input(self) -> None:
        """Let it read the end of its stdin."""
        if self.writes >= 0:
            os.close(self.writes)
            self.writes = -1

    def close(self) -> tuple[Ending, float]:
        """Close its pipes and wait for its end.

        Returns:
            How it ended, and its processor time in seconds.
        """
        if self._ended is None:
            self.end_input()
            os.close(self.reads)
            self._ended = _end_of(self._pid, self._seconds)[:2]
        return self._ended


class Sandbox:
    """The confinement of this process and of the forks that `call` starts."""

    def __init__(self, readable: Iterable[str], confined: bool = True) -> None:
        """Keep the files and folders that can be read; missing paths are ignored.

        With `confined` false, processes only have their limits of time. Raises OSError if `kernel.lacking()` gives a reason.
        """
        self.confined = confined
        self._readable = tuple(readable)
        self._ruleset = -1
        self._filter = b""
        self._null = -1

    def enter(self) -> None:
        """Lock this process, which has a single thread and has loaded what it needs."""
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        # Tables of the system, which libraries read as they are loaded: what they say differs by machine.
        mimetypes.knownfiles.clear()
        if self.confined:
            calls = kernel.architecture()
            assert calls is not None
            self._ruleset = kernel.make_ruleset(self._readable)
            self._filter = assemble(calls, COMPUTE)
            kernel.hide()
            kernel.restrict(self._ruleset)
            kernel.install(assemble(calls, {**COMPUTE, **FORK}))
        # What is there now is never looked at again, so that copies share its memory.
        gc.collect()
        gc.freeze()

    def call(self, work: Callable[[], bytes], seconds: float) -> CallReply:
        """Return the bytes that `work` gives in a fork of this process.

        The wall time is not limited: to limit it, end this process, and its fork ends with it.

        Args:
            work: the function that runs in the fork.
            seconds: processor seconds.
        """
        reads, writes = os.pipe()
        pid = self._fork(work, seconds, (self._null, self._null), writes)
        os.close(writes)
        try:
            data = _read_all(reads)
        finally:
            os.close(reads)
            ending, _, code = _end_of(pid, seconds)
        if ending == "done" and len(data) > LONGEST_REPLY:
            return CallReply("failed", code=1)
        return CallReply(ending, data if ending == "done" else b"", code)

    def start(self, work: Callable[[], bytes], seconds: float) -> SandboxedFork:
        """Return a fork of this process in which `work` runs, with pipes to this process as its stdin and stdout.

        What it writes there is not to be trusted. The bytes that `work` gives come last.

        Args:
            work: the function that runs in the fork.
            seconds: processor seconds.
        """
        its_stdin, writes = os.pipe()
        reads, its_stdout = os.pipe()
        pid = self._fork(work, seconds, (its_stdin, its_stdout), 1)
        os.close(its_stdin)
        os.close(its_stdout)
        return SandboxedFork(pid, writes, reads, seconds)

    def _fork(self, work: Callable[[], bytes], seconds: float, streams: tuple[int, int], writes: int) -> int:
        """Fork this process to run `work`, and return the fork's process id."""
        parent = os.getpid()
        _limit_time(None)
        pid = os.fork()
        if pid == 0:
            # Whatever happens, the copy must not return into the loop of this process.
            try:
                self._run_fork(work, seconds, streams, writes, parent)
            finally:
                os._exit(1)
        return pid

    def run_in_process(self, work: Callable[[], bytes], seconds: float) -> CallReply:
        """Run `work` in this process: its changes stay, and code that no timer interrupts ends the process.

        Args:
            work: the function to run.
            seconds: processor seconds.
        """
        _limit_time(seconds)
        return _run_timed(work, seconds)

    def _run_fork(
        self, work: Callable[[], bytes], seconds: float, streams: tuple[int, int], writes: int, parent: int
    ) -> None:
        """Confine the fork, run `work` within its time, and write its bytes."""
        if sys.platform == "linux":
            kernel.end_with_parent(parent)
        for stream, descriptor in enumerate((*streams, self._null)):
            os.dup2(descriptor, stream)
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
        reply = _run_timed(work, seconds)
        if reply.status == "done":
            with suppress(OSError):
                write_all(writes, reply.data)
                os._exit(0)
        os._exit(_TIMED_OUT_STATUS if reply.status == "timeout" else 1)


def _end_of(pid: int, seconds: float) -> tuple[Ending, float, int]:
    """Wait for the end of a fork, and return how it ended, its processor seconds, and its exit status.

    A fork that used up its time timed out, whatever ended it.
    """
    _, status, usage = os.wait4(pid, 0)
    code, cpu_seconds = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
    if code == 0:
        return "done", cpu_seconds, code
    # A timer may be a little early. Code can give this exit status by itself.
    if cpu_seconds >= seconds or (code == _TIMED_OUT_STATUS and cpu_seconds >= seconds / 2):
        return "timeout", cpu_seconds, code
    return "lost" if -code in _OUTSIDE_SIGNALS else "failed", cpu_seconds, code


def _run_timed(work: Callable[[], bytes], seconds: float) -> CallReply:
    """Return the result of `work`, unless its timer ends it first; a call of `exit` is a failure."""
    try:
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            return CallReply("done", work())
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except CallTimeout:
        return CallReply("timeout")
    except (Exception, SystemExit):
        return CallReply("failed")


def python_folders(modules: Iterable[str] = ()) -> list[str]:
    """Return the folders that Python reads: its library, packages, named modules, and the system's libraries."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")}
    for name in modules:
        module = sys.modules.get(name.partition(".")[0])
        folders.update(getattr(module, "__path__", ()))
    # Several of them are links, and what is read is where they lead.
    return sorted({*_SYSTEM, *folders, *(os.path.realpath(folder) for folder in folders)})


def empty_environment(environment: Mapping[str, str], **added: str) -> dict[str, str]:
    """Return an environment with the paths of Python and its packages, and the `added` variables."""
    return {**{name: environment[name] for name in _KEPT_VARIABLES if name in environment}, **added}


def limit_memory(mebibytes: int) -> None:
    """Limit the address space to `mebibytes` MiB, and forbid writing files and core dumps."""
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
    raise CallTimeout


def write_all(writes: int, data: bytes) -> None:
    """Write everything to a pipe. Raises OSError where nobody reads it."""
    while data:
        data = data[os.write(writes, data) :]


def _read_all(reads: int) -> bytes:
    """Read a pipe to its end, or a byte past the longest reply."""
    data = b""
    while len(data) <= LONGEST_REPLY:
        chunk = os.read(reads, 2**16)
        if not chunk:
            break
        data += chunk
    return data


_POLL_SECONDS = 10.0
LONGEST_WORDS = 500
Tell = Callable[[Mapping[str, object]], None]


def serve(prepare: Callable[[Tell], Callable[[], None]]) -> None:
    """Tell the parent whether `prepare` could load and confine what is needed, then run the function that it returns.

    stdout goes to stderr from here on, so that prints do not mix with messages.
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
    """Return whether this process can be confined. Raises KernelRefusal if it cannot and `must`."""
    missing = lacking()
    if missing is not None and must:
        raise KernelRefusal(0, missing)
    return missing is None


def lines(parent: int) -> Iterator[bytes]:
    """Yield lines from stdin until it ends, or until `parent` is no longer this process's parent."""
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
        chunk = os.read(0, 2**16)
        if not chunk:
            return
        buffer += chunk
