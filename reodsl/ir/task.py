"""Generated tasks: a start value, a chain of operations applied left to right, and the traces that solve it."""

from __future__ import annotations

from typing import Literal

from reodsl.ir.base import IR
from reodsl.ir.setting import POSITIVE, SHARE, WORDS, Between, Flag, Many, Num, Text, kind, setting


@kind("task", parents=("task",))
class FoldTask(IR):
    """A chain of additions and subtractions, applied left to right to a start value.

    `operations` are words that end in a signed digit string (`+7`, `-3`); `values[v]` is the word of value v;
    `labels[i]` names step i. Steps are joined by a space.
    """

    modulus: int = setting(Num(whole=True, low=2, high=10**6), "values are modulo this", "modulus = 10")
    values: tuple[str, ...] = setting(Many(Text(), 2), "the word of each value", 'values = words("0 1 2")')
    operations: tuple[str, ...] = setting(
        Many(Text()), "signed digits, such as +7", 'operations = words("+1 -1")'
    )
    labels: tuple[str, ...] = setting(Many(Text()), "the name of each step", 'labels = words("a b c")')
    question: str = setting(Text(), "a template with {start} and {steps}", 'question = "{start} {steps} ?"')
    step: str = setting(Text(), "a template with {label} and {op}", 'step = "{label} {op}"')
    length: tuple[int, int] = setting(
        Between(Num(whole=True, low=1, high=4096)), "how many operations", "length = 2..8"
    )


@kind("programs", form="call")
class Programs(IR):
    """Questions for a function of one number, with tests and a worked solution: `tests()` verifies their answers.

    A step adds, takes away, multiplies, takes the remainder, or compares with a number up to `largest`. The solution is the
    function as a block of code, or as one line whose words have spaces between them.
    """

    kind: Literal["programs"] = "programs"
    steps: tuple[int, int] = setting(
        Between(Num(whole=True, low=1, high=16)),
        "how many lines the function needs",
        "steps: 1..3",
    )
    largest: int = setting(
        Num(whole=True, low=1, high=10**6), "numbers in questions go up to this", default=9
    )
    tests: int = setting(Num(whole=True, low=1, high=64), "of each question", default=4)
    question: str = setting(
        Text(),
        "a template with {name} and {steps}",
        'question: "{name}: {steps}"',
        default="Write a Python function `{name}(x)` of a whole number x. {steps} Then return x.",
    )
    form: Literal["block", "line"] = setting(
        WORDS,
        "how solutions are written: a `def` between fences, or a `lambda` in one line of words",
        default="block",
    )
    trace: str = setting(
        Text(), "a template with {solution}, for SFT", 'trace: "</think> {solution}"', default="{solution}"
    )


@kind("style")
class TraceStyle(IR):
    """One way to write a step."""

    name: str
    template: str = setting(
        Text(), "holds {label}, {value}, {op}, {next}", 'template = "{value} {op} {next} ."'
    )
    weight: float = setting(POSITIVE, "how often, relative to the other styles", default=1.0)


@kind("traces", parents=("traces",), children=("style",))
class FoldTraces(IR):
    """The style of a worked solution, redundant re-checks and mistakes included.

    A pass is `open`, the steps, `close`; `again` stands between passes; `answer` ends the trace. `another_pass` is the
    probability of a further pass, up to `max_passes`. The last pass gives the answer.
    """

    open: str = setting(Text(nonempty=False), "what a pass begins with", 'open = "so"')
    close: str = setting(
        Text(nonempty=False), "what a pass ends with; holds {value}", 'close = "so {value} ."'
    )
    again: str = setting(Text(nonempty=False), "what stands between passes", 'again = "wait"')
    answer: str = setting(Text(), "the end of a trace; holds {value}", 'answer = "answer {value}"')
    filler: tuple[str, ...] = setting(Many(Text(), 0), "words without meaning", default=())
    filler_probability: float = setting(SHARE, "of a filler before a step", default=0.0)
    error: float = setting(SHARE, "of a step whose result is off by one and carried on", default=0.0)
    restyle: float = setting(SHARE, "of a step that draws its style anew", default=0.0)
    another_pass: float = setting(SHARE, "of a further pass", default=0.0)
    max_passes: int = setting(Num(whole=True, low=1, high=64), "passes at most", default=1)
    until_agree: bool = setting(Flag(), "always another pass while the last two disagree", default=False)
    styles: tuple[TraceStyle, ...]
