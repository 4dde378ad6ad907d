"""Data in the table of kinds: questions, where they come from, generated tasks and their traces."""

from __future__ import annotations

from reodsl.ir.names import DATA_FILE
from reodsl.language.kinds.types import (
    CHECKPOINT,
    COUNT,
    DATA_SOURCES,
    NATURAL,
    POSITIVE,
    SAMPLING,
    SHARE,
    TOKENS,
)
from reodsl.language.schema import A, Between, Choice, Either, Field, Flag, Kind, Many, Num, Text

READER = Either(
    (Choice(("boxed", "last_number")), A(("after", "regex"), '`after("…")` or `regex("…")`')),
)

KINDS_OF_DATA: tuple[Kind, ...] = (
    Kind(
        "data",
        "Questions with reference answers.",
        {
            "source": Field(
                Many(A(DATA_SOURCES, "`generated(…)`, `file(…)`, `hub(…)` or `package(…)`"), lone=True),
                "one source or a list, read one after another",
                required=True,
                example='source = file("questions.jsonl")',
            ),
            "verifier": Field(
                Choice(("math", "exact", "package")), "how answers are compared", default="math"
            ),
            "answer": Field(
                Many(READER, lone=True, most=8),
                "where a response's answer is read; of several, the first that finds one",
                default="boxed",
                example='answer = [boxed, after("####")]',
            ),
            "tolerance": Field(
                Num(low=0, high=1, below=True, example="0.0001"),
                "how far rounded numbers may be apart, a share of the reference; whole references are exact",
                default=0.0001,
            ),
            "duplicates": Field(
                Choice(("error", "drop")), "what to do with equal questions", default="error"
            ),
            "strip": Field(
                Many(A(("marks",)), lone=True),
                "text that is taken off the beginning and end of questions, one after another",
                example='strip = marks(before: "USER:", after: "ASSISTANT:")',
            ),
            "questions": Field(COUNT, "how many there are, for the price alone"),
        },
        parents=("data",),
    ),
    Kind(
        "after",
        "Reads the line after the last marker as the answer.",
        {"marker": Field(Text(), "what stands before it", required=True, example='after("####")')},
        form="call",
        positional=("marker",),
    ),
    Kind(
        "regex",
        "Reads the first group of the last match as the answer, or the whole match where there is no group.",
        {
            "pattern": Field(
                Text(),
                "a regular expression of Rust's dialect",
                required=True,
                example='regex("Answer: *(.+)")',
            )
        },
        form="call",
        positional=("pattern",),
    ),
    Kind(
        "pool",
        "Graded responses of a checkpoint, for a selection to pick from.",
        {
            "of": Field(
                A((*CHECKPOINT.kinds, "arm"), CHECKPOINT.of),
                "whose responses",
                required=True,
                example="pool(checkpoint(qwen3_4b), data: areal_boba_7b, samples: 16, max_tokens: 32K tokens)",
            ),
            "data": Field(A(("data",)), "the questions", required=True, example="data: areal_boba_7b"),
            "samples": Field(
                COUNT, "responses a question, for each wording", required=True, example="samples: 16"
            ),
            "max_tokens": Field(TOKENS, "longest response", required=True, example="max_tokens: 32K tokens"),
            **SAMPLING,
            "wordings": Field(Many(A(("wording",))), "ways to ask; left out, the model's own prompt"),
        },
        form="call",
        positional=("of",),
    ),
    Kind(
        "columns",
        "Which columns hold what the questions table needs.",
        {
            "question": Field(Text(), "the question", default="question"),
            "answer": Field(Text(), "the reference answer", default="answer"),
            "trace": Field(Text(), "a worked solution"),
            "id": Field(Text(), "a name for the question"),
        },
        form="call",
    ),
    Kind(
        "marks",
        "Text around a question that is no part of it: marks of a chat, or an instruction that models are given anyway.",
        {
            "before": Field(Text(), "what questions begin with; white space around it does not count"),
            "after": Field(Text(), "what they end with, likewise"),
        },
        form="call",
    ),
    Kind(
        "generated",
        "Questions drawn from a task.",
        {
            "task": Field(
                A(("task",)),
                "what to draw from",
                required=True,
                example="generated(chain, count: 4096, seed: 1)",
            ),
            "count": Field(COUNT, "how many", required=True, example="count: 4096"),
            "seed": Field(NATURAL, "draws them, apart from the run's seed", required=True, example="seed: 1"),
            "split": Field(Choice(("train", "held_out")), "which part of all questions", default="train"),
            "traces": Field(A(("traces",)), "how their solutions are written"),
        },
        form="call",
        positional=("task",),
    ),
    Kind(
        "file",
        "A Parquet, JSONL, JSON or CSV file; a relative path starts at the spec's folder.",
        {
            "path": Field(
                Text(form=DATA_FILE), "where it is", required=True, example='file("questions.jsonl")'
            ),
            "columns": Field(A(("columns",)), "which columns to read"),
        },
        form="call",
        positional=("path",),
    ),
    Kind(
        "task",
        "A chain of additions and subtractions, applied left to right.",
        {
            "modulus": Field(
                Num(whole=True, low=2, high=10**6),
                "values are modulo this",
                required=True,
                example="modulus = 10",
            ),
            "values": Field(
                Many(Text(), 2), "the word of each value", required=True, example='values = words("0 1 2")'
            ),
            "operations": Field(
                Many(Text()),
                "signed digits, such as +7",
                required=True,
                example='operations = words("+1 -1")',
            ),
            "labels": Field(
                Many(Text()), "the name of each step", required=True, example='labels = words("a b c")'
            ),
            "question": Field(
                Text(),
                "a template with {start} and {steps}",
                required=True,
                example='question = "{start} {steps} ?"',
            ),
            "step": Field(
                Text(), "a template with {label} and {op}", required=True, example='step = "{label} {op}"'
            ),
            "length": Field(
                Between(Num(whole=True, low=1, high=4096)),
                "how many operations",
                required=True,
                example="length = 2..8",
            ),
        },
        parents=("task",),
    ),
    Kind(
        "traces",
        "How a worked solution is written, redundant re-checks and mistakes included.",
        {
            "open": Field(
                Text(nonempty=False), "what a pass begins with", required=True, example='open = "so"'
            ),
            "close": Field(
                Text(nonempty=False),
                "what a pass ends with; holds {value}",
                required=True,
                example='close = "so {value} ."',
            ),
            "again": Field(
                Text(nonempty=False), "what stands between passes", required=True, example='again = "wait"'
            ),
            "answer": Field(
                Text(),
                "the end of a trace; holds {value}",
                required=True,
                example='answer = "answer {value}"',
            ),
            "filler": Field(Many(Text(), 0), "words without meaning", default=()),
            "filler_probability": Field(SHARE, "of a filler before a step", default=0.0),
            "error": Field(SHARE, "of a step whose result is off by one and carried on", default=0.0),
            "restyle": Field(SHARE, "of a step that draws its style anew", default=0.0),
            "another_pass": Field(SHARE, "of a further pass", default=0.0),
            "max_passes": Field(Num(whole=True, low=1, high=64), "passes at most", default=1),
            "until_agree": Field(Flag(), "always another pass while the last two disagree", default=False),
        },
        parents=("traces",),
        children=("style",),
    ),
    Kind(
        "style",
        "One way to write a step.",
        {
            "template": Field(
                Text(),
                "holds {label}, {value}, {op}, {next}",
                required=True,
                example='template = "{value} {op} {next} ."',
            ),
            "weight": Field(POSITIVE, "how often, relative to the other styles", default=1.0),
        },
    ),
)
