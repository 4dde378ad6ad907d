"""Commands that read specs and run no tasks: `check`, `fmt`, `graph`, `budgets`, `explain` and `lsp`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from reodsl.cli.options import (
    amend_option,
    assignments,
    complete_codes,
    complete_files,
    frontier_of,
    name_source,
    set_option,
    target_option,
)
from reodsl.cli.output import has_error, print_json, print_text, show, terminal_columns
from reodsl.diagnostics import Diagnostic, listed, problem
from reodsl.diagnostics.dropped import MERGED, SINCE
from reodsl.diagnostics.render import codes, lay_page, page, title, topics
from reodsl.graph.task import Graph
from reodsl.language.suggest import nearest
from reodsl.store.files import replacing
from reodsl.syntax import read_source, source_from_bytes
from reodsl.syntax.source import MAX_BYTES


@click.command(
    epilog="""\b
Examples:
  reodsl check specs/quickstart.reo
  reodsl check specs --json
  reodsl check specs/qwen3_4b_reo_exp.reo --set n=10
"""
)
@click.argument("paths", nargs=-1, required=True, metavar="FILES", shell_complete=complete_files)
@set_option
@amend_option
@click.option("--json", "as_json", is_flag=True, help="Print files and diagnostics as JSON.")
def check_command(
    paths: tuple[str, ...], sets: tuple[str, ...], amends: tuple[str, ...], as_json: bool
) -> None:
    """Check specs: names, types, units, budgets, recipes and studies.

    Safe on a stranger's spec: checking runs no code, reads no files except those the spec imports, and uses no network.
    Exits 1 on an error.

    Args:
        paths: Spec files, and folders of spec files.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        as_json: Whether to print JSON instead of text.
    """
    from reodsl.diagnostics.render import to_json
    from reodsl.language import check_file

    set_values, amend_values = assignments("--set", sets), assignments("--amend", amends)
    all_diagnostics: list[Diagnostic] = []
    files: list[dict[str, Any]] = []
    for path in spec_files(paths):
        result = check_file(path, sets=set_values, amends=amend_values)
        all_diagnostics.extend(result.diagnostics)
        failed = has_error(result.diagnostics)
        files.append({"path": str(path), "ok": not failed})
        if not as_json:
            show(result.diagnostics, result.sources)
            if not failed:
                click.echo(f"{path}: ok")
    if as_json:
        print_json({"files": files, "diagnostics": to_json(all_diagnostics)})
    if has_error(all_diagnostics):
        raise SystemExit(1)


@click.command(
    epilog="""\b
Examples:
  reodsl fmt specs/quickstart.reo
  reodsl fmt --check specs
  reodsl fmt - < draft.reo
"""
)
@click.argument("paths", nargs=-1, required=True, metavar="FILES", shell_complete=complete_files)
@click.option("--check", is_flag=True, help="Write nothing; exit 2 and name the files that would change.")
def fmt_command(paths: tuple[str, ...], check: bool) -> None:
    """Rewrite specs in the one canonical layout.

    FILES are .reo files or folders of them; `-` reads a spec from standard input and writes it to standard output.
    Comments stay. A file with syntax errors is not changed.

    Args:
        paths: Spec files, and folders of spec files; or only `-` for standard input.
        check: Whether to print the names of files that would change, without writing.
    """
    from reodsl.syntax.formatter import format_source

    if "-" in paths and len(paths) > 1:
        raise problem(
            "E0114", "`-` cannot be combined with files", help="write `reodsl fmt -`, or name files only"
        )
    changed: list[str] = []
    any_errors = False
    for name in paths if paths == ("-",) else [str(path) for path in spec_files(paths)]:
        source = (
            source_from_bytes(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
            if name == "-"
            else read_source(Path(name))
        )
        result = format_source(source)
        show(result.diagnostics, {source.path: source.text})
        if has_error(result.diagnostics) or result.text is None:
            any_errors = True
            continue
        if name == "-" and not check:
            sys.stdout.write(result.text)
        elif result.text != source.text:
            changed.append(name)
            if not check:
                replace(Path(name), result.text)
    for name in changed:
        click.echo(f"would change {name}" if check else f"formatted {name}")
    if any_errors:
        raise SystemExit(1)
    if check and changed:
        raise SystemExit(2)


def spec_files(paths: Iterable[str]) -> list[Path]:
    """Return the spec files that paths name: files themselves, and all .reo files in folders, without repetition.

    Raises:
        Problem: E0101 for an empty path, or a folder without specs.
    """
    files: dict[Path, None] = {}
    for name in paths:
        if not name:
            # It comes from an unset shell variable, and must not mean this folder.
            raise problem("E0101", "an empty name is not a file", help="name a file, or `.` for this folder")
        path = Path(name)
        if path.is_dir():
            inner_files = sorted(file for file in path.rglob("*.reo") if file.is_file())
            if not inner_files:
                raise problem(
                    "E0101", "no .reo file in this folder", where=name, help="name a folder that holds specs"
                )
            files.update(dict.fromkeys(inner_files))
        else:
            files[path] = None
    return list(files)


def replace(path: Path, text: str) -> None:
    """Replace the content of a file completely or not at all, and keep its permissions; a link to the file stays a link.

    Raises:
        Problem: E0118 if it cannot be written.
    """
    try:
        path = path.resolve()
        with replacing(path, durable=False) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="")
            temporary.chmod(path.stat().st_mode & 0o777)
    except OSError as cause:
        raise problem(
            "E0118", f"cannot write: {cause.strerror}", where=str(path), help="check the folder's permissions"
        ) from cause


@click.command(
    epilog="""\b
