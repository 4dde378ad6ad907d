"""Messages of a run at a receiver on this machine: their forms, the moments they come at, and receivers that are away."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from reodsl.diagnostics import Problem, problem
from reodsl.diagnostics.render import render
from reodsl.graph.job import Event, Progress
from reodsl.graph.task import Graph, Task
from reodsl.plan.registry import RunResults
from reodsl.run import RunOutcome
from reodsl.store.manifest import PLACE, note_lost
from reodsl.store.store import Store
from reodsl.track import notices as module
from reodsl.track.notices import Notices, Receiver, choose_receivers, read_receiver
from tests.bad_input.commands import SPEC
from tests.called import call

SECRET = "T0/B0/dontshowme"
GRAPH = Graph((Task("a.train", "train", {}, {}, "a", 1), Task("a.eval", "evaluate", {}, {}, "a", 1)))


class Door(ThreadingHTTPServer):
    """A receiver that keeps what comes and answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hand)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{SECRET}"

    def texts(self) -> list[str]:
        return [json.loads(body)["text"] for _, body in self.got]


class Hand(BaseHTTPRequestHandler):
    server: Door

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
        self.send_response(self.server.status)
        self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def door() -> Iterator[Door]:
    with Door() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def place(tmp_path: Path, undrawn: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small spec, and a user without a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REODSL_STORE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("tiny.reo").write_text(SPEC)
    return tmp_path


def send(form: str, url: str, text: str, event: str = "finished") -> list[Any]:
    notices = Notices([Receiver(url, "127.0.0.1", form)], "study", Store(Path()), GRAPH)
    notices.tell(event, text)
    notices.close()
    return notices.news()


def test_each_form_is_what_its_receiver_takes_and_calls_nobody_by_accident(door: Door) -> None:
    for form in ("slack", "discord", "json", "ntfy"):
        assert send(form, door.url, "a <b> & @everyone\n<!channel>") == []
    slack, discord, plain = (json.loads(body) for _, body in door.got[:3])
    assert slack == {"text": "study: a &lt;b&gt; &amp; @everyone &lt;!channel&gt;"}
    assert discord == {"content": "study: a <b> & @everyone <!channel>", "allowed_mentions": {"parse": []}}
    assert plain == {"study": "study", "event": "finished", "text": "study: a <b> & @everyone <!channel>"}
    headers, body = door.got[3]
    assert body == b"study: a <b> & @everyone <!channel>"
    assert (headers["Title"], headers["Content-Type"]) == ("reodsl: finished", "text/plain")
    door.got.clear()
    send("discord", door.url, "x" * 10_000)
    assert len(json.loads(door.got[0][1])["content"]) <= 2000


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("https://hooks.slack.com/services/T/B/x", "slack"),
        ("https://discord.com/api/webhooks/1/x", "discord"),
        ("https://ntfy.sh/topic", "ntfy"),
        ("https://example.com/x+y", "json"),
        ("ntfy+http://10.0.0.1:8080/topic", "ntfy"),
        ("slack+https://mattermost.example.com/hooks/x", "slack"),
    ],
)
def test_the_host_or_a_word_before_it_says_the_form(text: str, form: str) -> None:
    receiver = read_receiver(text)
    assert receiver.form == form
    assert text.endswith(receiver.url)
    assert receiver.url.startswith("http")


@pytest.mark.parametrize(
    "text",
    ["", SECRET, "ftp://a/b", "https://", "https://a:x/b", f"teams+https://a/{SECRET}", "https://[::1/x"],
)
def test_what_is_no_address_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(Problem) as caught:
        read_receiver(text)
    (found,) = caught.value.diagnostics
    assert found.code == "E0986"
    assert SECRET not in render([found], {})


