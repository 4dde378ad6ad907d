"""Check data: incomplete sources, questions for both training and evaluation, and models with unlike vocabularies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.ir.names import PATTERNS, pattern_fault
from reodsl.language.checks.cases import (
    CheckedExperiment,
    CheckedStage,
    Settings,
    case_check,
    find_model,
    stage_check,
    strip_names,
)
from reodsl.language.context import Context
from reodsl.language.program import Program
from reodsl.language.reward.selection import find_questions
from reodsl.language.values import Record, Value, list_records

SIGNED = re.compile(r"[+-][0-9]+$")
"""The end of an operation's word, such as the `+7` of `add+7`."""
_HUB_DATA = ("name", "split", "columns")
"""Settings of `hub(…)` that are of data, and not of models."""
_OTHER_SOURCES = {
    "python": (
        "Python's",
        'let the function give each question its solution: `Question("…", "…", trace="…")`',
    )
}
"""Kinds of questions whose solutions `traces` cannot write: (the author's name for messages, what to do instead)."""


def check_data(program: Program) -> Iterator[Diagnostic]:
    """Yield the findings about the tasks, tokenizers, models and data sets that the main file declares."""
    for word_task in program.list_kind("task").values():
        yield from _check_task(word_task)
    for tokenizer in program.list_kind("tokenizer").values():
        yield from _check_tokenizer(tokenizer)
    for model in program.list_kind("model").values():
        source = model.sub("source")
        if source is not None and source.kind == "hub":
            yield from _check_hub(source)
    for data in program.list_kind("data").values():
        for source in list_records(data, "source"):
            question_task, view = source.sub("task"), Settings(source)
            if question_task is not None and question_task.kind != "task" and "traces" in view:
                authors, help = _OTHER_SOURCES[question_task.kind]
                message = f"`traces` writes solutions of a `task`, and these questions are {authors}"
                yield view["traces"].error("E0310", message, "has no effect", help=help)
        for marks in list_records(data, "strip"):
            if not marks.fields:
                yield error(
                    "E0310",
                    "`marks` needs `before` or `after`",
                    marks.span,
                    "neither",
                    help='write the text around the questions: `marks(before: "Q:", after: "A:")`',
                )
        yield from _check_patterns(data)


def _check_hub(source: Record) -> Iterator[Diagnostic]:
    """Report E0521 for each setting of a model's `hub(…)` source that only data sets have, such as `split`."""
    for setting in (Settings(source)[name] for name in _HUB_DATA):
        if setting.is_given:
            yield setting.error(
                "E0521",
                f"`{setting.path}` of `hub(…)` is for data sets, and this is the source of a model",
                "has no effect",
                help=f"take `{setting.path}` out",
            )


def _check_patterns(data: Record) -> Iterator[Diagnostic]:
    """Report E0722 for each invalid regular expression with which a data set finds answers in responses."""
    for reader in list_records(data, "answer"):
        if reader.kind == "regex":
            fault = pattern_fault(reader.data("pattern"))
            if fault is not None:
                yield Settings(reader)["pattern"].error(
                    "E0722",
                    f"this regular expression cannot be used: {fault}",
                    help=PATTERNS + '; a text before the answer is simpler as `after("…")`',
                )


def _check_task(task: Record) -> Iterator[Diagnostic]:
    """Report E0720 for each setting of a generated task that contradicts another setting of the task.

    The task counts modulo `modulus`, with a word for each value in `values`, and labels the steps of a
    question with `labels`.
    """
    values, modulus = task.data("values"), task.data("modulus")
    if len(values) != modulus:
        yield _report_misfit(
            task, "values", f"there are {len(values)} words for {modulus} values", f"give {modulus} words"
        )
    if len(set(values)) != len(values):
        yield _report_misfit(
            task, "values", "a word is listed for two values", "give each value a different word"
        )
    wrong = [word for word in task.data("operations") if not SIGNED.search(word)]
    if wrong:
        yield _report_misfit(
            task, "operations", f"`{wrong[0]}` does not end in a sign and digits", "write it as `+7` or `-3`"
        )
    labels, (_, most_steps) = task.data("labels"), task.data("length")
    if len(labels) < most_steps:
        yield _report_misfit(
            task,
            "length",
            f"there are {len(labels)} labels for up to {most_steps} steps",
            "add labels, or lower `length`",
        )
    for name, holes in (("question", ("{start}", "{steps}")), ("step", ("{label}", "{op}"))):
        missing = [hole for hole in holes if hole not in task.data(name) and hole != "{label}"]
        if missing:
            yield _report_misfit(
                task, name, f"its text has no `{missing[0]}`", f"write `{missing[0]}` where its value belongs"
            )


def _check_tokenizer(tokenizer: Record) -> Iterator[Diagnostic]:
    """Report E0720 if a tokenizer lists a word twice, or a word that is empty or has white space."""
    words = tokenizer.data("words")
    repeated = next((word for i, word in enumerate(words) if word in words[:i]), None)
    if repeated is not None:
        yield _report_misfit(tokenizer, "words", f"`{repeated}` is listed twice", "list each word once")
    spaced = next((word for word in words if len(word.split()) != 1), None)
    if spaced is not None:
        yield _report_misfit(tokenizer, "words", f"`{spaced}` is not one word", "words have no white space")


def _report_misfit(record: Record, name: str, message: str, hint: str) -> Diagnostic:
    """Return error E0720 about a setting of a task or a tokenizer.

    Args:
        record: The task or the tokenizer.
        name: The name of the setting.
        message: What is wrong with the setting.
        hint: What to write instead.
    """
    message = f"the {record.kind} `{record.name}` does not fit together: {message}"
    return Settings(record)[name].error("E0720", message, help=hint)


