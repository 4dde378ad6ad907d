"""Generated questions of a fold task: a start value and operations applied left to right, modulo a number.

Question n is generated from the random stream (seed, n). The first rows thus do not depend on the number of questions.
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
    """An operation that adds an amount."""

    label: str
    """The name of the step."""
    words: str
    """The operation as a question writes it, such as `+7`."""
    amount: int
    """The amount that the operation adds."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A start value and the operations that are applied to it from left to right."""

    start: int
    steps: tuple[Operation, ...]
    modulus: int | None = None
    """The modulus of all values; None for integers."""
    values: Sequence[str] = ()
    """The word for each value below the modulus; empty if values are written in digits."""

    def word(self, value: int) -> str:
        """Return the word for a value, or its digits if values have no words."""
        return self.values[value] if self.values else str(value)

    def after(self, value: int, amount: int) -> int:
        """Return the value after an amount is added to it, modulo the modulus if there is one."""
        return value + amount if self.modulus is None else (value + amount) % self.modulus

    @property
    def end(self) -> int:
        """Return the value after all operations."""
        value = self.start
        for step in self.steps:
            value = self.after(value, step.amount)
        return value


def chain_of_expression(text: str) -> Chain | None:
    """Return the chain of an expression such as `12 + 7 - -3`, with steps labelled 1, 2, …; None for another text."""
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
    """A question of a fold task: indices of its start value and its operations among the task's words."""

    start: int
    operations: tuple[int, ...]


def draw(task: FoldTask, stream: Stream) -> Fold:
    """Return a random question: its length, start value and operations are uniform over the task's choices."""
    shortest, longest = task.length
    length = shortest + stream.below(longest - shortest + 1)
    start = stream.below(task.modulus)
    return Fold(start, tuple(stream.below(len(task.operations)) for _ in range(length)))


@lru_cache(maxsize=4096)
def amount(operation: str) -> int:
    """Return the amount that an operation such as `spin+7` adds, by the signed digits at its end.

    Raises:
        Problem: E0720 if there are no such digits.
    """
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
    """Return a question as a text, by the task's templates."""
    steps = " ".join(
        fill(task.step, label=task.labels[i], op=task.operations[op]) for i, op in enumerate(fold.operations)
    )
    return fill(task.question, start=task.values[fold.start], steps=steps)


def result(task: FoldTask, fold: Fold) -> int:
    """Return the answer to a question: its value after all operations, modulo the task's modulus."""
    return (fold.start + sum(amount(task.operations[op]) for op in fold.operations)) % task.modulus


def chain_of(task: FoldTask, fold: Fold) -> Chain:
    """Return a question as a chain of operations with labels, for a worked solution."""
    steps = tuple(
        Operation(task.labels[index], task.operations[op], amount(task.operations[op]))
        for index, op in enumerate(fold.operations)
    )
    return Chain(fold.start, steps, task.modulus, task.values)


def bare_question(task: FoldTask, fold: Fold) -> str:
    """Return a question as numbers without the task's words, such as `5 -6 +3 mod 10`.

    The bare question decides the dataset split: it is the same in all wordings.
    """
    steps = " ".join(f"{amount(task.operations[op]):+d}" for op in fold.operations)
    return f"{fold.start} {steps} mod {task.modulus}"


def check_task(task: FoldTask) -> None:
    """Check that the words, lengths and templates of a fold task fit together.

    Raises:
        Problem: E0720 for the first fault, with a remedy.
    """
    shortest, longest = task.length
    values, labels = len(task.values), len(task.labels)
    wrong, remedy = "", ""
    if task.modulus < 2 or values != task.modulus:
        wrong = f"modulus {task.modulus} needs as many values, at least two, and there are {values}"
        remedy = (
            f"write `modulus = {values}`, or other `values`" if values > 1 else "write two `values` or more"
        )
    elif not 1 <= shortest <= longest:
        wrong = f"the range of lengths {shortest}..{longest} is empty or starts below 1"
        remedy = "write the shortest first, from 1 on, as in `length = 1..8`"
    elif longest > labels:
        wrong = f"up to {longest} steps need as many labels, and there are {labels}"
        remedy = (
            f"write more `labels`, or end `length` at {labels}"
            if labels
            else "write `labels`, one for each step"
        )
    elif not task.operations:
        wrong, remedy = "there are no operations", 'write some, as in `operations = words("+1 -2")`'
    elif twice := _repeated(task.values) or _repeated(task.operations):
        wrong, remedy = f"`{twice}` occurs twice", "write each value and each operation once"
    elif absent := next((hole for hole in ("{start}", "{steps}") if hole not in task.question), None):
        wrong = f"the question `{task.question}` has no `{absent}`"
        remedy = 'add it, as in `question = "{start} {steps} ?"`'
    elif "{op}" not in task.step:
        wrong = f"the step `{task.step}` has no `{{op}}`"
        remedy = 'add it, as in `step = "{label} {op}"`'
    if wrong:
        raise problem(
            "E0720", f"the fold task does not fit together: {wrong}", where="fold task", help=remedy
        )
    for operation in task.operations:
        amount(operation)


def _repeated(words: Sequence[str]) -> str | None:
    """Return the first word that occurs twice, or None."""
    return next((word for i, word in enumerate(words) if word in words[:i]), None)


def distinct_questions(task: FoldTask) -> int:
    """Return the number of different questions of a task, in both splits together."""
    shortest, longest = task.length
    return task.modulus * sum(len(task.operations) ** length for length in range(shortest, longest + 1))


def generate_questions(
    task: FoldTask, count: int, seed: int, *, split: Split = "train", exclude: Collection[str] = ()
) -> pl.DataFrame:
    """Return different random questions of a dataset split.

    Random questions are generated until enough are in the split and not repeated. After about `_DRAWS_PER_QUESTION`
    attempts for each question, the task counts as too small.

    Args:
        task: The task.
        count: The number of questions.
        seed: The seed of the random numbers.
        split: The split.
        exclude: Texts of questions to leave out.

    Returns:
        A table with the text columns id, question, answer and bare (the question as numbers).

    Raises:
        Problem: E0720 for a task that contradicts itself, E0711 if the task has too few questions.
    """
    check_task(task)
    seen = set(exclude)
    rows: list[tuple[str, str, str, str]] = []
    draws = 0
    most = distinct_questions(task)
    max_draws = _DRAWS_PER_QUESTION * (count + HELD_OUT_ONE_IN)
    while len(rows) < count and draws < max_draws and len(rows) < most:
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
    """Return E0711, the error of a task with too few questions.

    Args:
        task: The task.
        split: The split of the questions.
        available: The number of questions that were found.
        count: The number of questions that are needed.
    """
    return problem(
        "E0711",
        f"{count} questions of the split `{split}` are needed, and {available} were found",
        where="generated data",
        notes=[
            f"the task has {distinct_questions(task)} different questions in all; "
            f"about one in {HELD_OUT_ONE_IN} is held out, the others are for training"
        ],
        help="lower `count`, or give the task longer chains or more operations",
    )


def fill(template: str, **words: str) -> str:
    r"""Return a template with each `{name}` replaced by the word of this name; other braces stay: `\boxed{ {value} }`."""
    return _HOLE.sub(lambda hole: words.get(hole[1], hole[0]), template)
