"""The runner of `data` tasks."""

from __future__ import annotations

import json

from reodsl.graph.job import Job, Progress
from reodsl.ir.data import Data
from runners.data.load import doubts, join_sources, read_sources, take_rows


def data(job: Job) -> None:
    """Write `questions.parquet`, `references.json` where references are doubtful, `left_out.json` where rows were dropped.

    Raises a Problem (E07xx) that says what is wrong with a source.
    """
    declared: Data = job.task.work["data"]
    read = read_sources(declared, job.folder, job.resources)
    joined = join_sources(declared, read)
    take_rows(joined, declared.take).write_parquet(job.out / "questions.parquet")
    repeated = sum(table.height for table in read) - joined.height
    if repeated:
        facts = {"rows": joined.height, "left_out_repeated": repeated}
        (job.out / "left_out.json").write_text(json.dumps(facts) + "\n", "utf-8")
        job.progress(Progress(1, 1, facts))
    doubtful = doubts(declared, read)
    if doubtful is not None:
        (job.out / "references.json").write_text(
            json.dumps(doubtful, indent=1, ensure_ascii=False) + "\n", "utf-8"
        )