@case_check
def check_overlap(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0603 if an experiment is evaluated on questions that it is trained on.

    Only the sources of the questions are compared, by the keys of `_find_origin`, and not the questions themselves.
    """
    ctx, suite = case.ctx, case.suite
    benchmarks = ctx.memoize("benchmarks", suite, lambda: _index_benchmarks(ctx, suite)) if suite else {}
    for stage in case.stages if benchmarks else ():
        for source in list_records(find_questions(stage.record.sub("data")), "source"):
            benchmark = benchmarks.get(_find_origin(ctx, source))
            if benchmark is not None:
                yield stage["data"].error(
                    "E0603",
                    f"`{case.name}` is evaluated on questions that it is trained on",
                    "trained on",
                    Label(benchmark.span, f"`{benchmark.name}` has the same source"),
                    help="train on other questions, or take the benchmark out; generated questions have `split: held_out`",
                )


def _index_benchmarks(ctx: Context, suite: Record) -> dict[str, Record]:
    """Return, for each source of questions in a suite, the first benchmark that uses the source.

    Returns:
        Benchmarks by the key that `_find_origin` gives their source.
    """
    benchmarks: dict[str, Record] = {}
    for benchmark in list_records(suite, "benchmarks"):
        for source in list_records(benchmark.sub("data"), "source"):
            benchmarks.setdefault(_find_origin(ctx, source), benchmark)
    return benchmarks


def _find_origin(ctx: Context, source: Record) -> str:
    """Return a key that two sources share if they may have questions in common.

    A generated task has the same key for every count and seed of its questions. Keys are memoized.
    """
    return ctx.memoize("origin", source, lambda: _write_origin(source))


def _write_origin(source: Record) -> str:
    """Return a source's kind and settings as text, without the settings that leave the questions the same.

    `columns` are left out of every source. `count`, `seed` and `traces` are also left out of a generated source:
    two such sources may have questions in common if they differ only in these settings.
    """
    ignored = ("count", "seed", "columns", "traces") if source.kind == "generated" else ("columns",)
    fields = {name: slot for name, slot in source.fields.items() if name not in ignored}
    return repr((source.kind, strip_names(Record(source.kind, fields, source.span))))


def _find_tokenizer(model: Record | None) -> Record | None:
    """Return the word-level tokenizer that a spec declares for a model; None for any other tokenizer."""
    tokenizer = model.sub("source.tokenizer") if model is not None else None
    return tokenizer if tokenizer is not None and tokenizer.kind == "tokenizer" else None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A model's vocabulary."""

    model: Record
    words: object
    """The word list as a sorted tuple, or the size if the list is not in the spec."""


def find_vocabulary(record: Record | None) -> Vocabulary | None:
    """Return the vocabulary of the model that an arm or a checkpoint descends from.

    Returns:
        The model with the words of its word-level tokenizer, or else with the size of its vocabulary. None if the
        spec gives neither, or names no model.
    """
    model = find_model(record)
    if model is None:
        return None
    tokenizer = _find_tokenizer(model)
    if tokenizer is not None:
        words = (*tokenizer.data("words"), tokenizer.data("eos"), tokenizer.data("pad"))
        return Vocabulary(model, tuple(sorted(set(words))))
    dimensions = model.sub("dimensions")
    return Vocabulary(model, dimensions.data("vocabulary")) if dimensions is not None else None


@stage_check
def check_pool(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0606 if the model that wrote a pool of responses has words that the trained model lacks.

    Only word-level vocabularies are compared: of a tokenizer in a file, the spec gives only the number of tokens.
    """
    if stage.pool is None:
        return
    pool_words, own_words = find_vocabulary(stage.pool.sub("of")), find_vocabulary(case.record)
    if pool_words is None or own_words is None or not isinstance(pool_words.words, tuple):
        return
    lacking = sorted({*pool_words.words} - {*own_words.words}) if isinstance(own_words.words, tuple) else []
    if lacking:
        yield Settings(stage.pool)["of"].warning(
            "W0606",
            "the pool has responses of a model with another vocabulary",
            f"`{pool_words.model.name}` knows `{lacking[0]}`{f' and {len(lacking) - 1} more' if lacking[1:] else ''}",
            Label(own_words.model.span, f"`{own_words.model.name}` does not"),
            help="take the pool from a checkpoint of the model that is trained, or train a model with these words",
            notes=["the training stops at a response with an unknown word"],
        )


def check_vocabularies(
    subject: str, arms: Sequence[Value], model: Record | None, model_span: Span
) -> Iterator[Diagnostic]:
    """Report W0606 for the first arm whose vocabulary differs from the expected vocabulary.

    The expected vocabulary is that of `model`, or of the first arm if `model` is None. Arms whose vocabulary the
    spec does not give are skipped, and nothing is reported if the expected vocabulary is not known.

    Args:
        subject: What has the arms, for the message, such as "the frontier `best`".
        arms: The arms from which budgets or a frontier are made.
        model: The experiment that uses the budgets, or None.
        model_span: The span that the finding shows for `model`.
    """
    vocabularies = [(arm.span, find_vocabulary(arm.data)) for arm in arms if isinstance(arm.data, Record)]
    expected_span, expected = (
        (model_span, find_vocabulary(model))
        if model is not None
        else (vocabularies[0] if vocabularies else (model_span, None))
    )
    for span, vocabulary in vocabularies:
        if vocabulary is None or expected is None or vocabulary.words == expected.words:
            continue
        yield warning(
            "W0606",
            f"{subject} has arms with different tokenizers",
            span,
            f"tokens of `{vocabulary.model.name}`",
            labels=[Label(expected_span, f"tokens of `{expected.model.name}`")],
            notes=["a budget in tokens may mean another amount of text in another vocabulary"],
            help="use models with the same tokenizer",
        )
        return
