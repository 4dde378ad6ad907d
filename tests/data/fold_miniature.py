"""The task and traces of the miniature as plain values, for the tests of what generates them."""

from __future__ import annotations

from reodsl.ir.task import FoldTask, FoldTraces, TraceStyle

TASK = FoldTask(
    modulus=10,
    values=tuple("0123456789"),
    operations=tuple(f"{sign}{digit}" for sign in "+-" for digit in range(1, 10)),
    labels=tuple("abcdefgh"),
    question="<q> {start} {steps} ? <think>",
    step="{label} {op}",
    length=(2, 8),
)
VERBOSE = TraceStyle(name="verbose", template="so step {label} : take {value} {op} {next} .", weight=0.7)
MEDIUM = TraceStyle(name="medium", template="{label} {value} {op} {next}", weight=0.25)
TERSE = TraceStyle(name="terse", template="{label} {op} {next}", weight=0.05)
TRACES = FoldTraces(
    styles=(VERBOSE, MEDIUM, TERSE),
    open="hmm .",
    close="so {value} .",
    again="wait check again .",
    answer="</think> answer \\boxed{ {value} }",
    filler=("well", "okay"),
    filler_probability=0.12,
    error=0.06,
    restyle=0.25,
    another_pass=0.75,
    max_passes=3,
    until_agree=True,
)
CLEAN = FoldTraces(
    styles=(MEDIUM,),
    open="hmm .",
    close="so {value} .",
    again="",
    answer="</think> answer \\boxed{ {value} }",
)


def solve(question: str) -> int:
    """Read a question of the miniature word by word and do the sums."""
    words = question.split()
    assert words[0] == "<q>"
    assert words[-2:] == ["?", "<think>"]
    value = int(words[1])
    for label, operation in zip(words[2:-2:2], words[3:-2:2], strict=True):
        assert label in "abcdefgh"
        value += int(operation)
    return value % 10
