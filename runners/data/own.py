"""Questions that a function of the user's draws, each from a stream of its own."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from reodsl.diagnostics import problem
from reodsl.graph.job import Resources
from reodsl.ir.data import Generated, Python, normal_question
from runners.data.draws import HELD_OUT_ONE_IN, split_of
from runners.data.table import question_id
from runners.own.function import open_function

_DRAWS_PER_QUESTION = 40


def read_own(source: Generated, task: Python, folder: Path, resources: Resources) -> pl.DataFrame:
    """Read `count` distinct questions of one side of the split.

    The columns are id, question, answer, and meta and trace if some have them. Draw n is made from (seed, n) alone, so
    the first rows are the same whatever the number asked for.

    Raises E0711 where too many draws give the same or the other side's, and what the function's process raises.
    """
    function = open_function(task, "task", folder, resources)
    rows: list[dict[str, str | None]] = []
    seen: set[str] = set()
    drawn, patience = 0, _DRAWS_PER_QUESTION * (source.count + HELD_OUT_ONE_IN)
    try:
        while len(rows) < source.count and drawn < patience:
            # Batches are whole, so that what is drawn does not depend on how many are still missing.
            batches = -(-(source.count - len(rows)) // task.batch)
            draws = range(drawn, drawn + batches * task.batch)
            drawn = draws.stop
            for each in function.draw(source.seed, draws):
                text = normal_question(each["question"])
                if (
                    len(rows) < source.count
                    and text not in seen
                    and split_of(each["question"]) == source.split
                ):
                    seen.add(text)
                    rows.append(
                        {
                            "id": question_id(each["question"]),
                            **{
                                name: part if name == "answer" else part or None
                                for name, part in each.items()
                            },
                        }
                    )
    finally:
        function.close()
    if len(rows) < source.count:
        raise problem(
            "E0711",
            f"{source.count} questions of the split `{source.split}` were asked for, and {len(rows)} came of {drawn} draws",
            where=task.function,
            help="ask for fewer, or let the function draw from more questions",
        )
    table = pl.DataFrame(rows, schema=["id", "question", "answer", "meta", "trace"]).cast(pl.String)
    return table.drop([name for name in ("meta", "trace") if table[name].null_count() == table.height])
