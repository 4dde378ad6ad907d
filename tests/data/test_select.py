"""Selections against choices made by hand: shortest of all that are right, pairs, DAST's two cases, and what is lost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Job
from reodsl.graph.task import Task
from reodsl.ir import expression
from reodsl.ir.expression import Aggregate, Attribute, Constant, Correct, Infix, Length, Negation, Variable
from reodsl.ir.reward import Choice, NamedValue, Pick, ResponseGroup, RewardedResponse, Selection
from reodsl.ir.training import FromTraining
from reodsl.language import compile_file
from runners.data.select import choose, drop_lowest, keeps, select
from tests.worked import work_of

RIGHT, LENGTH = Correct(of="z"), Length(of="z")
WRONG = Negation(fn="not", value=RIGHT)
SHORTEST = Choice(fn="argmin", var="z", key=LENGTH, where=RIGHT)
LONGEST = Choice(fn="argmax", var="z", key=LENGTH)


def group(*responses: tuple[int, bool]) -> ResponseGroup:
    return ResponseGroup("q", tuple(RewardedResponse(length, right) for length, right in responses))


def selection(*picks: Pick, lets: tuple[NamedValue, ...] = ()) -> Selection:
    return Selection(name="s", picks=picks, lets=lets)


def picked(rule: Selection, asked: ResponseGroup) -> list[dict[str, int] | None]:
    """What is chosen, one thing or nothing by each pick, without margins."""
    taken = choose(rule, asked)
    assert all(len(pick) < 2 for pick in taken)
    return [pick[0].roles if pick else None for pick in taken]


def test_the_shortest_that_is_right_the_first_of_equals() -> None:
    shortest = selection(Pick(trace=SHORTEST))
    assert picked(shortest, group((3, False), (9, True), (5, True), (5, True))) == [{"trace": 2}]
    assert picked(shortest, group((3, False), (9, False))) == [None]


def test_the_shortest_right_against_the_longest_of_all() -> None:
    pairs = selection(Pick(preferred=SHORTEST, rejected=LONGEST))
    assert picked(pairs, group((3, True), (9, False), (7, True))) == [{"preferred": 0, "rejected": 1}]
    # One response is not a pair, and neither is the same one twice.
    assert picked(pairs, group((3, True))) == [None]
    assert picked(pairs, group((3, False), (9, True))) == [None]


def dast(ratio: float) -> Selection:
    def much(short: str, long: str) -> Infix:
        right = Infix(fn="*", left=Constant(value=ratio), right=Length(of=long))
        return Infix(fn="<=", left=Length(of=short), right=right)

    return selection(
        Pick(
            preferred=SHORTEST,
            rejected=Choice(fn="argmax", var="z", key=LENGTH, where=RIGHT),
            where=much("preferred", "rejected"),
        ),
        Pick(
            preferred=Choice(fn="argmax", var="z", key=LENGTH, where=WRONG),
            rejected=Choice(fn="argmin", var="z", key=LENGTH, where=WRONG),
            where=much("rejected", "preferred"),
        ),
    )


def test_two_right_with_a_shorter_winner_and_two_wrong_with_a_longer_one() -> None:
    asked = group((10, True), (30, True), (8, False), (20, False))
    assert picked(dast(0.5), asked) == [{"preferred": 0, "rejected": 1}, {"preferred": 3, "rejected": 2}]
    assert picked(dast(0.35), asked) == [{"preferred": 0, "rejected": 1}, None]
    assert picked(dast(0.5), group((10, True), (19, True), (8, False))) == [None, None]


def test_lets_and_earlier_choices_can_be_used_in_later_ones() -> None:
    mean = Aggregate(fn="mean", var="z", over="group", value=LENGTH)
    shorter = Infix(fn="<", left=LENGTH, right=Variable(name="m"))
    after = Infix(fn=">", left=LENGTH, right=Length(of="preferred"))
    pick = Pick(
        preferred=Choice(fn="argmax", var="z", key=LENGTH, where=shorter),
        rejected=Choice(fn="argmin", var="z", key=LENGTH, where=after),
    )
    # The mean is 6: 5 is the longest below it, and 6 the shortest above that.
    found = picked(
        selection(pick, lets=(NamedValue(name="m", value=mean),)),
        group((2, True), (5, True), (6, True), (11, True)),
    )
    assert found == [{"preferred": 1, "rejected": 2}]


def test_each_response_that_meets_the_conditions() -> None:
    short = Infix(fn="<", left=Length(of="trace"), right=Constant(value=9))
    margin = Negation(fn="neg", value=Length(of="trace"))
    every = Choice(fn="each", var="z", key=Constant(value=0), where=RIGHT)
    rule = selection(Pick(trace=every, where=short, margin=margin), Pick(trace=SHORTEST))
    each, one = choose(rule, group((3, True), (9, True), (5, False), (7, True)))
    assert [(taken.roles, taken.margin) for taken in each] == [({"trace": 0}, -3), ({"trace": 3}, -7)]
    assert [taken.roles for taken in one] == [{"trace": 0}]
    assert choose(rule, group((3, False))) == [(), ()]


def test_questions_are_kept_by_a_condition_on_their_group() -> None:
    solved = Aggregate(fn="mean", var="z", over="group", value=RIGHT)
    some = Infix(fn=">", left=Variable(name="p"), right=Constant(value=0))
    half = Infix(fn="<=", left=Variable(name="p"), right=Constant(value=0.5))
    rule = Selection(
        name="s",
        picks=(),
        lets=(NamedValue(name="p", value=solved),),
        keep=Infix(fn="and", left=some, right=half),
    )
    assert keeps(rule, group((3, True), (9, False)))
    assert not keeps(rule, group((3, True), (9, True), (9, False)))
    assert not keeps(rule, group((3, False), (9, False)))
    # No number is no reason: 0 / 0.
    never = Infix(fn="/", left=Constant(value=0), right=Constant(value=0))
    assert not keeps(rule.model_copy(update={"lets": (), "keep": never}), group((3, True)))


SPEC = """
from std.miniature import overthinker, chain_train, chain_suite
from std.recipes import simpo
from std.selections import dast_by_margin

