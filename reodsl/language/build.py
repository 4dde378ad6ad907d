"""Build the objects of the representation (`reodsl/ir`) from the evaluated records of a spec.

`build` fills each field from the setting of the same name. The other functions are for fields that have another form in the
representation than in the language: a plateau inside `until`, budgets from a schedule, or type-checked rewards. `Lowering`
is their state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from reodsl.diagnostics.model import Span
from reodsl.ir import IR, Origin, canonical
from reodsl.ir.base import locate
from reodsl.ir.cluster import Cluster
from reodsl.ir.data import Code, Data, File, FullText, HubData, LastBox, LastNumber, PackageData, TaskData
from reodsl.ir.expression import Constant
from reodsl.ir.kinds import KINDS
from reodsl.ir.model import Hub, Model
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
from reodsl.ir.setting import field_places, written_fields
from reodsl.ir.study import Suite
from reodsl.ir.task import FoldTraces, TraceStyle
from reodsl.ir.training import (
    Advantage,
    Batch,
    Dpo,
    Engine,
    Experiment,
    FromModel,
    FromResults,
    FromTraining,
    Method,
    Optimizer,
    Plateau,
    Pool,
    PoolPicks,
    Ppo,
    Sampling,
    Sft,
    Simpo,
    Source,
    Stage,
    Start,
)
from reodsl.ir.wording import Wording
from reodsl.language import values
from reodsl.language.changes import complete_stages
from reodsl.language.context import Context
from reodsl.language.idle import NEEDS, Surroundings, drop_idle
from reodsl.language.resolve import cap_importance, sort_grid, walk_ancestry
from reodsl.language.reward.body import TypedReward, type_measure, type_reward
from reodsl.language.reward.selection import type_selection
from reodsl.language.units import PLAIN, Quantity, describe_unit
from reodsl.language.values import Composite, Items, Record, Value, list_records, plain, write_value
from reodsl.syntax import tree

T = TypeVar("T", bound=IR)


@dataclass(slots=True)
class Lowering:
    """The state while a study is converted to the representation."""

    ctx: Context
    cluster: Cluster | None = None
    """The study's cluster."""
    on_gpus: bool = False
    """True if servers on the cluster sample."""
    arms: dict[int, str] = field(default_factory=dict)
    """Names of arms by the `id` of their experiment."""
    owners: dict[tuple[str, str], str] = field(default_factory=dict)
    """Names of arms by the declaration of their experiment."""
    experiments: dict[int, tuple[Record, Experiment]] = field(default_factory=dict)
    """Experiments built so far, by the `id` of their record."""


def build(cls: type[T], record: Record, **explicit_fields: Any) -> T:
    """Return an object of the representation (`reodsl/ir`) with the settings of a record as its fields.

    Settings without effect (`reodsl/language/idle.py`) get their defaults first. For a stage, `stage` has done
    this already.

    Args:
        cls: The class of the object.
        record: The record with the settings.
        **explicit_fields: Values of fields that the caller computed, in place of settings.
    """
    if record.kind in NEEDS and record.kind != "stage":
        record = drop_idle(Surroundings(record), record.kind)
    fields = dict(explicit_fields)
    for name, source in written_fields(cls):
        if name in explicit_fields:
            continue
        if isinstance(source, type):
            fields[name] = build(source, record)
        elif (value := record.get(source)) is not None:
            fields[name] = _build_value(value)
    if record.name and "name" in cls.model_fields:
        fields.setdefault("name", record.name)
    return locate_in(cls(**fields), record)


def locate_in(value: T, record: Record) -> T:
    """Return an object of the representation with the origin of each field: the line of the spec that set the field.

    Args:
        value: The object.
        record: The record whose settings became the fields.
    """
    origins = {"": origin_of(record.span)}
    for name, path in field_places(type(value)):
        slot = record.at(path) if "." in path else record.fields.get(path)
        if slot is not None and slot.span is not None:
            origins[name] = origin_of(slot.span)
    return locate(value, origins)


def origin_of(span: Span) -> Origin:
    """Return the path and line of a span."""
    return Origin(span.path, span.line)


