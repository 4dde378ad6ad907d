"""Names that reodsl no longer has: each of the table is refused with what to write instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.diagnostics.dropped import DROPPED, SINCE
from tests.called import call

COMMANDS = {
    "report --compare": ("report", "quickstart", "--compare"),
    "plan --out": ("plan", "x.reo", "--out", "plan.json"),
    "push": ("push", "quickstart", "reo_exp", "me/tiny-reo"),
    "run --notify": ("run", "x.reo", "--notify", "https://example.com"),
}
"""How a command line holds each name of a command or an option."""


def test_every_name_has_an_example() -> None:
    assert {*COMMANDS} == {*DROPPED}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_line_is_refused_with_what_serves_instead(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*COMMANDS[name]) == 1
    err = " ".join(capsys.readouterr().err.split())
    assert f"error[E0299]: `{name}` is gone since {SINCE}" in err
    assert DROPPED[name] in err


def test_the_first_of_the_table(capsys: pytest.CaptureFixture[str], refusal: Callable[..., None]) -> None:
    call(*COMMANDS["run --notify"])
    refusal("commands/E0299.txt", capsys.readouterr().err)
