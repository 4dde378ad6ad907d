"""Every field of the IR: a change to it reruns the tasks that depend on it and those after them, and nothing else."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import Graph, identity, material
from reodsl.ir import IR, Origin, Spec, digest
from reodsl.ir.base import Node
from reodsl.ir.model import Dimensions, ServedModel
from tests.graph import studies as make
from tests.graph.everything import classes, everything, nodes, notes, updated
from tests.sampled import slow_but

SPEC = everything()
GRAPH = lower(SPEC)

# What a field of a part of a study is for, where nothing else is said below. The report shows everything.
KINDS = {
    "spec": "", "study": "", "shown": "", "model": "model", "data": "data", "held": "data",
    "stage": "train", "pool": "sample", "selection": "select", "suite": "evaluate",
    "frontier": "frontier", "score": "score", "measured": "measure",
}  # fmt: skip
BUT = {
    # What reads a checkpoint sees how long it may be and how it is asked; what makes it does not.
    "model Model.context": "model train sample evaluate",
    "model Model.think_open": "model train sample evaluate",
    "model Model.think_close": "model train sample evaluate",
    "model Model.precision": "train sample evaluate",
    "model Prompt.kind": "train sample evaluate",
    "model Prompt.template": "train sample evaluate",
    "model Prompt.prefix": "train sample evaluate",
    "model Prompt.system": "train sample",  # the suite's wording has its own
    # Answers are graded where they are given.
    **{
        f"{part} {field}": kind
        for part, kind in (("data", "train"), ("held", "sample evaluate"))
        for field in (
            "Data.verifier",
            "Data.answer",
            "Data.tolerance",
            "Data.thinking",
            "After.marker",
            "Regex.pattern",
        )
    },
    # What reads a file's texts looks for the marks as well, and asks of `math` alone that they are answers.
    "held After.marker": "data sample evaluate",
    "held Data.verifier": "data sample evaluate",
    "data Chance.of": "train",
    **{f"data Python.{field}": "train" for field in ("function", "batch", "seconds", "memory")},
    **{f"data Tests.{field}": "train" for field in ("seconds", "memory")},
    # Samples that a reward refers to are drawn as the stage draws.
    "stage Ppo.reference_samples": "train sample",
    "stage Sampling.max_tokens": "train sample",
    "stage Sampling.temperature": "train sample",
    "stage Sampling.top_p": "train sample",
    "stage Sampling.top_k": "train sample",
    "stage Sampling.solution": "train sample",
    "stage Sampling.ending": "train sample",
    # Samples that a suite's wordings refer to are drawn as the suite draws.
    **{
        f"suite {name}": "sample evaluate"
        for name in (
            "Suite.seed",
            "Suite.reference_samples",
            "Sampling.max_tokens",
            "Sampling.temperature",
            "Sampling.top_p",
            "Sampling.top_k",
            "Sampling.solution",
            "Sampling.ending",
        )
    },
    # Without it, a model that no seed changes is evaluated once.
    "suite Suite.reference": "evaluate score measure",
    # Budgets are found by a task of their own; on what, is which tasks it reads.
    "stage OracleBudgets.n": "budgets train",
    "stage OracleBudgets.l_max": "budgets train",
    "stage OracleBudgets.step": "budgets train",
    "stage OracleBudgets.frontier": "budgets",
    "stage QuestionBudgets.l_max": "budgets train",
    "stage QuestionBudgets.unsolved": "budgets train",
    "stage QuestionBudgets.rollouts": "budgets",
    "pool Pool.samples": "sample select",
    "pool Pool.wordings": "select",
    "pool Wording.prefix": "sample select",
    # Engines draw from streams of their own, so everything that samples depends on which.
    "study Study.engine": "train sample evaluate",
    # Which tasks there are.
    "study Study.arms": "score measure",
    "study Study.score": "measure",
    **{f"score Score.{name}": "score measure" for name in ("relative_to", "confidence")},
    **{f"study FromResults.{name}": "results" for name in ("path", "of")},
    "study FromResults.at": "score measure",
    "study FromTraining.stage": "train sample evaluate",
    # One copies its tokenizer, and the other asks it; what of it is part of a result is told in tests/own/test_addresses.py.
    **{
        f"model ServedModel.{name}": "model evaluate"
        for name in ServedModel.model_fields
        if name not in ("kind", "tokenizer")
    },
    # For pricing, for the machine, and for saving.
    "model Model.dimensions": "",
    **{f"model Dimensions.{name}": "" for name in Dimensions.model_fields},
    "data Data.questions": "",
    "held Data.questions": "",
    "stage Stage.save_every": "",
    "stage Stage.expected_length": "",
    "stage Stage.microbatch": "",
    "stage Stage.checkpointing": "",
    "stage Optimizer.on": "",
    "stage Ppo.mismatch_limit": "",
    "suite Suite.expected_length": "",
    # A suite and a pool ask every question alike, without a budget in it; checks hold that.
    **{f"{part} Wording.{name}": "" for part in ("suite", "pool") for name in ("budgets", "low", "high")},
    # Which questions a wording is for, a stage asks alone.
    **{
        f"{part} {field}": ""
        for part in ("suite", "pool")
        for field in ("Wording.when", "Wording.share", "Constant.value")
    },
    "suite Suite.reg_to": "",  # the score has its own
}
ELSEWHERE = {"study Arm.name", "frontier Frontier.name", "study Experiment.stages"}
# Names that refer to something, and what else there is to refer to.
OTHERS = {"edge": "other", "arm base": "arm vanilla"}
DROPPED = object()
"""Stands for None as the other value of a field that may be absent."""


def fields() -> dict[str, tuple[str, IR | Node, str]]:
    """`part Class.field` of all that the spec holds: the part, a value of the class, and the field."""
    found: dict[str, tuple[str, IR | Node, str]] = {}
    for part, node in nodes(SPEC):
        for name in notes(type(node)):
            if getattr(node, name) not in (None, (), {}):
                found.setdefault(f"{part} {type(node).__name__}.{name}", (part, node, name))
    return found


FIELDS = fields()


def test_no_field_of_any_class_is_left_out() -> None:
    there = {field.split(" ")[1] for field in FIELDS}
    wanted = {f"{kind.__name__}.{name}" for kind in classes() for name in notes(kind)}
    assert wanted - there == set(), "give these a value in everything.py"
    assert set(BUT) <= set(FIELDS)


def words_of(note: Any) -> tuple[Any, ...]:
    """The words that a field may be, where it is one of some; other values that it may have do not count."""
    options = (note, *get_args(note))
    return next((get_args(each) for each in options if get_origin(each) is Literal), ())


def changed(node: IR | Node, name: str) -> Any:
    """Another value for a field; None where only the fields of what it holds can change."""
    value, note = getattr(node, name), notes(type(node))[name]
    match value:
        case bool():
            return not value
        case int() | float():
            return value - 1 if name == "stage" else value + 1
        case str() if words_of(note):
            return next((item for item in words_of(note) if item != value), None)
        case str():
            return OTHERS.get(value, value + "!")
        case dict():
            return {**value, "b": next(iter(value.values()))}
        case tuple() if Ellipsis not in get_args(note):
            return (*value[:-1], value[-1] + 1)
        case tuple() if len(value) > 1:
            return value[:-1]
        case IR() | Node() if type(None) in get_args(note):
            return DROPPED
    return None


def replaced(value: Any, old: IR | Node, new: IR | Node) -> Any:
    """`value` with every part that is equal to `old` replaced, as when a declaration is edited that others name."""
    # What several parts hold is one object, which is looked at once.
    seen: dict[int, Any] = {}

    def again(value: Any) -> Any:
        if not isinstance(value, (IR, Node, tuple)):
            return value
        if id(value) not in seen:
            seen[id(value)] = made(value)
        return seen[id(value)]

    def made(value: IR | Node | tuple[Any, ...]) -> Any:
        if type(value) is type(old) and value == old:
            return new
        if isinstance(value, tuple):
            items = tuple(map(again, value))
            return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
        parts = {name: getattr(value, name) for name in notes(type(value))}
        moved = {name: each for name, part in parts.items() if (each := again(part)) is not part}
        return updated(value, **moved) if moved else value

    return again(value)


def own(graph: Graph) -> dict[str, str]:
    """For every task the digest of what it does and of which tasks it reads."""
    return {
        task.id: digest({"kind": task.kind, "payload": identity(task), "inputs": task.inputs})
        for task in graph.tasks
    }


def whole(graph: Graph) -> dict[str, str]:
    """For every task the digest of what it does and of all that it stands on."""
    found: dict[str, str] = {}
    for task in graph.tasks:
        inputs = {role: found[source] for role, source in task.inputs.items()}
        found[task.id] = digest(material(task, identity(task), inputs))
    return found


OWN, WHOLE = own(GRAPH), whole(GRAPH)


def without(spec: Spec, node: IR | Node, name: str) -> Graph:
    """The graph of the spec with a field changed wherever its value stands."""
    new = changed(node, name)
    return lower(replaced(spec, node, updated(node, **{name: None if new is DROPPED else new})))


MATTERS = [field for field, (_, node, name) in FIELDS.items() if name not in type(node).presentation
           and field not in ELSEWHERE and changed(node, name) is not None]  # fmt: skip
SHOWN = [field for field, (_, node, name) in FIELDS.items() if name in type(node).presentation]


def reruns(graph: Graph) -> set[str]:
    """The tasks of a graph that a store with all results of the first one does not have."""
    known = set(WHOLE.values())
    return {name for name, mark in whole(graph).items() if mark not in known}


@pytest.mark.parametrize("field", slow_but(MATTERS[::60], MATTERS))
def test_a_change_reruns_its_tasks_and_those_after_them_alone(field: str) -> None:
    part, node, name = FIELDS[field]
    graph = without(SPEC, node, name)
    now = own(graph)
    direct = {task for task in now if task not in OWN or now[task] != OWN[task]}
    kinds = {graph[task].kind for task in direct if task in OWN}
    shown = set() if isinstance(node, Origin) else {"report"}
    assert kinds == set(BUT.get(field, KINDS[part]).split()) | shown
    assert reruns(graph) == make.below(graph, direct)


@pytest.mark.parametrize("field", SHOWN)
def test_a_name_or_a_place_reruns_what_shows_it_at_most(field: str) -> None:
    _, node, name = FIELDS[field]
    hidden = {"spec Spec.path", "spec Spec.folder", "spec Spec.origins", "spec Spec.sources"}
    assert reruns(without(SPEC, node, name)) == (set() if field in hidden else {"report"})


def renamed(value: Any, old: str, new: str) -> Any:
    """The value with a text replaced wherever it stands."""
    if isinstance(value, (IR, Node)):
        return updated(
            value, **{name: renamed(getattr(value, name), old, new) for name in notes(type(value))}
        )
    if isinstance(value, tuple):
        return tuple(renamed(item, old, new) for item in value)
    return new if value == old else value


@pytest.mark.parametrize("old", ["arm vanilla", "arm base", "edge"])
def test_a_name_that_others_refer_to_reruns_what_shows_it_alone(old: str) -> None:
    assert reruns(lower(renamed(SPEC, old, "another"))) == {"report"}


def test_the_order_of_arms_reruns_what_shows_it_alone() -> None:
    study = SPEC.study.model_copy(update={"arms": SPEC.study.arms[::-1]})
    assert reruns(lower(SPEC.model_copy(update={"study": study}))) == {"report"}


def test_a_stage_that_is_added_after_the_last_reruns_nothing_before_it() -> None:
    experiment = SPEC.study.arms[1].checkpoint.experiment  # type: ignore[union-attr]
    more = experiment.stages[0].model_copy(update={"steps": 999})
    longer = experiment.model_copy(update={"stages": (*experiment.stages, more)})
    assert reruns(lower(replaced(SPEC, experiment, longer))) == {"report"}
