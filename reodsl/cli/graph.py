"""`reodsl graph SPEC`: the tasks of a spec and what each reads, as text, JSON or DOT."""

from __future__ import annotations

from pathlib import Path

import click

from reodsl.cli import completing
from reodsl.cli.options import amend_option, set_option, target_option
from reodsl.cli.place import prepare
from reodsl.graph.task import Graph


@click.command(
    epilog="""\b
Examples:
  reodsl graph specs/quickstart.reo
  reodsl graph specs/quickstart.reo --dot | dot -Tsvg > graph.svg
""",
)
@click.argument("spec", shell_complete=completing.files)
@set_option
@amend_option
@target_option
@click.option("--dot", is_flag=True, help="Print the graph in Graphviz's DOT language.")
@click.option("--json", "as_json", is_flag=True, help="Print the tasks with their payloads as JSON.")
def command(
    spec: str, sets: tuple[str, ...], amends: tuple[str, ...], target: str | None, dot: bool, as_json: bool
) -> None:
    """Show the task graph that a spec lowers to."""
    from reodsl.cli.output import print_json, print_text

    graph = prepare(spec, sets, amends, target, Path(".reodsl")).graph
    if as_json:
        print_json({"tasks": [_task(graph, task.id) for task in graph.tasks]})
    elif dot:
        click.echo(to_dot(graph))
    else:
        print_text(to_text(graph))


def to_text(graph: Graph) -> str:
    """Return a line a task, in an order to run them in: its id, then `<-` and what it reads."""
    from reodsl.diagnostics import listed

    width = max((len(task.id) for task in graph.tasks), default=0)
    lines = []
    for task in graph.tasks:
        sources = list(dict.fromkeys(task.inputs.values()))
        reads = f"  <- {listed(sources, 4)}" if sources else ""
        lines.append(f"{task.id:<{width}}{reads}".rstrip())
    return "\n".join([*lines, f"{len(graph.tasks)} tasks"])


def to_dot(graph: Graph) -> str:
    """Return the graph in DOT, from what is read to what reads it."""
    lines = ["digraph tasks {", "  rankdir=LR; node [shape=box];"]
    for task in graph.tasks:
        lines.append(f"  {_quote(task.id)};")
        lines += [
            f"  {_quote(source)} -> {_quote(task.id)};" for source in dict.fromkeys(task.inputs.values())
        ]
    return "\n".join([*lines, "}"])


def _quote(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _task(graph: Graph, task_id: str) -> dict[str, object]:
    task = graph[task_id]
    return {
        "id": task.id,
        "kind": task.kind,
        "arm": task.arm,
        "seed": task.seed,
        "inputs": task.inputs,
        "payload": task.payload,
    }
