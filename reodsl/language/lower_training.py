"""Experiments: from their records to stages of training, with starting points, rewards and optimizers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reodsl.ir import canonical
from reodsl.ir.cluster import Cluster
from reodsl.ir.expression import Expression
from reodsl.ir.reward import Budgets, Dense, Let, OracleBudgets, Part, QuestionBudgets, Reward, Split, Steps
from reodsl.ir.selection import Choice, Pick, Selection
from reodsl.ir.training import (
    AdamGroup,
    Advantage,
    Batch,
    Experiment,
    FromModel,
    FromTraining,
    Method,
    Optimizer,
    Plateau,
    Pool,
    Ppo,
    Sampling,
    Selected,
    Sft,
    Simpo,
    Stage,
    Start,
)
from reodsl.language.context import Context
from reodsl.language.lower_model import _given, cluster, data, forcing, model, wordings
from reodsl.language.resolve import ancestry
from reodsl.language.reward.body import typed_reward
from reodsl.language.reward.selection import TypedChoice, TypedPick, typed_selection
from reodsl.language.stages import complete_stages
from reodsl.language.units import PLAIN, Quantity
from reodsl.language.values import Budgets as SourceBudgets
from reodsl.language.values import Definition, Record, Until, records_of
from reodsl.language.values import Experiment as SourceExperiment
from reodsl.language.values import Stage as SourceStage


@dataclass(slots=True)
class Lowering:
    """What one lowering shares: the evaluation, the study's cluster, experiments already lowered, and the arms' names by
    experiment.
    """

    ctx: Context
    cluster: Cluster | None = None
    arms: dict[int, str] = field(default_factory=dict)
    owners: dict[tuple[str, str], str] = field(default_factory=dict)
    experiments: dict[int, tuple[Record, Experiment]] = field(default_factory=dict)


def start(low: Lowering, record: Record) -> Start:
    """The checkpoint that a model, an experiment, or `checkpoint(…)` stands for."""
    for source, stage in ancestry(record):
        if isinstance(source, SourceExperiment) and source.is_trained:
            trained = experiment(low, source)
            return FromTraining(experiment=trained, stage=len(trained.stages) - 1 if stage is None else stage)
        if source.kind == "model":
            return FromModel(model=model(source))
    raise LookupError(f"{record.kind} `{record.name}` stands for no weights")


def experiment(low: Lowering, record: SourceExperiment) -> Experiment:
    """An experiment with all its stages."""
    known = low.experiments.get(id(record))
    if known is not None:
        return known[1]
    parts = complete_stages(low.ctx, record)
    base = record.sub("base") or parts[0][1].part("base")
    stages = tuple(stage(low, part, each) for part, each in parts)
    made = Experiment(
        name=record.name,
        doc=record.doc,
        start=start(low, base),
        stages=stages,
        cluster=own_cluster(low, record),
    )
    low.experiments[id(record)] = (record, made)
    return made


def own_cluster(low: Lowering, record: Record) -> Cluster | None:
    """The cluster of an experiment where it is not the study's. A study without one is all on this machine."""
    own = record.sub("cluster")
    if low.cluster is None or own is None:
        return None
    found = cluster(own)
    return None if canonical(found) == canonical(low.cluster) else found


def stage(low: Lowering, part: SourceStage | None, record: Record) -> Stage:
    """One stage."""
    given = record.part("data")
    pool = given.part("pool") if given.kind == "selected" else None
    until, plateau = record.sub("until"), None
    watched = until.plateau if isinstance(until, Until) else until
    if watched is not None:
        plateau = Plateau(metric=watched.part("metric").name, **_given(watched, "window", "within"))
    return Stage(
        name=part.name if part is not None else "",
        method=method(low, record),
        data=data(given if pool is None else pool.part("data")),
        optim=optimizer(record.part("optim")),
        steps=record.data("steps"),
        plateau=plateau,
        selected=selected(low, given) if pool is not None else None,
        passes=record.data("passes"),
        **_given(record, "save_every", "expected_length", "precision", "microbatch", "checkpointing"),
    )


def selected(low: Lowering, record: Record) -> Selected:
    """A selection of a pool."""
    rule, pool = record.part("selection"), record.part("pool")
    found = typed_selection(low.ctx, rule) if isinstance(rule, Definition) else None
    if found is None:
        raise LookupError(f"selection `{rule.name}` is not sound")
    return Selected(
        selection=Selection(
            name=rule.name,
            lets=_lets(found.lets),
            picks=tuple(_pick(pick) for pick in found.picks),
            drop=found.drop,
            keep=found.keep,
        ),
        pool=Pool(
            start=start(low, pool.part("of")),
            rollout=Sampling(**_given(pool, "max_tokens", "temperature", "top_p", "top_k")),
            samples=pool.data("samples"),
            wordings=wordings(pool),
        ),
    )


