"""Every setting of training changes what is trained: two tiny steps with it and without end in other weights."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from reodsl.ir.reward import Budgets
from reodsl.ir.training import (
    AdamGroup,
    Advantage,
    Batch,
    Dpo,
    Lora,
    Loss,
    Monitor,
    MovingAverage,
    Optimizer,
    Ppo,
    Sampling,
    Sft,
    Simpo,
    Stage,
)
from tests.methods import dense, plain_ppo
from tests.sampled import slow_but
from tests.train.conftest import FORCING, Bench
from tests.train.test_preference import pairs as pairs
from tests.train.test_train import NO_DATA, OUTCOME

REO = dense(Budgets(budgets=(6, 10, 14, 18, 22), l_max=32), "")
PLACES = {
    "stage": Stage, "optim": Optimizer, "rest": AdamGroup, "lora": Lora, "ppo": Ppo, "batch": Batch, "rollout": Sampling,
    "advantage": Advantage, "loss": Loss, "monitor": Monitor, "teacher_follows": MovingAverage,
}  # fmt: skip
"""The classes whose fields are tried, by where a stage has them."""
MUON = {"optim.algorithm": "muon", "optim.rest": AdamGroup(lr=1e-2)}
WEIGHED = {"ppo.importance_cap": 1.0}
WHOLE = {"loss.estimator": "reverse"}
EQUAL = {"ppo.reward": OUTCOME, "advantage.batch": True}
LORA = Lora(rank=2)
FOLLOWS = MovingAverage(decay=0.5, every=1)
SOLUTION = {"rollout.solution": 4}
POINTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "stage.lora": (LORA, {}),
    "stage.precision": ("bfloat16", {}),
    "stage.steps": (3, {}),
    "optim.algorithm": ("adam", {}),
    "optim.lr": (3e-2, {}),
    "optim.betas": ((0.5, 0.6), {}),
    "optim.eps": (0.1, {}),
    "optim.weight_decay": (1.0, {}),
    "optim.warmup_steps": (2, {}),
    "optim.warmup_share": (1.0, {}),
    "optim.decay": ("linear", {}),
    "optim.decay_from": (0.5, {"optim.decay": "linear"}),
    "optim.grad_norm": (0.01, {}),
    "optim.rest": (AdamGroup(lr=3e-2), MUON),
    "rest.lr": (3e-2, MUON),
    "rest.betas": ((0.5, 0.6), MUON),
    "rest.eps": (0.1, MUON),
    "rest.weight_decay": (1.0, MUON),
    "lora.rank": (3, {"stage.lora": LORA}),
    "lora.alpha": (2.0, {"stage.lora": LORA}),
    "lora.layers": ("mlp", {"stage.lora": LORA}),
    "ppo.reward": (OUTCOME, {}),
    "ppo.minibatches": (1, {}),
    "ppo.epochs": (1, {}),
    "ppo.clip_low": (0.001, {}),
    "ppo.clip_high": (0.001, {}),
    "ppo.loss_mean": ("response", {}),
    "ppo.forcing": (FORCING.model_copy(update={"text": "so"}), {}),
    "ppo.kl": (0.5, {}),
    "ppo.teacher_follows": (FOLLOWS, {}),
    "ppo.entropy": (0.1, {}),
    "ppo.resample": (2, {"ppo.reward": OUTCOME}),
    "ppo.lag": (1, {}),
    "ppo.old_logprobs": ("trainer", {}),
    "ppo.importance_cap": (1.0, {}),
    "teacher_follows.decay": (0.9, {"ppo.teacher_follows": FOLLOWS}),
    "teacher_follows.every": (2, {"ppo.teacher_follows": FOLLOWS, "stage.steps": 3}),
    "batch.prompts": (3, {}),
    "batch.rollouts": (3, {}),
    "rollout.max_tokens": (16, {}),
    "rollout.temperature": (0.5, {}),
    "rollout.top_p": (0.5, {}),
    "rollout.top_k": (2, {}),
    "rollout.solution": (4, {}),
    "rollout.ending": ("so . </think>", SOLUTION),
    "ppo.cut_at": ((0.5,), SOLUTION),
    "advantage.normalise": ("center", {}),
    "advantage.std": ("sample", {}),
    "advantage.batch": (True, {}),
    "advantage.equal": ("counted", EQUAL),
    "advantage.bound": (0.1, {}),
    "advantage.credit": ("own", {}),
    "loss.ratio": ("sequence", {}),
    "loss.clip": ("weight", {}),
    "loss.cap": (1.01, {"loss.clip": "dual"}),
    "loss.gate_up": (3.0, {"loss.clip": "gate"}),
    "loss.gate_down": (3.0, {"loss.clip": "gate"}),
    "loss.importance": ("sequence", WEIGHED),
    "loss.estimator": ("k1", {}),
    "loss.jsd_beta": (0.1, {"loss.estimator": "jsd"}),
    "loss.decoupled": (True, {}),
    "loss.ending_tokens": ("policy", SOLUTION),
    "loss.top_k": (2, WHOLE),
}
"""Another value of each setting, and what it takes to matter."""
UNSEEN = {
    "no number depends on it": (
        "stage.name", "stage.save_every", "stage.expected_length", "stage.microbatch", "stage.checkpointing", "optim.on",
        "ppo.mismatch_limit",
    ),
    "its own parts are tried": (
        "stage.method", "stage.optim", "ppo.kind", "ppo.advantage", "ppo.batch", "ppo.rollout", "ppo.loss",
    ),
    "tests/train/test_train.py, of data, plateaus and other methods": (
        "stage.data", "stage.selected", "stage.plateau", "stage.passes", "ppo.max_prompt", "ppo.reference_samples",
    ),
    "tests/train/test_tracks.py": (
        "ppo.monitor", "monitor.questions", "monitor.samples", "monitor.every", "ppo.temperature",
    ),
    "tests/train/test_distillation.py": ("ppo.teacher", "ppo.teacher_wording"),
    "tests/train/test_rollouts.py and test_gather.py, of wordings and splits": (
        "ppo.wordings", "ppo.wordings_per", "loss.mode_tokens", "advantage.absent",
    ),
    "tests/train/test_own_loss.py and test_gather.py": ("loss.own", "advantage.own"),
    "servers on GPUs alone": ("ppo.caches",),
}  # fmt: skip
"""Settings that these steps do not show, with who does."""


def base() -> Stage:
    """A stage in which most settings matter."""
    more = {"minibatches": 2, "epochs": 2, "forcing": FORCING, "kl": 0.1, "entropy": 0.01}
    method = plain_ppo(REO, tokens=32, max_prompt=20, prompts=4, rollouts=4, **more)
    optim = Optimizer(algorithm="adamw", lr=1e-2, warmup_steps=0, weight_decay=0.1)
    return Stage(name="rl", method=method, data=NO_DATA, optim=optim, steps=2)


ABOVE = {
    "stage": "",
    "optim": "stage.optim",
    "rest": "optim.rest",
    "lora": "stage.lora",
    "ppo": "stage.method",
}
"""What has a place's settings, unless the method has them."""


