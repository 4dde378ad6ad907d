"""Lowering: from a compiled spec to its graph of tasks. Equal work is one task, whatever the names around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reodsl.diagnostics import problem
from reodsl.graph.payload import (
    Work,
    budgets_work,
    data_work,
    evaluate_work,
    measure_work,
    model_work,
    pool_work,
    reference_work,
    results_work,
    sample_work,
    sampled_by,
    select_work,
    stages_of_rl,
    train_work,
)
from reodsl.graph.task import Graph, Kind, Task, identity
from reodsl.ir import Origin, Spec, digest
from reodsl.ir.base import dumped
from reodsl.ir.cluster import Cluster
from reodsl.ir.data import Data
from reodsl.ir.model import Architecture, Model
from reodsl.ir.reward import OracleBudgets, QuestionBudgets
from reodsl.ir.study import Arm, Score, Study, Suite
from reodsl.ir.training import Experiment, FromModel, FromResults, FromTraining, PoolPicks, Ppo, Stage, Start


def lower(spec: Spec) -> Graph:
    """Return the tasks of a spec: each arm trained and evaluated once per seed, frontiers, a score, measures and a report.

    Raises a `Problem`: E0209 if an arm needs a frontier or rollouts that need the arm itself, E0405 for rollouts
    of no RL.
    """
    return _Lowering(spec.study).run(spec)


def depends_on_seed(start: Start) -> bool:
    """Return whether a checkpoint depends on a seed: it was trained, or its weights are drawn."""
    return isinstance(start, FromTraining) or isinstance(start.model.source, Architecture)


class _Lowering:
    """A pass over a study. Tasks are added after their inputs, so that their order is an order to run them in."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.arms = {arm.name: arm for arm in study.arms}
        self.tasks: dict[str, Task] = {}
        self.by_identity: dict[str, str] = {}
        self.identities: dict[str, str] = {}
        self.done: dict[tuple[object, ...], str] = {}
        self.open: list[str] = []

    def run(self, spec: Spec) -> Graph:
        report: dict[str, str] = {}
        for seed in self.study.seeds:
            for arm in self.study.arms:
                self._arm_roles(report, arm, seed)
            for frontier in self.study.frontiers:
                self._role(report, f"frontier:{frontier.name}", self.frontier(frontier.name, seed))
        if self.study.score is not None and self.study.arms:
            self._role(report, "score", self.score(self.study.score))
        if self.study.measures:
            self._role(report, "measure", self.measure())
        report |= {f"sample:{task.id}": task.id for task in self.tasks.values() if task.kind == "sample"}
        # No other task reads it or is equal to it: it is as large as the spec, and needs no identity here.
        unique = self._unique("report")
        report_task = Task(unique, "report", {"spec": dumped(spec)}, report, cluster=self.study.cluster)
        return Graph((*self.tasks.values(), report_task))

    def add(
        self,
        name: str,
        kind: Kind,
        work: Work,
        inputs: dict[str, str],
        arm: str | None = None,
        seed: int | None = None,
        cluster: Cluster | None = None,
        origins: Mapping[str, Origin | None] = {},
    ) -> str:
        """Add a task, and return its id, or that of an equal task, whose cluster then holds.

        It runs on `cluster`, or else on the study's.
        """
        base = f"{name}.s{seed}" if seed is not None else name
        work = sampled_by(self.study.engine, kind, work)
        task = Task(base, kind, work, inputs, arm, seed, cluster or self.study.cluster, origins)
        content = digest(identity(task))
        sources = {role: self.identities[source] for role, source in inputs.items()}
        mark = digest({"kind": kind, "payload": content, "inputs": sources})
        if mark in self.by_identity:
            return self.by_identity[mark]
        unique = self._unique(base)
        self.tasks[unique] = task if unique == base else replace(task, id=unique)
        self.by_identity[mark] = unique
        self.identities[unique] = mark
        return unique

    def _unique(self, base: str) -> str:
        """Return the first unused id that begins with `base`."""
        unique, count = base, 1
        while unique in self.tasks:
            count += 1
            unique = f"{base}~{count}"
        return unique

    def model(self, model: Model, seed: int) -> str:
        work = model_work(model, seed)
        return self.add(f"{model.name}.model", "model", work, {}, seed=work["seed"])

    def data(self, data: Data) -> str:
        return self.add(f"{data.name}.data", "data", data_work(data), {})

    def start(self, start: Start, seed: int) -> str:
        if isinstance(start, FromModel):
            return self.model(start.model, seed)
        return self.train(start.experiment, start.stage, seed)

    def train(self, experiment: Experiment, index: int, seed: int) -> str:
        key = ("train", id(experiment), index, seed)
        if key in self.done:
            return self.done[key]
        stage = experiment.stages[index]
        before = self.train(experiment, index - 1, seed) if index else self.start(experiment.start, seed)
        inputs = {"start": before, "data": self.data(stage.data)}
        if stage.selected is not None:
            inputs["data"] = self.selected(experiment, stage, stage.selected, seed)
        self._reference(inputs, experiment, index, seed)
        if isinstance(stage.method, Ppo) and stage.method.teacher is not None:
            inputs["teacher"] = self.start(stage.method.teacher, seed)
        split = split_of(stage)
        if isinstance(split, (OracleBudgets, QuestionBudgets)):
            inputs["budgets"] = self.budgets(experiment, stage, split, inputs["data"], seed)
        name = _name_stage(experiment, "train", index)
        work = train_work(stage, experiment.model, seed, index)
        self.done[key] = self.add(name, "train", work, inputs, experiment.name, seed, experiment.cluster)
        return self.done[key]

    def selected(self, experiment: Experiment, stage: Stage, selected: PoolPicks, seed: int) -> str:
        """Add a selection of a checkpoint's responses, sampled once per wording, or of questions; return its id."""
        pool = selected.pool
        pool_seed = seed if depends_on_seed(pool.start) else None
        sources = {"start": self.start(pool.start, seed), "data": self.data(stage.data)}
        inputs = {}
        for index in range(max(1, len(pool.wordings))):
            work = pool_work(pool, index, stage.data.grading, pool_seed or 0)
            name = f"{experiment.name}.pool" + (f".{index}" if pool.wordings else "")
            inputs[f"pool:{index}"] = self.add(
                name, "sample", work, sources, experiment.name, pool_seed, experiment.cluster, pool.given_at
            )
        if selected.selection.keep is not None:
            inputs["data"] = sources["data"]
        work, name = select_work(selected), f"{experiment.name}.select"
        prefixes = next(
            (wording.given_at["prefix"] for wording in pool.wordings if "prefix" in wording.given_at), None
        )
        origins = {**pool.given_at, "selection": stage.given_at.get("selected"), "prefixes": prefixes}
        return self.add(name, "select", work, inputs, experiment.name, pool_seed, origins=origins)

    def budgets(
        self,
        experiment: Experiment,
        stage: Stage,
        split: OracleBudgets | QuestionBudgets,
        data: str,
        seed: int,
    ) -> str:
        inputs: dict[str, str] = {}
        self._enter(experiment.name)
        if isinstance(split, OracleBudgets):
            inputs["frontier"] = self.frontier(split.frontier, seed)
        else:
            inputs["data"] = data
            for name in split.rollouts:
                for role, trained, index in stages_of_rl(self.arms[name], stage.data):
                    inputs[role] = self.train(trained, index, seed)
        self.open.pop()
        work = budgets_work(split)
        task_seed = self._seed_of(inputs)
        return self.add(f"{experiment.name}.budgets", "budgets", work, inputs, experiment.name, task_seed)

    def evaluate(self, arm: Arm, seed: int) -> str:
        key = ("evaluate", arm.name, seed)
        if key not in self.done:
            source, suite = arm.checkpoint, arm.suite
            table = source if isinstance(source, FromResults) else None
            if isinstance(source, FromResults):
                if source.at is None:
                    inputs = self._ask(suite)
                    work = results_work(suite, source)
                    name = f"{arm.name}.results"
                    self.done[key] = self.add(name, "results", work, inputs, arm.name, origins=suite.given_at)
                    return self.done[key]
                start: Start = source.at
            else:
                start = source
            references = self._add_references(suite, arm, seed)
            inputs = {"start": self.start(start, seed), **self._ask(suite), **references}
            task_seed = self._seed(start, seed)
            # A model that no seed changes is asked in the words that the reference of each seed decides.
            task_seed = task_seed if task_seed is not None else self._seed_of(references)
            work = evaluate_work(suite, start.model, task_seed, table)
            self.done[key] = self.add(
                f"{arm.name}.eval", "evaluate", work, inputs, arm.name, task_seed, origins=suite.given_at
            )
        return self.done[key]

    def _seed(self, start: Start, seed: int) -> int | None:
        """Return the seed of a task that samples a checkpoint, or None if the checkpoint depends on no seed."""
        return seed if depends_on_seed(start) else None

    def _ask(self, suite: Suite) -> dict[str, str]:
        return {f"data:{benchmark.name}": self.data(benchmark.data) for benchmark in suite.benchmarks}

    def _add_references(self, suite: Suite, arm: Arm, seed: int) -> dict[str, str]:
        """Add responses of a suite's reference to each benchmark, the same for all its arms; return their roles."""
        reference = suite.reference
        if reference is None:
            return {}
        inputs, sampled = {}, {"start": self.start(reference, seed)}
        task_seed = self._seed(reference, seed)
        for benchmark in suite.benchmarks:
            key = ("reference", id(suite), benchmark.name, task_seed)
            if key not in self.done:
                work = reference_work(suite, reference, benchmark.data.grading, task_seed or 0)
                name = f"{suite.name}.reference.{benchmark.data.name}"
                sources = sampled | {"data": self.data(benchmark.data)}
                origins = {"samples": suite.given_at.get("reference_samples")}
                self.done[key] = self.add(name, "sample", work, sources, arm.name, task_seed, origins=origins)
            inputs[f"reference:{benchmark.name}"] = self.done[key]
        return inputs

    def frontier(self, name: str, seed: int) -> str:
        key = ("frontier", name, seed)
        if key not in self.done:
            frontier = next(item for item in self.study.frontiers if item.name == name)
            self._enter(name)
            inputs = {f"arm:{arm}": self.evaluate(self.arms[arm], seed) for arm in frontier.of}
            self.open.pop()
            work = {"frontier": frontier.model_copy(update={"name": ""})}
            task_seed = self._seed_of(inputs)
            self.done[key] = self.add(f"{name}.frontier", "frontier", work, inputs, seed=task_seed)
        return self.done[key]

    def score(self, score: Score) -> str:
        """Add a score over all seeds, whose intervals are over seeds too; any seed's frontier determines its arms."""
        first = self.study.seeds[0]
        inputs = {"frontier": self.frontier(score.frontier, first), **self._compared(score.relative_to)}
        return self.add(
            "score",
            "score",
            {"score": score.model_copy(update={"frontier": ""})},
            inputs,
            seed=self._seed_of(inputs),
        )

    def measure(self) -> str:
        """Add the measures of all tables and charts, over all seeds."""
        score = self.study.score
        inputs = self._compared(score.relative_to if score is not None else None)
        return self.add(
            "measures",
            "measure",
            measure_work(self.study),
            inputs,
            seed=self._seed_of(inputs),
            origins=score.given_at if score is not None else {},
        )

    def _compared(self, baseline: str | None) -> dict[str, str]:
        """Return every arm's evaluation in each seed, and the baseline's first, whose identity is no name."""
        inputs: dict[str, str] = {}
        for seed in self.study.seeds:
            for arm in self.study.arms:
                self._role(inputs, f"arm:{arm.name}", self.evaluate(arm, seed))
        if baseline is not None:
            inputs["relative_to"] = self.evaluate(self.arms[baseline], self.study.seeds[0])
        return inputs

    def _reference(self, inputs: dict[str, str], experiment: Experiment, index: int, seed: int) -> None:
        """Fill the role `reference` if a reward reads the reference model's frozen samples."""
        stage = experiment.stages[index]
        method = stage.method
        if not isinstance(method, Ppo) or not method.reference_samples:
            return
        task_seed = seed if index or depends_on_seed(experiment.start) else None
        work = sample_work(
            experiment.model,
            method.rollout,
            method.reference_samples,
            stage.data.grading,
            task_seed or 0,
            (method.reward, *method.wordings),
        )
        seen = _met(stage, method, index, seed, 1 if task_seed is not None else len(self.study.seeds))
        if seen is not None:
            work["met"] = seen
        sources = {"start": inputs["start"], "data": inputs["data"]}
        name = _name_stage(experiment, "reference", index)
        inputs["reference"] = self.add(
            name,
            "sample",
            work,
            sources,
            experiment.name,
            task_seed if seen is None else seed,
            experiment.cluster,
            {**method.given_at, "samples": method.given_at.get("reference_samples")},
        )

    def _arm_roles(self, report: dict[str, str], arm: Arm, seed: int) -> None:
        """Add an arm's roles to the report: its evaluation, its stages, selections, and found budgets."""
        self._role(report, f"evaluate:{arm.name}", self.evaluate(arm, seed))
        if not isinstance(arm.checkpoint, FromTraining):
            return
        experiment = arm.checkpoint.experiment
        for index in range(arm.checkpoint.stage + 1):
            task_id = self.train(experiment, index, seed)
            self._role(report, f"train:{arm.name}:{index}", task_id)
            data = self.tasks[task_id].inputs["data"]
            if self.tasks[data].kind == "select":
                self._role(report, f"select:{arm.name}:{index}", data)
            budgets = self.tasks[task_id].inputs.get("budgets")
            if budgets is not None:
                self._role(report, f"budgets:{arm.name}", budgets)

    def _role(self, inputs: dict[str, str], role: str, task_id: str) -> None:
        seed = self.tasks[task_id].seed
        inputs[role if seed is None else f"{role}@{seed}"] = task_id

    def _seed_of(self, inputs: dict[str, str]) -> int | None:
        """Return the seed of the inputs; None if no input depends on a seed, or they have several."""
        seeds = {self.tasks[source].seed for source in inputs.values()} - {None}
        return seeds.pop() if len(seeds) == 1 else None

    def _enter(self, name: str) -> None:
        if name in self.open:
            circle = " -> ".join([*self.open[self.open.index(name) :], name])
            raise problem(
                "E0209",
                f"`{name}` needs its own result: {circle}",
                help="take the arm out of the frontier or of the rollouts that its budgets come from",
            )
        self.open.append(name)


