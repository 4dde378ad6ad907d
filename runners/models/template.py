"""Render a model's chat template in a process with limits, because a downloaded template may loop or fill the memory."""

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
"""The largest reply of the process in bytes."""


class LimitExceeded(Exception):
    """A process exceeded a limit; the message is the rest of a sentence after the subject, e.g. "does not end"."""


class LimitedProcess:
    """A process of `models/worker.py` with limits on processor time and memory, started at the first request.

    Requests of several threads are handled one after another.
    """

    def __init__(self, seconds: float, memory_mib: int) -> None:
        """Set the limits: seconds of processor time, and mebibytes of memory."""
        self.seconds, self.memory_mib = seconds, memory_mib
        self._lock = threading.Lock()
        self._process: Worker | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the process, and return its reply, both as described in `models/worker.py`.

        Raises:
            LimitExceeded: The process exceeded a limit; the next request starts a new process.
            ProcessDied: The process ended for another reason, e.g. because the system ran out of memory.
        """
        with self._lock:
            if self._process is None:
                self._process = Worker(
                    WORKER, str(self.memory_mib), str(self.seconds), longest=MAX_REPLY_BYTES
                )
            try:
                reply = self._process.ask(request, START_SECONDS + wall_seconds(self.seconds))
            except WorkerDied as death:
                reason = self._end(death.late)
                if death.lost and not death.late:
                    subject = "the process that reads the model's files"
                    raise explain_death(subject, f"signal {-death.status}") from None
                raise LimitExceeded(reason) from None
            except Undecodable as fault:
                self._end(is_forced=True)
                raise LimitExceeded(f"gives an unreadable reply: {fault}") from None
            except BaseException:
                self._end(is_forced=True)
                raise
            if "beyond" in reply:
                # End the process to free its memory.
                self._end(is_forced=True)
                raise LimitExceeded(reply["beyond"])
            return reply

    def close(self) -> None:
        """End the process, if it runs."""
        with self._lock:
            if self._process is not None:
                self._end(is_forced=True)

    def _end(self, is_forced: bool) -> str:
        """End the process, and return why it ended, as the rest of a sentence after its subject.

        Args:
            is_forced: Whether this call ends the process, e.g. because it took too long; False if it ended before.
        """
        process, self._process = self._process, None
        assert process is not None
        status = process.kill()
        if status == -signal.SIGPROF:
            return f"does not end within {self.seconds:g} seconds of processor time"
        return "does not end" if is_forced or status >= 0 else f"crashes its process with signal {-status}"


RENDER_SECONDS = 10
MEMORY_MIB = 1 << 10
MAX_TEMPLATE = 1 << 20


class TemplateError(Exception):
    """A template raised an error; the message is the template's."""


def render_template(tokenizer: Any, turns: Sequence[dict[str, Any]]) -> str:
    """Return a conversation as text by the tokenizer's chat template, up to the start of the model's turn.

    Args:
        tokenizer: The tokenizer with the template.
        turns: The messages, each with `role` and `content`.

    Raises:
        TemplateError: The template raised an error, or the tokenizer has no template.
        Problem: E0812, if the template is too long or exceeds the limits of time and memory.
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
    except LimitExceeded as limit:
        raise _refusal(str(limit), template) from None
    if "raised" in reply:
        raise TemplateError(reply["raised"])
    return str(reply["text"])


@cache
def _process(seconds: float) -> LimitedProcess:
    """Return the rendering process of this Python process, which is started once and ends with it."""
    return LimitedProcess(seconds, MEMORY_MIB)


def _refusal(reason: str, template: str) -> Problem:
    """Return E0812 about a chat template; `reason` is the rest of the sentence after "the model's chat template"."""
    return problem(
        "E0812",
        f"the model's chat template {reason}",
        notes=[f"it begins: {' '.join(template.split())[:60]}"],
        help="remove `chat_template` from the tokenizer's files, and write `prompt { kind = raw, template = … }`",
    )
