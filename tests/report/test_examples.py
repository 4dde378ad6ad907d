"""Responses on the page: a dozen, fair to arms and benchmarks, as they were evaluated."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import polars as pl

from reodsl.report.examples import MOST_CHARACTERS, MOST_RESPONSES, section
from reodsl.report.material import Material


def folds(material: Material) -> list[list[str]]:
    """The texts of each response on the page: its line, its question, itself, its answer."""
    found = re.findall(
        r"<summary>(.*?)</summary><div class=\"question\">(.*?)</div><div class=\"trace\">(.*?)</div>.*?<p>(.*?)</p>",
        str(section(material)),
        re.DOTALL,
    )
    return [[html.unescape(part) for part in each] for each in found]


def test_a_dozen_responses_are_those_that_were_evaluated(material: Material) -> None:
    found = folds(material)
    assert len(found) == MOST_RESPONSES // len(material.arms) * len(material.arms)
    assert {line.split(" · ")[0] for line, *_ in found} == set(material.arms)
    assert len({line.split(" · ")[1] for line, *_ in found}) == min(3, MOST_RESPONSES // len(material.arms))
    for line, question, text, answer in found:
        arm, benchmark, name, tokens, verdict = line.split(" · ")
        samples = pl.read_parquet(material.evaluations[arm, 1] / "samples.parquet")
        (row,) = samples.filter(benchmark=benchmark, question=name, sample=0).to_dicts()
        assert (question, text, answer) == (row["text"], row["response"], f"answer: {row['answer']}")
        assert (tokens, verdict) == (f"{row['tokens']} tokens", "right" if row["correct"] else "wrong")


def test_each_response_names_the_wording_that_it_was_asked_in(worded: Material) -> None:
    lines = {tuple(line.split(" · ")[:4]) for line, *_ in folds(worded)}
    assert {each[3] for each in lines if each[0] == "vanilla"} == {"free"}
    assert {(each[2], each[3]) for each in lines if each[0] == "base"} == {("q0", "brief")}


def test_there_is_no_section_without_responses(material: Material) -> None:
    assert section(replace(material, evaluations={})) is None


def test_a_long_response_loses_its_middle_and_no_text_is_markup(tmp_path: Path, material: Material) -> None:
    frame = pl.read_parquet(material.evaluations["base", 1] / "samples.parquet")
    long = "</details>" + "a" * MOST_CHARACTERS + "b" * MOST_CHARACTERS
    frame.with_columns(response=pl.lit(long)).write_parquet(tmp_path / "samples.parquet")
    changed = replace(material, evaluations={("base", 1): tmp_path})
    assert "</details>a" not in str(section(changed))
    _, _, text, _ = folds(changed)[0]
    assert len(text) < MOST_CHARACTERS + 10
    assert text.startswith("</details>aaa")
    assert text.endswith("bbb")


def test_the_first_seed_is_shown(of_seeds: Material) -> None:
    for line, _, text, _ in folds(of_seeds):
        arm, benchmark, name, *_ = line.split(" · ")
        seed = min((s for a, s in of_seeds.evaluations if a == arm), key=lambda s: s or 0)
        samples = pl.read_parquet(of_seeds.evaluations[arm, seed] / "samples.parquet")
        assert samples.filter(benchmark=benchmark, question=name, sample=0)["response"].to_list() == [text]
