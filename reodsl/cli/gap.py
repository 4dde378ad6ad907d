"""Commands on the Reasoning Efficiency Gap (REG) of results in files: `reg` computes it, `frontier` makes a frontier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from reodsl.cli.options import PathOption, frontier_of, name_source, token_count, token_grid
from reodsl.cli.output import file_to_write, lay_columns, print_json
from reodsl.diagnostics import Problem, plural, problem
from reodsl.diagnostics.render import visible
from reodsl.numbers.curve_files import curves_data, read_models, write_frontier
from reodsl.numbers.curves import Curves, ReferenceFrontier, common_kind, envelope, misfits, select_benchmarks
from reodsl.numbers.intervals import Interval
from reodsl.numbers.reg import REG_TO, RegRow, integration_grid, paper_grid, reg_table
from reodsl.numbers.responses import (
    ResponseScores,
    check_end,
    curves_by_model,
    holds_responses,
    read_responses,
    score_responses,
)
from reodsl.store.files import storing, write_atomic

_TITLES = {
    "J": "REG",
    "ended": "Only responses that ended count (`ended`): the two numbers that REG lies between,",
}


@click.command(
    short_help="Compute the Reasoning Efficiency Gap of models from their curves.",
    epilog="""\b
Examples:
  reodsl reg curves.json --frontier std.paper.qwen3_4b --base Qwen/Qwen3-4B
  reodsl reg results.csv --frontier edge.json --base Qwen/Qwen3-4B --relative-to vanilla --questions 30
  reodsl reg results.parquet --frontier edge.json --base mine --grid 0,4,8,16,32,64,128 --json
  reodsl reg theirs.parquet --relative-to base --picture curves.svg
  reodsl reg two_of_four.json --frontier std.paper.qwen3_4b --base Qwen/Qwen3-4B --approximate

