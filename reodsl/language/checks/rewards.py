"""Check a reward or a selection in its stage: its inputs exist, and it can differ between responses."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

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
    "name a wording without it here, and write `NAME { when = … }` or `NAME { share = … }` for training"
)
"""The help for a wording with a condition or a share where the same text must serve all questions."""
HOLE = re.compile("(?<![A-Za-z}]){([a-z_]+)}")
"""A placeholder in the text of a wording, such as `{question}`; after a letter or a brace, braces are LaTeX."""
TITLES = {"ppo": "PPO", "sft": "SFT", "simpo": "SimPO", "dpo": "DPO"}
TRAINS_ON = {
    "ppo": ("questions", f"select them by a condition alone: `{QUESTIONS_EXAMPLE}`"),
    "sft": ("traces", f"take a selection with a trace: `{EXAMPLE}`"),
    **dict.fromkeys(PAIRS, ("pairs", "take a selection with `preferred` and `rejected`")),
}
"""The data that a training method needs, and the help for another kind of data, by method."""


@ppo_check
def check_group(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0309 if the responses to a question are compared, although `rollouts` is 1.

    A reward compares responses if it reads `group`. Advantages compare them if they are normalised by a rule of the
    language, and not computed by a user's function.
    """
    rollouts, grouped = stage["batch.rollouts"], "group" in stage.formula.uses
    normalises = (
        "reward" in stage
        and "advantage.own" not in stage
        and stage["advantage.normalise"].text not in ("", "none")
    )
    if rollouts.number != 1 or not (grouped or normalises):
        return
    reason = "its reward compares" if grouped else "rewards are normalised over"
    yield rollouts.error(
        "E0309",
        f"{reason} a question's responses, and there is one response a question",
        "1 rollout",
        *([stage["reward"].label("this reward")] if grouped else []),
        help="write `rollouts = 8`" + ("" if grouped else ", or `advantage { normalise = none }`"),
    )


