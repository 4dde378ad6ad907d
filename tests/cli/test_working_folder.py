"""The working folder is data: no command, and no process that one starts, imports what lies there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import click
import pytest

from reodsl.cli.main import cli
from tests.called import SPECS

REODSL = Path(sys.executable).with_name("reodsl")
NAMES = (
    *(
        "json",
        "torch",
        "numpy",
        "polars",
        "ray",
        "transformers",
        "sglang",
        "sympy",
        "click",
        "lark",
        "rich",
        "pydantic",
    ),
    *(
        "runners",
        "reodsl",
        "sitecustomize",
        "usercustomize",
        "httpx",
        "psutil",
        "pygls",
        "importlib_metadata",
    ),
)
HOSTILE = "open({mark!r}, 'a').write(__file__ + '\\n')\nraise SystemExit(__file__)\n"
COMMANDS = [
    "check study.reo",
    "fmt --check study.reo",
    "plan study.reo",
    "graph study.reo",
    "diff study.reo study.reo",
    "why study.reo vanilla.train.s1",
    "ls",
    "gc --help",
    "budgets exp(from:64,to:512,n:3)",
    "explain E0402",
    "new --list",
    "doctor study.reo",
    "fetch study.reo",
    "import rows.csv -o theirs.parquet",
    "lsp",
]
CURVES = "out/arms/{}.s1/curves.json"
# On Ray, whose workers import by themselves, then in one process; then the commands that read results.
RUNS = [
    "run study.reo --out out",
    "run study.reo --local --amend vanilla.steps=2",
    f"frontier {CURVES.format('base')} -o edge.json",
    f"reg {CURVES.format('vanilla')} --frontier edge.json --l-max 128",
    "report quickstart --out shown",
    "accept study.reo vanilla.train.s1 --because speed --amend vanilla.optim.lr=1e-4",
    "ls --verify",
    "watch quickstart",
    "export quickstart --to inspect",
    "reward study.reo vanilla --length 10,20 --correct yes,no",
    "rehearse study.reo --tokens 16 --steps 1",
    "gc --dry-run",
]

STUDY = """
study quickstart {
  replicate = seeds
  arm base    = checkpoint(overthinker)
  arm vanilla = vanilla

  frontier edge = envelope(of: [base, vanilla], to: 128 tokens)
  score = reg(against: edge, to: 128 tokens, relative_to: vanilla)
  report {
    table main { rows = arms, columns = [accuracy, length, reg] }
  }
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    there = tmp_path / "theirs"
    there.mkdir()
    for name in NAMES:
        (there / f"{name}.py").write_text(HOSTILE.format(mark=str(tmp_path / "mark")))
    python = there / ".venv-sglang" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho sglang >> {tmp_path / 'mark'}\n")
    python.chmod(0o755)
    (there / ".venv-sglang" / "lib" / "python3.11" / "site-packages" / "sglang").mkdir(parents=True)
    shutil.copy(SPECS / "quickstart.reo", there / "study.reo")
    (there / "rows.csv").write_text(
        "model,benchmark,question,sample,tokens,correct\nmine,sums,1,0,12,1\nmine,sums,2,0,20,0\n"
    )
    return there


def call(folder: Path, *command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REODSL"))
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input="",
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.slow
def test_no_command_imports_from_the_working_folder(folder: Path, tmp_path: Path) -> None:
    for line in COMMANDS:
        done = call(folder, str(REODSL), *line.split(" "))
        assert not (tmp_path / "mark").exists(), (line, (tmp_path / "mark").read_text())
        assert "Traceback" not in done.stderr, line
        assert done.returncode in (0, 1, 2), (line, done.stderr)
        if line.startswith("check"):
            assert done.returncode == 0, (line, done.stderr)


def test_the_module_drops_the_working_folder_before_it_imports_anything(folder: Path, tmp_path: Path) -> None:
    """Python itself looks there for `reodsl` and for `runpy` first, which `-P` alone prevents."""
    (folder / "reodsl.py").unlink()
    for flags in ([], ["-P"]):
        done = call(folder, sys.executable, *flags, "-m", "reodsl", "check", "study.reo")
        assert (done.returncode, (tmp_path / "mark").exists()) == (0, False), done.stderr


@pytest.mark.heavy
def test_no_run_and_nothing_after_it_imports_from_the_working_folder(folder: Path, tmp_path: Path) -> None:
    text = (folder / "study.reo").read_text()
    text = (
        text[: text.index("experiment reo_exp")].replace("40 steps", "1 steps").replace("3 steps", "1 steps")
    )
    (folder / "study.reo").write_text(text + STUDY)
    for line in RUNS:
        done = call(folder, str(REODSL), *line.split(" "), timeout=1800)
        assert not (tmp_path / "mark").exists(), (line, (tmp_path / "mark").read_text())
        # There is something that could be removed.
        assert done.returncode == (2 if line.startswith("gc") else 0), (line, done.stderr)
    view = subprocess.Popen(
        [str(REODSL), "view"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert view.stdout is not None
    said = ""
    while "http://" not in said:
        line = view.stdout.readline()
        assert line, said
        said += line
    with urlopen(re.findall(r"http://\S+", said)[0]) as page:
        assert page.status == 200
    view.terminate()
    view.communicate()
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()


def test_every_command_is_called_here() -> None:
    called = {line.split()[0] for line in (*COMMANDS, *RUNS, "view")}
    with click.Context(cli) as context:
        assert called == set(cli.list_commands(context))
