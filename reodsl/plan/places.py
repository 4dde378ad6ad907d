"""Lines of the spec behind settings of tasks and their failures, and what differs between two materials of a result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from pydantic import ValidationError

from reodsl.diagnostics.model import Diagnostic, Label, Span
from reodsl.graph.task import ARMS, Graph, Task
from reodsl.ir import IR, Origin, Spec
from reodsl.ir.reward import NamedValue
from reodsl.ir.reward_text import as_written, expression_text, let_names, value_text
from reodsl.ir.training import Ppo

Path = tuple[str, ...]


def find_place(task: Task, path: Path) -> Origin | None:
    """Return the line that gave a part of a task's work (`stage`, `optim`, `lr`), or the nearest part around it."""
    value: Any = task.work
    origin = declared = None
    for name in path:
        if isinstance(value, IR):
            origin, declared = value.given_at.get(name, origin), value.given_at.get("", declared)
            value = getattr(value, name, None)
        elif isinstance(value, tuple):
            value = value[int(name)] if int(name) < len(value) else None
        else:
            origin = task.given_at.get(name) or origin
            value = value.get(name) if isinstance(value, Mapping) else None
    return origin or (value.given_at.get("", declared) if isinstance(value, IR) else declared)


def _let_names(task: Task) -> dict[str, str]:
    """Return what the spec calls the lets of the reward or selection in a task's work."""
    stage = task.work.get("stage")
    rule = stage.method.reward if stage is not None and isinstance(stage.method, Ppo) else None
    rule = rule or task.work.get("selection")
    return {} if rule is None else let_names(rule.lets)


_REWARD: Path = ("stage", "method", "reward")
_ABOUT: Mapping[tuple[str, str], Path] = {
    ("budgets", "E0405"): ("split",),
    **{("data", code): ("data", "sources") for code in ("W0714", "W0716")},
    **{("data", code): ("data", "duplicates") for code in ("W0807", "N0807")},
    **{("train", code): _REWARD for code in ("E0920", "E0922", "E0505", "E0405", "E0941")},
    ("train", "W0810"): _REWARD,
    ("evaluate", "W0810"): ("suite", "benchmarks"),
    ("train", "W0804"): ("stage", "data", "answer"),
    ("evaluate", "W0804"): ("suite", "benchmarks"),
    ("evaluate", "E0438"): ("base", "path"),
    **{
        (kind, code): ("model", "source")
        for kind in ("train", "sample", "evaluate")
        for code in ("E0812", "E0833", "E0834", "W0809")
    },
    ("train", "E0926"): ("stage", "optim", "lr"),
    ("train", "E0314"): ("stage", "plateau"),
    ("train", "E0513"): ("stage", "method", "batch"),
    ("train", "E0936"): ("stage", "method", "mismatch_limit"),
    ("select", "E0316"): ("selection",),
    ("select", "E0513"): ("selection",),
}
"""The setting that a failure of a kind of task is about, as a path into its payload."""


def locate_failures(
    spec: Spec, graph: Graph, failed: Mapping[str, Iterable[Diagnostic]]
) -> dict[str, tuple[Diagnostic, ...]]:
    """Return the failures of tasks, each with the line of the setting that is to blame as its first place."""
    return {
        name: tuple(_locate_failure(spec, graph[name], diagnostic) for diagnostic in diagnostics)
        for name, diagnostics in failed.items()
    }


def _locate_failure(spec: Spec, task: Task, diagnostic: Diagnostic) -> Diagnostic:
    path = _ABOUT.get((task.kind, diagnostic.code), ("base", "path") if task.kind == "results" else None)
    origin = find_place(task, path) if path is not None and not diagnostic.labels else None
    if origin is None:
        return diagnostic
    return replace(diagnostic, labels=(Label(line_of(spec, origin), "given here"),))


