"""`reodsl check FILES`: every diagnostic of the specs named, without running or fetching anything."""

from __future__ import annotations

from typing import Any

import click

from reodsl.cli import completing
from reodsl.cli.fmt import spec_files
from reodsl.cli.options import amend_option, assignments, set_option
from reodsl.cli.output import has_error, print_json, show
from reodsl.diagnostics import Diagnostic


@click.command(
    epilog="""\b
Examples:
  reodsl check specs/quickstart.reo
  reodsl check specs --json
  reodsl check specs/qwen3_4b_reo_exp.reo --set n=10
""",
)
@click.argument("paths", nargs=-1, required=True, metavar="FILES", shell_complete=completing.files)
@set_option
@amend_option
@click.option("--json", "as_json", is_flag=True, help="Print files and diagnostics as JSON.")
def command(paths: tuple[str, ...], sets: tuple[str, ...], amends: tuple[str, ...], as_json: bool) -> None:
    """Check specs: names, types, units, budgets, recipes and studies.

    Safe on a stranger's spec: nothing in it can run code, read files but those it imports, or reach a network.
    Exits 1 on an error.
    """
    from reodsl.diagnostics.render import to_json
    from reodsl.language import check_file

    set_values, amend_values = assignments("--set", sets), assignments("--amend", amends)
    everything: list[Diagnostic] = []
    files: list[dict[str, Any]] = []
    for path in spec_files(paths):
        result = check_file(path, sets=set_values, amends=amend_values)
        everything.extend(result.diagnostics)
        bad = has_error(result.diagnostics)
        files.append({"path": str(path), "ok": not bad})
        if not as_json:
            show(result.diagnostics, result.sources)
            if not bad:
                click.echo(f"{path}: ok")
    if as_json:
        print_json({"files": files, "diagnostics": to_json(everything)})
    if has_error(everything):
        raise SystemExit(1)
