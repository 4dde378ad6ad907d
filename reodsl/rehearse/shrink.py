"""Make a spec small, with short responses, few questions, few steps and small models, and say what that cannot show.

Every length in tokens, be it of responses, budgets, grids, frontiers or inside a reward, is multiplied by one factor, so
that they stay in their order. What was one value before is one value after, and so work that was shared is shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reodsl.ir import IR, Spec
from reodsl.ir.base import Node, digest, names_of, values_of
from reodsl.ir.cluster import Cluster
from reodsl.ir.data import Chance, Data, DataSource, PackageData, TaskData, Tests
from reodsl.ir.expression import Constant
from reodsl.ir.model import Forcing, Model, ModelSource
from reodsl.ir.reward import Budgets, Exits, OracleBudgets, QuestionBudgets, Steps
from reodsl.ir.study import Arm, Benchmark, Frontier, PublishedCurve, Score, Study, Suite
from reodsl.ir.training import (
    Batch,
    Engine,
    Experiment,
    FromModel,
    FromResults,
    Monitor,
    MovingAverage,
    Optimizer,
    Plateau,
    Pool,
    Ppo,
    Sampling,
    Sft,
    Stage,
)
from reodsl.ir.wording import Wording
from reodsl.price import choose_sharding
from reodsl.price.machine import label_cluster


@dataclass(frozen=True, slots=True)
class StandIn:
    """A model's small double."""

    source: ModelSource
    words: str
    """Description."""
    byte_level: bool = False
    """True if it has a made-up tokenizer, with a token for each byte."""


@dataclass(frozen=True, slots=True)
class StandIns:
    """Doubles of models and of data sets whose own are not to be used, or are not at hand, by what they stand for."""

    models: Mapping[str, StandIn] = field(default_factory=dict)
    data: Mapping[str, tuple[DataSource, ...]] = field(default_factory=dict)

    def model(self, model: Model) -> StandIn | None:
        """Return the double of a model, or None."""
        return self.models.get(digest(model.source))

    def sources(self, data: Data) -> tuple[DataSource, ...] | None:
        """Return the questions that replace a data set's, or None."""
        return self.data.get(name_data(data))


def name_data(data: Data) -> str:
    """Return the name of a data set in a rehearsal: its sources."""
    return digest(list(data.sources))


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a rehearsal."""

    longest: int = 64
    """Tokens of the longest response; other lengths follow in proportion."""
    steps: int = 2
    """Steps of each stage."""
    prompts: int = 2
    """Questions of a step."""
    rollouts: int = 4
    """Responses to a question in a step."""
    questions: int = 2
    """Questions of each benchmark."""
    samples: int = 2
    """Responses to a question in evaluation."""
    cuts: int = 4
    """Budgets at which answers are forced, about."""
    pool: int = 8
    """Questions to train on."""
    picked: int = 8
    """Responses to each of them if some are selected."""
    answer: int = 4
    """Tokens of a forced answer."""
    nodes: int | None = None
    """Nodes of a cluster, each with as few GPUs as several processes need; None for all."""


MADE_UP = 8
"""Tokens of a made-up tokenizer, whose tokens are bytes, for one of a true one's; more than any text needs."""


TOKENS: Mapping[type, tuple[str, ...]] = {
    Sampling: ("max_tokens", "solution"),
    Suite: ("grid", "reg_to"),
    Score: ("to",),
    Frontier: ("to",),
    PublishedCurve: ("budgets",),
    Wording: ("budgets", "low", "high"),
    Budgets: ("budgets", "l_max"),
    OracleBudgets: ("step", "l_max"),
    **dict.fromkeys((QuestionBudgets, Steps, Exits), ("l_max",)),
}
"""Settings in tokens of a response, which are made small in proportion, as constants in tokens are."""