experiment it = simpo {
  base = checkpoint(overthinker)
  data = dast_by_margin(
    pool(checkpoint(overthinker), data: chain_train, samples: 4, max_tokens: 128 tokens), longest: 40 tokens, share: 25%,
  )
  beta = 2
  gamma = 1.2
  max_tokens = 192 tokens
  optim { lr = 1e-4 }
  steps = 1 steps
  eval = chain_suite
}
"""


def of_the_library(tmp_path: Path) -> Selection:
    path = tmp_path / "spec.reo"
    path.write_text(SPEC)
    found = compile_file(path).spec
    assert found is not None
    start = found.study.arm("it").checkpoint
    assert isinstance(start, FromTraining)
    stage = start.experiment.stages[0]
    assert stage.selected is not None
    return stage.selected.selection


def test_dasts_margins_by_hand(tmp_path: Path) -> None:
    """p = 1/2, L_r = 20, L_b = 1/2 20 + 1/2 40 = 30.

    Right: 10 tokens, lambda -2/3, score 1/2 + 1/3; 30 tokens, lambda 0, score 1/2. Wrong: 20 tokens, lambda -1/3, score
    -0.3 - 0.1; 8 tokens, lambda -22/30, score -0.66 - 0.1.
    """
    rule = of_the_library(tmp_path)
    assert rule.drop == 0.25
    (right,), (wrong,) = choose(rule, group((10, True), (30, True), (8, False), (20, False)))
    assert (right.roles, wrong.roles) == ({"preferred": 0, "rejected": 1}, {"preferred": 3, "rejected": 2})
    assert (right.margin, wrong.margin) == pytest.approx((1 / 3, 0.36))
    # Nobody is right: L_r is the longest response, p = 0, L_b = 40; wrong answers score at most -0.1.
    nothing, (both,) = choose(rule, group((40, False), (20, False)))
    assert nothing == ()
    assert both.margin == pytest.approx(-0.1 - (-0.45 - 0.1))


@pytest.mark.parametrize(
    ("margins", "drop", "expected"),
    [
        ([3, 1, 2, 4], 0.25, [0, 2, 3]),
        ([3, 1, 2, 4], 0.5, [0, 3]),
        ([3, 1, 2, 4], 0.2, [0, 1, 2, 3]),
        ([1, 1, 1, 1], 0.5, [0, 1]),
        ([1, math.nan, 1, 1], 0.25, [0, 2, 3]),
        ([5] * 10, 0.3, [0, 1, 2, 3, 4, 5, 6]),
        ([], 0.5, []),
    ],
)
def test_the_lowest_margins_go(margins: list[float], drop: float, expected: list[int]) -> None:
    assert drop_lowest(margins, drop) == expected


def test_what_is_dropped_is_counted(tmp_path: Path, pools: tuple[Path, Path]) -> None:
    """Question `a` has the margin 2 and `b`, whose winner has 7 tokens of 9, too: the later one goes."""
    longer = Infix(fn="-", left=Length(of="rejected"), right=Length(of="preferred"))
    rule = Selection(name="s", picks=(Pick(preferred=SHORTEST, rejected=LONGEST, margin=longer),), drop=0.5)
    made = job(tmp_path, rule, pools[:1], [""])
    select(made)
    assert pl.read_parquet(made.out / "questions.parquet")["id"].to_list() == ["a"]
    facts = json.loads((made.out / "select.json").read_text())
    assert facts == {"questions": 3, "picked": 1, "lost": 1, "lost_by_pick": [1], "dropped": 1}


@pytest.fixture
def pools(tmp_path: Path) -> tuple[Path, Path]:
    """Two wordings, two samples each, of three questions: `a` right twice, `b` once, `c` never."""
    right = {"a": ((8, True), (6, True)), "b": ((9, False), (7, True)), "c": ((5, False), (4, False))}
    brief = {"a": ((3, False), (4, True)), "b": ((2, False), (2, False)), "c": ((1, False), (3, False))}
    folders = []
    for name, table in (("long", right), ("brief", brief)):
        folder = tmp_path / name
        folder.mkdir()
        rows = [
            {
                "question": q, "text": f"{q} ?", "gold": "7", "sample": n, "response": f"{name} {q} {n}",
                "answer": q, "tokens": length, "finish": "stop" if length < 9 else "length", "correct": correct,
            }
            for q, own in table.items()
            for n, (length, correct) in enumerate(own)
        ]  # fmt: skip
        pl.DataFrame(rows).write_parquet(folder / "samples.parquet")
        folders.append(folder)
    return folders[0], folders[1]


def job(tmp_path: Path, rule: Selection, pools: tuple[Path, ...], prefixes: list[str]) -> Job:
    out = tmp_path / "out"
    out.mkdir()
    payload = {"selection": rule.model_dump(mode="json"), "samples": 2, "prefixes": prefixes}
    inputs = {f"pool:{index}": folder for index, folder in enumerate(pools)}
    return Job(
        Task("x.select", "select", work_of(payload), {}),
        inputs,
        out,
        tmp_path,
        tmp_path,
        lambda progress: None,
    )


def test_traces_of_several_wordings_and_what_was_lost(tmp_path: Path, pools: tuple[Path, Path]) -> None:
    made = job(tmp_path, selection(Pick(trace=SHORTEST)), pools, ["", "now"])
    select(made)
    table = pl.read_parquet(made.out / "questions.parquet")
    assert table.select("id", "question", "answer", "trace", "trace_prefix", "trace_ended").rows() == [
        ("a", "a ?", "7", "brief a 1", "now", True),
        ("b", "b ?", "7", "long b 1", "", True),
    ]
    facts = json.loads((made.out / "select.json").read_text())
    assert facts == {"questions": 3, "picked": 2, "lost": 1, "lost_by_pick": [1]}


def test_every_right_response_is_a_trace(tmp_path: Path, pools: tuple[Path, Path]) -> None:
    every = Choice(fn="each", var="z", key=Constant(value=0), where=RIGHT)
    made = job(tmp_path, selection(Pick(trace=every)), pools, ["", "now"])
    select(made)
    table = pl.read_parquet(made.out / "questions.parquet")
    assert table.select("id", "trace", "trace_prefix").rows() == [
        ("a", "long a 0", ""),
        ("a", "long a 1", ""),
        ("a", "brief a 1", "now"),
        ("b", "long b 1", ""),
    ]
    facts = json.loads((made.out / "select.json").read_text())
    assert facts == {"questions": 3, "picked": 4, "lost": 1, "lost_by_pick": [1]}


def test_a_number_that_questions_lack_is_asked_for_by_a_selection() -> None:
    level = Infix(fn=">", left=Attribute(of="z", field="level"), right=Constant(value=3))
    rule = Selection(name="hard", picks=(Pick(trace=Choice(fn="each", var="z", key=RIGHT, where=level)),))
    with pytest.raises(Problem, match=r"^the selection `hard` uses the given number `level`") as caught:
        choose(rule, group((3, True)))
    assert caught.value.diagnostics[0].where == "selection hard"


def test_a_choice_can_ask_for_a_wording_or_a_text(tmp_path: Path, pools: tuple[Path, Path]) -> None:
    """A response's number is its index; the text of no response with the answer `a` is chosen."""

    def mode(number: int) -> Choice:
        same = Infix(fn="==", left=Attribute(of="z", field="mode"), right=Constant(value=number))
        where = Infix(fn="and", left=RIGHT, right=same)
        return Choice(fn="argmin", var="z", key=Constant(value=0), where=where)

    index = expression.TextNumber(of="z", field="number", pattern="([0-9]+)$", empty=-1)
    a = expression.TextNumber(of="z", field="matches", source="answer", pattern="a")
    told = Choice(fn="argmax", var="z", key=index, where=Negation(fn="not", value=a))
    picks = [Pick(trace=choice) for choice in (mode(0), mode(1), told)]
    made = job(tmp_path, selection(*picks), pools, ["go", "now"])
    select(made)
    table = pl.read_parquet(made.out / "questions.parquet")
    assert table["trace"].to_list() == ["long a 0", "brief a 1", "long b 1", "long b 1", "long c 1"]
    assert json.loads((made.out / "select.json").read_text())["lost_by_pick"] == [1, 2, 1]


