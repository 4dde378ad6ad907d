"""Find the lines of a spec behind tasks' settings and failures, and the differences between two results' materials."""

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
"""Names that lead to a setting in a task's work, such as `("stage", "optim", "lr")`."""


def find_place(task: Task, path: Path) -> Origin | None:
    """Return the line of the spec that sets a value in a task's work (the values of the spec that the task needs).

    Args:
        task: The task.
        path: The names that lead to the value, from the outermost.

    Returns:
        The line of the value. If it is not known, the line that sets the nearest value around it; else the line of
        the nearest declaration; else None. In the code, `declared` is the line of the declaration.
    """
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
    """Return the names in the spec of the `let`s of a task's reward or selection, as `let_names` returns them."""
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
"""The setting that a failure is about, by the kind of task and the code of the failure."""


def locate_failures(
    spec: Spec, graph: Graph, failed: Mapping[str, Iterable[Diagnostic]]
) -> dict[str, tuple[Diagnostic, ...]]:
    """Return the failures of tasks with the lines of the settings that they are about.

    Args:
        spec: The spec, which has the texts of its files.
        graph: The graph of the tasks.
        failed: The failures of each failed task, by task id.

    Returns:
        The same failures by task id; a failure without a label has one at the line of its setting, if known.
    """
    return {
        name: tuple(_locate_failure(spec, graph[name], diagnostic) for diagnostic in diagnostics)
        for name, diagnostics in failed.items()
    }


def _locate_failure(spec: Spec, task: Task, diagnostic: Diagnostic) -> Diagnostic:
    """Return a failure of a task with a label at the setting that it is about, if it has no label yet."""
    path = _ABOUT.get((task.kind, diagnostic.code), ("base", "path") if task.kind == "results" else None)
    origin = find_place(task, path) if path is not None and not diagnostic.labels else None
    if origin is None:
        return diagnostic
    return replace(diagnostic, labels=(Label(line_of(spec, origin), "given here"),))


def line_of(spec: Spec, origin: Origin) -> Span:
    """Return the span of a line of a spec, without leading and trailing blanks.

    If the text of the file is not available, the span is the first column of the line.
    """
    lines = lines_of(spec, origin.path)
    text = lines[origin.line - 1] if origin.line <= len(lines) else ""
    begin = len(text) - len(text.lstrip()) + 1
    return Span(origin.path, origin.line, begin, origin.line, max(len(text.rstrip()) + 1, begin + 1))


def lines_of(spec: Spec, path: str) -> list[str]:
    """Return the lines of a file of the spec; a single empty line if the file is not available."""
    return spec.sources.get(path, "").split("\n")


# Values that are shown as one change: what is inside them has no names that a spec's author wrote.
_WHOLE = {"outcome", "lets", "value", "task", "traces", "tokenizer"}
# Names that are left out at the beginning of a setting's path.
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
        """Return the name of the setting as a spec writes it, such as `optim.lr` for `payload.stage.optim.lr`."""
        names = self.path.split(".")
        if names[0] == "payload":
            names = names[1:]
        while len(names) > 1 and names[0] in _FRAME:
            names = names[1:]
        return ".".join(names).removesuffix(".outcome")


