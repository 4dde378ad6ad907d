"""Messages to a webhook when a run ends, fails, or needs a look. The run never waits for who should hear of it."""

from __future__ import annotations

import json
import math
import queue
import threading
import tomllib
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reodsl.diagnostics import Diagnostic, problem, warning
from reodsl.diagnostics.model import shorten_text
from reodsl.graph.job import Event
from reodsl.graph.task import Graph
from reodsl.store.manifest import PLACE, count_lost
from reodsl.store.store import Store
from reodsl.track.trackers import configuration

FAREWELL = 10.0
"""Seconds that messages have at the end of a run to be sent."""
PATIENCE = 5.0
"""Seconds that a receiver has to take a connection, and as many to answer."""
STEPS, FALL = 10, 0.1
"""A training loses accuracy where the mean of so many steps is so far below the best mean of as many before."""
_MOST, _LONGEST = 5, 1500
"""Messages of a kind in a run, and characters of one: who is called too often does not listen any more."""


FORMS = ("slack", "discord", "ntfy", "json")
"""The forms of a message; `json` is for whoever takes JSON."""
_HOSTS = {
    "hooks.slack.com": "slack",
    "discord.com": "discord",
    "discordapp.com": "discord",
    "ntfy.sh": "ntfy",
}


@dataclass(frozen=True, slots=True)
class Receiver:
    """An address to send messages to, and their form. `url` is a secret: who has it can write there."""

    url: str
    host: str
    form: str


def read_receiver(text: str) -> Receiver:
    """Return the receiver that an address names, such as `https://ntfy.sh/TOPIC` or `slack+https://HOST/PATH`.

    The host says the form, or a word before the address does: one of FORMS. Raises E0986, without the address.
    """
    form, _, url = text.rpartition("+") if text.partition("://")[0].count("+") else ("", "", text)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not host or (form and form not in FORMS):
        raise problem(
            "E0986",
            f"there is no form called `{form}`"
            if form and form not in FORMS
            else "this is no address to send to",
            help=f"write https://HOST/PATH, or with the form before it: {', '.join(f'{name}+https://…' for name in FORMS)}",
        )
    return Receiver(url, host, form or _HOSTS.get(host.removeprefix("www."), "json"))


def choose_receivers(asked: Sequence[str]) -> tuple[Receiver, ...]:
    """Return the receivers of a run: those asked for, or else the configuration's line `notify = "https://…"`.

    Raises E0986.
    """
    names: Any = asked
    if not asked:
        with suppress(OSError, ValueError):
            names = tomllib.loads(configuration().read_text("utf-8")).get("notify", ())
    return tuple(
        read_receiver(str(name)) for name in (names if isinstance(names, (list, tuple)) else [names])
    )


