"""Payloads: the part of the spec that a task's result depends on, and the responses that a study samples once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reodsl.diagnostics import problem
from reodsl.graph.task import Kind, Task
from reodsl.ir import IR, Spec, canonical
from reodsl.ir.base import PLAIN, Node, dumped, names_of
from reodsl.ir.data import Data, File, Grading, HubData
from reodsl.ir.expression import list_sampled
from reodsl.ir.model import Architecture, Model, Served
from reodsl.ir.reward import OracleBudgets, QuestionBudgets
from reodsl.ir.study import CONFIDENCE, Arm, Frontier, Score, Study, Suite
from reodsl.ir.training import (
    Experiment,
    FromResults,
    FromTraining,
    Pool,
    Ppo,
    Sampling,
    Selected,
    Stage,
    Start,
)

Payload = dict[str, Any]

_NO_SOURCE = {"kind": "folder", "path": ""}


def anonymous(value: Any) -> Any:
    """Return `value` as JSON data in which every presentation field is an empty string."""
    if type(value) in PLAIN:
        return value
    if names_of(type(value)) is not None:
        return canonical(value) if isinstance(value, Node) else _blank(value)
    if isinstance(value, (list, tuple)):
        return [anonymous(item) for item in value]
    if isinstance(value, dict):
        return {str(key): anonymous(item) for key, item in value.items()}
    return value


def _blank(value: IR, but: frozenset[str] = frozenset()) -> Payload:
    return {
        name: ""
        if name in value.presentation
        else part
        if type(part := getattr(value, name)) in PLAIN
        else anonymous(part)
        for name in value.dumped_fields
        if name not in but and not (name in value.presentation and name in value.later)
    }


def model_payload(model: Model, seed: int) -> Payload:
    """Return `{"model", "seed"}`: weights as they come; the seed only if it draws them."""
    blank = anonymous(model.model_copy(update={"precision": "auto"})) | {"prompt": {}, "dimensions": None}
    return {"model": blank, "seed": seed if isinstance(model.source, Architecture) else None}


def data_payload(data: Data) -> Payload:
    """Return `{"data"}`: the questions, without the verifier, which matters to tasks that grade."""
    ungraded = data.model_copy(update={"thinking": "read"})
    return {"data": anonymous(ungraded) | anonymous(Grading())}


def train_payload(stage: Stage, model: Model, seed: int, index: int) -> Payload:
    """Return `{"stage", "model", "seed", "index"}`; found budgets and a teacher come as inputs."""
    if isinstance(stage.method, Ppo) and stage.method.teacher is not None:
        method = stage.method.model_copy(update={"teacher": None})
        stage = stage.model_copy(update={"method": method})
    blank = _blank(stage, _APART)
    blank["data"] = _questions(stage.data)
    blank["selected"] = None
    method = blank["method"]
    dense = (method.get("reward") or {}).get("dense")
    lasting = _FOUND_LATER.get(dense["split"]["kind"]) if dense else None
    if dense and lasting:
        split = dense["split"] | lasting
        blank["method"] = method | {"reward": method["reward"] | {"dense": dense | {"split": split}}}
    return {"stage": blank, "model": _reader(model), "seed": seed, "index": index}


_APART = frozenset({"data", "selected"})
_FOUND_LATER: dict[str, Payload] = {"oracle": {"frontier": ""}, "question": {"rollouts": []}}
"""The parts of a split that name arms, by its kind: the arms themselves are inputs."""


def sample_payload(
    model: Model, rollout: Sampling, samples: int, grading: Grading, seed: int, readers: Sequence[IR] = ()
) -> Payload:
    """Return `{"model", "rollout", "samples", "grading", "seed"}`: responses to the questions of a data set.

    Where one of the `readers` reads more of them than lengths and verdicts, `thinking` says that this is counted.
    """
    return {
        "model": _reader(model),
        "rollout": anonymous(rollout),
        "samples": samples,
        "grading": anonymous(grading),
        "seed": seed,
        **({"thinking": True} if any(map(list_sampled, readers)) else {}),
    }


def pool_payload(pool: Pool, model: Model, index: int, grading: Grading, seed: int) -> Payload:
    """Return the payload of sampling a pool in its wording `index`, or with the bare prompt if it has none."""
    if pool.wordings:
        prompt = pool.wordings[index].over(model.prompt)
        model = model.model_copy(update={"prompt": prompt})
    return sample_payload(model, pool.rollout, pool.samples, grading, _apart(seed, index))


def reference_payload(suite: Suite, reference: Start, grading: Grading, seed: int) -> Payload:
    """Return the payload of sampling a suite's reference, by which it words the questions of a benchmark."""
    samples = suite.reference_samples
    seed = _apart(seed, suite.seed)
    return sample_payload(reference.model, suite.rollout, samples, grading, seed, suite.wordings)


def _apart(seed: int, index: int) -> int:
    """Return the seed of one of a run's samplings: the run's for the first, and one of no other run for the others."""
    if index == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}\0{index}".encode()).digest()[:6], "big")


def select_payload(selected: Selected) -> Payload:
    """Return `{"selection", "samples", "prefixes"}`: responses per role `pool:<index>`, and their prefixes."""
    pool = selected.pool
    prefixes = [wording.prefix for wording in pool.wordings] or [""]
    return {"selection": anonymous(selected.selection), "samples": pool.samples, "prefixes": prefixes}


