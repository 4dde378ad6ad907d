"""`reodsl explain CODE`: the page of a diagnostic; without a code, the list of all."""

from __future__ import annotations

import click

from reodsl.cli import completing
from reodsl.cli.output import print_json
from reodsl.diagnostics import problem
from reodsl.diagnostics.pages import codes, page


@click.command(
    epilog="""\b
Examples:
  reodsl explain E0402
  reodsl explain
""",
)
@click.argument("code", required=False, shell_complete=completing.codes)
@click.option("--json", "as_json", is_flag=True, help="Print code, title and text as JSON.")
def command(code: str | None, as_json: bool) -> None:
    """Explain a diagnostic, with a wrong and a right example."""
    if code is None:
        listing = [(each, page(each).splitlines()[0].removeprefix("# ")) for each in codes()]
        if as_json:
            print_json([{"code": each, "title": title} for each, title in listing])
        else:
            for each, title in listing:
                click.echo(f"{each}  {title}")
        return
    wanted = code.upper()
    if wanted not in codes():
        number = wanted.lstrip("EWN").rjust(4, "0")
        meant = [each for each in codes() if each[1:] == number]
        near = [each for each in codes() if each[:3] == wanted[:3]]
        raise problem(
            "E0110",
            f"there is no diagnostic {code!r}",
            notes=[f"those that begin alike: {', '.join(near)}"] if near else [],
            help=f"did you mean {' or '.join(f'`{each}`' for each in meant)}?"
            if meant
            else "write `reodsl explain` to see all of them",
        )
    text = page(wanted)
    if as_json:
        print_json({"code": wanted, "title": text.splitlines()[0].removeprefix("# "), "text": text})
    else:
        click.echo(text.rstrip())
