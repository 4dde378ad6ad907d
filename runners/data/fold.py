"""Generated questions of a fold task: a start value and operations applied left to right, modulo a number.

Question n is drawn from the stream (seed, n), so the first rows are the same whatever the number asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from reodsl.diagnostics import Problem, problem
from reodsl.ir.task import FoldTask
from runners.data.draws import HELD_OUT_ONE_IN, Split, Stream, split_of
from runners.data.table import question_id

_EXPRESSION = re.compile(r"-?[0-9]{1,100}( [+-] -?[0-9]{1,100}){1,1000}")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: its name, its words, and the amount that it adds."""

    label: str
    words: str
    amount: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A start value and operations applied left to right; with a `modulus` values wrap and have words of their own."""

    start: int
    steps: tuple[Operation, ...]
    modulus: int | None = None
    values: Sequence[str] = ()

    def word(self, value: int) -> str:
        """Return how a value is written: its word, or its digits."""
        return self.values[value] if self.values else str(value)

    def after(self, value: int, amount: int) -> int:
        """Return the value that adding `amount` leads to."""
        return value + amount if self.modulus is None else (value + amount) % self.modulus

    @property
    def end(self) -> int:
        """The value after all operations."""
        value = self.start
        for step in self.steps:
            value = self.after(value, step.amount)
        return value


def chain_of_expression(text: str) -> Chain | None:
    """Return the chain of an expression such as `12 + 7 - -3`, with numbered steps; None for any other text."""
    if not _EXPRESSION.fullmatch(text):
        return None
    start, *rest = text.split(" ")
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return Chain(
        int(start),
        tuple(
            Operation(str(number), f"{sign} {digits}", int(digits) if sign == "+" else -int(digits))
            for number, (sign, digits) in enumerate(pairs, start=1)
        ),
    )


_DRAWS_PER_QUESTION = 200
_SIGNED = re.compile(r"[+-][0-9]+$")
_HOLE = re.compile(r"\{(start|steps|label|op|value|next)\}")


@dataclass(frozen=True, slots=True)
class Fold:
    """A question: the start value and the operations, as indices into the task's words."""

    start: int
    operations: tuple[int, ...]


def draw(task: FoldTask, stream: Stream) -> Fold:
    """Draw a question with a length uniform over the task's range, its start and operations uniform."""
    shortest, longest = task.length
    length = shortest + stream.below(longest - shortest + 1)
    start = stream.below(task.modulus)
    return Fold(start, tuple(stream.below(len(task.operations)) for _ in range(length)))


@lru_cache(maxsize=4096)
def amount(operation: str) -> int:
    """Return what an operation word adds: the signed digits it ends in."""
    digits = _SIGNED.search(operation)
    if digits is None:
        raise problem(
            "E0720",
            f"the operation `{operation}` does not end in a sign and digits",
            where="operations of a fold task",
            help="write it as `+7` or `-3`",
        )
    return int(digits[0])


def question_text(task: FoldTask, fold: Fold) -> str:
    """Return the question in the task's words."""
    steps = " ".join(
        fill(task.step, label=task.labels[i], op=task.operations[op]) for i, op in enumerate(fold.operations)
    )
    return fill(task.question, start=task.values[fold.start], steps=steps)


def result(task: FoldTask, fold: Fold) -> int:
    """Return the value after all operations."""
    return (fold.start + sum(amount(task.operations[op]) for op in fold.operations)) % task.modulus


def chain_of(task: FoldTask, fold: Fold) -> Chain:
    """Return a question as the chain of operations that solves it."""
    steps = tuple(
        Operation(task.labels[index], task.operations[op], amount(task.operations[op]))
        for index, op in enumerate(fold.operations)
    )
    return Chain(fold.start, steps, task.modulus, task.values)


def bare_question(task: FoldTask, fold: Fold) -> str:
    """Return the question without the task's words: start, operations and modulus, as in `5 -6 +3 mod 10`."""
    steps = " ".join(f"{amount(task.operations[op]):+d}" for op in fold.operations)
    return f"{fold.start} {steps} mod {task.modulus}"