def evaluate_payload(
    suite: Suite, model: Model, seed: int | None, given: FromResults | None = None
) -> Payload:
    """Return `{"suite", "model", "seed", "replicate"}`; the suite without `reg_to`, which scoring reads.

    Its questions and responses of its reference are inputs.

    `seed` is the suite's and `replicate` the run's, if the checkpoint depends on it. Arms of one seed meet the same
    questions with the same random streams; other seeds meet them with other streams, so that their mean averages
    over draws as well as over trainings. A checkpoint that is the same for all seeds is evaluated once and has no
    replicate. `base` is the table of responses that are `given`, out of which answers are forced.
    """
    blank = anonymous(suite.model_copy(update={"reference": None})) | {"reg_to": 0, "wording": None}
    if suite.wording is not None:
        model = model.model_copy(update={"prompt": suite.wording.over(model.prompt)})
    blank["benchmarks"] = [{"name": item.name, "data": _questions(item.data)} for item in suite.benchmarks]
    replicate = {} if seed is None else {"replicate": seed}
    base = {} if given is None else {"base": _base(given)}
    return {"suite": blank, "model": _reader(model), "seed": suite.seed, **replicate, **base}


def results_payload(suite: Suite, results: FromResults) -> Payload:
    """Return `{"base", "suite"}`: the table, and the benchmarks and budgets of the suite that an arm of it needs."""
    asked = {
        "benchmarks": [item.name for item in suite.benchmarks],
        "grid": list(suite.grid),
        "forced": suite.forcing is not None,
    }
    return {"base": _base(results), "suite": asked}


def _base(results: FromResults) -> Payload:
    base: Payload = anonymous(results.model_copy(update={"at": None}))
    return base


def frontier_payload(frontier: Frontier) -> Payload:
    """Return `{"frontier"}` without its name."""
    return {"frontier": anonymous(frontier) | {"name": ""}}


def budgets_payload(split: OracleBudgets | QuestionBudgets) -> Payload:
    """Return `{"split"}`; its frontier is an input, and which budgets a response reaches is found later."""
    blank = anonymous(split.model_copy(update={"reached": False}))
    return {"split": blank | {"frontier": ""} if isinstance(split, OracleBudgets) else blank}


def score_payload(score: Score) -> Payload:
    """Return `{"score"}`; the frontier is an input."""
    return {"score": anonymous(score) | {"frontier": ""}}


def measure_payload(study: Study) -> Payload:
    """Return `{"measures", "relative_to", "confidence"}`: the baseline is an input, and its name no part of the result."""
    score = study.score
    return {
        "measures": [anonymous(measure) for measure in study.measures],
        "relative_to": score.relative_to if score is not None else None,
        "confidence": score.confidence if score is not None else CONFIDENCE,
    }


def report_payload(spec: Spec) -> Payload:
    """Return `{"spec"}` with everything a reader sees: names, docstrings, params, changes, sources."""
    return {"spec": dumped(spec)}


def sampled_by(engine: str, kind: Kind, payload: Payload) -> Payload:
    """Return the payload with `"engine"` if its task samples responses by another engine than the embedded one.

    Results without the word are the embedded engine's: older ones have no other.
    """
    samples = kind in ("sample", "evaluate") or (
        kind == "train" and payload["stage"]["method"]["kind"] == "ppo"
    )
    if not samples or engine == "embedded" or is_served(payload):
        return payload
    return payload | {"engine": engine}


def engine_of(task: Task) -> str:
    """Return the engine that a task samples with: `served` for a model behind an address."""
    return "served" if is_served(task.payload) else str(task.payload.get("engine", "embedded"))


def is_served(payload: Mapping[str, Any]) -> bool:
    """Return whether a payload's model is behind an address."""
    source = payload.get("model", {}).get("source", {})
    return bool(source.get("kind") == "served")


def _questions(data: Data) -> dict[str, Any]:
    return {"name": "", "sources": [], **anonymous(data.grading), "duplicates": "error"}


def _reader(model: Model) -> dict[str, Any]:
    """Return the model as a task depends on it that reads its weights from a checkpoint, or its tokenizer and asks it."""
    source = dict(_NO_SOURCE)
    if isinstance(model.source, Served):
        source = anonymous(model.source) | {"tokenizer": source}
    return anonymous(model) | {"source": source, "dimensions": None}  # type: ignore[no-any-return]


def stages_of_rl(arm: Arm, data: Data) -> Iterator[tuple[str, Experiment, int]]:
    """Yield roles and stages of an arm's RL, up to its checkpoint, whose rollouts have questions of `data`.

    Raises a Problem (E0405) if there are none, or if their questions cannot be matched.
    """
    start = arm.checkpoint
    stages = start.experiment.stages[: start.stage + 1] if isinstance(start, FromTraining) else ()
    of_rl = [index for index, stage in enumerate(stages) if isinstance(stage.method, Ppo)]
    if not of_rl or not isinstance(start, FromTraining):
        raise problem(
            "E0405",
            f"`{arm.name}` has no rollouts to estimate budgets from: it is not trained with RL",
            help="name arms that are trained with PPO",
        )
    for index in of_rl:
        _require_comparable(arm.name, stages[index].data, data)
        yield f"arm:{arm.name}" + (f":{index}" if len(of_rl) > 1 else ""), start.experiment, index


def _require_comparable(arm: str, theirs: Data, ours: Data) -> None:
    """Check that ids match: one from a column may be another question in other data, a hash of the question not."""
    named = any(
        isinstance(source, (File, HubData)) and source.columns.id is not None
        for data in (theirs, ours)
        for source in data.sources
    )
    if named and data_payload(theirs) != data_payload(ours):
        raise problem(
            "E0405",
            f"the rollouts of `{arm}` may be of other questions: they have ids of their own, in other data",
            help="name arms that are trained on the same data, or leave out the column of ids",
        )
