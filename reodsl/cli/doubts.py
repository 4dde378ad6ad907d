"""Warn of doubtful results as soon as their tasks are done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from reodsl.cli.output import show
from reodsl.diagnostics import Diagnostic
from reodsl.graph.job import Event
from reodsl.plan.registry import Results
from reodsl.plan.verdict import Ready

ANSWERED = "answered"
"""A number of a step that is told where few of the responses that ended have an answer: their share."""


class Doubts:
    """Hears of every result of a run; with `quiet` it tells nothing while the run goes on."""

    def __init__(self, ready: Ready, quiet: bool) -> None:
        """Begin with a run that has not started."""
        self.ready, self.quiet = ready, quiet
        self.tables: dict[str, Path] = {}
        self.shown: set[Diagnostic] = set()
        self.silent: set[str] = set()

    def done(self, task_id: str, key: str) -> None:
        """Take in a result, and warn of what makes it doubtful.

        That is: questions that are trained and evaluated on, marks of a chat in them, doubtful references, and responses
        without answers.
        """
        kind = self.ready.graph[task_id].kind
        if self.quiet or kind not in ("data", "evaluate"):
            return
        if kind == "evaluate":
            self._tell(self._unanswered({task_id: self.ready.store.path(key)}))
            return
        from reodsl.doubts.questions import overlaps

        folder = self.ready.store.path(key)
        self.tables[task_id] = folder
        diagnostics = [
            *self._questioned({task_id: folder}),
            *overlaps(self.ready.graph, self.tables, task_id),
        ]
        self._tell(diagnostics)

    def hear(self, event: Event) -> None:
        """Take in an event: report once what a task leaves out of its data, and that most responses have no answer."""
        if self.quiet or event.progress is None or self.ready.graph[event.task].kind not in ("train", "data"):
            return
        from reodsl.doubts.answers import warn_unanswered_step
        from reodsl.doubts.left_out import report_left_out

        task, numbers = self.ready.graph[event.task], event.progress.numbers
        doubts = report_left_out(task, numbers)
        if ANSWERED in numbers and task.id not in self.silent:
            self.silent.add(task.id)
            doubts.append(warn_unanswered_step(task, numbers[ANSWERED]))
        self._tell([each for each in self._at_lines({task.id: doubts}) if each not in self.shown])

    def _tell(self, diagnostics: list[Diagnostic]) -> None:
        self.shown.update(diagnostics)
        show(diagnostics, self.ready.spec.sources)

    def _at_lines(self, by_task: Mapping[str, Iterable[Diagnostic]]) -> list[Diagnostic]:
        from reodsl.plan.places import locate_failures

        placed = locate_failures(self.ready.spec, self.ready.graph, by_task)
        return [each for diagnostics in placed.values() for each in diagnostics]

    def _unanswered(self, folders: Mapping[str, Path]) -> list[Diagnostic]:
        """Return warnings of evaluations in which most responses have no answer."""
        from reodsl.doubts.answers import find_unanswered

        return self._at_lines(find_unanswered(self.ready.graph, folders))

    def all(self, results: Results, page: Path) -> list[Diagnostic]:
        """Return every doubt about a finished run, the ones already shown among them."""
        from reodsl.doubts.answers import find_inexact, find_unended, unlearnt
        from reodsl.doubts.left_out import list_left_out
        from reodsl.doubts.questions import overlaps

        folders = {name: self.ready.store.path(key) for name, key in results.keys.items()}
        return [
            *self._questioned(folders),
            *overlaps(self.ready.graph, folders),
            *self._at_lines(list_left_out(self.ready.graph, folders)),
            *self._unanswered(folders),
            *self._at_lines(find_inexact(self.ready.graph, folders)),
            *find_unended(page.parent),
            *unlearnt(page.parent),
        ]

    def _questioned(self, folders: Mapping[str, Path]) -> list[Diagnostic]:
        """Return findings on marks of a chat in questions and on doubtful references, at the lines that read them."""
        from reodsl.doubts.questions import chats, doubtful

        return [
            *self._at_lines(chats(self.ready.graph, folders)),
            *self._at_lines(doubtful(self.ready.graph, folders)),
        ]

    def rest(self, results: Results, page: Path) -> list[Diagnostic]:
        """List the doubts not shown yet."""
        return [each for each in self.all(results, page) if each not in self.shown]
