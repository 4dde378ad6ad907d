"""docs/TOOLS.md names hooks and a version that there are, and its workflow reads a stranger's pull request as data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

import reodsl
from tests.bad_input.commands import SPEC

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "TOOLS.md").read_text(), re.DOTALL)
HOOKS, WORKFLOW = (yaml.safe_load(block) for block in BLOCKS)
CHECKOUT, INSTALL, READ = WORKFLOW["jobs"]["plan"]["steps"]


def test_the_hooks_are_those_of_the_repository() -> None:
    known = {each["id"] for each in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert {each["id"] for each in HOOKS["repos"][0]["hooks"]} == known
    assert HOOKS["repos"][0]["rev"] == f"v{reodsl.__version__}"


def test_the_workflow_holds_no_token_and_installs_by_hashes() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert re.fullmatch(r"actions/checkout@[0-9a-f]{40}", CHECKOUT["uses"])
    assert CHECKOUT["with"]["persist-credentials"] is False
    assert not re.search(r"token|secrets", BLOCKS[1])
    listed = re.search(r"--require-hashes --only-binary :all: -r tool/(\S+)", INSTALL["run"])
    assert listed is not None
    assert (ROOT / listed[1]).is_file()
    assert "theirs" not in INSTALL["run"]


def git(*arguments: str) -> str:
    mine = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *mine, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A commit with a library; the checkout, where reodsl is installed beside it."""
    (tmp_path / "installed").symlink_to(sys.prefix)
    (tmp_path / "theirs").mkdir()
    monkeypatch.chdir(tmp_path / "theirs")
    git("init", "-q")
    Path("library.reo").write_text("param of: int = 1\n")
    return commit()


def commit() -> str:
    git("add", "-A")
    git("commit", "-qm", "a change")
    return git("rev-parse", "HEAD")


def read(base: str) -> tuple[int, str]:
    """The last step of the workflow: its exit code, and the summary."""
    assert set(READ["env"]) == {"BASE"}
    summary = Path("../summary").resolve()
    summary.write_text("")
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", READ["run"]],
        cwd="..",
        env={**os.environ, "BASE": base, "GITHUB_STEP_SUMMARY": str(summary)},
        capture_output=True,
        text=True,
    )
    git("worktree", "remove", "--force", "../base")
    assert "Traceback" not in done.stderr
    return done.returncode, summary.read_text()


@pytest.mark.usefixtures("base")
def test_a_change_is_shown_and_what_is_the_same_is_not() -> None:
    Path("specs").mkdir()
    Path("specs/tiny.reo").write_text(SPEC)
    Path("specs/other.reo").write_text(SPEC)
    base = commit()
    Path("specs/tiny.reo").write_text(SPEC.replace("= 2 steps in", "= 7 steps in"))
    commit()
    code, summary = read(base)
    assert code == 0
    assert summary.startswith("    specs/tiny.reo\n")
    assert "other.reo" not in summary
    assert re.search(r"^ {4}steps +2 steps +7 steps$", summary, re.M)
    assert re.search(r"^ {4}Plan: \d+ run\.", summary, re.M)


def test_a_spec_with_errors_or_past_its_limit_fails_the_job_and_a_new_one_is_planned(base: str) -> None:
    Path("new.reo").write_text(SPEC)
    commit()
    code, summary = read(base)
    assert code == 0
    assert summary.startswith("    new.reo\n")
    Path("new.reo").write_text(SPEC.replace("max_prompt", "max_promt"))
    commit()
    assert read(base)[0] == 1
    Path("new.reo").write_text(SPEC + "study costly {\n  arm tiny = tiny\n  limit = 0.0001 seconds\n}\n")
    commit()
    assert read(base)[0] == 1


HOSTILE = [
    "--amend=a.reo",
    "-n.reo",
    "a b\n$(touch mark).reo",
    "c\r# d.reo",
    "`|<img src=x onerror=y>|`.reo",
    "[x](http/y).reo",
]


def test_what_a_stranger_writes_stays_data(base: str) -> None:
    for name in ("reodsl", "pip", "runpy", "sitecustomize", "click"):
        Path(f"{name}.py").write_text("open('mark', 'w').write(__file__)\n")
    for name in HOSTILE:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(SPEC)
    Path("leak.reo").symlink_to(".git/config")
    commit()
    code, summary = read(base)
    assert code == 1  # the link is no spec
    assert not Path("mark").exists()
    assert "[core]" not in summary
    (token,) = MarkdownIt("commonmark", {"html": True}).parse(summary)
    assert token.type == "code_block"
    assert summary.count("Plan: ") == len(HOSTILE)
