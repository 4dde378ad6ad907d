"""Hours that others have published: where a run is known, prices are within 15% of them, and the page says so."""

from __future__ import annotations

import pytest

from benchmarks.published import PAGE, read, table

KNOWN = [row for row in read() if not row.unknown]


def test_every_project_has_rows_with_a_source() -> None:
    assert {row.project for row in read()} == {"prime-rl", "AReaL", "verl"}
    assert all(row.source.startswith("https://") for row in read())
    assert len(KNOWN) == 3


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row.run)
def test_what_is_known_is_priced_within_15_percent(row: object) -> None:
    assert row.price() == pytest.approx(row.published, rel=0.15)  # type: ignore[attr-defined]


def test_the_page_has_each_row_as_it_is_priced() -> None:
    assert f"\n{table()}\n" in PAGE.read_text("utf-8"), "run: python -m benchmarks.published"