@pytest.mark.parametrize("end", ["finished", "failed", "nothing runs", "stopped"])
def test_a_run_calls_when_it_ends(
    end: str, door: Door, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (place / "config" / "reodsl").mkdir(parents=True)
    (place / "config" / "reodsl" / "config.toml").write_text(f'notify = "{door.url}"\n')
    diverged = problem("E0926", "training diverged")
    (place / "verdict.json").write_text('{"sentences": ["tiny and base tie."]}')

    def run(ready: Any, plan: Any, machine: Any, out: Path, listener: Any) -> RunOutcome:
        listener.begin()
        if end == "nothing runs":
            raise diverged
        if end == "stopped":
            raise KeyboardInterrupt
        failed = {"tiny.train.s1": diverged.diagnostics} if end == "failed" else {}
        for task, diagnostics in failed.items():
            listener.hear(Event("failed", task, diagnostics=diagnostics))
        listener.close()
        return RunOutcome(RunResults({}, failed), None if failed else place / "report.html")

    monkeypatch.setattr("reodsl.cli.run.run", run)
    monkeypatch.setattr("reodsl.cli.run._tell", lambda *_: None)
    assert call("run", "tiny.reo", "--local") == {"finished": 0, "stopped": 130}.get(end, 1)
    again = "the same command goes on from there"
    assert [(json.loads(body)["event"], json.loads(body)["text"]) for _, body in door.got] == {
        "finished": [
            ("finished", f"tiny: the run has finished. tiny and base tie. Report: {place / 'report.html'}")
        ],
        "failed": [
            ("task failed", "tiny: tiny.train.s1 failed: training diverged"),
            ("failed", f"tiny: tiny.train.s1 failed, and 0 tasks are done; {again}"),
        ],
        "nothing runs": [("failed", "tiny: the run failed: training diverged")],
        "stopped": [("stopped", f"tiny: the run was stopped; {again}")],
    }[end]
    out = capfd.readouterr()
    assert SECRET not in out.out + out.err


def test_a_training_that_loses_accuracy_is_called_out_once(door: Door, tmp_path: Path) -> None:
    notices = Notices([Receiver(door.url, "127.0.0.1", "json")], "study", Store(tmp_path), GRAPH)

    def step(number: int, accuracy: float) -> None:
        notices.hear(Event("progress", "a.train", Progress(number, 100, {"accuracy": accuracy})))

    for number in range(1, 31):
        # Chance moves it up and down by less than it takes.
        step(number, 0.8 + (0.09 if number % 2 else -0.09))
    for number in range(31, 60):
        step(number, 0.6)
    # Of an evaluation it is the share so far, which falls as harder questions come.
    for number in range(60):
        notices.hear(Event("progress", "a.eval", Progress(number, 60, {"accuracy": 1 - number / 60})))
    notices.hear(Event("failed", "b.train", diagnostics=problem("E0926", "it diverged").diagnostics))
    notices.close()
    assert door.texts() == [
        "study: a.train had 80.0% right over 10 steps, and has 69.1% at step 35",
        "study: b.train failed: it diverged",
    ]


def test_a_lost_server_is_called_out_each_time(door: Door, tmp_path: Path) -> None:
    notices = Notices([Receiver(door.url, "127.0.0.1", "json")], "study", Store(tmp_path), GRAPH)
    aside = tmp_path / "work" / ("ab" * 32) / PLACE
    # An earlier attempt at the training told of its own.
    note_lost(aside)
    notices.hear(Event("started", "a.train", key="ab" * 32))
    for step in range(1, 7):
        if step in (2, 5):
            note_lost(aside)
        notices.hear(Event("progress", "a.train", Progress(step, 9)))
    notices.close()
    assert door.texts() == [
        f"study: a.train has lost a server {times}, and goes on with a new one"
        for times in ("2 times", "3 times")
    ]


def test_who_is_called_too_often_hears_the_first(door: Door, tmp_path: Path) -> None:
    notices = Notices([Receiver(door.url, "127.0.0.1", "json")], "study", Store(tmp_path), GRAPH)
    for number in range(50):
        notices.hear(Event("failed", f"a{number}.train"))
    notices.close()
    assert len(door.got) == 5


@pytest.mark.parametrize("line", ["notify = 5", "notify = [5]", "notify = {}", 'notify = ["x"]'])
def test_a_line_of_the_configuration_that_names_no_address_is_refused(place: Path, line: str) -> None:
    (place / "config" / "reodsl").mkdir(parents=True)
    (place / "config" / "reodsl" / "config.toml").write_text(line)
    with pytest.raises(Problem) as caught:
        choose_receivers(())
    assert caught.value.diagnostics[0].code == "E0986"
    (place / "config" / "reodsl" / "config.toml").write_text("track = [")
    assert choose_receivers(()) == ()


def test_a_receiver_that_takes_for_ever_is_told_of(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the last one never."""
    monkeypatch.setattr(module, "FAREWELL", 0.3)
    monkeypatch.setattr(module, "_send", lambda *_: time.sleep(2))
    (found,) = send("json", door.url, "hello")
    assert found.message == "127.0.0.1 did not get a message of this run: it took more than 0.3 s"


@pytest.mark.parametrize("how", ["refuses", "elsewhere", "deaf", "away"])
def test_a_receiver_that_is_away_never_ends_a_run(
    how: str, door: Door, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # A receiver that answers may take its time on a busy machine.
    monkeypatch.setattr(module, "PATIENCE", 0.2 if how == "deaf" else 9.0)
    monkeypatch.setattr(module, "FAREWELL", 10.0)
    door.status = {"refuses": 403, "elsewhere": 307}.get(how, 200)
    words = {
        "refuses": "it answers with status 403",
        "elsewhere": "it answers with status 307",
        "deaf": "it does not answer within 0.2 s",
        "away": "the connection fails (ConnectError)",
    }[how]
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        if how == "deaf":
            deaf.listen()
        silent = f"http://127.0.0.1:{deaf.getsockname()[1]}/{SECRET}"
        url = silent if how in ("deaf", "away") else door.url
        before = time.monotonic()
        (found,) = send("json", url, "hello")
        assert time.monotonic() - before < 10
    assert (found.code, found.message) == ("W0808", f"127.0.0.1 did not get a message of this run: {words}")
    assert SECRET not in render([found], {})


def test_a_refusal_and_a_warning_look_as_they_did(
    place: Path, refusal: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("run", "tiny.reo", "--local", "--notify", f"teams+https://example.com/{SECRET}") == 1
    refusal("commands/E0986.txt", capsys.readouterr().err)
    refusal("runs/W0808.txt", render(send("json", "http://127.0.0.1:9/x", "hello"), {}))
