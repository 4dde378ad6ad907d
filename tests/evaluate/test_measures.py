"""Measures of the library and of one's own, against slow loops over the same made-up responses."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pytest

from reodsl.graph.payload import measure_work
from reodsl.ir import canonical
from reodsl.ir.reward import Measure
from reodsl.ir.reward_text import expression_text
from reodsl.ir.study import Study
from reodsl.language import compile_file
from reodsl.numbers.intervals import interval, share_interval
from reodsl.numbers.reg import t_quantile
from runners.evaluate import measures
from tests.evaluate.conftest import MakeJob

GRID = (0, 4, 8, 16, 32)
STUDY = """
from std.miniature import chain_model, chain_suite, easy
from std.measures import auc_oaa, pass_at, maj_at, per_1k, unfinished, first_right, tokens_at, outcome_efficiency, aes

suite small = chain_suite {{
  benchmarks = [easy], samples = 4, reg_to = 32 tokens
  grid = [0 tokens, 4 tokens, 8 tokens, 16 tokens, 32 tokens]
}}
measure brief(most: tokens) {{
  let usual = mean(len(z) for z in base)
  mean(len(z) for z in arm if len(z) < most and correct(answer(z[:8 tokens])), empty: usual) / usual
}}
measure silent {{ 1 - mean(answered(z) for z in arm) }}
measure told {{ mean(number(z, "took ([0-9]+)", empty: -3) for z in arm if matches(answer(z), "^$"), empty: 0) }}
study s {{
  eval = small
  arm base = checkpoint(chain_model)
  arm quick = checkpoint(chain_model)
  frontier edge = envelope(of: [base], to: 32 tokens)
  score = reg(against: edge, to: 32 tokens, relative_to: base)
  report {{
    table main {{ rows = arms, columns = [accuracy, {columns}] }}
    chart curves {{ x = length, y = {y}, lines = [base, quick] }}
  }}
}}
"""
ALL = (
    "auc_oaa(to: 32 tokens)", "pass_at(2)", "maj_at(3)", "per_1k", "unfinished", "first_right", "outcome_efficiency",
    "aes", "brief(20 tokens)", "silent", "told", "auc_oaa", "tokens_at(0.4)",
)  # fmt: skip


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Study]:
    """The study of some columns; what is said of a wrong one is raised."""

    def compile_(*columns: str, y: str = "accuracy", change: tuple[str, str] = ("\0", "")) -> Study:
        path = tmp_path / "spec.reo"
        path.write_text(STUDY.format(columns=", ".join(columns or ("length",)), y=y).replace(*change))
        compiled = compile_file(str(path))
        errors = [each for each in compiled.diagnostics if each.severity == "error"]
        if errors or compiled.spec is None:
            raise AssertionError([f"{each.code} {each.message} {each.help}" for each in errors])
        return compiled.spec.study

    return compile_


def evaluation(folder: Path, seed: int, pace: float, *, ragged: bool = False, kind: str = "J") -> Path:
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    samples: list[dict[str, Any]] = []
    forced: list[dict[str, Any]] = []
    for benchmark in ("easy", "hard"):
        for q in range(6):
            for s in range(3 if ragged and q % 2 else 4):
                at = float(rng.exponential(pace))
                keys = {"benchmark": benchmark, "question": f"q{q}", "sample": s}
                tokens, right = int(rng.integers(3, 33)), bool(at <= 20)
                answer = None if rng.random() < 0.2 else str(rng.integers(2))
                told = {"correct": right, "tokens": tokens, "finish": "length" if tokens > 28 else "stop"}
                told |= {"response": f"it took {tokens} tokens" if tokens % 3 else "no idea"}
                samples.append(keys | told | {"answer": "right" if right else answer})
                forced += [
                    keys | {"budget": b, "correct": bool(at <= b) if b < tokens else right} for b in GRID
                ]
    shuffled = {"fraction": 1, "shuffle": True, "seed": seed}
    pl.DataFrame(samples).sample(**shuffled).write_parquet(folder / "samples.parquet")
    pl.DataFrame(forced).sample(**shuffled).write_parquet(folder / "forced.parquet")
    label = {} if kind == "J" else {"kind": kind}
    (folder / "curves.json").write_text(json.dumps({"easy": {"budgets": [], "accuracy": [], **label}}))
    return folder


Response = dict[str, Any]
EVERY = (-math.inf, math.inf)


def responses(folder: Path, benchmark: str) -> dict[str, list[Response]]:
    """The responses to each question, with `at`: whether each budget's answer is right."""
    at: dict[tuple[str, int], dict[int, bool]] = {}
    for row in pl.read_parquet(folder / "forced.parquet").filter(benchmark=benchmark).to_dicts():
        at.setdefault((row["question"], row["sample"]), {})[row["budget"]] = row["correct"]
    found: dict[str, list[Response]] = {}
    for row in pl.read_parquet(folder / "samples.parquet").filter(benchmark=benchmark).to_dicts():
        found.setdefault(row["question"], []).append(row | {"at": at[row["question"], row["sample"]]})
    return dict(sorted(found.items()))


