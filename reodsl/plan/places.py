"""Lines of the spec behind settings of tasks and their failures, and what differs between two materials of a result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from pydantic import ValidationError

from reodsl.diagnostics.model import Diagnostic, Label, Span
from reodsl.graph.task import ARMS, Graph, Task
from reodsl.ir import Origin, Spec
from reodsl.ir.reward import NamedValue
from reodsl.ir.reward_text import as_written, expression_text, let_names, value_text
from reodsl.ir.study import Arm, Suite
from reodsl.ir.training import Experiment, FromResults, FromTraining, Ppo, Source, Stage
from reodsl.ir.wording import Wording

Path = tuple[str, ...]

_SPELLED: Mapping[str, Path] = {
    "clip_low": ("clip", "low"),
    "clip_high": ("clip", "high"),
    "think_open": ("think", "open"),
    "think_close": ("think", "close"),
    "warmup_steps": ("warmup",),
    "sources": ("source",),
    "plateau": ("until",),
    "budgets": ("split", "budgets"),
    "low": ("budget",),
    "high": ("budget",),
    "prefixes": ("prefix",),
}
"""Names of payloads that a spec spells otherwise."""
_SETTING: Mapping[str, str] = {"suite": "eval", "model": "base"}
"""The setting of an experiment that names what stands in this part of a payload."""


class Places:
    """Lines of the spec that gave the settings of its tasks.

    Origins are named by declaration and setting (`reo_exp.optim.lr`, `easy_suite.samples`). Payloads put frames such as
    `stage` and `method` around a setting, and leave out the names of what is declared: those are looked up in the study.
    """

    def __init__(self, spec: Spec) -> None:
        """Index the declarations of `spec`, as it is compiled now."""
        self.study = spec.study.name
        self.arms = {arm.name: arm for arm in spec.study.arms}
        self.experiments = {each.name: each for arm in spec.study.arms for each in arm.checkpoint.experiments}
        # Origins have the experiment of an arm by the arm's name.
        self.also = {
            arm.checkpoint.experiment.name: arm.name
            for arm in spec.study.arms
            if isinstance(arm.checkpoint, FromTraining)
        }
        self.origins = spec.origins

    @cached_property
    def lines(self) -> dict[str, dict[Path, Origin]]:
        """Return the origins by their first part. A plan without old results never needs them."""
        lines: dict[str, dict[Path, Origin]] = {}
        for name, origin in self.origins.items():
            owner, *path = name.split(".")
            lines.setdefault(owner, {})[tuple(path)] = origin
        return lines

    def of(self, task: Task, path: Path) -> Origin | None:
        """Return the place of a part of the task's payload (`stage`, `optim`, `lr`), or of the nearest part around it."""
        origin = self._nearest(tuple(self._declared(task, path)), _spell_path(task, path))
        if origin is not None:
            return origin
        named = (_SETTING[path[0]],) if path and path[0] in _SETTING else ()
        lines = (self.lines.get(owner, {}) for owner in self._owners(task))
        return next((each[named] for each in lines if named in each), None)

    def let_names(self, task: Task) -> dict[str, str]:
        """Return what the spec calls the lets of the reward or selection in a task's payload."""
        for stage in _stages(task, self.experiments.get(task.arm or "")):
            if task.kind == "train" and isinstance(stage.method, Ppo):
                return let_names(stage.method.reward.lets)
            if task.kind == "select" and stage.selected is not None:
                return let_names(stage.selected.selection.lets)
        return {}

    def setting(self, arm: str, name: str) -> Origin | None:
        """Return where an arm's setting was given, by its name in a comparison (`eval.samples`, `optim.lr`)."""
        path, of_arm = tuple(name.split(".")), self.arms.get(arm)
        owners: list[Path] = [(arm,)]
        if of_arm is not None and path[0] == "eval":
            owners += _list_suite_paths(of_arm.suite)
        given = of_arm is not None and isinstance(of_arm.checkpoint, FromResults)
        if of_arm is not None and path[0] == "base" and len(path) > 1 and not given:
            # What an arm starts from is in its settings too, with all that was done for it.
            owners = _below(of_arm.checkpoint)[1:] or owners
        elif of_arm is not None and isinstance(of_arm.checkpoint, FromTraining):
            experiment = of_arm.checkpoint.experiment
            owners.append((experiment.name,))
            for stage in experiment.stages:
                owners += [(stage.data.name,)] if path[0] == "data" else _list_stage_paths(stage, path)
                if path[0] == "selected" and stage.selected is not None:
                    owners = [(arm, "data", "pool"), (arm, "data"), (arm,)]
                    owners = _below(stage.selected.pool.start) if "start" in path else owners
        return self._nearest(owners, path)

    def _nearest(self, owners: Sequence[Path], path: Path) -> Origin | None:
        """Return the origin of the path below the first owner that has one, or of the nearest part around it."""
        for end in range(len(path), 0, -1):
            for owner, *inner in owners:
                origin = self._within(owner, tuple(inner), path[:end], end == len(path))
                if origin is not None:
                    return origin
        return None

    def _within(self, owner: str, inner: Path, path: Path, whole: bool) -> Origin | None:
        """Return the longest origin below `owner.inner` that ends as the path does and has only parts of it.

        For a `whole` path a setting inside of it will do: a batch of traces is its number of prompts.
        """
        origins: list[tuple[bool, int, Origin]] = []
        for name, origin in self.lines.get(owner, {}).items():
            rest = name[len(inner) :]
            # The language's own defaults were given nowhere.
            if name[: len(inner)] != inner or not origin.path:
                continue
            if _ends(rest, path):
                origins.append((True, len(rest), origin))
            elif whole and _ends(rest[:-1], path):
                origins.append((False, len(rest), origin))
        return max(origins, key=lambda each: each[:2])[2] if origins else None

    def _declared(self, task: Task, path: Path) -> Iterator[Path]:
        """Yield what may have declared a part of the payload, the nearest first: names, and settings that hold it."""
        part, owners = path[0] if path else "", self._owners(task)
        arm, experiment = self.arms.get(task.arm or ""), self.experiments.get(task.arm or "")
        if task.kind in ("model", "data"):
            yield (task.id.split(".")[0],)
            return
        if part == "prefixes" or (part == "model" and "prompt" in path):
            yield from ((wording.name,) for wording in _list_wordings(task, arm, experiment))
        if part in _SETTING:
            yield from ((owner, _SETTING[part]) for owner in owners)
            if part == "suite" and arm is not None:
                yield from _list_suite_paths(arm.suite)
            start = (
                arm.checkpoint if arm is not None else experiment.start if experiment is not None else None
            )
            start = start.at if isinstance(start, FromResults) else start
            if part == "model" and start is not None:
                yield (start.model.name,)
            return
        if "verifier" in path or "grading" in path:
            # Data of unlike verifiers are one task's work, under the name of the first.
            yield from ((stage.data.name,) for stage in _stages(task, experiment))
        for stage in _stages(task, experiment) if task.kind == "train" else ():
            yield from ((owner, "stages", stage.name) for owner in owners if stage.name)
            yield from _list_stage_paths(stage, path)
        if task.kind in ("sample", "select"):
            yield from ((owner, "data", "pool") for owner in owners)
            yield from ((owner, "data") for owner in owners)
        if task.kind == "budgets":
            yield from ((owner, "reward", "dense", "split") for owner in owners)
        yield from ((owner,) for owner in owners)
        yield (self.study,)

    def _owners(self, task: Task) -> list[str]:
        """Return the experiment or arm of a task, by the names that it may have."""
        names = [name for name in (task.arm, task.id.split(".")[0]) if name]
        return list(dict.fromkeys((*names, *(self.also[name] for name in names if name in self.also))))


