"""Quick fixes: what a diagnostic's help says, done by an edit after which the finding is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.lsp.analysis import analyse
from reodsl.lsp.fixes import apply_edits, fixes

HEAD = "from std.recipes import ppo\nfrom std.miniature import overthinker, chain_train, chain_suite\n"
BODY = """experiment a = ppo {
  base   = overthinker
  data   = chain_train
  reward = outcome
  steps  = 40 steps
  eval   = chain_suite
}
"""


def mended(text: str, line: str, tmp_path: Path) -> dict[str, str]:
    """What each fix of the line that holds `line` makes of a text, by the fix's title."""
    path = tmp_path / "spec.reo"
    analysis = analyse(path, {path: text})
    at = text[: text.index(line)].count("\n") + 1
    return {each.title: apply_edits(text, each.edits) for each in fixes(analysis, {path: text}, at, at)}


def test_an_import_that_is_missing(tmp_path: Path) -> None:
    text = HEAD + BODY
    found = mended(text, "reward =", tmp_path)
    lines = found["Import it: from std.rewards import outcome"].split("\n")
    assert lines[2] == "from std.rewards import outcome"
    beside = mended(HEAD + "from std.rewards import reo\n" + BODY, "reward =", tmp_path)
    assert "from std.rewards import reo, outcome" in beside["Import it: from std.rewards import outcome"]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("  bse    = overthinker", "  base    = overthinker"),
        ("  eval   = chain_suit", "  eval   = chain_suite"),
    ],
)
def test_what_was_meant(wrong: str, right: str, tmp_path: Path) -> None:
    good = HEAD + "from std.rewards import outcome\n" + BODY
    name = right.split()[0]
    text = "\n".join(wrong if line.split()[:1] == [name] else line for line in good.split("\n"))
    (fixed,) = mended(text, wrong, tmp_path).values()
    assert right in fixed


def test_settings_that_are_missing(tmp_path: Path) -> None:
    one = mended("cluster b { nodes = 1 }\n", "cluster", tmp_path)
    assert list(one.values()) == [
        'cluster b { gpus_per_node = 8, gpu = "H800", memory = 80 GiB, nodes = 1 }\n'
    ]
    several = mended("cluster b {\n  nodes = 1\n}\n", "cluster", tmp_path)
    (text,) = several.values()
    assert text.split("\n")[1] == '  gpus_per_node = 8, gpu = "H800", memory = 80 GiB'


def test_a_fix_that_does_not_mend_is_not_offered(tmp_path: Path) -> None:
    text = HEAD + "from std.rewards import outcome\n" + BODY.replace("= overthinker", "= nothing_like_it")
    path = tmp_path / "spec.reo"
    before = analyse(path, {path: text})
    for each in fixes(before, {path: text}, 1, 99):
        after = analyse(path, {path: apply_edits(text, each.edits)}).findings
        assert (each.finding.code, each.finding.message) not in {(one.code, one.message) for one in after}
