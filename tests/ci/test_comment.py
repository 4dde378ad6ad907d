"""The GitHub Action: its script on a repository with two commits, against a GitHub on the loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from action import comment
from tests.bad_input.commands import SPEC

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


class GitHub(BaseHTTPRequestHandler):
    """Comments of one pull request. It refuses them where `allowed` is false."""

    comments: list[dict[str, Any]]
    allowed = True

    def answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def body(self) -> str:
        told: str = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        return told

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer secret"
        first = "page=1" in self.path.split("&")
        self.answer(200, self.comments if first else [])

    def do_POST(self) -> None:
        body = self.body()
        if not self.allowed:
            self.answer(403, {})
            return
        assert self.path == "/repos/me/mine/issues/7/comments"
        self.comments.append({"id": 100 + len(self.comments), "body": body})
        self.answer(201, {})

    def do_PATCH(self) -> None:
        number = int(self.path.rpartition("/")[2])
        (found,) = (each for each in self.comments if each["id"] == number)
        found["body"] = self.body()
        self.answer(200, {})

    def log_message(self, *_: Any) -> None:
        """Nothing is written."""


@pytest.fixture
def github() -> Iterator[type[GitHub]]:
    class Here(GitHub):
        comments = [{"id": 1, "body": "looks good"}]

    server = HTTPServer(("127.0.0.1", 0), Here)
    Thread(target=server.serve_forever, daemon=True).start()
    Here.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    yield Here
    server.shutdown()
    server.server_close()


def git(*arguments: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *own, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def commit() -> str:
    git("add", "-A")
    git("commit", "-qm", "a change")
    return git("rev-parse", "HEAD")


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A commit of a repository with a study and what it imports, and a spec that nobody changes."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    Path("specs").mkdir()
    Path("specs/tiny.reo").write_text(SPEC)
    Path("specs/other.reo").write_text(SPEC)
    Path("library.reo").write_text("param of: int = 1\n")
    return commit()


def run(
    github: type[GitHub] | None, base: str, folder: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """The action's last step, with the variables that action.yml and GitHub set."""
    step = ACTION["runs"]["steps"][-1]
    assert set(step["env"]) == {"ACTION", "SPECS", "TOKEN", "BASE", "NUMBER"}
    environment = {
        "ACTION": str(ROOT),
        "SPECS": ACTION["inputs"]["specs"]["default"],
        "TOKEN": "secret",
        "BASE": base,
        "NUMBER": "7",
        "GITHUB_API_URL": getattr(github, "url", "http://127.0.0.1:9"),
        "GITHUB_REPOSITORY": "me/mine",
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "RUNNER_TEMP": str(folder),
        **more,
    }
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        env={**os.environ, **environment, "PATH": here, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_it_comments_what_changed_and_replaces_its_comment(
    base: str, github: type[GitHub], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("runner")
    spec = Path("specs/tiny.reo")
    steps = re.search(r"steps\s*=\s*(\d+)", SPEC)
    assert steps is not None
    spec.write_text(SPEC.replace(steps[0], f"steps = {int(steps[1]) + 5}"))
    commit()
    done = run(github, base, folder)
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(github.comments) == 2
    told = github.comments[1]["body"]
    assert told.startswith("<!-- reodsl plan -->")
    assert re.search(r"- `specs/tiny.reo`: Plan: \d+ run\.", told)
    assert "<summary>diff of specs/tiny.reo</summary>" in told
    assert f"{int(steps[1]) + 5}" in told
    assert "other.reo" not in told
    assert "library.reo" not in told
    assert (folder / "summary").read_text() == told
    assert (folder / "output").read_text() == f"comment={folder / 'reodsl-comment.md'}\n"
    spec.write_text(SPEC)
    commit()
    assert run(github, base, folder).returncode == 0
    assert len(github.comments) == 2
    assert "changes no spec's meaning" in github.comments[1]["body"]
    assert git("worktree", "list").count("\n") == 0


def test_a_spec_with_errors_and_a_new_one(
    base: str, github: type[GitHub], tmp_path_factory: pytest.TempPathFactory
) -> None:
    Path("specs/tiny.reo").write_text(SPEC.replace("max_prompt", "max_promt"))
    Path("specs/new.reo").write_text(SPEC + "# ``` fences ```\n")
    commit()
    done = run(github, base, tmp_path_factory.mktemp("runner"))
    assert done.returncode == 1
    told = github.comments[1]["body"]
    assert "`specs/tiny.reo`: has errors" in told
    assert "did you mean" in told
    assert "`specs/new.reo`: new. Plan:" in told


def test_a_spec_whose_plan_is_refused_fails_too(
    base: str, github: type[GitHub], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`check` finds nothing wrong with it, and yet it is no library."""
    source = "generated(chain_easy, count: 4, seed: 1)"
    assert source in SPEC
    Path("specs/tiny.reo").write_text(SPEC.replace(source, 'file("asked.jsonl")'))
    Path("specs/asked.jsonl").write_text('{"question": "a", \n')
    commit()
    done = run(github, base, tmp_path_factory.mktemp("runner"))
    assert done.returncode == 1
    told = github.comments[1]["body"]
    assert "`specs/tiny.reo`: has errors" in told
    assert "E0707" in told


def test_no_more_than_so_many_changed_specs_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Specs that did not change are not counted, wherever they are in the order of names."""
    monkeypatch.chdir(tmp_path)
    for name in "abcdef":
        Path(f"{name}.reo").write_text(SPEC)
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "NUMBER", "BASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path))
    asked: list[str] = []

    def change(spec: str, _: Path) -> comment.Change | None:
        asked.append(spec)
        return comment.Change(spec, "Plan: 1 run.", "", "") if spec in ("c.reo", "d.reo", "f.reo") else None

    monkeypatch.setattr(comment, "change", change)
    monkeypatch.setattr(comment, "MOST_SPECS", 2)
    assert comment.main() == 0
    assert asked == ["a.reo", "b.reo", "c.reo", "d.reo"]
    text = (tmp_path / "reodsl-comment.md").read_text()
    assert "`d.reo`" in text
    assert "and 2 more specs, which were not looked at" in text


def test_without_the_right_to_comment_the_summary_has_it(
    base: str, github: type[GitHub], tmp_path_factory: pytest.TempPathFactory
) -> None:
    github.allowed = False
    folder = tmp_path_factory.mktemp("runner")
    done = run(github, base, folder)
    assert done.returncode == 0
    assert "::warning::the plan is in the job's summary" in done.stdout
    assert (folder / "summary").exists()
