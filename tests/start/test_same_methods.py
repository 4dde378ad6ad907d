"""Starting specs train as the project's own specs of the same methods do: the stages of both, compared field by field."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from reodsl.ir import Spec
from reodsl.ir.training import FromTraining, Stage
from reodsl.language import compile_file
from reodsl.start import MODELS, starting_spec
from tests.specs.compare import differences

SPECS = Path(__file__).resolve().parents[2] / "specs"
SMALL = {
    "vanilla": "vanilla",
    "token_budgets": "budget_32",
    "reo": "reo_exp",
    "reo_uniform": "reo_coef1",
    "reo_as_printed": "reo_qspec",
    "first_budget_alone": "reo_hard",
    "length_group_norm": "group_norm",
    "length_harmonizing": "harmonizing",
    "mrt": "mrt",
    "hgpo": "hgpo",
    "l1_exact": "l1_exact",
    "l1_max": "l1_max",
    "kimi_length": "kimi",
    "soft_overlong": "overlong",
    "brpo": "brpo",
    "pruned": "thinkprune",
    "shortest": "sft_shortest",
    "shortest_against_longest": "simpo_shortest",
    "dast": "simpo_dast",
}
PAPER = {
    ("vanilla", "qwen3_4b"): ("qwen3_4b", "vanilla"),
    ("token_budgets", "qwen3_4b"): ("qwen3_4b", "budget_512"),
    ("reo", "qwen3_4b"): ("qwen3_4b", "reo_exp"),
    ("length_group_norm", "qwen3_4b"): ("qwen3_4b", "group_norm"),
    ("length_harmonizing", "qwen3_4b"): ("qwen3_4b", "harmonizing"),
    ("mrt", "qwen3_4b"): ("qwen3_4b", "mrt"),
    ("hgpo", "qwen3_4b"): ("qwen3_4b", "hgpo"),
    ("shortest", "qwen3_4b"): ("qwen3_4b", "sft_shortest"),
    ("shortest_against_longest", "qwen3_4b"): ("qwen3_4b", "simpo_shortest"),
    ("dast", "qwen3_4b"): ("qwen3_4b", "simpo_dast"),
    ("kimi_length", "qwen3_4b"): ("more_baselines", "kimi"),
    ("soft_overlong", "qwen3_4b"): ("more_baselines", "overlong"),
    ("brpo", "qwen3_4b"): ("more_baselines", "brpo"),
    ("pruned", "qwen3_4b"): ("more_baselines", "prune"),
}
# `two_modes` is a part of HGPO and the others are of the library alone.
WITHOUT_SPEC = {"own", "two_modes", "brpo_linear", "dast_by_margin", "alp", "shorter_better", "cosine_length"}
OF_SETTINGS = {"gspo", "cispo", "dr_grpo", "dler", "elastic"}
ALONE = {
    "grpo_lead", "laser", "laser_d", "adapt_think", "gfpo", "s_grpo", "leash", "laconic", "a_dlp", "hapo", "pass_at_k",
    "rlpr", "rent", "grpo_care", "saber", "jet", "opd", "gkd", "opsdc", "opsd", "drpo", *OF_SETTINGS
}  # fmt: skip
"""Methods that the table lacks: each has a spec of its own."""
LEFT_OPEN = {"name", "doc", "start", "expected_length", "importance_cap"}
"""Pools of questions have names of their own, teachers docstrings, the miniature's table begins at a model that minds
efforts too, and expected lengths matter to prices alone. The paper's specs weigh no tokens by trainer over engine, and
starts do by default."""
OTHER_ARMS = {"reo_as_printed", "first_budget_alone"}
"""Whose budgets are those of other arms: a starting spec has one to take them from, the tables have more."""


@lru_cache
def own(path: str) -> Spec:
    found = compile_file(SPECS / path)
    assert found.spec is not None
    return found.spec


def stages(spec: Spec, arm: str) -> tuple[Stage, ...]:
    start = spec.study.arm(arm).checkpoint
    assert isinstance(start, FromTraining)
    return start.experiment.stages[: start.stage + 1]


def compared(method: str, model: str, path: str, arm: str, folder: Path) -> list[str]:
    place = folder / "spec.reo"
    place.write_text(starting_spec(method, model))
    found = compile_file(place)
    assert found.spec is not None
    mine, theirs = stages(found.spec, "mine"), stages(own(path), arm)
    assert len(mine) == len(theirs)
    return [
        f"{at}: {here} and {there}"
        for one, two in zip(mine, theirs, strict=True)
        for at, here, there in differences(
            one.model_dump(mode="json"), two.model_dump(mode="json"), LEFT_OPEN
        )
    ]


@pytest.mark.parametrize("method", sorted(ALONE))
def test_a_start_on_the_miniature_is_its_own_spec_s_arm(method: str, tmp_path: Path) -> None:
    assert compared(method, "miniature", f"miniature/{method}.reo", method, tmp_path) == []


@pytest.mark.parametrize("method", SMALL)
def test_a_start_on_the_miniature_is_its_table_s_arm(method: str, tmp_path: Path) -> None:
    found = compared(method, "miniature", "miniature/paper.reo", SMALL[method], tmp_path)
    if method in OTHER_ARMS:
        found = [each for each in found if ".split.rollouts: " not in each]
    if method == "reo_as_printed":
        # Its coefficients are what sets it apart.
        assert found == [".method.reward.dense.value.left.rule: half_first and trapezoid"]
    else:
        assert found == []


@pytest.mark.parametrize(("method", "model"), PAPER)
def test_a_start_on_a_model_of_the_paper_is_the_spec_s_own(method: str, model: str, tmp_path: Path) -> None:
    file, arm = PAPER[method, model]
    found = compared(method, model, f"paper/{file}.reo", arm, tmp_path)
    if method in OTHER_ARMS:
        found = [each for each in found if ".split.rollouts: " not in each]
    assert found == []


def test_every_method_with_a_spec_is_compared() -> None:
    assert set(SMALL) == set(MODELS["miniature"].methods) - WITHOUT_SPEC - ALONE


def test_the_comparison_sees_what_is_left_out(tmp_path: Path) -> None:
    assert compared("vanilla", "miniature", "miniature/paper.reo", "kimi", tmp_path)
    assert compared("brpo_linear", "miniature", "miniature/paper.reo", "brpo", tmp_path)
