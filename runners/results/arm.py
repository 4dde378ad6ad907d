"""Imported responses as an arm: write the files of an evaluation from a table, and check that the table fits a suite."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.graph.job import Job
from reodsl.graph.payload import results_work
from reodsl.ir.study import Study
from reodsl.ir.training import FromResults
from reodsl.numbers.responses import COLUMNS, Responses, missing_columns, read_responses

KEYS = ("benchmark", "question", "sample")


def results(job: Job) -> None:
    """Write the files of an evaluation from a table of imported responses, without generating a response.

    If the table has forced answers (kind `J`) and the suite forces answers, the table's verdicts at the budgets of the
    suite's grid are written. Otherwise the verdict on the response counts at each budget; if the suite forces answers, a
    response longer than the budget counts as wrong there.

    Args:
        job: A `results` task: its table, suite and output folder.

    Raises:
        Problem: E0438 if the responses do not fit the suite.
    """
    # Imported here, as the checks before a run do not need the modules of evaluations.
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
    kind_label = {} if kind == "J" else {"kind": kind}
    write_json(job.out / "curves.json", {name: {**curve, **kind_label} for name, curve in curve_of.items()})
    summaries = summary(job.out / "samples.parquet", job.out / "forced.parquet", suite["benchmarks"])
    write_json(job.out / "summary.json", summaries)


def _cast(schema: Mapping[str, Any]) -> list[pl.Expr]:
    """Return expressions that select the columns of a schema with their types."""
    return [pl.col(name).cast(kind) for name, kind in schema.items()]


def check_arms(study: Study, folder: Path) -> Iterator[tuple[str, Diagnostic]]:
    """Yield mistakes in the tables of imported results of a study, each with the name of the arm.

    If no table has a mistake, arms with a forcing text are compared. E0435 is yielded if a table lacks forced answers
    (kind `ended`) while another arm has them, or while the study computes REG, which needs them.

    Args:
        study: The study.
        folder: The spec's folder, where relative paths start.
    """
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
                # A table that cannot be opened is reported for its first arm only.
                tables[source.path] = None
                tables[source.path] = open_table(folder / source.path)
            table = tables[source.path]
            if table is None:
                continue
            suite = results_work(arm.suite, source)["suite"]
            kind = kind_of(table, source.of, suite, with_texts=source.at is not None)
            kinds |= {arm.name: kind} if arm.suite.forcing is not None else {}
        except Problem as caught:
            faults += [(arm.name, diagnostic) for diagnostic in caught.diagnostics]
    kinds |= {frontier.name: "J" for frontier in study.frontiers if frontier.published}
    unforced = [name for name, kind in kinds.items() if kind != "J"]
    forced = [name for name, kind in kinds.items() if kind == "J"]
    if unforced and not faults and (forced or study.score is not None):
        reason = f"`{forced[0]}` has them (`J`)" if forced else "REG needs them"
        fault = error(
            "E0435",
            f"`{unforced[0]}` has no forced answers (`ended`), and {reason}",
            help="force answers from its responses, `at: forced(MODEL)`, or import forced answers; or give all arms a suite"
            " without `grid` and `forcing`, for accuracy and length only; or compute bounds of REG: `reodsl reg TABLE"
            " --frontier …`",
        )
        faults = [(unforced[0], fault)]
    yield from faults


def open_table(path: Path) -> Responses:
    """Open a file as a table of responses, and return the table.

    Raises:
        Problem: E0438 if the file is missing or no table of responses, or a mistake in the table.
    """
    if missing := missing_columns(path):
        exists = path.is_file()
        lacks = (
            f"lacks the columns {', '.join(missing)}"
            if len(missing) < len(COLUMNS)
            else "is no Parquet file of responses"
        )
        make = "`reodsl import {} --model NAME -o {}.parquet`"
        raise problem(
            "E0438",
            f"this is no table of responses: it {lacks}" if exists else "there is no such file",
            where=str(path),
            help=f"make a table: {make.format('FILES', 'theirs')}; a relative path starts at the spec's folder"
            if not exists
            else f"make a table of it, and name that here: {make.format(shlex.quote(str(path)), 'responses')}, with "
            "`--column NAME=PATH` for a value that the file has under another name",
        )
    return read_responses(path)


def kind_of(responses: Responses, model: str, suite: Mapping[str, Any], with_texts: bool = False) -> str:
    """Check that a model's responses in a table fit a suite, and return the kind of their curve.

    Args:
        responses: The table.
        model: Name of the model in the table.
        suite: Benchmarks, grid of budgets in tokens, and whether answers are forced.
        with_texts: Whether the run will force answers from the texts of the responses; the kind is then `J`.

    Returns:
        `J` if answers are forced at budgets, or `ended` if only responses that ended count.

    Raises:
        Problem: E0438 if the responses do not fit the suite.
    """
    rows = responses.frame.filter(model=model)
    benchmarks = rows.select("benchmark").unique().collect()["benchmark"].to_list()
    cut, end = responses.cut.get(model), suite["grid"][-1]
    missing_benchmarks = [name for name in suite["benchmarks"] if name not in benchmarks]
    kind = "J" if with_texts and model in responses.kinds else responses.kinds.get(model, "")
    missing = (
        sorted(set(suite["grid"]) - set(responses.budgets))
        if not with_texts and kind == "J" and suite["forced"]
        else []
    )
    textless = rows.select(pl.col("response").null_count()).collect().item() if with_texts else 0
    if not kind:
        reason, advice = f"there is no model `{model}`", f"it has {', '.join(sorted(responses.kinds))}"
    elif missing_benchmarks:
        reason = f"`{model}` has no response to {', '.join(missing_benchmarks)}, and has {', '.join(sorted(benchmarks))}"
        advice = "name benchmarks as in the suite (`--benchmark NAME` of `reodsl import`), or remove them from the suite"
    elif len(responses.seeds[model]) > 1:
        reason = f"`{model}` has responses of {len(responses.seeds[model])} seeds"
        advice = "import the responses of each seed as a model: `--model NAME` after the seed's files"
    elif cut is not None and cut < end:
        reason = f"responses of `{model}` were cut off at {cut} tokens, and the suite goes to {end}"
        advice = f"write `max_tokens = {cut} tokens` in the suite, and end its grid there"
    elif with_texts and not suite["forced"]:
        reason, advice = (
            "the suite forces no answers",
            "give the suite `forcing` and a `grid`, or leave out `at: forced(…)`",
        )
    elif textless:
        reason = f"{textless} responses of `{model}` have no text, and forced answers need it"
        advice = "import them with their texts: `--column response=NAME`"
    elif missing:
        reason = f"`{model}` has no answers forced at {', '.join(map(str, missing[:3]))} tokens, where the suite has budgets"
        advice = f"write a grid of these budgets: {', '.join(map(str, responses.budgets))} tokens"
    else:
        return kind
    raise problem("E0438", reason, where=str(responses.path), help=advice)
