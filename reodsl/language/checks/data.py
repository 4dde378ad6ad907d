"""Check data: incomplete sources, questions for both training and evaluation, and words that a tokenizer lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.ir.names import pattern_fault
from reodsl.language.checks.cases import (
    LIBRARY_PATH,
    Case,
    SettingView,
    StageCase,
    View,
    case_check,
    find_model,
    finding_at,
    stage_check,
    strip_names,
)
from reodsl.language.context import Context
from reodsl.language.program import Program
from reodsl.language.reward.selection import find_questions
from reodsl.language.values import Bounds, Compound, Record, Value, list_records, plain

SIGNED = re.compile(r"[+-][0-9]+$")
ENVIRONMENT = ":verifiers"
PACKAGE_DATA = ("task", "count", "seed")
_UNTRACED = {
    "python": (
        "Python's",
        'let the function give each question its solution: `Question("…", "…", trace="…")`',
    ),
    "programs": ("programs", "leave it out: `programs(…)` gives each question its solution"),
}
"""Questions whose solutions `traces` does not write: whose they are, and what to do instead."""
HOLE = re.compile(r"\{(start|steps|label|op|value|next|question|budget)\}")
ALWAYS = frozenset({"<pad>", "<eos>", "<unk>", "<think>", "</think>"})
OF_TASKS = ("values", "operations", "labels", "question", "step")
OF_TRACES = ("open", "close", "again", "answer", "filler")
OF_WORDINGS = ("question", "system", "prefix")
ASKED = (*OF_WORDINGS, "budget")


def check_data(program: Program) -> Iterator[Diagnostic]:
    """Check every declaration of a task, a tokenizer, a model or data in the main file."""
    for task in program.list_kind("task").values():
        yield from _check_task(task)
    for tokenizer in program.list_kind("tokenizer").values():
        yield from _check_tokenizer(tokenizer)
    for model in program.list_kind("model").values():
        source = model.sub("source")
        if source is not None and source.kind == "package" and source.get("file") is None:
            yield _report_missing(source, "a model", ["file"])
    for data in program.list_kind("data").values():
        for package in list_records(data, "source"):
            missing = [name for name in PACKAGE_DATA if package.get(name) is None]
            if package.kind == "package" and missing:
                yield _report_missing(package, "data", missing)
            drawn, view = package.sub("task"), View(package)
            if drawn is not None and drawn.kind != "task" and "traces" in view:
                asked, help = _UNTRACED[drawn.kind]
                message = f"`traces` writes solutions of a `task`, and these questions are {asked}"
                yield view["traces"].error("E0310", message, "has no effect", help=help)
        for marks in list_records(data, "strip"):
            if not marks.fields:
                yield error(
                    "E0310",
                    "`marks` needs `before` or `after`",
                    marks.span,
                    "neither",
                    help='write what stands around the questions: `marks(before: "Q:", after: "A:")`',
                )
        yield from _check_patterns(data)
        yield from _check_tools(data)


def _check_patterns(data: Record) -> Iterator[Diagnostic]:
    """Report E0722: regular expressions by which answers are read, and that cannot be used."""
    for reader in list_records(data, "answer"):
        if reader.kind == "regex":
            fault = pattern_fault(reader.data("pattern"))
            if fault is not None:
                yield View(reader)["pattern"].error(
                    "E0722",
                    f"this regular expression cannot be used: {fault}",
                    help="write it in the dialect of Rust's `regex`, without look-around and back-references; "
                    'a text before the answer is simpler as `after("…")`',
                )


def _report_missing(source: Record, what: str, names: list[str]) -> Diagnostic:
    return error(
        "E0310",
        f"`package` needs {', '.join(f'`{name}`' for name in names)} to be {what}",
        source.span,
        f"no `{names[0]}`",
        help='write `package("…", ' + ", ".join(f"{name}: …" for name in names) + ")`",
    )


def _check_task(task: Record) -> Iterator[Diagnostic]:
    values, modulus = task.data("values"), task.data("modulus")
    if len(values) != modulus:
        yield _report_misfit(
            task, "values", f"there are {len(values)} words for {modulus} values", f"give {modulus} words"
        )
    if len(set(values)) != len(values):
        yield _report_misfit(
            task, "values", "a word stands for two values", "give each value a word of its own"
        )
    wrong = [word for word in task.data("operations") if not SIGNED.search(word)]
    if wrong:
        yield _report_misfit(
            task, "operations", f"`{wrong[0]}` does not end in a sign and digits", "write it as `+7` or `-3`"
        )
    labels, (_, most) = task.data("labels"), task.data("length")
    if len(labels) < most:
        yield _report_misfit(
            task,
            "length",
            f"there are {len(labels)} labels for up to {most} steps",
            "add labels, or lower `length`",
        )
    for name, holes in (("question", ("{start}", "{steps}")), ("step", ("{label}", "{op}"))):
        missing = [hole for hole in holes if hole not in task.data(name) and hole != "{label}"]
        if missing:
            yield _report_misfit(
                task, name, f"`{missing[0]}` is not in it", f"put `{missing[0]}` where it belongs"
            )


def _check_tokenizer(tokenizer: Record) -> Iterator[Diagnostic]:
    words = tokenizer.data("words")
    twice = next((word for i, word in enumerate(words) if word in words[:i]), None)
    if twice is not None:
        yield _report_misfit(tokenizer, "words", f"`{twice}` is there twice", "list each word once")
    split = next((word for word in words if len(word.split()) != 1), None)
    if split is not None:
        yield _report_misfit(tokenizer, "words", f"`{split}` is not one word", "words hold no white space")


def _report_misfit(record: Record, name: str, message: str, helps: str) -> Diagnostic:
    message = f"the {record.kind} `{record.name}` does not fit together: {message}"
    return View(record)[name].error("E0720", message, help=helps)


def _check_tools(data: Record) -> Iterator[Diagnostic]:
    """Report E0533 where the tools of data are those of no environment."""
    code = data.sub("tools.code")
    if code is None or "function" not in code.fields or str(code.data("function")).endswith(ENVIRONMENT):
        return
    yield View(code)["function"].error(
        "E0533",
        "tools are those of an environment of `verifiers`",
        "no environment",
        help='name a package that has some: `tools(python("MODULE:verifiers"))`',
    )


@case_check
def check_overlap(case: Case) -> Iterator[Diagnostic]:
    """Report E0603: an experiment evaluated on what it was trained on. W0603: one that may be."""
    ctx, suite = case.ctx, case.suite
    judged = (
        ctx.compute_once("judged", suite, lambda: _index_benchmarks(ctx, suite)) if suite is not None else {}
    )
    if suite is None or not judged:
        return
    judged_sources = [
        (benchmark, source)
        for benchmark in list_records(suite, "benchmarks")
        for source in list_records(benchmark.sub("data"), "source")
    ]
    for stage in case.stages:
        for source in list_records(find_questions(stage.record.sub("data")), "source"):
            benchmark = judged.get(_find_origin(ctx, source))
            if benchmark is None:
                yield from _check_overlap(ctx, case, source, judged_sources, stage["data"])
            else:
                yield stage["data"].error(
                    "E0603",
                    f"`{case.name}` is evaluated on questions that it is trained on",
                    "trained on",
                    Label(benchmark.span, f"`{benchmark.name}` has the same source"),
                    help="train on other questions, or take the benchmark out; `split: held_out` keeps generated ones apart",
                )


def _index_benchmarks(ctx: Context, suite: Record) -> dict[str, Record]:
    """Return the benchmarks of a suite by the origins of their questions, the first of each."""
    benchmarks: dict[str, Record] = {}
    for each in list_records(suite, "benchmarks"):
        for source in list_records(each.sub("data"), "source"):
            benchmarks.setdefault(_find_origin(ctx, source), each)
    return benchmarks


def _check_overlap(
    ctx: Context, case: Case, source: Record, judged: list[tuple[Record, Record]], data: SettingView
) -> Iterator[Diagnostic]:
    """Report W0603, once for a source that is trained on: a benchmark is drawn from the same questions."""
    for benchmark, asked in judged:
        if _may_overlap(ctx, source, asked):
            yield data.warning(
                "W0603",
                f"`{case.name}` may be evaluated on questions that it is trained on",
                "trained on",
                Label(benchmark.span, f"`{benchmark.name}` is drawn from the same questions"),
                help="another seed keeps none apart: write `split: held_out` for the benchmark and `split: train` here",
            )
            return


def _may_overlap(ctx: Context, source: Record, asked: Record) -> bool:
    """Return whether some question may be drawn from either source. Arms share sources, so a pair is compared once."""
    with_source = ctx.compute_once("shared", source, dict[int, tuple[Record, bool]])
    if id(asked) not in with_source:
        split = {source.data("split"), asked.data("split")} == {"train", "held_out"}
        with_source[id(asked)] = asked, _share_pool(source, asked) and not split
    return with_source[id(asked)][1]


def _share_pool(one: Record, other: Record) -> bool:
    """Return whether some question may be drawn from either source."""
    if one.kind != other.kind:
        return False
    if one.kind == "package":
        # Packages have one name with dashes and one with underscores.
        names = [(str(each.data("package")).replace("-", "_"), each.data("task")) for each in (one, other)]
        return names[0] == names[1]
    if one.kind != "generated":
        return False
    tasks = [each.sub("task") for each in (one, other)]
    first, second = tasks
    if first is None or second is None or first.kind != second.kind:
        return False
    if first.kind == "python":
        return bool(first.data("function") == second.data("function"))
    if first.kind == "programs":
        return True
    (short, long), (least, most) = first.data("length"), second.data("length")
    amounts = [{SIGNED.findall(word)[-1] for word in each.data("operations")} for each in (first, second)]
    same = first.data("modulus") == second.data("modulus")
    return same and short <= most and least <= long and bool(amounts[0] & amounts[1])


def _find_origin(ctx: Context, source: Record) -> str:
    """Return the origin of questions. Generated ones of a task are the same pool whatever their count and seed."""
    return ctx.compute_once("origin", source, lambda: _write_origin(source))


def _write_origin(source: Record) -> str:
    ignored = ("count", "seed", "columns", "traces") if source.kind == "generated" else ("columns",)
    kept = {name: slot for name, slot in source.fields.items() if name not in ignored}
    return repr((source.kind, strip_names(Record(source.kind, kept, source.span))))


@case_check
def check_vocabulary(case: Case) -> Iterator[Diagnostic]:
    """Report E0721, once for each text with a word that the vocabulary of the model lacks, or of one that a pool asks."""
    ctx = case.ctx
    yield from _check_texts(ctx, case.model, _list_texts(case))
    for source in _list_sources(case):
        yield from _check_source(ctx, case.model, source)
    for stage in case.stages:
        pool = stage.pool
        asked = find_model(pool.sub("of")) if pool is not None else None
        if pool is not None and asked is not case.model:
            yield from _check_texts(ctx, asked, _list_pool_texts(pool))


def _find_tokenizer(model: Record | None) -> Record | None:
    """Return the word-level tokenizer of a model, or None if it has another."""
    tokenizer = model.sub("source.tokenizer") if model is not None else None
    return tokenizer if tokenizer is not None and tokenizer.kind == "tokenizer" else None


def _check_source(ctx: Context, model: Record | None, source: Record) -> list[Diagnostic]:
    """Return the findings in a source's texts. Arms share sources, so each is checked once with a tokenizer."""
    tokenizer = _find_tokenizer(model)
    if tokenizer is None:
        return []
    by_tokenizer = ctx.compute_once("vocabulary", source, dict[int, tuple[Record, list[Diagnostic]]])
    if id(tokenizer) not in by_tokenizer:
        texts = ((*text, None) for text in _list_source_texts(source))
        by_tokenizer[id(tokenizer)] = tokenizer, list(_check_texts(ctx, model, texts))
    return by_tokenizer[id(tokenizer)][1]


