"""Render a model's chat template in a process with bounds, in which a stranger's checkpoint is tried and used."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Problem, problem
from runners.machine.process import explain_death
from runners.sandbox.untrusted import Undecodable
from runners.sandbox.workers import START_SECONDS, Worker, WorkerDied, wall_seconds

WORKER = Path(__file__).with_name("worker.py")
LONGEST = 1 << 24
"""Bytes of an answer."""


class Beyond(Exception):
    """An excess of the bounds; its words name the bound, after a subject."""


class Bounded:
    """A process with a bound on processor seconds and on memory, started when it is first asked.

    One thread at a time may ask.
    """

    def __init__(self, seconds: float, memory_mib: int) -> None:
        self.seconds, self.memory_mib = seconds, memory_mib
        self._lock = threading.Lock()
        self._process: Worker | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of `worker`. Raises Beyond; whoever asks then finds a new process.

        Raises ProcessDied where somebody else ends it, such as a system short of memory.
        """
        with self._lock:
            if self._process is None:
                self._process = Worker(WORKER, str(self.memory_mib), str(self.seconds), longest=LONGEST)
            try:
                said = self._process.ask(request, START_SECONDS + wall_seconds(self.seconds))
            except WorkerDied as gone:
                why = self._end(gone.late)
                if gone.lost and not gone.late:
                    what = "the process that reads what a model's maker wrote"
                    raise explain_death(what, f"signal {-gone.status}") from None
                raise Beyond(why) from None
            except Undecodable as fault:
                self._end(late=True)
                raise Beyond(f"gives what cannot be read: {fault}") from None
            except BaseException:
                self._end(late=True)
                raise
            if "beyond" in said:
                # What it holds of it is let go with the process.
                self._end(late=True)
                raise Beyond(said["beyond"])
            return said

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            if self._process is not None:
                self._end(late=True)

    def _end(self, late: bool) -> str:
        """Let the process go, and say what became of it."""
        started, self._process = self._process, None
        assert started is not None
        status = started.kill()
        if status == -signal.SIGPROF:
            return f"does not end within {self.seconds:g} seconds of a processor"
        return "does not end" if late or status >= 0 else f"ends its process by signal {-status}"


SECONDS = 10
MEMORY_MIB = 1 << 10
LARGEST = 1 << 20


class FailedTemplate(Exception):
    """A template that raised something, and its words."""


def render_template(tokenizer: Any, turns: Sequence[dict[str, Any]]) -> str:
    """Return a conversation up to where the model's turn begins, by the tokenizer's chat template.

    Raises Failed where the template does, and E0812 where it goes beyond its bounds.
    """
    try:
        template = tokenizer.get_chat_template()
    except ValueError as fault:
        raise FailedTemplate(str(fault)) from None
    if len(template) > LARGEST:
        raise _refusal(f"has {len(template):,} characters, and at most {LARGEST:,} are read", template)
    asked = {"template": template, "turns": list(turns), "tokens": tokenizer.special_tokens_map}
    try:
        said = _process(SECONDS).ask(asked)
    except Beyond as why:
        raise _refusal(str(why), template) from None
    if "raised" in said:
        raise FailedTemplate(said["raised"])
    return str(said["text"])


@cache
def _process(seconds: float) -> Bounded:
    """Return this process's own rendering process, which ends with it."""
    return Bounded(seconds, MEMORY_MIB)


def _refusal(why: str, template: str) -> Problem:
    return problem(
        "E0812",
        f"the model's chat template {why}",
        notes=[f"it begins: {' '.join(template.split())[:60]}"],
        help="take `chat_template` out of the tokenizer's files, and write `prompt { kind = raw, template = … }`",
    )
