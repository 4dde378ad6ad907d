"""The responses in the page: all that fit, each text once, fair to arms and benchmarks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from reodsl.report import all_responses
from reodsl.report.all_responses import LONGEST, responses
from reodsl.report.markup import json_block
from reodsl.report.material import Material


def test_every_response_is_there_as_it_was_evaluated(material: Material) -> None:
    found = responses(material, 10_000_000)
    data = found.data
    assert found.shown == found.all == 12 * len(material.arms)
    assert len(set(data["texts"])) == len(data["texts"])
    arm = data["arms"].index("reo_exp")
    folder = material.evaluations["reo_exp", 1]
    samples = {
        (row["benchmark"], row["question"]): row
        for row in pl.read_parquet(folder / "samples.parquet").to_dicts()
    }
    forced = pl.read_parquet(folder / "forced.parquet")
    mine = [row for row in data["responses"] if row[0] == arm]
    assert len(mine) == 12
    for (
        _,
        seed,
        question,
        sample,
        response,
        tokens,
        cut,
        answer,
        right,
        left_out,
        turns,
        answers,
        places,
        wording,
    ) in mine:
        assert wording == -1
        benchmark, name, text, gold = data["questions"][question]
        row = samples[data["benchmarks"][benchmark], data["texts"][name]]
        texts = [data["texts"][number] for number in (text, response, answer)]
        assert texts == [row["text"], row["response"], row["answer"]]
        assert [data["texts"][number] for number in gold] == row["gold"].split("\x1e")
        assert (seed, sample, tokens, right) == (1, row["sample"], row["tokens"], row["correct"])
        assert (cut, left_out) == (0, 0)
        of_row = forced.filter(
            (pl.col("benchmark") == row["benchmark"]) & (pl.col("question") == row["question"])
        ).sort("budget")
        assert data["grids"][arm] == of_row["budget"].to_list()
        assert [each == "1" for each in turns] == of_row["correct"].to_list()
        assert [data["texts"][number] for number in answers] == of_row["answer"].to_list()
        # A token is a word there, and every question was kept with the places of its cuts.
        for budget, at in zip(of_row["budget"], places, strict=True):
            if budget < tokens:
                assert len(row["response"][:at].split()) == budget


def test_each_response_names_the_wording_that_it_was_asked_in(worded: Material) -> None:
    data = responses(worded, 10_000_000).data
    named = set()
    for arm, _, question, *_, wording in data["responses"]:
        text = data["texts"][wording] if wording >= 0 else None
        named.add((data["arms"][arm], data["texts"][data["questions"][question][1]], text))
    several = {("base", f"q{at}", "free" if at else "brief") for at in range(4)}
    same = {
        (arm, f"q{at}", "free" if arm == "vanilla" else None) for arm in data["arms"][1:] for at in range(4)
    }
    assert named == several | same


def test_what_does_not_fit_is_left_out_fairly_and_said(material: Material) -> None:
    found = responses(material, 14_000)
    assert 0 < found.shown < found.all
    assert len(json_block("responses", found.data)) <= 14_000
    benchmarks = {found.data["questions"][row[2]][0] for row in found.data["responses"]}
    arms = {row[0] for row in found.data["responses"]}
    assert (len(benchmarks), len(arms)) == (3, len(material.arms))
    shown = all_responses.section(material, found)
    assert f"{found.shown:,} of 72 responses fit on this page" in str(shown)
    assert "<code>reodsl view quickstart</code>" in str(shown)
    assert responses(material, 0).shown == 0
    assert all_responses.section(material, responses(material, 0)) is None


def test_a_response_of_five_million_characters_loses_its_middle(
    tmp_path: Path, material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = material.evaluations["base", 1]
    frame = pl.read_parquet(folder / "samples.parquet")
    long = "a" * 2_500_000 + "b" * 2_500_000
    changed = frame.with_columns(
        pl.when(pl.int_range(pl.len()) == 0).then(pl.lit(long)).otherwise("response").alias("response")
    )
    changed.write_parquet(tmp_path / "samples.parquet")
    found = responses(replace(material, evaluations={("base", 1): tmp_path}), 1_000_000)
    (row,) = [row for row in found.data["responses"] if row[9]]
    text = found.data["texts"][row[4]]
    assert row[9] == 5_000_000 - LONGEST
    assert len(text) < LONGEST + 10
    assert text.startswith("aaa")
    assert text.endswith("bbb")


def test_the_data_cannot_end_its_element(material: Material) -> None:
    found = responses(material, 10_000_000)
    found.data["texts"][0] = "</script><b>"
    block = json_block("responses", found.data)
    assert block.count("</script>") == 1
    inside = re.search(r">(.*)</script>", block)
    assert inside is not None
    assert json.loads(inside[1])["texts"][0] == "</script><b>"
