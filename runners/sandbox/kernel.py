"""Confine a process by Landlock and seccomp through ctypes, and find out what the machine lacks for this.

A seccomp filter lists the permitted system calls by their numbers on the architecture, with conditions on arguments. Any
other call fails with EPERM, and a process of another architecture is killed. The numbers are those of `asm/unistd_64.h`
(x86-64) and `asm-generic/unistd.h` (aarch64).
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

_NO_NEW_PRIVILEGES, _DEATH_SIGNAL, _DUMPABLE = 38, 1, 4
_SET_FILTER, _IS_AVAILABLE, _ALL_THREADS = 1, 2, 1
_REFUSE_ACTION = 0x00050000
_VERSION, _BENEATH = 1, 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3


class KernelRefusal(OSError):
    """The error of a kernel or container that refuses a part of the confinement."""


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


@cache
def _library() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def architecture() -> SystemCalls | None:
    """Return the numbers of this machine's system calls, or None for an unknown architecture."""
    return ARCHITECTURES.get(os.uname().machine)


def landlock_version() -> int:
    """Return the version of Landlock's interface; 0 if the kernel has no Landlock or a container hides it."""
    calls = architecture()
    if sys.platform != "linux" or calls is None:
        return 0
    number = calls.numbers["landlock_create_ruleset"]
    return max(0, _call(number, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION)))


@cache
def lacking() -> str | None:
    """Return the reason why a process cannot be confined on this machine; None if it can be confined.

    Confinement needs Linux, a known processor, and a kernel that permits Landlock and seccomp. Their system calls are
    tried with wrong arguments: if the call is permitted, the kernel reports the arguments, else it refuses the call.
    """
    if sys.platform != "linux":
        return f"Landlock and seccomp need Linux, and this is {sys.platform}"
    calls = architecture()
    if calls is None or sys.byteorder != "little" or sys.maxsize < 2**32:
        return f"its system calls are not known: {os.uname().machine}"
    if landlock_version() < 1:
        return f"the kernel ({os.uname().release}) has no Landlock, or a container hides it"
    action = ctypes.c_uint(_REFUSE_ACTION)
    if _call(calls.numbers["seccomp"], ctypes.c_uint(_IS_AVAILABLE), ctypes.c_uint(0), ctypes.byref(action)):
        return "the kernel has no seccomp filters, or a container hides them"
    # Calls with wrong arguments: the kernel reports the arguments only if the call itself is permitted.
    bad_descriptor, null = ctypes.c_int(-1), ctypes.c_void_p(None)
    for name, expected, arguments in (
        ("landlock_add_rule", errno.EBADF, (bad_descriptor, ctypes.c_uint(_BENEATH), null, ctypes.c_uint(0))),
        ("seccomp", errno.EFAULT, (ctypes.c_uint(_SET_FILTER), ctypes.c_uint(0), null)),
    ):
        _call(calls.numbers[name], *arguments)
        code = ctypes.get_errno()
        if code != expected:
            return f"`{name}` is refused ({os.strerror(code)}), as a container may do"
    return None


