"""Pictures of charts, and the script that draws charts on a page, made by subprocesses.

The work needs V8, which returns memory to the system only at the end of its process.
"""

from __future__ import annotations

import io
import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from signal import Signals
from typing import Any, Literal

from reodsl.diagnostics import problem

_DRAWER = Path(__file__).with_name("drawer.py")
_BATCH_BYTES = 300_000
"""Bytes of charts, as JSON, after which a new process continues."""
_FORBIDDEN_IN_SVG = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u00[01][0-9a-f]|[bf])|[\ufffe\uffff]")
"""Characters that XML forbids, as JSON escapes them: the drawing process would end at one of them."""


Form = Literal["png", "pdf", "script"]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart as SVG, in UTF-8, and as PNG or as PDF with its fonts."""

    svg: bytes
    image: bytes
    """PNG or PDF. For the form `script` it is Vega, Vega-Lite and Vega-Embed, safe inside an HTML `<script>` element."""


@cache
def vega_script() -> str:
    """Return the script that draws charts on a page.

    Raises:
        Problem: E0985 if the process that bundles it fails.
    """
    return next(pictures([{"mark": "point"}], "script")).image.decode()


def pictures(charts: Iterable[Mapping[str, Any]], form: Form = "png") -> Iterator[Picture]:
    """Yield the picture of each Vega-Lite chart, in order.

    Args:
        charts: Vega-Lite specs.
        form: format of each picture's `image`.

    Raises:
        Problem: E0985 if a process that draws them fails, or if the address space is limited.
    """
    for lines in _batch_lines(charts):
        answer = io.BytesIO(_ask_drawer(b"".join(lines), form))
        for _ in lines:
            yield Picture(_read_block(answer), _read_block(answer))


def _batch_lines(charts: Iterable[Mapping[str, Any]]) -> Iterator[list[bytes]]:
    """Yield the charts as lines of JSON, in batches of about `_BATCH_BYTES` bytes; a process draws each batch."""
    lines: list[bytes] = []
    for chart in charts:
        text = _FORBIDDEN_IN_SVG.sub("\\1\N{REPLACEMENT CHARACTER}", json.dumps(chart, ensure_ascii=False))
        lines.append(text.encode("utf-8", "replace") + b"\n")
        if sum(map(len, lines)) > _BATCH_BYTES:
            yield lines
            lines = []
    if lines:
        yield lines


def _ask_drawer(lines: bytes, form: Form) -> bytes:
    """Run `drawer.py` in a subprocess, which draws charts with V8, and return what it writes to standard output.

    Args:
        lines: charts for its standard input, as lines of JSON.
        form: format of what it writes beside each SVG.

    Raises:
        Problem: E0985 if the process fails, or if the address space is limited.
    """
    require_space()
    # With `-P` neither the script's folder nor the working folder is on its import path.
    command = [sys.executable, "-P", str(_DRAWER), form]
    process = subprocess.run(command, input=lines, capture_output=True, check=False)
    if process.returncode:
        words = process.stderr.decode(errors="replace").strip().splitlines()
        cause = f"signal {Signals(-process.returncode).name}" if process.returncode < 0 else "an error"
        raise problem(
            "E0985",
            f"charts cannot be drawn: the process that draws them ended with {cause}",
            notes=[words[-1][:500]] if words else [],
            help="if the system ended it, give it more memory; then run again, which draws only the report",
        )
    return process.stdout


def _read_block(answer: io.BytesIO) -> bytes:
    """Return the next block of the drawer's output: eight bytes of its length, then its bytes."""
    return answer.read(int.from_bytes(answer.read(8), "big"))


def require_space() -> None:
    """Check that the address space is unlimited, since V8 reserves far more than it uses.

    Raises:
        Problem: E0985 if a limit is set.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        raise problem(
            "E0985",
            f"charts cannot be drawn under a limit of {soft >> 20:,} MiB of address space",
            notes=[
                "V8, which draws charts, reserves far more than it uses, and ends the process under any limit"
            ],
            help="lift the limit (`ulimit -v unlimited`) and run again, which draws only the report",
        )
