"""Confine a process by ctypes: Landlock, seccomp, a parent's end, and what of these is missing."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

from runners.sandbox.filters import ARCHITECTURES, SystemCalls

_NO_NEW_PRIVILEGES, _DEATH_SIGNAL, _DUMPABLE = 38, 1, 4
_SET_FILTER, _IS_AVAILABLE, _ALL_THREADS = 1, 2, 1
_REFUSE_ACTION = 0x00050000
_VERSION, _BENEATH = 1, 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3


class KernelRefusal(OSError):
    """The kernel, or a container, refuses a part of the confinement."""


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


@cache
def _library() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def architecture() -> SystemCalls | None:
    """Return this machine's, where its system calls are known."""
    return ARCHITECTURES.get(os.uname().machine)


def landlock_version() -> int:
    """Return the version of Landlock's interface; 0 where the kernel has none, or hides it."""
    here = architecture()
    if sys.platform != "linux" or here is None:
        return 0
    number = here.numbers["landlock_create_ruleset"]
    return max(0, _call(number, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION)))


@cache
def lacking() -> str | None:
    """Why a process cannot be confined on this machine; None where it can."""
    if sys.platform != "linux":
        return f"Landlock and seccomp are Linux's, and this is {sys.platform}"
    here = architecture()
    if here is None or sys.byteorder != "little" or sys.maxsize < 2**32:
        return f"its system calls are not known: {os.uname().machine}"
    if landlock_version() < 1:
        return f"the kernel ({os.uname().release}) has no Landlock, or a container hides it"
    action = ctypes.c_uint(_REFUSE_ACTION)
    if _call(here.numbers["seccomp"], ctypes.c_uint(_IS_AVAILABLE), ctypes.c_uint(0), ctypes.byref(action)):
        return "the kernel has no seccomp filters, or a container hides them"
    # With arguments that are wrong, at which the kernel looks only where it permits the call.
    none, nothing = ctypes.c_int(-1), ctypes.c_void_p(None)
    for name, wrong, arguments in (
        ("landlock_add_rule", errno.EBADF, (none, ctypes.c_uint(_BENEATH), nothing, ctypes.c_uint(0))),
        ("seccomp", errno.EFAULT, (ctypes.c_uint(_SET_FILTER), ctypes.c_uint(0), nothing)),
    ):
        _call(here.numbers[name], *arguments)
        code = ctypes.get_errno()
        if code != wrong:
            return f"`{name}` is refused ({os.strerror(code)}), as a container may do"
    return None


def make_ruleset(readable: Iterable[str]) -> int:
    """Return a Landlock ruleset, as a file descriptor, by which nothing is permitted but to read these files and folders.

    What is not there is left out. Raises OSError where the kernel has no Landlock.
    """
    here = architecture()
    assert here is not None
    version = landlock_version()
    # Everything that a version knows of is refused: files (REFER, TRUNCATE, IOCTL_DEV), TCP, abstract sockets, signals.
    files = (1 << 13) - 1 | (0, 0, 1 << 13, 3 << 13, 3 << 13, 7 << 13)[min(version, 5)]
    attributes = struct.pack("<QQQ", files, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _checked(
        _call(
            here.numbers["landlock_create_ruleset"],
            ctypes.c_char_p(attributes),
            ctypes.c_size_t(len(attributes)),
            ctypes.c_uint(0),
        )
    )
    for path in readable:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        access = _READ_FILE | _READ_FOLDER if os.path.isdir(path) else _READ_FILE
        rule = struct.pack("<Qi", access, place)
        add = here.numbers["landlock_add_rule"]
        _checked(
            _call(
                add, ctypes.c_int(ruleset), ctypes.c_uint(_BENEATH), ctypes.c_char_p(rule), ctypes.c_uint(0)
            )
        )
        os.close(place)
    return ruleset


def restrict(ruleset: int) -> None:
    """Put this process and those that it starts under a ruleset, for good. Raises OSError."""
    here = architecture()
    assert here is not None
    _give_up_privileges()
    _checked(_call(here.numbers["landlock_restrict_self"], ctypes.c_int(ruleset), ctypes.c_uint(0)))


def install(program: bytes) -> None:
    """Put this process and those that it starts under a filter, for good. Raises OSError."""
    here = architecture()
    assert here is not None
    _give_up_privileges()
    steps = ctypes.create_string_buffer(program, len(program))
    wrapped = _Program(len(program) // 8, ctypes.addressof(steps))
    _exactly(
        _call(
            here.numbers["seccomp"],
            ctypes.c_uint(_SET_FILTER),
            ctypes.c_uint(_ALL_THREADS),
            ctypes.byref(wrapped),
        )
    )


def hide() -> None:
    """Close what /proc shows of this process to others of the same user."""
    _checked(_library().prctl(_DUMPABLE, 0, 0, 0, 0))


def end_with_parent(parent: int) -> None:
    """Have this process killed when `parent` ends, whose one thread started it."""
    _checked(_library().prctl(_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0))
    if os.getppid() != parent:
        os._exit(1)


def _give_up_privileges() -> None:
    _checked(_library().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))


def _call(number: int, *arguments: Any) -> int:
    return int(_library().syscall(ctypes.c_long(number), *arguments))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise KernelRefusal(code, f"the kernel or a container refuses it ({os.strerror(code)})")
    return result


def _exactly(result: int) -> None:
    # A filter that another thread cannot take is answered with that thread's number.
    if _checked(result):
        raise OSError(errno.EBUSY, "another thread has filters of its own")
