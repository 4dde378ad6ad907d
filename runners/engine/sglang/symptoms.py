"""Tell from the last lines of a server's log why it ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from humanize import naturalsize

from reodsl.diagnostics import Problem, problem
from runners.engine.sglang.settings import Settings

IN_USE = ("address already in use", "Address already in use", "is already in use", "is not available")
_MEMORY = re.compile(
    r"OutOfMemory|Not enough memory|leave no GPU memory|cannot allocate memory|MemoryError", re.IGNORECASE
)
_KILLED = re.compile(r"exit code:? -9\b")
"""The mark of one of its processes that the system ended because it took too much memory."""
_BY_ITSELF = "kill_process_tree called"
"""SGLang ends itself by the same signal, where one of its processes failed and said why."""
_ARCHITECTURE = re.compile(
    r"[Mm]odel architectures? .*not supported|Cannot find model module|Unsupported architecture"
)
_LINES = 12
_WIDTH = 200
_TAIL = 1 << 16


def last_lines(log: Path, begin: int = 0) -> list[str]:
    """Return the last lines of a log after its byte `begin`, without blank ones and with long ones cut."""
    text = _end(log, begin)
    lines = [line.rstrip()[:_WIDTH] for line in text.splitlines() if line.strip()]
    return lines[-_LINES:]


def diagnose(settings: Settings, log: Path, begin: int = 0, status: int | None = None) -> Problem:
    """Return the problem of a server that ended before it was healthy: its log after byte `begin`, and its exit status.

    E0801, E0821, E0823.
    """
    from runners.exhaustion import SAID

    lines, whole = last_lines(log, begin), _end(log, begin)
    if _MEMORY.search(whole) or any(said in whole for said in SAID):
        return out_of_memory(settings, log, lines, "ran out of memory")
    killed = status == -signal.SIGKILL and _BY_ITSELF not in whole
    if killed or _KILLED.search(whole):
        return out_of_memory(settings, log, lines, "was killed, as systems do when memory runs out")
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


def out_of_memory(settings: Settings, log: Path, lines: Sequence[str], words: str) -> Problem:
    """Return E0823, with what happened in words, the sizes that can be changed, and the memory that there is."""
    import torch

    from runners.exhaustion import there_is

    sequence = settings.context * settings.token_bytes
    weights = sum(path.stat().st_size for path in settings.model.glob("*.safetensors"))
    share = f"of what is free as it starts it takes {settings.memory_fraction:.0%} at most"
    if settings.on_cpu:
        helps = f"shorten the longest response, or free memory ({there_is(torch.device('cpu'))}; {share})"
    else:
        helps = f"raise `tensor_parallel`, shorten the longest response, or free memory on its GPUs ({share})"
    return problem(
        "E0823",
        f"the SGLang server {words}: weights {naturalsize(weights, binary=True)} on disk, "
        f"{naturalsize(sequence, binary=True)} of keys and values for "
        f"one sequence of {settings.context} tokens",
        where=str(log),
        notes=list(lines)[-3:],
        help=helps,
    )


def port_taken(log: Path, begin: int = 0) -> bool:
    """Return whether a log says, after its byte `begin`, that something else listens on the server's port.

    SGLang says more after that, and ends only when its own first request to the port has failed.
    """
    return any(mark in _end(log, begin) for mark in IN_USE)


def _end(log: Path, begin: int = 0) -> str:
    """Return the end of a log, after its byte `begin`; further back than what is shown."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(begin, size - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
