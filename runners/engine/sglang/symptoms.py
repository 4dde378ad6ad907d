"""What a server that ended says of why: the last lines of its log in, one problem that names the cause out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from reodsl.diagnostics import Problem, problem
from runners.engine.sglang.settings import Settings, size

IN_USE = ("address already in use", "Address already in use", "is already in use", "is not available")
_MEMORY = re.compile(
    r"out of memory|OutOfMemory|Not enough memory|cannot allocate memory|MemoryError", re.IGNORECASE
)
_ARCHITECTURE = re.compile(
    r"[Mm]odel architectures? .*not supported|Cannot find model module|Unsupported architecture"
)
_LINES = 12
_WIDTH = 200
_TAIL = 1 << 16


def last_lines(log: Path, begin: int = 0) -> list[str]:
    """The last lines of a log after its byte `begin`, blank ones left out and long ones cut."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(begin, size - _TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = [line.rstrip()[:_WIDTH] for line in text.splitlines() if line.strip()]
    return lines[-_LINES:]


def diagnose(lines: Sequence[str], settings: Settings, log: Path) -> Problem:
    """The problem of a server that ended before it was healthy (E0801, E0821, E0823)."""
    whole = last_words(log, lines)
    if _MEMORY.search(whole):
        return out_of_memory(settings, log, lines)
    if _ARCHITECTURE.search(whole):
        return problem(
            "E0801",
            "SGLang does not know the model's architecture",
            where=str(settings.model),
            notes=list(lines)[-3:],
            help="take a model that SGLang serves, such as Qwen3 or Llama, or `engine = embedded` for those two",
        )
    return problem(
        "E0821",
        "the SGLang server ended before it was ready",
        where=str(log),
        notes=list(lines),
        help="its log, above and in that file, ends in the reason",
    )


def out_of_memory(settings: Settings, log: Path, lines: Sequence[str]) -> Problem:
    """E0823, with the sizes that can be changed."""
    sequence = settings.context * settings.token_bytes
    weights = sum(path.stat().st_size for path in settings.model.glob("*.safetensors"))
    helps = (
        "shorten the longest response, or free memory on this machine"
        if settings.on_cpu
        else "raise `tensor_parallel`, or shorten the longest response"
    )
    return problem(
        "E0823",
        f"the SGLang server ran out of memory: weights {size(weights)} on disk, {size(sequence)} of keys and values for "
        f"one sequence of {settings.context} tokens",
        where=str(log),
        notes=list(lines)[-3:],
        help=helps,
    )


def last_words(log: Path, lines: Sequence[str]) -> str:
    """The end of the log as one text; further back than what is shown."""
    try:
        return log.read_bytes()[-_TAIL:].decode("utf-8", "replace")
    except OSError:
        return "\n".join(lines)
