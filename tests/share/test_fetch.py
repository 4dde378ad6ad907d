"""`reodsl fetch` against a hub on loopback: files that are taken, a cut that is made good, and what a hub refuses."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reodsl.diagnostics import Problem
from reodsl.share.fetch import Wanted, fetch, look_up
from reodsl.store.external import hub_snapshot
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
    """A hub with one model and one data set; `refuse` is a status for everything, `cut` how many bytes it sends once."""

    url: str = ""
    refuse: int = 0
    cut: int | None = None
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
                rows = [
                    {"type": "file", "path": name, "size": len(content), "oid": name}
                    for name, content in files.items()
                ]
                self.send(200, json.dumps(rows).encode(), body, {"Content-Type": "application/json"})
            elif path.startswith("api/"):
                listed = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
                told = {"id": "me/mine", "sha": COMMIT, "siblings": listed, "private": False, "tags": []}
                self.send(200, json.dumps(told).encode(), body, {"Content-Type": "application/json"})
            else:
                self.send_file(*self.part_of(files, path), body)

        def part_of(self, files: dict[str, bytes], path: str) -> tuple[str, bytes, int]:
            name = path.split("/resolve/")[1].partition("/")[2]
            begun = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            return name, files[name], begun

        def send_file(self, name: str, content: bytes, begun: int, body: bool) -> None:
            if body:
                state.asked.append((name, self.headers.get("Range")))
            headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
            if begun:
                headers["Content-Range"] = f"bytes {begun}-{len(content) - 1}/{len(content)}"
            self.send(206 if begun else 200, content[begun:], body, headers)

        def send(self, status: int, content: bytes, body: bool, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                if state.cut is not None and len(content) > state.cut:
                    content, state.cut = content[: state.cut], None
                    self.close_connection = True
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", state.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("REODSL_DATA", raising=False)
    yield state
    server.shutdown()
    server.server_close()


def test_what_runs_read_is_taken_and_nothing_else(hub: Hub) -> None:
    offer = look_up(Wanted("models", "me/mine"))
    assert (offer.commit, offer.size) == (COMMIT, len(WEIGHTS) + 4)
    assert {path.name for path in fetch(offer).iterdir()} == {
        "config.json",
        "tokenizer.json",
        "model.safetensors",
    }
    snapshot = hub_snapshot("models", "me/mine", None)
    assert snapshot is not None
    assert (snapshot / "model.safetensors").read_bytes() == WEIGHTS
    data = fetch(look_up(Wanted("datasets", "me/mine")))
    assert [path.name for path in data.rglob("*.*")] == ["train-00000-of-00001.parquet"]


def test_a_file_that_was_cut_off_is_asked_for_again(hub: Hub) -> None:
    hub.cut = 1000
    folder = fetch(look_up(Wanted("models", "me/mine")))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert [name for name, _ in hub.asked].count("model.safetensors") == 2


def test_what_is_no_hub_is_one_message(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "dumps", lambda *_, **__: "[1]")
    with pytest.raises(Problem) as caught:
        look_up(Wanted("models", "me/mine"))
    assert "no hub" in caught.value.diagnostics[0].message


def test_what_is_here_is_not_fetched(hub: Hub, tmp_path: Path) -> None:
    wanted = Wanted("models", "me/mine")
    assert not wanted.is_here(tmp_path)
    fetch(look_up(wanted))
    assert wanted.is_here(tmp_path)
    beside = tmp_path / "data" / "me" / "mine"
    assert not Wanted("datasets", "me/mine").is_here(tmp_path)
    beside.mkdir(parents=True)
    assert Wanted("datasets", "me/mine").is_here(tmp_path)


@pytest.mark.parametrize(
    ("status", "words"), [(401, "wants a token"), (403, "does not let"), (404, "no such"), (400, "400")]
)
def test_a_refusal_is_one_message(hub: Hub, status: int, words: str) -> None:
    hub.refuse = status
    with pytest.raises(Problem) as caught:
        look_up(Wanted("models", "me/mine"))
    (told,) = caught.value.diagnostics
    assert told.code == "E0850"
    assert words in told.message
    with pytest.raises(Problem) as caught:
        look_up(Wanted("datasets", "me/mine"))
    assert caught.value.diagnostics[0].code == "E0708"


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
