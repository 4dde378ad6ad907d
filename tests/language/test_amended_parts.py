"""What `--amend` makes of one stage of an experiment, and of one table or chart of a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.cli.main import main
from reodsl.ir.study import Spec
from reodsl.language import CompileResult
from tests.language.conftest import HEAD, MINE
from tests.language.test_changes import experiment

TEXT = f"""{HEAD}{MINE}
experiment grown = mine {{
  stage warm {{ steps = 5 steps }}
  stages(cap in [16K tokens, 8K tokens]) {{ rollout {{ max_tokens = cap }}, steps = 10 steps }}
}}
experiment child = grown {{ epochs = 3 }}
experiment other = grown {{ stage warm {{ steps = 7 steps }} }}
study all {{
  arm base  = checkpoint(qwen3_4b)
  arm grown = grown
  arm child = child
  arm other = other
  arm hot   = grown {{ rollout {{ temperature = 0.9 }} }}
  report {{
    table main  {{ rows = arms, columns = [accuracy] }}
    chart lines {{ x = budget, y = accuracy, lines = [base, grown] }}
  }}
}}
"""


def steps(spec: Spec, arm: str) -> list[int | None]:
    return [stage.steps for stage in experiment(spec, arm).stages]


@pytest.mark.parametrize("name", ["grown.stages.warm", "grown.stage.warm"])
def test_a_stage_by_name(spec: Callable[..., Spec], name: str) -> None:
    changed = spec(TEXT, amends={f"{name}.steps": "2"})
    assert steps(changed, "grown") == [2, 10, 10]
    # Those that are made from it have its stages, where they have none of their own.
    assert steps(changed, "child") == steps(changed, "hot") == [2, 10, 10]
    assert steps(changed, "other") == [7]
    assert experiment(changed, "grown").stages[0].given_at["steps"].path == f"--amend {name}.steps"


@pytest.mark.parametrize("arm", ["child", "hot"])
def test_a_stage_of_the_parent(spec: Callable[..., Spec], arm: str) -> None:
    changed = spec(TEXT, amends={f"{arm}.stages.16384.steps": "3", f"{arm}.stages.8192.optim.lr": "1e-6"})
    assert steps(changed, arm) == [5, 3, 10]
    assert [stage.optim.lr for stage in experiment(changed, arm).stages] == [5e-6, 5e-6, 1e-6]
    assert steps(changed, "grown") == [5, 10, 10]


def test_one_stage_wins_over_all_of_them(spec: Callable[..., Spec]) -> None:
    amends = {"grown.stages.warm.steps": "2", "grown.steps": "4", "steps": "6"}
    for each in (amends, dict(reversed(amends.items()))):
        assert steps(spec(TEXT, amends=each), "grown") == [2, 4, 4]


def test_a_stage_that_there_is_not_is_told_of_the_experiment_that_was_named(
    compiled: Callable[..., CompileResult],
) -> None:
    found = compiled(TEXT, amends={"grown.stages.9.steps": "2"}).diagnostics
    errors = [each.message for each in found if each.severity == "error"]
    assert errors == ["`grown` has no stage `9`"]


def test_what_stands_in_them_is_checked(codes: Callable[..., list[str]]) -> None:
    assert set(codes(TEXT, amends={"grown.stages.warm.stepz": "2"})) == {"E0203"}
    assert set(codes(TEXT, amends={"grown.stages.warm.steps": "0"})) == {"E0303"}


def test_a_plan_says_that_it_is_in_no_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.reo").write_text(TEXT)
    with pytest.raises(SystemExit):
        main(["plan", "spec.reo", "--amend", "hot.stages.16384.steps=3"])
    assert "--amend hot.stages.16384.steps=3 is not saved in a spec" in capsys.readouterr().out


LIBRARY = "name it in full: `std.clusters.h100_1x8`"


@pytest.mark.parametrize(
    ("target", "value", "code", "remedy"),
    [
        # What the spec does not import is named in full.
        ("cluster", "h100_1x8", "E0201", LIBRARY),
        ("grown.base", "qwen3_8b", "E0201", "name it in full: `std.models.qwen3_8b`"),
        ("grown.reward", "kimi_length(weight: 1)", "E0201", "name it in full: `std.rewards.kimi_length`"),
        ("cluster", "std.clusters.h100", "E0204", "did you mean `h100_1x8`?"),
        # Paths that a spec or another tool would write in another way.
        (
            "grown.stages[8K tokens].steps",
            "2",
            "E0211",
            "write dots instead of brackets: `--amend grown.stages.8192.steps=…`",
        ),
        (
            f"grown.stages[{'9' * 400}].steps",
            "2",
            "E0211",
            "write dots instead of brackets: `--amend grown.stages.NUMBER.steps=…`",
        ),
        (
            "grown.base.context",
            "2",
            "E0301",
            "write the whole setting, or amend what it names: `--amend qwen3_4b.context=…`",
        ),
        ("lr", "1e-6", "E0211", "did you mean `--amend optim.lr=…`?"),
    ],
)
def test_what_to_write_instead(
    compiled: Callable[..., CompileResult], target: str, value: str, code: str, remedy: str
) -> None:
    errors = [each for each in compiled(TEXT, amends={target: value}).diagnostics if each.severity == "error"]
    assert [(each.code, each.help) for each in errors] == [(code, remedy)]


def test_the_library_by_full_names(spec: Callable[..., Spec]) -> None:
    amends = {"cluster": "std.clusters.h100_1x8", "grown.reward": "std.rewards.kimi_length(weight: 0.5)"}
    changed = spec(TEXT, amends=amends)
    assert changed.study.cluster is not None
    assert changed.study.cluster.nodes == 1
    imported = f"from std.rewards import kimi_length\n{TEXT}"
    written = spec(imported, amends={**amends, "grown.reward": "kimi_length(weight: 0.5)"})
    assert experiment(changed, "grown") == experiment(written, "grown")
