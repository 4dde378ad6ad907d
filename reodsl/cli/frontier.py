"""`reodsl frontier CURVES...`: the best accuracy over models at each benchmark and budget, as a frontier file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from reodsl.cli.options import Place, name_place, token_count
from reodsl.cli.output import file_to_write, print_json
from reodsl.diagnostics import problem
from reodsl.diagnostics.excerpt import visible
from reodsl.numbers.curves import Curves, common_kind, envelope
from reodsl.numbers.reg import REG_TO, paper_grid
from reodsl.numbers.responses import check_end, curves_by_model, holds_responses, read_responses


@click.command(
    epilog="""\b
Examples:
  reodsl frontier base.json budget_4k.json --base Qwen/Qwen3-4B -o edge.json
  reodsl frontier results.csv --of base --of vanilla --to 16K --base Qwen/Qwen3-4B -o edge.json
  reodsl frontier results.parquet --json
""",
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
@click.option("--out", "-o", type=Place(), help="Write the frontier file here.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the frontier, and which model reaches it where, as JSON."
)
def command(
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
    """
    from reodsl.numbers.curve_files import curves_data, write_frontier
    from reodsl.report.formats import plural

    place = None if out is None else file_to_write(_json_file(out), files)
    stop = None if to is None else token_count("--to", to)
    models, named = _models(files, stop, of)
    unknown = [name for name in of if name not in models]
    if unknown:
        raise problem(
            "E0116",
            f"there is no model {unknown[0]!r}",
            notes=[f"there is {', '.join(models)}"],
            help="name one of these",
        )
    chosen = of or tuple(models)
    # A frontier goes back to no model that can be named where one of its models does not.
    whole = all(name in named for name in chosen)
    bases = base or tuple(dict.fromkeys(each for name in chosen for each in named[name]) if whole else ())
    with name_place(", ".join(map(str, files))):
        edge = envelope({name: models[name] for name in chosen}, stop)
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_frontier(place, edge.curves, bases)
    if as_json:
        winners = [
            {"benchmark": w.benchmark, "budget": w.budget, "accuracy": w.accuracy, "models": list(w.models)}
            for w in edge.winners
        ]
        kind = common_kind(edge.curves.items())
        print_json(
            {
                "frontier": curves_data(edge.curves),
                "kind": kind,
                "base": list(bases),
                "winners": winners,
            }
        )
        return
    for benchmark, curve in edge.curves.items():
        reached = Counter(
            model for winner in edge.winners if winner.benchmark == benchmark for model in winner.models
        )
        best = ", ".join(f"{visible(model)} {count}" for model, count in reached.most_common())
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
    """Read the models of curve files by name, with the base models that these name. Raises E0115 for one in two files."""
    from reodsl.numbers.curve_files import read_models

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
                    "E0115",
                    f"the model {name!r} is in more than one file",
                    where=str(path),
                    help="give each model once",
                )
            models[name] = curves
    return models, bases
