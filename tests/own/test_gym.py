"""A data set of reasoning-gym, asked, answered, trained on and judged by its own scorer: a whole run."""

from __future__ import annotations

import polars as pl
import pytest

from reodsl.store.external import package_version
from tests.bad_input.commands import SPEC, Place, refused

pytestmark = pytest.mark.slow

WORDS = """
tokenizer gym_words = chain_words {
  words += words("State the final to following arithmetic problem: + - =")
}
"""
ASKED = """source = package(
    "reasoning-gym",
    task: "chain_sum",
    count: 4,
    seed: SEED,
    options: ["min_terms=2", "max_terms=2", "min_digits=1", "max_digits=1"],
  SPLIT),
  verifier = package"""


def spec() -> str:
    """The small spec with sums of reasoning-gym in place of its own, and their words."""
    text = SPEC.replace("tokenizer: chain_words", "tokenizer: gym_words").replace(
        "\ndata asked", WORDS + "\ndata asked"
    )
    for split in ("", ", split: held_out"):
        own = f"source = generated(chain_easy, count: 4, seed: 1{split}), verifier = exact"
        assert own in text
        gym = ASKED.replace("SPLIT", split and "  split: held_out").replace("SEED", "2" if split else "1")
        text = text.replace(own, gym)
    return text


installed = pytest.mark.skipif(package_version("reasoning-gym") is None, reason="make smollm2")


@pytest.mark.heavy
@installed
def test_a_data_set_is_trained_on_and_judged_by_its_scorer(place: Place) -> None:
    place.write(spec())
    told = place.run()
    assert told.code == 0, told.err
    (table,) = place.folder.rglob(".reodsl/**/rollouts.parquet")
    rollouts = pl.read_parquet(table)
    assert rollouts.height == 2 * 2 * 2
    assert rollouts["reward"].is_finite().all()


@installed
def test_a_report_says_that_nothing_confined_what_read_the_answers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which a run does once it is told to, and not before."""
    why = "the kernel (4.4) has no Landlock"
    for name in ("check.lacking_means", "perform.lacking"):
        monkeypatch.setattr(f"runners.execute.{name}", lambda: why)
    place.write(spec())
    refused(place.run(), "E0742", "verifier `package`", why, "--without-sandbox")
    told = place.run("--without-sandbox", "--amend", "tiny.steps=1")
    assert told.code == 0, told.err
    (page,) = place.folder.rglob("runs/*/report.html")
    assert f"answers were checked without a sandbox: {why}" in page.read_text()
