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
    """Return the graph of a spec's tasks.

    Each arm is trained and evaluated once per seed; then come frontiers, a score, measures and a report.

    Raises:
        Problem: E0209 if an arm needs a frontier or rollouts that need the arm itself, E0405 if budgets need
            rollouts of an arm that is not trained with RL.
    """
    return _Lowering(spec.study).run(spec)


def depends_on_seed(start: Start) -> bool:
    """Return whether a checkpoint depends on the run's seed: it is trained, or its weights are random."""
    return isinstance(start, FromTraining) or isinstance(start.model.source, Architecture)


class _Lowering:
    """A pass over a study that adds each task after its inputs, which makes the order of tasks an order to run them.

    Methods such as `train` and `evaluate` add a task and its inputs, and return the id of the task. The `inputs` of
    a task are the ids of the tasks whose results it reads, each by a role: the name of its use, such as `data`.
    """

    def __init__(self, study: Study) -> None:
        """Start with no tasks.

        The identity of a task is a digest of its kind, settings and inputs. `identities` has the identity of each
        task by id, and `by_identity` the reverse. `done` has the id of each training, evaluation and the like that
        was added, by a key of its arguments. `open` has the names of the frontiers and experiments whose inputs
        are being added, to find circles.
        """
        self.study = study
        self.arms = {arm.name: arm for arm in study.arms}
        self.tasks: dict[str, Task] = {}
        self.by_identity: dict[str, str] = {}
        self.identities: dict[str, str] = {}
        self.done: dict[tuple[object, ...], str] = {}
        self.open: list[str] = []

    def run(self, spec: Spec) -> Graph:
        """Add all tasks of the study, and return them with the report's task as the last.

        The report reads the results of all arms, frontiers, the score, the measures and all samplings.
        """
        inputs: dict[str, str] = {}  # the ids of the tasks that the report reads, by role
        for seed in self.study.seeds:
            for arm in self.study.arms:
                self._arm_roles(inputs, arm, seed)
            for frontier in self.study.frontiers:
                self._role(inputs, f"frontier:{frontier.name}", self.frontier(frontier.name, seed))
        if self.study.score is not None and self.study.arms:
            self._role(inputs, "score", self.score(self.study.score))
        if self.study.measures:
            self._role(inputs, "measure", self.measure())
        inputs |= {f"sample:{task.id}": task.id for task in self.tasks.values() if task.kind == "sample"}
        # No task reads the report, so it needs no identity, which would be slow to compute: it holds the whole spec.
        unique = self._unique("report")
        report_task = Task(unique, "report", {"spec": dumped(spec)}, inputs, cluster=self.study.cluster)
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
        """Add a task and return its id; if an equal task was added before, only return the id of that task.

        Args:
            name: The start of the id, such as `vanilla.train`.
            kind: The kind of work.
            work: The values of the spec that the task needs.
            inputs: The ids of the tasks whose results the task reads, by role.
            arm: The name of the arm or experiment that needs the task first.
            seed: The run's seed, if the result depends on it.
            cluster: The cluster of the task; None for the study's.
            origins: The lines of the spec that set plain values of `work`.
        """
        base = f"{name}.s{seed}" if seed is not None else name
        work = sampled_by(self.study.engine, kind, work)
        task = Task(base, kind, work, inputs, arm, seed, cluster or self.study.cluster, origins)
        content = digest(identity(task))
        sources = {role: self.identities[source] for role, source in inputs.items()}
        task_identity = digest({"kind": kind, "payload": content, "inputs": sources})
        if task_identity in self.by_identity:
            return self.by_identity[task_identity]
        unique = self._unique(base)
        self.tasks[unique] = task if unique == base else replace(task, id=unique)
        self.by_identity[task_identity] = unique
        self.identities[unique] = task_identity
        return unique

    def _unique(self, base: str) -> str:
        """Return `base` if no task has this id, else the first unused of `base~2`, `base~3` and so on."""
        unique, count = base, 1
        while unique in self.tasks:
            count += 1
            unique = f"{base}~{count}"
        return unique

    def model(self, model: Model, seed: int) -> str:
        """Add the task that provides an untrained model's weights, and return its id."""
        work = model_work(model, seed)
        return self.add(f"{model.name}.model", "model", work, {}, seed=work["seed"])

    def data(self, data: Data) -> str:
        return self.add(f"{data.name}.data", "data", data_work(data), {})

    def start(self, start: Start, seed: int) -> str:
        """Add the tasks that a checkpoint needs, and return the id of the task whose result is the checkpoint."""
        if isinstance(start, FromModel):
            return self.model(start.model, seed)
        return self.train(start.experiment, start.stage, seed)

    def train(self, experiment: Experiment, index: int, seed: int) -> str:
        """Add the training of stage `index` of an experiment, with all its inputs, and return its id.

        The inputs are the previous stage or the start, the questions or a selection, and if the stage needs them the
        reference model's responses, the teacher and found budgets.

        Args:
            experiment: The experiment.
            index: The position of the stage, from 0.
            seed: The run's seed.
        """
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
        """Add a selection from a pool, and the sampling of the pool's responses once per wording.

        The sampled responses are the inputs `pool:INDEX` of the selection. A selection of questions (with `keep`)
        also reads the questions. If the pool's checkpoint is the same for all seeds, so are the tasks.

        Args:
            experiment: The experiment whose stage trains on the selection.
            stage: The stage.
            selected: The selection and its pool.
            seed: The run's seed.

        Returns:
            The id of the selection's task.
        """
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
        """Add the task that finds a reward's budgets from a frontier or from rollouts of other arms.

        Budgets are the positions, in tokens, at which a reward divides responses; the code calls them `split`.

        Args:
            experiment: The experiment whose reward has the budgets.
            stage: The stage of the experiment.
            split: The rule by which budgets are found: on a frontier, or for each question from rollouts.
            data: The id of the task with the stage's questions.
            seed: The run's seed.

        Returns:
            The id of the task.
        """
        inputs: dict[str, str] = {}
        self._enter(experiment.name)
        if isinstance(split, OracleBudgets):
            inputs["frontier"] = self.frontier(split.frontier, seed)
        else:
            inputs["data"] = data
            for name in split.rollouts:
                for role, rl_experiment, index in stages_of_rl(self.arms[name], stage.data):
                    inputs[role] = self.train(rl_experiment, index, seed)
        self.open.pop()
        work = budgets_work(split)
        task_seed = self._seed_of(inputs)
        return self.add(f"{experiment.name}.budgets", "budgets", work, inputs, experiment.name, task_seed)

    def evaluate(self, arm: Arm, seed: int) -> str:
        """Add the evaluation of an arm, or the reading of its imported results, and return the id of the task.

        There are three kinds of arm. A checkpoint is evaluated. Imported results (`FromResults`) are only read. If
        imported results name a checkpoint (`at`), then that checkpoint is evaluated, and forces answers after cuts
        of the imported responses.
        """
        key = ("evaluate", arm.name, seed)
        if key not in self.done:
            source, suite = arm.checkpoint, arm.suite
            table = source if isinstance(source, FromResults) else None
            if isinstance(source, FromResults):
                if source.at is None:
                    inputs = self._add_questions(suite)
                    work = results_work(suite, source)
                    name = f"{arm.name}.results"
                    self.done[key] = self.add(name, "results", work, inputs, arm.name, origins=suite.given_at)
                    return self.done[key]
                start: Start = source.at
            else:
                start = source
            references = self._add_references(suite, arm, seed)
            inputs = {"start": self.start(start, seed), **self._add_questions(suite), **references}
            task_seed = self._seed(start, seed)
            # The reference model's responses, which choose wordings, may depend on a seed though the model does not.
            task_seed = task_seed if task_seed is not None else self._seed_of(references)
            work = evaluate_work(suite, start.model, task_seed, table)
            self.done[key] = self.add(
                f"{arm.name}.eval", "evaluate", work, inputs, arm.name, task_seed, origins=suite.given_at
            )
        return self.done[key]

    def _seed(self, start: Start, seed: int) -> int | None:
        """Return the seed of a task that samples a checkpoint, or None if the checkpoint is the same for all seeds."""
        return seed if depends_on_seed(start) else None

    def _add_questions(self, suite: Suite) -> dict[str, str]:
        """Add the questions of a suite's benchmarks, and return the ids of their tasks by role."""
        return {f"data:{benchmark.name}": self.data(benchmark.data) for benchmark in suite.benchmarks}

    def _add_references(self, suite: Suite, arm: Arm, seed: int) -> dict[str, str]:
        """Add the sampling of a suite's reference model on each benchmark.

        The reference model's responses choose the wordings of questions. All arms of the suite share these tasks.

        Args:
            suite: The suite.
            arm: The arm that is evaluated.
            seed: The run's seed.

        Returns:
            The ids of the tasks by role; empty if the suite has no reference model.
        """
        reference = suite.reference
        if reference is None:
            return {}
        inputs, start = {}, {"start": self.start(reference, seed)}
        task_seed = self._seed(reference, seed)
        for benchmark in suite.benchmarks:
            key = ("reference", id(suite), benchmark.name, task_seed)
            if key not in self.done:
                work = reference_work(suite, reference, benchmark.data.grading, task_seed or 0)
                name = f"{suite.name}.reference.{benchmark.data.name}"
                sources = start | {"data": self.data(benchmark.data)}
                origins = {"samples": suite.given_at.get("reference_samples")}
                self.done[key] = self.add(name, "sample", work, sources, arm.name, task_seed, origins=origins)
            inputs[f"reference:{benchmark.name}"] = self.done[key]
        return inputs

    def frontier(self, name: str, seed: int) -> str:
        """Add a frontier of the study, and return the id of its task.

        The frontier is over the evaluations of its arms with the given seed. Its task has no inputs if its curves are
        published numbers.
        """
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
        """Add the score over the evaluations of all seeds, and return the id of its task.

        The frontier task of the first seed is also an input. Its result tells which arms the frontier has, or has the
        curves of a published frontier.
        """
        first = self.study.seeds[0]
        inputs = {"frontier": self.frontier(score.frontier, first), **self._add_arms(score.relative_to)}
        return self.add(
            "score",
            "score",
            {"score": score.model_copy(update={"frontier": ""})},
            inputs,
            seed=self._seed_of(inputs),
        )

    def measure(self) -> str:
        """Add the measures of all tables and charts over the evaluations of all seeds, and return their task's id."""
        score = self.study.score
        inputs = self._add_arms(score.relative_to if score is not None else None)
        return self.add(
            "measures",
            "measure",
            measure_work(self.study),
            inputs,
            seed=self._seed_of(inputs),
            origins=score.given_at if score is not None else {},
        )

    def _add_arms(self, baseline: str | None) -> dict[str, str]:
        """Add the evaluations of all arms with all seeds, and return the ids of their tasks by role.

        The role of an evaluation is `arm:NAME@SEED`, or `arm:NAME` if it is the same for all seeds. If there is a
        baseline, its evaluation with the first seed also has the role `relative_to`. The baseline is thus identified
        by its result and not by its name, and renaming the arm changes no result.

        Args:
            baseline: The name of the arm that differences are relative to; None without a baseline.
        """
        inputs: dict[str, str] = {}
        for seed in self.study.seeds:
            for arm in self.study.arms:
                self._role(inputs, f"arm:{arm.name}", self.evaluate(arm, seed))
        if baseline is not None:
            inputs["relative_to"] = self.evaluate(self.arms[baseline], self.study.seeds[0])
        return inputs

    def _reference(self, inputs: dict[str, str], experiment: Experiment, index: int, seed: int) -> None:
        """Add the sampling of the reference model as the input `reference` of a stage's training.

        Nothing is added if the stage has no `reference_samples`. If the stage cannot use all questions, the reference
        model answers only the questions that the stage draws, and the samples depend on the run's seed.

        Args:
            inputs: The inputs of the stage's training, which are added to.
            experiment: The experiment.
            index: The position of the stage, from 0.
            seed: The run's seed.
        """
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
        num_seeds = 1 if task_seed is not None else len(self.study.seeds)
        draws = _limit_questions(stage, method, index, seed, num_seeds)
        if draws is not None:
            work["met"] = draws
        sources = {"start": inputs["start"], "data": inputs["data"]}
        name = _name_stage(experiment, "reference", index)
        inputs["reference"] = self.add(
            name,
            "sample",
            work,
            sources,
            experiment.name,
            task_seed if draws is None else seed,
            experiment.cluster,
            {**method.given_at, "samples": method.given_at.get("reference_samples")},
        )

    def _arm_roles(self, inputs: dict[str, str], arm: Arm, seed: int) -> None:
        """Add the tasks of an arm and a seed as inputs of the report: evaluation, stages, selections and budgets.

        Args:
            inputs: The inputs of the report's task, which are added to.
            arm: The arm.
            seed: The run's seed.
        """
        self._role(inputs, f"evaluate:{arm.name}", self.evaluate(arm, seed))
        if not isinstance(arm.checkpoint, FromTraining):
            return
        experiment = arm.checkpoint.experiment
        for index in range(arm.checkpoint.stage + 1):
            task_id = self.train(experiment, index, seed)
            self._role(inputs, f"train:{arm.name}:{index}", task_id)
            data = self.tasks[task_id].inputs["data"]
            if self.tasks[data].kind == "select":
                self._role(inputs, f"select:{arm.name}:{index}", data)
            budgets = self.tasks[task_id].inputs.get("budgets")
            if budgets is not None:
                self._role(inputs, f"budgets:{arm.name}", budgets)

    def _role(self, inputs: dict[str, str], role: str, task_id: str) -> None:
        """Add a task to `inputs` under a role, to which `@SEED` is appended if the task's result depends on a seed.

        Args:
            inputs: The inputs, which are added to.
            role: The name of the task's use, such as `evaluate:vanilla`, without its seed.
            task_id: The id of the task.
        """
        seed = self.tasks[task_id].seed
        inputs[role if seed is None else f"{role}@{seed}"] = task_id

    def _seed_of(self, inputs: dict[str, str]) -> int | None:
        """Return the one seed that inputs depend on; None if no input depends on a seed, or if seeds differ."""
        seeds = {self.tasks[source].seed for source in inputs.values()} - {None}
        return seeds.pop() if len(seeds) == 1 else None

    def _enter(self, name: str) -> None:
        """Note that the inputs of an experiment's budgets or of a frontier are being added.

        The caller removes the note when all inputs are added.

        Raises:
            Problem: E0209 if this name was noted and not removed: the result would need itself.
        """
        if name in self.open:
            circle = " -> ".join([*self.open[self.open.index(name) :], name])
            raise problem(
                "E0209",
                f"`{name}` needs its own result: {circle}",
                help="take the arm out of the frontier or of the rollouts that its budgets come from",
            )
        self.open.append(name)


