"""Data and tasks: sources that lack what their use needs, tasks and vocabularies that do not fit together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.ir.pattern import pattern_fault
from reodsl.language.checks.cases import place
from reodsl.language.checks.tools import check_tools
from reodsl.language.program import Program
from reodsl.language.values import Record, records_of

SIGNED = re.compile(r"[+-][0-9]+$")
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
    """Every declaration of a task, a tokenizer, a model or data in the main file."""
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
        yield from check_tools(data)


def _patterns(data: Record) -> Iterator[Diagnostic]:
    """Regular expressions by which answers are read, and that cannot be used."""
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
