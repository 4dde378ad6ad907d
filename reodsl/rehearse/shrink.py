"""Make a spec small, with short responses, few questions, few steps and small models, and list what that cannot show.

All lengths in tokens (of responses, budgets, grids, frontiers, and in rewards) are multiplied by the same factor, so that
their order stays. Equal values stay equal, so that tasks which arms share stay shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reodsl.diagnostics.model import group
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
    """A small model that replaces a model in a rehearsal."""

    source: ModelSource
    """Source of the small model."""
    words: str
    """Description of the small model for the list of what a rehearsal cannot show."""
    byte_level: bool = False
    """True if it has a made-up tokenizer, with a token for each byte."""


@dataclass(frozen=True, slots=True)
class StandIns:
    """The small models and generated questions that replace models and missing data sets in a rehearsal."""

    models: Mapping[str, StandIn] = field(default_factory=dict)
    """Small models by the digest of the replaced model's source."""
    data: Mapping[str, tuple[DataSource, ...]] = field(default_factory=dict)
    """Generated questions by the name that `name_data` gives the replaced data set."""

    def model(self, model: Model) -> StandIn | None:
        """Return the small model that replaces a model, or None if the model is not replaced."""
        return self.models.get(digest(model.source))

    def sources(self, data: Data) -> tuple[DataSource, ...] | None:
        """Return the sources that replace those of a data set, or None if the data set is not replaced."""
        return self.data.get(name_data(data))


def name_data(data: Data) -> str:
    """Return the digest of a data set's sources, which names the data set in `StandIns`."""
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
    """Responses to each question of the pool from which questions are selected."""
    answer: int = 4
    """Tokens of a forced answer."""
    nodes: int | None = None
    """Nodes of a cluster that the rehearsal starts, each with as few GPUs as several processes need; None for the
    spec's cluster."""


MADE_UP = 8
"""Upper bound of the tokens of a byte-level tokenizer for a token of a real tokenizer."""


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
"""Settings that are lengths in tokens, by class; they are multiplied by the factor, as constants in tokens are."""


