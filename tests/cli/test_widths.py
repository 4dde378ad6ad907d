"""Commands in terminals of several widths: each line fits, no word is broken, and none is lost."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from click import Context
from click.testing import CliRunner

from reodsl.cli import diff, output, plan, specs
from reodsl.cli.main import cli
from reodsl.diagnostics import Span, error
from reodsl.diagnostics.render import codes, page, render, topics
from reodsl.language import compile_file
from runners.execute import survey
from tests.called import beside_quickstart, call
from tests.execute import toys
from tests.language.test_pages import NAMES, examples

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


WIDTHS = (60, 80, 100, 140)


def fits(line: str, columns: int) -> bool:
    """Whether a line fits, or is one word that is longer."""
    return len(line) <= columns or len(line.split()) == 1


@pytest.mark.parametrize("command", ["", *cli.list_commands(Context(cli))])
def test_help_fits_and_keeps_its_words(command: str) -> None:
    wanted = None
    for columns in WIDTHS:
        shown = CliRunner().invoke(cli, [*command.split(), "--help"], terminal_width=columns).output
        assert [line for line in shown.split("\n") if not fits(line, columns)] == []
        wanted = wanted or sorted(shown.split())
        assert sorted(shown.split()) == wanted
        # Examples are indented; a paragraph is joined before it is folded, so only its last line may be short.
        epilog = shown.split("\n  Examples:\n")[-1] if "\n  Examples:\n" in shown else ""
        for line, after in pairwise(epilog.split("\n")):
            assert (
                re.match("    |  $|$", line)
                or not after.strip()
                or len(line) + len(after.split()[0]) >= columns
            )
    assert wanted
    assert len(wanted) > 10


@pytest.mark.parametrize("columns", WIDTHS)
def test_explain_fits_and_keeps_its_words_and_code(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(specs, "terminal_columns", lambda: columns)
    for code in (*codes(), *topics()):
        text = page(code)
        call("explain", code)
        shown = capsys.readouterr().out
        blocks = re.findall(r"^```.*?^```$", text, re.M | re.S)
        assert re.findall(r"^```.*?^```$", shown, re.M | re.S) == blocks, code
        assert shown.split() == text.split(), code
        sentences = re.sub(r"^```.*?^```$|^\|.*$", "", shown, flags=re.M | re.S if blocks else re.M)
        assert [line for line in sentences.split("\n") if not fits(line, columns)] == [], code


@pytest.mark.parametrize("columns", WIDTHS)
def test_diagnostics_fit_and_keep_their_words(columns: int, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    shown = 0
    for name in NAMES[::4]:
        path.write_text(examples(name)[0])
        for finding in compile_file(path).diagnostics:
            source = {str(path): path.read_text()}
            text = render([finding], source, columns=columns)
            for line in text.split("\n"):
                # An excerpt is cut, and a path is one word.
                assert fits(line, columns) or re.match(r" *(\d+ \||\W+ /)", line), (name, line)
            labels = [label.text for label in finding.labels]
            said = " ".join([finding.message, *labels, *finding.notes, finding.help or ""])
            assert set(said.split()) <= set(text.split()), name
            shown += 1
    assert shown > 20


@pytest.mark.parametrize("words", ["explain {}", "new --method {}", "check --{}", "budgets a{}"])
def test_an_endless_argument_is_cut(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*words.format("9" * 5000).split()) == 1
    assert 60 < len(capsys.readouterr().err) < 400
    path = "/".join(["9" * 255] * 9)
    assert error("E0301", path).message == path


def test_a_long_message_is_folded_below_its_code() -> None:
    finding = error("E0301", " ".join(["word"] * 30), Span("a.reo", 1, 5, 1, 7), "what is said of it " * 4)
    text = render([finding], {"a.reo": "abc defg\n"}, columns=60)
    lines = text.rstrip("\n").split("\n")
    assert lines[0].startswith("error[E0301]: word")
    assert lines[1].startswith("    word")
    assert all(len(line) <= 60 for line in lines)
    marks = next(at for at, line in enumerate(lines) if "^^" in line)
    assert lines[marks].index("what") == len(lines[marks + 1]) - len(lines[marks + 1].lstrip("| "))
