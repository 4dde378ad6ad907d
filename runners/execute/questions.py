"""What is wrong with the questions of tasks about to run: from data tasks to errors at the lines that name the files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from reodsl.diagnostics import Diagnostic, Label, Span
from reodsl.graph.task import Task
from reodsl.ir import Origin, Spec
from reodsl.ir.data import Data, File, HubData
from reodsl.plan.places import Places


def questions(tasks: Iterable[Task], spec: Spec, folder: Path) -> Iterator[Diagnostic]:
    """Sources that are not there, and what is wrong inside files and a hub's data sets that are; paths start at `folder`."""
    data = [task for task in tasks if task.kind == "data"]
    if not data:
        return
    from runners.data.load import file_problems, source_problems

    places = Places(spec)
    for task in data:
        declared = Data.model_validate(task.payload["data"])
        found = source_problems(declared, folder) or file_problems(declared, folder)
        origin = places.of(task, ("data", "sources")) if found else None
        for each in found:
            yield _placed(each, declared, spec, origin)


def _placed(found: Diagnostic, data: Data, spec: Spec, origin: Origin | None) -> Diagnostic:
    """With the place in the spec where the file or data set at fault is named, in the setting that begins at `origin`.

    Where the name is written elsewhere, as a param's value is, the setting's own line is the place.
    """
    name = next((name for name, at in _names(data) if at in (found.where or "")), None)
    lines = spec.sources.get(origin.path, "").splitlines() if origin is not None else []
    if name is None or origin is None or not 1 <= origin.line <= len(lines):
        return found
    written = json.dumps(name, ensure_ascii=False)
    numbers = range(origin.line, len(lines) + 1)
    line = next((number for number in numbers if written in lines[number - 1]), origin.line)
    text = lines[line - 1]
    start = text.find(written) if written in text else len(text) - len(text.lstrip())
    end = start + len(written) if written in text else len(text.rstrip())
    return replace(found, labels=(Label(Span(origin.path, line, start + 1, line, end + 1)),))


def _names(data: Data) -> Iterator[tuple[str, str]]:
    """What the spec calls each source, with what of it stands in the name of every one of its files."""
    for source in data.sources:
        match source:
            case File():
                yield source.path, source.path
            case HubData():
                yield source.repo, source.repo
                # So the hub's cache has it.
                yield source.repo, source.repo.replace("/", "--")
