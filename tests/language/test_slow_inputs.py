"""Inputs that were slow to check: each within two seconds of processor and 300 MB, in a process of its own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.language.test_large import HEAD

SECONDS = 2.0
MEGABYTES = 300.0

SPEC = HEAD.replace("STEPS", "steps = 40 steps")
OVER = "stages(cap in every(1 tokens, from: 1 tokens, to: 256 tokens)) { optim { lr = 1e-6 } }"


class Spent(NamedTuple):
    """What a child took: seconds of processor, its own start included, and its peak."""

    seconds: float
    megabytes: float


def spent(path: Path) -> Spent:
    """What `reodsl check` takes on a file; it answers, and with no traceback."""
    command = [sys.executable, "-m", "reodsl", "check", path.name]
    # A child's peak is counted from that of its parent, and this process is larger: a small one stands between.
    between = (
        "import os, sys\n"
        f"child = os.posix_spawn(sys.executable, {command!r}, os.environ)\n"
        "_, status, usage = os.wait4(child, 0)\n"
        "print('spent', status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", between],
        cwd=path.parent,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)),
    )
    assert "Traceback" not in done.stderr
    status, seconds, megabytes = done.stdout.splitlines()[-1].removeprefix("spent ").split()
    assert os.waitstatus_to_exitcode(int(status)) in (0, 1), done.stderr[-2000:]
    return Spent(float(seconds), float(megabytes))


CASES = {
    "greedy schedules": "from std.paper import qwen3_4b as f\n"
    + "".join(f"budgets b{n} = greedy(f, to: 32K tokens, n: 4096)\n" for n in range(10)),
    "a greedy schedule of sixteen million tokens": "from std.paper import qwen3_4b as f\n"
    "budgets b = greedy(f, to: 16M tokens, n: 1)\n",
    "names that there are not": "".join(f"param p{n}: int = q{n}\n" for n in range(5000)),
    "a circle on one line": "; ".join(f"param p{n}: int = p{(n + 1) % 8000}" for n in range(8000)),
    "small circles on one line": "; ".join(f"param p{n}: int = p{n}" for n in range(8000)),
    "a line of signs": "@" * 260_000,
    "escapes that there are not": 'param p: text = "' + "\\q" * 120_000 + '"',
    "marks without letters": 'param p: int = "' + "\u0301" * 100_000 + '"',
    "a list": "param p: [int] = [" + ",".join("1" for _ in range(25_000)) + "]",
    "brackets": "([{" * 80_000,
    "linear schedules": "".join(f"budgets b{n} = linear(to: 32K tokens, n: 4096)\n" for n in range(4000)),
    "seeds": SPEC + f"study s {{\n  replicate = {list(range(2500))}\n  arm a = x\n}}\n",
    "arms": SPEC + "study s {\n" + "".join(f"  arm a{n} = x\n" for n in range(9000)) + "}\n",
    "parents": SPEC
    + "".join(f"experiment e{n} = {f'e{n - 1}' if n else 'x'} {{ steps = 1 steps }}\n" for n in range(500)),
    "modules that there are not": "".join(f"from .nope{n} import x\n" for n in range(9000)),
}


@pytest.mark.parametrize("name", CASES)
def test_is_checked_soon(name: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(CASES[name])
    found = spent(path)
    assert found.seconds < SECONDS
    assert found.megabytes < MEGABYTES


def test_many_files_are_checked_soon(tmp_path: Path) -> None:
    for number in range(60):
        lines = "".join(f"param p{number}_{n}: int = {n}\n" for n in range(8000))
        (tmp_path / f"f{number}.reo").write_text(lines)
    path = tmp_path / "spec.reo"
    path.write_text("".join(f"from .f{number} import p{number}_0\n" for number in range(60)))
    found = spent(path)
    assert found.seconds < SECONDS
    assert found.megabytes < MEGABYTES
