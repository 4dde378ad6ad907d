"""Filters over responses against a plain loop over every row, in every form that the files may have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.numbers.verdict import CAUSES, weigh
from reodsl.view.responses import (
    KEYS,
    MOST_TEXT,
    Evaluation,
    Filter,
    Order,
    budgets,
    list_responses,
    matching,
    response,
    row_of,
)
from tests.view.conftest import GRID, drawn, shuffled

FILTERS = [
    Filter(),
    Filter(benchmark="hard"),
    Filter(right=True),
    Filter(right=False, shortest=5, longest=11),
    Filter(words="is 7 of"),
    Filter(words="easy-000"),
    Filter(words="12"),
    Filter(words="W17 w18"),
    Filter(unfinished=True),
    Filter(right_at=4, wrong_at=0),
    Filter(right_at=8, wrong_at=16),
    Filter(right_at=8, right=True, benchmark="easy"),
    Filter(wrong_at=0, unfinished=True),
    Filter(right_at=5),
    Filter(wrong_at=5),
    Filter(words=".*"),
]


def slow(evaluation: Evaluation, wanted: Filter) -> list[int]:
    """The rows that fit, one by one."""
    forced: dict[tuple[Any, ...], dict[int, bool]] = {}
    for row in pl.scan_parquet(evaluation.forced).collect().iter_rows(named=True):
        forced.setdefault((row["benchmark"], row["question"], row["sample"]), {})[row["budget"]] = row[
            "correct"
        ]
    found = []
    for number, row in enumerate(pl.scan_parquet(evaluation.samples).collect().iter_rows(named=True)):
        fits = [
            wanted.benchmark in (None, row["benchmark"]),
            wanted.right in (None, row["correct"]),
            wanted.shortest is None or row["tokens"] >= wanted.shortest,
            wanted.longest is None or row["tokens"] <= wanted.longest,
        ]
        if wanted.words is not None:
            words = wanted.words.lower()
            texts = [(row[name] or "").lower() for name in ("text", "response", "answer")]
            fits.append(any(words in text for text in texts) or row["question"].startswith(wanted.words))
        fits.append(not wanted.unfinished or row["finish"] == "length")
        cuts = forced[row["benchmark"], row["question"], row["sample"]]
        fits += [
            budget is None or cuts.get(budget) is right
            for budget, right in ((wanted.right_at, True), (wanted.wrong_at, False))
        ]
        if all(fits):
            found.append(number)
    return found


def slow_waste(evaluation: Evaluation) -> list[int | None]:
    """The tokens of each response after the last budget at which it had a wrong answer, budget by budget."""
    cuts = pl.scan_parquet(evaluation.forced).collect()
    found: list[int | None] = []
    for row in pl.scan_parquet(evaluation.samples).collect().iter_rows(named=True):
        own = cuts.filter(pl.all_horizontal(pl.col(key) == row[key] for key in KEYS))
        right = dict(own.select("budget", "correct").iter_rows()) | {row["tokens"]: row["correct"]}
        known = next(b for b in sorted(right) if all(right[at] for at in right if at >= b) or b == max(right))
        found.append(row["tokens"] - min(known, row["tokens"]) if row["correct"] else None)
    return found


@pytest.mark.parametrize("form", ["whole", "parts", "shuffled"])
def test_a_filter_finds_what_a_loop_over_all_rows_finds(tmp_path: Path, form: str) -> None:
    evaluation = drawn(tmp_path, "one", parts=4 if form == "parts" else 1)
    if form == "shuffled":
        evaluation = shuffled(evaluation, tmp_path / "other")
    assert budgets(evaluation) == GRID
    for wanted in FILTERS:
        assert matching(evaluation, wanted).tolist() == slow(evaluation, wanted), wanted


def test_pages_go_on_where_the_last_one_ended(tmp_path: Path) -> None:
    both = [drawn(tmp_path, "one", questions=20), drawn(tmp_path, "two", questions=15, parts=3)]
    wanted = Filter(right=False)
    total, everything = list_responses(both, wanted, 0, 10_000)
    assert total == len(everything) == sum(len(slow(each, wanted)) for each in both)
    paged = [row for at in range(0, total, 7) for row in list_responses(both, wanted, at, 7)[1]]
    assert paged == everything
    assert {row["evaluation"] for row in everything} == {"one@1", "two@1"}
    assert not any(row["correct"] for row in everything)
    assert "response" not in everything[0]
    assert list_responses(both, wanted, total + 5, 7) == (total, [])
    assert list_responses([], wanted, 0, 7) == (0, [])


def test_responses_are_compared_with_another_arms_and_sorted(tmp_path: Path) -> None:
    """Against a loop: right here and wrong there, the longest, the shortest, and those furthest apart."""
    one, two = drawn(tmp_path, "one"), shuffled(drawn(tmp_path, "two", questions=50), tmp_path / "x")
    rows = {}
    for each in (one, two):
        frame = pl.scan_parquet(each.samples).collect()
        rows[each.name] = {
            frame.select(KEYS).row(i): (i, *frame.select("tokens", "correct").row(i))
            for i in range(len(frame))
        }
    here, there = rows.values()
    for right in (True, False):
        found = matching(one, Filter(right=right, other=two.samples, other_right=not right))
        assert found.tolist() == [
            i
            for key, (i, _, fits) in here.items()
            if fits is right and key in there and there[key][2] is not right
        ]
        assert len(found) > 5
    lengths = [tokens for table in rows.values() for _, tokens, _ in table.values()]
    wasted = [-1 if each is None else each for evaluation in (one, two) for each in slow_waste(evaluation)]
    assert len(set(wasted)) > 10
    apart = [
        abs(table[key][1] - other[key][1]) if key in other else 0
        for table, other in ((here, there), (there, here))
        for key in table
    ]
    keys: dict[Order, Callable[[int], Any]] = {
        "longest": lambda at: -lengths[at],
        "shortest": lambda at: lengths[at],
        "wasted": lambda at: (-wasted[at], -lengths[at]),
        "different": lambda at: (-apart[at], -lengths[at]),
    }
    for order, key in keys.items():
        places = sorted(range(len(lengths)), key=key)
        total, listed = list_responses([one, two], Filter(), 40, 30, order, [one, two])
        assert total == len(lengths)
        names = [(each["evaluation"], each["row"]) for each in listed]
        assert names == [
            ("one@1", at) if at < len(here) else ("two@1", at - len(here)) for at in places[40:70]
        ]
        if order == "wasted":
            assert [each["wasted"] for each in listed] == [wasted[at] for at in places[40:70]]
        # They are rows far from each other, and each has its own beginning.
        assert [len(each["begins"].split()) for each in listed] == [lengths[at] for at in places[40:70]]


def test_a_response_has_its_text_and_a_cut_for_each_budget(tmp_path: Path) -> None:
    for evaluation in (drawn(tmp_path, "one", parts=2), shuffled(drawn(tmp_path, "two"), tmp_path / "x")):
        rows = pl.scan_parquet(evaluation.samples).collect()
        for number in (0, 77, rows.height - 1):
            found = response(evaluation, number)
            row = rows.row(number, named=True)
            assert found is not None
            assert (found["response"], found["gold"]) == (row["response"], [row["gold"]])
            assert [cut["budget"] for cut in found["cuts"]] == list(GRID)
            assert [cut["forced"] for cut in found["cuts"]] == [budget < row["tokens"] for budget in GRID]
            assert all(0 <= cut["characters"] <= len(found["response"]) for cut in found["cuts"])
            assert row_of(evaluation, row["benchmark"], row["question"], row["sample"]) == number
            weights = weigh(GRID, 8)
            known = {
                cut["budget"]: weights.get(cut["budget"], 0) for cut in found["cuts"] if not cut["correct"]
            }
            upto = response(evaluation, number, last_budget=8)
            assert upto is not None
            assert sum(each["tokens"] for each in upto["lost"]) == pytest.approx(sum(known.values()))
            assert [each["cause"] for each in upto["lost_mean"]] == list(CAUSES.values())
            # Where a response knew its answer, the causes of the gap end: all that it loses, it loses before.
            assert found["wasted"] == slow_waste(evaluation)[number]
            if found["wasted"] is not None:
                known = row["tokens"] - found["wasted"]
                wrong = [
                    weigh(GRID)[b] for b in GRID if b < known and not found["cuts"][GRID.index(b)]["correct"]
                ]
                lost = {each["cause"]: each["tokens"] for each in found["lost"]}
                assert lost[CAUSES["before"]] + lost[CAUSES["after"]] == pytest.approx(sum(wrong))
                assert sum(lost.values()) == pytest.approx(sum(wrong))
        assert response(evaluation, rows.height) is None
        assert row_of(evaluation, "easy", "none", 0) is None


def test_a_row_has_what_was_found_in_its_response(tmp_path: Path) -> None:
    evaluation = drawn(tmp_path, "one", questions=4)
    _, listed = list_responses([evaluation], Filter(words="W17 w18"), 0, 9)
    assert listed
    assert all(each["begins"].endswith(" w16 w17 w18") and len(each["begins"]) < 60 for each in listed)
    assert list_responses([evaluation], Filter(words="(.*"), 0, 9) == (0, [])


def test_the_middle_of_a_response_of_five_megabytes_is_left_out(tmp_path: Path) -> None:
    evaluation = drawn(tmp_path, "one", questions=2)
    path = evaluation.samples[0]
    text = "".join(f"{number:07d} " for number in range(640_000))
    frame = pl.read_parquet(path).with_columns(
        pl.lit(text).alias("response"), pl.lit(100_000).alias("tokens")
    )
    frame.write_parquet(path)
    found = response(evaluation, 0)
    assert found is not None
    assert len(found["response"]) == MOST_TEXT
    assert found["left_out"] == len(text) - MOST_TEXT
    assert found["response"].startswith("0000000 ")
    assert found["response"].endswith("0639999 ")
    whole = response(evaluation, 0, keeps_middle=True)
    assert whole is not None
    assert whole["response"] == text


def test_where_a_token_ends_is_told_by_the_evaluation_or_the_tokenizer_or_guessed(tmp_path: Path) -> None:
    from dataclasses import replace

    from tokenizers import Tokenizer, models, pre_tokenizers

    evaluation = drawn(tmp_path, "one", questions=4)
    guessed = response(evaluation, 3)
    assert guessed is not None
    row = pl.read_parquet(evaluation.samples[0]).row(3, named=True)
    assert [cut["exact"] for cut in guessed["cuts"]] == [budget >= row["tokens"] for budget in GRID]

    words = {f"w{number}": number for number in range(20)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # As a fine-tuned model's has them.
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=500)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    told = response(replace(evaluation, tokenizer=tmp_path / "tokenizer.json"), 3)
    assert told is not None
    for cut in told["cuts"]:
        assert cut["exact"]
        assert told["response"][: cut["characters"]].split() == row["response"].split()[: cut["budget"]]

    (tmp_path / "broken.json").write_text("{")
    broken = response(replace(evaluation, tokenizer=tmp_path / "broken.json"), 3)
    assert broken == guessed
    settings = json.loads((tmp_path / "tokenizer.json").read_text())
    settings["pre_tokenizer"] = {"type": "FixedLength", "length": 0}
    (tmp_path / "panics.json").write_text(json.dumps(settings))
    assert response(replace(evaluation, tokenizer=tmp_path / "panics.json"), 3) == guessed

    keys = {name: row[name] for name in ("benchmark", "question", "sample")}
    kept = pl.DataFrame([keys | {"budget": budget, "characters": min(budget, 2)} for budget in GRID])
    kept.write_parquet(tmp_path / "examples.parquet")
    kept_by = response(replace(evaluation, examples=(tmp_path / "examples.parquet",)), 3)
    assert kept_by is not None
    assert [cut["characters"] for cut in kept_by["cuts"]] == [min(b, 2, len(row["response"])) for b in GRID]


@pytest.mark.heavy
def test_ten_million_responses_stay_quick(tmp_path: Path) -> None:
    """A bound with a margin; docs/RESULTS.md says what 400,000 take."""
    import time

    import numpy as np

    count, grid, files = 2_500_000, (0, 64, 128, 256, 512, 1024, 2048, 4096), 4
    rng = np.random.default_rng(0)
    evaluations = []
    for number in range(files):
        folder = tmp_path / str(number)
        folder.mkdir()
        at = pl.select(pl.int_range(count).alias("at"))
        keys = at.select(
            pl.lit("math").alias("benchmark"),
            pl.format("q{}", pl.col("at") // 32).alias("question"),
            (pl.col("at") % 32).alias("sample"),
        )
        tokens = rng.integers(1, 5000, count)
        right = rng.random(count) < 0.6
        keys.with_columns(
            pl.format("What is {}?", pl.col("question")).alias("text"),
            pl.lit("7").alias("gold"),
            pl.format("{} so the answer to {} is 7", pl.col("sample"), pl.col("question")).alias("response"),
            pl.Series("tokens", tokens),
            pl.lit("stop").alias("finish"),
            pl.lit("7").alias("answer"),
            pl.Series("correct", right),
            pl.lit(None, pl.String).alias("unsettled"),
        ).write_parquet(folder / "samples.parquet")
        wide = keys.select(pl.all().repeat_by(len(grid)).explode())
        wide.with_columns(
            pl.Series("budget", np.tile(grid, count)),
            pl.lit(True).alias("forced"),
            pl.lit("7").alias("answer"),
            pl.Series("correct", rng.random(count * len(grid)) < 0.5),
        ).write_parquet(folder / "forced.parquet")
        files_of = ((folder / "samples.parquet",), (folder / "forced.parquet",))
        evaluations.append(Evaluation(f"arm{number}", 1, "t", "k", *files_of, (), None, True))
    other = evaluations[1].samples
    for wanted, order in (
        (Filter(), ""),
        (Filter(right=False), ""),
        (Filter(shortest=4000, right=True), ""),
        (Filter(words="q777"), ""),
        (Filter(words="answer to q777 "), "longest"),
        (Filter(right_at=512, wrong_at=256), ""),
        (Filter(right=True, other=other, other_right=False), "different"),
    ):
        for offset in (0, 5_000):
            began = time.monotonic()
            total, _ = list_responses(evaluations, wanted, offset, 50, order, evaluations[:2])  # type: ignore[arg-type]
            took = time.monotonic() - began
            print(f"{wanted}: {total:,} from {offset}: {took:.2f} s")
            assert took < 60
    began = time.monotonic()
    assert response(evaluations[3], 2_000_000) is not None
    print(f"one response: {time.monotonic() - began:.2f} s")
