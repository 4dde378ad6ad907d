"""Check a reward or a selection in its stage: its inputs exist, and it can differ between responses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from reodsl.diagnostics.model import Diagnostic, Edit, Label, Span, error
from reodsl.ir.reward import Selection
from reodsl.ir.setting import PAIRS
from reodsl.ir.wording import ANSWER
from reodsl.language.checks.cases import (
    CheckedExperiment,
    CheckedStage,
    Settings,
    SettingView,
    case_check,
    finding_at,
    is_selective,
    list_wordings,
    ppo_check,
    stage_check,
)
from reodsl.language.context import Context
from reodsl.language.reward.body import type_reward
from reodsl.language.reward.names import INF, ResponseLimits
from reodsl.language.reward.selection import EXAMPLE, QUESTIONS_EXAMPLE, find_questions, type_selection
from reodsl.language.suggest import nearest
from reodsl.language.values import Definition, Record, TypedCondition, list_records

SPLIT_WORDING = (
    "declare its words alone, name these here, and `words { when = … }` or `words { share = … }` for training"
)
HOLE = re.compile("(?<![A-Za-z}]){([a-z_]+)}")
"""A word that looks as if something took its place in a text; behind a letter or a bracket it is LaTeX."""
TITLES = {"ppo": "PPO", "sft": "SFT", "simpo": "SimPO", "dpo": "DPO"}
TRAINS_ON = {
    "ppo": ("questions", f"select them by a condition alone: `{QUESTIONS_EXAMPLE}`"),
    "sft": ("traces", f"take a selection with a trace: `{EXAMPLE}`"),
    **dict.fromkeys(PAIRS, ("pairs", "take a selection with `preferred` and `rejected`")),
}
"""Data that each method learns from, and the selection that gives it."""


@ppo_check
def check_group(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0309: statistics over a question's responses, though each question has a single response."""
    rollouts, grouped = stage["batch.rollouts"], "group" in stage.formula.uses
    normalises = (
        "reward" in stage
        and "advantage.own" not in stage
        and stage["advantage.normalise"].text not in ("", "none")
    )
    if rollouts.number != 1 or not (grouped or normalises):
        return
    why = "its reward compares" if grouped else "rewards are normalised over"
    yield rollouts.error(
        "E0309",
        f"{why} a question's responses, and there is one response a question",
        "1 rollout",
        *([stage["reward"].label("this reward")] if grouped else []),
        help="write `rollouts = 8`" + ("" if grouped else ", or `advantage { normalise = none }`"),
    )


