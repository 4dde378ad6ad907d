"""Commands in terminals of several widths: each line fits, no word is broken, and none is lost."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from reodsl.cli import diff, output, plan
from runners.execute import survey
from tests.called import beside_quickstart, call
from tests.execute import toys

ROOT = Path(__file__).resolve().parents[2]
TWO_WAYS = ROOT / "specs" / "miniature" / "two_ways.reo"


def words(lines: list[str]) -> list[str]:
    """The words in order of the alphabet, without numbers: a disk's room changes while nobody looks."""
    return sorted(re.sub(r"\d+(\.\d+)?", "N", " ".join(lines)).split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("plan", "quickstart.reo"),
        ("graph", "quickstart.reo"),
        ("doctor", "quickstart.reo"),
        ("diff", "quickstart.reo", "two_ways.reo"),
        ("diff", "quickstart.reo", "two_ways.reo", "--all"),
    ],
    ids=" ".join,
)
def test_every_line_fits_and_keeps_its_words(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    beside_quickstart(tmp_path, toys.RUNNERS, monkeypatch)
    # The machine is the same at every width.
    monkeypatch.setattr(survey, "survey", cache(survey.survey))
    (tmp_path / "two_ways.reo").write_text(TWO_WAYS.read_text())
    written: dict[int | None, list[str]] = {}
    for columns in (None, 60, 80, 140):
        for module in (output, plan, diff):
            monkeypatch.setattr(module, "terminal_columns", lambda columns=columns: columns, raising=False)
        call(*command)
        written[columns] = capsys.readouterr().out.splitlines()
    wanted = words(written[None])
    for columns, lines in written.items():
        assert words(lines) == wanted
        # A word that is longer than a line has one to itself.
        assert not columns or all(len(line) <= columns or len(line.split()) == 1 for line in lines)
    assert len(wanted) > 30
