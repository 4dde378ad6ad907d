"""Work of tasks: the part of the spec that a task's result depends on, and the responses that a study samples once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reodsl.diagnostics import problem
from reodsl.graph.task import Kind, Task
from reodsl.ir import IR
from reodsl.ir.base import anonymous
from reodsl.ir.data import After, Chance, Comparison, Data, File, Grading, HubData, Python, Tests
from reodsl.ir.expression import list_sampled
from reodsl.ir.model import Architecture, Folder, Model, ServedModel
from reodsl.ir.reward import OracleBudgets, QuestionBudgets
from reodsl.ir.study import Arm, Study, Suite
from reodsl.ir.training import (
    Experiment,
    FromResults,
    FromTraining,
    Pool,
    PoolPicks,
    Ppo,
    Sampling,
    Stage,
    Start,
)

Work = dict[str, Any]
"""The work of a task: values of the spec and plain values, by name."""

_NO_SOURCE = Folder.model_construct(path="")


def model_work(model: Model, seed: int) -> Work:
    """Return the work `{"model", "seed"}` of providing a model's weights.

    The seed is None for existing weights, and the run's seed if it draws random weights. Settings that the weights do
    not depend on, such as the prompt, are replaced by defaults.
    """
    source = model.model_copy(update={"precision": "auto", "prompt": {}, "dimensions": None})
    return {"model": source, "seed": seed if isinstance(model.source, Architecture) else None}


def data_work(data: Data) -> Work:
    """Return the work `{"data"}` of making the questions of a data set.

    How answers are graded does not change generated questions, so the settings of grading become defaults. A data
    set from a file or a hub is different: its reference answers must be readable by its verifier. Then the verifier
    is reduced to the kind on which the reading depends, and the markers before answers (`After`) stay.
    """
    verifier = data.verifier.of if isinstance(data.verifier, Chance) else data.verifier
    grading = Grading()
    if any(isinstance(source, (File, HubData)) for source in data.sources):
        # Functions and `exact` take any reference answer; `math` and tests must be able to read it.
        kind: Comparison = "exact" if isinstance(verifier, Python) or verifier == "exact" else "math"
        if isinstance(verifier, Tests):
            kind = Tests()
        marks = tuple(source for source in data.answer if isinstance(source, After))
        grading = Grading(verifier=kind, answer=marks or grading.answer)
    return {"data": data.model_copy(update=dict(grading))}


def train_work(stage: Stage, model: Model, seed: int, index: int) -> Work:
    """Return the work `{"stage", "model", "seed", "index"}` of training a stage.

    What other tasks provide as inputs is left out: the questions, a selection, the teacher, and the names of the
    frontier or arms from which budgets are found.

    Args:
        stage: The stage.
        model: The model that training descends from.
        seed: The run's seed.
        index: The position of the stage in its experiment, from 0.
    """
    method = stage.method
    if isinstance(method, Ppo):
        reward, dense = method.reward, method.reward.dense
        if dense is not None and (names := _FOUND_LATER.get(dense.split.kind)):
            dense = dense.model_copy(update={"split": dense.split.model_copy(update=names)})
            reward = reward.model_copy(update={"dense": dense})
        method = method.model_copy(update={"teacher": None, "reward": reward})
    update = {"method": method, "data": _without_questions(stage.data), "selected": None}
    return {"stage": stage.model_copy(update=update), "model": _reader(model), "seed": seed, "index": index}


_FOUND_LATER: dict[str, Work] = {"oracle": {"frontier": ""}, "question": {"rollouts": ()}}
"""Empty values for the fields that name arms, by the kind of split that is found from other arms."""


def sample_work(
    model: Model, rollout: Sampling, samples: int, grading: Grading, seed: int, readers: Sequence[IR] = ()
) -> Work:
    """Return the work of sampling responses to the questions of a data set.

    Args:
        model: The model, whose weights are an input.
        rollout: The settings of sampling.
        samples: The number of responses to each question.
        grading: How responses are graded.
        seed: The seed of the sampling.
        readers: The rewards and conditions that read the responses of a reference model.

    Returns:
        `{"model", "rollout", "samples", "grading", "seed"}`, with `"thinking": True` if a reader needs the number
        of thinking tokens.
    """
    return {
        "model": _reader(model),
        "rollout": rollout,
        "samples": samples,
        "grading": grading,
        "seed": seed,
        **({"thinking": True} if any(map(list_sampled, readers)) else {}),
    }


def pool_work(pool: Pool, index: int, grading: Grading, seed: int) -> Work:
    """Return the work of sampling a pool of responses in one wording.

    Args:
        pool: The pool.
        index: The position of the wording, from 0; a pool without wordings uses the model's own prompt.
        grading: How responses are graded.
        seed: The run's seed, from which each wording has another seed.
    """
    model = pool.start.model
    if pool.wordings:
        prompt = pool.wordings[index].over(model.prompt)
        model = model.model_copy(update={"prompt": prompt})
    return sample_work(model, pool.rollout, pool.samples, grading, derive_seed(seed, index))


def reference_work(suite: Suite, reference: Start, grading: Grading, seed: int) -> Work:
    """Return the work of sampling a suite's reference model, whose responses decide the wordings of questions.

    Args:
        suite: The suite, with the settings of sampling.
        reference: The checkpoint of the reference model.
        grading: How responses are graded.
        seed: The run's seed.
    """
    samples = suite.reference_samples
    seed = derive_seed(seed, suite.seed)
    return sample_work(reference.model, suite.rollout, samples, grading, seed, suite.wordings)


def derive_seed(seed: int, index: int) -> int:
    """Return a seed for the sampling number `index` of a run: `seed` itself for 0, else a hash of the two numbers."""
    if index == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}\0{index}".encode()).digest()[:6], "big")


def select_work(selected: PoolPicks) -> Work:
    """Return the work `{"selection", "samples", "prefixes"}` of selecting from a pool.

    `samples` is the number of responses to a question in each input `pool:INDEX`, and `prefixes` are the texts
    that these responses begin with.
    """
    pool = selected.pool
    prefixes = [wording.prefix for wording in pool.wordings] or [""]
    return {"selection": selected.selection, "samples": pool.samples, "prefixes": prefixes}


def evaluate_work(suite: Suite, model: Model, seed: int | None, table: FromResults | None = None) -> Work:
    """Return the work of evaluating a checkpoint on a suite.

    Questions and the reference model's responses are inputs. Arms with the same seed have the same random streams
    for a question. Different seeds have different streams: a mean over seeds then averages over sampling as well as
    over trainings.

    Args:
        suite: The suite; `reg_to`, which only scoring reads, is left out.
        model: The model that the checkpoint descends from.
        seed: The run's seed; None if the checkpoint is the same for all seeds.
        table: Imported responses, if the checkpoint only forces answers after cuts of these responses. None for a
            checkpoint that generates its own responses.

    Returns:
        `{"suite", "model", "seed"}` with the suite's seed, `"replicate"` with the run's seed if any, and `"base"`
        with the table if any.
    """
    if suite.wording is not None:
        model = model.model_copy(update={"prompt": suite.wording.over(model.prompt)})
    benchmarks = tuple(
        item.model_copy(update={"data": _without_questions(item.data)}) for item in suite.benchmarks
    )
    update = {"reference": None, "reg_to": 0, "wording": None, "benchmarks": benchmarks}
    replicate = {} if seed is None else {"replicate": seed}
    base = {} if table is None else {"base": table.model_copy(update={"at": None})}
    return {
        "suite": suite.model_copy(update=update),
        "model": _reader(model),
        "seed": suite.seed,
        **replicate,
        **base,
    }


def results_work(suite: Suite, results: FromResults) -> Work:
    """Return the work `{"base", "suite"}` of reading imported results.

    `base` names the table of responses; `suite` has the benchmarks, the grid and whether answers are forced, all of
    which the results must cover.
    """
    settings = {
        "benchmarks": [item.name for item in suite.benchmarks],
        "grid": list(suite.grid),
        "forced": suite.forcing is not None,
    }
    return {"base": results.model_copy(update={"at": None}), "suite": settings}


def budgets_work(split: OracleBudgets | QuestionBudgets) -> Work:
    """Return the work `{"split"}` of finding budgets.

    `split` is the rule by which budgets are found. Its flag `reached`, which only training reads, is set to False.
    The name of a frontier is emptied, since the frontier is an input.
    """
    update = {"reached": False} | ({"frontier": ""} if isinstance(split, OracleBudgets) else {})
    return {"split": split.model_copy(update=update)}


def measure_work(study: Study) -> Work:
    """Return the work `{"measures", "relative_to", "confidence"}` of computing a study's measures."""
    score = study.score
    return {
        "measures": study.measures,
        "relative_to": score.relative_to if score is not None else None,
        "confidence": study.confidence,
    }


