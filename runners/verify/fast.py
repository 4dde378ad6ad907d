r"""Tidy plain texts, read plain numbers, and say whether a text has several.

Numbers with nothing but space or brackets between them are no answer: math-verify adds them up (or reads the first alone)
where others read a product, a list or a mixed number. Those written like one number, `1 234 567` or `2 1/2`, are one.
"""

from __future__ import annotations

import re
from fractions import Fraction

_SPACE = re.compile(r"[ \t\r\n]+")
_BRACE = re.compile(r"[{}]")
_BOXED = re.compile(r"\\boxed ?\{(.*)\}", re.DOTALL)
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


def several(text: str) -> bool:
    """Whether these are numbers with space or brackets between them, and not one number."""
    return _SEVERAL.fullmatch(text) is not None and _in_one(text) is None


def _balanced(text: str) -> bool:
    """Whether every brace has its partner, escaped ones counted alike."""
    depth = 0
    for brace in _BRACE.findall(text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0
