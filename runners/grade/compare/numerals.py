"""Read numbers in English words: `three hundred and forty-two`, `two thirds`, `two and a half`, `a dozen`.

This file imports nothing of the project.
"""

from __future__ import annotations

import re
from fractions import Fraction

MOST_WORDS = 24
"""Words of one number; more are a sentence."""
_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_CARDINALS = {word: value for value, word in enumerate(_UNITS)} | {
    word: 10 * value for value, word in enumerate(_TENS, 2)
}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SHARES = {
    "half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
    "ninth": 9, "tenth": 10, "eleventh": 11, "twelfth": 12, "fifteenth": 15, "sixteenth": 16, "twentieth": 20,
    "hundredth": 100, "thousandth": 1000,
}  # fmt: skip
_ALL = {
    *_CARDINALS,
    *_SCALES,
    *_SHARES,
    *(f"{word}s" for word in _SHARES),
    "hundred",
    "dozen",
    "and",
    "a",
    "an",
}
_GAP = re.compile(r"[ -]+")


def number_in_words(text: str) -> tuple[Fraction, str] | None:
    """Return the number that a text begins with in words, and what follows it; None where it begins with none."""
    words = _GAP.split(text.strip())
    count = next((index for index, word in enumerate(words) if word.lower() not in _ALL), len(words))
    if count > MOST_WORDS:
        return None
    while count and words[count - 1].lower() in ("and", "a", "an"):
        count -= 1
    value = _value([word.lower() for word in words[:count]])
    return None if value is None else (value, " ".join(words[count:]))


def _value(words: list[str]) -> Fraction | None:
    """Return what words of numbers come to; None where they are no number."""
    if not words or words == ["a"]:
        return None
    if words[-1] == "dozen":
        # `a dozen` is often said of about twelve.
        count = _value(words[:-2] if words[-2:-1] == ["a"] and len(words) > 2 else words[:-1])
        return None if count is None else 12 * count
    share = _SHARES.get(words[-1]) or _SHARES.get(words[-1].removesuffix("s"))
    if share is not None:
        return _with_share(words, share)
    return _cardinal(words)


def _with_share(words: list[str], share: int) -> Fraction | None:
    """Return the number of `two thirds` or of `two and a half`; `third` alone is a place in a row."""
    counted = words[:-1]
    whole = Fraction(0)
    if "and" in counted:
        index = len(counted) - 1 - counted[::-1].index("and")
        before = _cardinal(counted[:index])
        if before is None:
            return None
        whole, counted = before, counted[index + 1 :]
    if not counted:
        return Fraction(1, 2) if share == 2 and not whole else None
    if counted in (["a"], ["an"]):
        return whole + Fraction(1, share)
    count = _cardinal(counted)
    return None if count is None else whole + count / share


def _cardinal(words: list[str]) -> Fraction | None:
    """Return the whole number of `three hundred and forty-two`; None where the words are in no order of a number."""
    total = group = 0
    last = 10**15
    before = ""
    for word in words:
        if word == "and":
            if before not in ("hundred", *_SCALES):
                return None
        elif word in ("a", "an"):
            if before:
                return None
            group = 1
        elif word in _SCALES:
            if not group or _SCALES[word] >= last:
                return None
            total, group, last = total + group * _SCALES[word], 0, _SCALES[word]
        elif word == "hundred":
            if not 0 < group < 100:
                return None
            group *= 100
        elif word in _CARDINALS:
            value = _CARDINALS[word]
            room = 100 if before in ("", "and", "hundred", *_SCALES) else 10
            if (before in _CARDINALS and (_CARDINALS[before] < 20 or value >= 10)) or value >= room:
                return None
            group += value
        else:
            return None
        before = word
    return None if not before or before in ("and", "a", "an") else Fraction(total + group)
