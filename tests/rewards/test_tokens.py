"""Statistics over tokens: typed, told, the same one by one and as arrays, and by hand."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.ir.expression import Statistic, TokenRun
from reodsl.ir.reward import ResponseGroup, RewardedResponse
from reodsl.ir.reward_text import expression_text
from reodsl.language import check_file
from runners.rewards import interpret, vectorise
from runners.rewards.inputs import RewardInputs
from runners.rewards.vectorise import needed_cuts
from tests.called import call
from tests.rewards.reward_groups import arrays
from tests.rewards.test_every_node import reward

BODY = """
track price = min(1, step / 4 steps)
let far(z) = mean(entropy(t) for t in z[:len(z) / 2] if logprob(t) > -2, empty: 1)
let gain   = mean(prob(t) for t in truth(y)) - mean(prob(t) for t in truth(y[:2 tokens]))
let best   = max(sum(logprob(t, under: teacher) for t in z) for z in group)
let least  = mean(min(prob(t) for t in z) for z in batch)
let own    = sum(entropy(t) for t in answer(y)) - mean(median(prob(t) for t in answer(z), empty: 3) for z in group)
correct(y) + own * far(y) - mean(far(z) for z in group) + gain * best + least * mean(price * prob(t) for t in y)
"""


def told(node: TokenRun, length: int, number: int) -> dict[int, float]:
    """What was found of a response at each cut: any numbers, no two alike."""
    return {
        cut: math.sin(sum(map(ord, expression_text(node))) + 7 * number + cut) for cut in range(length + 1)
    }


def test_one_by_one_and_as_arrays(tmp_path: Path) -> None:
    rule = reward(BODY, tmp_path)
    groups = []
    for question in range(2):
        rollouts = []
        for at, length in enumerate((2, 7, 4)):
            tokens = {node: told(node, length, 10 * question + at) for node in rule.tokens}
            rollouts.append(RewardedResponse(length, at == 1, tokens=tokens))
        groups.append(ResponseGroup(f"q{question}", tuple(rollouts), tracks={"price": 0.5}))
    made = arrays(groups, [[(9,)] * 3] * 2)
    inputs = replace(made.inputs, tracks={"price": 0.5})
    whole = vectorise.vectorise(rule, inputs, made.forced.look_up, made.bare.look_up)
    for number, group in enumerate(groups):
        for index in range(3):
            slow = interpret.interpret(rule, replace(group, batch=tuple(groups)), index)
            assert whole[number, index].tolist() == pytest.approx(slow)
    assert len(np.unique(whole)) == 6
    # Half of 7 tokens is 3; the reference answer is read at 2 tokens and at the end, and all else at the end.
    cuts = {expression_text(node): each for node, each in needed_cuts(rule, inputs).tokens.items()}
    assert cuts["mean(entropy(t) for t in y[:len(y) / 2] if logprob(t) > -2, empty: 1)"][:3] == (
        (1,),
        (3,),
        (2,),
    )
    assert cuts["mean(prob(t) for t in truth(y[:2 tokens]))"][:3] == ((2,), (2,), (2,))
    assert cuts["mean(prob(t) for t in truth(y))"][:3] == ((2,), (7,), (4,))
    assert cuts["sum(entropy(t) for t in answer(y))"][:3] == ((2,), (7,), (4,))


FEW = st.lists(st.floats(0, 1), min_size=0, max_size=5)


@settings(max_examples=40, deadline=None)
@given(probs=FEW, name=st.sampled_from(get_args(Statistic)), least=st.sampled_from([-1.0, 0.3]))
def test_a_statistic_is_that_of_a_loop(tmp_path_factory: pytest.TempPathFactory, probs, name, least) -> None:
    empty = "" if name in ("sum", "count") else ", empty: 7"
    source = f"{name}(2 * prob(t) for t in y if prob(t) > {least}{empty})"
    (node,) = reward(source, tmp_path_factory.mktemp("rule")).tokens
    inputs = RewardInputs(
        ("q",), np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1, 1)), np.ones((1, 1, 1)) > 0
    )
    kept = [2 * each for each in probs if each > least]
    slow = {
        "mean": statistics.fmean,
        "std": statistics.pstdev,
        "min": min,
        "max": max,
        "sum": sum,
        "count": len,
        "median": statistics.median,
    }
    wanted = slow[name](kept) if kept else 0 if not empty else 7
    found = vectorise.measure_tokens(node, {"prob(t)": np.array(probs)}, inputs)
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("prob(y)", "`prob` is of a token"),
        ("mean(t for t in y)", "`t` is a token"),
        ("mean(prob(t, 3) for t in y)", "takes a token, and the model that scores it"),
        (
            "mean(entropy(t) for t in y, under: teacher)",
            "move it to the number of a token: `entropy(t, under: teacher)`",
        ),
        ("likelihood(y)", "run over tokens: `mean(prob(t) for t in truth(y))`"),
        ("mean(prob(t, under: qwen) for t in y)", "besides the policy, only the teacher scores tokens"),
        ("mean(prob(t) * len(y) / 1 token for t in y)", "this is not a response"),
        ("mean(prob(t) * x.level for t in y)", "reads only scores of its tokens"),
        ("mean(prob(t) for t in y if prob(t) > 0.5)", "may have nothing to run over"),
        ("mean(entropy(t) for t in y[:0 tokens])", "may have nothing to run over"),
        ("mean(entropy(t) for t in y[:3])", "cut at a number of tokens"),
        ("mean(mean(prob(t) for t in z) for z in ref)", "the tokens of responses of `ref`"),
        ("mean(mean(prob(t) for t in z) for z in history(x), empty: 0)", "the tokens of responses of `ref`"),
        ("truth(y)", "the reference answer is not a number"),
        ("answer(y)", "an answer is not a number"),
        ("mean(prob(t) for t in answer(y))", "may have nothing to run over"),
        ("mean(prob(t) for t in answer(y[:9 tokens]), empty: 0)", "the tokens of a forced answer"),
        ("mean(prob(t) for t in truth(x))", "this is not a response"),
        ("log(mean(prob(t) for t in y))", "logarithm of 0 or less"),
        ("sqrt(mean(logprob(t) for t in y))", "root of a negative number"),
        ("1 / mean(entropy(t) for t in y)", "may divide by zero"),
    ],
)
def test_a_mistake_is_told_once(value: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    path.write_text(f"reward r {{\n  correct(y) + {value}\n}}\n")
    errors = [each for each in check_file(path).diagnostics if each.severity == "error"]
    assert len(errors) == 1
    assert errors[0].help
    assert said in f"{errors[0].message} {errors[0].help}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("measure m {{ mean({} for z in arm) }}", "a measure"),
        ("reward r {{\n track a = mean({} for z in monitor)\n correct(y) + a\n}}", "a track"),
    ],
)
def test_where_no_model_is_at_hand(text: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    path.write_text(text.format("mean(prob(t) for t in z)"))
    (found,) = [each for each in check_file(path).diagnostics if each.severity == "error"]
    assert found.message == f"no model scores the tokens of the responses of {place}"


@pytest.mark.parametrize(
    "value",
    [
        "sqrt(mean(prob(t) for t in y))",
        "sqrt(-mean(logprob(t) for t in y))",
        "sqrt(17 - mean(entropy(t) for t in y))",
        "sqrt(1 - max(prob(t) for t in truth(y)))",
    ],
)
def test_ranges_are_followed(value: str, tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    path.write_text(f"reward r {{\n  correct(y) + {value}\n}}\n")
    assert [each for each in check_file(path).diagnostics if each.severity == "error"] == []


def test_numbers_are_given_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.reo"
    path.write_text(
        "reward r {\n mean(prob(t) for t in truth(y)) - sum(prob(t) for t in y if prob(t) >= 0.5)\n}\n"
    )
    hand = ("reward", str(path), "--length", "10,20", "--correct", "yes,no")
    assert call(*hand) == 1
    asked = "--given 'sum(prob(t) for t in y if prob(t) >= 0.5)'=…"
    assert asked in capsys.readouterr().err
    given_numbers = (
        "--given=mean(prob(t) for t in truth(y))=0.8,0.3",
        "--given=sum(prob(t) for t in y if prob(t) >= 0.5)=2",
    )
    assert call(*hand, *given_numbers, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["responses"]
    assert [each["sections"][0]["reward"] for each in rows] == pytest.approx([-1.2, -1.7])