def test_a_response_that_was_cut_off_is_known_as_such(tmp_path: Path, pools: tuple[Path, Path]) -> None:
    made = job(tmp_path, selection(Pick(preferred=SHORTEST, rejected=LONGEST)), pools[:1], [""])
    select(made)
    table = pl.read_parquet(made.out / "questions.parquet")
    assert table.select("id", "preferred", "rejected", "rejected_ended").rows() == [
        ("a", "long a 1", "long a 0", True),
        ("b", "long b 1", "long b 0", False),
    ]


def test_nothing_picked_and_missing_responses_are_errors(
    tmp_path: Path, pools: tuple[Path, Path], refusal: Callable[..., None]
) -> None:
    never = Choice(fn="argmin", var="z", key=LENGTH, where=Constant(value=0))
    with pytest.raises(Problem) as caught:
        select(job(tmp_path, selection(Pick(trace=never)), pools[:1], [""]))
    refusal("train/E0316-run.txt", caught.value)
    whole = pl.read_parquet(pools[1] / "samples.parquet")
    whole.filter(pl.col("question") != "b").write_parquet(pools[1] / "samples.parquet")
    (tmp_path / "out").rmdir()
    with pytest.raises(Problem) as caught:
        select(job(tmp_path, selection(Pick(trace=SHORTEST)), pools, ["", ""]))
    refusal("train/E0513-pool.txt", caught.value)