def _list_small(size: Size) -> Mapping[type, Mapping[str, Any]]:
    """Return the most that settings may be, by class, if a spec sets them; None and a text are what they become."""
    return {
        Study: {"limit": None},
        Suite: {"samples": size.samples, "reference_samples": size.picked, "expected_length": None},
        Stage: {"steps": size.steps, "expected_length": None},
        Optimizer: {"warmup_steps": 1},
        Plateau: {"window": 1},
        Batch: {"prompts": size.prompts, "rollouts": size.rollouts},
        # The lag is so short that new weights reach the engine too.
        Ppo: {
            "epochs": 2,
            "reference_samples": size.picked,
            "resample": 1,
            "lag": max(size.steps - 2, min(1, size.steps - 1)),
        },
        MovingAverage: {"every": 1},
        Monitor: {"questions": size.prompts, "samples": size.rollouts, "every": 1},
        Pool: {"samples": size.picked},
        Forcing: {"answer_tokens": size.answer},
    }


def shrink(spec: Spec, size: Size, stand_ins: StandIns, engine: Engine | None = None) -> Spec:
    """Return the spec as a rehearsal runs it: without a limit and of the first seed alone.

    With an `engine` it runs on this machine, by that engine and without a cluster; else where the spec says.
    """
    study = spec.study
    if not study.models:
        # Results of others take moments: they are their own rehearsal.
        return spec
    lengths = [sampling.max_tokens for sampling in values_of(study, Sampling)]
    factor = min(1.0, size.longest / max(lengths, default=size.longest))
    ends = {sampling.to for sampling in study.frontiers} | {arm.suite.reg_to for arm in study.arms}
    ends |= {0, study.score.to if study.score else 0}
    chosen = choose_sharding(spec)
    small = _Shrinker(size, stand_ins, factor, engine, frozenset(ends), study.models[0], chosen)
    return spec.model_copy(update={"study": small.shrink(study)})


