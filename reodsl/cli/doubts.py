"""What results should be taken with care for, told as soon as it is known: finished tasks in, warnings out."""

from __future__ import annotations

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
        """Take in a result; where it is a table of questions, warn of those that are trained and evaluated on."""
        if self.quiet or self.ready.graph[task_id].kind != "data":
            return
        from reodsl.report.overlap import overlaps

        self.tables[task_id] = self.ready.store.path(key)
        found = overlaps(self.ready.graph, self.tables, task_id)
        self.told.update(found)
        show(found)

    def all(self, results: Results, page: Path) -> list[Diagnostic]:
        """Every doubt about a finished run, those that were told among them."""
        from reodsl.report.overlap import overlaps
        from reodsl.report.unended import unended
        from reodsl.report.unlearnt import unlearnt

        folders = {name: self.ready.store.path(key) for name, key in results.keys.items()}
        return [*overlaps(self.ready.graph, folders), *unended(page.parent), *unlearnt(page.parent)]

    def rest(self, results: Results, page: Path) -> list[Diagnostic]:
        """Those that have not been told."""
        return [each for each in self.all(results, page) if each not in self.told]