def _check_texts(ctx: Context, model: Record | None, texts: Iterable[_Text]) -> Iterator[Diagnostic]:
    tokenizer = _find_tokenizer(model)
    if tokenizer is None:
        return
    for record, name, span, use in texts:
        word = _first_lacked(ctx, tokenizer, record, name)
        if word is None:
            continue
        labels = [
            Label(span, f"has `{word}`"),
            *([use.label] if use is not None else []),
            View(tokenizer)["words"].label(f"the words of `{tokenizer.name}`"),
        ]
        message = f"the model's vocabulary has no `{word}`, which `{name}` of `{record.name}` needs"
        helps = "add it to the tokenizer's words, or write it otherwise"
        if name == "budget":
            message = (
                f"`{record.name}` may write the budget `{word}`, and the model's vocabulary has no such word"
            )
            numbers = sorted(int(word) for word in _list_words(tokenizer) if word.isdecimal())
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
    known = ctx.compute_once("words", tokenizer, lambda: _list_words(tokenizer))

    def first() -> str | None:
        words = _words_of_budgets(record) if name == "budget" else _words(record.data(name))
        return next((word for word in words if word not in known), None)

    # `known` is kept with the tokenizer, so no other gets its number.
    return ctx.compute_once(f"{name} for {id(known)}", record, first)