def put(stage: Stage, path: str, value: Any) -> Stage:
    """The stage with another value at a place."""
    place, _, name = path.partition(".")
    holder = ABOVE.get(place, f"ppo.{place}")
    if not holder:
        return stage.model_copy(update={name: value})
    return put(stage, holder, get(stage, holder).model_copy(update={name: value}))


def get(stage: Stage, path: str) -> Any:
    """The value at a place of a stage."""
    place, _, name = path.partition(".")
    holder = ABOVE.get(place, f"ppo.{place}")
    return getattr(get(stage, holder) if holder else stage, name)


def weights(bench: Bench, stage: Stage, data: str = "questions") -> str:
    """The digest of the weights that a stage ends with."""
    out: Path = bench.train(stage, "every", start="base", data=data)
    found = hashlib.sha256()
    for path in sorted(out.rglob("*.safetensors")):
        found.update(path.read_bytes())
    shutil.rmtree(bench.root / "every.work", ignore_errors=True)
    return found.hexdigest()


@pytest.mark.parametrize("path", slow_but(["ppo.kl"], POINTS))
def test_a_setting_changes_what_is_trained(bench: Bench, path: str) -> None:
    value, beside = POINTS[path]
    stage = base()
    for place, other in beside.items():
        stage = put(stage, place, other)
    assert weights(bench, stage) != weights(bench, put(stage, path, value))


CANCELLED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"ppo.kl": 0.0}, "teacher_follows.decay"),
    ({"advantage.normalise": "leave_one_out"}, "advantage.std"),
    ({"advantage.normalise": "none"}, "loss.cap"),
    (WEIGHED, "loss.decoupled"),
)
"""Settings that others cancel, as a scan over pairs found; `check` tells each (tests/language/test_idle.py)."""


