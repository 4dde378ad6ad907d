"""A spec with a value in every field of every class of the IR, to be changed field by field."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from reodsl.ir import IR, Origin, Spec
from reodsl.ir import expression as ex
from reodsl.ir.base import Node
from reodsl.ir.data import (
    After,
    Chance,
    Code,
    Data,
    File,
    FullText,
    HubData,
    LastBox,
    LastNumber,
    PackageData,
    Python,
    Regex,
    TaskData,
)
from reodsl.ir.data import Tests as ByTests
from reodsl.ir.model import Architecture, Folder, Hub, Model, Prompt, ServedModel
from reodsl.ir.reward import (
    Budgets,
    DenseReward,
    Exits,
    Measure,
    OracleBudgets,
    QuestionBudgets,
    Reward,
    Split,
    Steps,
)
from reodsl.ir.study import Arm, Benchmark, Frontier, Score, Study, Suite, Table
from reodsl.ir.training import (
    Dpo,
    Experiment,
    FromModel,
    FromResults,
    FromTraining,
    Pool,
    PoolPicks,
    Ppo,
    Sft,
    Simpo,
    Stage,
    Start,
)

_number = count(3)


@cache
def notes(kind: type[IR] | type[Node]) -> dict[str, Any]:
    """The annotation of every field of a class."""
    if issubclass(kind, Node):
        hints = get_type_hints(kind, include_extras=True)
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {name: field.annotation for name, field in kind.model_fields.items()}


def updated(value: Any, /, **changes: Any) -> Any:
    """The value with some of its fields replaced."""
    if isinstance(value, Node):
        return dataclasses.replace(value, **changes)
    return value.model_copy(update=changes)


def filled(kind: type[IR] | type[Node], **given: Any) -> Any:
    """A value of a class with something in every field that is not given, no two numbers or texts the same."""
    fields = notes(kind)
    return kind(**{name: given[name] if name in given else _value(note) for name, note in fields.items()})


def _value(note: Any) -> Any:
    origin, inside = get_origin(note), get_args(note)
    if origin is Literal or origin is Annotated:
        return inside[0] if origin is Literal else _value(inside[0])
    if origin in (Union, types.UnionType):
        return _value(next(item for item in inside if item is not type(None)))
    if origin is tuple:
        return tuple(_value(item) for item in (inside[:1] * 2 if inside[-1] is Ellipsis else inside))
    if origin is dict:
        return {"a": _value(inside[1])}
    if note is Origin:
        return Origin("a.reo", next(_number))
    if note is Python:
        return filled(Python, function=f"own{next(_number)}.py:made")
    if isinstance(note, type) and issubclass(note, (IR, Node)):
        return filled(note)
    number = next(_number)
    return {bool: True, int: number, float: number / 8, str: f"text{number}"}[note]


def _every_expression() -> Any:
    kinds = [
        kind
        for kind in vars(ex).values()
        if isinstance(kind, type) and issubclass(kind, Node) and kind is not Node
    ]
    return ex.FunctionCall(fn="max", args=tuple(filled(kind) for kind in kinds))


def _data(name: str, *sources: Any, **more: Any) -> Any:
    readers = tuple(filled(kind) for kind in (LastBox, LastNumber, After, Regex, Code, FullText))
    sources = sources or (filled(TaskData, traces=None),)
    return filled(Data, **{"name": name, "sources": sources, "answer": readers, **more})


def _model(name: str, source: Any) -> Any:
    prompt = filled(Prompt, template="Answer: {question}")
    return FromModel(model=filled(Model, name=name, source=source, prompt=prompt))


def _stage(name: str, method: Any, data: Any, **more: Any) -> Any:
    return filled(Stage, name=name, method=method, data=data, **{"selected": None, **more})


def _end(experiment: Any) -> Start:
    return FromTraining(experiment=experiment, stage=len(experiment.stages) - 1)


def _ppo(**given: Any) -> Any:
    return filled(Ppo, **{"teacher": None, **given})


def _split(split: Split) -> Any:
    reward = filled(Reward, dense=filled(DenseReward, split=split), outcome=None, parts=())
    return _ppo(reward=reward, reference_samples=0)


def everything() -> Spec:
    """All of it; no two declarations are equal."""
    traces = _data("traces", filled(TaskData))
    asked, pooled = _data("asked"), _data("pooled")
    owned = _data("owned", verifier=filled(Python, function="own.py:check"))
    tested = _data("tested", filled(File), verifier=filled(ByTests))
    by_chance = _data("by_chance", verifier=filled(Chance, of="math"))
    base = filled(
        Experiment,
        name="base",
        start=_model("drawn", filled(Architecture)),
        stages=(_stage("one", filled(Sft), traces), _stage("two", filled(Sft), traces)),
    )

    def after(name: str, method: Any, data: Any = asked, **more: Any) -> Any:
        return filled(Experiment, name=name, start=_end(base), stages=(_stage("", method, data, **more),))

    def selected(name: str, method: Any, **pool: Any) -> Any:
        chosen = filled(PoolPicks, pool=filled(Pool, start=_end(base), **pool))
        return after(name, method, pooled, selected=chosen)

    rewarded = _ppo(reward=filled(Reward, outcome=_every_expression(), dense=None))
    experiments = {
        "vanilla": after("vanilla", rewarded),
        "taught": after("taught", _ppo(teacher=_end(base), reward=filled(Reward, dense=None))),
        "owned": after("owned", filled(Sft), owned),
        "tested": after("tested", filled(Sft), tested),
        "by_chance": after("by_chance", filled(Sft), by_chance),
        "fixed": after("fixed", _split(filled(Budgets))),
        "steps": after("steps", _split(filled(Steps))),
        "exits": after("exits", _split(filled(Exits))),
        "oracle": after("oracle", _split(filled(OracleBudgets, frontier="edge"))),
        "question": after("question", _split(filled(QuestionBudgets, rollouts=("arm vanilla", "arm fixed")))),
        "worded": selected("worded", filled(Sft)),
        "pairs": selected("pairs", filled(Simpo), wordings=()),
        "against": selected("against", filled(Dpo), wordings=()),
    }
    benchmarks = tuple(
        filled(Benchmark, data=_data(f"held {kind.__name__}", filled(kind)))
        for kind in (File, HubData, PackageData)
    )
    suite = filled(Suite, benchmarks=benchmarks)
    starts = {"base": _end(base)} | {name: _end(experiment) for name, experiment in experiments.items()}
    starts |= {kind.__name__: _model(kind.__name__, filled(kind)) for kind in (Folder, Hub)}
    there = filled(
        ServedModel, address="https://model.example/v1", key="SERVER_KEY", tokenizer=filled(Folder)
    )
    starts["Served"] = _model("Served", there)
    arms = tuple(
        filled(Arm, name=f"arm {name}", checkpoint=start, suite=suite) for name, start in starts.items()
    )
    elsewhere = filled(Suite, benchmarks=(filled(Benchmark, data=_data("held elsewhere")),))
    for name, at in (("results", None), ("forced", _end(base))):
        given = filled(FromResults, at=at)
        arms += (filled(Arm, name=f"arm {name}", checkpoint=given, suite=elsewhere),)
    frontiers = (
        filled(Frontier, name="edge", of=("arm base", "arm vanilla"), published=()),
        filled(Frontier, name="other", of=("arm base", "arm fixed"), published=()),
        filled(Frontier, name="printed", of=()),
    )
    score = filled(Score, frontier="edge", relative_to="arm base")
    measure = filled(Measure, value=filled(ex.StepStatistic, over="arm"))
    tables = (filled(Table, columns=("accuracy", measure)),)
    study = filled(Study, seeds=(1,), arms=arms, frontiers=frontiers, score=score, tables=tables)
    return filled(Spec, study=study)  # type: ignore[no-any-return]


def classes(kind: type[IR] = Spec) -> set[type[IR] | type[Node]]:
    """Every class of the IR that a spec can hold."""
    found: set[type[IR] | type[Node]] = set()
    stack: list[Any] = [kind]
    while stack:
        note = stack.pop()
        stack.extend(get_args(note))
        if isinstance(note, type) and issubclass(note, (IR, Node)) and note not in found:
            found.add(note)
            stack.extend(notes(note).values())
    return found


def nodes(value: Any, context: str = "spec") -> Iterator[tuple[str, IR | Node]]:
    """Every IR value in a value, with the part of a study that it belongs to."""
    if isinstance(value, (IR, Node)):
        held = context == "suite" and isinstance(value, Data)
        context = "held" if held else CONTEXTS.get(type(value).__name__, context)
        yield context, value
        for name in notes(type(value)):
            yield from nodes(getattr(value, name), "selection" if name == "selection" else context)
    elif isinstance(value, (tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from nodes(item, context)


CONTEXTS = {
    "Study": "study", "Arm": "study", "Experiment": "study", "FromTraining": "study", "Model": "model", "Data": "data",
    "Stage": "stage", "Pool": "pool", "Suite": "suite", "Frontier": "frontier", "Score": "score", "Table": "shown",
    "Chart": "shown", "Measure": "measured", "Cluster": "shown",
}  # fmt: skip
