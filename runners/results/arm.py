"""Somebody's responses as an arm: the files that an evaluation writes, and what keeps a table from being one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.graph.job import Job
from reodsl.graph.payload import results_work
from reodsl.ir.study import Study
from reodsl.ir.training import FromResults
from reodsl.numbers.responses import Responses, holds_responses, read_responses

KEYS = ("benchmark", "question", "sample")


def results(job: Job) -> None:
    """Write the files of an evaluation from a table of responses. Raises E0438 if its questions are not the suite's."""
    # What is checked before a run needs nothing of what evaluates.
    from runners.evaluate.given import name_responses
    from runners.evaluate.run import write_json
    from runners.evaluate.tables import EXAMPLES, FORCED, SAMPLES, curves, summary

    base, suite = job.task.work["base"], job.task.work["suite"]
    kind = kind_of(open_table(job.folder / base.path), base.of, suite)
    rows = name_responses(job, suite["benchmarks"])
    rows.with_columns(unsettled=None).select(_cast(SAMPLES)).write_parquet(job.out / "samples.parquet")
    grid = pl.DataFrame({"budget": suite["grid"]}, schema={"budget": pl.Int64})
    if kind == "J" and suite["forced"]:
        cuts = rows.select(*KEYS, "tokens", "at").explode("at").unnest("at")
        forced = cuts.join(grid, on="budget", how="semi").sort(*KEYS, "budget")
    else:
        within_budget = (pl.col("tokens") <= pl.col("budget")) | (not suite["forced"])
        forced = rows.select(*KEYS, "tokens", "correct").join(grid, how="cross", maintain_order="left")
        forced = forced.with_columns(correct=pl.col("correct") & within_budget)
    forced = forced.with_columns(forced=pl.col("tokens") > pl.col("budget"), answer=None, unsettled=None)
    forced.select(_cast(FORCED)).write_parquet(job.out / "forced.parquet")
    pl.DataFrame(schema=EXAMPLES).write_parquet(job.out / "examples.parquet")
    curve_of = curves(job.out / "forced.parquet", suite["benchmarks"])
    label = {} if kind == "J" else {"kind": kind}
    write_json(job.out / "curves.json", {name: {**curve, **label} for name, curve in curve_of.items()})
    summaries = summary(job.out / "samples.parquet", job.out / "forced.parquet", suite["benchmarks"])
    write_json(job.out / "summary.json", summaries)


def _cast(schema: Mapping[str, Any]) -> list[pl.Expr]:
    return [pl.col(name).cast(kind) for name, kind in schema.items()]


def check_arms(study: Study, folder: Path) -> Iterator[tuple[str, Diagnostic]]:
    """Yield the faults of a study's imported results with their arm: of each table, or else of mixed kinds of curves."""
    kinds: dict[str, str] = {}
    tables: dict[str, Responses | None] = {}
    faults: list[tuple[str, Diagnostic]] = []
    for arm in study.arms:
        source = arm.checkpoint
        if not isinstance(source, FromResults):
            kinds |= {arm.name: "J"} if arm.suite.forcing is not None else {}
            continue
        try:
            if source.path not in tables:
                # Where it is none, its first arm says so for all.
                tables[source.path] = None
                tables[source.path] = open_table(folder / source.path)
            table = tables[source.path]
            if table is None:
                continue
            suite = results_work(arm.suite, source)["suite"]
            kind = kind_of(table, source.of, suite, texts=source.at is not None)
            kinds |= {arm.name: kind} if arm.suite.forcing is not None else {}
        except Problem as caught:
            faults += [(arm.name, diagnostic) for diagnostic in caught.diagnostics]
    kinds |= {frontier.name: "J" for frontier in study.frontiers if frontier.published}
    unforced = [name for name, kind in kinds.items() if kind != "J"]
    forced = [name for name, kind in kinds.items() if kind == "J"]
    if unforced and not faults and (forced or study.score is not None):
        other = f"`{forced[0]}` is made of them (`J`)" if forced else "REG needs them"
        fault = error(
            "E0435",
            f"`{unforced[0]}` has no forced answers (`ended`), and {other}",
            help="force answers out of them, `at: forced(MODEL)`, or import them with some; or give all arms a suite without"
            " `grid` and `forcing`, for accuracy and length alone; or see what lies around REG: `reodsl reg TABLE --frontier"
            " …`",
        )
        faults = [(unforced[0], fault)]
    yield from faults


def open_table(path: Path) -> Responses:
    """Return a table of responses. Raises E0438 for any other file, and what `read_responses` raises."""
    if not holds_responses(path):
        exists = path.is_file()
        raise problem(
            "E0438",
            "this is no table of responses" if exists else "there is no such file",
            where=str(path),
            help="make one: `reodsl import FILES --model NAME -o theirs.parquet`"
            + ("" if exists else "; a relative path starts at the spec's folder"),
        )
    return read_responses(path)


def kind_of(responses: Responses, of: str, suite: Mapping[str, Any], texts: bool = False) -> str:
    """Return the kind of curve that a model in a table has on a suite: `J` if answers are forced out of its `texts`.

    Raises:
        Problem: the table's responses do not fit the suite (E0438).
    """
    mine = responses.frame.filter(model=of)
    facts = mine.select("benchmark").unique().collect()["benchmark"].to_list()
    cut, end = responses.cut.get(of), suite["grid"][-1]
    lacks = [name for name in suite["benchmarks"] if name not in facts]
    kind = "J" if texts and of in responses.kinds else responses.kinds.get(of, "")
    between = (
        sorted(set(suite["grid"]) - set(responses.budgets))
        if not texts and kind == "J" and suite["forced"]
        else []
    )
    lost = mine.select(pl.col("response").null_count()).collect().item() if texts else 0
    if not kind:
        why, advice = f"there is no model `{of}`", f"it has {', '.join(sorted(responses.kinds))}"
    elif lacks:
        why = f"`{of}` has no response to {', '.join(lacks)}, and has {', '.join(sorted(facts))}"
        advice = "name benchmarks as the suite does (`--benchmark NAME` of `reodsl import`), or leave these out of it"
    elif len(responses.seeds[of]) > 1:
        why = f"`{of}` has responses of {len(responses.seeds[of])} seeds"
        advice = "import those of each seed as a model of its own: `--model NAME` after its files"
    elif cut is not None and cut < end:
        why = f"responses of `{of}` were cut off at {cut} tokens, and the suite goes to {end}"
        advice = f"let the suite end there: `max_tokens = {cut} tokens`, and its grid"
    elif texts and not suite["forced"]:
        why, advice = (
            "the suite forces no answers",
            "give it `forcing` and a `grid`, or leave out `at: forced(…)`",
        )
    elif lost:
        why = f"{lost} responses of `{of}` have no text, out of which answers could be forced"
        advice = "import them with their texts: `--column response=NAME`"
    elif between:
        why = f"`{of}` has no answers forced at {', '.join(map(str, between[:3]))} tokens, where the suite has budgets"
        advice = f"give the suite a grid of these: {', '.join(map(str, responses.budgets))} tokens"
    else:
        return kind
    raise problem("E0438", why, where=str(responses.path), help=advice)