def _list_words(tokenizer: Record) -> frozenset[str]:
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
    """A use of the library's text that could be another one, and the way to have another."""

    label: Label
    helps: str


_Text = tuple[Record, str, Span, _Use | None]


def _list_pool_texts(pool: Record) -> Iterator[_Text]:
    """Yield the questions of a pool, as the model that answers them reads them."""
    data = pool.sub("data")
    for source in list_records(data, "source") if data is not None else ():
        task = source.sub("task")
        for name in OF_TASKS if task is not None else ():
            if task is not None and task.get(name) is not None:
                yield task, name, View(task)[name].place, None
    for wording in list_records(pool, "wordings"):
        for name in ASKED:
            if wording.get(name) is not None:
                yield wording, name, View(wording)[name].place, None


def _list_sources(case: Case) -> Iterator[Record]:
    """Yield the sources of the questions of a case, in training and in evaluation."""
    data = [find_questions(stage.record.sub("data")) for stage in case.stages]
    data += [benchmark.sub("data") for benchmark in list_records(case.suite, "benchmarks")]
    for table in data:
        yield from list_records(table, "source")


def _list_texts(case: Case) -> Iterator[_Text]:
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
            span = View(forcing)["text"].place
            label = Label(user.span, f"forces answers by `{forcing.name}`")
            use = _Use(label, f"set a `forcing` of this model's words in `{user.name}`")
            yield forcing, "text", span, use if span.path.startswith(LIBRARY_PATH) else None
    for wording, at in _list_wordings(case):
        use = _Use(Label(at, f"asks by `{wording.name}`"), "start from a model that knows it")
        for name in ASKED:
            if wording.get(name) is not None:
                span = View(wording)[name].place
                yield wording, name, span, use if span.path.startswith(LIBRARY_PATH) else None


