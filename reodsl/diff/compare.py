"""Compare two specs: the settings that differ, section by section, and the tasks that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reodsl.diff.settings import DERIVED, Sections, arm_settings, leaves, placed, stages_of, study_settings
from reodsl.graph.identity import identity, material
from reodsl.graph.task import Graph, Task
from reodsl.ir import Spec, canonical, digest
from reodsl.ir.study import Arm, Study

ABSENT = "\0absent"
"""Stands for a setting that one side does not have; never a value of a setting."""


@dataclass(frozen=True, slots=True)
class Row:
    """A setting that differs: its dotted name and both values, `ABSENT` where a side has none."""

    setting: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Same:
    """What is equal of a section: its name, its equal settings, and how many it has in all."""

    section: str
    settings: tuple[tuple[str, Any], ...]
    of: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Two arms, or two studies, of names `a` and `b`: what differs and what is the same."""

    a: str
    b: str
    rows: tuple[Row, ...]
    same: tuple[Same, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """Tasks by identity: shared ones as (id in A, id in B), and those of either side alone."""

    shared: tuple[tuple[str, str], ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference of two specs in meaning. Names for people, comments, order and units are no difference."""

    study: Compared
    arms: tuple[Compared, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    work: Work

    @property
    def different(self) -> bool:
        """Whether the two mean different things."""
        compared = (self.study, *self.arms)
        return bool(self.only_a or self.only_b) or any(each.rows for each in compared)


Payload = Callable[[Task], Mapping[str, Any]]


def compare(
    a: Spec,
    b: Spec,
    graph_a: Graph,
    graph_b: Graph,
    payload_a: Payload = identity,
    payload_b: Payload = identity,
) -> Diff:
    """The difference of two specs, given their graphs. `payload_…` say what a task's result depends on."""
    pairs = pair(a.study, b.study)
    renamed = {two.name: one.name for one, two in pairs}
    study = compared(
        a.study.name, b.study.name, study_settings(a.study), _renamed(study_settings(b.study), renamed)
    )
    arms = []
    for one, two in pairs:
        staged = max(stages_of(one.checkpoint), stages_of(two.checkpoint)) > 1
        # Arms that run where their studies do differ in nothing that the studies do not.
        placed_apart = placed(one) or placed(two)
        left, right = (
            arm_settings(arm, staged, study.cluster if placed_apart else None)
            for arm, study in ((one, a.study), (two, b.study))
        )
        difference = compared(one.name, two.name, left, _renamed(right, renamed))
        if one.name != two.name:
            rows = (Row("name", one.name, two.name), *difference.rows)
            difference = Compared(difference.a, difference.b, rows, difference.same)
        arms.append(difference)
    paired_a, paired_b = {one.name for one, _ in pairs}, {two.name for _, two in pairs}
    return Diff(
        study,
        tuple(arms),
        tuple(arm.name for arm in a.study.arms if arm.name not in paired_a),
        tuple(arm.name for arm in b.study.arms if arm.name not in paired_b),
        work(graph_a, graph_b, payload_a, payload_b),
    )


def pair(a: Study, b: Study) -> tuple[tuple[Arm, Arm], ...]:
    """Arms that are compared with each other.

    Those of one name; of the others those that mean the same; and the one trained arm that each side has left then.
    """
    there = {arm.name: arm for arm in b.arms}
    pairs = [(arm, there[arm.name]) for arm in a.arms if arm.name in there]
    taken = {arm.name for arm, _ in pairs}
    alike = {_meaning(arm): arm for arm in reversed(b.arms) if arm.name not in taken}
    for arm in a.arms:
        if arm.name not in taken and (twin := alike.pop(_meaning(arm), None)) is not None:
            pairs.append((arm, twin))
            taken |= {arm.name, twin.name}
    for trained in (True, False):
        left_a = [arm for arm in a.arms if arm.name not in taken and arm.trained == trained]
        left_b = [arm for arm in b.arms if arm.name not in taken and arm.trained == trained]
        if len(left_a) == len(left_b) == 1:
            pairs.append((left_a[0], left_b[0]))
    order = {arm.name: index for index, arm in enumerate(a.arms)}
    return tuple(sorted(pairs, key=lambda each: order[each[0].name]))


def _meaning(arm: Arm) -> str:
    """What an arm is, whatever it is called."""
    return digest({name: value for name, value in canonical(arm).items() if name != "name"})


def compared(name_a: str, name_b: str, a: Sections, b: Sections) -> Compared:
    """Sections side by side: rows where they differ, whole where they do not."""
    rows, same = [], []
    for section in dict.fromkeys([*a, *b]):
        left = dict(leaves(a[section], section)) if section in a else {}
        right = dict(leaves(b[section], section)) if section in b else {}
        equal: list[tuple[str, Any]] = []
        for setting in dict.fromkeys([*left, *right]):
            one, two = left.get(setting, ABSENT), right.get(setting, ABSENT)
            if one == two and type(one) is type(two):
                equal.append((setting, one))
            elif not (_lacks(setting, one, right) or _lacks(setting, two, left)):
                rows.append(Row(setting, one, two))
        if equal and section != DERIVED:
            same.append(Same(section, tuple(equal), len({*left, *right})))
    return Compared(name_a, name_b, tuple(rows), tuple(same))


def _lacks(setting: str, value: Any, other: Mapping[str, Any]) -> bool:
    """Whether a side has nothing where the other has parts of that setting, each with a row of its own."""
    return value in (None, []) and any(name.startswith(f"{setting}.") for name in other)


def work(a: Graph, b: Graph, payload_a: Payload = identity, payload_b: Payload = identity) -> Work:
    """Which tasks of two graphs are the same work, all that they stand on included."""
    left, right = fingerprints(a, payload_a), fingerprints(b, payload_b)
    there = {mark: name for name, mark in right.items()}
    shared = tuple((name, there[mark]) for name, mark in left.items() if mark in there)
    marks = set(left.values())
    return Work(
        shared,
        tuple(name for name, mark in left.items() if mark not in there),
        tuple(name for name, mark in right.items() if mark not in marks),
    )


def fingerprints(graph: Graph, payload: Payload = identity) -> dict[str, str]:
    """For every task the digest of what its result depends on, down to the first input."""
    digests: dict[str, str] = {}
    for task in graph.tasks:
        inputs = {role: digests[source] for role, source in task.inputs.items()}
        digests[task.id] = digest(material(task, payload(task), inputs))
    return digests


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """References to arms by the names that the other side has for them."""
    if not any(old != new for old, new in names.items()):
        return value
    return {key: _references(key, item, names) for key, item in value.items()}


_REFERENCES = frozenset({"of", "rows", "lines", "relative_to", "rollouts"})


def _references(key: str, value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _references(name, item, names) for name, item in value.items()}
    if key in _REFERENCES and isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        if key in _REFERENCES and all(isinstance(item, str) for item in value):
            return [names.get(item, item) for item in value]
        return [_references("", item, names) for item in value]
    return value