def _build_value(value: Value) -> Any:
    """Return a setting's value as the representation stores it: lists as tuples, records as objects."""
    match value.data:
        case Items(values=items):
            return tuple(_build_value(item) for item in items)
        case Record(kind=kind):
            return BUILDERS[kind](value.data)
    return plain(value)


def wording(record: Record) -> Wording:
    """Build a wording (a variant of the prompt); its budget is a list of budgets or a range of budgets, in tokens."""
    budget = record.get("budget")
    if budget is None:
        return build(Wording, record)
    if isinstance(budget.data, Items):
        return build(Wording, record, budgets=plain(budget))
    low, high = plain(budget)
    return build(Wording, record, low=low, high=high)


DATA_SOURCES: dict[str, type[IR]] = {
    "generated": TaskData,
    "file": File,
    "hub": HubData,
    "package": PackageData,
}
"""Sources of data by kind. A hub holds models as well."""


def data(record: Record) -> Data:
    """Build a data set of questions with its sources and its readers of answers."""
    sources = tuple(build(DATA_SOURCES[source.kind], source) for source in list_records(record, "source"))
    return build(Data, record, sources=sources, answer=_build_readers(record))


def _build_readers(record: Record) -> tuple[IR, ...]:
    """Build the readers of answers in order of preference; a reader finds the answer in a response."""
    value = record.get("answer")
    if value is None or not isinstance(value.data, Items):
        verifier = record.sub("verifier")
        return (Code() if verifier is not None and verifier.kind == "tests" else LastBox(),)
    words = {"boxed": LastBox, "last_number": LastNumber, "code": Code, "whole": FullText}
    return tuple(
        _build_value(item) if isinstance(item.data, Record) else words[plain(item)]()
        for item in value.data.values
    )


def fold_traces(record: Record) -> FoldTraces:
    """Build the rules for writing worked solutions (traces) of a generated task, with the styles of their steps."""
    styles = record.parts if isinstance(record, Composite) else ()
    return build(FoldTraces, record, styles=tuple(build(TraceStyle, style) for style in styles))


def suite(low: Lowering, record: Record) -> Suite:
    """Build an evaluation suite.

    The grid of a suite without a grid has one budget: the longest response. REG is integrated up to the last
    budget of the grid if the suite does not say otherwise (`reg_to`).

    Args:
        low: The state of lowering the study.
        record: The declared suite.
    """
    grid = sort_grid(record) or (record.data("max_tokens"),)
    reference_record = record.sub("reference")
    reference = None if reference_record is None else start(low, reference_record)
    return build(Suite, record, grid=grid, reg_to=record.data("reg_to") or grid[-1], reference=reference)


def engine(record: Record) -> Engine:
    """Return the engine that generates the responses of a study or experiment.

    Without the setting it is SGLang if there is a cluster, else the embedded engine.
    """
    choice: Engine | None = record.data("engine")
    return choice or ("sglang" if record.sub("cluster") is not None else "embedded")


def optimizer(record: Record) -> Optimizer:
    """Build an optimizer; its warm-up is a number of steps, or a share of all steps if it has no unit."""
    warmup = record.get("warmup")
    if warmup is None or not isinstance(warmup.data, Quantity):
        return build(Optimizer, record)
    number = warmup.data.number
    if warmup.data.unit == PLAIN:
        return build(Optimizer, record, warmup_share=float(number))
    return build(Optimizer, record, warmup_steps=int(number))


BUILDERS: dict[str, Callable[[Record], IR]] = {
    **{kind.name: partial(build, kind.cls) for kind in KINDS.values() if kind.cls is not None},
    "condition": lambda record: record.expression,  # type: ignore[attr-defined]
    "data": data,
    "hub": partial(build, Hub),
    "optim": optimizer,
    "traces": fold_traces,
    "wording": wording,
}
"""The function that builds the value of a setting from a record, by the record's kind."""

SEQUENCE_METHODS: dict[str, type[Sft] | type[Simpo] | type[Dpo]] = {"sft": Sft, "simpo": Simpo, "dpo": Dpo}
"""The methods that learn from finished traces or pairs, by their words."""


