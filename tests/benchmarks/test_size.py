"""The table of sizes counts as `ast` does, and the code does not grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.size import COLUMNS, add_columns, main, measure_file, measure_packages

# These only go down: what is added makes room, and who makes room lowers them.
MOST = {"files": 340, "lines": 80_622, "statements": 46_510}


def test_the_code_does_not_grow() -> None:
    total = dict(zip(COLUMNS, add_columns(list(measure_packages().values())), strict=True))
    grown = {column: total[column] for column, most in MOST.items() if total[column] > most}
    assert not grown, f"{grown} is more than {MOST}: `python -m benchmarks.size` shows where code could go"


def test_counts_lines_statements_and_docstrings(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(
        '"""Module."""\n\n\ndef double(x):\n    """Return it twice."""\n    # why\n    return 2 * x\n'
    )
    assert measure_file(path) == (1, 7, 4, 2)


def test_prints_the_total_last(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    lines = capsys.readouterr().out.splitlines()
    files, *_ = (int(word.replace(",", "")) for word in lines[-1].split()[1:])
    assert files == sum(row[0] for row in measure_packages().values())
