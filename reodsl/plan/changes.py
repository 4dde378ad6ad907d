"""Changes: from two materials of a result to what differs, setting by setting, and the line that set it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reodsl.graph.task import Task
from reodsl.ir import Origin

# Below these a difference is one change: their parts have no names that a spec's author wrote.
_WHOLE = {"outcome", "lets", "value", "task", "traces", "tokenizer"}
_FRAME = {"stage", "method", "spec", "study", "suite", "frontier", "split", "score", "data", "model"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that differs: its dotted path in the material, both values (None: absent), and where it is set."""

    path: str
    old: Any
    new: Any
    origin: Origin | None = None

    @property
    def name(self) -> str:
        """The setting as a spec's author knows it, as far as that can be told: `optim.lr`."""
        parts = self.path.split(".")
        if parts[0] == "payload":
            parts = parts[1:]
        while len(parts) > 1 and parts[0] in _FRAME:
            parts = parts[1:]
        return ".".join(parts)


def differences(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """The smallest named parts in which two JSON values differ, as (path, old, new)."""
    whole = bool(path) and path[-1] in _WHOLE
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not whole:
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key), new.get(key), (*path, str(key)))
    elif (
        isinstance(old, list)
        and isinstance(new, list)
        and len(old) == len(new)
        and _nested(old)
        and not whole
    ):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*path, str(index)))
    elif old != new:
        yield path, old, new


def explain(
    task: Task, old: Mapping[str, Any], new: Mapping[str, Any], origins: Mapping[str, Origin]
) -> tuple[Difference, ...]:
    """What differs between two materials of a task, inputs apart (a changed input is its own task's change)."""
    found = []
    for part in ("version", "payload"):
        for path, before, after in differences(old.get(part), new.get(part), (part,)):
            found.append(Difference(".".join(path), before, after, origin_of(task, path, origins)))
    return tuple(found)


_NAMED = {"suite": "eval", "model": "base"}
"""The setting of an experiment that names what stands in this part of a payload."""


def origin_of(task: Task, path: tuple[str, ...], origins: Mapping[str, Origin]) -> Origin | None:
    """Where a setting of a task was given: the longest part of its path that the spec's origins know.

    Origins are named by declaration and setting (`reo_exp.optim.lr`); payloads put frames such as `stage` and
    `method` around the setting, so every run of the path's parts is tried, later and longer ones first. What stands in a
    suite or a model is only given where those are named: a training has settings of the same names.
    """
    owners = [owner for owner in (task.arm, task.id.split(".")[0]) if owner]
    named = _NAMED.get(path[1]) if len(path) > 1 else None
    if named is not None:
        path = (named, *path[2:])
    for end in range(len(path), 0, -1):
        for start in range(1 if named is not None else end):
            tail = ".".join(path[start:end])
            for name in (*(f"{owner}.{tail}" for owner in owners), tail):
                if name in origins:
                    return origins[name]
    return next((origins[owner] for owner in owners if owner in origins), None)


def changed_inputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """The roles whose content differs, appeared or went."""
    before, after = old.get("inputs", {}), new.get("inputs", {})
    return tuple(role for role in {**before, **after} if before.get(role) != after.get(role))


def words(change: Difference) -> str:
    """A change in words: `optim.lr 5e-06 -> 1e-06`."""
    if change.path == "version":
        return f"its code changed, version {change.old} -> {change.new}"
    if change.path.endswith(".path"):
        return "the file it reads changed"
    old, new = brief(change.old), brief(change.new)
    return f"{change.name} changed" if old == new else f"{change.name} {old} -> {new}"


def brief(value: Any, room: int = 48) -> str:
    """A value in few characters: numbers in their shortest spelling, structures by their size."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:g}"
        case str():
            text = value if value and len(value) <= room else repr(value)
        case list():
            text = "[" + ", ".join(brief(item, room) for item in value) + "]"
            if len(text) > room:
                return f"{len(value)} values"
        case Mapping():
            kind = value.get("kind") or value.get("op")
            return str(kind) if kind else f"{len(value)} settings"
        case _:
            text = str(value)
    return text if len(text) <= room else text[: room - 1] + "…"


def _nested(items: list[Any]) -> bool:
    return any(isinstance(item, (Mapping, list)) for item in items)
