"""Remedies of formulas, by value: each edit of an error is made, and changes no value that the formula has.

Measures of every unit that a reward meets stand in every operation that refuses some of them.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reodsl.diagnostics import Diagnostic
from reodsl.ir.reward import ResponseGroup, RewardedResponse
from reodsl.language import check_file
from reodsl.language.chosen_reward import choose_reward
from runners.rewards.interpret import interpret
from tests.lsp.advice import apply_edits

STEP = 5.0
"""The step of the track `t`."""
Slow = Callable[[RewardedResponse, ResponseGroup], float]


@dataclass(frozen=True)
class Measure:
    """A measure of a response `y` as it is written, and what it is in numbers of tokens and steps."""

    text: str
    slow: Slow


def over(group: ResponseGroup, of: Callable[[RewardedResponse], float]) -> list[float]:
    return [float(of(each)) for each in group.rollouts]


def right(group: ResponseGroup) -> list[float]:
    return over(group, lambda each: each.correct)


def lengths(group: ResponseGroup) -> list[float]:
    return over(group, lambda each: each.length)


MEASURES = (
    Measure("correct(y)", lambda y, g: float(y.correct)),
    Measure("mean(correct(z) for z in group)", lambda y, g: statistics.fmean(right(g))),
    Measure("std(correct(z) for z in group)", lambda y, g: statistics.pstdev(right(g))),
    Measure("count(z for z in group if correct(z))", lambda y, g: sum(right(g))),
    Measure("sum(correct(z) / 4 for z in group)", lambda y, g: sum(right(g)) / 4),
    Measure("0 - mean(correct(z) for z in group)", lambda y, g: -statistics.fmean(right(g))),
    Measure("-count(z for z in group if correct(z))", lambda y, g: -sum(right(g))),
    Measure(
        "correct(y) - mean(correct(z) for z in group)", lambda y, g: y.correct - statistics.fmean(right(g))
    ),
    Measure("1 - (1 if correct(y) else 0)", lambda y, g: float(not y.correct)),
    Measure("x.level", lambda y, g: y.features["level"]),
    Measure("len(y)", lambda y, g: float(y.length)),
    Measure("len(y) - min(len(z) for z in group)", lambda y, g: y.length - min(lengths(g))),
    Measure("std(len(z) for z in group)", lambda y, g: statistics.pstdev(lengths(g))),
    Measure("len(y) * std(len(z) for z in group)", lambda y, g: y.length * statistics.pstdev(lengths(g))),
    Measure("correct(y) / max(len(z) for z in group)", lambda y, g: y.correct / max(lengths(g))),
    Measure("thinking(y)", lambda y, g: y.features["thinking"]),
    Measure("t", lambda y, g: STEP),
    Measure("t * len(y)", lambda y, g: STEP * y.length),
)
FORMS: dict[str, Callable[[float], float]] = {
    "{}": lambda m: m,
    "1 / ({})": lambda m: 1 / m,
    "len(y) / ({})": lambda m: 1 / m,  # times the length, below
    "({}) ^ (-2)": lambda m: m**-2.0,
    "({}) ^ 0.5": math.sqrt,
    "({}) ^ 400": lambda m: m**400.0,
    "10 ^ ({})": lambda m: 10.0**m,
    "e ^ ({})": math.exp,
    "sqrt({})": math.sqrt,
    "log({})": math.log,
    "cos({})": math.cos,
    "sigmoid({})": lambda m: 1 / (1 + math.exp(-m)),
    "3 + ({})": lambda m: 3 + m,
    "({}) - 0.25": lambda m: m - 0.25,
    "min({}, 2)": lambda m: min(m, 2),
    "clip({}, 3, 1)": lambda m: min(max(m, 1), 3),
    "(1 if {} > 2 else 0)": lambda m: float(m > 2),
    "(({}) + step_of_track / 100)": lambda m: m + STEP / 100,
}


def groups() -> Iterator[ResponseGroup]:
    """Groups with none, some and all of the responses right, of equal and unequal lengths."""
    draw = random.Random(7)
    for count in (0, 1, 3, 4):
        for longest in (5, 300):
            rollouts = tuple(
                RewardedResponse(
                    5 if longest == 5 else draw.randint(1, longest),
                    at < count,
                    features={
                        "level": draw.choice([0.0, -2.0, 0.3, 4.0]),
                        "thinking": float(draw.randint(0, 4)),
                    },
                )
                for at in range(4)
            )
            yield ResponseGroup("q", rollouts, tracks={"t": STEP})


GROUPS = tuple(groups())


def errors(path: Path, text: str) -> list[Diagnostic]:
    path.write_text(text)
    return [
        each for each in check_file(path).diagnostics if each.severity == "error" and each.code != "E0215"
    ]


def obey(path: Path, text: str, depth: int = 5) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each text without errors that the edits of one error after another lead to, and their codes."""
    found = errors(path, text)
    if not found:
        yield text, ()
        return
    assert depth, (text, found[0])
    first = found[0]
    assert first.edits, (text, first)
    for edit in first.edits:
        mended = apply_edits(text, (edit,))
        assert (first.code, first.message, edit.text) not in {
            (each.code, each.message, other.text) for each in errors(path, mended) for other in each.edits
        }, mended
        for last, codes in obey(path, mended, depth - 1):
            yield last, (first.code, *codes)