def checkpoint(low: Lowering, arm: values.DeclaredArm) -> Source:
    """Build the source of an arm's responses: the weights of a checkpoint, or imported results.

    Imported results may have a checkpoint (`at`), which gives the forced answers after their cut responses.

    Args:
        low: The state of lowering the study.
        arm: The arm.
    """
    for source, _ in walk_ancestry(arm):
        if source.kind == "results":
            forced_record = source.sub("at")
            return build(FromResults, source, at=None if forced_record is None else start(low, forced_record))
    return start(low, arm)


def start(low: Lowering, record: Record) -> Start:
    """Build the checkpoint that a record names: of a model, a trained experiment, or a stage of an experiment.

    Args:
        low: The state of lowering the study.
        record: A model, an experiment, an arm, a stage of an experiment, or `checkpoint(…)`.

    Raises:
        LookupError: The record has no weights. The checks of the spec report this earlier.
    """
    for source, stage_index in walk_ancestry(record):
        if isinstance(source, values.DeclaredExperiment) and source.is_trained:
            trained = experiment(low, source)
            return FromTraining(
                experiment=trained, stage=len(trained.stages) - 1 if stage_index is None else stage_index
            )
        if source.kind == "model":
            return FromModel(model=build(Model, source))
    raise LookupError(f"{record.kind} `{record.name}` has no weights")


def experiment(low: Lowering, record: values.DeclaredExperiment) -> Experiment:
    """Build an experiment with all its stages; the result is cached by record.

    Args:
        low: The state of lowering the study, with the cache.
        record: The declared experiment.
    """
    cached = low.experiments.get(id(record))
    if cached is not None:
        return cached[1]
    stages = complete_stages(low.ctx, record)
    base = record.sub("base") or stages[0][1].part("base")
    built = Experiment(
        name=record.name,
        doc=record.doc,
        start=start(low, base),
        stages=tuple(stage(low, decl, settings) for decl, settings in stages),
        cluster=own_cluster(low, record),
    )
    low.experiments[id(record)] = (record, built)
    return built


def own_cluster(low: Lowering, record: Record) -> Cluster | None:
    """Return an experiment's cluster if it differs from the study's cluster, else None.

    Args:
        low: The state of lowering, which has the study's cluster.
        record: The experiment.
    """
    record_ = record.sub("cluster")
    if low.cluster is None or record_ is None:
        return None
    named_cluster = build(Cluster, record_)
    return None if canonical(named_cluster) == canonical(low.cluster) else named_cluster


def stage(low: Lowering, decl: values.DeclaredStage | None, record: Record) -> Stage:
    """Build a stage from its settings; settings without effect get their defaults first.

    A stage trains on a data set, or on responses that a selection picks from a pool. It ends after its steps,
    or earlier at a plateau.

    Args:
        low: The state of lowering the study.
        decl: The declaration of the stage, for its name; None for an experiment without stages.
        record: All settings of the stage, with defaults.
    """
    record = _bound_monitor(drop_idle(Surroundings(record, typed_reward(low.ctx, record), low.on_gpus)))
    data_record = record.part("data")
    pool = data_record.part("pool") if data_record.kind == "selected" else None
    end = record.sub("until")
    plateau = end.plateau if isinstance(end, values.Until) else end
    return build(
        Stage,
        record,
        name=decl.name if decl is not None else "",
        method=method(low, record),
        optim=optimizer(record.part("optim")),
        data=data(data_record if pool is None else pool.part("data")),
        plateau=None if plateau is None else build(Plateau, plateau, metric=plateau.part("metric").name),
        selected=build_selected(low, data_record.part("selection"), pool) if pool is not None else None,
    )


def _bound_monitor(record: Record) -> Record:
    """Return a stage whose monitor interval is at most its number of steps.

    With a longer interval the monitor set is evaluated once as well, so both give the same canonical JSON.
    """
    steps, every, slot = record.at("steps"), record.at("monitor.every"), record.at("monitor")
    if steps is None or every is None or slot is None or record.data("monitor.every") <= record.data("steps"):
        return record
    monitor = record.part("monitor").with_field("every", replace(every, value=steps.value))
    return record.with_field("monitor", replace(slot, value=replace(slot.value, data=monitor)))


