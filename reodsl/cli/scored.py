"""Print REG, what bounds it, and differences of models from a table of their responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from reodsl.cli.options import frontier_of, name_place
from reodsl.cli.output import file_to_write, print_json
from reodsl.diagnostics import Problem, problem
from reodsl.diagnostics.excerpt import visible
from reodsl.numbers.curves import Curves, envelope, misfits, select_benchmarks
from reodsl.numbers.intervals import Interval
from reodsl.numbers.reg import REG_TO, integration_grid
from reodsl.numbers.responses import Scored, check_end, curves_by_model, read_responses, score_responses
from reodsl.store.files import storing, write_atomic

_ENDED = "* Only responses that ended count (`ended`), so this is not REG, and a difference of AUC_OAA bounds none of REG.\n"
_BETWEEN = "  REG lies between the two numbers of `REG between`.\n"
_MORE = "  Answers forced at every budget would give REG."


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

    Raises `Problem` where nothing sound can be printed.
    """
    from reodsl.report.curve_chart import draw_picture

    if of and frontier is not None:
        raise problem(
            "E0116",
            "the frontier is named twice, by `--frontier` and by `--of`",
            help="take one: a file or a published one, or the best of models in this table",
        )
    place = None if picture is None else file_to_write(_drawable(picture), [path])
    with name_place(path):
        responses = read_responses(path)
        if grid is None and responses.budgets:
            grid, stop = responses.budgets, stop or min(REG_TO, responses.budgets[-1])
        points = integration_grid(stop, grid)
        check_end(responses, list(responses.kinds), points[-1])
        edge: Curves | Sequence[str] | None = of or None
        faults: tuple[str, ...] = ()
        if frontier is not None:
            edge, faults = _edge(curves_by_model(responses, points), frontier, base, points, approximate)
        rows = score_responses(responses, points, edge, relative_to)
        curves = curves_by_model(responses, points)
    if place is not None:
        best = (
            edge
            if isinstance(edge, Mapping)
            else envelope({name: curves[name] for name in of}).curves
            if of
            else None
        )
        form = place.suffix.lower()
        drawn = draw_picture(curves, best, points[-1], "pdf" if form == ".pdf" else "png")
        with storing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(place, drawn.svg if form == ".svg" else drawn.image)
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
        shown = title if len(titles) > 2 else titles[-1]
        mine = [row for row in rows if row.scores.benchmark == shown]
        _print(visible(title), mine, relative_to, "~" if faults else "")
    ended = rows[0].auc_oaa is not None
    what = (
        "REG in tokens, integrated"
        if edge is not None
        else "AUC_OAA"
        if ended
        else "Differences of REG in tokens, integrated"
    )
    click.echo(f"{what} from {points[0]} to {points[-1]} tokens; [low, high]: 95%, paired by question")
    if ended:
        click.echo(_ENDED + (_BETWEEN if edge is not None else "") + _MORE)
    for fault in faults:
        click.echo(f"~ approximate: {visible(fault)}")
    if picture is not None:
        click.echo(f"drew {picture}")


def _drawable(path: Path) -> Path:
    if path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise problem(
            "E0118",
            "no picture can be written here: its name does not end in .svg, .png or .pdf",
            where=str(path),
            help=f"name it {path.with_suffix('.svg')}",
        )
    return path


def _edge(
    models: Mapping[str, Curves], name: str, base: Sequence[str], points: Sequence[int], approximate: bool
) -> tuple[Curves, tuple[str, ...]]:
    """Return the curves of a frontier, and why it does not fit these responses, which `approximate` lets pass."""
    reference = frontier_of(name, base)
    found = misfits(reference, models, base, points, name)
    if found and not approximate:
        raise Problem(*found)
    edge = select_benchmarks(reference.curves, models.values()) if found else reference.curves
    return edge, tuple(each.message for each in found)


def _print(title: str, rows: Sequence[Scored], relative_to: str | None, mark: str) -> None:
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
                "" if each is None or (head.strip() == against and row.scores.model == relative_to)
                else (mark if head == "REG" else "") + _words(each, digits)
                for row, each in zip(rows, cells, strict=True)
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
    widths = [max(map(len, (head, *cells))) for head, cells in columns.items()]
    for line in (list(columns), *zip(*columns.values(), strict=True)):
        first, *rest = (f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join([f"{line[0]:<{widths[0]}}", *rest]) if first else "")
    click.echo("")


def _words(one: Interval, digits: int) -> str:
    ends = "" if one.low is None or one.high is None else f" [{one.low:.{digits}f}, {one.high:.{digits}f}]"
    return f"{one.value:.{digits}f}{ends}"


def _facts(row: Scored) -> dict[str, Any]:
    def three(one: Interval | None) -> dict[str, float | None] | None:
        return None if one is None else {"value": one.value, "low": one.low, "high": one.high}

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
    """Return the frontier that curves are scored against. Raises E0116 without one, and for what takes responses."""
    if frontier is None or of or picture is not None:
        raise problem(
            "E0116",
            "`--of` and `--picture` take a table of responses, and these are curves"
            if of or picture
            else "curves are scored against a frontier, and none is named",
            where=str(path),
            help="add `--frontier NAME_OR_FILE`; `reodsl frontier` makes one of curves",
        )
    return frontier
