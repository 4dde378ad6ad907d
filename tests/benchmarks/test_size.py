"""The table of sizes counts as `ast` does, and what there is to know does not grow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.size import COLUMNS, add_columns, count_parts, main, measure_file, measure_packages
from reodsl.diagnostics.render import codes

# These only go down: what is added makes room, and who makes room lowers them. A docstring costs nothing.
MOST = {
    "files": 339,
    "lines": 71_360,
    "statements": 40_863,
    "codes": 182,
    "settings": 295,
    "lines of tests": 78_868,
}


def test_nothing_grows() -> None:
    total = dict(zip(COLUMNS, add_columns(list(measure_packages().values())), strict=True)) | count_parts()
    grown = {column: total[column] for column, most in MOST.items() if total[column] > most}
    assert not grown, f"{grown} is more than {MOST}: `python -m benchmarks.size` shows where code could go"


def test_counts_lines_statements_and_docstrings(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(
        '"""Module."""\n\n\ndef double(x):\n    """Return it\n    twice."""\n    # why\n    return 2 * x\n'
    )
    assert measure_file(path) == (1, 5, 2, 3)


def test_prints_the_total_last(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    lines = capsys.readouterr().out.splitlines()
    total = next(line for line in lines if line.startswith("total"))
    files, *_ = (int(word.replace(",", "")) for word in total.split()[1:])
    assert files == sum(row[0] for row in measure_packages().values())


def test_codes_are_the_pages_that_explain_knows() -> None:
    assert count_parts()["codes"] == len(codes())


def test_settings_are_those_of_the_reference() -> None:
    """A setting that several kinds inherit is counted once, so the reference has no fewer rows."""
    rows = [
        line
        for line in Path("docs/REFERENCE.md").read_text().splitlines()
        if re.match(r"\| `\w+` \| .* \| .* \|", line)
    ]
    assert 0 < count_parts()["settings"] <= len(rows)