@pytest.mark.parametrize("form", FORMS)
def test_a_remedy_changes_no_value(form: str, tmp_path: Path) -> None:
    path, tried = tmp_path / "own.reo", 0
    for measure in MEASURES:
        formula = form.format(measure.text).replace("step_of_track", "t")
        text = f"reward r {{\n  track t = 1 * step\n  correct(y) + {formula}\n}}\n"
        for mended, codes in obey(path, text):
            tried += len(codes)
            path.write_text(mended)
            chosen = choose_reward(str(path), None)
            assert chosen.reward is not None, mended
            for group in GROUPS:
                for index, y in enumerate(group.rollouts):
                    (found,) = interpret(chosen.reward, group, index)
                    try:
                        value = FORMS[form](measure.slow(y, group)) * (
                            y.length if form.startswith("len") else 1
                        )
                        wanted = y.correct + value
                    except (ValueError, ZeroDivisionError, OverflowError):
                        wanted = math.nan
                    if math.isfinite(wanted) and not isinstance(wanted, complex):
                        assert found == pytest.approx(wanted, rel=1e-9), (measure.text, mended)
                    elif "E0307" in codes:
                        assert math.isfinite(found), mended
    assert tried > 0 or form == "{}"


@pytest.mark.parametrize("kind", ["number", "int", "tokens", "steps", "seconds", "gpu_hours", "GiB"])
@pytest.mark.parametrize("range_", ["", " in 0..20"])
def test_a_parameter_gets_a_range_of_its_type(kind: str, range_: str, tmp_path: Path) -> None:
    """The range is above 0, and holds what the one before held of it."""
    path = tmp_path / "own.reo"
    unit = "" if kind in ("number", "int") else f" {kind}"
    ends = f" in 0{unit}..20{unit}" if range_ else ""
    text = f"reward r(a: {kind}{ends}) {{\n  correct(y) + 3{unit} / a\n}}\n"
    (found,) = errors(path, text)
    (edit,) = found.edits
    assert edit.text in str(found.help)
    mended = apply_edits(text, (edit,))
    assert errors(path, mended) == []
    amount = 20 if range_ else 1000
    path.write_text(f"{mended}reward used = r(a: {amount}{unit})\n")
    assert errors(path, path.read_text()) == []


@pytest.mark.parametrize("measure", MEASURES, ids=lambda each: each.text)
def test_a_value_of_nothing_has_the_unit_of_its_statistic(measure: Measure, tmp_path: Path) -> None:
    """`empty:` is said in every unit, and a mean over some responses stays what it was."""
    path = tmp_path / "own.reo"
    own = measure.text.replace("(y)", "(a)")
    if own == "x.level":
        return
    value = "correct(y) + mean(f(z) for z in group if correct(z))"
    text = f"reward r {{\n  track t = 1 * step\n  let f(a) = {own}\n  {value}\n}}\n"
    for mended, codes in obey(path, text):
        assert codes[0] == "E0306"
        path.write_text(mended)
        chosen = choose_reward(str(path), None)
        assert chosen.reward is not None
        for group in GROUPS:
            some = [measure.slow(each, group) for each in group.rollouts if each.correct]
            if some:
                (found,) = interpret(chosen.reward, group, 0)
                assert found == pytest.approx(group.rollouts[0].correct + statistics.fmean(some))
