"""Every expression of a reward in every place that evaluates one: each gives what a loop does, or is an error.

A source is of one response `a`. A place measures it by a function of the reward, `f(y)` or `f(z)`. A new class of
expressions, or a new function of one, fails the last test until a source has it.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from inspect import getmembers, isclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import polars as pl
import pytest

from reodsl.ir import expression
from reodsl.ir.base import Node, walk
from reodsl.ir.expression import Statistic
from reodsl.ir.reward import ResponseGroup, Reward, RewardedResponse, Selection
from reodsl.ir.training import Advantage, FromTraining
from reodsl.language import check_file, compile_file
from reodsl.language.chosen_reward import choose_reward
from runners.data.select import choose
from runners.rewards.inputs import PastResponses
from runners.rewards.interpret import interpret
from runners.rewards.tracks import track_values
from runners.rewards.vectorise import evaluate, vectorise_metrics
from runners.train.advantages import try_reward
from tests.called import call
from tests.rewards.reward_groups import arrays

PLACES = (3, 7, 16)
AT = "[3 tokens, 7 tokens, 16 tokens]"


def response(length: int, right: bool, mode: int, score: float) -> RewardedResponse:
    """Answers forced at even cuts are right, and bare prefixes from half of the length on."""
    forced = {cut: cut % 2 == 0 for cut in range(length)}
    bare = {cut: 2 * cut >= length for cut in range(length)}
    given = {"mode": float(mode), "gold": 3.0, "score.py:f": score, "score.py:g": 2 * score}
    given |= {
        'matches(y, "wait")': float(mode),
        'matches(thinking(y), "b")': float(right),
        'number(answer(y), "([0-9]+)", empty: -0.5)': 2 * score,
    }
    return RewardedResponse(length, right, forced, bare, given)


GROUPS = (
    ResponseGroup(
        "q1",
        (response(2, True, 0, 0.5), response(9, False, 1, -1.0), response(14, True, 1, 3.0)),
        (response(4, True, 0, 1.0), response(11, False, 1, 2.0)),
    ),
    ResponseGroup(
        "q2",
        (response(16, False, 1, 0.25), response(5, False, 0, 1.5), response(8, True, 0, -2.0)),
        (response(1, True, 1, 1.0), response(6, True, 0, 4.0)),
    ),
)
HAND = GROUPS[0]


@dataclass(frozen=True)
class Seen:
    """What a slow reference sees: a response, `y`, the others, and which split is at hand."""

    a: RewardedResponse
    y: RewardedResponse
    group: Sequence[RewardedResponse]
    ref: Sequence[RewardedResponse]
    split: int = 0

    @property
    def n(self) -> float:
        return float(self.a.length)

    def all(self, over: str) -> Sequence[float]:
        """Lengths of responses, or places."""
        return PLACES if over == "splits" else [each.length for each in getattr(self, over)]


@dataclass(frozen=True)
class Case:
    """A source, what it is, and the places where it is an error; `above` are lines of the reward before it."""

    source: str
    slow: Callable[[Seen], float]
    refused: frozenset[str] = frozenset()
    above: str = ""


def trapezoid(split: int) -> float:
    ends = (0, *PLACES)
    return (ends[min(split + 2, 3)] - ends[split]) / 2


SLOW: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "std": statistics.pstdev,
    "min": min,
    "max": max,
    "sum": sum,
    "count": len,
    "median": statistics.median,
}
NO_PLACE, WHOLE = frozenset({"track", "selection"}), frozenset({"ref", "track"})
N = "len(a) / 1 token"

CASES: dict[str, Case] = {
    "a number": Case("2.5", lambda s: 2.5),
    "a length": Case(N, lambda s: s.n),
    "a verdict": Case("correct(a)", lambda s: s.a.correct),
    "a forced answer": Case(
        "correct(answer(a[:4 tokens]))", lambda s: s.a.correct if s.a.length <= 4 else True, WHOLE | NO_PLACE
    ),
    "a bare prefix": Case(
        "correct(a[:6 tokens])",
        lambda s: s.a.correct if s.a.length <= 6 else s.a.length <= 12,
        WHOLE | NO_PLACE,
    ),
    "a mode": Case("mode(a)", lambda s: s.a.features["mode"], frozenset({"ref"})),
    "a number of the question": Case("x.gold", lambda s: 3.0, NO_PLACE),
    "own code": Case(
        'python("score.py:f", a)',
        lambda s: s.a.features["score.py:f"],
        frozenset({"ref", "track", "selection"}),
    ),
    "own code with limits": Case(
        'python("score.py:g", a, seconds: 3)',
        lambda s: s.a.features["score.py:g"],
        frozenset({"ref", "track", "selection"}),
    ),
    "thinking that matches": Case(
        'matches(thinking(a), "b")', lambda s: s.a.correct, frozenset({"ref", "track", "selection"})
    ),
    "a text that matches, and a number of an answer": Case(
        'matches(a, "wait") + number(answer(a), "([0-9]+)", empty: -0.5)',
        lambda s: s.a.features["mode"] + s.a.features["score.py:g"],
        frozenset({"ref", "track"}),
    ),
    "a let": Case(
        f"base * ({N})",
        lambda s: statistics.fmean(s.all("group")) * s.n,
        frozenset({"track"}),
        "let base = mean(len(w) for w in group) / 1 token",
    ),
    "a negation": Case(f"-({N})", lambda s: -s.n),
    "a condition that does not hold": Case("not correct(a)", lambda s: not s.a.correct),
    "a branch": Case(f"{N} if correct(a) else 0.5", lambda s: s.n if s.a.correct else 0.5),
    "a weight of each split": Case(
        f"sum(trapezoid(M) * (len(a) / 1 token) for M in {AT})",
        lambda s: sum(trapezoid(i) for i in range(3)) * s.n,
        NO_PLACE,
    ),
    "another weight of each split": Case(
        f"sum(uniform(M) * (M / 1 token) for M in {AT})", lambda s: sum(PLACES), NO_PLACE
    ),
    "the printed weight of each split": Case(
        f"sum(half_first(M) * (M / 1 token) for M in {AT})",
        lambda s: 3 * 1.5 + 7 * (16 - 3) / 2 + 16 * (16 - 7) / 2,
        NO_PLACE,
    ),
    "a condition of a statistic": Case(
        "mean(len(w) for w in group if len(w) > len(a), empty: 2 * len(a)) / 1 token",
        lambda s: statistics.fmean([x for x in s.all("group") if x > s.n] or [2 * s.n]),
    ),
}
for fn, slow in {
    "+": lambda n: n + 3,
    "-": lambda n: n - 3,
    "*": lambda n: n * 3,
    "/": lambda n: n / 3,
    "^": lambda n: n**3,
    "==": lambda n: n == 9,
    "!=": lambda n: n != 9,
    "<": lambda n: n < 9,
    "<=": lambda n: n <= 9,
    ">": lambda n: n > 9,
    ">=": lambda n: n >= 9,
}.items():
    right = 3 if fn in "+-*/^" else 9
    CASES[f"a {fn} b"] = Case(f"({N}) {fn} {right}", lambda s, slow=slow: slow(s.n))
CASES["a and b"] = Case("correct(a) and len(a) > 5 tokens", lambda s: s.a.correct and s.n > 5)
CASES["a or b"] = Case("correct(a) or len(a) > 5 tokens", lambda s: s.a.correct or s.n > 5)
for name, slow in {
    "sigmoid": lambda n: 1 / (1 + math.exp(-n)),
    "log": math.log,
    "sqrt": math.sqrt,
    "cos": math.cos,
    "floor": math.floor,
}.items():
    CASES[f"{name}(a)"] = Case(f"{name}(({N}) / 4)", lambda s, slow=slow: slow(s.n / 4))
CASES["exp(a)"] = Case(f"exp(-({N}) / 4)", lambda s: math.exp(-s.n / 4))
CASES["abs(a)"] = Case(f"abs(9 - ({N}))", lambda s: abs(9 - s.n))
CASES["min(a, b, c)"] = Case(f"min({N}, 9, 12)", lambda s: min(s.n, 9))
CASES["max(a, b)"] = Case(f"max({N}, 6)", lambda s: max(s.n, 6))
CASES["choose(a, b)"] = Case(f"choose({N} + 5, 3)", lambda s: math.comb(int(s.n) + 5, 3))
CASES["clip(a, b, c)"] = Case(f"clip({N}, 3, 8)", lambda s: min(max(s.n, 3), 8))
for name in get_args(Statistic):
    for over, of in (("group", "len(w)"), ("ref", "len(w)"), (AT, "w")):
        where = "splits" if over == AT else over
        unit = "" if name == "count" else " / 1 token"
        CASES[f"{name} over {where}"] = Case(
            f"{name}({of} for w in {over}){unit} * correct(a) + {N}",
            lambda s, name=name, where=where: SLOW[name](s.all(where)) * s.a.correct + s.n,
            {"group": frozenset()}.get(where, NO_PLACE),
        )

DENSE: dict[str, Case] = {
    "the place": Case(f"n / 1 token + {N}", lambda s: PLACES[s.split] + s.n),
    "its weight": Case(f"trapezoid(n) * ({N})", lambda s: trapezoid(s.split) * s.n),
    "its uniform weight": Case(f"uniform(n) * ({N})", lambda s: s.n),
    "its printed weight": Case(
        f"half_first(n) * ({N})", lambda s: (1.5, (16 - 3) / 2, (16 - 7) / 2)[s.split] * s.n
    ),
    "the place before": Case(f"before(n) / 1 token + {N}", lambda s: (0, *PLACES)[s.split] + s.n),
    "an answer there": Case(
        "correct(answer(a[:n]))",
        lambda s: s.a.correct if s.a.length <= PLACES[s.split] else PLACES[s.split] % 2 == 0,
        frozenset({"ref"}),
    ),
}
HISTORIES: dict[str, Case] = {
    f"{name} over {over}": Case(
        f"{name}(len(z) for z in {over} if correct(z){', empty: 7 tokens' if name not in ('sum', 'count') else ''})"
        + ("" if name == "count" else " / 1 token"),
        lambda s, name=name: SLOW[name]([each.length for each in s.group if each.correct]),
    )
    for name in get_args(Statistic)
    for over in ("steps(2 steps)", "monitor")
}
for over in ("steps(2 steps)", "monitor"):
    HISTORIES[f"quantile over {over}"] = Case(
        f"quantile(len(z) for z in {over}, at: 50%, empty: 7 tokens) / 1 token",
        lambda s: sorted(s.all("group"))[(len(s.group) + 1) // 2 - 1],
    )
HISTORIES["steps that are done"] = Case("min(1, step / 100 steps)", lambda s: 0.04)


class Refused(Exception):
    """The source is an error."""


def reward(body: str, folder: Path) -> Reward:
    path = folder / "own.reo"
    path.write_text(f"reward r {{\n{body}\n}}\n")
    answer = choose_reward(str(path), None)
    if answer.reward is None:
        raise Refused([each.message for each in answer.diagnostics])
    return answer.reward


def written(case: Case, last: str, dense: bool = False) -> str:
    """A reward that has the source as a function, and this for its value."""
    names = "a, n" if dense else "a"
    line = f"dense L in {AT}: {last}" if dense else last
    return f"{case.above}\nlet f({names}) = {case.source}\n{line}"


def wanted(case: Case, group: ResponseGroup, y: RewardedResponse, split: int = 0) -> float:
    return float(case.slow(Seen(y, y, group.rollouts, group.reference, split)))


def over(
    case: Case,
    group: ResponseGroup,
    y: RewardedResponse,
    responses: Sequence[RewardedResponse],
    split: int = 0,
) -> float:
    return sum(float(case.slow(Seen(a, y, group.rollouts, group.reference, split))) for a in responses)


def agree(
    rule: Reward, expected: Callable[[ResponseGroup, RewardedResponse, int], float], dense: bool = False
) -> None:
    """One number at a time, as arrays, in lets and metrics, and tried on a group."""
    places = [[PLACES] * 3] * 2
    there = arrays(GROUPS, places)
    whole, lets = evaluate(rule, there.inputs, there.forced.look_up, there.bare.look_up)
    logged = vectorise_metrics(rule, there.inputs, there.forced.look_up, there.bare.look_up)
    for number, group in enumerate(GROUPS):
        tried = try_reward(rule, Advantage(normalise="none"), group, [PLACES] * 3)
        for index, y in enumerate(group.rollouts):
            slow = [expected(group, y, split) for split in range(3 if dense else 1)]
            assert interpret(rule, group, index, PLACES) == pytest.approx(slow)
            assert whole[number, index].tolist() == pytest.approx(slow)
            assert tried[index].rewards == pytest.approx(slow)
            for metric in rule.metrics:
                assert logged[metric.name][number, index] == pytest.approx(slow[0])
                assert tried[index].metrics == pytest.approx(slow)
            for let in rule.lets[-1:] if rule.metrics else ():
                values = np.broadcast_to(lets[let.name].reshape(lets[let.name].shape[:2]), (2, 3))
                assert values[number, index] == pytest.approx(slow[0])
                assert tried[index].lets[-1] == pytest.approx(slow[0])


def test_over_the_batch(tmp_path: Path) -> None:
    """Lengths of right responses less their own group's mean, over both questions, and of no response."""
    value = "(len(z) - mean(len(w) for w in group)) / 1 token"
    names = [*get_args(Statistic), "quantile"]
    lines, slow = [], []
    every = [
        a.length - statistics.fmean(g.length for g in group.rollouts)
        for group in GROUPS
        for a in group.rollouts
    ]
    right = [
        each for each, a in zip(every, (a for g in GROUPS for a in g.rollouts), strict=True) if a.correct
    ]
    for name in names:
        at = ", at: 40%" if name == "quantile" else ""
        empty = "" if name in ("sum", "count") else ", empty: 7"
        for condition, values in (("", every), (" if correct(z)", right), (" if len(z) > 99 tokens", [])):
            lines.append(f"let v{len(lines)} = {name}({value} for z in batch{condition}{at}{empty})")
            fast = SLOW.get(name, lambda values: sorted(values)[math.ceil(0.4 * len(values)) - 1])
            slow.append(fast(values) if values else 7 if empty else 0)
    rule = reward("\n".join([*lines, " + ".join(f"v{i}" for i in range(len(lines))), ""]), tmp_path)
    made = arrays(GROUPS, [[PLACES] * 3] * 2)
    whole, lets = evaluate(rule, made.inputs, made.forced.look_up, made.bare.look_up)
    for number, group in enumerate(GROUPS):
        for index in range(len(group.rollouts)):
            found = [
                np.broadcast_to(each.reshape(each.shape[:2]), (2, 3))[number, index] for each in lets.values()
            ]
            assert found == pytest.approx(slow)
            assert interpret(rule, replace(group, batch=GROUPS), index) == pytest.approx([sum(slow)])
            assert whole[number, index] == pytest.approx(sum(slow))