CURVES is JSON {"<model>": {"<benchmark>": {"budgets": [...], "accuracy": [...]}}}, or a long table (.csv, .parquet)
with the columns model, benchmark, budget, accuracy. A curve is J (answers forced at every budget) unless it says
"kind": "ended", "bare" or "asked" (`reodsl explain evaluate`). JSON may name its base model:
{"base": "<model>", "curves": {...}}; --base is then not needed. A frontier file is the same without the level of models.
A table of responses (reodsl import) gives intervals, paired by question, and differences without any frontier.
""",
)
@click.argument("curves", type=click.Path(path_type=Path))
@click.option("--frontier", metavar="NAME_OR_FILE", help="A frontier file, or a published one by name.")
@click.option(
    "--of",
    "of",
    multiple=True,
    metavar="MODEL",
    help="The frontier is the best of these models of a table of responses.",
)
@click.option(
    "--base",
    multiple=True,
    metavar="MODEL",
    help="The model that the models of CURVES were trained from, as Qwen/Qwen3-4B; more than once for several.",
)
@click.option(
    "--approximate",
    is_flag=True,
    help="Compute REG although the frontier is of another model, of other benchmarks, or a curve has too few points.",
)
@click.option("--l-max", metavar="TOKENS", help="Integrate up to here. Default: 16K, or the grid's end.")
@click.option("--grid", metavar="TOKENS,...", help="Integration points. Default: the paper's grid.")
@click.option("--relative-to", metavar="MODEL", help="Also print each model's difference from this one.")
@click.option(
    "--questions",
    type=click.IntRange(min=2),
    help="The number of questions in the smallest benchmark. "
    "Adds differences in percent if the baseline's REG differs significantly from 0.",
)
@click.option(
    "--picture", type=PathOption(), help="Draw the curves of a table of responses here, .svg, .png or .pdf."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print REG per model and benchmark, and the mean, as JSON."
)
def reg_command(
    curves: Path,
    frontier: str | None,
    of: tuple[str, ...],
    base: tuple[str, ...],
    approximate: bool,
    l_max: str | None,
    grid: str | None,
    relative_to: str | None,
    questions: int | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Compute the area between a frontier and each model's budget-accuracy curve, in tokens: lower is better.

    The area is signed and never clipped: a model better than the frontier has a negative REG. A frontier belongs to a base
    model and benchmarks, and scores models trained from that model, on exactly these benchmarks. REG of other models is
    refused, or with --approximate marked as approximate: it is then computed on the models' benchmarks if the frontier has
    all of them, else on the means over benchmarks.

    Args:
        curves: File of curves or of responses.
        frontier: Frontier file, or name of a published frontier; None if the models `of` make the frontier.
        of: Models of a table of responses whose best curve is the frontier.
        base: Names of the base models that the scored models were trained from.
        approximate: Whether a frontier of another model or of other benchmarks is allowed.
        l_max: Last budget of the integration, such as `16K`; None for the default.
        grid: Budgets of the integration, such as `0,64,1K`; None for the default.
        relative_to: Model that differences are relative to, or None.
        questions: Number of questions of the smallest benchmark, for differences in percent; None to leave them out.
        picture: File to draw the curves into, or None.
        as_json: Whether to print JSON instead of text.
    """
    stop = None if l_max is None else token_count("--l-max", l_max)
    points = None if grid is None else token_grid("--grid", grid)
    if holds_responses(curves):
        score_table(curves, frontier, of, base, approximate, stop, points, relative_to, picture, as_json)
        return
    models, bases_by_model = read_models(curves, model=curves.stem)
    frontier = require_frontier(curves, frontier, of, picture)
    base = base or tuple(dict.fromkeys(name for names in bases_by_model.values() for name in names))
    reference = frontier_of(frontier, base)
    with name_source(f"{curves} against {frontier}"):
        frontier_curves, faults = _fit_frontier(
            reference, models, base, integration_grid(stop, points), frontier, approximate
        )
        table = reg_table(frontier_curves, models, stop, points, relative_to, questions)
    mark = "~" if faults else ""
    if as_json:
        facts: dict[str, object] = {
            "l_max": table.grid[-1],
            "grid": list(table.grid),
            "kind": table.kind,
            "reg": table.nested(),
            "base": list(reference.base),
            "approximate": list(faults),
        }
        if table.kind == "ended":
            facts["between"] = table.nested("between")
        if relative_to is not None:
            change_columns = {name: table.nested(name) for name in ("difference", "change_pct")}
            facts |= {"relative_to": relative_to, **change_columns}
        print_json(facts)
        return
    names = list(next(iter(table.nested().values())))
    rows = [["model", *map(visible, names)]]
    # The last name is that of the mean. REG with only bounds counts as the middle between them.
    means = ((model, table[model, names[-1]]) for model in models)
    sizes = {model: row.reg if row.reg is not None else sum(row.between or ()) / 2 for model, row in means}
    for model in sorted(models, key=sizes.__getitem__):
        cells = (mark + _format_reg(table[model, name], model == relative_to) for name in names)
        rows.append([visible(model), *cells])
    click.echo("\n".join(lay_columns(rows, num_left=1)))
    span = f"in tokens, integrated over {len(table.grid)} budgets from {table.grid[0]} to {table.grid[-1]}"
    click.echo(_TITLES.get(table.kind, f"Not REG, but the gap between `{table.kind}` curves") + " " + span)
    if relative_to is not None:
        without_percent = [visible(name) for name in names if table[relative_to, name].change_pct is None]
        percent_note = (
            "; --questions N adds percent, if that REG differs significantly from 0"
            if questions is None
            else f", also in percent, except where that REG may be 0: {', '.join(without_percent)}"
            if without_percent
            else ", also in percent"
        )
        click.echo(f"After each REG: its difference from the REG of {visible(relative_to)}{percent_note}")
    for fault in faults:
        click.echo(f"~ approximate: {visible(fault)}")