def averaged(
    seeds: Sequence[dict[str, list[Response]]], value: Callable[[Response, list[Response]], float]
) -> float:
    """The mean over seeds and questions of the mean over a question's responses."""
    return float(
        np.mean([np.mean([value(z, group) for z in group]) for each in seeds for group in each.values()])
    )


def first(z: Response) -> float:
    return min([z["tokens"], *(b for b in GRID if z["at"][b])])


def vote(group: list[Response], votes: int) -> float:
    """The share of all draws of some responses whose modal answer is right."""
    shares = []
    for drawn in combinations(group, votes):
        counts = Counter(
            "right" if z["correct"] else z["answer"] for z in drawn if z["correct"] or z["answer"]
        )
        best = [answer for answer, count in counts.items() if count == max(counts.values())]
        shares.append(best.count("right") / len(best) if best else 0)
    return float(np.mean(shares))


def reference(
    name: str, arm: Sequence[dict[str, list[Response]]], base: Sequence[dict[str, list[Response]]]
) -> float:
    right, length = (averaged(arm, lambda z, g, k=key: z[k]) for key in ("correct", "tokens"))
    right0, length0 = (averaged(base, lambda z, g, k=key: z[k]) for key in ("correct", "tokens"))
    match name:
        case "auc_oaa" | "auc_oaa(32 tokens)":
            return averaged(
                arm, lambda z, g: z["correct"] * max(0, 1 - z["tokens"] / (32 if "32" in name else 1000))
            )
        case "pass_at(2)":
            return averaged(
                arm, lambda z, g: np.mean([a["correct"] or b["correct"] for a, b in combinations(g, 2)])
            )
        case "maj_at(3)":
            return averaged(arm, lambda z, g: vote(g, 3))
        case "per_1k":
            return 1000 * right / length
        case "unfinished":
            return averaged(arm, lambda z, g: z["finish"] == "length")
        case "silent":
            return averaged(arm, lambda z, g: not z["correct"] and z["answer"] is None)
        case "told":
            kept = averaged(arm, lambda z, g: z["answer"] is None)
            stated = averaged(arm, lambda z, g: (z["tokens"] if z["tokens"] % 3 else -3) * (not z["answer"]))
            return stated / kept if kept else 0
        case "first_right":
            return averaged(arm, lambda z, g: first(z) * z["correct"]) / right
        case "tokens_at(0.4)":
            curve = [averaged(arm, lambda z, g, b=b: z["at"][b]) for b in GRID]
            fine = np.linspace(0, 32, 320_001)
            return fine[(np.interp(fine, GRID, curve) >= 0.4 - 1e-12).argmax()]
        case "outcome_efficiency":
            return averaged(arm, lambda z, g: z["correct"] * first(z) / z["tokens"])
        case "aes":
            better = right / right0 - 1
            return 1 - length / length0 + (3 if better >= 0 else 5) * better
        case "brief(20 tokens)":
            kept = averaged(arm, lambda z, g: z["tokens"] < 20 and z["at"][8])
            return (
                averaged(arm, lambda z, g: z["tokens"] * (z["tokens"] < 20 and z["at"][8])) / kept / length0
            )
    raise AssertionError(name)


