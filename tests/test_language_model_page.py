"""docs/EVIDENCE.md is what the kept numbers say."""

from __future__ import annotations

import pytest

from benchmarks import language_model as told
from benchmarks.tables import place, read_rows


def test_the_page_is_what_the_numbers_say() -> None:
    text = told.PAGE.read_text("utf-8")
    assert place(text, told.texts()) == text


def test_sentences_hold_in_the_numbers() -> None:
    rows = {row["arm"]: row for row in read_rows("smollm2_results") if row["benchmark"] == "mean"}
    trained = [rows[arm] for arm in told.ARMS[1:]]
    # "37 to 49% shorter", "no accuracy apart", "no arm is apart from vanilla in REG", "0.3 points lower".
    shorter = [1 - float(row["length"]) / float(rows["base"]["length"]) for row in trained]
    assert (round(100 * min(shorter)), round(100 * max(shorter))) == (37, 49)
    changes = [(float(row["accuracy_change_low"]), float(row["accuracy_change_high"])) for row in trained[1:]]
    assert all(low < 0 < high for low, high in changes)
    assert 100 * float(rows["reo_exp"]["accuracy_change"]) == pytest.approx(-0.3, abs=0.05)
    ends = [(float(row["difference_low"]), float(row["difference_high"])) for row in trained[1:]]
    assert all(low < 0 < high for low, high in ends)
    assert float(rows["reo_exp"]["length_high"]) < float(rows["vanilla"]["length_low"])
    # "4 h 15 min", under the 8 hours of a night.
    clock = sum(float(row["seconds"]) for row in read_rows("smollm2_hours"))
    assert clock / 60 == pytest.approx(255, abs=5)
    assert "4 h 15 min" in told.PAGE.read_text("utf-8")


def test_a_page_without_its_markers_is_refused() -> None:
    with pytest.raises(SystemExit, match="no markers named scores"):
        place("# Empty\n", told.texts())
