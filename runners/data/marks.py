"""Strip marks from around questions, and say which marks no question has."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from reodsl.diagnostics import Diagnostic, warning
from reodsl.ir.data import Marks
from runners.data.table import question_id

_SHOWN = 60


def strip_marks(question: str, marks: Sequence[Marks]) -> str:
    """Return the question without the `marks` around it, one after another, and without white space at its ends."""
    for each in marks:
        before, after = each.before.strip(), each.after.strip()
        question = question.strip().removeprefix(before).removesuffix(after)
    return question.strip() if marks else question


def without_marks(table: pl.DataFrame, marks: Sequence[Marks]) -> pl.DataFrame:
    """Return `table` with its questions stripped; ids that were made from the questions are made from what is left."""
    if not marks or not table.height:
        return table
    ids, questions = [], []
    for name, text in table.select("id", "question").iter_rows():
        stripped = None if text is None else strip_marks(text, marks)
        id_of_question = text is not None and name == question_id(text)
        ids.append(question_id(stripped) if id_of_question and stripped is not None else name)
        questions.append(stripped)
    return table.with_columns(
        pl.Series("id", ids, dtype=pl.String), pl.Series("question", questions, dtype=pl.String)
    )


def unused_marks(questions: Sequence[str], marks: Sequence[Marks], where: str) -> list[Diagnostic]:
    """Warn (W0715) of marks that no question begins, or ends, with once the marks before them are removed."""
    warnings, texts = [], [text.strip() for text in questions]
    for each in marks:
        before, after = each.before.strip(), each.after.strip()
        for mark, there, end in (
            (before, any(text.startswith(before) for text in texts), "begins"),
            (after, any(text.endswith(after) for text in texts), "ends"),
        ):
            if mark and texts and not there:
                warnings.append(
                    warning(
                        "W0715",
                        f"`strip` takes nothing off: none of {len(texts)} questions {end} with `{_short(mark)}`",
                        where=where,
                        notes=(f"the first is: {_short(questions[0])}",),
                        help="write the mark as it stands in the data, or take it out of `strip`",
                    )
                )
        texts = [text.removeprefix(before).removesuffix(after).strip() for text in texts]
    return warnings


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
