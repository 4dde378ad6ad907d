"""Commands on the Reasoning Efficiency Gap of results in files: `reg` computes it, `frontier` what it is against."""

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
\b
CURVES is JSON {"<model>": {"<benchmark>": {"budgets": [...], "accuracy": [...]}}}, or a long table (.csv, .parquet)
with the columns model, benchmark, budget, accuracy. A curve is J (answers forced at every budget) unless it says
"kind": "ended", "bare" or "asked" (`reodsl explain evaluate`). JSON may name its base model:
{"base": "<model>", "curves": {...}}; --base is then not needed. So does a frontier file, which has no level of models.
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

    Signed and never clipped: a model better than the frontier has a negative REG. A frontier is of a base model and its
    benchmarks, and scores what was trained from that model on exactly these. REG of anything else is refused, or with
    --approximate marked as such; it is then taken on the benchmarks that both have, or of the means where the models have
    others.

    Args:
        curves: File of curves or of responses.
        frontier: Frontier file, or name of a published frontier; None if the frontier is of `of`.
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
    models, named = read_models(curves, model=curves.stem)
    frontier = require_frontier(curves, frontier, of, picture)
    base = base or tuple(dict.fromkeys(name for names in named.values() for name in names))
    reference = frontier_of(frontier, base)
    with name_source(f"{curves} against {frontier}"):
        edge, faults = _edge(reference, models, base, integration_grid(stop, points), frontier, approximate)
        table = reg_table(edge, models, stop, points, relative_to, questions)
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
            changes = {name: table.nested(name) for name in ("difference", "change_pct")}
            facts |= {"relative_to": relative_to, **changes}
        print_json(facts)
        return
    names = list(next(iter(table.nested().values())))
    lines = [["model", *map(visible, names)]]
    for model in models:
        cells = (mark + _cell(table[model, name], model == relative_to) for name in names)
        lines.append([visible(model), *cells])
    click.echo("\n".join(lay_columns(lines, num_left=1)))
    span = f"in tokens, integrated over {len(table.grid)} budgets from {table.grid[0]} to {table.grid[-1]}"
    click.echo(_TITLES.get(table.kind, f"Not REG, but the gap between `{table.kind}` curves") + " " + span)
    if relative_to is not None:
        left_out = [visible(name) for name in names if table[relative_to, name].change_pct is None]
        more = (
            "; --questions N adds it in percent, if that REG differs significantly from 0"
            if questions is None
            else f", in percent as well, except if that REG may be 0: {', '.join(left_out)}"
            if left_out
            else ", and in percent of it"
        )
        click.echo(f"Next to it is the difference from {visible(relative_to)}{more}")
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
    help="Only these models; a frontier leaves out what it scores.",
)
@click.option("--to", metavar="TOKENS", help="Stop the frontier at this budget.")
@click.option(
    "--base",
    multiple=True,
    metavar="MODEL",
    help="The model that all of these were trained from, as Qwen/Qwen3-4B; more than once for several.",
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

    All models must have been evaluated on the same benchmarks and budgets. The file names their base model, which
    `reodsl reg` compares with that of the models it scores.

    Args:
        files: Files of curves or of responses.
        of: Models that the frontier is made of; empty for all.
        to: Last budget of the frontier, such as `16K`; None for the last budget of the files.
        base: Names of the base models that the models were trained from.
        out: Frontier file to write, or None.
        as_json: Whether to print JSON instead of text.
    """
    target = None if out is None else file_to_write(_json_file(out), files)
    stop = None if to is None else token_count("--to", to)
    models, named = _models(files, stop, of)
    unknown = [name for name in of if name not in models]
    if unknown:
        raise problem(
            "E0114",
            f"there is no model {unknown[0]!r}",
            notes=[f"known models: {', '.join(models)}"],
            help="name one of these",
        )
    chosen = of or tuple(models)
    # A frontier goes back to no model that can be named where one of its models does not.
    complete = all(name in named for name in chosen)
    bases = base or tuple(dict.fromkeys(m for name in chosen for m in named[name]) if complete else ())
    with name_source(", ".join(map(str, files))):
        edge = envelope({name: models[name] for name in chosen}, stop)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_frontier(target, edge.curves, bases)
    if as_json:
        winners = [
            {"benchmark": w.benchmark, "budget": w.budget, "accuracy": w.accuracy, "models": list(w.models)}
            for w in edge.winners
        ]
        kind = common_kind(edge.curves.items())
        print_json(
            {"frontier": curves_data(edge.curves), "kind": kind, "base": list(bases), "winners": winners}
        )
        return
    for benchmark, curve in edge.curves.items():
        counts = Counter(
            model for winner in edge.winners if winner.benchmark == benchmark for model in winner.models
        )
        best = ", ".join(f"{visible(model)} {count}" for model, count in counts.most_common())
        kind = "" if curve.kind == "J" else f" of the kind `{curve.kind}`"
        points = f"{plural(len(curve.budgets), 'budget')}{kind} up to {curve.budgets[-1]} tokens"
        click.echo(f"{visible(benchmark)}: {points}; best at: {best}")
    if out is not None:
        lacks = "" if bases else "; it names no base model, and `reodsl reg` asks for one: add `--base MODEL`"
        click.echo(f"wrote {out}{lacks}")


def _json_file(path: Path) -> Path:
    """Return the file to write, unless its ending says that it holds a table."""
    if path.suffix.lower() in (".csv", ".parquet", ".pq"):
        raise problem(
            "E0118",
            "nothing can be written here: a frontier file is JSON, and this is the name of a table",
            where=str(path),
            help=f"name it {path.with_suffix('.json')}",
        )
    return path


def _models(
    files: tuple[Path, ...], stop: int | None, of: tuple[str, ...]
) -> tuple[dict[str, Curves], dict[str, tuple[str, ...]]]:
    """Return the models of curve files by name, and the base models that the files name.

    Raises:
        Problem: E0114 if two files have the same model.
    """
    models: dict[str, Curves] = {}
    bases: dict[str, tuple[str, ...]] = {}
    for path in files:
        if holds_responses(path):
            responses = read_responses(path)
            points = paper_grid(stop or REG_TO)
            check_end(responses, [name for name in responses.kinds if name in of or not of], points[-1])
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


_ENDED = "* Only responses that ended count (`ended`), so this is not REG, and a difference of AUC_OAA bounds none of REG.\n"
_BETWEEN = "  REG lies between the two numbers of `REG between`.\n"
_FORCED = "  Answers forced at every budget would give REG."


def score_table(
    path: Path,
    frontier: str | None,
    of: Sequence[str],
    base: Sequence[str],
    approximate: bool,
    stop: int | None,
    grid: Sequence[int] | None,
    relative_to: str | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Print the scores of the responses in a table, and draw their curves into `picture`.

    Args:
        path: table of responses.
        frontier: file or published name of a frontier, or None.
        of: models whose best curve is the frontier.
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

    if of and frontier is not None:
        raise problem(
            "E0114",
            "the frontier is named twice, by `--frontier` and by `--of`",
            help="take one: a file or a published one, or the best of models in this table",
        )
    target = None if picture is None else file_to_write(_drawable(picture), [path])
    with name_source(path):
        responses = read_responses(path)
        if grid is None and responses.budgets:
            grid, stop = responses.budgets, stop or min(REG_TO, responses.budgets[-1])
        points = integration_grid(stop, grid)
        check_end(responses, list(responses.kinds), points[-1])
        edge: Curves | Sequence[str] | None = of or None
        faults: tuple[str, ...] = ()
        if frontier is not None:
            models, reference = curves_by_model(responses, points), frontier_of(frontier, base)
            edge, faults = _edge(reference, models, base, points, frontier, approximate)
        rows = score_responses(responses, points, edge, relative_to)
        curves = curves_by_model(responses, points)
    if target is not None:
        best = (
            edge
            if isinstance(edge, Mapping)
            else envelope({name: curves[name] for name in of}).curves
            if of
            else None
        )
        form = target.suffix.lower()
        drawing = draw_picture(curves, best, points[-1], "pdf" if form == ".pdf" else "png")
        with storing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, drawing.svg if form == ".svg" else drawing.image)
    if as_json:
        print_json(
            {
                "kind": next(iter(responses.kinds.values())),
                "l_max": points[-1],
                "grid": list(points),
                "relative_to": relative_to,
                "approximate": list(faults),
                "rows": [_facts(row) for row in rows],
            }
        )
        return
    titles = list(dict.fromkeys(row.scores.benchmark for row in rows))
    # One benchmark is its mean, which has REG even where the frontier is one.
    for title in titles if len(titles) > 2 else titles[:1]:
        benchmark = title if len(titles) > 2 else titles[-1]
        mine = [row for row in rows if row.scores.benchmark == benchmark]
        _print(visible(title), mine, relative_to, "~" if faults else "")
    is_bound = rows[0].auc_oaa is not None
    measure = (
        "REG in tokens, integrated"
        if edge is not None
        else "AUC_OAA"
        if is_bound
        else "Differences of REG in tokens, integrated"
    )
    click.echo(f"{measure} from {points[0]} to {points[-1]} tokens; [low, high]: 95% CI, paired by question")
    if is_bound:
        click.echo(_ENDED + (_BETWEEN if edge is not None else "") + _FORCED)
    for fault in faults:
        click.echo(f"~ approximate: {visible(fault)}")
    if picture is not None:
        click.echo(f"drew {picture}")


def _drawable(path: Path) -> Path:
    """Return the file to draw into; E0118 if its ending names no format of pictures."""
    if path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise problem(
            "E0118",
            "no picture can be written here: its name does not end in .svg, .png or .pdf",
            where=str(path),
            help=f"name it {path.with_suffix('.svg')}",
        )
    return path


def _edge(
    reference: ReferenceFrontier,
    models: Mapping[str, Curves],
    base: Sequence[str],
    points: Sequence[int],
    name: str,
    approximate: bool,
) -> tuple[Curves, tuple[str, ...]]:
    """Return the curves of the frontier `name`, and why it does not fit the models if `approximate` allows that."""
    mismatches = misfits(reference, models, base, points, name)
    if mismatches and not approximate:
        raise Problem(*mismatches)
    edge = select_benchmarks(reference.curves, models.values()) if mismatches else reference.curves
    return edge, tuple(diagnostic.message for diagnostic in mismatches)


def _print(title: str, rows: Sequence[ResponseScores], relative_to: str | None, mark: str) -> None:
    """Print the rows of a benchmark as a table."""
    columns: dict[str, list[str]] = {title: [visible(row.scores.model) for row in rows]}
    against = "" if relative_to is None else f"- {visible(relative_to)}"
    for head, cells in (
        ("REG", [row.scores.reg for row in rows]),
        (against, [row.scores.difference for row in rows]),
        ("AUC_OAA*", [row.auc_oaa for row in rows]),
        (against + " ", [row.auc_oaa_change for row in rows]),
    ):
        if any(cells):
            digits = 3 if rows[0].auc_oaa is not None else 1
            columns[head] = [
                "" if cell is None or (head.strip() == against and row.scores.model == relative_to)
                else (mark if head == "REG" else "") + _words(cell, digits)
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
    lines = zip(*([head, *cells] for head, cells in columns.items()), strict=True)
    click.echo("\n".join([*lay_columns(lines, num_left=1), ""]))


def _cell(row: RegRow, is_baseline: bool) -> str:
    """Return REG, or the bounds between which it lies, with its change from the baseline."""
    low, high = row.between or (0.0, 0.0)
    value = f"[{low:.1f}, {high:.1f}]" if row.reg is None else f"{row.reg:.1f}"
    if row.difference is None or is_baseline:
        return value
    percent = "" if row.change_pct is None else f" {row.change_pct:+.0f}%"
    return f"{value} {row.difference:+.1f}{percent}"


def _words(ci: Interval, digits: int) -> str:
    """Return an estimate with its interval: `1.2 [0.9, 1.4]`."""
    ends = "" if ci.low is None or ci.high is None else f" [{ci.low:.{digits}f}, {ci.high:.{digits}f}]"
    return f"{ci.value:.{digits}f}{ends}"


def _facts(row: ResponseScores) -> dict[str, Any]:
    """Return a scored row as JSON data."""

    def three(ci: Interval | None) -> dict[str, float | None] | None:
        return None if ci is None else {"value": ci.value, "low": ci.low, "high": ci.high}

    scores = row.scores
    return {
        "model": scores.model,
        "benchmark": scores.benchmark,
        "accuracy": three(scores.accuracy),
        "length": three(scores.length),
        "reg": three(scores.reg),
        "difference": three(scores.difference),
        "reg_at_least": three(row.low),
        "reg_at_most": three(row.high),
        "auc_oaa": three(row.auc_oaa),
        "auc_oaa_change": three(row.auc_oaa_change),
        "accuracy_change": three(scores.accuracy_change),
        "length_change": three(scores.length_change),
    }


def require_frontier(path: Path, frontier: str | None, of: Sequence[str], picture: Path | None) -> str:
    """Return the frontier that curves are scored against.

    Raises:
        Problem: E0114 without a frontier, or with options for a table of responses.
    """
    if frontier is None or of or picture is not None:
        raise problem(
            "E0114",
            "`--of` and `--picture` take a table of responses, and these are curves"
            if of or picture
            else "curves are scored against a frontier, and none is named",
            where=str(path),
            help="add `--frontier NAME_OR_FILE`; `reodsl frontier` makes one of curves",
        )
    return frontier