def test_the_rows_of_questions_that_are_kept_stay_as_they_are(
    tmp_path: Path, pools: tuple[Path, Path]
) -> None:
    """Right in 3, 1 and 0 of 4 responses: only `b` is solved at most half of the time and at all; its `meta` stays."""
    data = tmp_path / "data"
    data.mkdir()
    rows = [{"id": q, "question": f"{q} ?", "answer": "7", "meta": f'{{"n": "{q}"}}'} for q in "cba"]
    pl.DataFrame(rows).write_parquet(data / "questions.parquet")
    solved = Aggregate(fn="mean", var="z", over="group", value=RIGHT)
    some = Infix(fn=">", left=solved, right=Constant(value=0))
    half = Infix(fn="<=", left=solved, right=Constant(value=0.5))
    rule = Selection(name="s", picks=(), keep=Infix(fn="and", left=some, right=half))
    made = job(tmp_path, rule, pools, ["", ""])
    made = replace(made, inputs={**made.inputs, "data": data})
    select(made)
    assert pl.read_parquet(made.out / "questions.parquet").to_dicts() == [rows[1]]
    facts = json.loads((made.out / "select.json").read_text())
    assert facts == {"questions": 3, "picked": 1, "lost": 2, "lost_by_pick": []}
    nothing = rule.model_copy(update={"keep": Constant(value=0)})
    task = Task("x.select", "select", {**made.task.work, "selection": nothing}, {})
    solvable = replace(made, task=task)
    with pytest.raises(Problem, match="picks nothing from 3 questions with 4 responses each"):
        select(solvable)
