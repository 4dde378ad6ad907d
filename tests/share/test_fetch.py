"""`reodsl fetch` against a hub on loopback: files that are taken, a cut that is made good, and what a hub refuses."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reodsl.diagnostics import Diagnostic, Problem, error
from reodsl.graph.task import Task
from reodsl.plan.registry import Registry, RunResults
from reodsl.share.fetch import HubRepo, fetch, look_up
from reodsl.store.external import hub_commits, hub_revision, hub_snapshot
from tests.called import call

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = bytes(range(256)) * 400
MODEL = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "modeling_evil.py": b"raise SystemExit",
    "pytorch_model.bin": b"pickle",
}
ROWS = {"data/train-00000-of-00001.parquet": b"PAR1", "README.md": b"hello"}


@dataclass
class Hub:
    """A hub with one model and one data set, whose branches are at `commit`.

    `refuse` is a status for everything, `cut` how many bytes of a file it sends once, and with `dies` always.
    """

    url: str = ""
    refuse: int = 0
    cut: int | None = None
    dies: bool = False
    commit: Any = COMMIT
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    state = Hub()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Nothing."""

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path = self.path.partition("?")[0].strip("/")
            files = ROWS if "datasets" in path.split("/") else MODEL
            if state.refuse:
                code = {"X-Error-Code": "RepoNotFound"} if state.refuse == 404 else {}
                self.send(state.refuse, b"{}", body, code)
            elif "/tree/" in path:
                rows = [{**self.listed(name, content), "path": name} for name, content in files.items()]
                self.send_json([{"type": "file", "oid": row["blobId"], **row} for row in rows], body)
            elif path.startswith("api/"):
                listed = [self.listed(name, content) for name, content in files.items()]
                told = {
                    "id": "me/mine",
                    "sha": state.commit,
                    "siblings": listed,
                    "private": False,
                    "tags": [],
                }
                self.send_json(told, body)
            else:
                self.send_file(*self.part_of(files, path), body)

        def send_json(self, value: Any, body: bool) -> None:
            self.send(200, json.dumps(value).encode(), body, {"Content-Type": "application/json"})

        def listed(self, name: str, content: bytes) -> dict[str, Any]:
            row: dict[str, Any] = {"rfilename": name, "size": len(content)}
            row["blobId"] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            if name.endswith(".safetensors"):
                checksum = hashlib.sha256(content).hexdigest()
                row["lfs"] = {"size": len(content), "sha256": checksum, "oid": checksum, "pointerSize": 100}
            return row

        def part_of(self, files: dict[str, bytes], path: str) -> tuple[str, bytes, int]:
            name = path.split("/resolve/")[1].partition("/")[2]
            begun = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            return name, files[name], begun

        def send_file(self, name: str, content: bytes, begun: int, body: bool) -> None:
            if body:
                state.asked.append((name, self.headers.get("Range")))
            headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": state.commit}
            if begun:
                headers["Content-Range"] = f"bytes {begun}-{len(content) - 1}/{len(content)}"
            self.send(206 if begun else 200, content[begun:], body, headers)

        def send(self, status: int, content: bytes, body: bool, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                if state.cut is not None and "/resolve/" in self.path and len(content) > state.cut:
                    content, state.cut = content[: state.cut], state.cut if state.dies else None
                    self.close_connection = True
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", state.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield state
    server.shutdown()
    server.server_close()


def test_what_runs_read_is_taken_and_nothing_else(hub: Hub) -> None:
    offer = look_up(HubRepo("models", "me/mine"))
    assert (offer.commit, offer.size) == (COMMIT, len(WEIGHTS) + 4)
    assert {path.name for path in fetch(offer).iterdir()} == {
        "config.json",
        "tokenizer.json",
        "model.safetensors",
    }
    snapshot = hub_snapshot("models", "me/mine", None)
    assert snapshot is not None
    assert (snapshot / "model.safetensors").read_bytes() == WEIGHTS
    data = fetch(look_up(HubRepo("datasets", "me/mine")))
    assert [path.name for path in data.rglob("*.*")] == ["train-00000-of-00001.parquet"]


def test_a_file_that_was_cut_off_is_asked_for_again(hub: Hub) -> None:
    hub.cut = 1000
    folder = fetch(look_up(HubRepo("models", "me/mine")))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert [name for name, _ in hub.asked].count("model.safetensors") == 2


def test_a_fetch_that_ended_half_way_asks_for_the_rest_alone(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is another process that goes on: nothing is remembered but what is on the disk."""
    monkeypatch.setattr("huggingface_hub.file_download.time", SimpleNamespace(sleep=lambda _: None))
    wanted = HubRepo("models", "me/mine")
    hub.cut, hub.dies = 1000, True
    with pytest.raises(Problem) as caught:
        fetch(look_up(wanted))
    (told,) = caught.value.diagnostics
    assert (told.code, told.help) == ("E0850", "run the same command to resume; HF_ENDPOINT sets another hub")
    assert not wanted.is_here(tmp_path)
    hub.cut, hub.dies = None, False
    hub.asked.clear()
    assert (fetch(look_up(wanted)) / "model.safetensors").read_bytes() == WEIGHTS
    assert [name for name, _ in hub.asked] == ["model.safetensors"]
    assert wanted.is_here(tmp_path)


def test_a_data_set_that_is_half_there_is_fetched(hub: Hub, tmp_path: Path) -> None:
    """Also one whose commit is named, which no branch has to lead to."""
    for wanted in (HubRepo("datasets", "me/mine"), HubRepo("datasets", "me/mine", COMMIT)):
        place = fetch(look_up(wanted))
        assert wanted.is_here(tmp_path)
        (place.parent.parent / "reodsl-unfinished").write_text(COMMIT)
        assert not wanted.is_here(tmp_path)


def test_what_is_no_hub_is_one_message(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "dumps", lambda *_, **__: "[1]")
    with pytest.raises(Problem) as caught:
        look_up(HubRepo("models", "me/mine"))
    assert "not a hub" in caught.value.diagnostics[0].message


def test_what_is_here_is_not_fetched(hub: Hub, tmp_path: Path) -> None:
    wanted = HubRepo("models", "me/mine")
    assert not wanted.is_here(tmp_path)
    fetch(look_up(wanted))
    assert wanted.is_here(tmp_path)
    beside = tmp_path / "data" / "me" / "mine"
    assert not HubRepo("datasets", "me/mine").is_here(tmp_path)
    beside.mkdir(parents=True)
    assert HubRepo("datasets", "me/mine").is_here(tmp_path)


@pytest.mark.parametrize(
    ("status", "words"), [(401, "needs a token"), (403, "may not read"), (404, "no such"), (400, "400")]
)
def test_a_refusal_is_one_message(hub: Hub, status: int, words: str) -> None:
    hub.refuse = status
    with pytest.raises(Problem) as caught:
        look_up(HubRepo("models", "me/mine"))
    (told,) = caught.value.diagnostics
    assert told.code == "E0850"
    assert words in told.message
    with pytest.raises(Problem) as caught:
        look_up(HubRepo("datasets", "me/mine"))
    assert caught.value.diagnostics[0].code == "E0850"


SPEC = """
from std.models  import qwen3_4b
from std.forcing import reo_forcing

model mine = qwen3_4b { source = hub("me/mine") }
data asked { source = hub("me/mine"), questions = 2 }
benchmark few { data = asked }
suite small {
  benchmarks = [few]
  max_tokens = 1K tokens
  temperature = 0.6
  samples = 1
  grid = every(512 tokens, to: 1K tokens)
  reg_to = 1K tokens
  forcing = reo_forcing
}
study it { arm base = checkpoint(mine) { eval = small } }
"""


def test_the_command_says_how_much_it_is_before_it_fetches(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.reo").write_text(SPEC)
    assert call("fetch", "spec.reo", "--dry-run") == 0
    out, err = capsys.readouterr()
    assert "102.4 kB  me/mine" in out, err
    assert not hub.asked
    assert call("fetch", "spec.reo") == 0
    assert "fetched me/mine" in capsys.readouterr().out
    assert call("fetch", "spec.reo") == 0
    assert "Nothing to fetch" in capsys.readouterr().out


def test_a_branch_that_moved_is_told_of_and_kept_until_asked(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.reo").write_text(SPEC)
    assert call("fetch", "spec.reo") == 0
    capsys.readouterr()
    hub.commit = "f" * 40
    assert call("fetch", "spec.reo") == 0
    out, err = capsys.readouterr()
    assert "Nothing to fetch" in out
    assert err.count("me/mine has a newer commit: 0123456789ab is here, the hub has ffffffffffff") == 2
    assert hub_revision("models", "me/mine", None) == COMMIT
    assert call("fetch", "spec.reo", "--update") == 0
    assert hub_revision("models", "me/mine", None) == "f" * 40
    hub.refuse = 401
    assert call("fetch", "spec.reo") == 0
    assert "cannot check for newer commits" in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_run_fetches_what_is_missing_when_it_is_told_to(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    """A terminal is asked; without one nothing is fetched but by --fetch. The commit is part of the model's key."""
    runs: list[str] = []

    def check(todo: tuple[Task, ...], *_: object) -> tuple[Diagnostic, ...]:
        runs.append(str(hub_revision("models", "me/mine", None)))
        return (error("E0850", "it goes no further"),)

    registry = Registry(runners={}, check=check, execute=lambda _: RunResults())
    monkeypatch.setattr("reodsl.run.load_registry", lambda: registry)
    monkeypatch.chdir(tmp_path)
    Path("spec.reo").write_text(SPEC)
    assert call("run", "spec.reo") == 1
    assert runs == ["None"]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: answer)
    capsys.readouterr()
    assert call("run", "spec.reo") == 1
    assert "102.4 kB  total" in capsys.readouterr().err
    assert runs[1:] == [COMMIT if answer == "y" else "None"]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    assert call("run", "spec.reo", "--fetch") == 1
    assert runs[2:] == [COMMIT]
    assert hub_commits({"model": {"source": {"kind": "hub", "repo": "me/mine", "revision": COMMIT}}}) == {
        "me/mine": COMMIT
    }
