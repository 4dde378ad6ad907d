"""A process that runs untrusted work in confined copies of itself.

    sandbox = Sandbox(python_folders())
    ...                      # import, load and warm up what all forks need
    sandbox.enter()          # from here on the process only reads those folders and forks
    reply = sandbox.call(lambda: work(text), seconds=5.0)

Each call runs in a fork that ends with the call, so its changes do not reach the next call. A fork computes and reads, and
can only write to the pipe of its reply. If the function runs untrusted code, that code can reply any bytes: **judge them
outside**, by data that the fork never had.

`Sandbox.run_in_process` makes no fork, and is for work that runs no untrusted code: `call` takes a few milliseconds more.
Nothing here needs root or a package: the imports are this package and Python's standard library.
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
"""Seconds of wall-clock time within which a process that computes gets processor time even on a busy machine."""
_KEPT_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo")
_OUTSIDE_SIGNALS = (signal.SIGKILL, signal.SIGTERM)
"""Signals by which an operator, or a system short of memory, ends a process."""


class CallTimeout(BaseException):
    """The exception by which a timer ends a call, which no `except Exception` catches."""


Ending = Literal["done", "timeout", "failed", "lost"]
"""The end of a call: `timeout` if its processor time was used up, `failed` if it raised an exception, ended early or replied
too much, and `lost` if another process killed its process, which says nothing about the code that it ran."""


@dataclass(frozen=True, slots=True)
class CallReply:
    """The result of a call."""

    status: Ending
    data: bytes = b""
    """The reply, if the call is `done`."""
    code: int = 0
    """The fork's exit status, below 0 for a signal."""


