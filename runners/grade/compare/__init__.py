"""Compare two answers by their text: read both as what they are, and decide, or say what to ask of computer algebra.

`FORMS` is the table of what answers are made of: how a text is read in a form, and how two readings are compared. What has
none of them is an expression, and math-verify is asked of expressions alone; `reodsl explain grading` says how. Numbers
are read by `quantity.py`, and dates, times and what else is no arithmetic by the table in `kinds.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product
from typing import Any

from runners.grade.compare import forms, groups, words
from runners.grade.compare.final import final_answer
from runners.grade.compare.forms import CasQuery, Plan, all_of, any_of, for_algebra, outcome, questions
from runners.grade.compare.kinds import read_kind, same_kind
from runners.grade.compare.notation import COMMANDS, HIDDEN, TEXT, balanced, plain
from runners.grade.compare.quantity import (
    MeasuredQuantity,
    quantity,
    read_number,
    same_quantity,
    several,
    without_unit,
)

__all__ = ["LONGEST", "CasQuery", "Plan", "all_of", "any_of", "expressions", "judge", "outcome", "questions"]

DEEPEST = 6
LONGEST = 20_000
"""Characters of an answer that are taken apart; a longer one is left to the worker, which has a limit of its own."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of answers.

    `read` returns the value of a text in this form, or nothing. `compare` is called if it reads the reference or the answer,
    and returns None if it decides nothing. `parts` lists the texts within a reference of this form that are to be read.
    """

    name: str
    read: Callable[[str], Any]
    compare: Callable[[forms.Pair, Any, Any], Plan | None]
    parts: Callable[[Any], Sequence[str] | None] = lambda value: None


# A figure \angle ABC, a residue 4 \pmod 3, choices A and C, a choice (B), words, what stands in brackets or \text{}, a
# relation a < b, an approximation \frac{1}{3} \approx 0.33, an equation x = 5, several numbers, a group (1, 2).
FORMS = (
    Form("figure", words.read_figure, forms.equal),
    Form("residue", groups.read_residue, forms.same_residues, lambda residue: residue.parts),
    Form("choices", words.read_choices, forms.equal),
    Form("choice", words.read_choice, forms.same_choices),
    Form("words", words.read_words, forms.same_words),
    Form("wrapping", words.read_wrapped, forms.same_wrapped, lambda inside: [inside]),
    Form("relation", groups.read_relation, forms.same_relations),
    Form("approximation", groups.read_near, forms.same_near),
    Form("equation", groups.read_equation, forms.same_equations, groups.equation_parts),
    Form("several numbers", several, forms.never),
    Form("group", groups.read_group, forms.same_groups, lambda group: group.unnamed().items),
)
"""The forms of answers, in the order in which they are tried; a pair of numbers is compared before, by its values."""


def judge(gold: str, answer: str, tolerance: float) -> Plan:
    r"""Plan how to tell whether an answer agrees with its reference.

    An empty answer or reference is wrong, and so is an answer that hides a part of itself (`\phantom`). The time is linear
    in both lengths, but for the members of sets, of which there are at most `MOST_ITEMS`.

    Args:
        gold: the reference.
        answer: the answer.
        tolerance: the greatest distance of a rounded number, as a share of the reference.

    Returns:
        The verdict, or a query to computer algebra, or several of them joined.
    """
    if not gold.strip() or not answer.strip():
        return False
    if len(gold) + len(answer) > LONGEST:
        return True if gold.strip() == answer.strip() and _WORD.search(gold) else CasQuery(gold, answer)
    if HIDDEN.search(answer) and not HIDDEN.search(gold):
        return False
    answer = final_answer(answer) or answer
    if _ABOUT.match(answer) and not _ABOUT.match(gold):
        return False
    gold, answer = _plain_reference(gold), plain(answer)
    if _QUANTIFIED.search(answer) and not _QUANTIFIED.search(gold):
        return False
    compare = partial(_compare, Fraction(str(tolerance)))
    parts = groups.labelled(gold), groups.labelled(answer)
    if any(parts):
        golds, answers = (labels or _listed(text) for labels, text in zip(parts, (gold, answer), strict=True))
        if len(golds) != len(answers):
            return False
        return all_of([compare(1, *pair) for pair in zip(golds, answers, strict=True)])
    return any_of([compare(0, *pair) for pair in groups.with_one_integer(gold, answer)])


_ABOUT = re.compile(r"\s*+\$?~ ?[0-9]")
_QUANTIFIED = re.compile(r"\\(?:forall|exists)(?![A-Za-z])")
_WORD = re.compile(r"[^\W_]")
_CONSTANT = re.compile(
    r"\\(?:pi|infty|emptyset|theta|alpha|beta|gamma|phi|lambda|mu|omega|sigma)(?![A-Za-z])"
)


def _compare(tolerance: Fraction, depth: int, gold: str, answer: str) -> Plan:
    """Return how a text compares with another text, both in the spelling of `plain`."""
    if not gold or not answer:
        return False
    if words.same_text(gold, answer):
        meaningful = _WORD.search(COMMANDS.sub(" ", gold)) or _CONSTANT.search(gold)
        return True if meaningful else CasQuery(gold, answer)
    if r"\ce{" in gold + answer:
        return False
    if depth > DEEPEST:
        return CasQuery(gold, answer)
    kind = same_kind(gold, answer)
    if kind is not None:
        return kind
    if words.opposed(gold, answer):
        return False
    compare = partial(_compare, tolerance, depth + 1)
    pairs = product(words.spellings(gold), words.spellings(answer))
    return any_of(
        [_compare_forms(first, _decimal_comma(first, second), tolerance, compare) for first, second in pairs]
    )


def _compare_forms(gold: str, answer: str, tolerance: Fraction, compare: Callable[[str, str], Plan]) -> Plan:
    """Compare two numbers by value, and other texts in the first form that decides."""
    expected, actual = _numbers(gold, answer)
    if expected is not None and actual is not None:
        return same_quantity(expected, actual, tolerance)
    pair = forms.Pair(gold, answer, (expected, actual), tolerance, compare)
    for form in FORMS:
        left, right = form.read(gold), form.read(answer)
        plan = form.compare(pair, left, right) if left or right else None
        if plan is not None:
            return plan
    return forms.same_expressions(pair)


def _numbers(gold: str, answer: str) -> tuple[MeasuredQuantity | None, MeasuredQuantity | None]:
    """Return the numbers that a reference and an answer are; a text that is a number alone may be none beside a formula."""
    expected, actual = _reference_number(gold), read_number(answer)
    if expected is None and actual is not None:
        named = ("\\" not in gold and actual.counted) or (actual.unit is not None and not TEXT.search(answer))
        return None, None if named else actual
    if expected is not None and actual is None:
        # One letter is a unit after a number with a unit, or after a space.
        gap = " ?" if expected.unit is not None else " "
        actual = quantity(re.sub(rf"(?<=[0-9}}]){gap}([A-Za-z])$", r" \\text{\1}", answer))
        return expected, None if actual is None or actual.unit is None else actual
    return expected, actual


# A reference is compared with many answers.
_plain_reference = lru_cache(maxsize=1024)(plain)
_reference_number = lru_cache(maxsize=1024)(partial(read_number, reference=True))
_COMMA_DECIMAL = re.compile(r"(?<![0-9.])([0-9]{1,12}),([0-9]{2}|[0-9]{4,12})(?![0-9,])")
_LESS_THAN_ONE = re.compile(r"-?0,[0-9]{2,12}")
_ONE_DECIMAL = re.compile(r"(?:-|\\?\$)?[0-9]+\.[0-9]+(?![0-9])[^0-9]*$")


def _decimal_comma(gold: str, answer: str) -> str:
    """Return an answer with a point for its comma, where the reference is a number with a decimal point.

    One with a point takes the comma of the reference `0,25`, which may else be a list.
    """
    if "." in answer and "," in gold and _LESS_THAN_ONE.fullmatch(gold):
        return answer.replace(".", ",")
    if "," not in answer or "." not in gold or "," in gold:
        return answer
    return _COMMA_DECIMAL.sub(r"\1.\2", answer) if _ONE_DECIMAL.match(gold) else answer


def _listed(text: str) -> list[str]:
    """Return the members of a list or a tuple; any other text is its only member."""
    group = groups.read_group(text)
    return [*group.items] if group is not None and group.kind in ("list", "tuple") else [text]


def expressions(reference: str) -> list[str]:
    """Return the distinct parts of a reference that only computer algebra can read; "" is a part that nothing reads.

    Numbers with their units, choices and words are read without it. Groups and equations are taken apart, as in `judge`.
    """
    if len(reference) > LONGEST:
        return [""]
    text = plain(reference)
    parts = groups.labelled(text) or [text]
    return list(dict.fromkeys(formula for part in parts for formula in _expressions(part, 0)))


def _expressions(text: str, depth: int) -> list[str]:
    """Return the parts of a text for computer algebra: of a form, those of its parts; nothing for a number or words."""
    if depth > DEEPEST:
        return [text]
    read = _reference_number(text) is not None or words.is_words(text) or read_kind(text) is not None
    if read or text == r"\ldots" or words.read_formula(text):
        return []
    if not text or several(text) or not balanced(text):
        return [""]
    for form in FORMS:
        value = form.read(text)
        parts = form.parts(value) if value else None
        if parts is not None:
            return [formula for child in parts for formula in _expressions(child, depth + 1)]
    return [for_algebra(without_unit(text)[0])]
