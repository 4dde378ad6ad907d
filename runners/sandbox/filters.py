"""seccomp filters: a program for the kernel from an architecture's permitted system calls.

Whatever is not permitted fails with EPERM, as a call without the rights to it does; a process of another architecture
is killed.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping

from runners.sandbox.syscalls import Condition, SystemCalls

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE = 0x00050000 | errno.EPERM
# Offsets in `struct seccomp_data`.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000


def assemble(architecture: SystemCalls, permitted: Mapping[str, Condition | None]) -> bytes:
    """Return the filter as an array of `struct sock_filter`; names that the architecture does not have are left out."""
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture.audit, 1, 0),
        _step(_RETURN, KILL),
        _step(_LOAD, _NUMBER),
        # Numbers from here on are x86-64's second set of the same calls.
        _step(_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, REFUSE),
    ]
    for name, condition in permitted.items():
        number = architecture.numbers.get(name)
        if number is not None:
            body = _body(condition)
            program += [_step(_EQUAL, number, 0, len(body)), *body]
    program.append(_step(_RETURN, REFUSE))
    return b"".join(program)


def _body(condition: Condition | None) -> list[bytes]:
    """Return the checks that follow the number of a permitted call; only the lower half of an argument counts."""
    if condition is None:
        return [_step(_RETURN, ALLOW)]
    checks = [_step(_LOAD, _ARGUMENTS + 8 * condition.argument)]
    if condition.without:
        checks += [_step(_ANY_BIT, condition.without, 0, 1), _step(_RETURN, REFUSE)]
    for value in condition.values:
        checks += [_step(_EQUAL, value, 0, 1), _step(_RETURN, ALLOW)]
    return [*checks, _step(_RETURN, REFUSE if condition.values else ALLOW)]


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, operand)
