"""Compare an answer with its reference by their texts: decide, or plan queries to computer algebra.

`FORMS` lists the forms of answers: how a text is read in a form, and how two readings are compared. A text of no form is an
expression, which math-verify compares; `reodsl explain grading` describes the rules. `quantity.py` reads numbers, and
`kinds.py` reads dates, times and other texts that are not arithmetic.
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
"""The most levels of nested texts that are compared part by part."""
LONGEST = 20_000
"""The most characters of reference and answer together that are read here; workers get longer texts unread."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of answers, such as a choice, an equation or a group."""

    name: str
    read: Callable[[str], Any]
    """Returns the value of a text in this form, or a false value if the text is not of this form."""
    compare: Callable[[forms.Pair, Any, Any], Plan | None]
    """Compares the values of a reference and an answer, of which at least one is of this form; None leaves it open."""
    parts: Callable[[Any], Sequence[str] | None] = lambda value: None
    """Returns the texts inside a reference's value that have to be readable."""


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
r"""The forms of answers, in the order in which they are tried, after numbers.

Examples: a figure `\angle ABC`, a residue `4 \pmod 3`, choices `A and C`, a choice `(B)`, words, a text in brackets or
`\text{}`, a relation `a < b`, an approximation `\frac{1}{3} \approx 0.33`, an equation `x = 5`, several numbers, a group
`(1, 2)`.
"""


