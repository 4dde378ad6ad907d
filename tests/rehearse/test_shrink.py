"""Specs made small: the same tasks, with lengths in proportion, and nothing of a real run's keys changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.ir.base import digest, values_of
from reodsl.ir.data import Chance, Data
from reodsl.ir.expression import Constant, Infix, Length
from reodsl.ir.model import Folder
from reodsl.ir.reward import Budgets, Reward
from reodsl.ir.study import Suite
from reodsl.ir.training import FromTraining, MovingAverage, Ppo, Sampling, Stage
from reodsl.language import compile_file
from reodsl.rehearse import Size, StandIns, list_unshown, shrink
from reodsl.rehearse.shrink import StandIn

ROOT = Path(__file__).resolve().parents[2]
SPECS = (
    "specs/qwen3_4b_reo_exp.reo",
    "specs/quickstart.reo",
    "specs/paper/qwen3_4b.reo",
    "specs/paper/l1.reo",
)


def compiled(path: str, **options: object) -> Spec:
    spec = compile_file(ROOT / path, **options).spec  # type: ignore[arg-type]
    assert spec is not None
    return spec


def small(path: str) -> Spec:
    return shrink(compiled(path), Size(), StandIns(), "embedded")


@pytest.mark.parametrize("path", SPECS)
def test_the_tasks_are_those_of_the_spec(path: str) -> None:
    spec = compiled(path)
    assert [(task.id, task.kind, task.inputs) for task in lower(small(path)).tasks] == [
        (task.id, task.kind, task.inputs) for task in lower(spec).tasks
    ]


@pytest.mark.parametrize("path", SPECS)
def test_all_is_as_small_as_it_says(path: str) -> None:
    spec, size = small(path), Size()
    assert max(each.max_tokens for each in values_of(spec.study, Sampling)) == size.longest
    for stage in values_of(spec.study, Stage):
        assert stage.steps <= size.steps
        if isinstance(stage.method, Ppo):
            assert stage.method.batch.prompts <= size.prompts
            assert stage.method.batch.rollouts <= size.rollouts
            assert stage.method.minibatches <= stage.method.batch.prompts
    for suite in values_of(spec.study, Suite):
        assert {0, suite.reg_to} <= set(suite.grid)
        assert list(suite.grid) == sorted(set(suite.grid))
        assert max(suite.grid) <= suite.rollout.max_tokens
        assert all(each.data.take == size.questions for each in suite.benchmarks)
    assert all(isinstance(each.verifier, Chance) for each in values_of(spec.study, Data))
    assert (spec.study.cluster, spec.study.limit, spec.study.engine) == (None, None, "embedded")


@pytest.mark.parametrize("steps", [1, 3])
def test_a_stage_takes_as_many_steps_as_are_asked_for(steps: int) -> None:
    spec = compiled("specs/qwen3_4b_reo_exp.reo")
    stages = values_of(shrink(spec, Size(steps=steps), StandIns(), "embedded").study, Stage)
    assert {stage.steps for stage in stages} == {steps}


@pytest.mark.parametrize(
    ("settings", "gpus", "wide"),
    [
        ({"placement": "colocated"}, 1, 1),
        ({"placement": "apart"}, 2, 1),
        ({"placement": "apart", "tensor_parallel": 4}, 4, 2),
        ({"placement": "colocated", "nodes": 1}, 2, 1),
        ({"placement": "colocated", "nodes": 1, "gpus_per_node": 1}, 1, 1),
    ],
)
def test_a_declared_cluster_has_the_placement_of_the_specs_on_few_gpus(
    settings: dict[str, object], gpus: int, wide: int
) -> None:
    spec = compiled("specs/qwen3_4b_reo_exp.reo")
    assert spec.study.cluster is not None
    cluster = spec.study.cluster.model_copy(update=settings)
    spec = spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": cluster})})
    assert shrink(spec, Size(), StandIns()).study.cluster == cluster
    little = shrink(spec, Size(nodes=2), StandIns()).study.cluster
    assert little is not None
    assert (little.placement, little.nodes) == (cluster.placement, min(2, cluster.nodes))
    assert (little.gpus_per_node, little.tensor_parallel) == (gpus, wide)


@pytest.mark.parametrize(("steps", "lag"), [(1, 0), (2, 1), (3, 1), (5, 3)])
def test_a_lag_leaves_a_step_whose_weights_reach_the_engine(steps: int, lag: int) -> None:
    spec = compiled("specs/qwen3_4b_reo_exp.reo", amends={"qwen3_4b_reo_exp.lag": "9"})
    (method,) = values_of(shrink(spec, Size(steps=steps), StandIns()).study, Ppo)
    assert method.lag == lag


def test_a_monitor_set_is_small_and_asked_again() -> None:
    spec = small("specs/miniature/laser_d.reo")
    (monitor,) = (each.monitor for each in values_of(spec.study, Ppo) if each.monitor is not None)
    assert (monitor.questions, monitor.samples, monitor.every) == (2, 4, 1)
    (reward,) = (each for each in values_of(spec.study, Reward) if each.tracks)
    # The longest response, 128 tokens, is what a track is before there is anything else.
    assert {track.value.empty.value for track in reward.tracks} == {64}  # type: ignore[union-attr]


def test_budgets_keep_their_order_and_their_weights_proportions() -> None:
    spec = small("specs/qwen3_4b_reo_exp.reo")
    (split,) = (each.dense.split for each in values_of(spec.study, Reward) if each.dense is not None)
    assert isinstance(split, Budgets)
    assert (split.budgets, split.l_max) == ((2, 4, 8, 16, 32), 64)


def test_a_published_frontier_is_as_long_as_what_is_scored_by_it() -> None:
    study = small("specs/qwen3_4b_reo_exp.reo").study
    assert study.score is not None
    (frontier,) = study.frontiers
    assert (frontier.to, study.score.to) == (64, 32)
    for curve in frontier.published:
        assert list(curve.budgets) == sorted(set(curve.budgets))
        assert (curve.budgets[0], curve.budgets[-1]) == (0, 64)
        assert len(curve.budgets) == len(curve.accuracy)


def test_constants_of_a_reward_follow_their_power_of_tokens() -> None:
    """x tokens, x per token and a plain x."""
    spec = compiled("specs/qwen3_4b_reo_exp.reo")
    value = Infix(
        fn="+",
        left=Infix(fn="*", left=Constant(value=0.5, unit=-1), right=Length(of="y")),
        right=Infix(fn="-", left=Constant(value=1024, unit=1), right=Constant(value=3)),
    )
    experiment = spec.study.arms[-1].checkpoint
    assert isinstance(experiment, FromTraining)
    (stage,) = experiment.experiment.stages
    assert isinstance(stage.method, Ppo)
    method = stage.method.model_copy(update={"reward": Reward(name="r", outcome=value)})
    changed = experiment.experiment.model_copy(
        update={"stages": (stage.model_copy(update={"method": method}),)}
    )
    arm = spec.study.arms[-1].model_copy(
        update={"checkpoint": experiment.model_copy(update={"experiment": changed})}
    )
    study = spec.study.model_copy(update={"arms": (arm,)})
    (reward,) = values_of(
        shrink(spec.model_copy(update={"study": study}), Size(), StandIns(), "embedded"), Reward
    )
    assert isinstance(reward.outcome, Infix)
    assert reward.outcome.left == Infix(fn="*", left=Constant(value=256.0), right=Length(of="y"))
    assert reward.outcome.right == Infix(fn="-", left=Constant(value=2.0), right=Constant(value=3))


def test_a_real_spec_says_nothing_of_rehearsals() -> None:
    """`take` and `chance` are in no payload of a run, so no key knows them."""
    texts = [json.dumps(task.payload) for task in lower(compiled("specs/qwen3_4b_reo_exp.reo")).tasks]
    assert not [text for text in texts if '"take"' in text or '"chance"' in text]


def test_what_is_not_shown_names_the_cluster_the_lengths_and_the_steps() -> None:
    path = "specs/qwen3_4b_reo_exp.reo"
    said = "\n".join(list_unshown(compiled(path), small(path), StandIns()))
    for words in ("16 x 8 H800", "64 tokens and not 32,768", "2 steps in all, not 240", "sglang", "chance"):
        assert words in said
    assert "weights" not in said


TAUGHT = """
from std.models import qwen3_4b, qwen3_8b
from std.data import areal_boba_7b
from std.recipes import ppo
from std.suites import math_reg
experiment taught = ppo {
  base = qwen3_4b, data = areal_boba_7b, steps = 9 steps, eval = math_reg, teacher = qwen3_8b, kl = 1
}
"""


@pytest.mark.parametrize(("made_up", "teaches"), [(False, "qwen3_8b"), (True, "qwen3_4b")])
def test_a_teacher_without_a_tokenizer_here_has_the_policy_s_double(
    tmp_path: Path, made_up: bool, teaches: str
) -> None:
    """Two made-up tokenizers may differ, and then neither could read the other's tokens."""
    place = tmp_path / "spec.reo"
    place.write_text(TAUGHT)
    spec = compile_file(place).spec
    assert spec is not None
    doubles = {
        digest(model.source): StandIn(Folder(path=model.name), "a double", made_up)
        for model in spec.study.models
    }
    less = shrink(spec, Size(), StandIns(doubles), "embedded")
    (method,) = values_of(less.study, Ppo)
    assert method.teacher is not None
    assert method.teacher.model.source == Folder(path=teaches)


def test_a_teacher_that_follows_does_so_after_the_first_step() -> None:
    """So that a later one reads it moved."""
    (method,) = values_of(small("specs/miniature/grpo_care.reo").study, Ppo)
    assert method.teacher_follows == MovingAverage(decay=0.995, every=1)
