r"""Answers that need no computer algebra: equal texts and plain numbers, decided as math-verify decides them.

What goes in are a reference and an answer; what comes out is a verdict, or None where only math-verify can say. Numbers
with nothing but space or brackets between them are the exception: math-verify adds them up (or reads the first alone) where
others read a product, a list or a mixed number, and here they are no answer, unless they are written like one number,
`1 234 567` or `2 1/2`.
"""

from __future__ import annotations

import re
from fractions import Fraction

# math-verify compares decimals after rounding to six places, so numbers nearer than this are left to it.
_NEAR = Fraction(1, 10**5)
_SPACE = re.compile(r"[ \t\r\n]+")
_COMMAND = re.compile(r"\\mathrm\{th\}|\\[A-Za-z]+")
_BRACE = re.compile(r"[{}]")
_BOXED = re.compile(r"\\boxed ?\{(.*)\}", re.DOTALL)
_WORD = re.compile(r"[0-9A-Za-z]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,200}", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9]{1,9}\.[0-9]{1,9}", re.ASCII)
_RATIO = re.compile(
    r"(-?)(?:\\[dt]?frac\{(-?[0-9]{1,12})\}\{([0-9]{1,12})\}|([0-9]{1,12})/([0-9]{1,12}))", re.ASCII
)
_GAP = r"(?:\s|~|\\[ ,;:]|\\q?quad)++"
_THOUSANDS = re.compile(rf"-?[0-9]{{1,3}}(?:{_GAP}[0-9]{{3}}){{1,60}}")
_MIXED = re.compile(
    rf"(-?)([0-9]{{1,12}}){_GAP}(\\[dt]?frac\{{[0-9]{{1,12}}\}}\{{[0-9]{{1,12}}\}}|[0-9]{{1,12}}/[0-9]{{1,12}})"
)
_ONE_OF_SEVERAL = r"(?:\\[dt]?frac\{[0-9]++\}\{[0-9]++\}|[0-9]++(?:[./][0-9]++)?)"
_IN_BRACKETS = rf"(?:\\left)?[(\[]\s*+[+-]?{_ONE_OF_SEVERAL}\s*+(?:\\right)?[)\]]"
_SEVERAL = re.compile(
    rf"[+-]?(?:{_ONE_OF_SEVERAL}|{_IN_BRACKETS})(?:(?:{_GAP})?{_IN_BRACKETS}|(?:{_GAP}|(?<=[)\]])){_ONE_OF_SEVERAL})+"
)


def tidy(text: str) -> str:
    """`text` without surrounding space, one box and one pair of dollar signs around it, its inner spaces single."""
    short = _SPACE.sub(" ", text).strip(" ")
    boxed = _BOXED.fullmatch(short)
    if boxed is not None and _balanced(boxed[1]):
        short = boxed[1].strip(" ")
    if len(short) > 2 and short[0] == short[-1] == "$" and "$" not in short[1:-1]:
        short = short[1:-1].strip(" ")
    return short


def number(text: str) -> Fraction | None:
    r"""The exact value of a plain integer, decimal or fraction (`-7`, `0.25`, `3/4`, `\frac{3}{4}`), tidied."""
    if _INTEGER.fullmatch(text):
        return Fraction(int(text))
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    ratio = _RATIO.fullmatch(text)
    if ratio is None:
        return None
    bottom = int(ratio[3] or ratio[5])
    if bottom == 0:
        return None
    value = Fraction(int(ratio[2] or ratio[4]), bottom)
    return -value if ratio[1] else value


def decide(gold: str, answer: str) -> bool | None:
    """True or False where text or number settles it, None otherwise.

    An empty answer, or an empty reference, is wrong. Equal texts are right if anything is left of them once
    LaTeX commands are set aside (math-verify reads nothing in a lone `\\ldots`). Two numbers are right when
    equal and wrong when further apart than math-verify's rounding reaches. Several numbers are wrong.
    """
    gold, answer = tidy(gold), tidy(answer)
    if not gold or not answer:
        return False
    if gold == answer:
        return True if _says_something(gold) else None
    left, right = _in_one(gold), _in_one(answer)
    if left is None or right is None:
        return False if _several(gold) or _several(answer) else None
    if left == right:
        return True
    return False if abs(left - right) > _NEAR else None


def _in_one(text: str) -> Fraction | None:
    """The value of a plain number, of one whose thousands stand apart, or of a whole number and a fraction."""
    if _THOUSANDS.fullmatch(text):
        return Fraction(re.sub(_GAP, "", text))
    mixed = _MIXED.fullmatch(text)
    if mixed is None:
        return number(text)
    part = number(mixed[3])
    value = None if part is None or part >= 1 else int(mixed[2]) + part
    return -value if value is not None and mixed[1] else value


def _several(text: str) -> bool:
    """Whether these are numbers with space or brackets between them, and not one number."""
    return _SEVERAL.fullmatch(text) is not None and _in_one(text) is None


def _says_something(text: str) -> bool:
    """Whether math-verify surely reads content here: a letter or digit outside commands, braces matched, no box."""
    if "\\boxed" in text or "\\fbox" in text or _WORD.search(_COMMAND.sub(" ", text)) is None:
        return False
    return _balanced(text)


def _balanced(text: str) -> bool:
    """Whether every brace has its partner, escaped ones counted alike."""
    depth = 0
    for brace in _BRACE.findall(text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0