def split_of(stage: Stage) -> object | None:
    """Return the split at which the stage's reward looks at responses, or None."""
    reward = stage.method.reward if isinstance(stage.method, Ppo) else None
    return reward.splits if reward is not None else None


def _name_stage(experiment: Experiment, kind: str, index: int) -> str:
    """Return the name of a stage's task, with the stage's name if there are several stages."""
    stage = f".{experiment.stages[index].name or index}" if len(experiment.stages) > 1 else ""
    return f"{experiment.name}.{kind}{stage}"


def _met(stage: Stage, method: Ppo, index: int, seed: int, seeds: int) -> dict[str, int] | None:
    """Return the draws of a stage's questions, for `runners.data.draws.questions_seen`; None if they may be all questions.

    A start that no seed changes is sampled once for all `seeds`, unless that is more than each of them meets.
    Rollouts that lag begin draws that no step learns from, and a monitor set has questions of its own.
    """
    draws = stage.steps * (1 + method.resample)
    counts: list[int | None] = [getattr(source, "count", None) for source in stage.data.sources]
    unpredictable = method.lag or method.monitor is not None
    if unpredictable or isinstance(split_of(stage), QuestionBudgets) or stage.selected is not None:
        return None
    certain = [count for count in counts if count is not None]
    if len(certain) == len(counts) and draws * method.batch.prompts * seeds >= sum(certain):
        return None
    return {
        "seed": seed,
        "index": index,
        "prompts": method.batch.prompts,
        "draws": draws,
        "max_prompt": method.max_prompt,
    }
