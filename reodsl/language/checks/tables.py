"""Provenance: settings that differ from the table of the paper that their recipe was written from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reodsl.diagnostics.model import Diagnostic, Label, note
from reodsl.language.checks.cases import Case
from reodsl.language.values import Compound, Slot, as_written, walk

TABLE = "Table"
_TITLE = re.compile(r'Table "[^"]*"|Table for \w+')


def check_tables(cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """N0501, once for each experiment and arm."""
    compared: set[int] = set()
    for case in cases:
        # An arm that is an experiment as it stands may be beside the paper's numbers in its study alone.
        if id(case.record) not in compared and _compared(case):
            compared.add(id(case.record))
            yield from _check_table(case)


def _check_table(case: Case) -> Iterator[Diagnostic]:
    """N0501: one note for an experiment with everything in which it leaves the paper's table.

    The table is for the paper's models: one with fresh weights is of another size, and nothing is said.
    """
    model = case.model
    source = model.sub("source") if model is not None else None
    if source is None or source.kind == "architecture":
        return
    labels: list[Label] = []
    table = ""
    for path, slot in walk(case.record):
        root = slot.root
        if root is slot or not root.doc.startswith(TABLE) or slot.span is None or _same(root, slot):
            continue
        if slot.doc.startswith(TABLE):  # The table has a value of its own for this model.
            continue
        # A remark on one setting, as `Table, "Adam": …`, names no table.
        title = _TITLE.match(root.doc)
        table = table or (title[0] if title else "")
        labels.append(
            Label(
                slot.value.span,
                f"`{path}` is {as_written(slot.value)}; the table has {as_written(root.value)}",
            )
        )
    if labels:
        count = f"{len(labels)} settings differ" if len(labels) > 1 else "a setting differs"
        yield note(
            "N0501",
            f"{count} from the paper's {f'table{table.removeprefix(TABLE)}' if table else 'table'}",
            labels[0].span,
            labels[0].text,
            others=labels[1:],
        )


def _compared(case: Case) -> bool:
    """Whether a case stands beside numbers in print: it is scored against a published frontier, or a row of a table that
    names a published one has its name.
    """
    score = (case.study or case.record).sub("score")
    against = score.sub("against") if score is not None else None
    if against is not None and getattr(against, "envelope", None) is None:
        return True
    for table in case.study.tables if case.study is not None else ():
        published = table.sub("published")
        if isinstance(published, Compound) and any(row.name == case.name for row in published.parts):
            return True
    return False


def _same(one: Slot, two: Slot) -> bool:
    return as_written(one.value) == as_written(two.value)
