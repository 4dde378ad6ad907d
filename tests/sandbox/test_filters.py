"""Filters as the kernel runs them: a small machine for their programs, on the numbers of both processors."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

from runners.sandbox.kernel import ALLOW, ARCHITECTURES, COMPUTE, FORK, KILL, REFUSE, assemble

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def run(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the kernel's machine answers to a system call."""
    data = struct.pack("<IIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    held, at = 0, 0
    while True:
        code, if_true, if_false, operand = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, operand)
        elif code == 0x06:
            return int(operand)
        else:
            holds = {0x15: held == operand, 0x35: held >= operand, 0x45: bool(held & operand)}[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_only_what_is_listed_is_permitted(machine: str) -> None:
    here = ARCHITECTURES[machine]
    program = assemble(here, COMPUTE)
    listed = {here.numbers[name] for name in COMPUTE if name in here.numbers and COMPUTE[name] is None}
    permitted = {number for number in range(600) if run(program, here.audit, number) == ALLOW}
    conditional = {here.numbers[name] for name in COMPUTE if name in here.numbers and COMPUTE[name]}
    assert listed <= permitted <= listed | conditional
    assert {run(program, here.audit, number) for number in range(600)} == {ALLOW, REFUSE}
    assert run(program, here.audit, 0x40000000) == REFUSE
    assert run(program, here.audit ^ 1, here.numbers["read"]) == KILL
    for name in set(FORK) & set(here.numbers):
        assert run(program, here.audit, here.numbers[name], 0x01200011) == REFUSE, name


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_arguments_decide_where_a_call_has_several_uses(machine: str) -> None:
    here = ARCHITECTURES[machine]
    program = assemble(here, {**COMPUTE, **FORK})

    def asks(name: str, *arguments: int) -> bool:
        return run(program, here.audit, here.numbers[name], *arguments) == ALLOW

    assert asks("openat", 0, 0, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_APPEND, os.O_TMPFILE):
        assert not asks("openat", 0, 0, flags), flags
    assert asks("fcntl", 3, 1030)
    assert not asks("fcntl", 3, 8)  # F_SETOWN: a signal to its owner
    assert asks("ioctl", 1, 0x5401)
    assert not asks("ioctl", 0, 0x5412)  # TIOCSTI: letters typed into a terminal
    assert asks("prlimit64", 0, 7)
    assert not asks("prlimit64", 1, 7)
    assert asks("clone", 0x01200011)
    assert not asks("clone", 0x01200011 | 0x10000000)  # CLONE_NEWUSER


def test_both_processors_are_known() -> None:
    assert set(ARCHITECTURES) == set(HEADERS)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_numbers_are_the_kernels(machine: str) -> None:
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip(f"NUMBERS NOT COMPARED: the kernel's headers are not installed ({header})")
    told = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
    told["newfstatat"] = told.get("newfstatat", told.get("fstatat"))
    assert {name: int(told[name]) for name in ARCHITECTURES[machine].numbers} == ARCHITECTURES[
        machine
    ].numbers
