"""Pictures of charts, and the script that draws them on a page, made by processes that end with their work.

They need V8, which gives back nothing of what it took as long as its process lives.
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
_LARGE = 300_000
"""Bytes of charts after which another process draws."""
_UNDRAWN = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u00[01][0-9a-f]|[bf])|[\ufffe\uffff]")
"""The characters that no SVG may hold, as JSON has them: a name with one would end the drawer."""


Form = Literal["png", "pdf"]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart as SVG, in UTF-8, and as PNG or as PDF with its fonts."""

    svg: bytes
    image: bytes


@cache
def vega_script() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, from the vl-convert package (no network). Raises E0985."""
    script = _ask_drawer(b"", "script").decode()
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def pictures(charts: Iterable[Mapping[str, Any]], form: Form = "png") -> Iterator[Picture]:
    """Yield the pictures of Vega-Lite charts, in order. Raises E0985."""
    for lines in _together(charts):
        answer = io.BytesIO(_ask_drawer(b"".join(lines), form))
        for _ in lines:
            yield Picture(_part(answer), _part(answer))


def _together(charts: Iterable[Mapping[str, Any]]) -> Iterator[list[bytes]]:
    """Yield the charts that one process draws, a line for each."""
    lines: list[bytes] = []
    for chart in charts:
        text = _UNDRAWN.sub("\\1\N{REPLACEMENT CHARACTER}", json.dumps(chart, ensure_ascii=False))
        lines.append(text.encode("utf-8", "replace") + b"\n")
        if sum(map(len, lines)) > _LARGE:
            yield lines
            lines = []
    if lines:
        yield lines


def _ask_drawer(lines: bytes, *arguments: str) -> bytes:
    """Return all that a drawer writes for these lines."""
    require_space()
    # With `-P` neither the script's folder nor the working folder is on its import path.
    command = [sys.executable, "-P", str(_DRAWER), *arguments]
    done = subprocess.run(command, input=lines, capture_output=True, check=False)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        ended = f"signal {Signals(-done.returncode).name}" if done.returncode < 0 else "an error"
        raise problem(
            "E0985",
            f"charts cannot be drawn: the process that draws them ended with {ended}",
            notes=[words[-1][:500]] if words else [],
            help="give it more memory where the system ended it, and run again, which draws the report alone",
        )
    return done.stdout


def _part(answer: io.BytesIO) -> bytes:
    return answer.read(int.from_bytes(answer.read(8), "big"))


def require_space() -> None:
    """Refuse to draw charts under a limit of address space, of which V8 reserves far more than it uses: E0985."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        raise problem(
            "E0985",
            f"charts cannot be drawn where a process may have {soft >> 20:,} MiB of address space",
            notes=[
                "V8, which draws them, reserves far more than it uses, and ends the process under any limit"
            ],
            help="lift the limit and run again, which draws the report alone: ulimit -v unlimited",
        )