def sampled_by(engine: str, kind: Kind, work: Work) -> Work:
    """Return a task's work with `"engine"` added, if the task samples with another engine than the embedded engine.

    Work without this entry is of the embedded engine, since results that were stored earlier have no such entry. The
    work is unchanged for a task that samples no responses, and for a served model, which needs no engine.

    Args:
        engine: The study's engine.
        kind: The kind of the task.
        work: The work of the task.
    """
    samples = kind in ("sample", "evaluate") or (kind == "train" and isinstance(work["stage"].method, Ppo))
    if not samples or engine == "embedded" or isinstance(work["model"].source, ServedModel):
        return work
    return work | {"engine": engine}


def engine_of(task: Task) -> str:
    """Return the engine that a task samples with: `embedded`, `sglang`, or `served` for a served model."""
    return "served" if is_served(task.payload) else str(task.payload.get("engine", "embedded"))


def is_served(payload: Mapping[str, Any]) -> bool:
    """Return whether the model in a task's payload is served: it is behind an address."""
    return bool(payload.get("model", {}).get("source", {}).get("kind") == "served")


def _without_questions(data: Data) -> Data:
    """Return a data set without its questions, for a task that reads the questions as an input.

    The settings of grading stay, since such a task grades responses. The settings that make the questions become
    empty or defaults, since the content of the input stands for them.
    """
    return data.model_copy(
        update={"sources": (), "duplicates": "error", "strip": (), "questions": None, "take": None}
    )


