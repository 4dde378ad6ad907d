"""Kernels that refuse a part of the sandbox, or know an old version of it only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runners.sandbox import kernel

confined = pytest.mark.skipif(kernel.lacking() is not None, reason="nothing confines processes here")
REFUSE = """
import struct, sys
from runners.sandbox import kernel
here = kernel.architecture()
step = lambda code, operand, no=0: struct.pack("<HBBI", code, 0, no, operand)
refused = here.numbers[sys.argv[1]]
kernel.install(step(0x20, 0) + step(0x15, refused, 1) + step(0x06, 0x00050000 | int(sys.argv[2])) + step(0x06, 0x7FFF0000))
"""
ASKED = REFUSE + "print(kernel.lacking())"
GRADED = (
    REFUSE
    + """
from reodsl.diagnostics import Problem
from runners.grade import Claim, PooledVerifier
for kind, confined in ((sys.argv[3], True), ("math", False)):
    verifier = PooledVerifier(kind, workers=1, seconds=5.0, memory_mib=1024, fast=False, confined=confined)
    try:
        print(verifier.grade([Claim("x+1", "1+x", "{}")])[0].correct)
    except Problem as caught:
        (refusal,) = caught.diagnostics
        print(refusal.code, refusal.message, refusal.help)
    verifier.close()
"""
)
TRIED = """
import os, socket, sys
from runners.sandbox import Sandbox, kernel, python_folders
version, place = int(sys.argv[1]), sys.argv[2]
kernel.landlock_version = lambda: version
sandbox = Sandbox([*python_folders(), place])
sandbox.enter()
kept, secret, parent = f"{place}/kept", f"{place}/../secret", os.getpid()
attempts = {
    "read": lambda: os.close(os.open(kept, os.O_RDONLY)),
    "cut": lambda: os.open(kept, os.O_RDONLY | os.O_TRUNC),
    "truncate": lambda: os.truncate(kept, 0),
    "write": lambda: os.open(kept, os.O_WRONLY),
    "make": lambda: os.open(f"{place}/new", os.O_CREAT | os.O_WRONLY),
    "rename": lambda: os.rename(kept, f"{place}/sub/kept"),
    "link": lambda: os.link(kept, f"{place}/sub/kept"),
    "symlink": lambda: os.symlink(kept, f"{place}/sub/kept"),
    "remove": lambda: os.unlink(kept),
    "folder": lambda: os.mkdir(f"{place}/folder"),
    "secret": lambda: os.open(secret, os.O_RDONLY),
    "connect": lambda: socket.create_connection(("127.0.0.1", 9), 1),
    "abstract": lambda: socket.socket(socket.AF_UNIX).connect("\\0name"),
    "signal": lambda: os.kill(parent, 0),
    "device": lambda: os.open("/dev/null", os.O_RDWR),
}

def done() -> bytes:
    names = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except PermissionError:
            continue
        names.append(name)
    return " ".join(names).encode()

print(sandbox.call(done, 5.0).data.decode())
"""


def answer(script: str, *arguments: object) -> str:
    called = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(called, capture_output=True, text=True, check=True).stdout.strip()


@confined
@pytest.mark.parametrize("code", [1, 38])
def test_a_kernel_that_refuses_a_part_of_it_cannot_confine(code: int) -> None:
    assert "has no Landlock" in answer(ASKED, "landlock_create_ruleset", code)
    assert "`landlock_add_rule` is refused" in answer(ASKED, "landlock_add_rule", code)
    assert "seccomp" in answer(ASKED, "seccomp", code)
    assert answer(ASKED, "sysinfo", code) == "None"


@pytest.mark.slow
@confined
def test_what_a_kernel_refuses_is_named_with_what_helps() -> None:
    """More memory does not; saying `--without-sandbox` does."""
    refused, without = answer(GRADED, "landlock_add_rule", 1, "reasoning_gym").splitlines()
    why = "`landlock_add_rule` is refused (Operation not permitted), as a container may do"
    assert refused.startswith(f"E0742 the processes that check answers cannot be confined: {why}")
    assert refused.endswith("--without-sandbox")
    assert without == "True"


@pytest.mark.slow
@confined
def test_a_domain_that_is_refused_only_as_it_is_entered_is_no_matter_of_memory() -> None:
    for told in answer(GRADED, "landlock_restrict_self", 1, "math").splitlines():
        assert told.startswith("E0742")
        assert "cannot be confined: the kernel or a container refuses it (Operation not permitted)" in told


@confined
@pytest.mark.parametrize("version", range(1, 8))
def test_old_versions_of_landlock_permit_no_more(tmp_path: Path, version: int) -> None:
    """What a version cannot refuse, such as cutting a file, the filter does."""
    if version > kernel.landlock_version():
        pytest.skip(f"this kernel has version {kernel.landlock_version()}")
    (tmp_path / "place" / "sub").mkdir(parents=True)
    (tmp_path / "place" / "kept").write_text("kept")
    (tmp_path / "secret").write_text("secret")
    assert answer(TRIED, version, tmp_path / "place") == "read"
    assert (tmp_path / "place" / "kept").read_text() == "kept"
