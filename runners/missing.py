"""Find the missing values in files of others, whatever form the files have."""

from __future__ import annotations

import math

SPELLINGS = frozenset({"", "nan", "NaN", "NAN", "None", "null", "NULL", "<NA>", "NaT", "inf", "-inf", "+inf"})
"""Texts that programs write for a missing value, or for a number that is none."""


def is_missing(value: object) -> bool:
    """Return whether a field of a file holds no value: null, NaN, an infinity, white space, or a word for one of these."""
    if isinstance(value, str):
        return value.strip() in SPELLINGS
    return value is None or (isinstance(value, float) and not math.isfinite(value))
