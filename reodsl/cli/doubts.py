"""What results should be taken with care for, told as soon as it is known: finished tasks in, warnings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from reodsl.cli.output import show
from reodsl.diagnostics import Diagnostic
from reodsl.plan.ready import Ready
from reodsl.plan.registry import Results


class Doubts:
    """Hears of every result of a run; with `quiet` it tells nothing while the run goes on."""

    def __init__(self, ready: Ready, quiet: bool) -> None:
        """Of a run that has not begun."""
        self.ready, self.quiet = ready, quiet
        self.tables: dict[str, Path] = {}
        self.told: set[Diagnostic] = set()

    def done(self, task_id: str, key: str) -> None:
        """Take in a result; where it is a table of questions, warn of those that are trained and evaluated on, and of
        marks of a chat in them.
        """
        if self.quiet or self.ready.graph[task_id].kind != "data":
            return
        from reodsl.report.overlap import overlaps

        folder = self.ready.store.path(key)
        self.tables[task_id] = folder
        found = [
            *self._marked({task_id: folder}),
            *overlaps(self.ready.graph, self.tables, task_id),
        ]
        self.told.update(found)
        show(found, self.ready.spec.sources)

    def all(self, results: Results, page: Path) -> list[Diagnostic]:
        """Every doubt about a finished run, those that were told among them."""
        from reodsl.report.overlap import overlaps
        from reodsl.report.unended import unended
        from reodsl.report.unlearnt import unlearnt

        folders = {name: self.ready.store.path(key) for name, key in results.keys.items()}
        return [
            *self._marked(folders),
            *overlaps(self.ready.graph, folders),
            *unended(page.parent),
            *unlearnt(page.parent),
        ]

    def _marked(self, folders: Mapping[str, Path]) -> Iterator[Diagnostic]:
        """Marks of a chat in questions, at the lines of the spec that read them."""
        from reodsl.plan.faults import at_their_lines
        from reodsl.report.chats import chats

        ready = self.ready
        for found in at_their_lines(ready.spec, ready.graph, chats(ready.graph, folders)).values():
            yield from found

    def rest(self, results: Results, page: Path) -> list[Diagnostic]:
        """Those that have not been told."""
        return [each for each in self.all(results, page) if each not in self.told]
