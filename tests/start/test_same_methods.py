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
    **{name: name for name in ("vanilla", "mrt", "hgpo", "l1_exact", "l1_max", "brpo")},
    "token_budgets": "budget_32",
    "reo": "reo_exp",
    "reo_uniform": "reo_coef1",
    "reo_as_printed": "reo_qspec",
    "first_budget_alone": "reo_hard",
    "length_group_norm": "group_norm",
    "length_harmonizing": "harmonizing",
    "kimi_length": "kimi",
    "soft_overlong": "overlong",
    "pruned": "thinkprune",
    "shortest": "sft_shortest",
    "shortest_against_longest": "simpo_shortest",
    "dast": "simpo_dast",
}
TABLE = (
    "vanilla", "reo", "length_group_norm", "length_harmonizing", "mrt", "hgpo", "dast", "shortest",
    "shortest_against_longest",
)  # fmt: skip
PAPER = {
    "token_budgets": ("qwen3_4b", "budget_512"),
    "pruned": ("more_baselines", "prune"),
    **{name: ("qwen3_4b", SMALL[name]) for name in TABLE},
    **{name: ("more_baselines", SMALL[name]) for name in ("kimi_length", "soft_overlong", "brpo")},
}
"""Of methods on Qwen3-4B the file of `specs/paper` and its arm."""
# `two_modes` is a part of HGPO and the others are of the library alone.
WITHOUT_SPEC = {"own", "two_modes", "brpo_linear", "dast_by_margin", "alp", "shorter_better", "cosine_length"}
OF_SETTINGS = {"gspo", "luspo", "cispo", "dr_grpo", "dler", "elastic"}
ALONE = {
    "grpo_lead", "laser", "laser_d", "adapt_think", "gfpo", "s_grpo", "leash", "laconic", "a_dlp", "hapo", "pass_at_k",
    "rlpr", "rent", "grpo_care", "saber", "jet", "opd", "gkd", "opsdc", "opsd", "drpo",
    "max_rl", "dgpo", "real", "pear", "cpas", "smart_thinker", "deep_compress", "skywork_or1", "adaptive_kl", *OF_SETTINGS
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


@pytest.mark.parametrize("method", PAPER)
def test_a_start_on_a_model_of_the_paper_is_the_spec_s_own(method: str, tmp_path: Path) -> None:
    file, arm = PAPER[method]
    found = compared(method, "qwen3_4b", f"paper/{file}.reo", arm, tmp_path)
    if method in OTHER_ARMS:
        found = [each for each in found if ".split.rollouts: " not in each]
    assert found == []


def test_every_method_with_a_spec_is_compared() -> None:
    assert set(SMALL) == set(MODELS["miniature"].methods) - WITHOUT_SPEC - ALONE


def test_the_comparison_sees_what_is_left_out(tmp_path: Path) -> None:
    assert compared("vanilla", "miniature", "miniature/paper.reo", "kimi", tmp_path)
    assert compared("brpo_linear", "miniature", "miniature/paper.reo", "brpo", tmp_path)
