"""Checks of data and tasks: sources that lack something, words that do not fit, questions trained and judged on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.ir.pattern import pattern_fault
from reodsl.language.checks.cases import Case, case_check, place
from reodsl.language.checks.comparable import content
from reodsl.language.context import Context
from reodsl.language.program import Program
from reodsl.language.reward.selection import questions_of
from reodsl.language.values import Record, records_of

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


def check_data(program: Program) -> Iterator[Diagnostic]:
    """Check every declaration of a task, a tokenizer, a model or data in the main file."""
    for task in program.of_kind("task").values():
        yield from _task(task)
    for tokenizer in program.of_kind("tokenizer").values():
        yield from _tokenizer(tokenizer)
    for model in program.of_kind("model").values():
        source = model.sub("source")
        if source is not None and source.kind == "package" and source.get("file") is None:
            yield _lacks(source, "a model", ["file"])
    for data in program.of_kind("data").values():
        for package in records_of(data, "source"):
            missing = [name for name in PACKAGE_DATA if package.get(name) is None]
            if package.kind == "package" and missing:
                yield _lacks(package, "data", missing)
            drawn, traces = package.sub("task"), package.fields.get("traces")
            if drawn is not None and drawn.kind != "task" and traces is not None:
                asked, help = _UNTRACED[drawn.kind]
                yield error(
                    "E0310",
                    f"`traces` writes solutions of a `task`, and these questions are {asked}",
                    place(traces, package.span),
                    "has no effect",
                    help=help,
                )
        for marks in records_of(data, "strip"):
            if not marks.fields:
                yield error(
                    "E0310",
                    "`marks` needs `before` or `after`",
                    marks.span,
                    "neither",
                    help='write what stands around the questions: `marks(before: "Q:", after: "A:")`',
                )
        yield from _patterns(data)
        yield from _tools(data)


def _patterns(data: Record) -> Iterator[Diagnostic]:
    """Report E0722: regular expressions by which answers are read, and that cannot be used."""
    for reader in records_of(data, "answer"):
        if reader.kind == "regex":
            fault = pattern_fault(reader.data("pattern"))
            if fault is not None:
                yield error(
                    "E0722",
                    f"this regular expression cannot be used: {fault}",
                    place(reader.fields.get("pattern"), reader.span),
                    help="write it in the dialect of Rust's `regex`, without look-around and back-references; "
                    'a text before the answer is simpler as `after("…")`',
                )


def _lacks(source: Record, what: str, names: list[str]) -> Diagnostic:
    return error(
        "E0310",
        f"`package` needs {', '.join(f'`{name}`' for name in names)} to be {what}",
        source.span,
        f"no `{names[0]}`",
        help='write `package("…", ' + ", ".join(f"{name}: …" for name in names) + ")`",
    )


def _task(task: Record) -> Iterator[Diagnostic]:
    values, modulus = task.data("values"), task.data("modulus")
    if len(values) != modulus:
        yield _misfit(
            task, "values", f"there are {len(values)} words for {modulus} values", f"give {modulus} words"
        )
    if len(set(values)) != len(values):
        yield _misfit(task, "values", "a word stands for two values", "give each value a word of its own")
    wrong = [word for word in task.data("operations") if not SIGNED.search(word)]
    if wrong:
        yield _misfit(
            task, "operations", f"`{wrong[0]}` does not end in a sign and digits", "write it as `+7` or `-3`"
        )
    labels, (_, most) = task.data("labels"), task.data("length")
    if len(labels) < most:
        yield _misfit(
            task,
            "length",
            f"there are {len(labels)} labels for up to {most} steps",
            "add labels, or lower `length`",
        )
    for name, holes in (("question", ("{start}", "{steps}")), ("step", ("{label}", "{op}"))):
        missing = [hole for hole in holes if hole not in task.data(name) and hole != "{label}"]
        if missing:
            yield _misfit(task, name, f"`{missing[0]}` is not in it", f"put `{missing[0]}` where it belongs")


def _tokenizer(tokenizer: Record) -> Iterator[Diagnostic]:
    words = tokenizer.data("words")
    twice = next((word for i, word in enumerate(words) if word in words[:i]), None)
    if twice is not None:
        yield _misfit(tokenizer, "words", f"`{twice}` is there twice", "list each word once")
    split = next((word for word in words if len(word.split()) != 1), None)
    if split is not None:
        yield _misfit(tokenizer, "words", f"`{split}` is not one word", "words hold no white space")


def _misfit(record: Record, name: str, message: str, helps: str) -> Diagnostic:
    return error(
        "E0720",
        f"the {record.kind} `{record.name}` does not fit together: {message}",
        place(record.fields.get(name), record.span),
        help=helps,
    )


def _tools(data: Record) -> Iterator[Diagnostic]:
    """Report E0533 where the tools of data are those of no environment."""
    tools = data.sub("tools")
    code = tools.sub("code") if tools is not None else None
    if code is None or "function" not in code.fields or str(code.data("function")).endswith(ENVIRONMENT):
        return
    yield error(
        "E0533",
        "tools are those of an environment of `verifiers`",
        place(code.fields["function"], code.span),
        "no environment",
        help='name a package that has some: `tools(python("MODULE:verifiers"))`',
    )


@case_check
def check_overlap(case: Case) -> Iterator[Diagnostic]:
    """Report E0603: an experiment evaluated on what it was trained on. W0603: one that may be."""
    ctx, suite = case.ctx, case.suite
    judged = ctx.once_of("judged", suite, lambda: _asked(ctx, suite)) if suite is not None else {}
    if suite is None or not judged:
        return
    judged_sources = [
        (benchmark, source)
        for benchmark in records_of(suite, "benchmarks")
        for source in records_of(benchmark.sub("data"), "source")
    ]
    for stage in case.stages:
        slot = stage.record.fields.get("data")
        for source in records_of(questions_of(stage.record.sub("data")), "source"):
            benchmark = judged.get(_origin(ctx, source))
            if benchmark is None:
                yield from _may_share(ctx, case, source, judged_sources, place(slot, stage.record.span))
            else:
                yield error(
                    "E0603",
                    f"`{case.name}` is evaluated on questions that it is trained on",
                    place(slot, stage.record.span),
                    "trained on",
                    others=[Label(benchmark.span, f"`{benchmark.name}` has the same source")],
                    help="train on other questions, or take the benchmark out; `split: held_out` keeps generated ones apart",
                )


def _asked(ctx: Context, suite: Record) -> dict[str, Record]:
    """Return the benchmarks of a suite by the origins of their questions, the first of each."""
    benchmarks: dict[str, Record] = {}
    for each in records_of(suite, "benchmarks"):
        for source in records_of(each.sub("data"), "source"):
            benchmarks.setdefault(_origin(ctx, source), each)
    return benchmarks


def _may_share(
    ctx: Context, case: Case, source: Record, judged: list[tuple[Record, Record]], span: Span
) -> Iterator[Diagnostic]:
    """Report W0603, once for a source that is trained on: a benchmark is drawn from the same questions."""
    for benchmark, asked in judged:
        if _shared(ctx, source, asked):
            yield warning(
                "W0603",
                f"`{case.name}` may be evaluated on questions that it is trained on",
                span,
                "trained on",
                others=[Label(benchmark.span, f"`{benchmark.name}` is drawn from the same questions")],
                help="another seed keeps none apart: write `split: held_out` for the benchmark and `split: train` here",
            )
            return


def _shared(ctx: Context, source: Record, asked: Record) -> bool:
    """Return whether some question may be drawn from either source. Arms share sources, so a pair is compared once."""
    with_source = ctx.once_of("shared", source, dict[int, tuple[Record, bool]])
    if id(asked) not in with_source:
        with_source[id(asked)] = asked, _one_pool(source, asked) and not _apart(source, asked)
    return with_source[id(asked)][1]


def _one_pool(one: Record, other: Record) -> bool:
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


def _apart(one: Record, other: Record) -> bool:
    """Return whether the sources are of two sides of the split."""
    return {one.data("split"), other.data("split")} == {"train", "held_out"}


def _origin(ctx: Context, source: Record) -> str:
    """Return the origin of questions. Generated ones of a task are the same pool whatever their count and seed."""
    return ctx.once_of("origin", source, lambda: _origin_of(source))


def _origin_of(source: Record) -> str:
    ignored = ("count", "seed", "columns", "traces") if source.kind == "generated" else ("columns",)
    kept = {name: slot for name, slot in source.fields.items() if name not in ignored}
    return repr((source.kind, content(Record(source.kind, kept, source.span))))