@click.command(
    epilog="""\b
Examples:
  reodsl frontier base.json budget_4k.json --base Qwen/Qwen3-4B -o edge.json
  reodsl frontier results.csv --of base --of vanilla --to 16K --base Qwen/Qwen3-4B -o edge.json
  reodsl frontier results.parquet --json
"""
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="CURVES...")
@click.option(
    "--of",
    "of",
    multiple=True,
    metavar="MODEL",
    help="Only these models. Leave out the models that the frontier will score.",
)
@click.option("--to", metavar="TOKENS", help="Stop the frontier at this budget.")
@click.option(
    "--base",
    multiple=True,
    metavar="MODEL",
    help="The model that all models of CURVES were trained from, as Qwen/Qwen3-4B; more than once for several.",
)
@click.option("--out", "-o", type=PathOption(), help="Write the frontier file here.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the frontier, and which model reaches it where, as JSON."
)
def frontier_command(
    files: tuple[Path, ...],
    of: tuple[str, ...],
    to: str | None,
    base: tuple[str, ...],
    out: Path | None,
    as_json: bool,
) -> None:
    """Compute the efficiency frontier of the models in curve files.

    All models must have been evaluated on the same benchmarks and budgets. The frontier file names their base model;
    `reodsl reg` compares it with the base model of the models that it scores.

    Args:
        files: Files of curves or of responses.
        of: Models that the frontier is made of; empty for all.
        to: Last budget of the frontier, such as `16K`; None for the last budget of the files.
        base: Names of the base models that the models were trained from.
        out: Frontier file to write, or None.
        as_json: Whether to print JSON instead of text.
    """
    if out is not None and out.suffix.lower() in (".csv", ".parquet", ".pq"):
        raise problem(
            "E0118",
            "a frontier file is JSON, and this is the name of a table",
            where=str(out),
            help=f"name it {out.with_suffix('.json')}",
        )
    target = None if out is None else file_to_write(out, files)
    stop = None if to is None else token_count("--to", to)
    models, bases_by_model = _read_models(files, stop, of)
    unknown = [name for name in of if name not in models]
    if unknown:
        raise problem(
            "E0114",
            f"there is no model {unknown[0]!r}",
            notes=[f"known models: {', '.join(models)}"],
            help="name one of these",
        )
    chosen = of or tuple(models)
    # If the base of one model is unknown, the base of the frontier is unknown as well.
    has_all = all(name in bases_by_model for name in chosen)
    bases = base or tuple(dict.fromkeys(b for m in chosen for b in bases_by_model[m]) if has_all else ())
    with name_source(", ".join(map(str, files))):
        frontier = envelope({name: models[name] for name in chosen}, stop)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_frontier(target, frontier.curves, bases)
    if as_json:
        winners = [
            {"benchmark": w.benchmark, "budget": w.budget, "accuracy": w.accuracy, "models": list(w.models)}
            for w in frontier.winners
        ]
        kind = common_kind(frontier.curves.items())
        print_json(
            {"frontier": curves_data(frontier.curves), "kind": kind, "base": list(bases), "winners": winners}
        )
        return
    for benchmark, curve in frontier.curves.items():
        counts = Counter(
            model for winner in frontier.winners if winner.benchmark == benchmark for model in winner.models
        )
        best = ", ".join(f"{visible(model)} {count}" for model, count in counts.most_common())
        kind = "" if curve.kind == "J" else f" of the kind `{curve.kind}`"
        points = f"{plural(len(curve.budgets), 'budget')}{kind} up to {curve.budgets[-1]} tokens"
        click.echo(f"{visible(benchmark)}: {points}; best at: {best}")
    if out is not None:
        note = "" if bases else "; it names no base model, and `reodsl reg` asks for one: add `--base MODEL`"
        click.echo(f"wrote {out}{note}")


