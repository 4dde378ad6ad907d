"""One task as it is handed to a process, and what comes back from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from reodsl.diagnostics import Diagnostic
from reodsl.graph.job import Resources
from reodsl.graph.task import Task

Status = Literal["done", "busy", "damaged", "failed", "died"]


@dataclass(frozen=True, slots=True)
class Order:
    """Everything that a process needs to do a task.

    `runner` is `module:function`; `inputs` maps roles to keys in the store at `store`, `contents` to digests of what the
    task reads of them; `key` is the digest of `material`; `folder` is where the spec's relative paths start.
    """

    task: Task
    runner: str
    key: str
    material: dict[str, Any]
    inputs: dict[str, str]
    store: Path
    folder: Path
    resources: Resources = field(default_factory=Resources)
    contents: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an order.

    `busy`: another process is at it. `damaged`: the inputs with the keys in `damaged` are not what was stored.
    `died`: the process went away without a word. `seconds` is None when the result was already there.
    """

    status: Status
    seconds: float | None = None
    damaged: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