def split_of(stage: Stage) -> object | None:
    """Return the splits of a stage's reward: the positions, in tokens, at which responses are divided.

    The result is None if the reward has no splits, or if the stage is not PPO and so has no reward.
    """
    reward = stage.method.reward if isinstance(stage.method, Ppo) else None
    return reward.splits if reward is not None else None


def _name_stage(experiment: Experiment, kind: str, index: int) -> str:
    """Return the name of a stage's task, as `vanilla.train`, with the stage's name if there are several stages.

    Args:
        experiment: The experiment.
        kind: What the task does: `train` or `reference`.
        index: The position of the stage, from 0.
    """
    stage = f".{experiment.stages[index].name or index}" if len(experiment.stages) > 1 else ""
    return f"{experiment.name}.{kind}{stage}"


def _limit_questions(stage: Stage, method: Ppo, index: int, seed: int, seeds: int) -> dict[str, int] | None:
    """Return the arguments that reproduce which questions a stage draws, if it cannot use all questions of its data.

    The reference model then answers only these questions.

    Args:
        stage: The stage.
        method: The settings of its PPO.
        index: The position of the stage, from 0.
        seed: The run's seed.
        seeds: How many seeds share the samples of the reference model.

    Returns:
        The arguments of `runners.data.draws.questions_seen`. None if the draws over all seeds are at least as many as
        the questions. None also if the draws are not known in advance: with a lag, a monitor set, a budget for each
        question, or a selection.
    """
    draws = stage.steps * (1 + method.resample)  # in each draw, `batch.prompts` questions
    counts: list[int | None] = [getattr(source, "count", None) for source in stage.data.sources]
    unpredictable = method.lag or method.monitor is not None
    if unpredictable or isinstance(split_of(stage), QuestionBudgets) or stage.selected is not None:
        return None
    known_counts = [count for count in counts if count is not None]
    if len(known_counts) == len(counts) and draws * method.batch.prompts * seeds >= sum(known_counts):
        return None
    return {
        "seed": seed,
        "index": index,
        "prompts": method.batch.prompts,
        "draws": draws,
        "max_prompt": method.max_prompt,
    }
