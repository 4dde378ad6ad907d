"""Vocabularies: every word of a task, its traces and the forcing text is one that a word-level model knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic, Label, Span, error
from reodsl.language.checks.cases import LIBRARY_PATH, Case, case_check, finding_at, place, root_model
from reodsl.language.context import Context
from reodsl.language.reward.selection import questions_of
from reodsl.language.values import Bounds, Compound, Record, plain, records_of

HOLE = re.compile(r"\{(start|steps|label|op|value|next|question|budget)\}")
ALWAYS = frozenset({"<pad>", "<eos>", "<unk>", "<think>", "</think>"})
OF_TASKS = ("values", "operations", "labels", "question", "step")
OF_TRACES = ("open", "close", "again", "answer", "filler")
OF_WORDINGS = ("question", "system", "prefix")
ASKED = (*OF_WORDINGS, "budget")


@case_check
def check_vocabulary(case: Case) -> Iterator[Diagnostic]:
    """Report E0721, once for each text with a word that the vocabulary of the model lacks, or of one that a pool asks."""
    ctx = case.ctx
    yield from _lacked(ctx, case.model, _texts(case))
    for source in _sources(case):
        yield from _lacked_in(ctx, case.model, source)
    for stage in case.stages:
        data = stage.record.sub("data")
        pool = data.sub("pool") if data is not None else None
        asked = root_model(pool.sub("of")) if pool is not None else None
        if pool is not None and asked is not case.model:
            yield from _lacked(ctx, asked, _asked_in(pool))


def _tokenizer(model: Record | None) -> Record | None:
    source = model.sub("source") if model is not None else None
    return source.sub("tokenizer") if source is not None else None


def _lacked_in(ctx: Context, model: Record | None, source: Record) -> list[Diagnostic]:
    """Return the findings in a source's texts. Arms share sources, so each is checked once with a tokenizer."""
    tokenizer = _tokenizer(model)
    if tokenizer is None:
        return []
    by_tokenizer = ctx.once_of("vocabulary", source, dict[int, tuple[Record, list[Diagnostic]]])
    if id(tokenizer) not in by_tokenizer:
        texts = ((*text, None) for text in _of_source(source))
        by_tokenizer[id(tokenizer)] = tokenizer, list(_lacked(ctx, model, texts))
    return by_tokenizer[id(tokenizer)][1]


def _lacked(ctx: Context, model: Record | None, texts: Iterable[_Text]) -> Iterator[Diagnostic]:
    tokenizer = _tokenizer(model)
    if tokenizer is None:
        return
    for record, name, span, use in texts:
        word = _first_lacked(ctx, tokenizer, record, name)
        if word is None:
            continue
        labels = [
            Label(span, f"has `{word}`"),
            *([use.label] if use is not None else []),
            Label(
                place(tokenizer.fields.get("words"), tokenizer.span),
                f"the words of `{tokenizer.name}`",
            ),
        ]
        message = f"the model's vocabulary has no `{word}`, which `{name}` of `{record.name}` needs"
        helps = "add it to the tokenizer's words, or write it otherwise"
        if name == "budget":
            message = (
                f"`{record.name}` may write the budget `{word}`, and the model's vocabulary has no such word"
            )
            numbers = sorted(int(word) for word in _known(tokenizer) if word.isdecimal())
            known = ", ".join(f"{number} tokens" for number in numbers[-4:] if number)
            helps = (
                f"draw budgets that are words of its own: `budget = [{known}]`"
                if known
                else "start from a model that knows numbers, or ask without a budget"
            )
        if use is not None:
            helps = f"{use.helps}, or {helps}"
        yield finding_at(error, "E0721", message, labels, helps)


def _first_lacked(ctx: Context, tokenizer: Record, record: Record, name: str) -> str | None:
    """Return the first word of a text that a tokenizer lacks. Arms share texts, so each is read once."""
    known = ctx.once_of("words", tokenizer, lambda: _known(tokenizer))

    def first() -> str | None:
        words = _words_of_budgets(record) if name == "budget" else _words(record.data(name))
        return next((word for word in words if word not in known), None)

    # `known` is kept with the tokenizer, so no other gets its number.
    return ctx.once_of(f"{name} for {id(known)}", record, first)


def _known(tokenizer: Record) -> frozenset[str]:
    return ALWAYS | {*tokenizer.data("words"), tokenizer.data("eos"), tokenizer.data("pad")}


