"""Check the questions of tasks that are about to run, and point at the lines of the spec that name their files."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from reodsl.diagnostics import Diagnostic, Label, Span
from reodsl.graph.task import Task
from reodsl.ir import Origin, Spec
from reodsl.ir.base import values_of
from reodsl.ir.data import Data, File, HubData
from reodsl.ir.study import Suite
from reodsl.ir.training import Ppo, Stage
from reodsl.plan.places import find_place, line_of, lines_of


def questions(tasks: Iterable[Task], spec: Spec, folder: Path) -> Iterator[Diagnostic]:
    """Yield diagnostics on missing sources of questions, and on mistakes in files and hub data sets.

    If a data set has no mistake, its numbers are checked, too, as `_check_numbers` describes. Without polars nothing is
    read; the check of packages reports that polars is missing.

    Args:
        tasks: Tasks that are about to run, of which only `data` tasks are checked.
        spec: Spec of the tasks.
        folder: The spec's folder, where relative paths start.
    """
    data = [task for task in tasks if task.kind == "data"]
    if not data or importlib.util.find_spec("polars") is None:
        return
    from runners.data.load import file_problems, source_problems

    for task in data:
        declared = task.work["data"]
        findings = source_problems(declared, folder) or file_problems(declared, folder)
        origin = find_place(task, ("data", "sources")) if findings else None
        for finding in findings:
            yield place_finding(finding, _find_source(finding, declared, folder), spec, origin)
        if not findings:
            yield from _check_numbers(declared, spec, folder)


def _check_numbers(declared: Data, spec: Spec, folder: Path) -> Iterator[Diagnostic]:
    """Yield E0922 for each reward or wording that reads a number which any question of a data set lacks.

    Numbers are fields of a question's metadata (column `meta`). The diagnostic points at the line of the spec that reads
    the number. If the questions are not on this machine, nothing is yielded.

    Args:
        declared: Data set of the questions.
        spec: The spec, with rewards and wordings that read numbers of questions.
        folder: The spec's folder, where relative paths start.
    """
    from runners.data.load import at_hand, load_data
    from runners.rollout.questions import find_missing_number, list_choosers, list_readers, read_facts

    readers = [
        reader
        for stage in values_of(spec.study, Stage)
        if isinstance(stage.method, Ppo) and stage.data.sources == declared.sources
        for reader in list_readers(stage.method)
    ]
    for suite in values_of(spec.study, Suite):
        if any(benchmark.data.sources == declared.sources for benchmark in suite.benchmarks):
            readers += list_choosers(suite.wordings)
    if not readers or not at_hand(declared, folder):
        return
    table = load_data(declared, folder)
    metas = table["meta"].to_list() if "meta" in table.columns else [None] * table.height
    rows = [(name, read_facts(meta or "")) for name, meta in zip(table["id"], metas, strict=True)]
    for reader, field in dict.fromkeys(readers):
        missing = find_missing_number(reader, field, rows)
        if missing is not None:
            yield replace(missing, labels=tuple(_find_reader(spec, reader, field)), where=None)


def _find_reader(spec: Spec, reader: str, field: str) -> Iterator[Label]:
    """Yield the place in the spec's sources where a reward or wording reads a number of the questions, if it is found.

    Args:
        spec: The spec.
        reader: Name of the reward or wording in a message, such as "the reward `own`".
        field: Name of the number, which the source reads as `x.FIELD`.
    """
    kind, name = reader.removeprefix("the ").replace("`", "").split(" ", 1)
    pattern = re.compile(rf"\bx\.{re.escape(field)}(?![\w.])")
    for path, text in spec.sources.items():
        start = re.search(rf"^{kind} {re.escape(name)}\b", text, re.MULTILINE)
        match = pattern.search(text, start.start()) if start else None
        if match is not None:
            line, before = text.count("\n", 0, match.start()) + 1, text.rfind("\n", 0, match.start())
            yield Label(Span(path, line, match.start() - before, line, match.end() - before), "read here")
            return


def counts(tasks: Iterable[Task], folder: Path) -> dict[str, int]:
    """Return the number of questions that each `data` task will read, by task id.

    A task is left out if files on this machine do not show its number, and without polars all tasks are left out.

    Args:
        tasks: The `data` tasks.
        folder: The spec's folder, where relative paths start.
    """
    if importlib.util.find_spec("polars") is None:
        return {}
    from runners.data.load import count_questions

    numbers = {task.id: count_questions(task.work["data"], folder) for task in tasks}
    return {name: count for name, count in numbers.items() if count is not None}


def _find_source(diagnostic: Diagnostic, data: Data, folder: Path) -> str | None:
    """Return the path or repository of the source that a diagnostic is about, as the spec spells it.

    Args:
        diagnostic: A diagnostic on a data set.
        data: The data set.
        folder: The spec's folder, where relative paths start.

    Returns:
        The first source that the diagnostic names; None if it names no source.
    """
    # The place of a diagnostic is `a.jsonl, line 3`, or several sources: `a.jsonl, b.csv`.
    where = f", {diagnostic.where}, "
    files = [source.path for source in data.sources if isinstance(source, File)]
    for path in files:
        if any(f", {name}, " in where for name in (path, folder / path)):
            return path
    # Paths of a data set's files contain its name; in the hub's cache it has dashes instead of slashes.
    repos = [source.repo for source in data.sources if isinstance(source, HubData)]
    return next((repo for repo in repos if repo in where or repo.replace("/", "--") in where), None)


def place_finding(diagnostic: Diagnostic, name: str | None, spec: Spec, origin: Origin | None) -> Diagnostic:
    """Return a diagnostic with the place in the spec that names a file or data set.

    Args:
        diagnostic: The diagnostic.
        name: Path or repository as the spec spells it; None leaves the diagnostic unchanged.
        spec: The spec.
        origin: Place of the setting whose value is the name; None leaves the diagnostic unchanged.

    Returns:
        The diagnostic at the first occurrence of the quoted name on the setting's line or below. If there is none, for
        example because the name is the value of a param, the diagnostic at the setting's line.
    """
    if name is None or origin is None or origin.path not in spec.sources:
        return diagnostic
    literal = json.dumps(name, ensure_ascii=False)
    for line, text in enumerate(lines_of(spec, origin.path), 1):
        start = text.find(literal)
        if line >= origin.line and start >= 0:
            span = Span(origin.path, line, start + 1, line, start + 1 + len(literal))
            return replace(diagnostic, labels=(Label(span),))
    return replace(diagnostic, labels=(Label(line_of(spec, origin)),))