Examples:
  reodsl graph specs/quickstart.reo
  reodsl graph specs/quickstart.reo --dot | dot -Tsvg > graph.svg
"""
)
@click.argument("spec", shell_complete=complete_files)
@set_option
@amend_option
@target_option
@click.option("--dot", is_flag=True, help="Print the graph in Graphviz's DOT language.")
@click.option("--json", "as_json", is_flag=True, help="Print the tasks with their payloads as JSON.")
def graph_command(
    spec: str, sets: tuple[str, ...], amends: tuple[str, ...], target: str | None, dot: bool, as_json: bool
) -> None:
    """Show the tasks of a spec and what each depends on.

    Args:
        spec: Path of the spec file.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        target: Name of the study or experiment to use, or None if the spec declares only one.
        dot: Whether to print the graph in Graphviz's DOT language.
        as_json: Whether to print JSON instead of text.
    """
    from reodsl.cli.prepare import prepare

    graph = prepare(spec, sets, amends, target, Path(".reodsl")).graph
    if as_json:
        keys = ("id", "kind", "arm", "seed", "inputs", "payload")
        print_json({"tasks": [{key: getattr(task, key) for key in keys} for task in graph.tasks]})
    elif dot:
        click.echo(to_dot(graph))
    else:
        print_text(to_text(graph))


def to_text(graph: Graph) -> str:
    """Return the graph as text: a line for each task, with `<-` and the tasks that it reads, then the number of tasks."""
    width = max((len(task.id) for task in graph.tasks), default=0)
    sources = ((task, list(dict.fromkeys(task.inputs.values()))) for task in graph.tasks)
    lines = (
        f"{task.id:<{width}}{f'  <- {listed(names, 4)}' if names else ''}".rstrip() for task, names in sources
    )
    return "\n".join([*lines, f"{len(graph.tasks)} tasks"])


def to_dot(graph: Graph) -> str:
    """Return the graph in Graphviz's DOT language, with an edge from each task to the tasks that read its result."""
    lines = (
        line
        for task in graph.tasks
        for line in (
            f"  {_quote(task.id)};",
            *(f"  {_quote(source)} -> {_quote(task.id)};" for source in dict.fromkeys(task.inputs.values())),
        )
    )
    return "\n".join(["digraph tasks {", "  rankdir=LR; node [shape=box];", *lines, "}"])


