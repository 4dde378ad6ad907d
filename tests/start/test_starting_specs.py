"""Starting specs: every choice gives a spec that checks clean, is laid out, lowers to tasks, and trains by its method."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.ir.training import FromTraining
from reodsl.language import compile_file
from reodsl.start import METHODS, PLACES, starting_spec
from reodsl.syntax import source_from_bytes
from reodsl.syntax.formatter import format_source

OF_SETTINGS = ("token_budgets", "gspo", "cispo", "dr_grpo", "dler")
"""Methods that train by the outcome, and by settings of their own."""
LIBRARY = Path(__file__).resolve().parents[2] / "stdlib"
# Every method on two places, every place by three methods; the whole product is heavy.
CHOICES = sorted(
    {
        *itertools.product(METHODS, ("miniature", "deepseek_1_5b_rl")),
        *itertools.product(("reo", "dast", "l1_max"), PLACES),
    }
)
REST = sorted({*itertools.product(METHODS, PLACES)} - set(CHOICES))


def sound(method: str, model: str, folder: Path) -> None:
    text = starting_spec(method, model)
    path = folder / "spec.reo"
    path.write_text(text)
    found = compile_file(path)
    worse = [(each.code, each.message) for each in found.diagnostics if each.severity != "note"]
    assert worse == []
    assert found.spec is not None
    assert format_source(source_from_bytes(text.encode(), "spec.reo")).text == text
    study = found.spec.study
    if model == "deepseek_1_5b_rl":
        # The paper's tables: 16 x 8 for SFT and SimPO, and for PPO on this model 8 x 8.
        for task in lower(found.spec).tasks:
            if task.kind == "train":
                assert task.cluster is not None
                small = task.payload["stage"]["method"]["kind"] == "ppo"
                assert (task.cluster.nodes, task.cluster.gpus_per_node) == (8 if small else 16, 8)
    assert {task.kind for task in lower(found.spec).tasks} >= {"model", "train", "evaluate", "report"}
    mine = study.arm("mine").checkpoint
    assert isinstance(mine, FromTraining)
    how = mine.experiment.stages[-1]
    assert METHODS[method].offline == (how.method.kind != "ppo")
    rewards = dict.fromkeys(OF_SETTINGS, "outcome")
    if how.method.kind == "ppo":
        assert how.method.reward.name == rewards.get(method, method)
    else:
        assert how.selected is not None
        assert how.selected.selection.name == method


@pytest.mark.parametrize(("method", "model"), CHOICES)
def test_a_starting_spec_is_sound(method: str, model: str, tmp_path: Path) -> None:
    sound(method, model, tmp_path)


@pytest.mark.heavy
@pytest.mark.parametrize(("method", "model"), REST)
def test_every_other_starting_spec_is_sound(method: str, model: str, tmp_path: Path) -> None:
    sound(method, model, tmp_path)


def declared(module: str, kind: str) -> set[str]:
    return set(re.findall(rf"^{kind} (\w+)", (LIBRARY / f"{module}.reo").read_text(), re.MULTILINE))


def test_every_reward_and_selection_of_the_library_has_a_start() -> None:
    assert set(METHODS) - {"own", *OF_SETTINGS} == (
        declared("rewards", "reward") | declared("methods", "reward") | declared("selections", "selection")
    )


def test_places_are_models_of_the_library() -> None:
    assert set(PLACES) - {"miniature"} <= declared("models", "model")


@pytest.mark.parametrize("name", ["mine", "reward", "overthinker", "2b", "My-Run", "seeds", "study", "if"])
def test_a_name_that_is_taken_gives_way(name: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(starting_spec("outcome", "miniature", name))
    found = compile_file(path)
    assert found.spec is not None, found.diagnostics
    assert found.spec.study.name == "compare"


def test_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(starting_spec("outcome", "miniature", "first_try"))
    found = compile_file(path)
    assert found.spec is not None
    assert found.spec.study.name == "first_try"