def _list_limits(size: Size) -> Mapping[type, Mapping[str, Any]]:
    """Return the largest values of settings in a rehearsal, by class and name; None removes the setting.

    A setting that is None in the spec stays None.
    """
    return {
        Study: {"limit": None},
        Suite: {"samples": size.samples, "reference_samples": size.picked, "expected_length": None},
        Stage: {"steps": size.steps, "expected_length": None},
        Optimizer: {"warmup_steps": 1},
        Plateau: {"window": 1},
        Batch: {"prompts": size.prompts, "rollouts": size.rollouts},
        # The lag is short enough that new weights reach the engine within the few steps.
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
    """Return the small spec that a rehearsal runs, without a limit of costs and with the first seed only.

    A spec that trains and evaluates no model, and only scores result files, is returned unchanged.

    Args:
        spec: The spec.
        size: Size of the rehearsal.
        stand_ins: Replacements of models and data sets.
        engine: Engine of a rehearsal on this machine, which has no cluster; None for the spec's engine and cluster.
    """
    study = spec.study
    if not study.models:
        # The spec only scores result files of other tools, which takes moments.
        return spec
    lengths = [sampling.max_tokens for sampling in values_of(study, Sampling)]
    factor = min(1.0, size.longest / max(lengths, default=size.longest))
    ends = {frontier.to for frontier in study.frontiers} | {arm.suite.reg_to for arm in study.arms}
    ends |= {0, study.score.to if study.score else 0}
    chosen = choose_sharding(spec)
    shrinker = _Shrinker(size, stand_ins, factor, engine, frozenset(ends), study.models[0], chosen)
    return spec.model_copy(update={"study": shrinker.shrink(study)})


@dataclass(slots=True)
class _Shrinker:
    """The recursive pass over a study that makes it small."""

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
    """(original, small object) by the original's `id`, so that equal objects stay the same object."""

    def tokens(self, count: Any) -> Any:
        """Return a number of tokens multiplied by the factor, rounded, and at least 1; 0 and None stay.

        A tuple of numbers is returned as a tuple, in which numbers that have become equal appear once.
        """
        if isinstance(count, tuple):
            return tuple(dict.fromkeys(map(self.tokens, count)))
        return max(1, round(count * self.factor)) if count else count

    def shrink(self, value: Any) -> Any:
        """Return a small copy of a study or of any value in it, with all nested values made small.

        A constant in tokens is multiplied by the factor (`unit` is the exponent of tokens). A value that is no object of
        the spec stays. Each object is copied once.
        """
        if isinstance(value, Constant):
            return replace(value, value=value.value * self.factor**value.unit)
        if isinstance(value, tuple):
            return tuple(map(self.shrink, value))
        if not isinstance(value, IR | Node):
            return value
        if id(value) not in self.done:
            # The original is kept too, so that its `id` is not used for another object.
            self.done[id(value)] = value, self._shrink_object(value)
        return self.done[id(value)][1]

    def _shrink_object(self, value: Any) -> Any:
        """Return a small copy of an object of a spec.

        First its fields are made small, then its lengths in tokens are multiplied by the factor and its numbers limited, and
        at last fields are changed that no longer fit each other.
        """
        settings = {name: self.shrink(getattr(value, name)) for name in names_of(type(value)) or ()}
        for name in TOKENS.get(type(value), ()):
            settings[name] = self.tokens(settings[name])
        for name, limit in _list_limits(self.size).get(type(value), {}).items():
            settings[name] = limit if limit is None or settings[name] is None else min(settings[name], limit)
        if isinstance(value, Node):
            return replace(value, **settings)
        small = value.model_copy(update=settings)
        return small.model_copy(update=self._make_consistent(small, value))

    def _make_consistent(self, small: Any, value: Any) -> dict[str, Any]:
        """Return changes of fields that make a small object consistent again.

        Args:
            small: The object after its fields were made small.
            value: The original object.

        Returns:
            New values by field.
        """
        match value:
            case Study():
                engine = {"engine": self.engine} if self.engine else {}
                return {"seeds": value.seeds[:1], "cluster": self._shrink_cluster(value.cluster), **engine}
            case Arm(checkpoint=FromResults(at=at)):
                # A table of responses does not suit a few questions: a model generates responses in its place.
                return {"checkpoint": self.shrink(at or FromModel(model=self.first))}
            case PublishedCurve():
                # Of points whose budgets have become equal, the first stays.
                points = dict(
                    zip(map(self.tokens, reversed(value.budgets)), reversed(value.accuracy), strict=True)
                )
                return {"accuracy": tuple(points[budget] for budget in small.budgets)}
            case Suite():
                kept_budgets = {0, small.grid[-1], *map(self.tokens, self.ends)} & set(small.grid)
                budgets = sorted({*small.grid[:: max(1, len(small.grid) // self.size.cuts)], *kept_budgets})
                return {"grid": tuple(budgets)}
            case Benchmark():
                return {"data": self._limit_data(value.data, self.size.questions)}
            case Model() if double := self.stand_ins.model(value):
                return {"source": double.source, "dimensions": None, "precision": "auto"}
            case Experiment():
                double = self.stand_ins.model(value.model)
                stages = zip(small.stages, value.stages, strict=True)
                is_byte_level = double is not None and double.byte_level
                fitted = (self._fit_stage(less, stage, value.model, is_byte_level) for less, stage in stages)
                return {"stages": tuple(fitted), "cluster": self._shrink_cluster(value.cluster)}
            case Ppo():
                responses_per_rollout = 1 + len(value.cut_at)
                rollouts = max(1, small.batch.rollouts // responses_per_rollout) * responses_per_rollout
                batch = small.batch.model_copy(update={"rollouts": rollouts})
                return {"batch": batch, "minibatches": min(value.minibatches, batch.prompts)}
            case Sampling():
                longest = max(2, small.max_tokens)
                solution = small.solution and min(small.solution, longest - 1)
                return {"max_tokens": longest, "solution": solution}
            case Budgets():
                longest = max(2, small.l_max)
                smaller = tuple(budget for budget in small.budgets if budget < longest)
                return {"budgets": smaller or (1,), "l_max": longest}
            case OracleBudgets():
                longest = max(2, small.l_max)
                return {"l_max": longest, "n": min(value.n, max(1, (longest - 1) // small.step))}
            case QuestionBudgets() | Steps() | Exits():
                return {"l_max": max(2, small.l_max)}
        return {}

    def _shrink_cluster(self, cluster: Cluster | None) -> Cluster | None:
        """Return the cluster of a rehearsal for a cluster of the spec.

        It is None if the rehearsal has an engine of its own, as it then runs on this machine. It is the spec's cluster if
        the size names no number of nodes. Otherwise it is a small cluster, with just enough GPUs on each node for a trainer
        and an engine.
        """
        if cluster is None or self.engine is not None:
            return None
        cluster = self.chosen.get(cluster, cluster)
        if self.size.nodes is None:
            return cluster
        width, nodes = min(cluster.tensor_parallel, 2), min(cluster.nodes, self.size.nodes)
        gpu_groups = 2 if cluster.placement == "apart" or nodes == 1 else 1
        gpus = min(cluster.gpus_per_node, gpu_groups * width)
        return cluster.model_copy(update={"nodes": nodes, "gpus_per_node": gpus, "tensor_parallel": width})

    def _limit_data(self, data: Data, count: int) -> Data:
        """Return a data set with at most `count` questions, random verdicts, and generated questions for missing ones.

        Verdicts are random (`Chance`) because a small model never answers right. If the questions are generated, they have
        no tests and no data of a package, and the verifier `math` replaces a verifier that needs these.
        """
        replacements = self.stand_ins.sources(data)
        # Made-up questions lack what these verifiers need.
        needs_own = data.verifier == "package" or isinstance(data.verifier, Tests)
        verifier = "math" if replacements is not None and needs_own else data.verifier
        sources = [
            # A source generates no more questions than are kept.
            source.model_copy(update={"count": min(source.count, count)})
            if isinstance(source, TaskData | PackageData)
            else source
            for source in replacements or data.sources
        ]
        changes = {
            "sources": tuple(sources),
            "strip": () if replacements is not None else data.strip,
            "verifier": verifier if isinstance(verifier, Chance) else Chance(of=verifier),
            "questions": None,
            "take": count,
        }
        return data.model_copy(update=changes)

    def _fit_stage(self, small: Stage, stage: Stage, model: Model, is_byte_level: bool) -> Stage:
        """Return a small stage with few questions, a checkpoint after every step, and limits that suit its tokenizer.

        If the small policy has a byte-level tokenizer, prompts and demonstrations may have `MADE_UP` times as many tokens. A
        teacher needs the policy's tokenizer: if the small policy or small teacher has a byte-level tokenizer, the small
        policy's model is the teacher.

        Args:
            small: The stage after its fields were made small.
            stage: The original stage.
            model: The original policy.
            is_byte_level: Whether the small policy has a made-up tokenizer.
        """
        method, bytes_per_token = small.method, MADE_UP if is_byte_level else 1
        if not isinstance(method, Ppo):
            # With random verdicts, a selection may have only a few responses.
            max_prompts = 1 if stage.selected is not None else self.size.prompts
            longest = method.max_tokens * (bytes_per_token if isinstance(method, Sft) else 1)
            changes: dict[str, Any] = {"batch": min(method.batch, max_prompts), "max_tokens": longest}
        else:
            changes = {"max_prompt": method.max_prompt * bytes_per_token}
        teacher = stage.method.teacher if isinstance(stage.method, Ppo) else None
        if teacher is not None and teacher.model.source != model.source:
            double = self.stand_ins.model(teacher.model)
            if is_byte_level or (double is not None and double.byte_level):
                changes["teacher"] = self.shrink(FromModel(model=model))
        method = method.model_copy(update=changes)
        data = self._limit_data(stage.data, self.size.pool)
        return small.model_copy(update={"method": method, "data": data, "save_every": 1})


def list_unshown(
    spec: Spec, small: Spec, stand_ins: StandIns, are_gpus_declared: bool = False
) -> tuple[str, ...]:
    """Return sentences on what a rehearsal leaves out or replaces, the most important first.

    Args:
        spec: The spec.
        small: The small spec that the rehearsal runs.
        stand_ins: Replacements of models and data sets.
        are_gpus_declared: Whether GPUs were only declared: processors computed, and the embedded engine generated.
    """
    study, small_study = spec.study, small.study
    sentences = []
    doubles = group(
        (double.words, f"`{model.name}`")
        for model in values_of(spec.study, Model)
        if (double := stand_ins.model(model)) is not None
    )
    sentences += [f"the weights of {', '.join(names)}: {words}" for words, names in doubles.items()]
    missing_data = [data.name for data in values_of(spec.study, Data) if stand_ins.sources(data) is not None]
    if missing_data:
        sentences.append(
            f"data that are not on this machine: generated sums replaced {', '.join(missing_data)}"
        )
    arms_by_model = group(
        ((study.models[0] if arm.checkpoint.at is None else arm.checkpoint.at.model).name, f"`{arm.name}`")
        for arm in study.arms
        if study.models and isinstance(arm.checkpoint, FromResults)
    )
    for name, arms in arms_by_model.items():
        sentences.append(f"results of others: `{name}` answered in place of {', '.join(arms)}")
    clusters = {cluster.name: cluster for cluster in values_of(spec.study, Cluster)}
    for cluster in clusters.values() if small_study.cluster is None else ():
        sentences.append(
            f"cluster {label_cluster(cluster)}: GPUs, what fits into their memory, links between them,"
            " tensor parallelism, Ray"
        )
    if are_gpus_declared and study.cluster is not None:
        label, small_label = label_cluster(study.cluster), label_cluster(small_study.cluster)
        note = "" if label == small_label else f", of which {small_label} were declared"
        sentences.append(f"GPUs of {label}{note}: what fits into their memory, their kernels and NCCL")
    if are_gpus_declared and study.engine == "sglang":
        sentences.append("SGLang: the embedded engine generated in its place")
    if study.engine != small_study.engine:
        sentences.append(f"engine {study.engine}: {small_study.engine} generated in its place")
    longest, small_longest = (
        max((sampling.max_tokens for sampling in values_of(variant.study, Sampling)), default=0)
        for variant in (spec, small)
    )
    if small_longest < longest:
        sentences.append(f"long responses: the longest had {small_longest:,} tokens and not {longest:,}")
    steps, fewer = (
        sum(stage.steps for stage in values_of(variant.study, Stage)) for variant in (spec, small)
    )
    if fewer < steps:
        sentences.append(f"long trainings: {fewer:,} steps in all, not {steps:,}, so nothing was learnt")
    if len(small_study.seeds) < len(study.seeds):
        sentences.append(f"other seeds: one of {len(study.seeds)} was run")
    sentences.append(
        "accuracy, REG and the rest of the report: half of all answers counted as right by chance"
    )
    return tuple(sentences)
