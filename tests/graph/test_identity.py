"""Identity: any setting that matters changes exactly its task and those after it; nothing else changes any."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.graph.lower import lower
from reodsl.graph.task import Graph, identity, part_digest
from reodsl.ir import Spec, digest
from reodsl.ir.training import Loss, Stage
from tests.graph import studies as make


def fingerprints(graph: Graph) -> dict[str, str]:
    """For every task the digest of its identity and of all it stands on."""
    found: dict[str, str] = {}
    for task in graph.tasks:
        inputs = {role: found[source] for role, source in task.inputs.items()}
        found[task.id] = digest({"kind": task.kind, "payload": identity(task), "inputs": inputs})
    return found


def with_vanilla(**changes: Any) -> Spec:
    spec = make.four()
    arm = spec.study.arm("vanilla")
    stage = arm.checkpoint.experiment.stages[0].model_copy(update=changes)  # type: ignore[union-attr]
    experiment = arm.checkpoint.experiment.model_copy(update={"stages": (stage,)})  # type: ignore[union-attr]
    return replaced(spec, arm.model_copy(update={"checkpoint": make.end(experiment)}))


def replaced(spec: Spec, arm: Any) -> Spec:
    arms = tuple(arm if old.name == arm.name else old for old in spec.study.arms)
    return spec.model_copy(update={"study": spec.study.model_copy(update={"arms": arms})})


@settings(max_examples=25)
@given(
    steps=st.integers(10, 50),
    lr=st.floats(1e-6, 1e-2),
    clip=st.floats(0.01, 0.5),
    rollouts=st.integers(5, 9),
    which=st.sampled_from(["steps", "lr", "clip", "rollouts"]),
)
def test_a_changed_setting_reruns_its_task_and_those_after_it(
    steps: int, lr: float, clip: float, rollouts: int, which: str
) -> None:
    stage = make.ppo(make.outcome())
    method = stage.method
    changes: dict[str, Any] = {
        "steps": {"steps": steps},
        "lr": {"optim": stage.optim.model_copy(update={"lr": lr})},
        "clip": {"method": method.model_copy(update={"clip_low": clip + 0.5})},
        "rollouts": {
            "method": method.model_copy(
                update={"batch": method.batch.model_copy(update={"rollouts": rollouts})}
            )
        },
    }[which]
    old = lower(make.four())
    before, after = fingerprints(old), fingerprints(lower(with_vanilla(**changes)))
    changed = {name for name in before if before[name] != after.get(name)}
    expected = make.below(old, {"vanilla.train.s1"})
    assert changed == (expected if lr != 1e-4 or which != "lr" else set())


def test_how_often_progress_is_saved_changes_nothing_but_the_report() -> None:
    before, after = fingerprints(lower(make.four())), fingerprints(lower(with_vanilla(save_every=5)))
    assert {name for name in before if before[name] != after[name]} == {"report"}


def test_what_was_added_later_moves_no_result_until_it_is_said() -> None:
    """`train` identities hold none of these at their defaults, so that results of before are found again."""
    task = lower(make.four())["vanilla.train.s1"]
    stage = identity(task)["stage"]
    assert not {"precision", "microbatch", "checkpointing"} & set(stage)
    later = {"old_logprobs", "importance_cap", "mismatch_limit", "entropy", "loss", "lag"}
    assert not later & set(stage["method"])
    assert Stage.model_validate(task.payload["stage"]).precision == "auto"


@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        ({"microbatch": 4096}, False),
        ({"checkpointing": "on"}, False),
        ({"mismatch_limit": 1.05}, False),
        ({"precision": "bfloat16"}, True),
        ({"importance_cap": 2.0}, True),
        ({"entropy": 0.01}, True),
        ({"lag": 1}, True),
        ({"loss": Loss(ratio="sequence")}, True),
        ({"old_logprobs": "trainer"}, True),
    ],
)
def test_what_computes_the_same_is_no_part_of_a_result(changes: dict[str, Any], moves: bool) -> None:
    method = make.ppo(make.outcome()).method
    if set(changes) <= set(type(method).model_fields):
        changes = {"method": method.model_copy(update=changes)}
    before, after = fingerprints(lower(make.four())), fingerprints(lower(with_vanilla(**changes)))
    moved = {name for name in before if before[name] != after.get(name)}
    assert moved == (make.below(lower(make.four()), {"vanilla.train.s1"}) if moves else {"report"})


def test_comments_paths_and_places_change_not_even_the_report() -> None:
    spec = make.four()
    moved = spec.model_copy(
        update={"path": "b.reo", "folder": "/elsewhere", "sources": {"b.reo": "# new comment"}}
    )
    assert fingerprints(lower(spec)) == fingerprints(lower(moved))


def test_a_reader_depends_on_the_files_it_reads_alone() -> None:
    files = {"checkpoint/model.safetensors": "1", "checkpoint/config.json": "2", "metrics.parquet": "3"}
    later = files | {"metrics.parquet": "4"}
    assert part_digest(files, ("checkpoint/",)) == part_digest(later, ("checkpoint/",))
    assert part_digest(files, ()) != part_digest(later, ())
    assert part_digest(files, ()) == part_digest(files | {"timings.parquet": "5"}, ())
    assert part_digest(files, ("checkpoint/",)) != part_digest(files, ("checkpoint/config.json",))