class SandboxedFork:
    """A running fork with two pipes: the parent writes to its stdin and reads from its stdout."""

    def __init__(self, pid: int, stdin: int, stdout: int, seconds: float) -> None:
        """Describe a fork that runs.

        Args:
            pid: The process id of the fork.
            stdin: The descriptor from which the fork's stdin is written; -1 after `end_input`.
            stdout: The descriptor at which the fork's stdout is read.
            seconds: The fork's limit of processor time.
        """
        self.stdin, self.stdout = stdin, stdout
        self._pid, self._seconds = pid, seconds
        self._cpu_seconds = self._waited = 0.0
        self._ended: tuple[Ending, float] | None = None

    def wait(self, readers: Sequence[int], writers: Sequence[int]) -> tuple[list[int], list[int]]:
        """Wait until a pipe is ready, or until the fork has used up its time.

        The time is processor time, plus wall-clock time in which the fork neither computed nor used a pipe. A fork that has
        used up its time goes on until this process ends, with which it ends too.

        Args:
            readers: Descriptors to read from.
            writers: Descriptors to write to.

        Returns:
            The descriptors that are ready to read and to write; both empty if the time is used up.
        """
        while self._ended is None:
            readable, writable, _ = select.select(readers, writers, (), _WAIT_SECONDS)
            if readable or writable:
                return readable, writable
            # The number of the clock of another process's processor time, as `clock_getcpuclockid` computes it.
            cpu_seconds = time.clock_gettime((~self._pid << 3) | 2)
            self._waited += 0.0 if cpu_seconds > self._cpu_seconds else _WAIT_SECONDS
            self._cpu_seconds = cpu_seconds
            if cpu_seconds + self._waited >= self._seconds:
                self._ended = "timeout", self._seconds
        return [], []

    def end_input(self) -> None:
        """Close the pipe to the fork's stdin, so that the fork reads its end."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def close(self) -> tuple[Ending, float]:
        """Close both pipes and wait until the fork has ended; do nothing if `wait` has found its time used up.

        Returns:
            How the fork ended, and its processor time in seconds.
        """
        if self._ended is None:
            self.end_input()
            os.close(self.stdout)
            self._ended = _wait_for_fork(self._pid, self._seconds)[:2]
        return self._ended


class Sandbox:
    """The confinement of this process and of its forks."""

    def __init__(self, readable: Iterable[str], confined: bool = True) -> None:
        """Prepare a sandbox; `enter` confines this process.

        Args:
            readable: The files and folders that can be read; missing paths are ignored.
            confined: False to set only limits of time, on a machine for which `kernel.lacking()` gives a reason.
        """
        self.confined = confined
        self._readable = tuple(readable)
        self._ruleset = -1
        self._filter = b""
        self._null = -1

    def enter(self) -> None:
        """Confine this process, which has a single thread and has imported everything that its forks need.

        Raises:
            OSError: The kernel refuses a part of the confinement.
        """
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        # Libraries would read these files of the system, which differ between machines.
        mimetypes.knownfiles.clear()
        if self.confined:
            calls = kernel.architecture()
            assert calls is not None
            self._ruleset = kernel.make_ruleset(self._readable)
            self._filter = assemble(calls, COMPUTE)
            kernel.hide()
            kernel.restrict(self._ruleset)
            kernel.install(assemble(calls, {**COMPUTE, **FORK}))
        # The garbage collector never touches existing objects again, so that forks share their memory.
        gc.collect()
        gc.freeze()

    def call(self, work: Callable[[], bytes], seconds: float) -> CallReply:
        """Run a function in a fork of this process, and return its result.

        The wall-clock time is not limited. A caller that ends this process ends the fork too.

        Args:
            work: The function that runs in the fork, and returns the bytes of the reply.
            seconds: The limit of processor time.
        """
        reader, writer = os.pipe()
        pid = self._fork(work, seconds, (self._null, self._null), writer)
        os.close(writer)
        try:
            data = _read_all(reader)
        finally:
            os.close(reader)
            ending, _, code = _wait_for_fork(pid, seconds)
        if ending == "done" and len(data) > LONGEST_REPLY:
            return CallReply("failed", code=1)
        return CallReply(ending, data if ending == "done" else b"", code)

    def start(self, work: Callable[[], bytes], seconds: float) -> SandboxedFork:
        """Run a function in a fork of this process, whose stdin and stdout are pipes to this process.

        The fork's output is not to be trusted. It ends with the bytes that the function returns.

        Args:
            work: The function that runs in the fork.
            seconds: The limit of processor time.
        """
        fork_stdin, stdin_writer = os.pipe()
        stdout_reader, fork_stdout = os.pipe()
        pid = self._fork(work, seconds, (fork_stdin, fork_stdout), 1)
        os.close(fork_stdin)
        os.close(fork_stdout)
        return SandboxedFork(pid, stdin_writer, stdout_reader, seconds)

    def _fork(self, work: Callable[[], bytes], seconds: float, streams: tuple[int, int], writer: int) -> int:
        """Fork this process to run a function, and return the fork's process id.

        Args:
            work: The function that runs in the fork.
            seconds: The limit of processor time.
            streams: The descriptors that become the fork's stdin and stdout.
            writer: The fork's descriptor for the bytes that the function returns.
        """
        parent = os.getpid()
        _limit_time(None)
        pid = os.fork()
        if pid == 0:
            # The fork must never return into the code of this process.
            try:
                self._run_fork(work, seconds, streams, writer, parent)
            finally:
                os._exit(1)
        return pid

    def run_in_process(self, work: Callable[[], bytes], seconds: float) -> CallReply:
        """Run a function in this process, and return its result.

        Changes of the function stay. Code that the timer cannot interrupt makes the kernel end this process.

        Args:
            work: The function, which returns the bytes of the reply.
            seconds: The limit of processor time.
        """
        _limit_time(seconds)
        return _run_timed(work, seconds)

    def _run_fork(
        self, work: Callable[[], bytes], seconds: float, streams: tuple[int, int], writer: int, parent: int
    ) -> None:
        """Confine this process, which is the fork, run the function, write its bytes, and exit.

        Args:
            work: The function.
            seconds: The limit of processor time.
            streams: The descriptors that become stdin and stdout.
            writer: The descriptor for the bytes that the function returns.
            parent: The process id of the parent, with which this process ends.
        """
        if sys.platform == "linux":
            kernel.end_with_parent(parent)
        for stream, descriptor in enumerate((*streams, self._null)):
            os.dup2(descriptor, stream)
        # All descriptors but the streams, the writer and the ruleset are closed.
        keep = sorted({2, writer, self._ruleset} - {-1})
        for low, high in zip(keep, [*keep[1:], 2**16], strict=True):
            os.closerange(low + 1, high)
        _limit_time(seconds, is_final=True)
        if self.confined:
            # A ruleset on top of the parent's, so that the fork cannot inspect any process, not even its parent.
            kernel.restrict(self._ruleset)
            os.close(self._ruleset)
            kernel.install(self._filter)
        reply = _run_timed(work, seconds)
        if reply.status == "done":
            with suppress(OSError):
                write_all(writer, reply.data)
                os._exit(0)
        os._exit(_TIMED_OUT_STATUS if reply.status == "timeout" else 1)


def _wait_for_fork(pid: int, seconds: float) -> tuple[Ending, float, int]:
    """Wait until a fork has ended; a fork that has used up its time counts as timed out, whatever ended it.

    Args:
        pid: The process id of the fork.
        seconds: The fork's limit of processor time.

    Returns:
        How the fork ended, its processor time in seconds, and its exit status.
    """
    _, status, usage = os.wait4(pid, 0)
    code, cpu_seconds = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
    if code == 0:
        return "done", cpu_seconds, code
    # A timer may be a little early, and untrusted code can also exit with this status.
    if cpu_seconds >= seconds or (code == _TIMED_OUT_STATUS and cpu_seconds >= seconds / 2):
        return "timeout", cpu_seconds, code
    return "lost" if -code in _OUTSIDE_SIGNALS else "failed", cpu_seconds, code


def _run_timed(work: Callable[[], bytes], seconds: float) -> CallReply:
    """Return the reply of a function, or `timeout` after its processor seconds; any exception and `exit` is a failure."""
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
    """Return the folders that a Python process has to read.

    They are Python's library and packages, the system's libraries, and the folders of some loaded modules.

    Args:
        modules: The names of further modules, e.g. `sys.modules`.
    """
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")}
    for name in modules:
        module = sys.modules.get(name.partition(".")[0])
        folders.update(getattr(module, "__path__", ()))
    # Some folders are symbolic links, and the kernel checks their targets.
    return sorted({*_SYSTEM, *folders, *(os.path.realpath(folder) for folder in folders)})


def empty_environment(environment: Mapping[str, str], **added: str) -> dict[str, str]:
    """Return environment variables for a worker: only the paths of Python and its packages, and the `added` variables."""
    return {**{name: environment[name] for name in _KEPT_VARIABLES if name in environment}, **added}


def limit_memory(mebibytes: int) -> None:
    """Limit this process's address space to `mebibytes` MiB, and forbid it to write files and core dumps."""
    size = mebibytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _limit_time(seconds: float | None, is_final: bool = False) -> None:
    """Set the processor time at which the kernel kills this process, for code that a timer cannot interrupt.

    Args:
        seconds: The limit from now on, to which a second is added; None for no limit.
        is_final: True if the process may not raise its limit again.
    """
    signal.signal(signal.SIGPROF, _raise_timeout)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = hard
    if seconds is not None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        soft = math.ceil(usage.ru_utime + usage.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, soft if is_final else hard))