def typed_reward(ctx: Context, record: Record) -> TypedReward | None:
    """Return the type-checked reward of a stage.

    Args:
        ctx: The state of the evaluation.
        record: The settings of the stage.

    Returns:
        The reward; None if the stage's method is not PPO, or if its reward has an error. A PPO stage without
        a reward learns only from a teacher, and the result is then an empty reward.
    """
    if record.data("method") != "ppo":
        return None
    reward_record = record.sub("reward")
    if reward_record is None:
        return TypedReward(None, set(), [])
    return type_reward(ctx, reward_record) if isinstance(reward_record, values.Definition) else None


def build_selected(low: Lowering, rule: Record, pool: Record) -> PoolPicks:
    """Build the selection of a pool's responses that a stage trains on.

    Args:
        low: The state of lowering the study.
        rule: The selection's definition.
        pool: The pool of sampled responses.

    Raises:
        LookupError: The selection has an error. The checks of the spec report it earlier.
    """
    typed = type_selection(low.ctx, rule) if isinstance(rule, values.Definition) else None
    if typed is None or not isinstance(rule, values.Definition):
        raise LookupError(f"selection `{rule.name}` is not sound")
    lines = _body_lines(rule)
    for pick in typed.picks:
        locate(pick, lines)
    return PoolPicks(
        selection=locate(typed.model_copy(update={"name": rule.name}), lines),
        pool=build(Pool, pool, start=start(low, pool.part("of"))),
    )


NOTHING = Reward(name="nothing", outcome=Constant(value=0.0))
"""The reward where a teacher alone trains."""


def method(low: Lowering, record: Record) -> Method:
    """Build the training method of a stage: SFT, SimPO or DPO, which read finished responses, or PPO.

    Args:
        low: The state of lowering the study.
        record: All settings of the stage.
    """
    batch = record.part("batch")
    sequence_class = SEQUENCE_METHODS.get(record.data("method"))
    if sequence_class is not None:
        return build(sequence_class, record, batch=batch.data("prompts"))
    rollout, reward_record, teacher = record.part("rollout"), record.sub("reward"), record.sub("teacher")
    advantage = record.part("advantage").with_field("/credit", record.fields["credit"])
    temperature = rollout.data("temperature")
    moves = isinstance(temperature, str)
    # What no step samples, the reference model's responses and the monitor set's, is at temperature 1 then.
    sampling = build(Sampling, rollout, temperature=1.0 if moves else temperature)
    return build(
        Ppo,
        record,
        temperature=temperature if moves else None,
        rollout=sampling,
        batch=build(Batch, batch),
        reward=NOTHING if reward_record is None else reward(low, reward_record, sampling.max_tokens),
        advantage=build(Advantage, advantage),
        teacher=None if teacher is None else start(low, teacher),
        importance_cap=cap_importance(record, low.on_gpus),
    )


def reward(low: Lowering, record: Record, max_tokens: int) -> Reward:
    """Build a reward with the values of its arguments.

    A reward may divide responses into sections at token positions (`split`). A `dense` reward has a formula for
    each section. The positions of a dense reward are in its `dense`, and its `split` is None.

    Args:
        low: The state of lowering the study.
        record: The reward's definition.
        max_tokens: The longest response of the rollout, in tokens.

    Raises:
        LookupError: The reward has an error. The checks of the spec report it earlier.
    """
    typed = type_reward(low.ctx, record) if isinstance(record, values.Definition) else None
    if typed is None or not isinstance(record, values.Definition):
        raise LookupError(f"reward `{record.name}` is not sound")
    reward_split = split(low, typed.split, max_tokens) if typed.split is not None else None
    dense = None
    if typed.dense is not None and reward_split is not None:
        dense = DenseReward(split=reward_split, var="L", value=typed.dense)
    built = Reward(
        name=record.name,
        lets=tuple(typed.lets),
        tracks=tuple(typed.tracks),
        metrics=tuple(typed.metrics),
        outcome=typed.outcome,
        dense=dense,
        parts=typed.parts,
        split=None if dense is not None else reward_split,
    )
    return locate(built, _body_lines(record))