@ppo_check
def check_forced(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0504: a reward that forces answers needs a forcing."""
    forces = stage.formula.uses & {"forced", "truth"}
    if forces and stage.record.sub("forcing") is None and "forcing" not in stage.record.invalid:
        yield stage["reward"].error(
            "E0504",
            f"the reward forces {'answers' if 'forced' in forces else 'reference answers'}, and nothing says how",
            "forces answers",
            help="add `forcing = reo_forcing`, from `std.forcing`, or one of your own",
        )


@ppo_check
def check_reference(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0505: a reward or a wording reads samples of the reference model, and none are sampled."""
    samples, read = stage["reference_samples"], "ref" in stage.formula.uses
    conditions = list_conditions(list_wordings(stage.record.sub("rollout")))
    chooses = any("ref" in condition.reads for condition in conditions)
    if chooses and samples.number == 0:
        yield stage["rollout.wordings"].error(
            "E0505",
            "wordings are chosen by the reference model's responses, and none are sampled",
            "uses `ref`",
            help="add `reference_samples = 16`",
        )
    if read and samples.number == 0:
        yield stage["reward"].error(
            "E0505",
            "the reward compares with the reference model's responses, and none are sampled",
            "uses `ref`",
            help="add `reference_samples = 16`",
        )


@ppo_check
def check_monitor(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0530: a track of the monitor set, and the stage has no monitor set."""
    read, monitor = "monitor" in stage.formula.uses, stage.record.sub("monitor")
    if read and monitor is None and "monitor" not in stage.record.invalid:
        yield stage["reward"].error(
            "E0530",
            "the reward has a track of the monitor set, and there is none",
            "runs over `monitor`",
            help="add `monitor { questions = 64, samples = 8, every = 20 steps }`",
        )


@ppo_check
def check_greedy_rollouts(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0519: the rollouts of a question are all equal, so that all advantages are 0.

    Wordings taken in turn make different prompts, cuts make different responses, and a teacher needs no
    advantages.
    """
    rule = stage["advantage.normalise"]
    varies = _take_turns(stage) or "rollout.cut_at" in stage
    has_teacher = stage.record.data("kl") and ("teacher" in stage or "teacher_wording" in stage)
    if rule.text in ("", "none") or "advantage.own" in stage or varies or has_teacher:
        return
    for name, same, text, helps in (
        ("temperature", 0, "greedy", "write `rollout { temperature = 1 }`"),
        ("top_k", 1, "one token is left to draw", "take `top_k` out: -1 keeps all tokens"),
    ):
        setting = stage[f"rollout.{name}"]
        if setting.is_given and setting.number == same:
            labels = [setting.label(text), *stage["batch.rollouts"].labels]
            labels += [rule.label("compares the rollouts of a question")] if rule.is_given else []
            message = "nothing would be learnt: the rollouts of a question are all equal, and so are all advantages 0"
            yield finding_at(error, "E0519", message, labels, helps)
            return


@stage_check
def check_selected(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0510 for data that the method does not train on, and E0512 for wordings that a pool cannot have."""
    data, selection = stage.record.sub("data"), stage.selection
    if data is None or data.kind != "selected":
        if stage.method in PAIRS:
            yield stage["data"].error(
                "E0510",
                f"{TITLES[stage.method]} trains on pairs of responses",
                "questions alone",
                help="select them: `data = NAME(pool(…))`, with `preferred` and `rejected`",
            )
        return
    if selection is None:
        return  # what is wrong with it has been reported
    needed, helps = TRAINS_ON[stage.method]
    if selection.gives != needed:
        message = f"{TITLES[stage.method]} trains on {needed}"
        yield stage["data"].error("E0510", message, f"gives {selection.gives}", help=helps)
    if stage.pool is None:
        return
    for wording in list_wordings(stage.pool):
        yield from _check_alike(wording, "a pool asks every question alike", SPLIT_WORDING)
        yield from _check_hidden_answer(wording)
    yield from _check_pool_size(stage, data, stage.pool, selection)


def _check_pool_size(
    stage: CheckedStage, data: Record, record: Record, selection: Selection
) -> Iterator[Diagnostic]:
    """Report E0513: pairs from a pool with a single response a question, or fewer questions than fill a batch."""
    pool, ways = Settings(record), max(1, len(list_wordings(record)))
    samples = pool["samples"].number * ways
    if selection.gives == "pairs" and samples < 2:
        message = "a pair takes two responses, and the pool has one for each question"
        yield pool["samples"].error("E0513", message, help="write `samples: 16`")
    elif selection.gives == "pairs" and record.data("temperature") == 0 and ways < 2:
        message = "a pair takes two responses, and those of the pool are all equal"
        yield pool["temperature"].error("E0513", message, "greedy", help="write `temperature: 1`")
    questions, batch = record.sub("data"), stage["batch.prompts"]
    question_count = _count_questions(questions) if questions is not None else None
    if question_count is None or selection.gives == "questions":
        return  # questions fill a batch again and again, as those of any data do
    picks = question_count * selection.most(samples)
    most = picks - math.floor(selection.drop * picks + 1e-9)
    if most < batch.number:
        few = "" if most == question_count else f", at most {most} {selection.gives}"
        yield Settings(data)["pool"].error(
            "E0513",
            f"the pool has {question_count} questions{few}, which fill no batch of {batch.number:g}",
            "",
            *batch.labels,
            help=f"write `batch {{ prompts = {most} }}`, or ask more questions",
        )


def _count_questions(data: Record) -> int | None:
    """Return how many questions data has, counting duplicates; None if the spec does not say."""
    if data.data("questions") is not None:
        return int(data.data("questions"))
    counts = [source.data("count") for source in list_records(data, "source")]
    return sum(counts) if counts and all(count is not None for count in counts) else None


@ppo_check
def check_even_wordings(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0511: wordings that rollouts do not share evenly."""
    wordings, rollouts = list_wordings(stage.record.sub("rollout")), stage["batch.rollouts"]
    if _take_turns(stage) and rollouts.number % len(wordings):
        yield rollouts.error(
            "E0511",
            f"{rollouts.number:g} rollouts do not fall evenly on {len(wordings)} wordings",
            f"{rollouts.number:g} rollouts",
            help=f"write `rollouts = {max(1, int(rollouts.number) // len(wordings)) * len(wordings)}`",
        )


def _take_turns(stage: CheckedStage) -> bool:
    """Return whether a question's rollouts take wordings in turn."""
    wordings = list_wordings(stage.record.sub("rollout"))
    return (
        bool(wordings)
        and stage["rollout.wordings_per"].text == "rollout"
        and not any(map(is_selective, wordings))
        and not any(Settings(wording)["share"].is_given for wording in wordings)
    )


def list_conditions(wordings: list[Record]) -> list[TypedCondition]:
    """Return the conditions of the wordings that have a `when`."""
    return [condition for wording in wordings if isinstance(condition := wording.sub("when"), TypedCondition)]


@ppo_check
def check_chosen_wordings(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0511: wordings for some questions, of which the last is not for all other questions.

    E0521 if the only share is 100%.
    """
    wordings = list_wordings(stage.record.sub("rollout"))
    if not any(map(is_selective, wordings)):
        for item in wordings:
            if (share := Settings(item)["share"]).is_given:
                message = f"a share of 100% is all questions, and says nothing of when `{item.name}` is asked"
                helps = "write a share below 100%, which leaves the rest to the next wording, or take it out"
                yield share.error("E0521", message, "has no effect", help=helps)
        return
    yield from _check_reachable(wordings, stage["rollout.wordings"])
    per = stage["rollout.wordings_per"]
    if per.is_given:
        helps = "take it out: a question is asked in the first wording that is for it"
        yield per.error(
            "E0511", "wordings are chosen by the question, and not in turn", "has no effect", help=helps
        )


def _check_reachable(wordings: list[Record], named: SettingView) -> Iterator[Diagnostic]:
    """Report E0511: questions that no wording is for, or a wording that is for no question."""
    conditions = set()
    for wording in wordings[:-1]:
        condition = wording.sub("when")
        text = None if condition is None else condition.name
        if not is_selective(wording) or text in conditions:
            why = (
                "has the `when` of one before it, and"
                if text in conditions
                else "is for all questions, and those behind it"
            )
            yield named.error(
                "E0511",
                f"`{wording.name}` {why} would never be asked",
                "the first that is for a question is asked",
                Label(wording.span, "declared here"),
                help=f"give `{wording.name}` a `when` of its own, or put it last",
            )
            return
        if wording.data("share") in (None, 1):
            conditions.add(text)
    last = wordings[-1]
    if is_selective(last):
        setting = "when" if last.get("when") is not None else "share"
        yield named.error(
            "E0511",
            "a question that none of the wordings is for would not be asked",
            "all are for some",
            Settings(last)[setting].label(f"has a `{setting}`"),
            help="end the list in a wording without `when` and `share`, which is for all others",
        )


@ppo_check
def check_read_wordings(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0511: the reward reads what questions or wordings do not have."""
    wordings, reward, uses = list_wordings(stage.record.sub("rollout")), stage["reward"], stage.formula.uses
    data = find_questions(stage.record.sub("data"))
    bare = _is_generated(data)
    verifier = data.sub("verifier") if data is not None else None
    teacher, judged = stage["teacher_wording"], verifier is not None and verifier.kind == "tests"
    for applies, who_reads, does, label, instead in (
        (
            "truth" in uses,
            reward,
            "the reward reads",
            "reads `truth(…)`",
            "ask about tokens of the response, `mean(prob(t) for t in y)`",
        ),
        (
            _shows_answer(stage.record.sub("teacher_wording")),
            teacher,
            "the teacher is told",
            "holds `{answer}`",
            "take `{answer}` out",
        ),
    ):
        if applies and judged and data is not None:
            yield who_reads.error(
                "E0511",
                f"{does} reference answers, and the questions have programs that judge in their place",
                label,
                Settings(data)["verifier"].label("judged by programs"),
                help=f"{instead}, or train on questions that have answers",
            )
    if "mode" in uses and not wordings:
        yield reward.error(
            "E0511",
            "the reward reads the mode of a response, and all are asked alike",
            "uses `mode`",
            help="add `rollout { wordings = [think, no_think] }`, after `from std.wordings import think, no_think`",
        )
    if "prefix" in uses and not any(wording.data("prefix") for wording in wordings):
        yield reward.error(
            "E0511",
            "a part of the reward is earned by the tokens of a prefix, and no response begins with one",
            "has a part `on: prefix`",
            help='declare `wording no_think { prefix = "</think>" }`, and add `wordings = [no_think]` to `rollout`',
        )
    reads = {use for condition in list_conditions(wordings) for use in condition.reads}
    if "given" in {*uses, *reads} and bare:
        by, who, other = (
            (reward, "the reward", "the response: `len(y)`")
            if "given" in uses
            else (stage["rollout.wordings"], "a `when`", "the reference model's: `mean(len(z) for z in ref)`")
        )
        yield by.error(
            "E0511",
            f"{who} reads numbers of its questions, and those that a task draws have none",
            "uses `x.…`",
            help=f"read questions from a file that has such a column, or measure {other}",
        )
    if "budget" in uses and not wordings and bare:
        yield reward.error(
            "E0511",
            "the reward reads a question's budget, and none is drawn",
            "uses `x.budget`",
            help='declare `wording within { question = "{question} Think for {budget} tokens.",'
            " budget = 100 tokens..4000 tokens }`, and add `wordings = [within]` to `rollout`",
        )
    numbers = stage.formula.fields | _list_numbers(wordings)
    yield from _check_columns(
        data, {name: span for name, span in numbers.items() if name != "budget" or not wordings}
    )
    lacking = [wording for wording in wordings if not wording.get("budget")]
    if "budget" in uses and lacking:
        yield reward.error(
            "E0511",
            f"the reward reads a question's budget, and `{lacking[0].name}` draws none",
            "uses `x.budget`",
            Label(lacking[0].span, "no `budget`"),
            help="add `budget = 100 tokens..4000 tokens` to the wording",
        )


def _list_numbers(wordings: list[Record]) -> dict[str, Span]:
    """Return the numbers of a question by which wordings are chosen, each with its first span."""
    return {name: span for condition in list_conditions(wordings) for name, span in condition.numbers.items()}


def _check_columns(data: Record | None, numbers: Mapping[str, Span]) -> Iterator[Diagnostic]:
    """Report E0511: numbers of questions from a file or a hub, whose columns are not kept."""
    for source in list_records(data, "source"):
        if source.kind not in ("file", "hub") or data is None:
            continue
        columns = source.sub("columns")
        paths = columns.data("meta") if columns is not None else ()
        for name, span in numbers.items():
            if any(name == path or name.startswith(f"{path}.") for path in paths):
                continue
            fields = {path.rpartition(".")[2]: path for path in paths} | {path: path for path in paths}
            nearest_name = nearest(name, fields)
            listed = ", ".join(f'"{path}"' for path in (*paths, name))
            yield error(
                "E0511",
                f"`x.{name}` is read, and the questions of `{data.name}` keep no column `{name}`",
                span,
                "not kept",
                labels=[Label(columns.span if columns is not None else source.span, "what is kept")],
                help=f"did you mean `x.{fields[nearest_name]}`?"
                if nearest_name
                else f"keep the column that has it: `columns: columns(meta: [{listed}])`",
                edits=[Edit(span, f"x.{fields[nearest_name]}")] if nearest_name else (),
            )


def _is_generated(data: Record | None) -> bool:
    """Return whether a task generates all questions, which are then a text and an answer."""
    tasks = [source.sub("task") for source in list_records(data, "source")]
    return bool(tasks) and all(task is not None and task.kind == "task" for task in tasks)


@case_check
def check_suite_wordings(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0511, E0512: wordings of a suite that draw budgets, or that read what an evaluation does not know.

    E0505 if a `when` reads a reference that is not sampled.
    """
    if case.suite is None:
        return
    wording, wordings = case.suite.sub("wording"), list_wordings(case.suite)
    if wording is not None:
        helps = f"name it in a list that ends in a wording for all others: `wordings = [{wording.name}, …]`"
        yield from _check_alike(wording, "`wording` asks every question", helps)
        yield from _check_hidden_answer(wording)
    named, conditions = case.evaluation["wordings"], list_conditions(wordings)
    yield from _check_suite_reference(case.evaluation, conditions)
    if not wordings:
        return
    if wording is not None:
        helps = "take one of them out"
        yield named.error("E0512", "a suite has `wording` and `wordings`", "is a list", help=helps)
        return
    for suite_wording in wordings:
        yield from _check_unbudgeted(suite_wording, "a suite draws none")
        yield from _check_hidden_answer(suite_wording)
    if not any(map(is_selective, wordings)):
        helps = f"write `wording = {wordings[-1].name}`, or give all but the last a `when`"
        yield named.error(
            "E0511",
            "a suite asks a question in one wording, and no `when` or `share` says in which",
            "",
            help=helps,
        )
        return
    yield from _check_reachable(wordings, named)
    for benchmark in list_records(case.suite, "benchmarks"):
        if unkept := [*_check_columns(benchmark.sub("data"), _list_numbers(wordings))]:
            yield from unkept
            return
        if _is_generated(benchmark.sub("data")) and any("given" in item.reads for item in conditions):
            yield named.error(
                "E0511",
                f"a `when` reads numbers of the questions, and those of `{benchmark.name}`, which a task draws, have none",
                "uses `x.…`",
                help="evaluate on questions from a file that has such a column",
            )
            return


def _check_suite_reference(suite: Settings, conditions: list[TypedCondition]) -> Iterator[Diagnostic]:
    """Report E0505: a `when` reads a reference, and the suite samples none."""
    reads = next((remedy for remedy in conditions if "ref" in remedy.reads), None)
    reference, samples = suite["reference"], suite["reference_samples"]
    if reads is None:
        return
    lacking = [
        remedy
        for remedy, is_given in (
            ("reference = checkpoint(start)`, the model that training began with", reference.is_given),
            ("reference_samples = 16`, as many as training", samples.is_given and samples.number),
        )
        if not is_given
    ]
    if lacking:
        yield suite["wordings"].error(
            "E0505",
            "wordings are chosen by the reference model's responses, and an evaluation samples none",
            "",
            Label(reads.span, "uses `ref`"),
            help=f"add `{', and `'.join(lacking)}",
        )


@ppo_check
def check_teacher_wording(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0512: a teacher's wording that samples a budget for each question, or a policy's wording with the answer."""
    for rollout_wording in list_wordings(stage.record.sub("rollout")):
        yield from _check_hidden_answer(rollout_wording)
    wording = stage.record.sub("teacher_wording")
    if wording is not None:
        yield from _check_alike(wording, "a teacher is asked every question alike", SPLIT_WORDING)


def check_wording(wording: Record) -> Iterator[Diagnostic]:
    """Report E0512, W0520: a text without `{question}`, or with words in braces that nothing fills."""
    texts = [str(wording.data(name) or "") for name in ("question", "system", "prefix")]
    if "{question}" not in texts[0]:
        helps = "put `{question}` where it belongs"
        yield Settings(wording)["question"].error(
            "E0512", "the question is not in its own wording", help=helps
        )
    for name, text in zip(("system", "prefix"), texts[1:], strict=True):
        if ANSWER.search(text):
            helps = "tell a teacher the answer in its `question`, and write other words here"
            yield Settings(wording)[name].error(
                "E0512", "the answer is told in `question` alone", "holds `{answer}`", help=helps
            )
    if any("{budget}" in text for text in texts) and wording.get("budget") is None:
        yield error(
            "E0512",
            "the wording writes a budget, and none is drawn",
            wording.span,
            "holds `{budget}`",
            help="write the number out, as suites and pools want it; for training, add `budget = 100 tokens..4000 tokens`",
        )
    for name, text in zip(("question", "system", "prefix"), texts, strict=True):
        filled = ("question", "budget", "answer") if name == "question" else ("budget", "answer")
        unknown = next((word for word in HOLE.findall(text) if word not in filled), None)
        if unknown is not None and Settings(wording)[name].is_given:
            yield Settings(wording)[name].warning(
                "W0520",
                f"nothing takes the place of `{{{unknown}}}`: models read it as it stands",
                "has no effect",
                help=f"take `{{{unknown}}}` out; what is filled in here is `{{{filled[0]}}}`",
            )


def _shows_answer(wording: Record | None) -> bool:
    """Return whether a wording holds the question's reference answer."""
    return wording is not None and ANSWER.search(str(wording.data("question") or "")) is not None


def _check_hidden_answer(wording: Record) -> Iterator[Diagnostic]:
    """Report E0512: a wording that holds the answer for a model that has to find it."""
    if _shows_answer(wording):
        yield Settings(wording)["question"].error(
            "E0512",
            f"`{wording.name}` tells the answer, and a teacher alone may know it",
            "holds `{answer}`",
            help="take `{answer}` out, and name a wording that has it as `teacher_wording`",
        )


def _check_alike(wording: Record, why: str, helps: str) -> Iterator[Diagnostic]:
    """Report E0512: a wording that asks questions differently, by budgets or by a condition; `why` it must not."""
    yield from _check_unbudgeted(wording, why)
    if is_selective(wording):
        message = f"`{wording.name}` is for some questions alone, and {why}"
        setting = "when" if wording.get("when") is not None else "share"
        yield Settings(wording)[setting].error("E0512", message, help=helps)


def _check_unbudgeted(wording: Record, why: str) -> Iterator[Diagnostic]:
    """Report E0512: a wording that draws budgets; `why` it must not."""
    if wording.get("budget") is not None:
        message = f"`{wording.name}` draws a budget for each question, and {why}"
        yield Settings(wording)["budget"].error("E0512", message, help="write the budget out in its text")


@stage_check
def check_limits(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0301, E0307, E0316: a reward that is constant or no number here, or a condition that never holds.

    Findings that hold for any responses are reported at the declaration instead.
    """
    ctx, pool, reward = case.ctx, stage.pool, stage.record.sub("reward")
    rule, rollout = stage.record.sub("data.selection"), stage.record.sub("rollout")
    if pool is not None and isinstance(rule, Definition):
        ways = max(1, len(list_wordings(pool)))
        limits = _limits(pool, ways, pool.data("samples") * ways)
        yield from ctx.memoize(str(limits), rule, lambda: _check_selection(ctx, rule, limits))
    if stage.reward is None or not isinstance(reward, Definition) or rollout is None:
        return
    count = stage["batch.rollouts"].number if "batch.rollouts" in stage else INF
    # A mode where all are asked alike is a mistake of its own (E0511).
    stage_limits = _limits(rollout, len(list_wordings(rollout)) or INF, count)
    yield from ctx.memoize(str(stage_limits), reward, lambda: _check_reward(ctx, reward, stage_limits))


def _check_selection(ctx: Context, rule: Definition, limits: ResponseLimits) -> list[Diagnostic]:
    trial = ctx.trial()
    type_selection(trial, rule, limits=limits)
    return list(_add_note(trial, "E0316", "a pool", limits))


def _check_reward(ctx: Context, reward: Definition, limits: ResponseLimits) -> list[Diagnostic]:
    trial = ctx.trial()
    type_reward(trial, reward, limits=limits)
    return [finding for code in ("W0301", "E0307") for finding in _add_note(trial, code, "training", limits)]


def _limits(sampling: Record, ways: float, group: float) -> ResponseLimits:
    longest = sampling.data("max_tokens")
    if any(wording.data("prefix") for wording in list_wordings(sampling)):
        longest = None  # what a response was made to begin with comes on top
    return ResponseLimits(INF if longest is None else longest, ways, group)


def _add_note(trial: Context, code: str, where: str, limits: ResponseLimits) -> Iterator[Diagnostic]:
    """Yield the findings of a code, each with the limits from which it follows."""
    facts = [f"{limits.group:g} responses a question"] if limits.group < INF else []
    facts += [f"at most {limits.longest:g} tokens each"] if limits.longest < INF else []
    note = f"{where} has {', '.join(facts)}"
    for finding in trial.own_findings:
        if finding.code == code:
            yield replace(finding, notes=(note, *finding.notes)) if facts else finding