def _stages(task: Task, experiment: Experiment | None) -> tuple[Stage, ...]:
    """Return the stage that a task trains, or all that it may sample for."""
    if experiment is None:
        return ()
    return (experiment.stages[task.payload["index"]],) if task.kind == "train" else experiment.stages


def _list_suite_paths(suite: Suite) -> Iterator[Path]:
    """Yield the declarations that a suite names, and its own."""
    for benchmark in suite.benchmarks:
        yield (benchmark.data.name,)
        yield (benchmark.name,)
    if suite.forcing is not None:
        yield (suite.forcing.name,)
    yield from ((wording.name,) for wording in suite.wordings)
    yield (suite.name,)


def _list_stage_paths(stage: Stage, path: Path) -> Iterator[Path]:
    """Yield the declarations that a stage names and the path is about."""
    if isinstance(stage.method, Ppo):
        if "forcing" in path and stage.method.forcing is not None:
            yield (stage.method.forcing.name,)
        if "wordings" in path:
            yield from ((wording.name,) for wording in stage.method.wordings)


def _list_wordings(task: Task, arm: Arm | None, experiment: Experiment | None) -> Iterator[Wording]:
    """Yield the wordings over the prompt of the model that a task reads."""
    if task.kind == "evaluate" and arm is not None and arm.suite.wording is not None:
        yield arm.suite.wording
    if task.kind in ("sample", "select") and experiment is not None:
        for stage in experiment.stages:
            if stage.selected is not None:
                yield from stage.selected.pool.wordings


