"""Generated tasks: a start value, a chain of operations applied left to right, and the traces that solve it."""

from __future__ import annotations

from reodsl.ir.base import IR


class FoldTask(IR):
    """A chain of additions and subtractions modulo `modulus`, applied left to right to a start value.

    `operations` are words that end in a signed digit string (`+7`, `-3`); `values[v]` is the word of value v;
    `labels[i]` names step i. `question` is a template with `{start}` and `{steps}`; `step` one with `{label}`
    and `{op}`; steps are joined by a space. `length` is the inclusive range of the number of operations.
    """

    modulus: int
    values: tuple[str, ...]
    operations: tuple[str, ...]
    labels: tuple[str, ...]
    question: str
    step: str
    length: tuple[int, int]


class TraceStyle(IR):
    """One way to write a step: a template with `{label}`, `{value}`, `{op}` and `{next}`, and its weight."""

    name: str
    template: str
    weight: float


class FoldTraces(IR):
    """How a worked solution of a fold task is written, redundant re-checks and mistakes included.

    A pass is `open`, the steps, `close` (`{value}`); `again` stands between passes; `answer` (`{value}`) ends the
    trace. `error` is the probability that a step's result is off by one and carried on; `restyle` that a step
    draws its style anew; `another_pass` that a further pass follows, up to `max_passes`; with `until_agree`
    one always follows when the last two disagree. The last pass gives the answer.
    """

    styles: tuple[TraceStyle, ...]
    open: str
    close: str
    again: str
    answer: str
    filler: tuple[str, ...] = ()
    filler_probability: float = 0.0
    error: float = 0.0
    restyle: float = 0.0
    another_pass: float = 0.0
    max_passes: int = 1
    until_agree: bool = False
