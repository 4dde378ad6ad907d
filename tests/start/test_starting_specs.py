"""Starting specs: every choice gives a spec that checks clean, is laid out, lowers to tasks, and trains by its method."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.ir.training import FromTraining
from reodsl.language import compile_file
from reodsl.start import MODELS, starting_spec
from reodsl.syntax import source_from_bytes
from reodsl.syntax.formatter import format_source

OF_SETTINGS = ("vanilla", "token_budgets", "gspo", "luspo", "cispo", "dr_grpo", "dler", "elastic")
"""Methods that train by the outcome, and by settings of their own."""
TAUGHT = ("opd", "gkd", "opsdc", "opsd")
"""Methods that learn from a teacher, and from no reward."""
LIBRARY = Path(__file__).resolve().parents[2] / "stdlib"
CHOICES = [(method, model) for model, each in MODELS.items() for method in each.methods]
SELECTIONS = {"two_modes": "both_modes"}
"""Selections by the experiments that train on them, where names differ."""


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
    assert {task.kind for task in lower(found.spec).tasks} >= {"model", "train", "evaluate", "report"}
    mine = study.arm("mine").checkpoint
    assert isinstance(mine, FromTraining)
    how = mine.experiment.stages[-1]
    rewards = dict.fromkeys(OF_SETTINGS, "outcome") | dict.fromkeys(TAUGHT, "nothing")
    if how.method.kind == "ppo":
        assert how.method.reward.name == rewards.get(method, method)
    else:
        assert how.selected is not None
        assert how.selected.selection.name == SELECTIONS.get(method, method)


@pytest.mark.parametrize(("method", "model"), CHOICES)
def test_a_starting_spec_is_sound(method: str, model: str, tmp_path: Path) -> None:
    sound(method, model, tmp_path)


def declared(module: str, kind: str) -> set[str]:
    return set(re.findall(rf"^{kind} (\w+)", (LIBRARY / f"{module}.reo").read_text(), re.MULTILINE))


def test_every_reward_and_selection_of_the_library_has_a_start() -> None:
    methods = {SELECTIONS.get(each, each) for each in MODELS["miniature"].methods}
    assert methods - {"own", *OF_SETTINGS, *TAUGHT} | {"outcome"} == (
        declared("rewards", "reward") | declared("methods", "reward") | declared("selections", "selection")
    )


def test_models_offer_the_same_methods() -> None:
    assert list(MODELS["qwen3_4b"].methods) == list(MODELS["miniature"].methods)


@pytest.mark.parametrize("name", ["mine", "overthinker", "2b", "My-Run", "seeds", "study", "if"])
def test_a_name_that_is_taken_gives_way(name: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(starting_spec("vanilla", "miniature", name))
    found = compile_file(path)
    assert found.spec is not None, found.diagnostics
    assert found.spec.study.name == "compare"


def test_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(starting_spec("vanilla", "miniature", "first_try"))
    found = compile_file(path)
    assert found.spec is not None
    assert found.spec.study.name == "first_try"
