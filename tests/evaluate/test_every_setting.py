"""Every setting of a suite and of a pool changes what is sampled and graded: other tables with it and without."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from reodsl.ir.model import Forcing, Prompt
from reodsl.ir.study import Suite
from reodsl.ir.training import Pool, Sampling
from runners.evaluate import run
from tests.evaluate.conftest import MakeJob, payload
from tests.sampled import slow_but

BRIEF = {"name": "brief", "question": "so {question}"}
COLD = {"rollout.temperature": 0.0}
SOLUTION = {"rollout.solution": 6, "model.think_close": "</think>"}
WARM = {"forcing.temperature": 1.0, "forcing.answer_tokens": 3}
ROLLOUT: dict[str, tuple[Any, dict[str, Any]]] = {
    "rollout.max_tokens": (16, {}),
    "rollout.temperature": (0.5, {}),
    "rollout.top_p": (0.5, {}),
    "rollout.top_k": (2, {}),
    "rollout.solution": (6, {"model.think_close": "</think>"}),
    "rollout.ending": ("wait </think>", SOLUTION),
}
OF_SUITE: dict[str, tuple[Any, dict[str, Any]]] = {
    **ROLLOUT,
    "suite.samples": (2, {}),
    "suite.grid": ([0, 1, 4, 9], {}),
    "suite.wordings": ([BRIEF | {"share": 0.5}, BRIEF | {"question": "{question}"}], {}),
    "suite.forcing": (None, {}),
    "task.seed": (6, {}),
    "forcing.text": ("so \\boxed{", {}),
    "forcing.answer_tokens": (3, {}),
    "forcing.close": ("wait", {"forcing.text": "so", "forcing.answer_tokens": 9, "forcing.temperature": 1.0}),
    "forcing.temperature": (1.0, {}),
    "forcing.top_p": (0.2, WARM),
    "prompt.template": ("<q> {question}", {}),
    "prompt.prefix": ("so", {}),
}
OF_POOL: dict[str, tuple[Any, dict[str, Any]]] = {**ROLLOUT, "task.samples": (2, {}), "task.seed": (6, {})}
UNSEEN = {
    "presentation": ("suite.name", "forcing.name"),
    "its own parts are tried": ("suite.rollout", "pool.rollout"),
    "inputs of the task": ("suite.benchmarks", "pool.start"),
    "the score and the price alone": ("suite.reg_to", "suite.expected_length"),
    "tests/evaluate/test_evaluate.py, of a reference": ("suite.reference", "suite.reference_samples"),
    "the model's prompt is made of it, which is tried": ("suite.wording",),
    "a task for each wording: tests/graph": ("pool.wordings",),
    "the task has it": ("suite.seed", "pool.samples"),
}
"""Settings that these tables do not show, with who does."""


def put(whole: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The payload with another value at a place."""
    place, _, name = path.partition(".")
    inner = "suite" if "suite" in whole else "pool"
    holders = {
        "task": (),
        "suite": ("suite",),
        "forcing": ("suite", "forcing"),
        "model": ("model",),
        "prompt": ("model", "prompt"),
        "rollout": ("suite", "rollout") if inner == "suite" else ("rollout",),
    }

    def within(data: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        return data | ({names[0]: within(data[names[0]], names[1:])} if names else {name: value})

    return within(whole, holders[place])


def tables(
    job: MakeJob,
    inputs: tuple[Path, Path],
    kind: str,
    path: str,
    value: Any,
    beside: dict[str, Any],
    name: str,
) -> str:
    """The digest of the tables of an evaluation or a pool, with a setting."""
    whole = payload()
    if kind == "sample":
        suite = whole.pop("suite")
        whole |= {"rollout": suite["rollout"], "samples": 3, "grading": {"verifier": "exact"}}
    for place, other in {**beside, path: value}.items():
        whole = put(whole, place, other) if place else whole
    checkpoint, questions = inputs
    roles = {"data": questions} if kind == "sample" else {"data:one": questions, "data:two": questions}
    made = job(kind, whole, {"start": checkpoint, **roles}, name)
    (run.sample if kind == "sample" else run.evaluate)(made)
    digest = hashlib.sha256()
    for file in ("samples.parquet", "forced.parquet"):
        if (made.out / file).is_file():
            digest.update((made.out / file).read_bytes())
    return digest.hexdigest()


TRIED = [*(("evaluate", path) for path in OF_SUITE), *(("sample", path) for path in OF_POOL)]


@pytest.mark.parametrize(("kind", "path"), slow_but([TRIED[0], ("evaluate", "suite.grid"), TRIED[-1]], TRIED))
def test_a_setting_changes_what_is_sampled(
    job: MakeJob, checkpoint: Path, questions: Path, kind: str, path: str
) -> None:
    value, beside = (OF_SUITE if kind == "evaluate" else OF_POOL)[path]
    inputs = checkpoint, questions
    without = tables(job, inputs, kind, "", None, beside, "without")
    assert tables(job, inputs, kind, path, value, beside, "with") != without


def test_every_setting_of_a_suite_and_a_pool_is_tried_or_shown_elsewhere() -> None:
    places = {"suite": Suite, "rollout": Sampling, "forcing": Forcing, "pool": Pool}
    fields = {f"{place}.{name}" for place, cls in places.items() for name in cls.model_fields}
    named = {*OF_SUITE, *(path for paths in UNSEEN.values() for path in paths)}
    assert fields <= named
    assert {f"prompt.{name}" for name in Prompt.model_fields} - {"prompt.kind", "prompt.system"} <= named
