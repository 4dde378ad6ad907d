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
from reodsl.ir.study import CONFIDENCE, Arm, Study, Suite
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
"""The work of a task: values of the spec, and plain ones, by name."""

_NO_SOURCE = Folder.model_construct(path="")


def model_work(model: Model, seed: int) -> Work:
    """Return `{"model", "seed"}`: weights as they come; the seed only if it draws them."""
    source = model.model_copy(update={"precision": "auto", "prompt": {}, "dimensions": None})
    return {"model": source, "seed": seed if isinstance(model.source, Architecture) else None}


def data_work(data: Data) -> Work:
    """Return `{"data"}`: the questions, and of grading what says how the references of files are read."""
    verifier = data.verifier.of if isinstance(data.verifier, Chance) else data.verifier
    grading = Grading()
    if any(isinstance(source, (File, HubData)) for source in data.sources):
        # Limits are of programs. A function and `exact` take any text, and no parser has to read it.
        kind: Comparison = "exact" if isinstance(verifier, Python) or verifier == "exact" else "math"
        if isinstance(verifier, Tests):
            kind = Tests()
        marks = tuple(source for source in data.answer if isinstance(source, After))
        grading = Grading(verifier=kind, answer=marks or grading.answer)
    return {"data": data.model_copy(update=dict(grading))}


def train_work(stage: Stage, model: Model, seed: int, index: int) -> Work:
    """Return `{"stage", "model", "seed", "index"}`; found budgets and a teacher come as inputs."""
    method = stage.method
    if isinstance(method, Ppo):
        reward, dense = method.reward, method.reward.dense
        if dense is not None and (names := _FOUND_LATER.get(dense.split.kind)):
            dense = dense.model_copy(update={"split": dense.split.model_copy(update=names)})
            reward = reward.model_copy(update={"dense": dense})
        method = method.model_copy(update={"teacher": None, "reward": reward})
    update = {"method": method, "data": _questions(stage.data), "selected": None}
    return {"stage": stage.model_copy(update=update), "model": _reader(model), "seed": seed, "index": index}


_FOUND_LATER: dict[str, Work] = {"oracle": {"frontier": ""}, "question": {"rollouts": ()}}
"""The parts of a split that name arms, by its kind: the arms themselves are inputs."""


def sample_work(
    model: Model, rollout: Sampling, samples: int, grading: Grading, seed: int, readers: Sequence[IR] = ()
) -> Work:
    """Return `{"model", "rollout", "samples", "grading", "seed"}`: responses to the questions of a data set.

    If any of the `readers` reads more of them than lengths and verdicts, `thinking` says that thinking is counted.
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
    """Return the work of sampling a pool in its wording `index`, or with the bare prompt if it has no wordings."""
    model = pool.start.model
    if pool.wordings:
        prompt = pool.wordings[index].over(model.prompt)
        model = model.model_copy(update={"prompt": prompt})
    return sample_work(model, pool.rollout, pool.samples, grading, derive_seed(seed, index))


def reference_work(suite: Suite, reference: Start, grading: Grading, seed: int) -> Work:
    """Return the work of sampling a suite's reference model, whose responses decide the wordings of questions."""
    samples = suite.reference_samples
    seed = derive_seed(seed, suite.seed)
    return sample_work(reference.model, suite.rollout, samples, grading, seed, suite.wordings)


def derive_seed(seed: int, index: int) -> int:
    """Return the seed of a run's sampling `index`: the run's own for 0, and an unrelated seed for others."""
    if index == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}\0{index}".encode()).digest()[:6], "big")


def select_work(selected: PoolPicks) -> Work:
    """Return `{"selection", "samples", "prefixes"}`: responses per role `pool:<index>`, and their prefixes."""
    pool = selected.pool
    prefixes = [wording.prefix for wording in pool.wordings] or [""]
    return {"selection": selected.selection, "samples": pool.samples, "prefixes": prefixes}