def _pick(pick: TypedPick) -> Pick:
    return Pick(
        trace=_choice(pick.trace),
        preferred=_choice(pick.preferred),
        rejected=_choice(pick.rejected),
        where=pick.where,
        margin=pick.margin,
    )


def _choice(choice: TypedChoice | None) -> Choice | None:
    if choice is None:
        return None
    return Choice(fn=choice.fn, var=choice.var, key=choice.key, where=choice.where)


def _lets(lets: tuple[tuple[str, Expression], ...]) -> tuple[Let, ...]:
    return tuple(Let(name=name, value=value) for name, value in lets)


def optimizer(record: Record) -> Optimizer:
    """An optimizer; warm-up in steps or as a share of them, as it is written."""
    rest, warmup = record.sub("rest"), record.get("warmup")
    given: dict[str, Any] = {}
    if warmup is not None and isinstance(warmup.data, Quantity):
        number = warmup.data.number
        share = warmup.data.unit == PLAIN and warmup.span is not None
        given = {"warmup_share": float(number)} if share else {"warmup_steps": int(number)}
    names = ("algorithm", "lr", "betas", "eps", "weight_decay", "decay", "decay_from", "grad_norm")
    return Optimizer(
        **_given(record, *names),
        **given,
        rest=AdamGroup(**_given(rest, "lr", "betas", "eps", "weight_decay")) if rest is not None else None,
    )


def method(low: Lowering, record: Record) -> Method:
    """What a stage does with its data."""
    kind, batch = record.data("method"), record.part("batch")
    if kind == "sft":
        return Sft(batch=batch.data("prompts"), **_given(record, "max_tokens", "bucket_by_length"))
    if kind == "simpo":
        return Simpo(batch=batch.data("prompts"), **_given(record, "max_tokens", "beta", "gamma"))
    rollout, clip, advantage = record.part("rollout"), record.part("clip"), record.part("advantage")
    rewarded, forced = record.part("reward"), record.sub("forcing")
    sampling = Sampling(**_given(rollout, "max_tokens", "temperature", "top_p", "top_k"))
    names = ("max_prompt", "minibatches", "epochs", "loss_mean", "reference_samples", "old_logprobs")
    return Ppo(
        **_given(record, *names, "importance_cap", "mismatch_limit", "resample", "kl"),
        rollout=sampling,
        batch=Batch(**_given(batch, "prompts", "rollouts")),
        clip_low=clip.data("low"),
        clip_high=clip.data("high"),
        reward=reward(low, rewarded, sampling.max_tokens),
        advantage=Advantage(
            credit=record.data("credit"), **_given(advantage, "normalise", "std", "absent", "batch")
        ),
        forcing=forcing(forced) if forced is not None else None,
        wordings=wordings(rollout),
        wordings_per=rollout.data("wordings_per"),
    )


def reward(low: Lowering, record: Record, max_tokens: int) -> Reward:
    """A reward with its arguments in place."""
    typed = typed_reward(low.ctx, record) if isinstance(record, Definition) else None
    if typed is None:
        raise LookupError(f"reward `{record.name}` is not sound")
    dense = None
    if typed.dense is not None and typed.split is not None:
        dense = Dense(split=split(low, typed.split, max_tokens), var="L", value=typed.dense)
    return Reward(
        name=record.name,
        lets=_lets(typed.lets),
        outcome=typed.outcome,
        dense=dense,
        parts=tuple(Part(value=part.value, weight=part.weight, on=part.on) for part in typed.parts),
    )


def split(low: Lowering, record: Record, max_tokens: int) -> Split:
    """Where a dense reward looks at a response."""
    if isinstance(record, SourceBudgets):
        return Budgets(budgets=record.schedule.budgets, l_max=record.schedule.l_max)
    l_max = record.data("to") or max_tokens
    if record.kind == "oracle_budgets":
        return OracleBudgets(
            frontier=record.part("frontier").name, n=record.data("n"), l_max=l_max, step=record.data("step")
        )
    if record.kind == "question_budgets":
        names = tuple(arm_name(low, each) for each in records_of(record, "rollouts"))
        return QuestionBudgets(rollouts=names, l_max=l_max, unsolved=record.data("unsolved"))
    return Steps(
        separator=record.data("separator"),
        keywords=record.data("keywords"),
        min_chunks=record.data("min_chunks"),
        l_max=l_max,
    )


def arm_name(low: Lowering, record: Record) -> str:
    """The name of the arm that stands for an arm or for an experiment."""
    if record.kind == "arm":
        return record.name
    if id(record) in low.arms:
        return low.arms[id(record)]
    return low.owners.get(record.owner or ("", ""), record.name)