def _list_wordings(case: Case) -> Iterator[tuple[Record, Span]]:
    """Yield the wordings of a case, with their places: of its rollouts, its own pools and its suite."""
    for stage in case.stages:
        pool = stage.pool
        if pool is not None and find_model(pool.sub("of")) is not case.model:
            pool = None
        for asking in (stage.record.sub("rollout"), pool):
            if asking is not None:
                at = View(asking)["wordings"].place
                yield from ((wording, at) for wording in list_records(asking, "wordings"))
    asked = case.suite.sub("wording") if case.suite is not None else None
    if asked is not None and case.suite is not None:
        yield asked, View(case.suite)["wording"].place


def _list_source_texts(source: Record) -> Iterator[tuple[Record, str, Span]]:
    task, traces = source.sub("task"), source.sub("traces")
    for record, names in ((task, OF_TASKS), (traces, OF_TRACES)):
        for name in names if record is not None else ():
            if record is not None and record.get(name) is not None:
                yield record, name, View(record)[name].place
    for style in traces.parts if isinstance(traces, Compound) else ():
        yield style, "template", View(style)["template"].place


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A model's vocabulary: its word list, or its size."""

    model: Record
    known: object


def find_vocabulary(record: Record | None) -> Vocabulary | None:
    """Return the vocabulary behind an arm or a checkpoint; None where the spec does not have it."""
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
def check_pool(case: Case, stage: StageCase) -> Iterator[Diagnostic]:
    """Report W0606: a pool's responses may have words that the model that is trained on them does not know."""
    if stage.pool is None:
        return
    theirs, ours = find_vocabulary(stage.pool.sub("of")), find_vocabulary(case.record)
    if theirs is None or ours is None or not isinstance(theirs.known, tuple):
        return
    lacking = sorted({*theirs.known} - {*ours.known}) if isinstance(ours.known, tuple) else []
    if lacking:
        yield View(stage.pool)["of"].warning(
            "W0606",
            "the pool has responses of a model with another vocabulary",
            f"`{theirs.model.name}` knows `{lacking[0]}`{f' and {len(lacking) - 1} more' if lacking[1:] else ''}",
            Label(ours.model.span, f"`{ours.model.name}` does not"),
            help="take the pool from a checkpoint of the model that is trained, or train one with these words",
            notes=["a response with such a word stops the training"],
        )


def check_vocabularies(
    what: str, arms: Sequence[Value], model: Record | None, at: Span
) -> Iterator[Diagnostic]:
    """Report W0606: budgets shared by arms whose tokens are of different vocabularies.

    `model` is the arm that the budgets are for, where there is one; else arms are compared with the first.
    """
    vocabularies = [(each.span, find_vocabulary(each.data)) for each in arms if isinstance(each.data, Record)]
    first = (
        (at, find_vocabulary(model))
        if model is not None
        else (vocabularies[0] if vocabularies else (at, None))
    )
    for span, other in vocabularies:
        wanted = first[1]
        if other is None or wanted is None or other.known == wanted.known:
            continue
        yield warning(
            "W0606",
            f"{what} has arms with different tokenizers",
            span,
            f"tokens of `{other.model.name}`",
            others=[Label(first[0], f"tokens of `{wanted.model.name}`")],
            notes=["a budget in tokens may mean another amount of text in another vocabulary"],
            help="keep to models with one tokenizer",
        )
        return