class Notices:
    """Messages of one run to its receivers. It hears every event, and a thread of its own sends what deserves a look."""

    def __init__(self, receivers: Sequence[Receiver], study: str, store: Store, graph: Graph) -> None:
        """Start the thread."""
        self._study, self._receivers, self._store, self._graph = study, receivers, store, graph
        self._aside: dict[str, Path] = {}
        self._lost: dict[str, int] = {}
        self._waiting: queue.Queue[tuple[str, str] | None] = queue.Queue()
        self._sent: dict[str, int] = defaultdict(int)
        self._accuracy: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=STEPS))
        self._best: dict[str, float] = {}
        self._faults: dict[str, str] = {}
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self._thread.start()

    def hear(self, event: Event) -> None:
        """Send a message where a task fails or loses a server, or a training loses accuracy."""
        if event.key is not None:
            aside = self._aside[event.task] = self._store.root / "work" / event.key / PLACE
            # An earlier attempt at the task told of those that it lost.
            self._lost[event.task] = count_lost(aside)
        if event.kind == "failed":
            why = event.diagnostics[0].message if event.diagnostics else "no reason is known"
            self.tell("task failed", f"{event.task} failed: {why}")
        if event.progress is None:
            return
        lost = count_lost(self._aside[event.task]) if event.task in self._aside else 0
        if lost > self._lost.get(event.task, 0):
            self._lost[event.task] = lost
            self.tell(
                "server lost",
                f"{event.task} has lost a server {lost} time{'s' if lost > 1 else ''}, and goes on with a new one",
            )
        accuracy = event.progress.numbers.get("accuracy")
        # An evaluation's falls as harder questions come.
        trained = self._graph[event.task].kind == "train"
        if trained and accuracy is not None and math.isfinite(accuracy):
            self._watch_accuracy(event.task, accuracy, event.progress.done)

    def _watch_accuracy(self, task: str, accuracy: float, step: int) -> None:
        recent = self._accuracy[task]
        recent.append(accuracy)
        if len(recent) < STEPS:
            return
        mean, best = sum(recent) / STEPS, self._best.get(task, 0.0)
        self._best[task] = max(mean, best)
        if mean < best - FALL:
            # Told once: from here on it has this much to lose.
            self._best[task] = mean
            was, now = (f"{100 * share:.1f}%" for share in (best, mean))
            self.tell(
                "accuracy lost", f"{task} had {was} right over {STEPS} steps, and has {now} at step {step}"
            )

    def tell(self, event: str, text: str) -> None:
        """Send a message: `event` is its kind."""
        self._sent[event] += 1
        if self._sent[event] <= _MOST:
            self._waiting.put((event, shorten_text(f"{self._study}: {text}", _LONGEST)))

    def news(self) -> list[Diagnostic]:
        """Return the receivers that did not get a message since the last call, each once in a run (W0808)."""
        found = []
        for host, fault in list(self._faults.items()):
            if fault:
                self._faults[host] = ""
                found.append(
                    warning(
                        "W0808",
                        f"{host} did not get a message of this run: {fault}",
                        help="see that the address is right and answers from this machine; the run does not depend on it",
                    )
                )
        return found

    def close(self) -> None:
        """Wait until all is sent, for at most `FAREWELL` seconds."""
        self._waiting.put(None)
        self._thread.join(FAREWELL)
        if self._thread.is_alive():
            for receiver in self._receivers:
                self._faults.setdefault(receiver.host, f"it took more than {FAREWELL:g} s")

    def _send_all(self) -> None:
        while (message := self._waiting.get()) is not None:
            for receiver in self._receivers:
                fault = _send(receiver, self._study, *message)
                if fault is not None:
                    self._faults.setdefault(receiver.host, fault)


def _send(receiver: Receiver, study: str, event: str, text: str) -> str | None:
    """Send a message, and return why it did not arrive, without a word of the address or the reply."""
    import httpx

    headers, body = _write(receiver.form, study, event, text)
    try:
        # Redirects are not followed, and nothing of a reply but its status is read.
        here = receiver.url.startswith("http://")
        with (
            httpx.Client(timeout=PATIENCE, trust_env=not here) as client,
            client.stream("POST", receiver.url, content=body, headers=headers) as reply,
        ):
            return None if reply.is_success else f"it answers with status {reply.status_code}"
    except httpx.TimeoutException:
        return f"it does not answer within {PATIENCE:g} s"
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as fault:
        return f"the connection fails ({type(fault).__name__})"


def _write(form: str, study: str, event: str, text: str) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a message."""
    match form:
        case "ntfy":
            urgent = "default" if event == "finished" else "high"
            return {
                "Title": f"reodsl: {event}",
                "Priority": urgent,
                "Content-Type": "text/plain",
            }, text.encode()
        case "slack":
            for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
                text = text.replace(sign, name)
            value: dict[str, Any] = {"text": text}
        case "discord":
            # A text may hold `@everyone`, which would call them all.
            value = {"content": text, "allowed_mentions": {"parse": []}}
        case _:
            value = {"study": study, "event": event, "text": text}
    return {"Content-Type": "application/json"}, json.dumps(value).encode()