def make_ruleset(readable: Iterable[str]) -> int:
    """Return a Landlock ruleset, as a file descriptor, that permits only to read some files and folders.

    It refuses everything else that this kernel's Landlock can refuse: other access to files, and from later versions on
    also TCP, sockets and signals.

    Args:
        readable: The files and folders (with all that they contain); missing paths are ignored.

    Raises:
        OSError: The kernel has no Landlock.
    """
    calls = architecture()
    assert calls is not None
    version = landlock_version()
    # A ruleset refuses all rights that the version knows: files (REFER, TRUNCATE, IOCTL_DEV), TCP, sockets, signals.
    files = (1 << 13) - 1 | (0, 0, 1 << 13, 3 << 13, 3 << 13, 7 << 13)[min(version, 5)]
    attributes = struct.pack("<QQQ", files, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _checked(
        _call(
            calls.numbers["landlock_create_ruleset"],
            ctypes.c_char_p(attributes),
            ctypes.c_size_t(len(attributes)),
            ctypes.c_uint(0),
        )
    )
    for path in readable:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        access = _READ_FILE | _READ_FOLDER if os.path.isdir(path) else _READ_FILE
        rule = struct.pack("<Qi", access, descriptor)
        add = calls.numbers["landlock_add_rule"]
        _checked(
            _call(
                add, ctypes.c_int(ruleset), ctypes.c_uint(_BENEATH), ctypes.c_char_p(rule), ctypes.c_uint(0)
            )
        )
        os.close(descriptor)
    return ruleset


def restrict(ruleset: int) -> None:
    """Apply a Landlock ruleset (a file descriptor) to this process and its descendants, irrevocably.

    Raises:
        OSError: The kernel refuses it.
    """
    calls = architecture()
    assert calls is not None
    _give_up_privileges()
    _checked(_call(calls.numbers["landlock_restrict_self"], ctypes.c_int(ruleset), ctypes.c_uint(0)))


def install(program: bytes) -> None:
    """Apply a seccomp filter to this process and its descendants, irrevocably.

    Args:
        program: The filter as `assemble` gives it.

    Raises:
        OSError: The kernel refuses it, or another thread has other filters.
    """
    calls = architecture()
    assert calls is not None
    _give_up_privileges()
    steps = ctypes.create_string_buffer(program, len(program))
    wrapped = _Program(len(program) // 8, ctypes.addressof(steps))
    _checked_threads(
        _call(
            calls.numbers["seccomp"],
            ctypes.c_uint(_SET_FILTER),
            ctypes.c_uint(_ALL_THREADS),
            ctypes.byref(wrapped),
        )
    )


def hide() -> None:
    """Hide this process's memory and files in /proc from other processes of the same user."""
    _checked(_library().prctl(_DUMPABLE, 0, 0, 0, 0))


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends; exit now if the parent has already ended.

    The kernel watches the thread that started this process, so the parent must have a single thread.

    Args:
        parent: The process id of the parent.
    """
    _checked(_library().prctl(_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0))
    if os.getppid() != parent:
        os._exit(1)


def _give_up_privileges() -> None:
    """Set `no_new_privs`, which the kernel requires before a process without root may apply rulesets and filters."""
    _checked(_library().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))


def _call(number: int, *arguments: Any) -> int:
    return int(_library().syscall(ctypes.c_long(number), *arguments))


def _checked(result: int) -> int:
    """Return the result of a system call. Raises KernelRefusal with the error for a negative result."""
    if result < 0:
        code = ctypes.get_errno()
        raise KernelRefusal(code, f"the kernel or a container refuses it ({os.strerror(code)})")
    return result


def _checked_threads(result: int) -> None:
    """Check the result of installing a filter for all threads.

    Args:
        result: 0, the id of a thread that has other filters, or a negative number for an error.

    Raises:
        OSError: The result is not 0.
    """
    if _checked(result):
        raise OSError(errno.EBUSY, "another thread has filters of its own")


@dataclass(frozen=True, slots=True)
class FilterCondition:
    """A condition on an argument of a permitted system call; a call that does not meet the condition is refused."""

    argument: int
    """The index of the argument."""
    values: tuple[int, ...] = ()
    """The permitted values; empty for any value."""
    without: int = 0
    """Bits of which the argument may have none."""


@dataclass(frozen=True, slots=True)
class SystemCalls:
    """The system calls of a processor architecture."""

    audit: int
    """The number of the architecture in filters (`AUDIT_ARCH_…`)."""
    numbers: dict[str, int]
    """The number of each system call that the architecture has, by name."""


_TMPFILE = 0o20000000
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | _TMPFILE
_READS_TERMINAL, _FIONCLEX, _FIOCLEX = 0x5401, 0x5450, 0x5451
_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC = 0, 1, 2, 3, 1030
_FORK = 0x01200011
"""The flags of `clone` for a fork, SIGCHLD | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID: no thread and no namespace."""
_WAKES = tuple(wake | private for wake in (1, 3, 4, 5) for private in (0, 128))
"""FUTEX_WAKE, REQUEUE, CMP_REQUEUE and WAKE_OP, also private, but no waiting: a single thread has nobody to wait for."""

COMPUTE: dict[str, FilterCondition | None] = {
    # memory
    **dict.fromkeys(("brk", "mmap", "mprotect", "munmap", "mremap", "madvise")),
    # files that are open, and the opening of others to read
    **dict.fromkeys(("read", "pread64", "readv", "write", "writev", "lseek", "close", "dup", "getdents64")),
    "openat": FilterCondition(2, without=_CHANGES),
    "open": FilterCondition(1, without=_CHANGES),
    "fcntl": FilterCondition(1, (_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC)),
    "ioctl": FilterCondition(1, (_READS_TERMINAL, _FIONCLEX, _FIOCLEX)),
    **dict.fromkeys(("stat", "lstat", "fstat", "newfstatat", "statx", "access", "faccessat", "faccessat2")),
    **dict.fromkeys(("readlink", "readlinkat", "getcwd")),
    # signals of its own, time, chance
    **dict.fromkeys(("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall")),
    **dict.fromkeys(("getitimer", "setitimer", "time", "gettimeofday", "clock_gettime", "clock_getres")),
    **dict.fromkeys(("times", "getrusage", "getrandom")),
    # what it is and where it runs; limits of its own, which can be lowered
    **dict.fromkeys(("getpid", "getppid", "gettid", "getuid", "geteuid", "getgid", "getegid", "getrlimit")),
    **dict.fromkeys(("uname", "sysinfo", "sched_getaffinity", "sched_yield", "rseq")),
    "futex": FilterCondition(1, _WAKES),
    **dict.fromkeys(("set_robust_list", "arch_prctl", "exit", "exit_group")),
    "prlimit64": FilterCondition(0, (0,)),
}
"""The permitted system calls of a process that computes, reads files and writes to a pipe; none sleeps or waits."""

FORK: dict[str, FilterCondition | None] = {
    **dict.fromkeys(("poll", "ppoll", "select", "pselect6", "wait4", "pipe2", "dup2", "dup3", "close_range")),
    **dict.fromkeys(("prctl", "seccomp", "landlock_restrict_self", "fork")),
    "clone": FilterCondition(0, (_FORK,)),
    "futex": None,
}
"""The further system calls of a process that forks, confines its forks and waits for them."""

_X86_64 = dict(  # noqa: C408
    read=0, write=1, open=2, close=3, stat=4, fstat=5, lstat=6, poll=7, lseek=8, mmap=9, mprotect=10, munmap=11,
    brk=12, rt_sigaction=13, rt_sigprocmask=14, rt_sigreturn=15, ioctl=16, pread64=17, readv=19, writev=20, access=21,
    select=23, sched_yield=24, mremap=25, madvise=28, dup=32, dup2=33, getitimer=36, setitimer=38, getpid=39, clone=56,
    fork=57, exit=60, wait4=61, uname=63, fcntl=72, getcwd=79, readlink=89, gettimeofday=96, getrlimit=97, getrusage=98,
    sysinfo=99, times=100, getuid=102, getgid=104, geteuid=107, getegid=108, getppid=110, sigaltstack=131, prctl=157,
    arch_prctl=158, gettid=186, time=201, futex=202, sched_getaffinity=204, getdents64=217, restart_syscall=219,
    clock_gettime=228, clock_getres=229, exit_group=231, openat=257, newfstatat=262, readlinkat=267, faccessat=269,
    pselect6=270, ppoll=271, set_robust_list=273, dup3=292, pipe2=293, prlimit64=302, seccomp=317, getrandom=318,
    statx=332, rseq=334, close_range=436, faccessat2=439, landlock_create_ruleset=444, landlock_add_rule=445,
    landlock_restrict_self=446,
)  # fmt: skip
_AARCH64 = dict(  # noqa: C408
    getcwd=17, dup=23, dup3=24, fcntl=25, ioctl=29, faccessat=48, openat=56, close=57, pipe2=59, getdents64=61, lseek=62,
    read=63, write=64, readv=65, writev=66, pread64=67, pselect6=72, ppoll=73, readlinkat=78, newfstatat=79, fstat=80,
    exit=93, exit_group=94, futex=98, set_robust_list=99, getitimer=102, setitimer=103, clock_gettime=113,
    clock_getres=114, sched_getaffinity=123, sched_yield=124, restart_syscall=128, sigaltstack=132, rt_sigaction=134,
    rt_sigprocmask=135, rt_sigreturn=139, times=153, uname=160, getrlimit=163, getrusage=165, prctl=167,
    gettimeofday=169, getpid=172, getppid=173, getuid=174, geteuid=175, getgid=176, getegid=177, gettid=178,
    sysinfo=179, brk=214, munmap=215, mremap=216, clone=220, mmap=222, mprotect=226, madvise=233, wait4=260,
    prlimit64=261, seccomp=277, getrandom=278, statx=291, rseq=293, close_range=436, faccessat2=439,
    landlock_create_ruleset=444, landlock_add_rule=445, landlock_restrict_self=446,
)  # fmt: skip

ARCHITECTURES = {"x86_64": SystemCalls(0xC000003E, _X86_64), "aarch64": SystemCalls(0xC00000B7, _AARCH64)}
"""The architectures by the machine's name of `uname -m`."""


_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE = 0x00050000 | errno.EPERM
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`, in bytes."""
_X32 = 0x40000000


def assemble(architecture: SystemCalls, permitted: Mapping[str, FilterCondition | None]) -> bytes:
    """Return a seccomp filter as the bytes of an array of `struct sock_filter`.

    The filter kills a process that makes calls of another architecture, and refuses (EPERM) every call that is not
    permitted.

    Args:
        architecture: The architecture; permitted calls that it lacks are left out.
        permitted: The permitted system calls by name, with a condition or None.
    """
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture.audit, 1, 0),
        _step(_RETURN, KILL),
        _step(_LOAD, _NUMBER),
        # The x32 interface of x86-64 has the same calls with other numbers, from `_X32` on.
        _step(_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, REFUSE),
    ]
    for name, condition in permitted.items():
        number = architecture.numbers.get(name)
        if number is not None:
            steps = _condition_steps(condition)
            program += [_step(_EQUAL, number, 0, len(steps)), *steps]
    program.append(_step(_RETURN, REFUSE))
    return b"".join(program)


def _condition_steps(condition: FilterCondition | None) -> list[bytes]:
    """Return the instructions that allow a call if its condition holds, and refuse the call otherwise.

    Only the lower 32 bits of an argument are compared. Without a condition (None) the call is allowed.
    """
    if condition is None:
        return [_step(_RETURN, ALLOW)]
    checks = [_step(_LOAD, _ARGUMENTS + 8 * condition.argument)]
    if condition.without:
        checks += [_step(_ANY_BIT, condition.without, 0, 1), _step(_RETURN, REFUSE)]
    for value in condition.values:
        checks += [_step(_EQUAL, value, 0, 1), _step(_RETURN, ALLOW)]
    return [*checks, _step(_RETURN, REFUSE if condition.values else ALLOW)]


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return an instruction of a filter as a `struct sock_filter`.

    Args:
        code: The operation, such as `_LOAD`.
        operand: Its operand.
        if_true: The number of instructions to skip if a comparison holds.
        if_false: The number of instructions to skip if a comparison does not hold.
    """
    return struct.pack("<HBBI", code, if_true, if_false, operand)
