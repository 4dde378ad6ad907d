"""Every method of the paper, and four more, end to end on the miniature: a very short form of the whole study."""

from __future__ import annotations

import importlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from reodsl.graph.job import Job
from reodsl.graph.lower import lower
from reodsl.graph.task import Graph, Task
from reodsl.ir.study import Spec
from reodsl.language import compile_file
from reodsl.report.run import report
from runners.registry import REGISTRY

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TINY = {
    "rl_steps": "1 steps", "tuned_steps": "1 steps", "prompts": "2", "rollouts": "4",
    "pool_questions": "24", "samples": "4", "sequences": "2",
}  # fmt: skip


def smaller(value: Any, steps: int = 20) -> Any:
    """The same spec with a handful of held-out questions, few traces, and forced answers at few budgets."""
    if isinstance(value, list):
        return [smaller(item, steps) for item in value]
    if not isinstance(value, dict):
        return value
    made = {name: smaller(item, steps) for name, item in value.items()}
    if made.get("kind") == "generated":
        made["count"] = 3 if made["split"] == "held_out" else min(made["count"], 1024)
    if "reg_to" in made:
        made |= {"samples": 1, "grid": [0, 4, 16, 64, 128]}
    if "method" in made and made["steps"] > steps:
        made["steps"] = steps
    return made


def perform(graph: Graph, root: Path) -> dict[str, Path]:
    """Runs every task but the report in this process; the folder of each."""
    folders: dict[str, Path] = {}
    for task in graph.tasks:
        if task.kind == "report":
            continue
        module, name = REGISTRY.runners[task.kind].split(":")
        out, work = root / task.id, root / f"{task.id}.work"
        out.mkdir()
        work.mkdir()
        inputs = {role: folders[source] for role, source in task.inputs.items()}
        getattr(importlib.import_module(module), name)(Job(task, inputs, out, work, root, lambda _: None))
        folders[task.id] = out
    return folders


def spec_of(path: Path, **options: Any) -> Spec:
    found = compile_file(path, **options)
    assert found.spec is not None, [each.message for each in found.diagnostics]
    return found.spec


Done = tuple[Graph, dict[str, Path]]


def short_form(path: Path, root: Path, steps: int = 20, **options: Any) -> Done:
    """A spec's tasks, made small and done."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    spec = spec_of(path, **options)
    graph = lower(Spec.model_validate({"study": smaller(spec.study.model_dump(mode="json"), steps)}))
    try:
        return graph, perform(graph, root)
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    path = ROOT / "specs" / "miniature" / "paper.reo"
    return short_form(path, tmp_path_factory.mktemp("miniature"), sets=TINY)


def test_a_method_that_no_runner_has_heard_of_runs(tmp_path: Path) -> None:
    """tests/specs/mixed.reo takes its split, its modes and its reward from three methods."""
    _, folders = short_form(Path(__file__).with_name("mixed.reo"), tmp_path, steps=10)
    (folder,) = (own for name, own in folders.items() if name.startswith("mixed.train"))
    rollouts = pl.read_parquet(folder / "rollouts.parquet")
    assert rollouts.height == 2 * 2 * 4
    assert rollouts["reward"].is_finite().all()
    assert rollouts["reward"].n_unique() > 2


def test_every_arm_is_trained_evaluated_and_scored(done: Done) -> None:
    graph, folders = done
    (score,) = (folder for name, folder in folders.items() if name.startswith("score"))
    table = pl.read_parquet(score / "reg.parquet")
    arms = {task.arm for task in graph.tasks if task.kind == "evaluate"}
    assert len(arms) == 26
    assert set(table["model"]) == arms
    assert table["reg"].is_finite().all()


@pytest.mark.usefixtures("undrawn")
def test_the_comparison_on_the_balanced_subset(done: Done, tmp_path: Path) -> None:
    """`specs/miniature/frontier_models.reo` as a report: its arms are among the study's."""
    graph, folders = done
    own = spec_of(ROOT / "specs" / "miniature" / "frontier_models.reo")
    (made,) = (task for task in graph.tasks if task.kind == "report")
    arms = {arm.name for arm in own.study.arms}
    inputs = {
        role: folders[source]
        for role, source in made.inputs.items()
        if role.startswith("evaluate:") and role.split(":")[1].split("@")[0] in arms
    }
    task = Task("report", "report", {"spec": own.model_dump(mode="json")}, {})
    report(Job(task, inputs, tmp_path, tmp_path, tmp_path, lambda _: None))
    assert "questions that every arm of this table solves" in (tmp_path / "report.html").read_text()
    table = pl.read_parquet(tmp_path / "tables" / "balanced.parquet")
    assert set(table["arm"]) == arms


def test_every_stage_took_its_step(done: Done) -> None:
    graph, folders = done
    for task in graph.tasks:
        if task.kind == "train":
            facts = json.loads((folders[task.id] / "train.json").read_text())
            assert facts["steps"] >= 1, task.id
            metrics = pl.read_parquet(folders[task.id] / "metrics.parquet")
            assert metrics["loss"].is_finite().all(), task.id


@pytest.mark.parametrize("arm", ["reo_qspec", "reo_hard"])
def test_question_budgets_are_the_papers_formula_over_the_training_rollouts(done: Done, arm: str) -> None:
    """L by L, group by group; the arm itself then meets the questions that the others met."""
    graph, folders = done
    (task,) = (each for each in graph.tasks if each.kind == "budgets" and each.arm == arm)
    asked = set(pl.read_parquet(folders[task.inputs["data"]] / "questions.parquet")["id"])
    best: dict[str, list[Fraction]] = {}
    for role, source in task.inputs.items():
        rows = pl.read_parquet(folders[source] / "rollouts.parquet").to_dicts() if role != "data" else []
        for at in range(0, len(rows), 4):
            group = rows[at : at + 4]
            assert [row["rollout"] for row in group] == [0, 1, 2, 3]
            reached = [Fraction(sum(right_at(row, budget) for row in group), 4) for budget in range(129)]
            old = best.setdefault(group[0]["question"], reached)
            best[group[0]["question"]] = [max(pair) for pair in zip(old, reached, strict=True)]
    found = json.loads((folders[task.id] / "budgets.json").read_text())
    assert found["questions"] == {
        question: next(n for n in range(1, 129) if reached[n] >= reached[128])
        for question, reached in best.items()
        if question in asked
    }
    assert found["unmet"] == len(asked) - len(found["questions"]) > 0
    (trained,) = (each for each in graph.tasks if each.inputs.get("budgets") == task.id)
    rows = pl.read_parquet(folders[trained.id] / "rollouts.parquet")
    assert set(rows["question"]) <= set(found["questions"])


def right_at(row: dict[str, Any], budget: int) -> bool:
    """Whether the first `budget` tokens of a response are right by themselves."""
    if budget >= row["tokens"]:
        return bool(row["correct"])
    held = [right for at, right in zip(row["bare_cuts"], row["bare"], strict=True) if at <= budget]
    return bool(held and held[-1])


def test_selections_say_how_many_questions_were_lost(done: Done) -> None:
    graph, folders = done
    selects = [task for task in graph.tasks if task.kind == "select"]
    assert len(selects) == 6
    for task in selects:
        facts = json.loads((folders[task.id] / "select.json").read_text())
        assert facts["questions"] == 24
        assert 0 <= facts["lost"] < 24
        assert pl.read_parquet(folders[task.id] / "questions.parquet").height == facts["picked"]