def differences(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the differences between two JSON values, at the innermost settings that a spec's author knows.

    Objects are compared key by key. Lists of equal length that contain objects or lists are compared item by item.
    All other values are compared as a whole, and so are the values of names in `_WHOLE`, such as formulas.

    Args:
        old: The old value.
        new: The new value.
        path: The path of the two values, which begins the paths of their differences.

    Yields:
        (path, old value or None, new value or None).
    """
    is_leaf = bool(path) and path[-1] in _WHOLE
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not is_leaf:
        for key in [*old, *(key for key in new if key not in old)]:
            # Most values are equal, which one comparison shows faster than a recursive call.
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
    """Return the settings of a task that differ between two materials, and a change of the code's version.

    The material of a result is everything that the result depends on. Its inputs are not compared here, since their
    changes are differences of other tasks. Formulas are shown with the names that `let`s have in the spec.

    Args:
        task: The task as it is now.
        old: The material of an old result, as `reodsl.graph.task.material` returns it.
        new: The material of the new result.
    """
    differing, new_names = [], _let_names(task)
    old_lets, new_lets = _list_lets(old), _list_lets(new)
    # Match old and new lets by their positions, or by their values if the number of lets changed.
    old_names = {
        old_let["name"]: new_names[new_let["name"]]
        for (i, old_let), (j, new_let) in product(enumerate(old_lets), enumerate(new_lets))
        if (i == j if len(old_lets) == len(new_lets) else old_let["value"] == new_let["value"])
        and new_let["name"] in new_names
    }
    for section in ("version", "payload"):
        for path, before, after in differences(old.get(section), new.get(section), (section,)):
            origin = find_place(task, _find_first(path, before, after)[1:]) if section == "payload" else None
            differing.append(
                Difference(
                    ".".join(path), _name_lets(before, old_names), _name_lets(after, new_names), origin
                )
            )
    return tuple(differing)


def _list_lets(material: Mapping[str, Any]) -> list[Any]:
    """Return the `let`s of the reward or selection in a material, as JSON data."""
    payload = material.get("payload", {})
    rule = payload.get("stage", {}).get("method", {}).get("reward") or payload.get("selection") or {}
    return list(rule.get("lets", ()))


def _name_lets(value: Any, names: Mapping[str, str]) -> Any:
    """Return JSON data in which `let`s have the names in a spec.

    Args:
        value: The data, with names such as `let1`.
        names: The names in the spec, by those in the data.
    """
    return json.loads(as_written(json.dumps(value), names)) if names else value


def _find_first(path: tuple[str, ...], old: Any, new: Any) -> tuple[str, ...]:
    """Return the path of the first value that differs inside two JSON objects, to find its line in the spec.

    Formulas, which other functions compare as a whole, are searched too.

    Args:
        path: The path of the two values. It is the result if one of them is not an object.
        old: The old value.
        new: The new value.
    """
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return path
    first = next((inner for inner, _, _ in differences(old, new, (*path, ""))), path)
    return tuple(name for name in first if name)


def list_changed_inputs(
    old: Mapping[str, Any], new: Mapping[str, Any], now: Mapping[str, str] = {}
) -> tuple[str, ...]:
    """Return the roles of inputs that were added or removed, or whose content changed.

    A role is the name under which a task reads an input, such as `data`. In a material, all arms have the common
    role `arms`, with a list of their contents. If the list changed, the role `arms` is replaced by the roles
    `arm:NAME` of arms with new content.

    Args:
        old: The material of an old result, which is everything that the result depends on.
        new: The material of the new result.
        now: A digest of the present content of each input, by role; it tells which arms changed. If it is empty, or
            if arms were only removed, `arms` stays in the result.
    """
    before, after = old.get("inputs", {}), new.get("inputs", {})
    roles = [role for role in {**before, **after} if before.get(role) != after.get(role)]
    if "arms" in roles:
        old_arms = before.get("arms", ())
        new_arms = [
            role for role, content in now.items() if role.startswith(f"{ARMS}:") and content not in old_arms
        ]
        position = roles.index("arms")
        roles[position : position + 1] = new_arms or ["arms"]
    return tuple(roles)


CHOSEN = {"frontier": ("frontier", "of"), "score": ("score", "arms"), "budgets": ("split", "rollouts")}
"""The setting that names the arms, by the kind of task that reads them."""
_BASE = "relative_to"
"""The role of the baseline."""


def compare_roles(
    task: Task, old_contents: Mapping[str, str], new_contents: Mapping[str, str]
) -> tuple[Difference, ...]:
    """Return the changes of the set of arms that a task reads, and of its baseline.

    An arm was added or removed if both its name and its content are new or gone. An arm that was only renamed, or
    whose result only changed, is not a change here. The result is empty for a task that reads no arms.

    Args:
        task: The task as it is now.
        old_contents: A digest of the content of each input of an old result, by role (`arm:NAME`, `relative_to`).
        new_contents: A digest of the content of each input now, by role.
    """
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
        Difference(".".join(("payload", *path)), was, now, find_place(task, path))
        for path, was, now in changed
    )


def words(change: Difference) -> str:
    """Return a change in words, for the reason of a verdict: `optim.lr 5e-6 -> 1e-6`.

    Long formulas are shortened to their first difference. If the shortened texts are equal, the result only says
    that the setting changed.
    """
    if change.path == "version":
        return f"its code changed, version {change.old} -> {change.new}"
    if change.path.endswith(".path"):
        return "the file it reads changed"
    old_formula, new_formula = format_expression(change.old), format_expression(change.new)
    if old_formula is not None and new_formula is not None:
        old, new = shorten_to_difference(old_formula, new_formula)
    else:
        old = _clip(old_formula or value_text(change.name, change.old), _LONGEST if old_formula else _NARROW)
        new = _clip(new_formula or value_text(change.name, change.new), _LONGEST if new_formula else _NARROW)
    return f"{change.name} changed" if old == new else f"{change.name} {old} -> {new}"


def format_expression(value: Any) -> str | None:
    """Return an expression of a reward, or a list of `let`s, as a spec writes it.

    Args:
        value: JSON data of a task's payload.

    Returns:
        The text; None for other data, and for a form of an older version.
    """
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
        # An older version wrote it in a form that no longer exists.
        return None
    return "; ".join(
        f"{pair.name} = {expression_text(pair.value)}" if pair.name else expression_text(pair.value)
        for pair in lets
    )


def shorten_to_difference(old: str, new: str) -> tuple[str, str]:
    """Return two texts, shortened around their first difference if one is longer than `_LONGEST` characters.

    Each shortened text begins at a word a little before the first difference. An ellipsis marks what was left out.
    """
    if max(len(old), len(new)) <= _LONGEST:
        return old, new
    num_equal = next(
        (
            i
            for i, (old_letter, new_letter) in enumerate(zip(old, new, strict=False))
            if old_letter != new_letter
        ),
        min(len(old), len(new)),
    )
    start = max(0, old.rfind(" ", 0, max(0, num_equal - _LONGEST // 4)) + 1)
    before = "…" if start else ""
    return before + _clip(old[start:]), before + _clip(new[start:])


_LONGEST, _NARROW = 96, 48
"""The most characters that are shown of an expression, and of another value."""


def _clip(text: str, longest: int = _LONGEST) -> str:
    """Return a text of at most `longest` characters; a longer text ends with an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