@pytest.mark.slow
@pytest.mark.parametrize(("beside", "path"), CANCELLED)
def test_a_setting_that_another_cancels_changes_nothing(
    bench: Bench, beside: dict[str, Any], path: str
) -> None:
    value, more = POINTS[path]
    stage = base()
    for place, other in {**more, **beside}.items():
        stage = put(stage, place, other)
    assert weights(bench, stage) == weights(bench, put(stage, path, value))


@pytest.mark.slow
@pytest.mark.parametrize("beside", [{}, {"ppo.importance_cap": 1.0}, {"ppo.lag": 1, "loss.decoupled": True}])
def test_bounds_of_ratios_change_nothing_where_a_step_has_one_update(
    bench: Bench, beside: dict[str, Any]
) -> None:
    stage = base()
    for path, value in {"ppo.minibatches": 1, "ppo.epochs": 1, **beside}.items():
        stage = put(stage, path, value)
    tight = put(put(stage, "ppo.clip_low", 0.001), "ppo.clip_high", 0.001)
    assert weights(bench, stage) == weights(bench, tight)


def test_every_setting_of_a_stage_is_tried_or_shown_elsewhere() -> None:
    fields = {f"{place}.{name}" for place, cls in PLACES.items() for name in cls.model_fields}
    named = [*POINTS, *(path for paths in UNSEEN.values() for path in paths)]
    assert sorted(named) == sorted(fields), "give a setting a row in POINTS"


SEQUENCES = {"sft": Sft, "simpo": Simpo, "dpo": Dpo}
OPTIM = {
    path: point
    for path, point in POINTS.items()
    if path.partition(".")[0] in ("optim", "rest", "lora", "stage")
}
OF_SEQUENCES: dict[str, dict[str, tuple[Any, dict[str, Any]]]] = {
    "sft": {
        **OPTIM,
        "stage.passes": (1, {"stage.steps": 20}),
        "ppo.batch": (3, {}),
        "ppo.max_tokens": (32, {}),
        "ppo.bucket_by_length": (False, {"stage.steps": 8}),
    },
    "simpo": {
        "stage.steps": (3, {}),
        "stage.passes": (1, {"stage.steps": 20}),
        "stage.lora": (LORA, {}),
        "ppo.batch": (3, {}),
        "ppo.max_tokens": (32, {}),
        "ppo.beta": (1.0, {}),
        "ppo.gamma": (2.0, {}),
    },
    "dpo": {
        "stage.steps": (3, {}),
        "stage.lora": (LORA, {}),
        "ppo.batch": (3, {}),
        "ppo.max_tokens": (32, {}),
        "ppo.beta": (1.0, {}),
    },
}
"""The same of training on sequences, whose method stands at `ppo` too: SFT has all of an optimizer's settings."""


def of_sequences(method: str) -> Stage:
    """A stage of SFT or on pairs."""
    more = {"beta": 2.0} if method != "sft" else {}
    more |= {"gamma": 0.5} if method == "simpo" else {}
    optim = Optimizer(algorithm="adamw", lr=1e-2, warmup_steps=0, weight_decay=0.1)
    made = SEQUENCES[method](batch=4, max_tokens=80, **more)
    return Stage(name=method, method=made, data=NO_DATA, optim=optim, steps=2)


OF_METHODS = [(method, path) for method, points in OF_SEQUENCES.items() for path in points]


@pytest.mark.parametrize(("method", "path"), slow_but(OF_METHODS[1::9], OF_METHODS))
def test_a_setting_of_sequences_changes_what_is_trained(
    bench: Bench, pairs: str, method: str, path: str
) -> None:
    value, beside = OF_SEQUENCES[method][path]
    stage, data = of_sequences(method), "traces" if method == "sft" else pairs
    for place, other in beside.items():
        stage = put(stage, place, other)
    assert weights(bench, stage, data) != weights(bench, put(stage, path, value), data)


@pytest.mark.parametrize("method", SEQUENCES)
def test_every_setting_of_sequences_is_tried(method: str) -> None:
    named = {path.partition(".")[2] for path in OF_SEQUENCES[method] if path.startswith("ppo.")}
    assert named == set(SEQUENCES[method].model_fields) - {"kind"}