def _spell_path(task: Task, path: Path) -> Path:
    """Return the path as a spec spells it."""
    match task.kind, task.id.split(".")[1:2], path:
        case "sample", ["reference"], ("samples",):
            return ("reference_samples",)
        case "evaluate" | "sample", _, ("model", "prompt", "template"):
            # A wording's question is the template of the prompt that it makes.
            return (*path, "question")
        case _:
            return tuple(part for name in path for part in _SPELLED.get(name, (name,)))


def _below(start: Source) -> list[Path]:
    """Return the declarations behind a checkpoint, the last experiment first and the model at the end."""
    asked = start.at if isinstance(start, FromResults) else start
    models = [] if asked is None else [(asked.model.name,)]
    return [*((each.name,) for each in start.experiments), *models]


def _ends(parts: Path, path: Path) -> bool:
    """Return whether `parts` are some of the path's, in its order, with its last one."""
    rest = iter(path)
    return bool(parts) and parts[-1] == path[-1] and all(part in rest for part in parts)


_REWARD: Path = ("stage", "method", "reward")
_ABOUT: Mapping[tuple[str, str], Path] = {
    ("budgets", "E0429"): ("reward",),
    **{("data", code): ("data", "sources") for code in ("W0714", "W0716", "W0717")},
    **{("data", code): ("data", "duplicates") for code in ("W0807", "N0807")},
    **{("train", code): _REWARD for code in ("E0920", "E0922", "E0923", "E0924", "E0930", "E0932", "E0941")},
    ("train", "W0810"): _REWARD,
    ("evaluate", "W0810"): ("suite", "benchmarks"),
    ("train", "W0804"): ("stage", "data", "answer"),
    ("evaluate", "W0804"): ("suite", "benchmarks"),
    ("evaluate", "E0438"): ("base", "path"),
    **{("evaluate", code): ("model", "source") for code in ("E0833", "E0834", "W0809")},
    ("train", "E0926"): ("stage", "optim", "lr"),
    ("train", "E0929"): ("stage", "plateau"),
    ("train", "E0935"): ("stage", "method", "batch"),
    ("train", "E0936"): ("stage", "method", "mismatch_limit"),
    ("select", "E0934"): ("data",),
    ("select", "E0935"): ("data",),
}
"""The setting that a failure of a kind of task is about, as a path into its payload."""


def locate_failures(
    spec: Spec, graph: Graph, failed: Mapping[str, Iterable[Diagnostic]]
) -> dict[str, tuple[Diagnostic, ...]]:
    """Return the failures of tasks, each with the line of the setting that is to blame as its first place."""
    places = Places(spec)
    return {
        name: tuple(_locate_failure(spec, places, graph[name], each) for each in diagnostics)
        for name, diagnostics in failed.items()
    }


def _locate_failure(spec: Spec, places: Places, task: Task, diagnostic: Diagnostic) -> Diagnostic:
    path = _ABOUT.get((task.kind, diagnostic.code), ("base", "path") if task.kind == "results" else None)
    origin = places.of(task, path) if path is not None and not diagnostic.labels else None
    if origin is None:
        return diagnostic
    return replace(diagnostic, labels=(Label(line_of(spec, origin), "given here"),))


def line_of(spec: Spec, origin: Origin) -> Span:
    """Return the span of the whole line without blanks around it; its beginning if the file is not at hand."""
    lines = lines_of(spec, origin.path)
    text = lines[origin.line - 1] if origin.line <= len(lines) else ""
    begin = len(text) - len(text.lstrip()) + 1
    return Span(origin.path, origin.line, begin, origin.line, max(len(text.rstrip()) + 1, begin + 1))


def lines_of(spec: Spec, path: str) -> list[str]:
    """Return the lines of a file of the spec as places count them; one empty line if the file is not at hand."""
    return spec.sources.get(path, "").split("\n")


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
        """Return the setting's name in a spec, as far as the path determines it: `optim.lr`."""
        parts = self.path.split(".")
        if parts[0] == "payload":
            parts = parts[1:]
        while len(parts) > 1 and parts[0] in _FRAME:
            parts = parts[1:]
        return ".".join(parts)