def _read_models(
    files: tuple[Path, ...], stop: int | None, selected: tuple[str, ...]
) -> tuple[dict[str, Curves], dict[str, tuple[str, ...]]]:
    """Read the curves of models from files.

    Args:
        files: Files of curves, or tables of responses, from which curves are computed.
        stop: Last budget of computed curves, in tokens; None for the default.
        selected: Names of models that the frontier is made of; empty for all.

    Returns:
        (curves by model; names of the base models by model, only for models whose file names a base model).

    Raises:
        Problem: E0114 if two files have the same model.
    """
    models: dict[str, Curves] = {}
    bases: dict[str, tuple[str, ...]] = {}
    for path in files:
        if holds_responses(path):
            responses = read_responses(path)
            points = paper_grid(stop or REG_TO)
            check_end(responses, [m for m in responses.kinds if m in selected or not selected], points[-1])
            curves_of = curves_by_model(responses, points)
        else:
            curves_of, base = read_models(path, model=path.stem)
            bases |= base
        for name, curves in curves_of.items():
            if name in models:
                raise problem(
                    "E0114",
                    f"the model {name!r} is in more than one file",
                    where=str(path),
                    help="give each model once",
                )
            models[name] = curves
    return models, bases


_ENDED = "* Only responses that ended count (`ended`): AUC_OAA is not REG, and its differences bound no difference of REG.\n"
_BETWEEN = "  REG lies between the two numbers of `REG between`.\n"
_FORCED = "  Answers forced at every budget would give REG."