def _body_lines(definition: values.Definition) -> dict[str, Origin]:
    """Return the first line of each sort of statement in a reward's braces, by field of the representation.

    The fields are `lets`, `tracks`, `outcome`, `dense` and so on. The result is empty if the reward has
    parameters or is of the standard library, since its lines then belong to no single reward of the user.
    """
    lines: dict[str, Origin] = {}
    if not definition.item.params and not definition.module.std:
        for item in definition.body.items:
            match item:
                case tree.Let():
                    name = "lets"
                case tree.Decl():
                    name = f"{item.kind.name}s"
                case tree.Assignment():
                    name = item.name.name
                case _:
                    name = "dense" if isinstance(item, tree.Dense) else "outcome"
            lines.setdefault(name, origin_of(item.span))
    return lines


def measure(low: Lowering, record: values.Definition) -> Measure:
    """Build a measure (a number of an evaluated arm) with the values of its arguments.

    If the spec calls the measure with arguments, the name is the call, such as `pass_at(4)`.

    Args:
        low: The state of lowering the study.
        record: The definition of the measure, with its arguments.

    Raises:
        LookupError: The measure has an error. The checks of the spec report it earlier.
    """
    typed = type_measure(low.ctx, record)
    if typed is None:
        raise LookupError(f"measure `{record.name}` is not sound")
    arguments = ", ".join(write_value(argument) for argument in record.args.values())
    is_call = record.name == record.item.name.name and arguments
    return Measure(
        name=f"{record.name}({arguments})" if is_call else record.name,
        lets=typed.lets,
        value=typed.value.data,
        unit="" if typed.value.unit == PLAIN else describe_unit(typed.value.unit),
        low=typed.value.low if math.isfinite(typed.value.low) else None,
        high=typed.value.high if math.isfinite(typed.value.high) else None,
    )


def shown_value(low: Lowering, value: Value) -> Any:
    """Return what a table or chart shows: a measure, or the word for a built-in column.

    Args:
        low: The state of lowering the study.
        value: The value of a column or axis in the spec.
    """
    return measure(low, value.data) if isinstance(value.data, values.Definition) else plain(value)


def split(low: Lowering, record: Record, max_tokens: int) -> Split:
    """Build the positions, in tokens, at which a reward divides responses into sections.

    Args:
        low: The state of lowering the study.
        record: The budgets, or the rule that finds the positions during a run.
        max_tokens: The longest response of the rollout, in tokens; the default of the rule's `to`.
    """
    if isinstance(record, values.WrittenBudgets):
        includes_end = bool(record.data("reached"))
        budgets = Budgets(budgets=record.schedule.budgets, l_max=record.schedule.l_max, reached=includes_end)
        return locate(budgets, dict.fromkeys(("budgets", "l_max"), origin_of(record.span)))
    l_max = record.data("to") or max_tokens
    if record.kind == "oracle_budgets":
        return build(OracleBudgets, record, frontier=record.part("frontier").name, l_max=l_max)
    if record.kind == "question_budgets":
        names = tuple(arm_name(low, arm) for arm in list_records(record, "rollouts"))
        return build(QuestionBudgets, record, rollouts=names, l_max=l_max)
    if record.kind == "exits_split":
        return build(Exits, record, l_max=l_max)
    return build(Steps, record, l_max=l_max)


def arm_name(low: Lowering, record: Record) -> str:
    """Return the name of the study's arm for an arm or an experiment.

    An experiment is found by its record, else by its declaration. If no arm has it, the result is its own
    name.

    Args:
        low: The state of lowering, which has the arms' names by their experiments.
        record: The arm or experiment.
    """
    if isinstance(record, values.DeclaredArm):
        return record.name
    if id(record) in low.arms:
        return low.arms[id(record)]
    return low.owners.get(record.owner or ("", ""), record.name)
