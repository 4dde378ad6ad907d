"""Generated tasks: a start value, a chain of operations applied left to right, and the traces that solve it."""

from __future__ import annotations

from typing import Literal

from reodsl.ir.base import IR
from reodsl.ir.settings import data as data_settings


class FoldTask(data_settings.Task, IR):
    """A chain of additions and subtractions modulo `modulus`, applied left to right to a start value.

    `operations` are words that end in a signed digit string (`+7`, `-3`); `values[v]` is the word of value v;
    `labels[i]` names step i. `question` is a template with `{start}` and `{steps}`; `step` one with `{label}`
    and `{op}`; steps are joined by a space. `length` is the inclusive range of the number of operations.
    """

    length: tuple[int, int]


class Programs(data_settings.Programs, IR):
    """Functions of one whole number x, each a few steps of arithmetic, with tests of what they return.

    A step adds, takes away, multiplies, takes the remainder, or compares with a number up to `largest`. `question` is a
    template with `{name}`, the function's, and `{steps}`. A worked solution is `trace`, a template with `{solution}`: the
    function as a block of code, or as one line whose words have spaces between them.
    """

    kind: Literal["programs"] = "programs"
    steps: tuple[int, int]


class TraceStyle(data_settings.Style, IR):
    """One way to write a step: a template with `{label}`, `{value}`, `{op}` and `{next}`, and its weight."""

    name: str


class FoldTraces(data_settings.Traces, IR):
    """How a worked solution of a fold task is written, redundant re-checks and mistakes included.

    A pass is `open`, the steps, `close` (`{value}`); `again` stands between passes; `answer` (`{value}`) ends the
    trace. `error` is the probability that a step's result is off by one and carried on; `restyle` that a step
    draws its style anew; `another_pass` that a further pass follows, up to `max_passes`; with `until_agree`
    one always follows when the last two disagree. The last pass gives the answer.
    """

    styles: tuple[TraceStyle, ...]
