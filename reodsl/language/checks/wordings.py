"""Check a stage's wordings and selections against its rollouts, its reward, and its traces and pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, error
from reodsl.ir.settings.types import PAIRS
from reodsl.language.checks.cases import StageCase, amount, place, set_here
from reodsl.language.reward.selection import EXAMPLE, KEEPS, TypedSelection, questions_of
from reodsl.language.values import Record, records_of

TITLES = {"ppo": "PPO", "sft": "SFT", "simpo": "SimPO", "dpo": "DPO", "ipo": "IPO"}
TRAINS_ON = {
    "ppo": ("questions", f"select them by a condition alone: `{KEEPS}`"),
    "sft": ("traces", f"take a selection with a trace: `{EXAMPLE}`"),
    **dict.fromkeys(PAIRS, ("pairs", "take a selection with `preferred` and `rejected`")),
}
"""What each method learns from, and how a selection gives that."""


def wordings_of(record: Record | None) -> list[Record]:
    """The wordings that a block of sampling settings or a pool names."""
    return records_of(record, "wordings")


def check_selected(stage: StageCase) -> Iterator[Diagnostic]:
    """E0510: rewards train on questions, SFT on traces, preferences on pairs."""
    data = stage.record.sub("data")
    at = place(stage.record.fields.get("data"), stage.record.span)
    if data is None or data.kind != "selected":
        if stage.method in PAIRS:
            helps = "select them: `data = NAME(pool(…))`, with `preferred` and `rejected`"
            yield error(
                "E0510",
                f"{TITLES[stage.method]} trains on pairs of responses",
                at,
                "questions alone",
                help=helps,
            )
        return
    selection = stage.selection
    if selection is None:
        return  # what is wrong with it has been reported
    wanted, helps = TRAINS_ON[stage.method]
    if selection.gives != wanted:
        yield error(
            "E0510", f"{TITLES[stage.method]} trains on {wanted}", at, f"gives {selection.gives}", help=helps
        )
    pool = data.sub("pool")
    for wording in wordings_of(pool):
        if wording.get("budget") is not None:
            yield _budget_in(wording, "a pool asks every question alike")
    if pool is not None:
        yield from _small(stage, data, pool, selection)


def _small(stage: StageCase, data: Record, pool: Record, selection: TypedSelection) -> Iterator[Diagnostic]:
    """E0513: one response a question where pairs are wanted, or fewer questions than fill a batch."""
    ways = max(1, len(wordings_of(pool)))
    greedy = pool.data("temperature") == 0
    if selection.gives == "pairs" and pool.data("samples") * ways < 2:
        yield error(
            "E0513",
            "a pair takes two responses, and the pool has one for each question",
            place(pool.fields.get("samples"), pool.span),
            help="write `samples: 16`",
        )
    elif selection.gives == "pairs" and greedy and ways < 2:
        yield error(
            "E0513",
            "a pair takes two responses, and those of the pool are all equal",
            place(pool.fields.get("temperature"), pool.span),
            "greedy",
            help="write `temperature: 1`",
        )
    questions, batch = pool.sub("data"), stage.record.at("batch.prompts")
    asked = known_questions(questions) if questions is not None else None
    wanted = amount(batch.value) if batch is not None else None
    if asked is None or wanted is None or selection.gives == "questions":
        return  # questions fill a batch again and again, as those of any data do
    picks = asked * selection.most(pool.data("samples") * ways)
    most = picks - math.floor(selection.drop * picks + 1e-9)
    if most < wanted:
        few = "" if most == asked else f", at most {most} {selection.gives}"
        yield error(
            "E0513",
            f"the pool has {asked} questions{few}, which fill no batch of {wanted:g}",
            place(data.fields.get("pool"), data.span),
            others=set_here(batch, stage.record),
            help=f"write `batch {{ prompts = {most} }}`, or ask more questions",
        )


def known_questions(data: Record) -> int | None:
    """How many questions data has, where the spec says so; duplicates count."""
    if data.data("questions") is not None:
        return int(data.data("questions"))
    counts = [source.data("count") for source in records_of(data, "source")]
    return sum(counts) if counts and all(count is not None for count in counts) else None


def check_wordings(stage: StageCase) -> Iterator[Diagnostic]:
    """E0511: wordings that rollouts do not share evenly, or that lack what the reward reads of them."""
    rollout = stage.record.sub("rollout")
    wordings = wordings_of(rollout)
    rollouts = stage.record.at("batch.rollouts")
    count = amount(rollouts.value) if rollouts is not None else None
    per = rollout.data("wordings_per") if rollout is not None else None
    if wordings and count is not None and per == "rollout" and count % len(wordings):
        yield error(
            "E0511",
            f"{count:g} rollouts do not fall evenly on {len(wordings)} wordings",
            place(rollouts, stage.record.span),
            f"{count:g} rollouts",
            help=f"write `rollouts = {max(1, int(count) // len(wordings)) * len(wordings)}`",
        )
    reward = place(stage.record.fields.get("reward"), stage.record.span)
    uses = stage.reward.uses if stage.reward is not None else frozenset()
    if "mode" in uses and not wordings:
        yield error(
            "E0511",
            "the reward reads the mode of a response, and all are asked alike",
            reward,
            "uses `mode`",
            help="add `wordings = [think, no_think]` to `rollout`",
        )
    bare = _bare(stage.record.sub("data"))
    if "given" in uses and bare:
        yield error(
            "E0511",
            "the reward reads numbers of its questions, and questions that a task draws have none",
            reward,
            "uses `x.…`",
            help="read questions from a file that has such a column, or measure the response: `len(y)`",
        )
    if "budget" in uses and not wordings and bare:
        yield error(
            "E0511",
            "the reward reads a question's budget, and none is drawn",
            reward,
            "uses `x.budget`",
            help='declare `wording within { question = "{question} Think for {budget} tokens.",'
            " budget = 100 tokens..4000 tokens }`, and add `wordings = [within]` to `rollout`",
        )
    if "budget" in uses and wordings and not all(wording.get("budget") for wording in wordings):
        lacking = next(wording for wording in wordings if not wording.get("budget"))
        yield error(
            "E0511",
            f"the reward reads a question's budget, and `{lacking.name}` draws none",
            reward,
            "uses `x.budget`",
            others=[Label(lacking.span, "no `budget`")],
            help="add `budget = 100 tokens..4000 tokens` to the wording",
        )


def _bare(data: Record | None) -> bool:
    """Whether questions are known to have no numbers of their own: drawn from a task, they are a text and an answer."""
    questions = questions_of(data)
    tasks = [source.sub("task") for source in records_of(questions, "source")]
    return bool(tasks) and all(task is not None and task.kind == "task" for task in tasks)


def check_asked(suite: Record | None) -> Iterator[Diagnostic]:
    """E0512: a suite whose wording draws budgets."""
    wording = suite.sub("wording") if suite is not None else None
    if wording is not None and wording.get("budget") is not None:
        yield _budget_in(wording, "a suite asks every question alike")


def check_wording(wording: Record) -> Iterator[Diagnostic]:
    """E0512: a text without `{question}`, or `{budget}` without a budget and the other way round."""
    texts = [str(wording.data(name) or "") for name in ("question", "system", "prefix")]
    if "{question}" not in texts[0]:
        yield error(
            "E0512",
            "the question is not in its own wording",
            place(wording.fields.get("question"), wording.span),
            help="put `{question}` where it belongs",
        )
    has_budget, given = any("{budget}" in text for text in texts), wording.get("budget") is not None
    if has_budget and not given:
        yield error(
            "E0512",
            "the wording writes a budget, and none is drawn",
            wording.span,
            "holds `{budget}`",
            help="write the number out, as suites and pools want it; for training, add `budget = 100 tokens..4000 tokens`",
        )


def _budget_in(wording: Record, why: str) -> Diagnostic:
    return error(
        "E0512",
        f"`{wording.name}` draws a budget for each question, and {why}",
        place(wording.fields.get("budget"), wording.span),
        help="write the budget out in its text",
    )