def measured(
    job: MakeJob, study: Study, inputs: dict[str, Path]
) -> dict[tuple[str, str, str], dict[str, Any]]:
    made = job("measure", measure_work(study), inputs, "measures")
    measures.measure(made)
    rows = pl.read_parquet(made.out / "measures.parquet").to_dicts()
    return {(row["arm"], study.measures[row["measure"]].name, row["benchmark"]): row for row in rows}


@pytest.mark.parametrize("ragged", [False, True])
def test_measures_are_those_of_slow_loops(
    job: MakeJob, study: Callable[..., Study], tmp_path: Path, ragged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over two seeds of one arm, against a base that no seed changes; a ratio's interval is the jackknife's."""
    monkeypatch.setattr(measures, "MAX_ARRAY_SIZE", 64)
    arms = {"base": ["base"], "quick": ["quick@1", "quick@2"]}
    folders = {
        role: evaluation(tmp_path / role, at, 9.0 if role == "base" else 5.0, ragged=ragged)
        for at, role in enumerate(role for roles in arms.values() for role in roles)
    }
    found = measured(job, study(*ALL), {f"arm:{role}": folder for role, folder in folders.items()})
    names = {name for _, name, _ in found}
    assert len(names) == len(ALL)
    read = {b: {role: responses(folder, b) for role, folder in folders.items()} for b in ("easy", "hard")}
    whole = {role: {(b, q): g for b in read for q, g in read[b][role].items()} for role in folders}

    def value(name: str, arm: str, benchmark: str, without: tuple[int, str] | None = None) -> float:
        """A measure of two seeds, without one question of one of them; an arm that no seed changes is there twice."""
        of_arms = {
            each: [
                {q: g for q, g in read.get(benchmark, whole)[role].items() if (seed, q) != without}
                for seed, role in enumerate((roles * 2)[:2])
            ]
            for each, roles in arms.items()
        }
        return reference(name, of_arms[arm], of_arms["base"])

    for name in names:
        for arm in arms:
            values = {b: value(name, arm, b) for b in read}
            # Tokens at an accuracy are of the mean curve, and all else is a mean over benchmarks.
            mean = value(name, arm, "mean") if "tokens_at" in name else np.mean(list(values.values()))
            for benchmark, wanted in (*values.items(), ("mean", mean)):
                row = found[arm, name, benchmark]
                assert row["value"] == pytest.approx(wanted, rel=1e-4 if "tokens_at" in name else 1e-6), name
                differs = arm != "base" and name not in ("aes", "brief(20 tokens)")
                assert (row["change"] is not None) is differs
                if differs:
                    assert row["change"] == pytest.approx(
                        row["value"] - found["base", name, benchmark]["value"]
                    )
        if ragged:
            continue  # a mean over questions of unequal counts is no mean over responses
        pseudo = np.array([
            [12 * value(name, "quick", "easy") - 11 * value(name, "quick", "easy", (seed, f"q{q}")) for q in range(6)]
            for seed in range(2)
        ])  # fmt: skip
        around, row = interval({"easy": pseudo}, 0.95), found["quick", name, "easy"]
        assert around.low is not None
        assert around.high is not None
        reach = (around.high - around.low) / 2
        if name == "tokens_at(0.4)":
            by_seed = [read["easy"][role].values() for role in arms["quick"]]
            bands = [
                share_interval({"easy": np.array([[np.mean([z["at"][b] for z in g]) for g in of] for of in by_seed])}, 0.95)
                for b in GRID
            ]  # fmt: skip
            fine = np.linspace(0, 32, 320_001)
            for end, band in (("low", [s.high for s in bands]), ("high", [s.low for s in bands])):
                crossed = (np.interp(fine, GRID, np.array(band)) >= 0.4).argmax()
                assert row[end] == pytest.approx(fine[crossed], abs=2e-4)
            continue
        if name in ("per_1k", "first_right", "aes", "brief(20 tokens)", "told"):
            low, high = {"per_1k": (0.0, 1000.0), "aes": EVERY, "told": EVERY}.get(name, (0.0, math.inf))
            wanted = max(row["value"] - reach, low), min(row["value"] + reach, high)
            assert (row["low"], row["high"]) == pytest.approx(wanted, abs=1e-7), name
            continue
        # Of shares: an end is as far from the value as the error there, which is that of as many independent questions.
        top = {"auc_oaa": 0.999, "auc_oaa(32 tokens)": 31 / 32}.get(name, 1.0)
        if reach == 0:
            width = 1 - 1 / (1 + t_quantile(0.975, 5) ** 2 / 6)
            assert row["value"] in (0.0, 1.0)
            assert row["high"] - row["low"] == pytest.approx(width)
            assert row["value"] in (row["low"], row["high"])
            continue
        assert 0 <= row["low"] < row["value"] < row["high"] <= top
        one_tail = interval({"easy": pseudo}, 0.91)
        assert one_tail.high is not None
        near, variance = one_tail.high - one_tail.value, row["value"] * (top - row["value"])
        # The share from which as many independent questions are all right in a fortieth of studies, or in more.
        full = top * 0.025 ** ((near / NormalDist().inv_cdf(0.955)) ** 2 / variance)
        for end, share in ((row["high"], row["value"]), (top - row["low"], top - row["value"])):
            error = (end - share) / math.sqrt(end * (top - end) / variance)
            if end == pytest.approx(full, rel=1e-6):
                assert near <= error <= reach, name
            else:
                assert error == pytest.approx(near if end > full else reach, rel=1e-6), name


def test_a_measure_of_forced_answers_has_no_value_where_none_were_forced(
    job: MakeJob, study: Callable[..., Study], tmp_path: Path
) -> None:
    found = measured(
        job,
        study("first_right", "unfinished", "tokens_at(100%)"),  # which is never reached
        {
            "arm:base": evaluation(tmp_path / "a", 1, 15.0),
            "arm:theirs": evaluation(tmp_path / "b", 2, 5.0, kind="ended"),
        },
    )
    assert {(arm, name) for arm, name, _ in found} == {
        ("base", "first_right"), ("base", "unfinished"), ("theirs", "unfinished")
    }  # fmt: skip


def own(body: str) -> tuple[str, str]:
    """The change of the study's text that declares a measure."""
    return ("study s {", f"measure own {{\n{body}\n}}\nstudy s {{")


@pytest.mark.parametrize("formula", ["{} * {}", "{} / max({}, 1)"])
def test_a_formula_of_several_means_has_a_width_where_all_agree(
    study: Callable[..., Study], formula: str
) -> None:
    body = formula.format("mean(correct(z) for z in arm)", "mean(answered(z) for z in arm)")
    (rule,) = study("own", change=own(body)).measures
    near = 1 + 1e-15 * np.random.default_rng(0).integers(-9, 9, (2, 6))
    cells = {"easy": {"easy": measures.JackknifedMeasure(1.0, near, 6)}}
    row = dict(measures.summarise(rule, cells, cells, 0.95))["easy"]
    width = 1 - 1 / (1 + t_quantile(0.975, 5) ** 2 / 6)
    assert [row["low"], row["value"], row["high"]] == pytest.approx([1 - width, 1, 1])
    assert [row["change_low"], row["change"], row["change_high"]] == pytest.approx([-width, 0, width])


def test_a_mean_over_benchmarks_varies_by_their_joint_jackknife_as_by_each(
    study: Callable[..., Study],
) -> None:
    (rule,) = study("own", change=own("mean(len(z) for z in arm)")).measures
    rng, (node,) = np.random.default_rng(0), [rule.value]
    sums = {
        name: {node: np.stack([rng.random((2, count)), np.ones((2, count))], axis=2)}
        for name, count in (("a", 5), ("b", 9))
    }
    means = {name: {node: of[node].mean(axis=(0, 1))} for name, of in sums.items()}
    alone = {name: measures.jackknife(rule, of).cells for name, of in sums.items()}
    joint = {
        name: measures.jackknife(rule, sums[name], [means[other]]) for name, other in (("a", "b"), ("b", "a"))
    }
    wanted = interval(alone, 0.95)
    assert [part.value for part in joint.values()] == pytest.approx([wanted.value] * 2)
    found = interval({name: part.cells for name, part in joint.items()}, 0.95)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))


