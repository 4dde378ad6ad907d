"""Questions that two tables share, so that nothing is trained on that is later evaluated."""

from __future__ import annotations

import polars as pl

from runners.data.table import normal_question


def overlap(train: pl.DataFrame, evaluation: pl.DataFrame) -> pl.DataFrame:
    """The evaluation questions that occur in `train`, by normalised text: columns id, question, train_id.

    One row for each such evaluation row, in its order; `train_id` is the first training row with that question.
    """
    first: dict[str, str] = {}
    for row_id, question in train.select("id", "question").iter_rows():
        first.setdefault(normal_question(question), row_id)
    rows = [
        (row_id, question, first[key])
        for row_id, question in evaluation.select("id", "question").iter_rows()
        if (key := normal_question(question)) in first
    ]
    schema = {"id": pl.String, "question": pl.String, "train_id": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")