def judge(gold: str, answer: str, tolerance: float) -> Plan:
    r"""Plan how to decide whether an answer agrees with its reference.

    An answer is wrong if it or the reference is empty. It is also wrong if it hides text (`\phantom`), begins with a
    sign for "about" (`~ 5`), or has a quantifier (`\forall`), and the reference does not. Answers to several labelled
    parts, `(a) 12; (b) 7`, are compared part by part. Long texts are left to computer algebra.

    The time is linear in both lengths, except for sets, which have at most `MOST_ITEMS` members.

    Args:
        gold: The reference.
        answer: The answer.
        tolerance: The largest accepted distance of a rounded number, relative to the reference.

    Returns:
        The verdict, or a query to computer algebra, or several queries joined by "and" and "or".
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
    # Answers to several parts of a question: `(a) 12; (b) 7`.
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
    """Plan the comparison of an answer, or of a member of an answer, with its reference.

    Equal texts agree. Then dates, times and other kinds decide (`same_kind`), then words with opposite meanings, which
    never agree. If nothing has decided, all spellings of the two texts are compared in all forms, of which one has to
    agree.

    Args:
        tolerance: The largest accepted distance of a rounded number, relative to the reference.
        depth: The number of enclosing texts of which `gold` and `answer` are members.
        gold: The reference in the spelling of `plain`.
        answer: The answer in the spelling of `plain`.
    """
    if not gold or not answer:
        return False
    if words.same_text(gold, answer):
        has_content = _WORD.search(COMMANDS.sub(" ", gold)) or _CONSTANT.search(gold)
        return True if has_content else CasQuery(gold, answer)
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
    """Plan the comparison of two texts.

    Two numbers are compared as numbers. Otherwise the forms of `FORMS` are tried in order, and the first that decides
    counts. If none decides, the texts are compared as expressions.

    Args:
        gold: The reference.
        answer: The answer.
        tolerance: The largest accepted distance of a rounded number, relative to the reference.
        compare: Plans the comparison of members of the texts.
    """
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
    """Return the reference and the answer as numbers, or None for a text that is no number.

    Letters after a number may be a unit or a factor, and the other text says which. If the reference is no number, an
    answer such as `5 m` counts as a product and no number; letters that are marked as text stay a unit. If the
    reference is a number, a single letter after the answer's number is read as a unit.
    """
    expected, actual = _reference_number(gold), read_number(answer)
    if expected is None and actual is not None:
        # Beside a formula, bare letters after a number are variables rather than a unit or a noun.
        is_product = ("\\" not in gold and actual.counted) or (
            actual.unit is not None and not TEXT.search(answer)
        )
        return None, None if is_product else actual
    if expected is not None and actual is None:
        # A single letter after a number is a unit if the reference has a unit, or if a space comes before the letter.
        gap = " ?" if expected.unit is not None else " "
        actual = quantity(re.sub(rf"(?<=[0-9}}]){gap}([A-Za-z])$", r" \\text{\1}", answer))
        return expected, None if actual is None or actual.unit is None else actual
    return expected, actual


_reference_number = lru_cache(maxsize=1024)(partial(read_number, reference=True))
"""The functions for references are cached, because a reference is compared with many answers."""
_MONEY = r"\\?\$|[\u20ac\u00a3\u20b9]"
_DIGITS = r"([0-9]{1,12}(?:\.[0-9]{3}){0,4}),([0-9]{2})"
_PRICE = re.compile(
    rf"({_MONEY}) ?{_DIGITS}(?![0-9,])|"
    rf"(?<![0-9.,]){_DIGITS}(?= ?(?:{_MONEY}|\\text\{{ ?(?:EUR|USD|euros?|dollars?) ?\}}))"
)
"""The pattern of a price with a decimal comma: two digits after a comma without a space, beside a currency."""


@lru_cache(maxsize=1024)
def _plain_reference(gold: str) -> str:
    """Return a reference in the spelling of `plain`, with a decimal point in prices: `$1.50` for `$1,50`."""
    return _PRICE.sub(
        lambda price: (price[1] or "") + (price[2] or price[4]).replace(".", "") + f".{price[3] or price[5]}",
        plain(gold),
    )


_COMMA_DECIMAL = re.compile(r"(?<![0-9.])([0-9]{1,12}),([0-9]{2}|[0-9]{4,12})(?![0-9,])")
_LESS_THAN_ONE = re.compile(r"-?0,[0-9]{2,12}")
_ONE_DECIMAL = re.compile(rf"(?:-|{_MONEY})?[0-9]+\.[0-9]+(?![0-9])[^0-9]*$")


def _decimal_comma(gold: str, answer: str) -> str:
    """Return an answer with the same decimal separator as its reference (`gold`).

    A comma becomes a point if the reference is a single number with a decimal point. A point becomes a comma if the
    reference is a number below 1 with a comma, such as `0,25`. Any other answer is returned unchanged.
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
    """Return the different formulas in a reference that only computer algebra can read.

    Numbers with their units, choices, words, dates and chemical formulas need no computer algebra, and are left out.
    Groups and equations are divided into their members, as in `judge`. The result is empty if nothing needs computer
    algebra.

    Args:
        reference: The reference.

    Returns:
        The formulas; an empty string among them means that a member of the reference cannot be read at all.
    """
    if len(reference) > LONGEST:
        return [""]
    text = _plain_reference(reference)
    parts = groups.labelled(text) or [text]
    return list(dict.fromkeys(formula for part in parts for formula in _expressions(part, 0)))


def _expressions(text: str, depth: int) -> list[str]:
    """Return the formulas in a text that only computer algebra can read.

    The result is empty for numbers, words, dates and chemical formulas. A text with members gives the formulas of its
    members. An empty string stands for a text or member that cannot be read at all.

    Args:
        text: A reference or a member of a reference, in the spelling of `plain`.
        depth: The number of enclosing texts of which `text` is a member.
    """
    if depth > DEEPEST:
        return [text]
    is_known = _reference_number(text) is not None or words.is_words(text) or read_kind(text) is not None
    if is_known or text == r"\ldots" or words.read_formula(text):
        return []
    if not text or several(text) or not balanced(text):
        return [""]
    for form in FORMS:
        value = form.read(text)
        parts = form.parts(value) if value else None
        if parts is not None:
            return [formula for child in parts for formula in _expressions(child, depth + 1)]
    return [for_algebra(without_unit(text)[0])]