@pytest.mark.parametrize("seed", range(20))
def test_votes_are_counted_as_if_all_draws_were_made(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    right = [bool(each) for each in rng.random(count) < 0.4]
    answers = [str(each) if each else None for each in rng.integers(4, size=count)]
    group = [{"correct": r, "answer": a} for r, a in zip(right, answers, strict=True)]
    for votes in range(1, count + 1):
        assert measures.majority(answers, right, votes) == pytest.approx(vote(group, votes))


def test_a_measure_reads_as_it_is_written(study: Callable[..., Study]) -> None:
    """The text of one in plans and differences is one of the language again."""
    for rule in study(*ALL).measures:
        lets = [f"let {each.name} = {expression_text(each.value)}" for each in rule.lets]
        body = "\n".join([*lets, expression_text(rule.value)])
        again = study("own", change=own(body)).measures[0]
        assert canonical(again) == canonical(rule), body


def test_a_column_keeps_its_call_and_its_arguments(study: Callable[..., Study]) -> None:
    made = study("pass_at(4)", "aes(gamma: 10)", "pass_at(k: 4)", y="maj_at(2)")
    assert [each.name for each in made.measures] == ["pass_at(4)", "aes(10)", "maj_at(2)"]
    assert isinstance(made.charts[0].y, Measure)
    assert made.tables[0].column_names == ("accuracy", "pass_at(4)", "aes(10)", "pass_at(4)")
    assert [each.compares for each in made.measures] == [False, True, False]


@pytest.mark.parametrize(
    ("column", "change", "said"),
    [
        ("own", own("correct(y)"), "E0301"),
        ("own", own("median(len(z) for z in arm)"), "a `median`"),
        ("own", own("mean(len(z) for z in group)"), "an arm's responses"),
        ("own", own("mean(len(z) for z in arm if len(z) < mean(len(w) for w in base))"), "E0301"),
        ("own", own("let a = mean(len(z) for z in base)\nmean(correct(z) for z in arm if len(z) < a, empty: 0)"), "another"),
        ("own", own("mean(correct(z[:4 tokens]) for z in arm)"), "only complete responses of a measure"),
        ("own", own("mean(correct(answer(z[:len(z) / 2])) for z in arm)"), "E0301 an evaluation forces answers only at"),
        ("own", own("mean(mode(z) for z in arm)"), "a measure does not know `mode`"),
        ("own", own("mean(majority(z, 1.5) for z in arm)"), "whole number"),
        ("own", own("mean(correct(z) for z in arm if len(z) > 4 tokens)"), "E0306"),
        ("own", own("12"), "measures no responses"),
        ("own", own("mean(correct(z) for z in arm) + step"), "no `step` in this measure"),
        ("own", own("track a = 1"), "E0313"),
        ("own", own("reach(len(z) for z in arm, at: 90%)"), "`reach` follows the share of right responses"),
        ("own", own("reach(correct(z) for z in arm)"), "E0310 `reach` needs one share"),
        ("own", own("mean(correct(answer(z[:5 tokens])) for z in arm)"), "such as 4 tokens"),
        ("own", own("mean(majority(z, 8) for z in arm)"), "samples 4"),
        ("pass_at(8)", ("\0", ""), "`pass_at` needs 8 responses to a question, and `small` samples 4"),
        ("aes", (", relative_to: base", ""), "the study names no baseline"),
        ("per_1k", ("rows = arms", "rows = arms, subset = balanced"), "all questions"),
        ("length(2)", ("measure brief(", "measure length("), "the name of a built-in column"),
        ("tokens_at(50%)", ("grid = [0 tokens, 4 tokens, 8 tokens, 16 tokens, 32 tokens]", "grid = [0 tokens]"), "E0"),
        ("first_right", ("grid = [0 tokens, 4 tokens, 8 tokens, 16 tokens, 32 tokens]", "grid = [0 tokens]"), "E0"),
    ],
)  # fmt: skip
def test_what_a_measure_cannot_be_is_said_where_it_stands(
    study: Callable[..., Study], column: str, change: tuple[str, str], said: str
) -> None:
    with pytest.raises(AssertionError, match=said) as caught:
        study(column, change=change)
    assert column != "own" or len(caught.value.args[0]) == 1
