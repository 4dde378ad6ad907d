"""Hooks for pre-commit: what they do, and that a file's name is never an option; and how Python is started anywhere."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.bad_input.commands import SPEC

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
ENTRIES = {each["id"]: shlex.split(each["entry"]) for each in HOOKS}
REODSL = Path(sys.executable).with_name("reodsl")

_START = re.compile(
    r"(?:python[\d.]*[\"'`]?|\$\(PYTHON\)|PIP *:=)((?: +-[A-Za-z]+)*?) +-[mc] *[\"']?([\w.]*)"
)
_OF_THE_CHECKOUT = ("benchmarks", "editors")
"""Modules that are in the checkout alone, so nobody starts them in another's folder."""
_TELL_OF_IT = ("reodsl/__init__.py", "SECURITY.md")
"""Files that say what holds where `-P` was not given."""


def hook(name: str, *files: str) -> int:
    """The exit code of a hook, called as pre-commit does, in the present folder."""
    command, *more = ENTRIES[name]
    assert command == "reodsl"
    return subprocess.run([REODSL, *more, *files], capture_output=True).returncode


def texts() -> Iterator[tuple[str, str]]:
    """Files of the repository that people read, copy from or start, with their text."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if not re.match(r"(tests|benchmarks)/|CHANGELOG", name) and path.is_file() and path.suffix != ".png":
            yield name, path.read_text()


def starts(text: str) -> Iterator[str]:
    """Each `python -m` or `python -c` of a text that imports from the working folder first."""
    for each in _START.finditer(text):
        isolated = {"-P", "-I"} & set(each[1].split())
        if not isolated and each[2].partition(".")[0] not in _OF_THE_CHECKOUT:
            yield each[0]


def calls(tree: ast.AST) -> Iterator[int]:
    """The line of each list of arguments that has `-m` or `-c` for Python, and not `-P` before it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            words = [ast.unparse(each) for each in node.elts]
            before = list(itertools.takewhile(lambda word: word not in ("'-m'", "'-c'"), words))
            of_python = re.search("python|executable", words[0]) is not None
            if of_python and len(before) < len(words) and "'-P'" not in before:
                yield node.lineno


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("python -m reodsl check", 1),
        ("`python3.12 -u -m pip`", 1),
        ("\t$(BIN)/python -c 'import site'", 1),
        ("PIP := -m pip", 1),
        ("$(PYTHON) -m venv", 1),
        ("python -P -m reodsl; python -I -c 'import ray'; python docs/site/build.py", 0),
        ("python -m benchmarks.lag", 0),
    ],
)
def test_a_start_is_seen(text: str, count: int) -> None:
    assert len(list(starts(text))) == count


def test_a_call_is_seen() -> None:
    code = '[sys.executable, "-m", "x"]\n(python, "-c", "x")\n[sys.executable, "-P", "-m", "x"]\n["git", "-c", "x"]'
    assert list(calls(ast.parse(code))) == [1, 2]


def test_nothing_imports_from_a_folder_of_strangers() -> None:
    wrong = []
    for name, text in texts():
        if name not in _TELL_OF_IT:
            wrong += [f"{name}: {each}" for each in starts(text)]
        if name.endswith(".py"):
            wrong += [f"{name}:{line}" for line in calls(ast.parse(text))]
    assert wrong == []


def test_the_hooks_mend_the_layout_and_refuse_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("specs").mkdir()
    spec = Path("specs/tiny.reo")
    spec.write_text(SPEC)
    assert all(re.search(each["files"], str(spec)) for each in HOOKS)
    hook("reodsl-fmt", str(spec))
    text = spec.read_text()
    spec.write_text(text.replace(" = ", "   =  "))
    assert hook("reodsl-fmt", str(spec)) == 0
    assert spec.read_text() == text
    assert hook("reodsl-check", str(spec)) == 0
    spec.write_text(text.replace("max_prompt", "max_promt"))
    assert hook("reodsl-check", str(spec)) == 1


def test_a_files_name_is_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # What Python would import from here is data too.
    Path("reodsl.py").write_text("raise SystemExit(77)\n")
    files = [Path(name) for name in ("--amend=a.reo", "--set=n=1.reo", "--x.reo", "-.reo")]
    for file in files:
        file.write_text(SPEC.replace(" = ", "   =  "))
    assert hook("reodsl-fmt", *map(str, files)) == 0
    assert not [file for file in files if "   =  " in file.read_text()]
    assert hook("reodsl-check", *map(str, files)) == 0
    files.append(Path("--debug"))
    for file in files:
        file.write_text(SPEC.replace("max_prompt", "max_promt"))
    _, *more = ENTRIES["reodsl-check"]
    told = subprocess.run([REODSL, *more, *map(str, files)], capture_output=True, text=True)
    assert told.returncode == 1
    assert not [file for file in files if f"--> {file}:" not in told.stderr]
    assert sorted(os.listdir()) == sorted(["reodsl.py", *map(str, files)])
