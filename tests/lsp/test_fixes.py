"""Quick fixes: a missing import, the name that was meant, and the edits of findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.lsp.analysis import analyse
from reodsl.lsp.fixes import fixes
from tests.lsp.advice import apply_edits, ways_out

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
    return {fix.title: apply_edits(text, (fix.edit,)) for fix in fixes(analysis, at, at)}


def test_an_import_that_is_missing(tmp_path: Path) -> None:
    text = HEAD + BODY
    found = mended(text, "reward =", tmp_path)
    lines = found["Import it: from std.rewards import outcome"].split("\n")
    assert lines[2] == "from std.rewards import outcome"
    beside = mended(HEAD + "from std.rewards import reo\n" + BODY, "reward =", tmp_path)
    assert "from std.rewards import reo, outcome" in beside["Import it: from std.rewards import outcome"]


def test_an_import_of_several_names_that_is_missing(tmp_path: Path) -> None:
    """One error for names of one module has one fix, which imports all of them."""
    text = "from std.recipes import ppo\nfrom std.rewards import outcome\n" + BODY
    clause = "from std.miniature import overthinker, chain_train, chain_suite"
    found = mended(text, "base ", tmp_path)
    assert found[f"Import it: {clause}"].split("\n")[2] == clause
    path = tmp_path / "spec.reo"
    whole = analyse(path, {path: found[f"Import it: {clause}"]})
    assert [each for each in whole.findings if each.code == "E0201"] == []


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


def test_edits_of_a_finding(tmp_path: Path) -> None:
    text = HEAD + "reward mine { 1 / std(len(z) for z in group) }\n" + BODY.replace("outcome", "mine")
    offers = mended(text, "reward mine", tmp_path)
    assert offers
    assert all(title.startswith("Write ") for title in offers)


def test_advice_is_tried_by_the_same_rules(tmp_path: Path) -> None:
    text = "cluster b { nodes = 1 }\n"
    path = tmp_path / "spec.reo"
    (way,) = ways_out(analyse(path, {path: text}), {path: text}, 1, 1)
    assert apply_edits(text, way.edits) == (
        'cluster b { gpus_per_node = 8, gpu = "H800", memory = 80 GiB, nodes = 1 }\n'
    )


def test_an_edit_that_does_not_mend_is_no_way_out(tmp_path: Path) -> None:
    text = HEAD + "from std.rewards import outcome\n" + BODY.replace("= overthinker", "= nothing_like_it")
    path = tmp_path / "spec.reo"
    before = analyse(path, {path: text})
    for way in ways_out(before, {path: text}, 1, 99):
        after = analyse(path, {path: apply_edits(text, way.edits)}).findings
        assert (way.finding.code, way.finding.message) not in {(one.code, one.message) for one in after}
