"""Questions for programs: functions of one number, drawn with tests and a worked solution; and tests that cannot be read."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from reodsl.diagnostics import problem
from reodsl.ir.data import normal_question
from reodsl.ir.task import Programs
from runners.data.table import question_id
from runners.draws import HELD_OUT_ONE_IN, Split, Stream, split_of
from runners.programs.tests import Unreadable, read_tests
from runners.verify import SEPARATOR

NAME = "f"
_DRAWS_PER_QUESTION = 40
_SHOWN = 5
_PARTS = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One step of arithmetic: its sentence, Python for it, and what it makes of x."""

    sentence: str
    python: str
    kind: str
    number: int

    def value(self, x: int) -> int:
        """Return x after the step."""
        match self.kind:
            case "add":
                return x + self.number
            case "subtract":
                return x - self.number
            case "multiply":
                return x * self.number
            case "remainder":
                return x % self.number
            case "least":
                return max(x, self.number)
        return min(x, self.number)


_STEPS = (
    ("add", "Add {n} to x.", "x + {n}"),
    ("subtract", "Subtract {n} from x.", "x - {n}"),
    ("multiply", "Multiply x by {n}.", "x * {n}"),
    ("remainder", "Take the remainder of x divided by {n}.", "x % {n}"),
    ("least", "If x is less than {n}, set x to {n}.", "max(x, {n})"),
    ("most", "If x is more than {n}, set x to {n}.", "min(x, {n})"),
)


def generate_programs(task: Programs, count: int, seed: int, split: Split) -> pl.DataFrame:
    """Return `count` distinct questions of one side of the split: columns id, question, answer, bare and trace.

    `answer` holds the tests, `assert`s as `read_tests` reads them. Draw n is made from (seed, n) alone. Raises E0711 where
    too many draws give the same or the other side's.
    """
    rows: list[tuple[str, str, str, str, str]] = []
    seen: set[str] = set()
    for index in range(_DRAWS_PER_QUESTION * (count + HELD_OUT_ONE_IN)):
        if len(rows) == count:
            break
        stream = Stream(seed, "question", index)
        steps = _draw(task, stream)
        bare = " ".join(step.sentence for step in steps)
        if normal_question(bare) in seen or split_of(bare) != split:
            continue
        seen.add(normal_question(bare))
        question = task.question.replace("{name}", NAME).replace("{steps}", bare)
        rows.append((question_id(question), question, _tests(task, steps, stream), bare, _trace(task, steps)))
    if len(rows) < count:
        raise problem(
            "E0711",
            f"{count} questions of the split `{split}` were asked for, and {len(rows)} were found",
            where="generated programs",
            help="ask for fewer, or for more steps, or for a larger `largest`",
        )
    return pl.DataFrame(rows, schema=["id", "question", "answer", "bare", "trace"], orient="row").cast(
        pl.String
    )


def _draw(task: Programs, stream: Stream) -> list[ProgramStep]:
    low, high = task.steps
    steps = []
    for _ in range(low + stream.below(high - low + 1)):
        kind, sentence, python = _STEPS[stream.below(len(_STEPS))]
        number = 1 + stream.below(task.largest)
        steps.append(ProgramStep(sentence.format(n=number), python.format(n=number), kind, number))
    return steps


def _tests(task: Programs, steps: list[ProgramStep], stream: Stream) -> str:
    """Return equalities at as many inputs, small, large and negative ones first: all of them have to hold."""
    inputs = [1, 3 * task.largest, -3 * task.largest][: task.tests]
    while len(inputs) < task.tests:
        inputs.append(stream.below(20 * task.largest + 1) - 10 * task.largest)
    texts = []
    for given in inputs:
        x = given
        for step in steps:
            x = step.value(x)
        texts.append(f"assert {NAME}({given}) == {x}")
    return SEPARATOR.join(dict.fromkeys(texts))


def _trace(task: Programs, steps: list[ProgramStep]) -> str:
    solution = _line(steps) if task.form == "line" else _block(steps)
    return task.trace.replace("{solution}", solution)


def _block(steps: list[ProgramStep]) -> str:
    lines = "".join(f"    x = {step.python}\n" for step in steps)
    return f"```python\ndef {NAME}(x):\n{lines}    return x\n```"


def _line(steps: list[ProgramStep]) -> str:
    """Return the same as one expression, every word and mark of it between spaces."""
    inside = "x"
    for step in steps:
        words = [inside if part == "x" else part for part in _PARTS.findall(step.python)]
        inside = " ".join(("(", *words, ")"))
    return " ".join(f"{NAME} = lambda x : {inside}".split())


def require_tests(table: pl.DataFrame, where: str) -> None:
    """Raise a Problem (E0718) that names rows whose tests no program could be judged by."""
    metas = table["meta"].to_list() if "meta" in table.columns else [""] * table.height
    unread = []
    for row, (answer, meta) in enumerate(zip(table["answer"], metas, strict=True), 1):
        try:
            read_tests(tuple(answer.split(SEPARATOR)), meta or "")
        except Unreadable as failure:
            unread.append(f"row {row}: {failure}")
    if unread:
        rest = len(unread) - _SHOWN
        raise problem(
            "E0718",
            f"{len(unread)} of {table.height} rows have no tests that can be read",
            where=where,
            notes=[*unread[:_SHOWN], *([f"and {rest} more"] if rest > 0 else [])],
            help='name the column with the tests, as `columns: columns(answer: "test_list")`; docs/OWN_CODE.md shows shapes',
        )
