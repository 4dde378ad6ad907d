"""Read the results of finished tasks; what is missing or cannot be read has no findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

from reodsl.diagnostics import Diagnostic
from reodsl.graph.task import Graph, Task

Findings = dict[str, list[Diagnostic]]
"""Diagnostics by the id of the task that they are about."""


def findings_of(
    graph: Graph, folders: Mapping[str, Path], kinds: str, read: Callable[[Task, Path], list[Diagnostic]]
) -> Findings:
    """Return what `read` finds in the folder of each task of some kinds, named with blanks between them.

    `folders` holds the results by task id.
    """
    findings = {}
    for task in graph.tasks:
        if task.kind in kinds.split() and task.id in folders:
            try:
                findings[task.id] = read(task, folders[task.id])
            except (OSError, ValueError, pl.exceptions.PolarsError):
                continue
    return findings
