"""`reodsl fmt FILES`: specs in their canonical layout, in place, checked, or through a pipe."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import click

from reodsl.cli import completing
from reodsl.cli.output import has_error, show
from reodsl.diagnostics import problem
from reodsl.syntax import read_source, source_from_bytes
from reodsl.syntax.source import MAX_BYTES


@click.command(
    epilog="""\b
Examples:
  reodsl fmt specs/quickstart.reo
  reodsl fmt --check specs
  reodsl fmt - < draft.reo
""",
)
@click.argument("paths", nargs=-1, required=True, metavar="FILES", shell_complete=completing.files)
@click.option("--check", is_flag=True, help="Write nothing; exit 2 and name the files that would change.")
def command(paths: tuple[str, ...], check: bool) -> None:
    """Rewrite specs in the one canonical layout.

    FILES are .reo files or folders of them; `-` reads a spec from standard input and writes it to standard output.
    Comments stay. A file with syntax errors is left as it is.
    """
    # `check` takes `spec_files` from here and formats nothing.
    from reodsl.syntax.formatter import format_source

    if "-" in paths and len(paths) > 1:
        raise problem("E0111", "`-` stands alone", help="write `reodsl fmt -`, or name files only")
    changed: list[str] = []
    broken = False
    for name in paths if paths == ("-",) else [str(path) for path in spec_files(paths)]:
        source = (
            source_from_bytes(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
            if name == "-"
            else read_source(Path(name))
        )
        result = format_source(source)
        show(result.diagnostics, {source.path: source.text})
        if has_error(result.diagnostics) or result.text is None:
            broken = True
            continue
        if name == "-" and not check:
            sys.stdout.write(result.text)
        elif result.text != source.text:
            changed.append(name)
            if not check:
                replace(Path(name), result.text)
    for name in changed:
        click.echo(f"would change {name}" if check else f"formatted {name}")
    if broken:
        raise SystemExit(1)
    if check and changed:
        raise SystemExit(2)


def spec_files(paths: Iterable[str]) -> list[Path]:
    """Return the .reo files named, and those in folders named, each once, in order."""
    files: dict[Path, None] = {}
    for name in paths:
        if not name:
            # An unset variable of a shell must not stand for all that lies in this folder.
            raise problem("E0101", "an empty name is not a file", help="name a file, or `.` for this folder")
        path = Path(name)
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*.reo") if each.is_file())
            if not inside:
                raise problem(
                    "E0112", "no .reo file in this folder", where=name, help="name a folder that holds specs"
                )
            files.update(dict.fromkeys(inside))
        else:
            files[path] = None
    return list(files)


def replace(path: Path, text: str) -> None:
    """Write the whole file or leave the old one: a temporary beside it, then a rename. Keeps mode and links."""
    aside: Path | None = None
    try:
        path = path.resolve()
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, delete=False, encoding="utf-8", newline=""
        ) as out:
            aside = Path(out.name)
            out.write(text)
        os.chmod(aside, path.stat().st_mode & 0o777)
        os.replace(aside, path)
    except OSError as cause:
        if aside is not None:
            aside.unlink(missing_ok=True)
        raise problem(
            "E0113", f"cannot write: {cause.strerror}", where=str(path), help="check the folder's permissions"
        ) from cause