def _words(text: object) -> tuple[str, ...]:
    """Return the words of a text or of a tuple of them, each once."""
    parts = text if isinstance(text, tuple) else (text,)
    return tuple(dict.fromkeys(word for part in parts for word in HOLE.sub(" ", str(part)).split()))


def _words_of_budgets(wording: Record) -> Iterator[str]:
    """Yield the words of a wording's texts with a budget in them, for every budget that may be drawn.

    The bounds of a range may be far apart. A vocabulary is small, so a word that it lacks comes early.
    """
    drawn = wording.get("budget")
    if drawn is None:
        return
    texts = " ".join(str(wording.data(name) or "") for name in OF_WORDINGS)
    words = [word for word in dict.fromkeys(texts.split()) if "{budget}" in word]
    if isinstance(drawn.data, Bounds):
        low, high = plain(drawn)
        budgets: Iterable[int] = range(low, high + 1)
    else:
        budgets = plain(drawn)
    for budget in budgets if words else ():
        for word in words:
            yield from HOLE.sub(" ", word.replace("{budget}", str(budget))).split()


@dataclass(frozen=True, slots=True)
class _Use:
    """Where a text of the library is used that could be another one, and how to have another."""

    label: Label
    helps: str


_Text = tuple[Record, str, Span, _Use | None]


def _asked_in(pool: Record) -> Iterator[_Text]:
    """Yield the questions of a pool, as the model that answers them reads them."""
    data = pool.sub("data")
    for source in records_of(data, "source") if data is not None else ():
        task = source.sub("task")
        for name in OF_TASKS if task is not None else ():
            if task is not None and task.get(name) is not None:
                yield task, name, place(task.fields.get(name), task.span), None
    for wording in records_of(pool, "wordings"):
        for name in ASKED:
            if wording.get(name) is not None:
                yield wording, name, place(wording.fields.get(name), wording.span), None


def _sources(case: Case) -> Iterator[Record]:
    """Yield the sources of the questions of a case, in training and in evaluation."""
    data = [questions_of(stage.record.sub("data")) for stage in case.stages]
    data += [benchmark.sub("data") for benchmark in records_of(case.suite, "benchmarks")]
    for table in data:
        yield from records_of(table, "source")


def _texts(case: Case) -> Iterator[_Text]:
    """Yield the texts that ask the model of a case and make it answer, with places, and uses of the library's."""
    forcings = [
        (stage.record.sub("forcing"), stage.record)
        for stage in case.stages
        if stage.reward and "forced" in stage.reward.uses
    ]
    if case.suite is not None:
        forcings.append((case.suite.sub("forcing"), case.suite))
    for forcing, user in forcings:
        if forcing is not None:
            span = place(forcing.fields.get("text"), forcing.span)
            label = Label(user.span, f"forces answers by `{forcing.name}`")
            use = _Use(label, f"set a `forcing` of this model's words in `{user.name}`")
            yield forcing, "text", span, use if span.path.startswith(LIBRARY_PATH) else None
    for wording, at in _wordings(case):
        use = _Use(Label(at, f"asks by `{wording.name}`"), "start from a model that knows it")
        for name in ASKED:
            if wording.get(name) is not None:
                span = place(wording.fields.get(name), wording.span)
                yield wording, name, span, use if span.path.startswith(LIBRARY_PATH) else None


def _wordings(case: Case) -> Iterator[tuple[Record, Span]]:
    """Yield the wordings of a case, with their places: of its rollouts, its own pools and its suite."""
    for stage in case.stages:
        data = stage.record.sub("data")
        pool = data.sub("pool") if data is not None else None
        if pool is not None and root_model(pool.sub("of")) is not case.model:
            pool = None
        for asking in (stage.record.sub("rollout"), pool):
            if asking is not None:
                at = place(asking.fields.get("wordings"), asking.span)
                yield from ((wording, at) for wording in records_of(asking, "wordings"))
    asked = case.suite.sub("wording") if case.suite is not None else None
    if asked is not None and case.suite is not None:
        yield asked, place(case.suite.fields.get("wording"), case.suite.span)


def _of_source(source: Record) -> Iterator[tuple[Record, str, Span]]:
    task, traces = source.sub("task"), source.sub("traces")
    for record, names in ((task, OF_TASKS), (traces, OF_TRACES)):
        for name in names if record is not None else ():
            if record is not None and record.get(name) is not None:
                yield record, name, place(record.fields.get(name), record.span)
    for style in traces.parts if isinstance(traces, Compound) else ():
        yield style, "template", place(style.fields.get("template"), style.span)