@dataclass(slots=True)
class _Shrinker:
    """The pass over a study that makes it small."""

    size: Size
    """Size of the rehearsal."""
    stand_ins: StandIns
    """Doubles of models and data sets."""
    factor: float
    """Factor of all numbers of tokens, at most 1."""
    engine: Engine | None
    """Engine of all tasks; None for the spec's."""
    ends: frozenset[int]
    """Budgets at which scores and frontiers end, which every grid keeps."""
    first: Model
    """First model of the study."""
    chosen: Mapping[Cluster, Cluster]
    """Clusters with their chosen sharding."""
    done: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    """Small values by the identity of their original, so that each is made once."""

    def tokens(self, count: Any) -> Any:
        """Return numbers of tokens made small; 0 stays 0, and equal numbers are merged."""
        if isinstance(count, tuple):
            return tuple(dict.fromkeys(map(self.tokens, count)))
        return max(1, round(count * self.factor)) if count else count

    def shrink(self, value: Any) -> Any:
        """Return a value whose parts are small, however deep they stand."""
        if isinstance(value, Constant):
            return replace(value, value=value.value * self.factor**value.unit)
        if isinstance(value, tuple):
            return tuple(map(self.shrink, value))
        if not isinstance(value, IR | Node):
            return value
        if id(value) not in self.done:
            # The value is kept with it: no other gets its number.
            self.done[id(value)] = value, self._change(value)
        return self.done[id(value)][1]

    def _change(self, value: Any) -> Any:
        parts = {name: self.shrink(getattr(value, name)) for name in names_of(type(value)) or ()}
        for name in TOKENS.get(type(value), ()):
            parts[name] = self.tokens(parts[name])
        for name, most in _list_small(self.size).get(type(value), {}).items():
            parts[name] = most if most is None or parts[name] is None else min(parts[name], most)
        if isinstance(value, Node):
            return replace(value, **parts)
        small = value.model_copy(update=parts)
        return small.model_copy(update=self._fit(small, value))

    def _fit(self, small: Any, value: Any) -> dict[str, Any]:
        """Return further changes that keep a value with small settings consistent."""
        match value:
            case Study():
                engine = {"engine": self.engine} if self.engine else {}
                return {"seeds": value.seeds[:1], "cluster": self._place(value.cluster), **engine}
            case Arm(checkpoint=FromResults(at=at)):
                # A table has responses to all questions and not to a few: another model answers in its place.
                return {"checkpoint": self.shrink(at or FromModel(model=self.first))}
            case PublishedCurve():
                # The first point of those that fall on one budget.
                points = dict(
                    zip(map(self.tokens, reversed(value.budgets)), reversed(value.accuracy), strict=True)
                )
                return {"accuracy": tuple(points[budget] for budget in small.budgets)}
            case Suite():
                fixed = {0, small.grid[-1], *map(self.tokens, self.ends)} & set(small.grid)
                thin = sorted({*small.grid[:: max(1, len(small.grid) // self.size.cuts)], *fixed})
                return {"grid": tuple(thin)}
            case Benchmark():
                return {"data": self._limit_data(value.data, self.size.questions)}
            case Model() if double := self.stand_ins.model(value):
                return {"source": double.source, "dimensions": None, "precision": "auto"}
            case Experiment():
                double = self.stand_ins.model(value.model)
                stages = zip(small.stages, value.stages, strict=True)
                made_up = double is not None and double.byte_level
                fitted = (self._fit_stage(less, stage, value.model, made_up) for less, stage in stages)
                return {"stages": tuple(fitted), "cluster": self._place(value.cluster)}
            case Ppo():
                parts = 1 + len(value.cut_at)
                rollouts = max(1, small.batch.rollouts // parts) * parts
                batch = small.batch.model_copy(update={"rollouts": rollouts})
                return {"batch": batch, "minibatches": min(value.minibatches, batch.prompts)}
            case Sampling():
                longest = max(2, small.max_tokens)
                solution = small.solution and min(small.solution, longest - 1)
                return {"max_tokens": longest, "solution": solution}
            case Budgets():
                longest = max(2, small.l_max)
                below = tuple(budget for budget in small.budgets if budget < longest)
                return {"budgets": below or (1,), "l_max": longest}
            case OracleBudgets():
                longest = max(2, small.l_max)
                return {"l_max": longest, "n": min(value.n, max(1, (longest - 1) // small.step))}
            case QuestionBudgets() | Steps() | Exits():
                return {"l_max": max(2, small.l_max)}
        return {}

    def _place(self, cluster: Cluster | None) -> Cluster | None:
        """Return None for an engine of this machine, else the cluster, or a small cluster of the same placement."""
        if cluster is None or self.engine is not None:
            return None
        cluster = self.chosen.get(cluster, cluster)
        if self.size.nodes is None:
            return cluster
        wide, nodes = min(cluster.tensor_parallel, 2), min(cluster.nodes, self.size.nodes)
        several = 2 if cluster.placement == "apart" or nodes == 1 else 1
        gpus = min(cluster.gpus_per_node, several * wide)
        return cluster.model_copy(update={"nodes": nodes, "gpus_per_node": gpus, "tensor_parallel": wide})

    def _limit_data(self, data: Data, count: int) -> Data:
        """Return a data set with that many questions, whose answers are right by chance."""
        other = self.stand_ins.sources(data)
        cannot = other is not None and (data.verifier == "package" or isinstance(data.verifier, Tests))
        verifier = "math" if cannot else data.verifier
        sources = [
            # A source draws no more questions than are kept.
            source.model_copy(update={"count": min(source.count, count)})
            if isinstance(source, TaskData | PackageData)
            else source
            for source in other or data.sources
        ]
        changes = {
            "sources": tuple(sources),
            "strip": () if other is not None else data.strip,
            "verifier": verifier if isinstance(verifier, Chance) else Chance(of=verifier),
            "questions": None,
            "take": count,
        }
        return data.model_copy(update=changes)

    def _fit_stage(self, small: Stage, stage: Stage, model: Model, made_up: bool) -> Stage:
        """Return a small stage with few questions, and room for the bytes of a tokenizer that is `made_up`.

        Its teacher is the policy's own double, if either's tokenizer is made up.
        """
        method, wide = small.method, MADE_UP if made_up else 1
        if not isinstance(method, Ppo):
            # Chance may leave a selection little more than nothing.
            most = 1 if stage.selected is not None else self.size.prompts
            longest = method.max_tokens * (wide if isinstance(method, Sft) else 1)
            changes: dict[str, Any] = {"batch": min(method.batch, most), "max_tokens": longest}
        else:
            changes = {"max_prompt": method.max_prompt * wide}
        teacher = stage.method.teacher if isinstance(stage.method, Ppo) else None
        if teacher is not None and teacher.model.source != model.source:
            double = self.stand_ins.model(teacher.model)
            if made_up or (double is not None and double.byte_level):
                changes["teacher"] = self.shrink(FromModel(model=model))
        method = method.model_copy(update=changes)
        data = self._limit_data(stage.data, self.size.pool)
        return small.model_copy(update={"method": method, "data": data, "save_every": 1})


def list_unshown(spec: Spec, small: Spec, stand_ins: StandIns, declared: bool = False) -> tuple[str, ...]:
    """Return a sentence for each thing that `small` leaves out or replaces of `spec`, the weightiest first.

    `declared`: processors computed in the place of the cluster's GPUs, and the embedded engine in that of servers.
    """
    study, less = spec.study, small.study
    sentences = []
    doubles: dict[str, list[str]] = {}
    for model in values_of(spec.study, Model):
        double = stand_ins.model(model)
        if double is not None:
            doubles.setdefault(double.words, []).append(f"`{model.name}`")
    sentences += [f"the weights of {', '.join(names)}: {words}" for words, names in doubles.items()]
    absent = [
        cluster.name for cluster in values_of(spec.study, Data) if stand_ins.sources(cluster) is not None
    ]
    if absent:
        sentences.append(
            f"data that are not on this machine: made-up sums were asked in place of {', '.join(absent)}"
        )
    theirs: dict[str, list[str]] = {}
    for arm in study.arms if study.models else ():
        if isinstance(arm.checkpoint, FromResults):
            model = study.models[0] if arm.checkpoint.at is None else arm.checkpoint.at.model
            theirs.setdefault(model.name, []).append(f"`{arm.name}`")
    for name, arms in theirs.items():
        sentences.append(f"results of others: `{name}` answered in place of {', '.join(arms)}")
    clusters = (
        {cluster.name: cluster for cluster in values_of(spec.study, Cluster)} if less.cluster is None else {}
    )
    for cluster in clusters.values():
        sentences.append(
            f"cluster {label_cluster(cluster)}: GPUs, what fits into their memory, links between them,"
            " tensor parallelism, Ray"
        )
    if declared and study.cluster is not None:
        label, small_label = label_cluster(study.cluster), label_cluster(less.cluster)
        had = "" if label == small_label else f", of which {small_label} were declared"
        sentences.append(f"GPUs of {label}{had}: what fits into their memory, their kernels and NCCL")
    if declared and study.engine == "sglang":
        sentences.append("SGLang: the embedded engine generated in its place")
    if study.engine != less.engine:
        sentences.append(f"engine {study.engine}: {less.engine} generated in its place")
    longest, shorter = (
        max((cluster.max_tokens for cluster in values_of(shown_spec.study, Sampling)), default=0)
        for shown_spec in (spec, small)
    )
    if shorter < longest:
        sentences.append(f"long responses: the longest had {shorter:,} tokens and not {longest:,}")
    steps, fewer = (
        sum(cluster.steps for cluster in values_of(shown_spec.study, Stage)) for shown_spec in (spec, small)
    )
    if fewer < steps:
        sentences.append(f"long trainings: {fewer:,} steps in all and not {steps:,}, so nothing was learnt")
    if len(less.seeds) < len(study.seeds):
        sentences.append(f"other seeds: one of {len(study.seeds)} was run")
    sentences.append(
        "accuracy, REG and the rest of the report: half of all answers counted as right by chance"
    )
    return tuple(sentences)