def _reader(model: Model) -> Model:
    """Return a model without the source of its weights, for a task that reads the weights as an input.

    A served model has no weights to read, so its source stays; only the tokenizer, which is an input, is left out.
    """
    is_served_model = isinstance(model.source, ServedModel)
    source = model.source.model_copy(update={"tokenizer": _NO_SOURCE}) if is_served_model else _NO_SOURCE
    return model.model_copy(update={"source": source, "dimensions": None})


def stages_of_rl(arm: Arm, data: Data) -> Iterator[tuple[str, Experiment, int]]:
    """Yield the PPO stages of an arm, up to its checkpoint, from whose rollouts budgets are estimated.

    Args:
        arm: The arm.
        data: The data set of the questions that need budgets.

    Yields:
        (the role of the stage's training as an input, the arm's experiment, the position of the stage).

    Raises:
        Problem: E0405 if the arm has no PPO stage, or if its questions cannot be matched with those of `data`.
    """
    start = arm.checkpoint
    rl_stages = [index for index, stage in enumerate(arm.stages) if isinstance(stage.method, Ppo)]
    if not rl_stages or not isinstance(start, FromTraining):
        raise problem(
            "E0405",
            f"`{arm.name}` has no rollouts to estimate budgets from: it is not trained with RL",
            help="name arms that are trained with PPO",
        )
    for index in rl_stages:
        _require_comparable(arm.name, arm.stages[index].data, data)
        yield f"arm:{arm.name}" + (f":{index}" if len(rl_stages) > 1 else ""), start.experiment, index


def _require_comparable(arm: str, arm_data: Data, data: Data) -> None:
    """Check that questions of two data sets can be matched by their ids.

    An id is a hash of the question, or the value of a column. Ids from a column can be matched only if both data
    sets are equal, since the same value may be the id of different questions in different data.

    Args:
        arm: The name of the arm whose rollouts are read, for the message.
        arm_data: The data set that the arm is trained on.
        data: The data set of the questions that need budgets.

    Raises:
        Problem: E0405 if ids are from a column and the data sets differ.
    """
    has_id_column = any(
        isinstance(source, (File, HubData)) and source.columns.id is not None
        for item in (arm_data, data)
        for source in item.sources
    )
    if has_id_column and anonymous(data_work(arm_data)) != anonymous(data_work(data)):
        raise problem(
            "E0405",
            f"the rollouts of `{arm}` may be of other questions: ids are from a column, and the data differs",
            help="name arms that are trained on the same data, or leave out the column of ids",
        )