def differences(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the smallest named parts in which two JSON values differ, as (path, old, new)."""
    whole = bool(path) and path[-1] in _WHOLE
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not whole:
        for key in [*old, *(key for key in new if key not in old)]:
            # Most parts are equal, and Python compares them without a call for each of theirs.
            if old.get(key) != new.get(key):
                yield from differences(old.get(key), new.get(key), (*path, str(key)))
    elif (
        isinstance(old, list)
        and isinstance(new, list)
        and len(old) == len(new)
        and any(isinstance(item, (Mapping, list)) for item in old)
        and not whole
    ):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*path, str(index)))
    elif old != new:
        yield path, old, new


def explain(
    task: Task, old: Mapping[str, Any], new: Mapping[str, Any], places: Places
) -> tuple[Difference, ...]:
    """Return the differences of two materials of a task without its inputs, whose changes are their own tasks'."""
    differing, now = [], places.let_names(task)
    was, is_ = _lets(old), _lets(new)
    # A let of before has the name of that in its place, or where there are more or fewer now, of one with its value.
    then = {
        one["name"]: now[two["name"]]
        for (at, one), (place, two) in product(enumerate(was), enumerate(is_))
        if (at == place if len(was) == len(is_) else one["value"] == two["value"]) and two["name"] in now
    }
    for part in ("version", "payload"):
        for path, before, after in differences(old.get(part), new.get(part), (part,)):
            origin = places.of(task, _inside(path, before, after)[1:]) if part == "payload" else None
            differing.append(
                Difference(".".join(path), _name_lets(before, then), _name_lets(after, now), origin)
            )
    return tuple(differing)


def _lets(given: Mapping[str, Any]) -> list[Any]:
    payload = given.get("payload", {})
    rule = payload.get("stage", {}).get("method", {}).get("reward") or payload.get("selection") or {}
    return list(rule.get("lets", ()))


def _name_lets(value: Any, names: Mapping[str, str]) -> Any:
    """Return a part of a payload in which lets have these names."""
    return json.loads(as_written(json.dumps(value), names)) if names else value


def _inside(path: tuple[str, ...], old: Any, new: Any) -> tuple[str, ...]:
    """Return the path of the first different part in what is one change: its parts have lines of their own."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return path
    first = next((inner for inner, _, _ in differences(old, new, (*path, ""))), path)
    return tuple(part for part in first if part)


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
        there = before.get("arms", ())
        other = [
            role for role, content in now.items() if role.startswith(f"{ARMS}:") and content not in there
        ]
        at = roles.index("arms")
        roles[at : at + 1] = other or ["arms"]
    return tuple(roles)


CHOSEN = {"frontier": ("frontier", "of"), "score": ("score", "arms"), "budgets": ("split", "rollouts")}
"""The setting that says which arms a kind of task reads."""
_BASE = "relative_to"


def compare_roles(
    task: Task, then: Mapping[str, str], now: Mapping[str, str], places: Places
) -> tuple[Difference, ...]:
    """Return the changes of which arms a task reads, and which one it compares with.

    `then` and `now` are digests of inputs by role: an arm by another name is the same arm.
    """
    before, after = (
        {role.partition(":")[2]: each for role, each in inputs.items() if role.startswith(f"{ARMS}:")}
        for inputs in (then, now)
    )
    if not before or task.kind not in CHOSEN:
        return ()
    changed: list[tuple[tuple[str, ...], Any, Any]] = []
    gone = [name for name in before if name not in after and before[name] not in after.values()]
    came = [name for name in after if name not in before and after[name] not in before.values()]
    if gone or came:
        changed.append((CHOSEN[task.kind], list(before), list(after)))
    old, new = (
        next((name for name, each in group.items() if each == inputs.get(_BASE)), None)
        for group, inputs in ((before, then), (after, now))
    )
    if old != new and then.get(_BASE) != now.get(_BASE) and (new is None or new in before):
        changed.append((("score", _BASE), old, new))
    return tuple(
        Difference(".".join(("payload", *path)), was, is_, places.of(task, path))
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
            given = [{"name": "", "value": value}]
        case [{"name": _, "value": {"op": _}}, *_]:
            given = value
        case _:
            return None
    try:
        lets = [NamedValue.model_validate(each) for each in given]
    except ValidationError:
        # An older version's, in a form that is gone.
        return None
    return "; ".join(
        f"{each.name} = {expression_text(each.value)}" if each.name else expression_text(each.value)
        for each in lets
    )


def shorten_to_difference(old: str, new: str) -> tuple[str, str]:
    """Shorten two texts to their different parts, if they are too long to show from their beginnings."""
    if max(len(old), len(new)) <= _ROOM:
        return old, new
    same = next(
        (at for at, (one, two) in enumerate(zip(old, new, strict=False)) if one != two),
        min(len(old), len(new)),
    )
    start = max(0, old.rfind(" ", 0, max(0, same - _ROOM // 4)) + 1)
    before = "…" if start else ""
    return before + _cut(old[start:]), before + _cut(new[start:])


_ROOM, _NARROW = 96, 48
"""Characters of an expression, and of another value."""


def _cut(text: str, room: int = _ROOM) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
