"""`--set` and `--amend`: what they reach, that they win over stages and overrides, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.diagnostics.render import render
from reodsl.ir.study import Spec
from reodsl.ir.training import Ppo
from reodsl.language import CompileResult
from tests.language.conftest import HEAD, MINE
from tests.language.test_lowering import experiment

TEXT = f"""{HEAD}
param n: int = 5 in 1..16
param seeds: [int] = [1]
budgets five = exp(from: 1K tokens, to: 32K tokens, n: n)
{MINE}
experiment reo_exp = mine {{ reward = reo(at: five) }}
experiment shrink = mine {{
  stages(cap in halve(from: 16K tokens, to: 8K tokens)) {{ rollout {{ max_tokens = cap }}, steps = 10 steps }}
}}
study all {{
  replicate = seeds
  arm base = checkpoint(qwen3_4b)
  arm plain = mine
  arm reo_exp = reo_exp
  arm shrink = shrink
  arm hot = mine {{ rollout {{ temperature = 0.9 }} }}
  unequal = "shrink has two stages"
}}
"""


def lrs(spec: Spec) -> dict[str, float]:
    return {
        arm.name: experiment(spec, arm.name).stages[0].optim.lr for arm in spec.study.arms if arm.is_trained
    }


def test_set_changes_a_param_and_is_remembered(spec: Callable[..., Spec]) -> None:
    changed = spec(TEXT, sets={"n": "3", "seeds": "[4, 5]"})
    method = experiment(changed, "reo_exp").stages[0].method
    assert isinstance(method, Ppo)
    assert method.reward.dense is not None
    assert len(method.reward.dense.split.budgets) == 3  # type: ignore[union-attr]
    assert changed.study.seeds == (4, 5)
    assert changed.params == {"n": "3", "seeds": "[4, 5]"}
    assert {(c.option, c.target, c.value) for c in changed.changes} == {
        ("--set", "n", "3"),
        ("--set", "seeds", "[4, 5]"),
    }


def test_amend_without_a_name_reaches_every_experiment(spec: Callable[..., Spec]) -> None:
    assert set(lrs(spec(TEXT)).values()) == {5e-6}
    changed = spec(TEXT, amends={"optim.lr": "1e-6"})
    assert set(lrs(changed).values()) == {1e-6}
    assert experiment(changed, "plain").stages[0].optim.given_at["lr"].path == "--amend optim.lr"


def test_amend_with_a_name_reaches_that_and_what_comes_from_it(spec: Callable[..., Spec]) -> None:
    assert lrs(spec(TEXT, amends={"reo_exp.optim.lr": "1e-6"})) == {
        "plain": 5e-6, "reo_exp": 1e-6, "shrink": 5e-6, "hot": 5e-6,
    }  # fmt: skip
    assert set(lrs(spec(TEXT, amends={"mine.optim.lr": "1e-6"})).values()) == {1e-6}
    assert lrs(spec(TEXT, amends={"hot.optim.lr": "1e-6"}))["plain"] == 5e-6
    assert lrs(spec(TEXT, amends={"hot.optim.lr": "1e-6"}))["hot"] == 1e-6


def test_amend_with_a_name_wins_over_one_for_all_in_either_order(spec: Callable[..., Spec]) -> None:
    both = {"reo_exp.optim.lr": "1e-6", "optim.lr": "2e-6"}
    for amends in (both, dict(reversed(both.items()))):
        assert lrs(spec(TEXT, amends=amends)) == {"plain": 2e-6, "reo_exp": 1e-6, "shrink": 2e-6, "hot": 2e-6}


def test_amend_wins_over_stages(spec: Callable[..., Spec]) -> None:
    changed = spec(TEXT, amends={"steps": "2"})
    assert [stage.steps for stage in experiment(changed, "shrink").stages] == [2, 2]


def test_amend_of_the_study_and_of_the_library(spec: Callable[..., Spec]) -> None:
    assert spec(TEXT, amends={"limit": "10 gpu_hours"}).study.limit == 10
    assert spec(TEXT, amends={"math_reg.samples": "2"}).study.arms[0].suite.samples == 2


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"sets": {"m": "3"}}, "E0211"),
        ({"sets": {"n": "17"}}, "E0303"),
        ({"sets": {"n": "0.5"}}, "E0303"),
        ({"sets": {"n": '"x"'}}, "E0301"),
        ({"amends": {"optimizer.lr": "1"}}, "E0211"),
        ({"amends": {"optim": "1"}}, "E0301"),
        ({"amends": {"optim.lr.x": "1"}}, "E0301"),
        ({"amends": {"mine.optim.rate": "1"}}, "E0203"),
        ({"amends": {"optim.lr": "2"}}, "E0303"),
        ({"amends": {"optim.lr": "unknown_name"}}, "E0201"),
        ({"amends": {"": "1"}}, "E0211"),
    ],
)
def test_refused(codes: Callable[..., list[str]], options: dict[str, dict[str, str]], code: str) -> None:
    assert set(codes(TEXT, **options)) == {code}


@pytest.mark.parametrize(
    ("name", "options"),
    [("E0211-param", {"sets": {"lr": "1e-6"}}), ("E0211", {"amends": {"optimizer.lr": "1e-3"}})],
)
def test_refusals_read_well(
    compiled: Callable[..., CompileResult],
    golden: Callable[[str, str], None],
    name: str,
    options: dict[str, dict[str, str]],
) -> None:
    result = compiled(TEXT, **options)
    golden(f"language/{name}.txt", render(result.diagnostics, result.sources))


def test_syntax_of_a_change_is_reported_at_the_option(compiled: Callable[..., CompileResult]) -> None:
    (found,) = compiled(TEXT, sets={"n": "3 +"}).diagnostics
    assert found.labels[0].span.path == "--set n"


def test_a_list_without_its_brackets(compiled: Callable[..., CompileResult]) -> None:
    (found,) = (e for e in compiled(TEXT, sets={"seeds": "1, 2"}).diagnostics if e.severity == "error")
    assert (found.code, found.help) == ("E0130", "write a list in brackets: `[1, 2]`")
    (found,) = (e for e in compiled(TEXT, sets={"seeds": "1 +"}).diagnostics if e.severity == "error")
    assert "brackets" not in (found.help or "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sets": {"title": "hello"}}, "a text is written in quotes: --set 'title=\"hello\"'"),
        ({"sets": {"title": "x"}}, "a text is written in quotes: --set 'title=\"x\"'"),
        ({"sets": {"title": "seedz"}}, "did you mean `seeds`?"),
        ({"sets": {"title": "None"}}, "leave out a setting that you do not want"),
    ],
)
def test_a_text_without_its_quotes_is_told_so(
    compiled: Callable[..., CompileResult], changes: dict[str, dict[str, str]], words: str
) -> None:
    found = compiled(TEXT.replace("param seeds", 'param title: text = "a"\nparam seeds'), **changes)
    assert words in render(found.diagnostics, found.sources)


def test_a_text_of_a_spec_without_its_quotes_is_told_so(compiled: Callable[..., CompileResult]) -> None:
    found = compiled(TEXT.replace("param seeds", "param title: text = hello\nparam seeds"))
    told = [each for each in found.diagnostics if each.code == "E0201"]
    assert [each.help for each in told] == ['a text is written in quotes: write `"hello"`']


CLUSTERED = (
    TEXT.replace("study all {", "study all {\n  limit = 9 gpu_hours\n  cluster = h100_1x8")
    .replace("experiment shrink = mine {", "experiment shrink = mine {\n  cluster = h100_1x8")
    .replace(HEAD, f"{HEAD}from std.clusters import h100_1x8\n")
)


def test_cluster_and_limit_are_taken_away(spec: Callable[..., Spec]) -> None:
    placed = spec(CLUSTERED)
    assert placed.study.cluster is not None
    assert placed.study.limit == 9
    here = spec(CLUSTERED, amends={"cluster": "none", "limit": "none"})
    assert (here.study.cluster, here.study.limit, here.study.engine) == (None, None, "embedded")
    assert experiment(here, "shrink").cluster is None
    assert [(each.target, each.value) for each in here.changes] == [("cluster", "none"), ("limit", "none")]


def test_what_is_set_nowhere_cannot_be_taken_away(compiled: Callable[..., CompileResult]) -> None:
    (only,) = compiled(TEXT, amends={"limit": "none"}).diagnostics
    assert only.code == "E0211"
    assert only.message == "nothing that runs has `limit`"