def _quote(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


@click.command(
    epilog="""\b
Examples:
  reodsl budgets 'exp(from: 1K tokens, to: 32K tokens, n: 5)'
  reodsl budgets 'linear(to: 32K tokens, n: 5)' --frontier std.paper.qwen3_4b
  reodsl budgets 'greedy(std.paper.qwen3_4b, to: 32K tokens, n: 5)' --json
  reodsl budgets '[1K tokens, 4K tokens, 16K tokens, 32K tokens]'
"""
)
@click.argument("expression")
@click.option(
    "--frontier", metavar="NAME_OR_FILE", help="Also print the error of the trapezoid rule on this frontier."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print l_max, budgets, weights (and approximation_error)."
)
def budgets_command(expression: str, frontier: str | None, as_json: bool) -> None:
    """Print the token budgets of a schedule, and their trapezoid weights.

    EXPRESSION is what a spec writes after `budgets NAME =`. The last entry of a list is the longest response.

    Args:
        expression: Schedule of budgets as a spec writes it, such as `linear(to: 32K tokens, n: 5)`.
        frontier: Frontier file, or name of a published frontier, to measure the error of the trapezoid rule on; or
            None.
        as_json: Whether to print JSON instead of text.
    """
    from reodsl.language.chosen_reward import read_schedule
    from reodsl.numbers.greedy import describe_schedule

    schedule, diagnostics, sources = read_schedule(expression)
    show(diagnostics, sources)
    if schedule is None:
        raise SystemExit(1)
    with name_source(frontier):
        facts = describe_schedule(schedule, None if frontier is None else frontier_of(frontier).curves)
    if as_json:
        print_json(facts)
        return
    budgets = [*facts["budgets"], facts["l_max"]]
    width = max(len(f"{value:g}") for value in [*budgets, *facts["weights"]])
    row = "  ".join
    click.echo(
        "Budgets  "
        + row(f"{value:>{width}g}" for value in budgets)
        + "   tokens; the last is the longest response"
    )
    click.echo("Weights  " + row(f"{value:>{width}g}" for value in facts["weights"]) + "   trapezoid")
    if "approximation_error" in facts:
        click.echo(f"On the frontier the sum is off by {facts['approximation_error']:+.3%}")


@click.command(
    epilog=f"""Topics: {", ".join(topics())}.

\b
Examples:
  reodsl explain E0402
  reodsl explain training
  reodsl explain
"""
)
@click.argument("name", metavar="[CODE|TOPIC]", required=False, shell_complete=complete_codes)
@click.option("--json", "as_json", is_flag=True, help="Print code, title and text as JSON.")
def explain_command(name: str | None, as_json: bool) -> None:
    """Explain a diagnostic, with a wrong and a right example, or print the document on a topic.

    Args:
        name: Code of a diagnostic or topic of a document; None to list all of them.
        as_json: Whether to print JSON instead of text.
    """
    if name is None:
        listing = [(key, title(key)) for key in (*topics(), *codes())]
        if as_json:
            print_json([{"code": key, "title": heading} for key, heading in listing])
        else:
            print_text("\n".join(f"{key}  {heading}" for key, heading in listing))
        return
    code = name.upper()
    subject = name.lower() if name.lower() in topics() else MERGED.get(code, code)
    if subject not in codes() and subject not in topics():
        number, topic = subject.lstrip("EWN").rjust(4, "0"), nearest(name.lower(), topics())
        guesses = [topic] if topic else [key for key in codes() if key[1:] == number]
        raise problem(
            "E0114",
            f"no diagnostic and no topic is called {name!r}",
            help=f"did you mean {' or '.join(f'`{key}`' for key in guesses)}?"
            if guesses
            else "write `reodsl explain` to see all codes and topics",
        )
    text = page(subject)
    if subject != code and subject in codes() and not as_json:
        click.echo(f"{subject} includes {code} since version {SINCE}.\n")
    if as_json:
        print_json({"code": subject, "title": title(subject), "text": text})
    else:
        columns = terminal_columns()
        click.echo(text.rstrip() if columns is None else lay_page(text.rstrip(), columns))


@click.command(
    short_help="Serve an editor: diagnostics, hover, completion, formatting.",
    epilog="""\b
Examples:
  reodsl lsp       as an editor starts it; `reodsl explain tools` has settings for some
""",
)
def lsp_command() -> None:
    """Speak the Language Server Protocol over standard input and output, for an editor that starts it.

    The server sends diagnostics as you type, formats, explains a setting or name and where its value comes from, goes to
    its definition (in the standard library too), and completes. It runs nothing in a spec, and uses no network.
    """
    from reodsl.lsp.server import serve

    serve()
