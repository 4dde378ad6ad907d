"""Generated tasks: a start value, a chain of operations applied left to right, and the traces that solve it."""

from __future__ import annotations

from reodsl.ir.base import IR
from reodsl.ir.setting import POSITIVE, SHARE, Flag, ListOf, Num, Range, Text, kind, setting


@kind("task", parents=("task",))
class FoldTask(IR):
    """A chain of additions and subtractions, applied left to right to a start value.

    `operations` are words that end in a signed digit string (`+7`, `-3`); `values[v]` is the word of value v;
    `labels[i]` names step i. Steps are joined by a space.
    """

    modulus: int = setting(Num(integer=True, low=2, high=10**6), "values are modulo this", "modulus = 10")
    values: tuple[str, ...] = setting(ListOf(Text(), 2), "the word of each value", 'values = words("0 1 2")')
    operations: tuple[str, ...] = setting(
        ListOf(Text()), "signed digits, such as +7", 'operations = words("+1 -1")'
    )
    labels: tuple[str, ...] = setting(ListOf(Text()), "the name of each step", 'labels = words("a b c")')
    question: str = setting(Text(), "a template with {start} and {steps}", 'question = "{start} {steps} ?"')
    step: str = setting(Text(), "a template with {label} and {op}", 'step = "{label} {op}"')
    length: tuple[int, int] = setting(
        Range(Num(integer=True, low=1, high=4096)), "how many operations", "length = 2..8"
    )


@kind("style")
class TraceStyle(IR):
    """A way to write a step."""

    name: str
    template: str = setting(
        Text(), "contains {label}, {value}, {op}, {next}", 'template = "{value} {op} {next} ."'
    )
    weight: float = setting(POSITIVE, "the weight of this style relative to the other styles", default=1.0)


@kind("traces", parents=("traces",), children=("style",))
class FoldTraces(IR):
    """The style of a worked solution, redundant re-checks and mistakes included.

    A pass is `open`, the steps, `close`; `again` stands between passes; `answer` ends the trace. `another_pass` is the
    probability of a further pass, up to `max_passes`. The last pass gives the answer.
    """

    open: str = setting(Text(nonempty=False), "what a pass begins with", 'open = "so"')
    close: str = setting(
        Text(nonempty=False), "the end of a pass; contains {value}", 'close = "so {value} ."'
    )
    again: str = setting(Text(nonempty=False), "the text between two passes", 'again = "wait"')
    answer: str = setting(Text(), "the end of a trace; contains {value}", 'answer = "answer {value}"')
    filler: tuple[str, ...] = setting(ListOf(Text(), 0), "words without meaning", default=())
    filler_probability: float = setting(SHARE, "of a filler before a step", default=0.0)
    error: float = setting(
        SHARE, "probability of a step whose result is off by one and is carried on", default=0.0
    )
    restyle: float = setting(SHARE, "probability of a step that draws a new style", default=0.0)
    another_pass: float = setting(SHARE, "of a further pass", default=0.0)
    max_passes: int = setting(Num(integer=True, low=1, high=64), "passes at most", default=1)
    until_agree: bool = setting(Flag(), "whether passes go on until the last two agree", default=False)
    styles: tuple[TraceStyle, ...]  # wordings of steps