def score_table(
    path: Path,
    frontier: str | None,
    frontier_models: Sequence[str],
    base: Sequence[str],
    approximate: bool,
    stop: int | None,
    grid: Sequence[int] | None,
    relative_to: str | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Score the models of a table of responses, print their scores, and draw their curves into `picture`.

    Args:
        path: table of responses.
        frontier: file or published name of a frontier, or None.
        frontier_models: models whose best curve is the frontier; empty if `frontier` is given, or for no frontier.
        base: base models of the scored models.
        approximate: whether a frontier of another model or other benchmarks is allowed.
        stop: last budget of the integration, in tokens; None for the default.
        grid: budgets of the integration, in tokens; None for the table's own.
        relative_to: model that differences are relative to.
        picture: file for the curves (.svg, .png or .pdf), or None.
        as_json: whether to print JSON.

    Raises:
        Problem: E0114, E0118 or E0435 if nothing sound can be printed.
    """
    from reodsl.report.curve_chart import draw_picture

    if frontier_models and frontier is not None:
        raise problem(
            "E0114",
            "the frontier is named twice, by `--frontier` and by `--of`",
            help="leave out `--frontier`, or leave out `--of`",
        )
    if picture is not None and picture.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise problem(
            "E0118",
            "the name of a picture ends in .svg, .png or .pdf",
            where=str(picture),
            help=f"name it {picture.with_suffix('.svg')}",
        )
    target = None if picture is None else file_to_write(picture, [path])
    with name_source(path):
        responses = read_responses(path)
        if grid is None and responses.budgets:
            grid, stop = responses.budgets, stop or min(REG_TO, responses.budgets[-1])
        points = integration_grid(stop, grid)
        check_end(responses, list(responses.kinds), points[-1])
        frontier_curves: Curves | Sequence[str] | None = frontier_models or None
        faults: tuple[str, ...] = ()
        if frontier is not None:
            models, reference = curves_by_model(responses, points), frontier_of(frontier, base)
            frontier_curves, faults = _fit_frontier(reference, models, base, points, frontier, approximate)
        rows = score_responses(responses, points, frontier_curves, relative_to)
        curves = curves_by_model(responses, points)
    ranked = _rank_models(rows)
    if target is not None:
        drawn_frontier = (
            frontier_curves
            if isinstance(frontier_curves, Mapping)
            else envelope({name: curves[name] for name in frontier_models}).curves
            if frontier_models
            else None
        )
        suffix = target.suffix.lower()
        drawing = draw_picture(
            curves, drawn_frontier, points[-1], ranked, "pdf" if suffix == ".pdf" else "png"
        )
        with storing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, drawing.svg if suffix == ".svg" else drawing.image)
    if as_json:
        print_json(
            {
                "kind": next(iter(responses.kinds.values())),
                "l_max": points[-1],
                "grid": list(points),
                "relative_to": relative_to,
                "approximate": list(faults),
                "rows": [_describe_scores(row) for row in rows],
            }
        )
        return
    benchmarks = list(dict.fromkeys(row.scores.benchmark for row in rows))
    # The last entry is the mean. A single benchmark prints the mean's rows, which have REG even with a frontier of means.
    for heading in benchmarks if len(benchmarks) > 2 else benchmarks[:1]:
        benchmark = heading if len(benchmarks) > 2 else benchmarks[-1]
        benchmark_rows = [row for row in rows if row.scores.benchmark == benchmark]
        benchmark_rows.sort(key=lambda row: ranked.index(row.scores.model))
        _print_scores(visible(heading), benchmark_rows, relative_to, "~" if faults else "")
    is_bound = rows[0].auc_oaa is not None
    measure = (
        "REG in tokens, integrated"
        if frontier_curves is not None
        else "AUC_OAA"
        if is_bound
        else "Differences of REG in tokens, integrated"
    )
    click.echo(f"{measure} from {points[0]} to {points[-1]} tokens; [low, high]: 95% CI, paired by question")
    if is_bound:
        click.echo(_ENDED + (_BETWEEN if frontier_curves is not None else "") + _FORCED)
    for fault in faults:
        click.echo(f"~ approximate: {visible(fault)}")
    if picture is not None:
        click.echo(f"drew {picture}")


def _fit_frontier(
    reference: ReferenceFrontier,
    models: Mapping[str, Curves],
    base: Sequence[str],
    budgets: Sequence[int],
    name: str,
    approximate: bool,
) -> tuple[Curves, tuple[str, ...]]:
    """Return the curves of a frontier, after checking that the frontier fits the models that it scores.

    It fits if it has the same base model and benchmarks, and enough points. If it does not fit and `approximate` is true,
    its curves are reduced to the benchmarks of the models, or to the mean over benchmarks.

    Args:
        reference: The frontier.
        models: Curves of the scored models by name.
        base: Names of the base models of the scored models.
        budgets: Budgets of the integration, in tokens.
        name: File or published name of the frontier, for messages.
        approximate: Whether a frontier of another base model or other benchmarks is allowed.

    Returns:
        (curves of the frontier, reasons why it does not fit the models, which are empty if it fits).

    Raises:
        Problem: with these reasons, if not `approximate`.
    """
    mismatches = misfits(reference, models, base, budgets, name)
    if mismatches and not approximate:
        raise Problem(*mismatches)
    curves = select_benchmarks(reference.curves, models.values()) if mismatches else reference.curves
    return curves, tuple(diagnostic.message for diagnostic in mismatches)


def _rank_models(rows: Sequence[ResponseScores]) -> list[str]:
    """Return the names of the models, best first: by REG or its difference, else by AUC_OAA or accuracy, on the mean."""
    # The last row of a model is that of the mean over benchmarks.
    means = {row.scores.model: row for row in rows}
    lower = {model: row.scores.reg or row.scores.difference for model, row in means.items()}
    higher = {model: row.auc_oaa or row.scores.accuracy for model, row in means.items()}
    return sorted(means, key=lambda model: low.value if (low := lower[model]) else -higher[model].value)


def _print_scores(title: str, rows: Sequence[ResponseScores], relative_to: str | None, mark: str) -> None:
    """Print the scores of a benchmark as a table with a row for each model.

    Args:
        title: Heading of the first column, such as the benchmark's name.
        rows: Scores of the models.
        relative_to: Model that differences are relative to, or None.
        mark: Text before each REG, `~` for an approximate REG, else empty.
    """
    columns: dict[str, list[str]] = {title: [visible(row.scores.model) for row in rows]}
    difference_heading = "" if relative_to is None else f"- {visible(relative_to)}"
    for heading, cells in (
        ("REG", [row.scores.reg for row in rows]),
        (difference_heading, [row.scores.difference for row in rows]),
        ("AUC_OAA*", [row.auc_oaa for row in rows]),
        (difference_heading + " ", [row.auc_oaa_change for row in rows]),
    ):
        if any(cells):
            digits = 3 if rows[0].auc_oaa is not None else 1
            columns[heading] = [
                "" if cell is None or (heading.strip() == difference_heading and row.scores.model == relative_to)
                else (mark if heading == "REG" else "") + _format_interval(cell, digits)
                for row, cell in zip(rows, cells, strict=True)
            ]  # fmt: skip
    if any(row.low for row in rows):
        columns["REG between*"] = [
            f"{mark}{row.low.value:.1f} and {row.high.value:.1f} [{row.low.low or row.low.value:.1f},"
            f" {row.high.high or row.high.value:.1f}]"
            for row in rows
            if row.low is not None and row.high is not None
        ]
    columns["acc %"] = [f"{100 * row.scores.accuracy.value:.1f}" for row in rows]
    columns["length"] = [f"{row.scores.length.value:.1f}" for row in rows]
    lines = zip(*([heading, *cells] for heading, cells in columns.items()), strict=True)
    click.echo("\n".join([*lay_columns(lines, num_left=1), ""]))


def _format_reg(row: RegRow, is_baseline: bool) -> str:
    """Return REG as text, followed by its difference from the baseline in tokens and percent: `12.3 -4.5 -27%`.

    If only bounds of REG are known, they are the text: `[10.0, 14.0]`. Unknown differences are left out.

    Args:
        row: REG of a model on a benchmark, in tokens.
        is_baseline: Whether the model is the baseline, which gets no difference.
    """
    low, high = row.between or (0.0, 0.0)
    value = f"[{low:.1f}, {high:.1f}]" if row.reg is None else f"{row.reg:.1f}"
    if row.difference is None or is_baseline:
        return value
    percent = "" if row.change_pct is None else f" {row.change_pct:+.0f}%"
    return f"{value} {row.difference:+.1f}{percent}"


def _format_interval(ci: Interval, digits: int) -> str:
    """Return an estimate with its 95% confidence interval as text, `1.2 [0.9, 1.4]`, or the estimate alone if it has none.

    Args:
        ci: The estimate with its interval.
        digits: Number of decimals.
    """
    bounds = "" if ci.low is None or ci.high is None else f" [{ci.low:.{digits}f}, {ci.high:.{digits}f}]"
    return f"{ci.value:.{digits}f}{bounds}"


def _describe_scores(row: ResponseScores) -> dict[str, Any]:
    """Return the scores of a model on a benchmark as JSON data.

    Each score is None if it was not computed, or has `value` and the bounds `low` and `high` of its 95% interval.
    """

    def interval_json(ci: Interval | None) -> dict[str, float | None] | None:
        return None if ci is None else {"value": ci.value, "low": ci.low, "high": ci.high}

    scores = row.scores
    return {
        "model": scores.model,
        "benchmark": scores.benchmark,
        "accuracy": interval_json(scores.accuracy),
        "length": interval_json(scores.length),
        "reg": interval_json(scores.reg),
        "difference": interval_json(scores.difference),
        "reg_at_least": interval_json(row.low),
        "reg_at_most": interval_json(row.high),
        "auc_oaa": interval_json(row.auc_oaa),
        "auc_oaa_change": interval_json(row.auc_oaa_change),
        "accuracy_change": interval_json(scores.accuracy_change),
        "length_change": interval_json(scores.length_change),
    }


def require_frontier(
    path: Path, frontier: str | None, frontier_models: Sequence[str], picture: Path | None
) -> str:
    """Check the options for scoring a file of curves, and return the value of `--frontier`, which must not be missing.

    Args:
        path: The file of curves, for the error message.
        frontier: Value of `--frontier`, or None.
        frontier_models: Values of `--of`, which only a table of responses allows.
        picture: Value of `--picture`, which only a table of responses allows, or None.

    Raises:
        Problem: E0114 without a frontier, or with an option for tables of responses.
    """
    if frontier is None or frontier_models or picture is not None:
        raise problem(
            "E0114",
            "`--of` and `--picture` need a table of responses, and this file has curves"
            if frontier_models or picture
            else "curves are scored against a frontier, and `--frontier` is missing",
            where=str(path),
            help="add `--frontier NAME_OR_FILE`; `reodsl frontier` makes one of curves",
        )
    return frontier
