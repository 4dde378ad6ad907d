"""`reodsl reg CURVES`: the Reasoning Efficiency Gap of models against a frontier, from curves in files."""

from __future__ import annotations

from pathlib import Path

import click

from reodsl.cli.options import Place, frontier_of, name_place, token_count, token_grid
from reodsl.cli.output import print_json
from reodsl.cli.scored import require_frontier, score_table
from reodsl.diagnostics import Problem
from reodsl.diagnostics.excerpt import visible

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
"kind": "ended", "bare" or "asked" (docs/IMPORT.md). JSON may name its base model:
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
    help="The model that those of CURVES were trained from, as Qwen/Qwen3-4B; more than once for several.",
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
    help="How many questions a benchmark has, the fewest where they differ. "
    "Differences are then in percent too, where that REG is apart from 0.",
)
@click.option(
    "--picture", type=Place(), help="Draw the curves of a table of responses here, .svg, .png or .pdf."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print REG per model and benchmark, and the mean, as JSON."
)
def command(
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
    """
    from reodsl.numbers.curve_files import read_models
    from reodsl.numbers.curves import misfits, select_benchmarks
    from reodsl.numbers.reg import integration_grid, reg_table
    from reodsl.numbers.responses import holds_responses

    stop = None if l_max is None else token_count("--l-max", l_max)
    points = None if grid is None else token_grid("--grid", grid)
    if holds_responses(curves):
        score_table(curves, frontier, of, base, approximate, stop, points, relative_to, picture, as_json)
        return
    models, named = read_models(curves, model=curves.stem)
    frontier = require_frontier(curves, frontier, of, picture)
    base = base or tuple(dict.fromkeys(name for each in named.values() for name in each))
    reference = frontier_of(frontier, base)
    with name_place(f"{curves} against {frontier}"):
        faults = misfits(reference, models, base, integration_grid(stop, points), frontier)
        if faults and not approximate:
            raise Problem(*faults)
        edge = select_benchmarks(reference.curves, models.values()) if faults else reference.curves
        table = reg_table(edge, models, stop, points, relative_to, questions)
    mark = "~" if faults else ""
    if as_json:
        facts: dict[str, object] = {
            "l_max": table.grid[-1],
            "grid": list(table.grid),
            "kind": table.kind,
            "reg": table.nested(),
            "base": list(reference.base),
            "approximate": [fault.message for fault in faults],
        }
        if table.kind == "ended":
            facts["between"] = {
                model: {row.benchmark: row.between for row in table.rows if row.model == model}
                for model in models
            }
        if relative_to is not None:
            differences: dict[str, dict[str, float | None]] = {}
            changes: dict[str, dict[str, float | None]] = {}
            for row in table.rows:
                differences.setdefault(row.model, {})[row.benchmark] = row.difference
                changes.setdefault(row.model, {})[row.benchmark] = row.change_pct
            facts |= {"relative_to": relative_to, "difference": differences, "change_pct": changes}
        print_json(facts)
        return
    columns = list(next(iter(table.nested().values())))
    name_width = max(len("model"), *(len(visible(model)) for model in models))
    width = 14 if relative_to is None and table.kind != "ended" else 24
    click.echo("  ".join([f"{'model':<{name_width}}", *(f"{visible(name):>{width}}" for name in columns)]))
    for model in models:
        cells = []
        for name in columns:
            row = table[model, name]
            change = "" if row.difference is None or model == relative_to else f" {row.difference:+.1f}"
            percent = "" if not change or row.change_pct is None else f" {row.change_pct:+.0f}%"
            low, high = row.between or (0.0, 0.0)
            value = f"[{low:.1f}, {high:.1f}]" if row.reg is None else f"{row.reg:.1f}"
            cells.append(f"{f'{mark}{value}{change}{percent}':>{width}}")
        click.echo("  ".join([f"{visible(model):<{name_width}}", *cells]))
    span = f"in tokens, integrated over {len(table.grid)} budgets from {table.grid[0]} to {table.grid[-1]}"
    click.echo(_TITLES.get(table.kind, f"Not REG, but the gap between `{table.kind}` curves") + " " + span)
    if relative_to is not None:
        left_out = [name for name in columns if table[relative_to, name].change_pct is None]
        beside = f"Beside it stands the difference from {visible(relative_to)}"
        if questions is None:
            click.echo(f"{beside}; --questions gives it in percent too, where that REG is apart from 0")
        elif left_out:
            click.echo(
                f"{beside}, in percent too but where that REG may be 0: {', '.join(map(visible, left_out))}"
            )
        else:
            click.echo(f"{beside}, and in percent of it")
    for fault in faults:
        click.echo(f"~ approximate: {visible(fault.message)}")