def evaluate_work(suite: Suite, model: Model, seed: int | None, table: FromResults | None = None) -> Work:
    """Return `{"suite", "model", "seed", "replicate"}`; the suite without `reg_to`, which scoring reads.

    Its questions and responses of its reference are inputs.

    `seed` is the suite's and `replicate` the run's, if the checkpoint depends on it. Arms of the same seed have the same
    questions with the same random streams; other seeds have other streams, so that their mean averages over draws as well
    as over trainings. A checkpoint that is the same for all seeds is evaluated once and has no replicate. `base` is the
    imported `table` of responses, out of which answers are forced.
    """
    if suite.wording is not None:
        model = model.model_copy(update={"prompt": suite.wording.over(model.prompt)})
    benchmarks = tuple(b.model_copy(update={"data": _questions(b.data)}) for b in suite.benchmarks)
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
    """Return `{"base", "suite"}` of imported results.

    `base` has no place in the spec; `suite` has the benchmarks, grid and forcing that the results have to cover.
    """
    settings = {
        "benchmarks": [item.name for item in suite.benchmarks],
        "grid": list(suite.grid),
        "forced": suite.forcing is not None,
    }
    return {"base": results.model_copy(update={"at": None}), "suite": settings}


def budgets_work(split: OracleBudgets | QuestionBudgets) -> Work:
    """Return `{"split"}`; its frontier is an input, and which budgets a response reaches is found later."""
    update = {"reached": False} | ({"frontier": ""} if isinstance(split, OracleBudgets) else {})
    return {"split": split.model_copy(update=update)}


def measure_work(study: Study) -> Work:
    """Return `{"measures", "relative_to", "confidence"}`: the baseline is an input, and its name no part of the result."""
    score = study.score
    return {
        "measures": study.measures,
        "relative_to": score.relative_to if score is not None else None,
        "confidence": score.confidence if score is not None else CONFIDENCE,
    }


def sampled_by(engine: str, kind: Kind, work: Work) -> Work:
    """Return work with `"engine"` if its task samples responses by another engine than the embedded engine.

    Results without the word are the embedded engine's: older results have no other.
    """
    samples = kind in ("sample", "evaluate") or (kind == "train" and isinstance(work["stage"].method, Ppo))
    if not samples or engine == "embedded" or isinstance(work["model"].source, ServedModel):
        return work
    return work | {"engine": engine}


def engine_of(task: Task) -> str:
    """Return the engine that a task samples with: `served` for a model behind an address."""
    return "served" if is_served(task.payload) else str(task.payload.get("engine", "embedded"))


def is_served(payload: Mapping[str, Any]) -> bool:
    """Return whether a payload's model is behind an address."""
    source = payload.get("model", {}).get("source", {})
    return bool(source.get("kind") == "served")


def _questions(data: Data) -> Data:
    """Return data as a task depends on it that is given its questions."""
    return data.model_copy(
        update={"sources": (), "duplicates": "error", "strip": (), "questions": None, "take": None}
    )


def _reader(model: Model) -> Model:
    """Return the model as a task depends on it that reads its weights from a checkpoint, or its tokenizer and asks it."""
    served = isinstance(model.source, ServedModel)
    source = model.source.model_copy(update={"tokenizer": _NO_SOURCE}) if served else _NO_SOURCE
    return model.model_copy(update={"source": source, "dimensions": None})


def stages_of_rl(arm: Arm, data: Data) -> Iterator[tuple[str, Experiment, int]]:
    """Yield roles and stages of an arm's RL, up to its checkpoint, whose rollouts have questions of `data`.

    Raises a Problem (E0405) if there are none, or if their questions cannot be matched.
    """
    start = arm.checkpoint
    of_rl = [index for index, stage in enumerate(arm.stages) if isinstance(stage.method, Ppo)]
    if not of_rl or not isinstance(start, FromTraining):
        raise problem(
            "E0405",
            f"`{arm.name}` has no rollouts to estimate budgets from: it is not trained with RL",
            help="name arms that are trained with PPO",
        )
    for index in of_rl:
        _require_comparable(arm.name, arm.stages[index].data, data)
        yield f"arm:{arm.name}" + (f":{index}" if len(of_rl) > 1 else ""), start.experiment, index


def _require_comparable(arm: str, theirs: Data, ours: Data) -> None:
    """Check that ids match: an id from a column may be another question in other data, unlike a hash of the question."""
    named = any(
        isinstance(source, (File, HubData)) and source.columns.id is not None
        for data in (theirs, ours)
        for source in data.sources
    )
    if named and anonymous(data_work(theirs)) != anonymous(data_work(ours)):
        raise problem(
            "E0405",
            f"the rollouts of `{arm}` may be of other questions: they have ids of their own, in other data",
            help="name arms that are trained on the same data, or leave out the column of ids",
        )