def test_over_earlier_responses(tmp_path: Path) -> None:
    """One to the first question, three to the second; each statistic reads the response at hand beside them."""
    earlier = (RewardedResponse(4, True), RewardedResponse(12, False), RewardedResponse(7, True))
    groups = (replace(GROUPS[0], history=earlier[1:2]), replace(GROUPS[1], history=earlier))
    lines, cases = [], [*product(get_args(Statistic), ("", " if correct(z)"), (1024, 2))]
    for name, condition, last in cases:
        empty = "" if name in ("sum", "count") else ", empty: 5"
        source = "history(x)" if last == 1024 else f"history(x, last: {last})"
        lines.append(
            f"let v{len(lines)} = {name}((len(z) + len(y)) / 1 token for z in {source}{condition}{empty})"
        )
    rule = reward("\n".join([*lines, " + ".join(f"v{i}" for i in range(len(lines)))]), tmp_path)
    assert rule.remembers
    made = arrays(groups, [[PLACES] * 3] * 2)
    remembered = PastResponses.of(
        [[(float(each.length), float(each.correct)) for each in group.history] for group in groups]
    )
    whole, _ = evaluate(
        rule, replace(made.inputs, earlier=remembered), made.forced.look_up, made.bare.look_up
    )
    for number, group in enumerate(groups):
        for index, y in enumerate(group.rollouts):
            slow = 0.0
            for name, condition, last in cases:
                latest = group.history[-last:]
                values = [each.length + y.length for each in latest if each.correct or not condition]
                slow += SLOW[name](values) if values else 0 if name in ("sum", "count") else 5
            assert interpret(rule, group, index) == pytest.approx([slow])
            assert whole[number, index] == pytest.approx(slow)
    # A first step remembers nothing.
    first, _ = evaluate(rule, made.inputs, made.forced.look_up, made.bare.look_up)
    assert first == pytest.approx(np.full((2, 3, 1), 4 * 5.0 * 5))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("let a = mean(correct(z) for z in history(x))", "E0306"),
        ("let a = mean(correct(z) for z in history(y), empty: 1)", "E0301"),
        ("let a = mean(correct(z) for z in history, empty: 1)", "E0301"),
        ("let a = history(x)", "E0301"),
        ("let a = mean(correct(z) for z in history(x, last: 0), empty: 1)", "E0301"),
        ("let a = mean(correct(z) for z in history(x, last: 8 tokens), empty: 1)", "E0301"),
        ("let a = mean(correct(z) for z in history(x, 8), empty: 1)", "E0301"),
        ("let a = mean(correct(z) for z in history(x, last: len(y)), empty: 1)", "E0301"),
        ("let a = mean(mode(z) for z in history(x), empty: 1)", "E0301"),
        ("let a = mean(correct(z[:3 tokens]) for z in history(x), empty: 1)", "E0301"),
        ("let a = 1 / count(z for z in history(x))", "E0307"),
        ("track a = mean(correct(z) for z in history(x), empty: 1)", "E0301"),
        ("let a = mean(mean(correct(w) for w in history(x), empty: 0) for z in batch)", "E0301"),
        ("let a = mean(len(y) for z in batch)", "E0301"),
        ("let a = mean(correct(z) for z in batch if len(z) > 3 tokens)", "E0306"),
        ("let a = mean(mean(correct(w) for w in batch) for z in batch)", "E0301"),
        ("track a = mean(correct(z) for z in batch)", "E0301"),
        ("let a = mean(correct(answer(z[:4 tokens])) for z in batch)", "E0301"),
    ],
)
def test_a_mistake_about_whose_responses_is_told_once(line: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    path.write_text(f"reward r {{\n  {line}\n  correct(y) * a\n}}\n")
    assert [each.code for each in check_file(path).diagnostics if each.severity == "error"] == [code]


@pytest.mark.parametrize(("total", "codes"), [("history(x, last: 8)", []), ("history(x)", ["E0307"])])
def test_a_share_is_counted_over_the_same_responses(total: str, codes: list[str], tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    part = "count(z for z in history(x, last: 8) if correct(z))"
    path.write_text(f"reward r {{ 1 / (1.5 - {part} / max(count(z for z in {total}), 1)) }}\n")
    assert [each.code for each in check_file(path).diagnostics if each.severity == "error"] == codes


def test_a_measure_of_an_evaluation_has_no_history(tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    for value in ("mean(len(z) for z in history(x))", "mean(mean(len(w) for w in history(x)) for z in arm)"):
        path.write_text(f"measure m {{ {value} }}\n")
        assert [each.message for each in check_file(path).diagnostics] == ["a measure has no earlier steps"]


@pytest.mark.parametrize("what", CASES)
def test_of_a_response(what: str, tmp_path: Path) -> None:
    """As a reward, as a let and as a metric."""
    case = CASES[what]
    rule = reward(written(case, "metric m = f(y)\nlet v = f(y)\nv"), tmp_path)
    agree(rule, lambda group, y, split: wanted(case, group, y))


@pytest.mark.parametrize("what", CASES | DENSE)
@pytest.mark.parametrize("place", ["group", "ref"])
def test_of_others(what: str, place: Literal["group", "ref"], tmp_path: Path) -> None:
    """Summed over the group, and over the reference model's responses."""
    case, dense = (CASES | DENSE)[what], what in DENSE
    of = "f(z, L)" if dense else "f(z)"
    body = written(case, f"sum({of} for z in {place})", dense)
    if place in case.refused:
        with pytest.raises(Refused):
            reward(body, tmp_path)
        return
    agree(
        reward(body, tmp_path),
        lambda group, y, split: over(
            case, group, y, group.rollouts if place == "group" else group.reference, split
        ),
        dense,
    )


@pytest.mark.parametrize("what", DENSE)
def test_at_a_split(what: str, tmp_path: Path) -> None:
    case = DENSE[what]
    rule = reward(written(case, "f(y, L)", dense=True), tmp_path)
    agree(rule, lambda group, y, split: wanted(case, group, y, split), dense=True)


def table(groups: Sequence[ResponseGroup]) -> pl.DataFrame:
    rows = [
        {"rollout": number, "tokens": one.length, "correct": one.correct, "mode": int(one.features["mode"])}
        for group in groups
        for number, one in enumerate(group.rollouts)
    ]
    return pl.DataFrame(rows).with_columns(budget=pl.lit(None))


@pytest.mark.parametrize("what", CASES)
@pytest.mark.parametrize("place", ["steps(2 steps)", "monitor"])
def test_in_a_track(what: str, place: str, tmp_path: Path) -> None:
    """Of the last two steps, or of the monitor set."""
    case = CASES[what]
    body = f"{case.above}\nlet f(a) = {case.source}\ntrack t = sum(f(z) for z in {place})\ncorrect(y) + t"
    if "track" in case.refused:
        with pytest.raises(Refused):
            reward(body, tmp_path)
        return
    slow = sum(over(case, group, group.rollouts[0], group.rollouts) for group in GROUPS)
    first, second = table(GROUPS[:1]), table(GROUPS[1:])
    values = track_values(reward(body, tmp_path), 4, [second, first, second], table(GROUPS))
    assert values == {"t": pytest.approx(slow)}


@pytest.mark.parametrize("what", HISTORIES)
def test_of_other_times(what: str, tmp_path: Path) -> None:
    """A later track and the reward read it by its name."""
    case = HISTORIES[what]
    rule = reward(f"track t = {case.source}\ntrack u = 2 * t\ncorrect(y) + u", tmp_path)
    seen = [each for group in GROUPS for each in group.rollouts]
    slow = float(case.slow(Seen(seen[0], seen[0], seen, ())))
    values = track_values(rule, 4, [table(GROUPS), table(GROUPS[1:]), table(GROUPS[:1])], table(GROUPS))
    assert values == {"t": pytest.approx(slow), "u": pytest.approx(2 * slow)}
    group = ResponseGroup("q", HAND.rollouts, tracks=values)
    rewards = [each.correct + 2 * slow for each in HAND.rollouts]
    assert [interpret(rule, group, index)[0] for index in range(3)] == pytest.approx(rewards)


SPEC = """
from std.miniature import overthinker, chain_train, chain_suite
from std.recipes import sft

selection mine {{
  {body}
}}

experiment it = sft {{
  base = overthinker
  data = mine(pool(checkpoint(overthinker), data: chain_train, samples: 4, max_tokens: 128 tokens))
  max_tokens = 192 tokens
  optim {{ lr = 1e-4 }}
  steps = 1 steps
  eval = chain_suite
}}
"""


def selection(body: str, folder: Path) -> Selection:
    path = folder / "spec.reo"
    path.write_text(SPEC.format(body=body))
    compiled = compile_file(path)
    if compiled.spec is None:
        raise Refused([each.message for each in compiled.diagnostics])
    start = compiled.spec.study.arm("it").checkpoint
    assert isinstance(start, FromTraining)
    (stage,) = (each for each in start.experiment.stages if each.selected is not None)
    assert stage.selected is not None
    return stage.selected.selection


@pytest.mark.parametrize("what", CASES)
def test_in_a_selection(what: str, tmp_path: Path) -> None:
    """As a margin, and as what the least and the greatest are of."""
    case = CASES[what]
    body = f"""{case.above}
      let f(a) = {case.source}
      drop = 10%
      pick all {{ trace = each(z for z in group), margin = f(trace) }}
      pick least {{ trace = argmin(f(z) for z in group), margin = 0 }}
      pick most {{ trace = argmax(f(z) for z in group), margin = 0 }}"""
    if "selection" in case.refused:
        with pytest.raises(Refused):
            selection(body, tmp_path)
        return
    rule = selection(body, tmp_path)
    for group in GROUPS:
        slow = [wanted(case, group, each) for each in group.rollouts]
        every, (least,), (most,) = choose(rule, group)
        assert [each.margin for each in every] == pytest.approx(slow)
        assert least.roles == {"trace": slow.index(min(slow))}
        assert most.roles == {"trace": slow.index(max(slow))}


def shown(numbers: Sequence[float | bool]) -> str:
    return ",".join(f"{float(each):g}" for each in numbers)


@pytest.mark.parametrize("what", CASES | DENSE | HISTORIES)
def test_by_the_command(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`reodsl reward`: a track is of the group alone."""
    case = (CASES | DENSE | HISTORIES)[what]
    if what in HISTORIES:
        body = f"track t = {case.source}\nt"
    else:
        body = written(case, "f(y, L)" if what in DENSE else "f(y)", what in DENSE)
    rule = reward(body, tmp_path)
    answers = HAND.rollouts
    read = {getattr(each, "key", "") for each in walk(rule)}
    given = {name: [each.features[name] for each in answers] for name in answers[0].features if name in read}
    if what == "steps that are done":
        given["step"] = [4]
    options = [f"--given={name}={shown(values)}" for name, values in given.items()]
    described = {
        name: [
            {"length": each.length, "correct": each.correct}
            | {
                kind: {cut: getattr(each, f"{kind}_at")(cut) for cut in (3, 4, 6, 7)}
                for kind in ("forced", "bare")
                if name == "responses"
            }
            for each in of
        ]
        for name, of in (("responses", answers), ("reference", HAND.reference))
    }
    (tmp_path / "group.json").write_text(json.dumps(described))
    options.append(f"--group={tmp_path / 'group.json'}")
    capsys.readouterr()
    assert call("reward", str(tmp_path / "own.reo"), *options, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["responses"]
    for row, y in zip(rows, answers, strict=True):
        slow = [wanted(case, HAND, y, split) for split in range(3 if rule.dense else 1)]
        assert [each["reward"] for each in row["sections"]] == pytest.approx(slow)


def literals(hint: Any) -> Iterator[Any]:
    """The words that a field may have."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    else:
        for part in get_args(hint):
            yield from literals(part)


def test_every_expression_has_a_source(tmp_path: Path) -> None:
    classes = [
        each for _, each in getmembers(expression, isclass) if issubclass(each, Node) and each is not Node
    ]
    assert len(classes) > 15
    wanted = {(kind.__name__, "op", kind.__dataclass_fields__["op"].default) for kind in classes}
    for kind in classes:
        hints = get_type_hints(kind)
        for each in fields(kind):
            if each.name not in ("op", "unit") and "Expression" not in str(each.type):
                wanted |= {(kind.__name__, each.name, word) for word in literals(hints[each.name])}
    bodies = [written(case, "f(y)") for case in CASES.values()]
    bodies += [written(case, "f(y, L)", dense=True) for case in DENSE.values()]
    bodies.append("mean(correct(z) for z in batch)")
    bodies.append("mean(correct(z) for z in history(x), empty: 0)")
    # Against loops in `tests/rewards/test_tokens.py`.
    bodies += [f"{name}(prob(t) for t in y)" for name in get_args(Statistic)]
    bodies += [f"{name}(prob(t) for t in answer(y), empty: 0)" for name in get_args(Statistic)]
    bodies += [f"track t = {case.source}\nt" for case in HISTORIES.values()]
    covered = {
        (type(node).__name__, each.name, getattr(node, each.name))
        for body in bodies
        for node in walk(reward(body, tmp_path))
        if isinstance(node, Node)
        for each in fields(node)
        if isinstance(getattr(node, each.name), str)
    }
    # Those of measures are in `tests/evaluate/test_measures.py`.
    covered |= {("StepStatistic", "over", word) for word in ("arm", "base")} | {
        ("StepStatistic", "fn", "reach")
    }
    assert wanted - covered == set(), "give these a source above, for each place"
