"""Point a task's diagnostics at the line of the spec that they are about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reodsl.diagnostics.model import Diagnostic, Label, Span
from reodsl.graph.task import Graph, Task
from reodsl.ir import Origin, Spec
from reodsl.plan.places import Path, Places

_REWARD: Path = ("stage", "method", "reward")
_ABOUT: Mapping[tuple[str, str], Path] = {
    ("budgets", "E0429"): ("reward",),
    **{("data", code): ("data", "sources") for code in ("W0714", "W0716", "W0717")},
    **{("data", code): ("data", "duplicates") for code in ("W0807", "N0807")},
    **{("train", code): _REWARD for code in ("E0920", "E0922", "E0923", "E0924", "E0930", "E0932")},
    ("train", "W0804"): ("stage", "data", "answer"),
    ("evaluate", "W0804"): ("suite", "benchmarks"),
    ("train", "E0926"): ("stage", "optim", "lr"),
    ("train", "E0929"): ("stage", "plateau"),
    ("train", "E0935"): ("stage", "method", "batch"),
    ("train", "E0936"): ("stage", "method", "mismatch_limit"),
    ("select", "E0934"): ("data",),
    ("select", "E0935"): ("data",),
}
"""The setting that a failure of a kind of task is about, as a path into its payload."""


def at_their_lines(
    spec: Spec, graph: Graph, failed: Mapping[str, Iterable[Diagnostic]]
) -> dict[str, tuple[Diagnostic, ...]]:
    """What tasks ended with, by task: where a setting of the spec is to blame, its line is the first place."""
    places = Places(spec)
    return {
        name: tuple(_placed(spec, places, graph[name], each) for each in diagnostics)
        for name, diagnostics in failed.items()
    }


def _placed(spec: Spec, places: Places, task: Task, diagnostic: Diagnostic) -> Diagnostic:
    path = _ABOUT.get((task.kind, diagnostic.code))
    origin = places.of(task, path) if path is not None and not diagnostic.labels else None
    if origin is None:
        return diagnostic
    return replace(diagnostic, labels=(Label(line_of(spec, origin), "given here"),))


def line_of(spec: Spec, origin: Origin) -> Span:
    """The whole line without what stands around it; its beginning where the file is not at hand."""
    lines = lines_of(spec, origin.path)
    text = lines[origin.line - 1] if origin.line <= len(lines) else ""
    begin = len(text) - len(text.lstrip()) + 1
    return Span(origin.path, origin.line, begin, origin.line, max(len(text.rstrip()) + 1, begin + 1))


def lines_of(spec: Spec, path: str) -> list[str]:
    """The lines of a file of the spec as places count them; one empty line where the file is not at hand."""
    return spec.sources.get(path, "").split("\n")
