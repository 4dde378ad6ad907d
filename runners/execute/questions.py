"""Check the questions of tasks about to run, and point at the lines that name the files."""

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
    """Report missing sources and faults inside files and hub data sets; relative paths start at `folder`.

    Nothing is read where polars is missing, which is reported with the other packages that a run needs.
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
            yield place_finding(finding, _at_fault(finding, declared, folder), spec, origin)
        if not findings:
            yield from _missing_numbers(declared, spec, folder)


def _missing_numbers(declared: Data, spec: Spec, folder: Path) -> Iterator[Diagnostic]:
    """Report E0922 at the place that reads a number which questions in files here lack."""
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
    for asker, field in dict.fromkeys(readers):
        missing = find_missing_number(asker, field, rows)
        if missing is not None:
            yield replace(missing, labels=tuple(_find_reader(spec, asker, field)), where=None)


def _find_reader(spec: Spec, asker: str, field: str) -> Iterator[Label]:
    """Yield the first place behind the declaration of a reward or a wording where it reads a number of the questions."""
    kind, name = asker.removeprefix("the ").replace("`", "").split(" ", 1)
    for path, text in spec.sources.items():
        begin = re.search(rf"^{kind} {re.escape(name)}\b", text, re.MULTILINE)
        read = re.compile(rf"\bx\.{re.escape(field)}(?![\w.])").search(text, begin.start()) if begin else None
        if read is not None:
            line, before = text.count("\n", 0, read.start()) + 1, text.rfind("\n", 0, read.start())
            yield Label(Span(path, line, read.start() - before, line, read.end() - before), "read here")
            return


def counts(tasks: Iterable[Task], folder: Path) -> dict[str, int]:
    """Return how many questions `data` tasks will read, by their ids, where files here tell; paths start at `folder`."""
    if importlib.util.find_spec("polars") is None:
        return {}
    from runners.data.load import count_questions

    read = {task.id: count_questions(task.work["data"], folder) for task in tasks}
    return {name: count for name, count in read.items() if count is not None}


def _at_fault(diagnostic: Diagnostic, data: Data, folder: Path) -> str | None:
    """Return the spec's name of the source that a finding is about; the first of several, None if it is about none."""
    # Rows stand behind a file, and several sources one behind another: `a.jsonl, line 3`, `a.jsonl, b.csv`.
    where = f", {diagnostic.where}, "
    files = [source.path for source in data.sources if isinstance(source, File)]
    for path in files:
        if any(f", {name}, " in where for name in (path, folder / path)):
            return path
    # A data set is in the path of every one of its files; the hub's cache has it with dashes.
    repos = [source.repo for source in data.sources if isinstance(source, HubData)]
    return next((repo for repo in repos if repo in where or repo.replace("/", "--") in where), None)


def place_finding(diagnostic: Diagnostic, name: str | None, spec: Spec, origin: Origin | None) -> Diagnostic:
    """Return a finding at the place in the spec that names the file or data set, in the setting that begins at `origin`.

    Where the name is written elsewhere, as a param's value is, the setting's own line is the place.
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