def line_of(spec: Spec, origin: Origin) -> Span:
    """Return the span of a line without blanks around it; its beginning if the file is not available."""
    lines = lines_of(spec, origin.path)
    text = lines[origin.line - 1] if origin.line <= len(lines) else ""
    begin = len(text) - len(text.lstrip()) + 1
    return Span(origin.path, origin.line, begin, origin.line, max(len(text.rstrip()) + 1, begin + 1))


def lines_of(spec: Spec, path: str) -> list[str]:
    """Return the lines of a file of the spec; a single empty line if the file is not available."""
    return spec.sources.get(path, "").split("\n")


# Below these a difference is one change: their parts have no names that a spec's author wrote.
_WHOLE = {"outcome", "lets", "value", "task", "traces", "tokenizer"}
_FRAME = {"stage", "method", "spec", "study", "suite", "frontier", "split", "score", "data", "model"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that differs between two materials."""

    path: str
    """Dotted path in the material."""
    old: Any
    """Old value; None if absent."""
    new: Any
    """New value; None if absent."""
    origin: Origin | None = None
    """Line that sets it."""

    @property
    def name(self) -> str:
        """Return the setting's name in a spec, as far as the path determines it: `optim.lr`."""
        parts = self.path.split(".")
        if parts[0] == "payload":
            parts = parts[1:]
        while len(parts) > 1 and parts[0] in _FRAME:
            parts = parts[1:]
        return ".".join(parts).removesuffix(".outcome")


def differences(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the smallest named parts in which two JSON values differ, as (path, old, new)."""
    is_leaf = bool(path) and path[-1] in _WHOLE
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not is_leaf:
        for key in [*old, *(key for key in new if key not in old)]:
            # Most parts are equal, and Python compares them without a call for each of theirs.
            if old.get(key) != new.get(key):
                yield from differences(old.get(key), new.get(key), (*path, str(key)))
    elif (
        isinstance(old, list)
        and isinstance(new, list)
        and len(old) == len(new)
        and any(isinstance(item, (Mapping, list)) for item in old)
        and not is_leaf
    ):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*path, str(index)))
    elif old != new:
        yield path, old, new


def explain(task: Task, old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the differences of two materials of a task without its inputs, whose changes are their own tasks'."""
    differing, new_names = [], _let_names(task)
    old_lets, new_lets = _lets(old), _lets(new)
    # An old let takes the name of the new let at its position or, if their number changed, of the new let with its value.
    old_names = {
        old_let["name"]: new_names[new_let["name"]]
        for (i, old_let), (j, new_let) in product(enumerate(old_lets), enumerate(new_lets))
        if (i == j if len(old_lets) == len(new_lets) else old_let["value"] == new_let["value"])
        and new_let["name"] in new_names
    }
    for section in ("version", "payload"):
        for path, before, after in differences(old.get(section), new.get(section), (section,)):
            origin = find_place(task, _inside(path, before, after)[1:]) if section == "payload" else None
            differing.append(
                Difference(
                    ".".join(path), _name_lets(before, old_names), _name_lets(after, new_names), origin
                )
            )
    return tuple(differing)


def _lets(material: Mapping[str, Any]) -> list[Any]:
    payload = material.get("payload", {})
    rule = payload.get("stage", {}).get("method", {}).get("reward") or payload.get("selection") or {}
    return list(rule.get("lets", ()))


def _name_lets(value: Any, names: Mapping[str, str]) -> Any:
    """Return a part of a payload in which lets have these names."""
    return json.loads(as_written(json.dumps(value), names)) if names else value


def _inside(path: tuple[str, ...], old: Any, new: Any) -> tuple[str, ...]:
    """Return the path of the first difference in a value whose elements have lines of their own."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return path
    first = next((inner for inner, _, _ in differences(old, new, (*path, ""))), path)
    return tuple(name for name in first if name)


def list_changed_inputs(
    old: Mapping[str, Any], new: Mapping[str, Any], now: Mapping[str, str] = {}
) -> tuple[str, ...]:
    """Return the roles whose content differs, appeared or went.

    `now` is the content of every role, from which new arms are named; without it, and if arms only went, the role
    is `arms`.
    """
    before, after = old.get("inputs", {}), new.get("inputs", {})
    roles = [role for role in {**before, **after} if before.get(role) != after.get(role)]
    if "arms" in roles:
        old_arms = before.get("arms", ())
        other = [
            role for role, content in now.items() if role.startswith(f"{ARMS}:") and content not in old_arms
        ]
        position = roles.index("arms")
        roles[position : position + 1] = other or ["arms"]
    return tuple(roles)


CHOSEN = {"frontier": ("frontier", "of"), "score": ("score", "arms"), "budgets": ("split", "rollouts")}
"""The setting that says which arms a kind of task reads."""
_BASE = "relative_to"


def compare_roles(
    task: Task, old_contents: Mapping[str, str], new_contents: Mapping[str, str]
) -> tuple[Difference, ...]:
    """Return the changes in which arms a task reads, and in the arm that it compares with."""
    before, after = (
        {role.partition(":")[2]: content for role, content in inputs.items() if role.startswith(f"{ARMS}:")}
        for inputs in (old_contents, new_contents)
    )
    if not before or task.kind not in CHOSEN:
        return ()
    changed: list[tuple[tuple[str, ...], Any, Any]] = []
    removed = [name for name in before if name not in after and before[name] not in after.values()]
    added = [name for name in after if name not in before and after[name] not in before.values()]
    if removed or added:
        changed.append((CHOSEN[task.kind], list(before), list(after)))
    old, new = (
        next((name for name, content in group.items() if content == inputs.get(_BASE)), None)
        for group, inputs in ((before, old_contents), (after, new_contents))
    )
    if old != new and old_contents.get(_BASE) != new_contents.get(_BASE) and (new is None or new in before):
        changed.append((("score", _BASE), old, new))
    return tuple(
        Difference(".".join(("payload", *path)), was, is_, find_place(task, path))
        for path, was, is_ in changed
    )


def words(change: Difference) -> str:
    """Describe a change: `optim.lr 5e-6 -> 1e-6`."""
    if change.path == "version":
        return f"its code changed, version {change.old} -> {change.new}"
    if change.path.endswith(".path"):
        return "the file it reads changed"
    was, is_ = format_expression(change.old), format_expression(change.new)
    if was is not None and is_ is not None:
        old, new = shorten_to_difference(was, is_)
    else:
        old = _cut(value_text(change.name, change.old), _NARROW) if was is None else _cut(was)
        new = _cut(value_text(change.name, change.new), _NARROW) if is_ is None else _cut(is_)
    return f"{change.name} changed" if old == new else f"{change.name} {old} -> {new}"


def format_expression(value: Any) -> str | None:
    """Format an expression of a reward, or its `let`s, as in a spec; None for anything else."""
    match value:
        case {"op": _}:
            pairs = [{"name": "", "value": value}]
        case [{"name": _, "value": {"op": _}}, *_]:
            pairs = value
        case _:
            return None
    try:
        lets = [NamedValue.model_validate(pair) for pair in pairs]
    except ValidationError:
        # An older version's, in a form that is gone.
        return None
    return "; ".join(
        f"{pair.name} = {expression_text(pair.value)}" if pair.name else expression_text(pair.value)
        for pair in lets
    )


def shorten_to_difference(old: str, new: str) -> tuple[str, str]:
    """Shorten two texts to their different parts, if they are too long to show from their beginnings."""
    if max(len(old), len(new)) <= _ROOM:
        return old, new
    same = next(
        (
            i
            for i, (old_letter, new_letter) in enumerate(zip(old, new, strict=False))
            if old_letter != new_letter
        ),
        min(len(old), len(new)),
    )
    start = max(0, old.rfind(" ", 0, max(0, same - _ROOM // 4)) + 1)
    before = "…" if start else ""
    return before + _cut(old[start:]), before + _cut(new[start:])


_ROOM, _NARROW = 96, 48
"""Characters of an expression, and of another value."""


def _cut(text: str, room: int = _ROOM) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
