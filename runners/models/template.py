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
MAX_REPLY_BYTES = 1 << 24
"""Bytes of an answer."""


class LimitExceeded(Exception):
    """A process exceeded a bound; the words name the bound, after a subject."""


class LimitedProcess:
    """A process with a bound on processor seconds and on memory, started at the first request.

    Only a single thread at a time may ask.
    """

    def __init__(self, seconds: float, memory_mib: int) -> None:
        self.seconds, self.memory_mib = seconds, memory_mib
        self._lock = threading.Lock()
        self._process: Worker | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of `worker`. Raises LimitExceeded; the next request then starts a new process.

        Raises ProcessDied if something else ends the process, such as a system short of memory.
        """
        with self._lock:
            if self._process is None:
                self._process = Worker(
                    WORKER, str(self.memory_mib), str(self.seconds), longest=MAX_REPLY_BYTES
                )
            try:
                reply = self._process.ask(request, START_SECONDS + wall_seconds(self.seconds))
            except WorkerDied as gone:
                why = self._end(gone.late)
                if gone.lost and not gone.late:
                    subject = "the process that reads what a model's maker wrote"
                    raise explain_death(subject, f"signal {-gone.status}") from None
                raise LimitExceeded(why) from None
            except Undecodable as fault:
                self._end(late=True)
                raise LimitExceeded(f"gives what cannot be read: {fault}") from None
            except BaseException:
                self._end(late=True)
                raise
            if "beyond" in reply:
                # What it holds of it is let go with the process.
                self._end(late=True)
                raise LimitExceeded(reply["beyond"])
            return reply

    def close(self) -> None:
        """End the process, if it runs."""
        with self._lock:
            if self._process is not None:
                self._end(late=True)

    def _end(self, late: bool) -> str:
        """End the process, and return why it ended."""
        started, self._process = self._process, None
        assert started is not None
        status = started.kill()
        if status == -signal.SIGPROF:
            return f"does not end within {self.seconds:g} seconds of a processor"
        return "does not end" if late or status >= 0 else f"ends its process by signal {-status}"


RENDER_SECONDS = 10
MEMORY_MIB = 1 << 10
MAX_TEMPLATE = 1 << 20


class TemplateError(Exception):
    """A template raised an error, whose words this holds."""


def render_template(tokenizer: Any, turns: Sequence[dict[str, Any]]) -> str:
    """Return a conversation up to the start of the model's turn, by the tokenizer's chat template.

    Raises TemplateError if the template does, and E0812 if it exceeds its bounds.
    """
    try:
        template = tokenizer.get_chat_template()
    except ValueError as fault:
        raise TemplateError(str(fault)) from None
    if len(template) > MAX_TEMPLATE:
        raise _refusal(f"has {len(template):,} characters, and at most {MAX_TEMPLATE:,} are read", template)
    request = {"template": template, "turns": list(turns), "tokens": tokenizer.special_tokens_map}
    try:
        reply = _process(RENDER_SECONDS).ask(request)
    except LimitExceeded as why:
        raise _refusal(str(why), template) from None
    if "raised" in reply:
        raise TemplateError(reply["raised"])
    return str(reply["text"])


@cache
def _process(seconds: float) -> LimitedProcess:
    """Return this process's own rendering process, which ends with it."""
    return LimitedProcess(seconds, MEMORY_MIB)


def _refusal(why: str, template: str) -> Problem:
    return problem(
        "E0812",
        f"the model's chat template {why}",
        notes=[f"it begins: {' '.join(template.split())[:60]}"],
        help="take `chat_template` out of the tokenizer's files, and write `prompt { kind = raw, template = … }`",
    )