@ppo_check
def check_forced(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0504 if a reward forces answers at cuts and the stage has no `forcing`, the text to force them with."""
    forces = stage.formula.uses & {"forced", "truth"}
    if forces and stage.record.sub("forcing") is None and "forcing" not in stage.record.invalid:
        yield stage["reward"].error(
            "E0504",
            f"the reward forces {'answers' if 'forced' in forces else 'reference answers'}, and the stage has no `forcing`",
            "forces answers",
            help="add `forcing = reo_forcing`, from `std.forcing`, or declare a `forcing`",
        )


@ppo_check
def check_reference(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0505 if a reward or a wording's `when` reads responses of the reference model, and none are sampled."""
    samples, reward_reads = stage["reference_samples"], "ref" in stage.formula.uses
    conditions = list_conditions(list_wordings(stage.record.sub("rollout")))
    wordings_read = any("ref" in condition.reads for condition in conditions)
    if wordings_read and samples.number == 0:
        yield stage["rollout.wordings"].error(
            "E0505",
            "wordings are chosen by the reference model's responses, and none are sampled",
            "uses `ref`",
            help="add `reference_samples = 16`",
        )
    if reward_reads and samples.number == 0:
        yield stage["reward"].error(
            "E0505",
            "the reward compares with the reference model's responses, and none are sampled",
            "uses `ref`",
            help="add `reference_samples = 16`",
        )


@ppo_check
def check_monitor(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0530 if a track of the reward reads the monitor set, and the stage has no `monitor`.

    A track is a number that is computed before each step, for example a mean length in earlier steps. The monitor
    set is a set of questions that is measured every few steps of a training.
    """
    is_read, monitor = "monitor" in stage.formula.uses, stage.record.sub("monitor")
    if is_read and monitor is None and "monitor" not in stage.record.invalid:
        yield stage["reward"].error(
            "E0530",
            "the reward has a track of the monitor set, and the stage has no `monitor`",
            "runs over `monitor`",
            help="add `monitor { questions = 64, samples = 8, every = 20 steps }`",
        )


@ppo_check
def check_greedy_rollouts(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0519 if greedy sampling makes all rollouts of a question equal, and so all advantages 0.

    Nothing is reported in these cases: wordings alternate or responses are cut, which makes rollouts differ; the
    stage learns from a teacher, which needs no advantages; advantages are not normalised; or a user's function
    computes them.
    """
    normalise = stage["advantage.normalise"]
    rollouts_differ = _alternates_wordings(stage) or "rollout.cut_at" in stage
    has_teacher = stage.record.data("kl") and ("teacher" in stage or "teacher_wording" in stage)
    if normalise.text in ("", "none") or "advantage.own" in stage or rollouts_differ or has_teacher:
        return
    for name, greedy_value, text, hint in (
        ("temperature", 0, "greedy", "write `rollout { temperature = 1 }`"),
        ("top_k", 1, "draws the most likely token", "take `top_k` out: -1 keeps all tokens"),
    ):
        setting = stage[f"rollout.{name}"]
        if setting.is_given and setting.number == greedy_value:
            labels = [setting.label(text), *stage["batch.rollouts"].labels]
            labels += [normalise.label("compares the rollouts of a question")] if normalise.is_given else []
            message = "nothing would be learnt: all rollouts of a question are equal, so all advantages are 0"
            yield finding_at(error, "E0519", message, labels, hint)
            return


@stage_check
def check_selected(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Check the selection of responses or questions that a stage trains on.

    Report E0510 for data that the method does not train on, such as questions for SimPO. Report E0512 for
    wordings that the pool of responses cannot have, and E0513 for a pool that is too small. Data without a
    selection is only reported for a method that trains on pairs, such as SimPO.
    """
    data, selection = stage.record.sub("data"), stage.selection
    if data is None or data.kind != "selected":
        if stage.method in PAIRS:
            yield stage["data"].error(
                "E0510",
                f"{TITLES[stage.method]} trains on pairs of responses",
                "has only questions",
                help="select pairs: `data = NAME(pool(…))`, with `preferred` and `rejected`",
            )
        return
    if selection is None:
        return  # A wrong selection has its own finding.
    needed, hint = TRAINS_ON[stage.method]
    if selection.gives != needed:
        message = f"{TITLES[stage.method]} trains on {needed}"
        yield stage["data"].error("E0510", message, f"gives {selection.gives}", help=hint)
    if stage.pool is None:
        return
    for wording in list_wordings(stage.pool):
        yield from _check_alike(wording, "a pool asks all questions with the same wording", SPLIT_WORDING)
        yield from _check_hidden_answer(wording)
    yield from _check_pool_size(stage, data, stage.pool, selection)


def _check_pool_size(
    stage: CheckedStage, data: Record, record: Record, selection: Selection
) -> Iterator[Diagnostic]:
    """Report E0513 if a pool has too few different responses for pairs, or too few examples for a batch.

    The number of examples is bounded from above: the questions of the pool, times the most traces or pairs that the
    selection picks of each, less the share that it drops. Nothing is counted for a selection of questions, which
    steps may repeat, and if the spec does not say how many questions there are.

    Args:
        stage: The stage that trains on the selection.
        data: The selection as a record of settings, which the finding shows.
        record: The pool as a record of settings.
        selection: The typed selection.
    """
    pool, num_wordings = Settings(record), max(1, len(list_wordings(record)))
    samples = pool["samples"].number * num_wordings
    if selection.gives == "pairs" and samples < 2:
        message = "a pair takes two responses, and the pool has one for each question"
        yield pool["samples"].error("E0513", message, help="write `samples: 16`")
    elif selection.gives == "pairs" and record.data("temperature") == 0 and num_wordings < 2:
        message = "a pair takes two different responses, and the pool's responses to a question are equal"
        yield pool["temperature"].error("E0513", message, "greedy", help="write `temperature: 1`")
    questions, batch = record.sub("data"), stage["batch.prompts"]
    question_count = _count_questions(questions) if questions is not None else None
    if question_count is None or selection.gives == "questions":
        return  # A step may use a question again, so that any number of questions fills a batch.
    picks = question_count * selection.most(samples)
    examples = picks - math.floor(selection.drop * picks + 1e-9)
    if examples < batch.number:
        count = "" if examples == question_count else f", at most {examples} {selection.gives}"
        yield Settings(data)["pool"].error(
            "E0513",
            f"the pool has {question_count} questions{count}, too few for a batch of {batch.number:g}",
            "",
            *batch.labels,
            help=f"write `batch {{ prompts = {examples} }}`, or ask more questions",
        )


def _count_questions(data: Record) -> int | None:
    """Return the number of questions of a data set, with duplicates.

    This is the setting `questions`, or else the sum of the sources' `count`. None if there is neither, or if a
    source has no `count`.
    """
    if data.data("questions") is not None:
        return int(data.data("questions"))
    counts = [source.data("count") for source in list_records(data, "source")]
    return sum(counts) if counts and all(count is not None for count in counts) else None


@ppo_check
def check_even_wordings(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0511 if the rollouts of a question cannot be divided evenly among wordings that alternate."""
    wordings, rollouts = list_wordings(stage.record.sub("rollout")), stage["batch.rollouts"]
    if _alternates_wordings(stage) and rollouts.number % len(wordings):
        yield rollouts.error(
            "E0511",
            f"{rollouts.number:g} rollouts do not divide evenly among {len(wordings)} wordings",
            f"{rollouts.number:g} rollouts",
            help=f"write `rollouts = {max(1, int(rollouts.number) // len(wordings)) * len(wordings)}`",
        )


def _alternates_wordings(stage: CheckedStage) -> bool:
    """Return whether the rollouts of a question use the wordings in turn.

    This needs `wordings_per = rollout`, and no wording with a condition or a share.
    """
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
    """Check the `when` and `share` of a stage's wordings, by which each question uses the first wording that fits.

    If a wording has a `when`, or a `share` below 100%, report E0511 for a wording that no question uses, if some
    questions have no wording, and for `wordings_per`, which then has no effect. Otherwise report E0521 for each
    `share`, since 100% of the questions are all questions.
    """
    wordings = list_wordings(stage.record.sub("rollout"))
    if not any(map(is_selective, wordings)):
        for item in wordings:
            if (share := Settings(item)["share"]).is_given:
                message = f"a share of 100% is all questions, so `{item.name}` is not for some questions only"
                hint = "write a share below 100%, which leaves questions to the next wording, or take it out"
                yield share.error("E0521", message, "has no effect", help=hint)
        return
    yield from _check_reachable(wordings, stage["rollout.wordings"])
    per = stage["rollout.wordings_per"]
    if per.is_given:
        hint = "take `wordings_per` out: a question uses the first wording whose `when` and `share` fit"
        yield per.error(
            "E0511", "these wordings depend on the question, and do not alternate", "has no effect", help=hint
        )


def _check_reachable(wordings: list[Record], setting: SettingView) -> Iterator[Diagnostic]:
    """Report E0511 for a wording that no question uses, or if some questions may have no wording.

    A question uses the first wording whose `when` and `share` fit.

    Args:
        wordings: The wordings in their order.
        setting: The setting that lists them.
    """
    earlier_conditions = set()
    for wording in wordings[:-1]:
        condition = wording.sub("when")
        text = None if condition is None else condition.name
        if not is_selective(wording) or text in earlier_conditions:
            message = (
                f"`{wording.name}` is never used, because an earlier wording has the same `when`"
                if text in earlier_conditions
                else f"`{wording.name}` is for all questions, so the wordings after it are never used"
            )
            yield setting.error(
                "E0511",
                message,
                "a question uses the first wording that fits",
                Label(wording.span, "declared here"),
                help=f"give `{wording.name}` another `when`, or put it last",
            )
            return
        if wording.data("share") in (None, 1):
            earlier_conditions.add(text)
    last = wordings[-1]
    if is_selective(last):
        name = "when" if last.get("when") is not None else "share"
        yield setting.error(
            "E0511",
            "a question may fit none of these wordings",
            "all have a `when` or a `share`",
            Settings(last)[name].label(f"has a `{name}`"),
            help="end the list with a wording without `when` and `share`, for all other questions",
        )


@ppo_check
def check_read_wordings(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0511 if something is read that the questions or the wordings of a stage do not have.

    The readers are the reward, the `when` of a wording, and the wording of a teacher. They may read reference
    answers, the modes, prefixes and budgets of wordings, and the columns of questions (`x.NAME`).
    """
    wordings, reward, uses = list_wordings(stage.record.sub("rollout")), stage["reward"], stage.formula.uses
    data = find_questions(stage.record.sub("data"))
    is_generated = _is_generated(data)
    verifier = data.sub("verifier") if data is not None else None
    teacher, has_programs = stage["teacher_wording"], verifier is not None and verifier.kind == "tests"
    for reads_answers, setting, subject, label, alternative in (
        (
            "truth" in uses,
            reward,
            "the reward reads",
            "reads `truth(…)`",
            "read the probabilities of the response's tokens, `mean(prob(t) for t in y)`",
        ),
        (
            _shows_answer(stage.record.sub("teacher_wording")),
            teacher,
            "the teacher's wording shows",
            "has `{answer}`",
            "take `{answer}` out",
        ),
    ):
        if reads_answers and has_programs and data is not None:
            yield setting.error(
                "E0511",
                f"{subject} reference answers, and the questions have test programs instead",
                label,
                Settings(data)["verifier"].label("graded by programs"),
                help=f"{alternative}, or train on questions that have answers",
            )
    if "mode" in uses and not wordings:
        yield reward.error(
            "E0511",
            "the reward reads the mode of a response, and the stage has no wordings, which are the modes",
            "uses `mode`",
            help="add `rollout { wordings = [think, no_think] }`, after `from std.wordings import think, no_think`",
        )
    if "prefix" in uses and not any(wording.data("prefix") for wording in wordings):
        yield reward.error(
            "E0511",
            "a part of the reward is earned by the tokens of a prefix, and no response begins with a prefix",
            "has a part `on: prefix`",
            help='declare `wording no_think { prefix = "</think>" }`, and add `wordings = [no_think]` to `rollout`',
        )
    reads = {use for condition in list_conditions(wordings) for use in condition.reads}
    if "given" in {*uses, *reads} and is_generated:
        setting, subject, measure = (
            (reward, "the reward", "the response: `len(y)`")
            if "given" in uses
            else (stage["rollout.wordings"], "a `when`", "responses of `ref`: `mean(len(z) for z in ref)`")
        )
        yield setting.error(
            "E0511",
            f"{subject} reads numbers of the questions, and generated questions have none",
            "uses `x.…`",
            help=f"read questions from a file that has such a column, or measure {measure}",
        )
    if "budget" in uses and not wordings and is_generated:
        yield reward.error(
            "E0511",
            "the reward reads a question's budget, and no wording draws budgets",
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
            f"the reward reads a question's budget, and the wording `{lacking[0].name}` has no `budget`",
            "uses `x.budget`",
            Label(lacking[0].span, "no `budget`"),
            help="add `budget = 100 tokens..4000 tokens` to the wording",
        )


def _list_numbers(wordings: list[Record]) -> dict[str, Span]:
    """Return the columns of questions that conditions of wordings read as `x.NAME`, with a span for each column."""
    return {name: span for condition in list_conditions(wordings) for name, span in condition.numbers.items()}


def _check_columns(data: Record | None, numbers: Mapping[str, Span]) -> Iterator[Diagnostic]:
    """Report E0511 for each column that is read as `x.NAME` and that `columns(meta: …)` of the data does not keep.

    Only sources that are files or repositories of a hub have columns; other sources are not checked.

    Args:
        data: The data set; None has no columns to check.
        numbers: The names of the columns that are read, each with the span of its use.
    """
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
                labels=[Label(columns.span if columns is not None else source.span, "the columns to keep")],
                help=f"did you mean `x.{fields[nearest_name]}`?"
                if nearest_name
                else f"keep the column that has it: `columns: columns(meta: [{listed}])`",
                edits=[Edit(span, f"x.{fields[nearest_name]}")] if nearest_name else (),
            )


def _is_generated(data: Record | None) -> bool:
    """Return whether a `task` generates all questions of a data set, which then have no columns."""
    tasks = [source.sub("task") for source in list_records(data, "source")]
    return bool(tasks) and all(task is not None and task.kind == "task" for task in tasks)


@case_check
def check_suite_wordings(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Check the wording or wordings with which a suite asks its questions.

    Report E0512 for both `wording` and `wordings`, and for a wording that an evaluation cannot use: with random
    budgets, with the reference answer, or a single `wording` with a condition. Report E0511 if it is unclear which
    wording a question uses, or if a `when` reads a column that a benchmark lacks. Report E0505 if a `when` reads
    responses of a reference model that are not sampled.
    """
    if case.suite is None:
        return
    wording, wordings = case.suite.sub("wording"), list_wordings(case.suite)
    if wording is not None:
        hint = f"write a list that ends with a wording for other questions: `wordings = [{wording.name}, …]`"
        yield from _check_alike(wording, "`wording` is for every question", hint)
        yield from _check_hidden_answer(wording)
    setting, conditions = case.evaluation["wordings"], list_conditions(wordings)
    yield from _check_suite_reference(case.evaluation, conditions)
    if not wordings:
        return
    if wording is not None:
        hint = "take `wording` or `wordings` out"
        yield setting.error("E0512", "the suite has both `wording` and `wordings`", "is a list", help=hint)
        return
    for suite_wording in wordings:
        yield from _check_unbudgeted(suite_wording, "a suite draws no budgets")
        yield from _check_hidden_answer(suite_wording)
    if not any(map(is_selective, wordings)):
        hint = f"write `wording = {wordings[-1].name}`, or give all but the last a `when`"
        yield setting.error(
            "E0511",
            "a suite asks a question in one wording, and no `when` or `share` says in which",
            "",
            help=hint,
        )
        return
    yield from _check_reachable(wordings, setting)
    for benchmark in list_records(case.suite, "benchmarks"):
        if findings := [*_check_columns(benchmark.sub("data"), _list_numbers(wordings))]:
            yield from findings
            return
        if _is_generated(benchmark.sub("data")) and any("given" in item.reads for item in conditions):
            yield setting.error(
                "E0511",
                f"a `when` reads numbers of the questions, and the generated questions of `{benchmark.name}` have none",
                "uses `x.…`",
                help="evaluate on questions from a file that has such a column",
            )
            return


def _check_suite_reference(suite: Settings, conditions: list[TypedCondition]) -> Iterator[Diagnostic]:
    """Report E0505 if a `when` reads responses of the reference model, which the suite does not sample.

    Args:
        suite: The settings of the suite, which needs `reference` and `reference_samples`.
        conditions: The conditions (`when`) of the suite's wordings.
    """
    reader = next((condition for condition in conditions if "ref" in condition.reads), None)
    reference, samples = suite["reference"], suite["reference_samples"]
    if reader is None:
        return
    additions = [
        addition
        for addition, is_given in (
            ("reference = checkpoint(start)`, the model that training began with", reference.is_given),
            ("reference_samples = 16`, as many as training", samples.is_given and samples.number),
        )
        if not is_given
    ]
    if additions:
        yield suite["wordings"].error(
            "E0505",
            "wordings are chosen by the reference model's responses, and an evaluation samples none",
            "",
            Label(reader.span, "uses `ref`"),
            help=f"add `{', and `'.join(additions)}",
        )


@ppo_check
def check_teacher_wording(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Check the wordings of rollouts and of the teacher.

    Report E0512 if a wording of rollouts shows the reference answer. Also report E0512 if the teacher's wording
    depends on the question, by a random budget, a `when` or a `share`: a teacher reads all questions alike.
    """
    for rollout_wording in list_wordings(stage.record.sub("rollout")):
        yield from _check_hidden_answer(rollout_wording)
    wording = stage.record.sub("teacher_wording")
    if wording is not None:
        yield from _check_alike(wording, "a teacher reads all questions with the same wording", SPLIT_WORDING)


def check_wording(wording: Record) -> Iterator[Diagnostic]:
    """Check the placeholders in the texts of a declared wording, such as `{question}`.

    Report E0512 if the text has no `{question}`, has `{answer}` outside `question`, or has `{budget}` without a
    range to draw from. Report W0520 for unknown placeholders.
    """
    texts = [str(wording.data(name) or "") for name in ("question", "system", "prefix")]
    if "{question}" not in texts[0]:
        hint = "write `{question}` where the question belongs"
        yield Settings(wording)["question"].error(
            "E0512", "the text of `question` has no `{question}`", help=hint
        )
    for name, text in zip(("system", "prefix"), texts[1:], strict=True):
        if ANSWER.search(text):
            hint = "show a teacher the answer in its `question`, and write another text here"
            yield Settings(wording)[name].error(
                "E0512", "only `question` may show the answer", "has `{answer}`", help=hint
            )
    if any("{budget}" in text for text in texts) and wording.get("budget") is None:
        yield error(
            "E0512",
            "the text of the wording has a budget, and no `budget` is set to draw it from",
            wording.span,
            "has `{budget}`",
            help="write the number, as suites and pools need it; for training, add `budget = 100 tokens..4000 tokens`",
        )
    for name, text in zip(("question", "system", "prefix"), texts, strict=True):
        placeholders = ("question", "budget", "answer") if name == "question" else ("budget", "answer")
        unknown = next((word for word in HOLE.findall(text) if word not in placeholders), None)
        if unknown is not None and Settings(wording)[name].is_given:
            yield Settings(wording)[name].warning(
                "W0520",
                f"`{{{unknown}}}` is not a placeholder, so models read it unchanged",
                "not replaced",
                help=f"take `{{{unknown}}}` out; `{name}` has the placeholder `{{{placeholders[0]}}}`",
            )


def _shows_answer(wording: Record | None) -> bool:
    """Return whether the text of a wording shows the question's reference answer (`{answer}`)."""
    return wording is not None and ANSWER.search(str(wording.data("question") or "")) is not None


def _check_hidden_answer(wording: Record) -> Iterator[Diagnostic]:
    """Report E0512 if a wording shows the reference answer, which only a teacher's wording may do."""
    if _shows_answer(wording):
        yield Settings(wording)["question"].error(
            "E0512",
            f"`{wording.name}` shows the answer, which only a teacher may read",
            "has `{answer}`",
            help="take `{answer}` out, and name a wording with the answer as `teacher_wording`",
        )


def _check_alike(wording: Record, reason: str, hint: str) -> Iterator[Diagnostic]:
    """Report E0512 if a wording depends on the question, by a random budget or a condition.

    Args:
        wording: The wording.
        reason: Why this wording must not, for the message.
        hint: What to write instead of a condition.
    """
    yield from _check_unbudgeted(wording, reason)
    if is_selective(wording):
        message = f"`{wording.name}` is for some questions only, and {reason}"
        setting = "when" if wording.get("when") is not None else "share"
        yield Settings(wording)[setting].error("E0512", message, help=hint)


def _check_unbudgeted(wording: Record, reason: str) -> Iterator[Diagnostic]:
    """Report E0512 if a wording draws a random budget for each question; `reason` says why this wording must not."""
    if wording.get("budget") is not None:
        message = f"`{wording.name}` draws a budget for each question, and {reason}"
        yield Settings(wording)["budget"].error("E0512", message, help="write a fixed budget in the text")


@stage_check
def check_limits(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Type a stage's reward and selection again for the numbers and lengths of responses that the stage has.

    Some mistakes show only with these limits. Report W0301 for a reward that is constant under them, E0307 for a
    reward that may divide by zero or overflow, and E0316 for a condition of a selection that never holds. Mistakes
    that do not depend on the stage are reported at the declaration instead. A selection and a reward are checked
    once for equal limits.
    """
    ctx, pool, reward = case.ctx, stage.pool, stage.record.sub("reward")
    rule, rollout = stage.record.sub("data.selection"), stage.record.sub("rollout")
    if pool is not None and isinstance(rule, Definition):
        num_wordings = max(1, len(list_wordings(pool)))
        limits = _make_limits(pool, num_wordings, pool.data("samples") * num_wordings)
        trial = partial(_try_limits, ctx, type_selection, rule, limits, ("E0316",), "a pool")
        yield from ctx.memoize(str(limits), rule, trial)
    if stage.reward is None or not isinstance(reward, Definition) or rollout is None:
        return
    count = stage["batch.rollouts"].number if "batch.rollouts" in stage else INF
    # A reward that reads modes in a stage without wordings is reported as E0511.
    stage_limits = _make_limits(rollout, len(list_wordings(rollout)) or INF, count)
    trial = partial(_try_limits, ctx, type_reward, reward, stage_limits, ("W0301", "E0307"), "training")
    yield from ctx.memoize(str(stage_limits), reward, trial)


def _make_limits(sampling: Record, num_wordings: float, group: float) -> ResponseLimits:
    """Return the limits of the responses that a block of sampling settings or a pool allows.

    Args:
        sampling: The settings `max_tokens` and `wordings`.
        num_wordings: The number of wordings, or infinity if it is not known.
        group: The number of responses to a question, or infinity.
    """
    longest = sampling.data("max_tokens")
    if any(wording.data("prefix") for wording in list_wordings(sampling)):
        longest = None  # A response has the tokens of its prefix and up to `max_tokens` more.
    return ResponseLimits(INF if longest is None else longest, num_wordings, group)


def _try_limits(
    ctx: Context,
    type_body: Callable[..., object],
    rule: Definition,
    limits: ResponseLimits,
    codes: Sequence[str],
    subject: str,
) -> list[Diagnostic]:
    """Return what typing a reward or selection with limits of responses finds, with a note that states the limits.

    Args:
        ctx: The evaluation.
        type_body: The function that types it, `type_reward` or `type_selection`.
        rule: The reward or selection with its arguments.
        limits: The limits of the responses.
        codes: The codes of the findings to return, in this order.
        subject: What has the limits, such as "training".
    """
    trial = ctx.trial()
    type_body(trial, rule, limits=limits)
    facts = [f"{limits.group:g} responses a question"] if limits.group < INF else []
    facts += [f"at most {limits.longest:g} tokens each"] if limits.longest < INF else []
    note = f"{subject} has {', '.join(facts)}"
    return [
        replace(finding, notes=(note, *finding.notes)) if facts else finding
        for code in codes
        for finding in trial.own_findings
        if finding.code == code
    ]