def check_task(task: FoldTask) -> None:
    """Raise E0720 if the task's words and numbers do not fit together."""
    shortest, longest = task.length
    values, labels = len(task.values), len(task.labels)
    wrong, remedy = "", ""
    if task.modulus < 2 or values != task.modulus:
        wrong = f"modulus {task.modulus} needs as many values (and two at least), and there are {values}"
        remedy = (
            f"write `modulus = {values}`, or other `values`" if values > 1 else "give two `values` or more"
        )
    elif not 1 <= shortest <= longest:
        wrong = f"the range of lengths {shortest}..{longest} is empty or starts below 1"
        remedy = "write the shortest first, from 1 on, as in `length = 1..8`"
    elif longest > labels:
        wrong = f"up to {longest} steps need as many labels, and there are {labels}"
        remedy = (
            f"give more `labels`, or end `length` at {labels}"
            if labels
            else "give `labels`, one for each step"
        )
    elif not task.operations:
        wrong, remedy = "there are no operations", 'give some, as in `operations = words("+1 -2")`'
    elif twice := _repeated(task.values) or _repeated(task.operations):
        wrong, remedy = f"`{twice}` occurs twice", "write each value and each operation once"
    elif absent := next((hole for hole in ("{start}", "{steps}") if hole not in task.question), None):
        wrong = f"the question `{task.question}` lacks the place `{absent}`"
        remedy = 'write it, as in `question = "{start} {steps} ?"`'
    elif "{op}" not in task.step:
        wrong = f"the step `{task.step}` lacks the place `{{op}}`"
        remedy = 'write it, as in `step = "{label} {op}"`'
    if wrong:
        raise problem(
            "E0720", f"the fold task does not fit together: {wrong}", where="fold task", help=remedy
        )
    for operation in task.operations:
        amount(operation)


def _repeated(words: Sequence[str]) -> str | None:
    """Return the first word that occurs a second time, or None."""
    return next((word for i, word in enumerate(words) if word in words[:i]), None)


def distinct_questions(task: FoldTask) -> int:
    """Return how many questions the task has, both sides of the split together."""
    shortest, longest = task.length
    return task.modulus * sum(len(task.operations) ** length for length in range(shortest, longest + 1))


def generate_questions(
    task: FoldTask, count: int, seed: int, *, split: Split = "train", exclude: Collection[str] = ()
) -> pl.DataFrame:
    """Return `count` distinct questions of a side of the split: columns id, question, answer, bare.

    Questions in `exclude` (texts) are skipped. Raises a Problem: E0720 for a task that does not fit together,
    E0711 if the task has fewer questions.
    """
    check_task(task)
    seen = set(exclude)
    rows: list[tuple[str, str, str, str]] = []
    draws = 0
    most = distinct_questions(task)
    patience = _DRAWS_PER_QUESTION * (count + HELD_OUT_ONE_IN)
    while len(rows) < count and draws < patience and len(rows) < most:
        fold = draw(task, Stream(seed, "question", draws))
        draws += 1
        question, bare = question_text(task, fold), bare_question(task, fold)
        if question not in seen and split_of(bare) == split:
            seen.add(question)
            rows.append((question_id(question), question, task.values[result(task, fold)], bare))
    if len(rows) < count:
        raise too_few(task, split, len(rows), count)
    return pl.DataFrame(rows, schema=["id", "question", "answer", "bare"], orient="row").cast(pl.String)


def too_few(task: FoldTask, split: Split, available: int, count: int) -> Problem:
    """Return E0711 for a task with fewer questions than the requested `count`."""
    return problem(
        "E0711",
        f"{count} questions of the split `{split}` were asked for, and {available} were found",
        where="generated data",
        notes=[
            f"the task has {distinct_questions(task)} different questions in all; "
            f"about one in {HELD_OUT_ONE_IN} is held out, the others are for training"
        ],
        help="ask for fewer, or give the task longer chains or more operations",
    )


def fill(template: str, **words: str) -> str:
    r"""Return `template` with each given `{name}` replaced; every other brace stays, as in `\boxed{ {value} }`."""
    return _HOLE.sub(lambda hole: words.get(hole[1], hole[0]), template)
