"""Report questions for programs whose tests cannot be read."""

from __future__ import annotations

import polars as pl

from reodsl.diagnostics import problem
from runners.data.table import list_first
from runners.grade import SEPARATOR
from runners.programs.tests import Unreadable, read_tests


def require_tests(table: pl.DataFrame, where: str) -> None:
    """Raise a Problem (E0718) that names rows whose tests no program could be judged by."""
    metas = table["meta"].to_list() if "meta" in table.columns else [""] * table.height
    unread = []
    for row, (answer, meta) in enumerate(zip(table["answer"], metas, strict=True), 1):
        try:
            read_tests(tuple(answer.split(SEPARATOR)), meta or "")
        except Unreadable as failure:
            unread.append(f"row {row}: {failure}")
    if unread:
        raise problem(
            "E0718",
            f"{len(unread)} of {table.height} rows have no tests that can be read",
            where=where,
            notes=list_first(unread),
            help='name the column with the tests, as `columns: columns(answer: "test_list")`; docs/OWN_CODE.md shows shapes',
        )
