"""Functions that installed packages offer: faults in their files, and what they may do as they are loaded."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.store.consent import read_code
from runners.own.function import UserFunction
from runners.sandbox import lacking
from tests.own.library import install

confined = pytest.mark.skipif(lacking() is not None, reason=f"NOT CONFINED HERE: {lacking()}")
MAKE = """
from reodsl.own import Question


def make(random):
    a, b = random.randrange(10), random.randrange(1, 10)
    return Question(f"{a} a +{b} ?", str((a + b) % 10))
"""


def makes() -> UserFunction:
    code = read_code("sums:make", Path())
    return UserFunction(code, "task", batch=64, seconds=60, memory_mib=2048, confined=lacking() is None)


@pytest.fixture
def layered(site: Path) -> Path:
    """The file of a package's function, which the module that is named imports."""
    install(site, "from sums.tasks import make\n")
    folder = site / "sums"
    folder.mkdir()
    (site / "sums.py").rename(folder / "__init__.py")
    (folder / "tasks.py").write_text(MAKE)
    return folder / "tasks.py"


@confined
@pytest.mark.parametrize(
    ("change", "words", "line"),
    [
        (("randrange(10),", "randrange(1 // 0),"), "ZeroDivisionError", "a, b = random.randrange(1 // 0)"),
        (("def make(", "df make("), "SyntaxError", "df make(random):"),
    ],
)
def test_a_fault_in_another_file_of_its_package_is_shown_there(
    layered: Path, change: tuple[str, str], words: str, line: str
) -> None:
    text = MAKE.replace(*change)
    layered.write_text(text)
    task = makes()
    with pytest.raises(Problem, match=words) as caught:
        task.draw(1, range(2))
    task.close()
    (found,) = caught.value.diagnostics
    (at, shown) = next(
        (number, written.strip())
        for number, written in enumerate(text.splitlines(), 1)
        if written.strip().startswith(line)
    )
    assert (found.code, found.where, found.notes) == ("E0744", f"{layered}:{at}", (f"the line is: {shown}",))


@pytest.mark.parametrize(
    "inside", ["../secret.py", "tasks.txt", "/etc/passwd", "link.py", "nowhere.py", "a\0.py", 7]
)
def test_a_process_shows_no_line_of_a_file_outside_its_package(layered: Path, inside: object) -> None:
    secret = layered.parents[1] / "secret.py"
    for path in (secret, layered.with_suffix(".txt")):
        path.write_text("KEY = 'hunter2'\n")
    (layered.parent / "link.py").symlink_to(secret)
    said = {"status": "error", "message": "x", "line": 1, "inside": inside}
    with pytest.raises(Problem) as caught:
        makes()._read_values(said, 1, bool)
    (found,) = caught.value.diagnostics
    assert found.where == f"{layered.with_name('__init__.py')}:1"
    assert "hunter2" not in str(found)


TRAPS = """
import os
import socket

SEEN = []
for attempt in (
    lambda: open({secret!r}).read(),
    lambda: os.unlink({secret!r}),
    lambda: os.mkdir({made!r}),
    lambda: open({made!r}, "w").close(),
    lambda: os.listdir({folder!r})[0],
    lambda: socket.create_connection(("127.0.0.1", {port})),
):
    try:
        SEEN.append(str(attempt()))
    except OSError:
        pass
"""


@confined
def test_a_package_reads_and_changes_nothing_as_it_is_loaded(site: Path, tmp_path: Path) -> None:
    """Which it is before any copy is made: what it saw then would stand in its questions."""
    folder = tmp_path / "home"
    folder.mkdir()
    secret, made = folder / "secret", folder / "made"
    secret.write_text("hunter2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        named = {"secret": str(secret), "made": str(made), "folder": str(folder)}
        traps = TRAPS.format(**named, port=server.getsockname()[1])
        install(site, traps + MAKE.replace('Question(f"', 'Question(f"{SEEN} '))
        task = makes()
        questions = task.draw(1, range(3))
        task.close()
    assert [question["question"][:3] for question in questions] == ["[] "] * 3
    assert [path.name for path in folder.iterdir()] == ["secret"]
