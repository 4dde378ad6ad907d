"""The verdict in words: who leads, who ties, how far ahead of the baseline, and what it rests on."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from reodsl.language import compile_file
from reodsl.numbers.extension import Extension
from reodsl.numbers.verdict import EqualResponses, PairDifference, StudyVerdict
from reodsl.report.export import write_verdict
from reodsl.report.verdict_words import (
    format_margin,
    join_arms,
    outcome,
    read_sentences,
    read_verdict,
    sentences,
    settle,
)

REACH = 2.0


def verdict(
    regs: dict[str, float], baseline: str | None = "vanilla", seeds: int = 1, **more: object
) -> StudyVerdict:
    """A verdict on arms with a REG each, of which two differ significantly if by more than `REACH`."""
    order = sorted(regs, key=lambda arm: regs[arm])

    def pair(one: str, two: str) -> PairDifference:
        value = regs[one] - regs[two]
        apart = abs(value) > REACH
        return PairDifference(
            one,
            two,
            value,
            value - REACH,
            value + REACH,
            0.01,
            0.04 if apart else 0.5,
            apart,
            abs(value) + 1.25,
        )

    pairs = tuple(pair(one, two) for one, two in combinations(order, 2))
    leaders = (order[0], *(each.two for each in pairs if each.one == order[0] and not each.significant))
    built = StudyVerdict(
        tuple(order),
        leaders,
        tuple(each for each in pairs if {each.one, each.two} <= set(leaders)),
        pairs,
        baseline,
        tuple(pair(arm, baseline) for arm in order if arm != baseline) if baseline else (),
        None,
        len(pairs),
        seeds,
        96,
        0.95,
    )
    return replace(built, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("regs", "headline"),
    [
        (
            {"reo": -1.0, "shrink": 4.0, "vanilla": 18.0},
            "reo leads: its REG is lower than vanilla's by 19.0 tokens (95% CI 17.0 to 21.0).",
        ),
        (
            {"reo": -0.54, "norm": -0.5, "vanilla": 18.0},
            "reo and norm have a significantly lower REG than vanilla, by 18.5 tokens; "
            "they are tied (0.0 tokens apart, 95% CI −2.0 to 2.0).",
        ),
        (
            {"reo": -1.0, "norm": 0.5, "vanilla": 18.0},
            "reo and norm have a significantly lower REG than vanilla, by 17.5 to 19.0 tokens; "
            "they are tied (1.5 tokens apart, 95% CI −0.5 to 3.5).",
        ),
        (
            {"reo": -1.0, "norm": 0.5, "mean": 0.0, "vanilla": 18.0},
            "reo, mean and norm have a significantly lower REG than vanilla, by 17.5 to 19.0 tokens; "
            "the three cannot be ranked.",
        ),
        (
            {"reo": 17.5, "vanilla": 18.0},
            "No arm has a significantly lower REG than vanilla, the baseline; "
            "reo and vanilla are tied (0.5 tokens apart, 95% CI −1.5 to 2.5).",
        ),
        (
            {"vanilla": 1.0, "reo": 9.0},
            "vanilla, the baseline, leads: every other arm has a significantly higher REG, by 8.0 tokens.",
        ),
        (
            {"reo": 15.0, "norm": 16.9, "vanilla": 18.0},
            "reo and norm have a lower REG than vanilla, by 1.1 to 3.0 tokens; for reo the difference is significant. "
            "They are tied (1.9 tokens apart, 95% CI −0.1 to 3.9).",
        ),
        (
            {"reo": 15.0, "norm": 16.5, "mean": 15.5, "vanilla": 18.0},
            "reo, mean and norm have a lower REG than vanilla, by 1.5 to 3.0 tokens; for reo and mean the difference is "
            "significant. The three cannot be ranked.",
        ),
    ],
)
def test_the_headline_says_who_leads(regs: dict[str, float], headline: str) -> None:
    assert sentences(verdict(regs))[0] == headline


def test_the_next_arm_and_all_that_also_beat_the_baseline_follow_the_leader() -> None:
    led = sentences(verdict({"reo": -1.0, "shrink": 4.0, "harmony": 9.0, "vanilla": 18.0, "late": 25.0}))
    assert led[1:3] == (
        "shrink and harmony also have a significantly lower REG than vanilla, by 9.0 to 14.0 tokens.",
        "shrink is next: reo's REG is lower by 5.0 tokens (95% CI 3.0 to 7.0).",
    )
    assert len(sentences(verdict({"reo": -1.0, "vanilla": 18.0, "late": 25.0}))) == 2


def test_more_than_two_that_tie_are_followed_by_their_widest_pair() -> None:
    three = verdict({"reo": -1.0, "norm": 0.5, "mean": 0.0, "vanilla": 18.0})
    assert sentences(three)[1] == "reo and norm differ most, by 1.5 tokens (95% CI −0.5 to 3.5)."


def test_what_only_all_pairs_together_leave_open_is_called_no_tie() -> None:
    """The best and the third are apart by themselves."""
    three = verdict({"reo": -1.0, "norm": 0.5, "mean": 0.9, "vanilla": 18.0})
    apart = tuple(
        replace(pair, low=pair.value - 1.0, high=pair.value + 1.0) if pair.two == "mean" else pair
        for pair in three.tied
    )
    assert sentences(replace(three, tied=apart))[:2] == (
        "reo, norm and mean have a significantly lower REG than vanilla, by 17.1 to 19.0 tokens; "
        "the three cannot be ranked.",
        "reo and mean differ most, by 1.9 tokens (95% CI 0.9 to 2.9); "
        "this is not significant after correcting for all 6 comparisons.",
    )
    two = verdict({"reo": -1.0, "norm": 0.5, "vanilla": 18.0})
    (pair,) = two.tied
    (headline, *rest) = sentences(replace(two, tied=(replace(pair, low=-2.0, high=-1.0),)))
    assert headline.endswith(
        "by 17.5 to 19.0 tokens; they cannot be ranked (1.5 tokens apart, 95% CI 1.0 to 2.0, "
        "not significant after correcting for all 3 comparisons)."
    )
    assert len(rest) == 1


def test_a_best_arm_that_is_too_noisy_is_named_beside_the_one_that_is_significant() -> None:
    """`wild` has the least REG and is not significantly below anybody; `calm` is below vanilla."""
    three = verdict({"wild": 15.0, "calm": 15.5, "vanilla": 18.0})
    noisy = tuple(replace(pair, significant=pair.one == "calm") for pair in three.against_baseline)
    assert sentences(replace(three, against_baseline=noisy))[0] == (
        "wild and calm have a lower REG than vanilla, by 2.5 to 3.0 tokens; for calm the difference is significant. "
        "They are tied (0.5 tokens apart, 95% CI −1.5 to 2.5)."
    )
    alone = replace(three, leaders=("wild",), tied=(), against_baseline=noisy)
    assert sentences(alone)[0] == (
        "wild has a lower REG than vanilla, by 3.0 tokens; for calm the difference is significant."
    )


def test_without_a_baseline_nobody_is_ahead_of_one() -> None:
    assert sentences(verdict({"a": 1.0, "b": 9.0}, None))[0] == "a leads."
    tied = "a and b are tied (1.0 tokens apart, 95% CI −1.0 to 3.0)."
    assert sentences(verdict({"a": 1.0, "b": 2.0}, None))[0].lower() == tied.lower()
    many = verdict({f"arm{i}": 0.1 * i for i in range(11)}, None)
    assert sentences(many)[0].lower() == "arm0, arm1, arm2, arm3 and 7 more cannot be ranked."


def test_what_it_rests_on_comes_last() -> None:
    regs = {"reo": 1.0, "vanilla": 9.0}
    assert sentences(verdict(regs))[-1] == "This rests on one seed and 96 questions: another seed may differ."
    assert sentences(verdict(regs, seeds=3))[-1] == "This rests on 3 seeds and 96 questions."


def test_arms_are_the_same_where_the_interval_allows_it() -> None:
    close = {"reo": -1.0, "norm": -0.9, "vanilla": 18.0}
    assert not any("the same" in line for line in sentences(verdict(close)))
    assert "reo and norm are the same within 1.4 tokens." in sentences(verdict(close, margin=1.8))
    assert not any("the same" in line for line in sentences(verdict(close, margin=1.3)))
    many = {f"arm{i}": 0.1 * i for i in range(4)} | {"vanilla": 18.0}
    (line,) = (line for line in sentences(verdict(many, margin=1.8)) if "the same" in line)
    assert line.endswith("; so are 2 more pairs, each within its own margin.")
    four = {"a": 0.0, "b": 0.1, "c": 0.2, "d": 0.35, "vanilla": 18.0}
    (line,) = (line for line in sentences(verdict(four, margin=1.47)) if "the same" in line)
    assert line.count("the same within") == 4
    assert "more" not in line


def test_a_margin_is_rounded_up() -> None:
    assert format_margin(PairDifference("a", "b", 0.0, same_within=1.201)) == "1.3 tokens"
    assert format_margin(PairDifference("a", "b", 0.0, same_within=1.2)) == "1.2 tokens"


def test_equal_responses_of_arms_that_lead_are_counted() -> None:
    first = verdict({"reo": -1.0, "norm": -0.9, "vanilla": 18.0})

    def shared(same: int) -> tuple[str, ...]:
        return sentences(replace(first, tied=(replace(first.tied[0], common=EqualResponses(same, 576)),)))

    assert "reo and norm wrote the same text in 545 of 576 responses." in shared(545)
    assert not any("same text" in line for line in shared(200))


def test_without_a_spread_or_a_second_arm_nothing_is_told_apart() -> None:
    pair = PairDifference("a", "b", -3.0)
    bare = verdict({"a": 1.0, "b": 4.0}, None, pairs=(pair,), tied=(pair,), leaders=("a", "b"), questions=1)
    assert sentences(bare) == ("The arms cannot be ranked: 1 question shows no spread.",)
    assert sentences(None) == ()
    assert outcome(None) is None
    assert sentences(verdict({"alone": 1.0}, None)) == ()


def test_many_arms_are_counted() -> None:
    assert join_arms(["a"]) == "a"
    assert join_arms(["a", "b", "c", "d"]) == "a, b, c and d"
    assert join_arms(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more"


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"sentences": 3}', '{"sentences": "text"}', '{"sentences": [3]}', "[" * 100_000]
)
def test_a_report_without_a_verdict_says_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "verdict.json").write_text(text)
    assert read_sentences(tmp_path) == ()


def test_a_report_keeps_the_sentences_and_all_numbers(tmp_path: Path) -> None:
    one = verdict({"reo": -1.0, "vanilla": 18.0})
    (tmp_path / "verdict.json").write_text(json.dumps(outcome(one)))
    assert read_sentences(tmp_path) == sentences(one)
    assert read_verdict(tmp_path)["pairs"][0]["low"] == -21.0


def test_a_report_without_a_verdict_takes_away_the_one_that_was_there(tmp_path: Path) -> None:
    file = tmp_path / "verdict.json"
    write_verdict(file, verdict({"a": 1.0, "b": 9.0}, None))
    (headline, *_) = read_sentences(tmp_path)
    write_verdict(file, verdict({"a": 1.0, "b": 9.0}, None), "~")
    assert read_sentences(tmp_path)[0] == f"~{headline}"
    write_verdict(file, None)
    assert (read_sentences(tmp_path), read_verdict(tmp_path)) == ((), None)


@pytest.mark.parametrize(
    ("sizes", "seeds", "words", "more"),
    [
        (
            (9, 5, 400),
            3,
            "a study has 80% power to find it with 9 seeds (6 more, 6h), and to show that they are the same within 1.9 "
            "tokens with 5 seeds (2 more, 2h).",
            "1,2,3,4,5",
        ),
        ((None, None, 400), 3, "a study has 80% power to find it with 400 questions instead of 96.", ""),
        ((None, None, 400), 1, "Measuring how much trainings differ takes 3 seeds (2 more, 2h).", "1,2,3"),
        ((None, None, None), 3, "no study of a feasible size has 80% power to find it.", ""),
    ],
)
def test_a_tie_says_what_would_settle_it(sizes: tuple[int, ...], seeds: int, words: str, more: str) -> None:
    tied = verdict({"reo": 17.5, "vanilla": 18.0}, seeds=seeds, extension=Extension(*sizes), margin=1.9)
    spec = compile_file("specs/quickstart.reo", amends={"replicate": f"{[*range(1, seeds + 1)]}"}).spec
    assert spec is not None
    sentence, *commands = settle(spec, tied, lambda count: f", {count}h")
    assert words in sentence
    run = "reodsl run specs/quickstart.reo --amend 'replicate="
    assert commands == ([f"{run}[{more}]'"] if more else [])
    assert settle(spec, replace(tied, extension=None)) == ()
    two = {spec.path: f"{spec.sources[spec.path]}\nstudy second {{}}\n"}
    _, *targeted = settle(spec.model_copy(update={"sources": two}), tied)
    assert targeted == [f"{command} --target quickstart" for command in commands]
