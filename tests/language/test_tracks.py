"""Tracks of a reward: what they are lowered to and written as, what is refused, and the monitor set that they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reodsl.ir.reward import Reward
from reodsl.ir.reward_text import reward_lines
from reodsl.language import check_file
from reodsl.language.chosen_reward import choose_reward
from reodsl.syntax.formatter import format_source
from reodsl.syntax.source import Source
from tests.language.conftest import HEAD, MINE

TEXT = """reward laser(low: tokens = 16 tokens) {
  let solved(z) = mean(correct(w) for w in group)
  track usual = mean(len(z) for z in steps(5 steps) if correct(z), empty: 64 tokens)
  track limit = max(low, quantile(len(z) for z in monitor if solved(z) >= 0.5, at: 0.2, empty: usual))
  track warm  = min(1, step / 100 steps)
  track price = clip(price + 0.1 * (mean(len(z) for z in steps(1 step), empty: low) / low - 1), 0, 1, start: 0.5)
  correct(y) - price * len(y) / low + warm * (0.5 if correct(y) and len(y) <= limit else 0)
}
"""


def chosen(path: Path, text: str) -> Reward:
    path.write_text(text)
    found = choose_reward(str(path), None)
    assert found.reward is not None, found.diagnostics
    return found.reward


def test_a_reward_is_written_as_it_was_read(tmp_path: Path) -> None:
    reward = chosen(tmp_path / "own.reo", TEXT)
    assert [track.name for track in reward.tracks] == ["usual", "limit", "warm", "price"]
    assert (reward.window, reward.monitors) == (5, True)
    lines = reward_lines(reward)
    assert lines[:4] == [
        "track usual = mean(len(z) for z in steps(5 steps) if correct(z), empty: 64 tokens)",
        "track limit = max(16 tokens, quantile(len(z) for z in monitor"
        " if mean(correct(z1) for z1 in group) >= 0.5, at: 0.2, empty: usual))",
        "track warm = min(1, step / 100)",
        "track price = clip(price + 0.1 * (mean(len(z) for z in steps(1 step), empty: 16 tokens) / 16 tokens - 1),"
        " 0, 1, start: 0.5)",
    ]


def test_each_track_without_a_start_is_told_of_once(tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    tracks = "track a = 0.9 * a + 0.1 * b + c\n track d = b + c\n"
    path.write_text(
        f"reward r {{\n metric b = correct(y)\n metric c = correct(y)\n {tracks} correct(y) * a * d\n}}\n"
    )
    told = [(each.code, each.labels[0].span.line) for each in check_file(path).diagnostics]
    assert told == [("E0320", 4), ("E0320", 5)]


def test_a_start_without_its_unit_is_told_at_the_start(tmp_path: Path) -> None:
    path, value = (
        tmp_path / "own.reo",
        "max(0.9 * a + 0.1 * mean(len(z) for z in monitor), 1 token, start: START)",
    )
    path.write_text(f"reward r {{\n track a = {value.replace('START', '8')}\n correct(y) * a / len(y)\n}}\n")
    (error,) = (each for each in check_file(path).diagnostics if each.severity == "error")
    assert error.help == "give it its unit: `start: 8 tokens`"
    path.write_text(path.read_text().replace("start: 8", "start: 8 tokens"))
    assert not [
        each for each in check_file(path).diagnostics if each.severity == "error" and each.code != "E0215"
    ]


def test_a_track_reads_a_metric_above_it(tmp_path: Path) -> None:
    track = "track slow = max(slow + 0.1 * spread, 0, start: 1)"
    text = TEXT.replace("  track warm", f"  metric spread = solved(y)\n  {track}\n  track warm")
    lines = reward_lines(chosen(tmp_path / "own.reo", text))
    assert lines[2] == track
    path = tmp_path / "own.reo"
    path.write_text(text.replace("0.5 if correct(y)", "0.5 / slow if correct(y)"))
    # It may be 0 after all: a metric is within its own range, and the track only grows by it.
    assert "E0307" in {each.code for each in check_file(path).diagnostics}


def test_the_formatter_knows_tracks() -> None:
    formatted = format_source(Source("own.reo", TEXT.replace("track warm  =", "track warm=")))
    assert formatted.text == TEXT.replace("track warm  =", "track warm  =")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("track a = 0.5 * a + mean(correct(z) for z in steps(2 steps), empty: 0)", "E0320"),
        ("track a = mean(correct(z) for z in steps(a * 1 step), empty: 0)", "E0320"),
        ("track a = a + clip(a, 0, 1, start: 1)", "E0320"),
        ("track a = clip(a + 1, 0, 1, start: 1 tokens)", "E0302"),
        ("track a = clip(step / 1 step, 0, 1, start: 0)", "E0310"),
        ("track a = clip(a, 0, 1, start: 0, start: 1)", "E0310"),
        ("track a = clip(a, 0, 1, start: len(y))", "E0301"),
        ("track a = max(1 / a, 0, start: 1)", "E0307"),
        ("track a = max(0.9 * a + mean(len(z) for z in monitor), 1 token, start: 8)", "E0302"),
        ("let a = clip(correct(y), 0, 1, start: 0)", "E0310"),
        ("track a = mean(correct(z) for z in group)", "E0301"),
        ("track a = mean(correct(z) for z in ref)", "E0301"),
        ("track a = mean(correct(z) for z in steps(0 steps), empty: 0)", "E0301"),
        ("track a = mean(correct(z) for z in steps(3), empty: 0)", "E0301"),
        ("track a = mean(correct(z) for z in steps(3 steps))", "E0306"),
        ("track a = mean(correct(z) for z in monitor if len(z) < 9 tokens)", "E0306"),
        ("track a = mean(correct(y) for z in monitor)", "E0301"),
        ("track a = mean(correct(answer(z[:4 tokens])) for z in monitor)", "E0301"),
        ('track a = mean(python("a.py:f", z) for z in monitor)', "E0301"),
        ("track a = mean(x.level for z in monitor)", "E0301"),
        ("track a = mean(len(z) for z in monitor, empty: 1)", "E0302"),
        ("track a = quantile(correct(z) for z in monitor)", "E0310"),
        ("track a = quantile(correct(z) for z in monitor, at: 2)", "E0301"),
        ("track a = mean(correct(z) for z in monitor, at: 0.5)", "E0310"),
        ("track a = 3", "E0313"),
        ("track a { b = 3 }", "E0313"),
        ("track monitor = step / 1 step", "E0208"),
        ("track correct = mean(correct(z) for z in group)", "E0301"),
        ("let a = mean(correct(z) for z in monitor)", "E0301"),
        ("let a = mean(correct(z) for z in steps(3 steps), empty: 0)", "E0301"),
        ("let a = quantile(correct(z) for z in group, at: 0.5)", "E0201"),
    ],
)
def test_one_mistake_is_told_of_once(codes: Any, line: str, code: str) -> None:
    name = line.split()[1].replace("correct", "1")
    assert codes(f"reward r {{\n  {line}\n  correct(y) * {name}\n}}\n") == [code]


@pytest.mark.parametrize(
    ("above", "value", "code"),
    [
        ("metric b = correct(y)", "b + 1", "E0320"),
        ("metric b = len(y)", "max(b, 0, start: 0)", "E0302"),
        ("let b = 1", "max(b, 0, start: 0)", "E0201"),
        ("track b = max(b + 1, 0, start: 0)", "max(b, 0, start: 0)", "E0310"),
        ("track ab = max(ab + 1, 0, start: 0)", "max(ab, 0, start: 0)", "E0310"),
        ("metric b = correct(y)\n let f(c) = b + c", "max(f(a), 0, start: 0)", "E0201"),
        ("let f(c) = b + c", "max(f(a), 0, start: 0)", "E0201"),
        ("metric b = len(y)\n metric b = len(y)", "step / 1 step", "E0208"),
    ],
)
def test_a_track_reads_metrics_above_it_with_a_start(codes: Any, above: str, value: str, code: str) -> None:
    assert codes(f"reward r {{\n {above}\n track a = {value}\n correct(y) * a\n}}\n") == [code]


@pytest.mark.parametrize("name", ["mean", "z", "step", "steps", "max"])
def test_a_metric_leaves_other_meanings_of_its_name_to_a_track(tmp_path: Path, name: str) -> None:
    usual = "max(1, mean(len(z) for z in steps(3 steps), empty: 9 tokens) / 9 tokens + step / 1 step"
    tracks = f"track usual = {usual})\n  track slow = {usual} + slow, start: 1)"
    text = f"reward r {{\n  metric {name} = correct(y)\n  {tracks}\n  correct(y) * usual * slow\n}}\n"
    assert "metric." not in str(chosen(tmp_path / "own.reo", text).tracks)


@pytest.mark.parametrize("value", ["step / 1 step", "min(warm + 0.1, 1, start: 0)"])
def test_a_track_that_nothing_else_reads_is_told_of(compiled: Any, tmp_path: Path, value: str) -> None:
    """In a file that trains: the stages of others may read it."""
    reward, path = f"reward r {{\n  track warm = {value}\n  correct(y)\n}}\n", tmp_path / "own.reo"
    path.write_text(reward)
    assert not check_file(path).diagnostics
    found = compiled(HEAD + reward + MINE.replace("= outcome", "= r")).diagnostics
    assert [each.labels[0].span.line for each in found if each.code == "W0201"] == [5, 5, 8]


@pytest.mark.parametrize(
    ("track", "sound"),
    [
        ("clip(a - 1, 1, 8, start: 4)", True),
        ("clip(a - 1, 1, 8, start: 0)", False),
        ("max(a - 1, 1, start: 4)", True),
    ],
)
def test_what_a_track_can_become_is_known_by_bounds_and_start(codes: Any, track: str, sound: bool) -> None:
    told = codes(f"reward r {{\n  track a = {track}\n  correct(y) / a\n}}\n")
    assert told == (["E0215"] if sound else ["E0307"]), "nothing runs, if nothing else is wrong"


NUMBERS = """
reward r {
  metric longer = len(y)
  track warm    = min(1, step / 100 steps)
  track below   = clip(below - 1, -1, 1, start: 0)
  track usual   = mean(len(z) for z in steps(1 step), empty: 9 tokens)
  track cooler  = 1 - 0.5 * warm
  correct(y)
}
"""


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("kl = reward.warm", []),
        ("entropy = reward.warm", []),
        ("clip { high = 0.1 + 0.1, low = 0.2 }", []),
        # Its warm-up begins at 0, which is no bound.
        ("clip { low = reward.warm }", ["E0303"]),
        ("kl = reward.below", ["E0303"]),
        ("entropy = reward.usual", ["E0302"]),
        ("kl = reward.longer", ["E0302"]),
        ("kl = reward.wram", ["E0203"]),
        ("kl = warm", ["E0201"]),
        ("kl = 2 * reward.warm", ["E0301"]),
        ("optim { lr = reward.warm }", ["E0201"]),
        ("rollout { temperature = reward.cooler }", []),
        ("rollout { temperature = reward.warm }", ["E0303"]),
        ("rollout { temperature = reward.longer }", ["E0203"]),
    ],
)
def test_a_number_of_the_loss_is_a_track_of_the_reward(codes: Any, setting: str, told: list[str]) -> None:
    assert codes(HEAD + NUMBERS + MINE.replace("reward = outcome", f"reward = r\n  {setting}")) == told


@pytest.mark.parametrize("value", ["warm", "r", "r.warm", "warmer"])
def test_a_track_without_the_word_reward_is_told_how_to_be_written(compiled: Any, value: str) -> None:
    text = HEAD + NUMBERS + "param warmest: number = 1\n" + MINE
    told = compiled(text.replace("reward = outcome", f"reward = r\n  kl = {value}")).diagnostics
    (help_,) = (str(each.help) for each in told if each.severity == "error")
    assert f"`reward.{'NAME' if value == 'r' else value.removeprefix('r.')}`" in help_
    assert ("`warmest`" in help_) == (value in ("warm", "warmer"))


def test_a_track_that_a_stage_reads_is_read(compiled: Any) -> None:
    text = MINE.replace("reward = outcome", "reward = r\n  stage one { kl = reward.warm }")
    found = compiled(HEAD + NUMBERS + text)
    assert [each.labels[0].span.line for each in found.diagnostics if "the track" in each.message] == [
        11,
        12,
        13,
    ]
    assert found.spec.study.arm("mine").checkpoint.experiment.stages[0].method.kl == "reward.warm"