def _raise_timeout(signum: int, frame: FrameType | None) -> None:
    raise CallTimeout


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes to a file descriptor. Raises OSError if it is a pipe without a reader."""
    while data:
        data = data[os.write(descriptor, data) :]


def _read_all(descriptor: int) -> bytes:
    """Return the bytes of a pipe up to its end, or somewhat more than the longest reply if it goes on."""
    data = b""
    while len(data) <= LONGEST_REPLY:
        chunk = os.read(descriptor, 2**16)
        if not chunk:
            break
        data += chunk
    return data


_POLL_SECONDS = 10.0
LONGEST_WORDS = 500
Tell = Callable[[Mapping[str, object]], None]
"""Sends a message to the parent, as a line of JSON on the process's first stdout."""


def serve(prepare: Callable[[Tell], Callable[[], None]]) -> None:
    """Run a worker process: prepare it, report to the parent that it is ready or why not, and answer requests.

    stdout becomes stderr here, so that prints do not mix with messages to the parent.

    Args:
        prepare: Loads and confines what the worker needs, and returns the function that answers all requests. It gets
            the function that sends messages to the parent.
    """
    out = os.dup(1)
    os.dup2(2, 1)

    def send(message: Mapping[str, object]) -> None:
        write_all(out, json.dumps(message).encode("ascii") + b"\n")

    try:
        answer_requests = prepare(send)
    except KernelRefusal as refused:
        send({"ready": False, "lacking": refused.strerror})
    except Exception as failure:
        send({"ready": False, "why": f"{type(failure).__name__}: {failure}"[:LONGEST_WORDS].rstrip(": ")})
    else:
        send({"ready": True})
        answer_requests()


def confinable(is_required: bool = True) -> bool:
    """Return whether this process can be confined.

    Raises:
        KernelRefusal: It cannot, and `is_required` is True.
    """
    missing = lacking()
    if missing is not None and is_required:
        raise KernelRefusal(0, missing)
    return missing is None


def lines(parent: int) -> Iterator[bytes]:
    """Yield the lines of stdin until stdin ends, or until the parent (a process id) has ended."""
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
