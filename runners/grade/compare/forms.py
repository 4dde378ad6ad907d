"""Compare a reference with an answer in one form: residues, choices, words, equations, groups, or expressions.

A comparison gets the values that its form has read, `left` of the reference and `right` of the answer, with None for a text
that is not of its form. It returns a plan, or None if it decides nothing, and then the next form is tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod

from runners.grade.compare.groups import (
    MOST_LINKS,
    RATIO,
    Group,
    Residue,
    is_name,
    is_named,
    names_number,
    one_by_one,
    read_as,
    read_linear,
)
from runners.grade.compare.notation import COMMANDS, TEXT
from runners.grade.compare.quantity import MeasuredQuantity, number_text, quantity, without_unit
from runners.grade.compare.words import (
    Choice,
    Words,
    fold,
    is_spoken,
    opposed,
    same_phrase,
    same_text,
    words_in,
    words_of,
)


@dataclass(frozen=True, slots=True)
class CasQuery:
    """A query to computer algebra: whether two expressions are equal, or two numbers within a relative tolerance."""

    gold: str
    answer: str
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanGroup:
    """Several plans joined by "and" if `every` is true, else by "or"."""

    every: bool
    parts: tuple[Plan, ...]


Plan = bool | CasQuery | PlanGroup


def all_of(plans: Sequence[Plan]) -> Plan:
    """Return the plan that holds if all plans hold, simplified by the plans that are already decided."""
    return _join(True, plans)


def any_of(plans: Sequence[Plan]) -> Plan:
    """Return the plan that holds if at least one plan holds, simplified by the plans that are already decided."""
    return _join(False, plans)


def _join(every: bool, plans: Sequence[Plan]) -> Plan:
    """Return plans joined by "and" if `every` is true, else by "or", without the plans that are already decided.

    The result is a verdict if the decided plans settle it, and the remaining plan itself if there is only one.
    """
    if (not every) in plans:
        return not every
    undecided = tuple(plan for plan in plans if not isinstance(plan, bool))
    return every if not undecided else undecided[0] if len(undecided) == 1 else PlanGroup(every, undecided)


def questions(plan: Plan) -> list[CasQuery]:
    """Return the different queries to computer algebra in a plan; empty if the plan is a verdict."""
    if isinstance(plan, CasQuery):
        return [plan]
    if isinstance(plan, bool):
        return []
    return list(dict.fromkeys(query for child in plan.parts for query in questions(child)))


def outcome(plan: Plan, verdict: Callable[[CasQuery], bool]) -> bool:
    """Return whether a plan holds.

    Args:
        plan: A verdict, a query, or several plans joined by "and" or "or".
        verdict: Returns the verdict of computer algebra on a query.
    """
    if isinstance(plan, bool):
        return plan
    if isinstance(plan, CasQuery):
        return verdict(plan)
    return (all if plan.every else any)(outcome(child, verdict) for child in plan.parts)


MOST_ITEMS = 24
"""The most members of a set or list that are compared in any order; math-verify compares longer sets."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A reference and an answer to compare, in the spelling of `notation.plain`."""

    gold: str
    answer: str
    numbers: tuple[MeasuredQuantity | None, MeasuredQuantity | None]
    """The reference and the answer as numbers; None for a text that is no number."""
    tolerance: Fraction
    """The largest accepted distance of a rounded number, relative to the reference."""
    compare: Callable[[str, str], Plan]
    """Plans the comparison of a member of the reference with a member of the answer."""

    def ask(self) -> Plan:
        """Return the plan to let computer algebra compare both texts unchanged."""
        return ask(self.gold, self.answer, float(self.tolerance))

    def compare_pairwise(self, golds: Sequence[str], answers: Sequence[str]) -> Plan:
        """Return the plan to compare member i of the reference with member i of the answer; their numbers must be equal."""
        if len(golds) != len(answers):
            return False
        return all_of([self.compare(*pair) for pair in zip(golds, answers, strict=True)])


def equal(pair: Pair, left: object | None, right: object | None) -> Plan | None:
    """Compare the values of a reference and an answer in a form for equality.

    Args:
        pair: The reference and the answer.
        left: The reference's value, or None if the reference is not of the form.
        right: The answer's value, or None.

    Returns:
        True if the values are equal, False if they differ, None if only one text is of the form.
    """
    return None if left is None or right is None else left == right


def never(pair: Pair, left: object | None, right: object | None) -> Plan | None:
    """Return False for any reference (`left`) and answer (`right`), because a text of this form is never right."""
    return False


def same_residues(pair: Pair, left: Residue | None, right: Residue | None) -> Plan | None:
    """Compare the names, remainders and moduli of two residues, such as `n = 4 mod 7`.

    Names are compared only if both have one. If only one text is a residue, and it has no name, its remainder is
    compared with the other text.

    Args:
        pair: The reference and the answer.
        left: The reference's residue, or None if the reference is no residue.
        right: The answer's residue, or None.

    Returns:
        The plan of the comparison.
    """
    if right is None:
        right = read_linear(pair.answer)
    if left is None or right is None:
        gold, answer = left or Residue("", pair.gold, ""), right or Residue("", pair.answer, "")
        return not (gold.name or answer.name) and pair.compare(gold.remainder, answer.remainder)
    named = [pair.compare(left.name, right.name)] if left.name and right.name else []
    values = pair.compare(left.remainder, right.remainder)
    return all_of([*named, values, pair.compare(left.modulus, right.modulus)])


def same_choices(pair: Pair, left: Choice | None, right: Choice | None) -> Plan | None:
    """Compare choices by their letters, and by their texts if both have a text.

    A reference with a text, such as `(B) seven`, also agrees with an answer that is this text without a letter.

    Args:
        pair: The reference and the answer.
        left: The reference's choice, or None if the reference is no choice.
        right: The answer's choice, or None.

    Returns:
        True if they agree, False if not, None to leave the decision to other forms.
    """
    if left is None:
        return None
    if left.text:
        if right is None:
            return fold(left.text) == fold(pair.answer)
        return left.letter == right.letter and (not right.text or fold(left.text) == fold(right.text))
    if right is None or (right.text and not left.letter.isupper()):
        return None if words_in(pair.answer) is None else False
    return left.letter == right.letter or (right.bracketed and left.letter == right.letter.upper())


def same_words(pair: Pair, left: Words | None, right: Words | None) -> Plan | None:
    """Compare words.

    A reference that is only yes, no, true or false agrees with an answer that begins with a word of the same meaning.
    The words of other references have to be the words of the answer (`same_phrase`).

    Args:
        pair: The reference and the answer.
        left: The reference's words, or None if the reference is not in words.
        right: The answer's words, or None.

    Returns:
        True if they agree, False if not, None to leave the decision to other forms.
    """
    if left is not None and left.alone and right is not None and right.agrees is not None:
        return left.agrees == right.agrees
    if left is None or left.text is None or not is_spoken(left.text):
        return None
    spoken = words_of(pair.answer) if right is None or right.text is None else right.text
    return same_phrase(left.text, spoken)


def same_wrapped(pair: Pair, left: str | None, right: str | None) -> Plan | None:
    r"""Compare the contents of texts in brackets or `\text{}`, or a text itself if it has no such wrapping.

    Args:
        pair: The reference and the answer.
        left: The content of the reference, or None if it has no wrapping.
        right: The content of the answer, or None.

    Returns:
        The plan of the comparison.
    """
    return pair.compare(left or pair.gold, right or pair.answer)


def same_relations(pair: Pair, left: Sequence[str] | None, right: Sequence[str] | None) -> Plan | None:
    """Return True if both texts are equal relations.

    Other relations are left to other forms, since they may describe the same interval.

    Args:
        pair: The reference and the answer.
        left: The normal form of the reference's relation, or None if the reference is no relation.
        right: The normal form of the answer's relation, or None.

    Returns:
        True, or None to leave the decision to other forms.
    """
    if left is None or right is None or len(left) != len(right):
        return None
    return all(map(same_text, left, right)) or None


def same_near(pair: Pair, left: Sequence[str] | None, right: Sequence[str] | None) -> Plan | None:
    """Compare the sides of approximations: any side of the reference may agree with any side of the answer.

    Args:
        pair: The reference and the answer.
        left: The two sides of the reference, or None if the reference is no approximation.
        right: The two sides of the answer, or None.

    Returns:
        The plan of the comparison.
    """
    return any_of([pair.compare(*both) for both in product(left or [pair.gold], right or [pair.answer])])


_NUMBERED_POWER = re.compile(r"(?<=[A-Za-z)|}])\^(?:\{-?[0-9]\}|[0-9])")


def same_equations(pair: Pair, left: list[str] | None, right: list[str] | None) -> Plan | None:
    """Compare equations, assignments (`x = 5`) and chains (`F = ma = 5`).

    A value agrees with an assignment of this value. Two assignments are compared by their values. They disagree if
    their names are different single letters, are opposites, or differ only by a prime. Any other equation is compared
    by computer algebra.

    Args:
        pair: The reference and the answer.
        left: The sides of the reference's equation, or None if the reference is no equation.
        right: The sides of the answer's equation, or None.

    Returns:
        The plan of the comparison.
    """
    lists = one_by_one(left, pair.answer), one_by_one(right, pair.gold)
    if any(lists):
        return pair.compare(lists[0] or pair.gold, lists[1] or pair.answer)
    left, right = left or [pair.gold], right or [pair.answer]
    if max(len(left), len(right)) > MOST_LINKS:
        return False
    if len(left) == 1:
        links = right[1:] if is_named(_NUMBERED_POWER.sub("", right[0])) else right
        # The formula in the middle of `F = ma = 5` need not agree with a number.
        links = [link for link in links[:-1] if pair.numbers[0] is None or not is_named(link)] + links[-1:]
        return all_of([pair.compare(pair.gold, link) for link in links])
    value = left[-1]
    if not is_name(left[0]):
        # An equation such as `a + b = 12` agrees with the number 12, other equations only with equations.
        has_same_left = len(right) == 2 and same_text(left[0].strip("|"), right[0].strip("|"))
        if names_number(left) and (len(right) == 1 or has_same_left):
            return pair.compare(value, right[-1])
        return pair.ask() if len(right) > 1 else False
    if len(right) == 1:
        return pair.compare(value, pair.answer)
    names = left[0], right[0]
    has_same_name = same_text(*names)
    if not is_name(right[0]) or not (has_same_name or quantity(value, reference=True) is not None):
        return pair.ask()
    if not has_same_name:
        unprimed = [name.replace("'", "") for name in names]
        if all(len(name) == 1 for name in names) or opposed(*names) or same_text(*unprimed):
            return False
    return all_of([pair.compare(value, link) for link in right[1:]])


def same_groups(pair: Pair, left: Group | None, right: Group | None) -> Plan | None:
    """Compare tuples, intervals, sets, lists, matrices and ratios by their members.

    If only one text is a group, the other is read as a vector if possible (`read_as`). A text that is no group can
    agree with a set or list of one member. A number can agree with a reference that is a ratio of two terms, as its
    quotient.

    Args:
        pair: The reference and the answer.
        left: The reference's group, or None if the reference is no group.
        right: The answer's group, or None.

    Returns:
        The plan of the comparison; None to leave the decision to other forms.
    """
    expected, actual = pair.numbers
    left, right = None if expected else left, None if actual else right
    if right is not None and left is None and expected is None:
        left = read_as(pair.gold, right)
    if left is not None and right is None and actual is None:
        right = read_as(pair.answer, left)
    if left is not None and right is not None:
        return _same_members(pair, left, right)
    group = left or right
    if group is None:
        return None
    if len(group.items) == 1 and group.kind in ("set", "list"):
        return pair.compare(group.items[0] if left else pair.gold, group.items[0] if right else pair.answer)
    if group.kind == "ratio":
        # The quotient agrees with a reference that is a ratio, but a ratio does not agree with a quotient.
        if right is not None or len(group.items) > 2:
            return False
        return pair.compare(_quotient(*group.items), pair.answer)
    return pair.ask() if expected is None and actual is None else False


def _same_members(pair: Pair, left: Group, right: Group) -> Plan:
    """Compare two groups by the rules of their kinds.

    Ratios agree up to a common factor, matrices and tuples member by member, sets and lists in any order. A matrix of a
    single row or column can agree with a tuple. Computer algebra compares a union with another kind, and long sets.

    Args:
        pair: The reference and the answer.
        left: The reference's group.
        right: The answer's group.
    """
    kinds = {left.kind, right.kind}
    if "ratio" in kinds:
        return len(kinds) == 1 and _in_proportion(pair, left.items, right.items)
    if "matrix" in kinds:
        same_shape = left.width == right.width
        if "tuple" in kinds:
            # A matrix of one row or column agrees with a tuple.
            same_shape = all(group.width in (0, 1, len(group.items)) for group in (left, right))
        return same_shape and pair.compare_pairwise(left.items, right.items)
    if "union" in kinds and kinds != {"union"}:
        return pair.ask()
    if "tuple" in kinds:
        is_interval = left.kind == "tuple" and len(left.items) == 2 and left.ends != right.ends
        if "set" in kinds or (is_interval and (right.kind == "tuple" or left.ends == "[]")):
            return False
        if kinds != {"tuple"}:
            left, right = left.unnamed(), right.unnamed()
        return pair.compare_pairwise(left.items, right.items)
    if max(len(left.items), len(right.items)) > MOST_ITEMS:
        return pair.ask()
    gold_values, answer_values = left.by_name(), right.by_name()
    if gold_values is not None and answer_values is not None and gold_values.keys() == answer_values.keys():
        return all_of([pair.compare(gold_values[name], answer_values[name]) for name in gold_values])
    return _in_any_order(pair, left.unnamed().items, right.unnamed().items)


def _in_proportion(pair: Pair, left: Sequence[str], right: Sequence[str]) -> Plan:
    """Compare two ratios by their quotients with the first term, or term by term if a term is 0.

    Args:
        pair: The reference and the answer.
        left: The terms of the reference.
        right: The terms of the answer.
    """
    if len(left) != len(right) or any(not term.strip("0") for term in (*left, *right)):
        return pair.compare_pairwise(left, right)
    quotients = [[_quotient(term, terms[0]) for term in terms[1:]] for terms in (left, right)]
    return pair.compare_pairwise(*quotients)


def _in_any_order(pair: Pair, left: Sequence[str], right: Sequence[str]) -> Plan:
    """Compare members in any order: every member of either text must agree with a member of the other text.

    Texts with different numbers of members disagree.

    Args:
        pair: The reference and the answer.
        left: The members of the reference.
        right: The members of the answer.
    """
    if len(left) != len(right):
        return False
    plans = [[pair.compare(gold, answer) for answer in right] for gold in left]
    return all_of([any_of(row) for row in (*plans, *map(list, zip(*plans, strict=True)))])


def _quotient(above: str, below: str) -> str:
    return rf"\frac{{{above}}}{{{below}}}"


_FREE = re.compile(r"(?<=\+)( ?)[cCkK]$")
_PI = re.compile(r"\\pi(?![A-Za-z])")
_BOUND = re.compile(r"\\(?:le|ge)(?![A-Za-z])|[<>]")
_PREDICATE = re.compile(r"(?<![a-z])(?:is|are|has|have|divides?|not|even|odd|prime)(?![a-z])")


def same_expressions(pair: Pair) -> Plan:
    """Plan the comparison of two expressions by computer algebra, after the checks that need only their texts.

    Units and words after an expression are removed and compared separately. Degrees become radians if the other text
    has pi. A constant of integration, such as `+ C`, may have another letter. An answer is wrong if it is only a bound
    (`< 5`), has another unit, has a percent sign that the reference lacks, or writes a letter in the other case.

    The local `share` is the tolerance relative to the reference, which does not apply if the reference is an integer.
    """
    gold, answer = pair.gold, pair.answer
    left, right = pair.numbers
    if _BOUND.match(answer):
        return False
    share = float(pair.tolerance)
    if left is not None:
        allowance = left.allowance(pair.tolerance, not DECIMAL.search(answer))
        share = float(allowance / abs(left.value)) if left.value else share
        if left.percent and right is None:
            values = left.value / 100, left.value
            return any_of([ask(number_text(value, left.rounded), answer, share) for value in values])
    free = gold[-1:] if _FREE.search(gold) else ""
    if free and free not in gold[:-1]:
        answer = _FREE.sub(rf"\1{free}", answer)
    if left is not None and left.degrees and _PI.search(answer):
        gold, left = rf"\frac{{{number_text(left.value, left.rounded)}\pi}}{{180}}", None
    if right is not None and right.degrees and _PI.search(gold):
        answer, right = rf"\frac{{{number_text(right.value, right.rounded)}\pi}}{{180}}", None
    gold, unit, condition = without_unit(gold)
    answer, other_unit, other_condition = without_unit(answer)
    conditions = [
        [word for word in fold(text) if word not in ("a", "an", "the")]
        for text in (condition, other_condition)
    ]
    if _PREDICATE.search(condition) and conditions[0] != conditions[1]:
        return False
    unit = unit if left is None else left.unit
    other_unit = other_unit if right is None else right.unit
    differs_in_unit = unit is not None and other_unit is not None and unit != other_unit
    if differs_in_unit or ("%" in answer and "%" not in gold) or other_case(gold, answer):
        return False
    if left is not None and left.base is None:
        gold = number_text(left.value, left.rounded)
    if right is not None and right.base is None:
        answer = number_text(right.value, right.rounded)
    return ask(gold, answer, 0.0 if left is not None and left.is_integer else share)


DECIMAL = re.compile(r"\.[0-9]")


def ask(gold: str, answer: str, share: float) -> Plan:
    """Return a query to computer algebra, or False for texts that it would compare wrongly.

    The result is False if a letter has another case, if only one text has dots, or if only the answer has a ratio.

    Args:
        gold: The reference.
        answer: The answer.
        share: The tolerance relative to the reference, which applies if either text has decimals.
    """
    differs_in_dots = (r"\ldots" in gold) != (r"\ldots" in answer)
    if other_case(gold, answer) or differs_in_dots or (RATIO.search(answer) and not RATIO.search(gold)):
        return False
    rounded = DECIMAL.search(gold) or DECIMAL.search(answer)
    gold, answer = (for_algebra(index_capitals(text, gold + answer)) for text in (gold, answer))
    return CasQuery(gold, answer, share if rounded else 0.0)


def other_case(gold: str, answer: str) -> bool:
    """Return whether an answer writes a letter of the reference only in the other case, such as `a` for `A`.

    This is checked here because math-verify ignores case.
    """
    left, right = (
        set(re.findall("[A-Za-z]", COMMANDS.sub(" ", TEXT.sub(" ", text)))) for text in (gold, answer)
    )
    return any(letter.swapcase() in left - right for letter in right - left)


def index_capitals(text: str, letters: str) -> str:
    """Return `text` with an index at each capital letter that also occurs as a small letter in `letters`.

    math-verify ignores case, and would take `A` and `a` for the same variable. So `A` becomes `A_{0}`.

    Args:
        text: The reference or the answer.
        letters: The reference and the answer together.
    """
    others = COMMANDS.sub(" ", letters)

    def add_index(letter: re.Match[str]) -> str:
        """Return a capital with the index 0 before its own index, or any other match of `_CAPITAL` unchanged."""
        if letter[1] is None or letter[1].lower() not in others:
            return letter[0]
        return f"{letter[1]}_{{0{letter[2] or letter[3] or ''}}} "

    return _CAPITAL.sub(add_index, text)


_INDEXED = r"(?:_(?:\{([^{}]*)\}|(\w)))?"
_CAPITAL = re.compile(
    r"\\(?:mathbb|text|mathrm|operatorname|begin|end) ?\{[^{}]*\}|\\[A-Za-z]+|([A-Z])" + _INDEXED
)
_REWRITES: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (mark, re.compile(pattern), written)
    for mark, pattern, written in (
        # A letter with a prime or a mark of LaTeX is another variable: it gets an index of digits that nobody writes.
        (
            "'",
            rf"([A-Za-z]){_INDEXED}('+)",
            lambda name: f"{name[1]}_{{{name[2] or name[3] or ''}{'9' * len(name[4])}}}",
        ),
        ("!!", r"(?<![0-9.])([0-9]{1,2})!!(?!!)", lambda number: str(prod(range(int(number[1]), 0, -2)))),
        (r"\frac", r"\\frac\{ ?d ?([A-Za-z]) ?\}\{ ?d ?([a-z]) ?\}", r"\\frac{\1_{7}}{\2_{7}}"),
        (r"\partial", r"\\partial ?\{?([A-Za-z])(?![A-Za-z_])\}?", r"\1_{7}"),
        ("^", r"(?<![\\A-Za-z])([A-Z]) ?\^ ?\{?(?:T|\\top|\\intercal)\}?(?![A-Za-z])", r"\1_{6}"),
        ("^", r"(?<![\\A-Za-z])([fghFGH]) ?\^ ?\{-1\} ?(?=\()", r"\1_{8}"),
        # math-verify takes `\gamma` for a function or a constant and degrees for radians; it lacks `E_0` and base e.
        (r"\gamma", r"\\gamma(?![A-Za-z])", r"\\varsigma "),
        (r"\log", r"\\log_ ?(?:\{ ?e ?\}|e(?![A-Za-z]))", r"\\ln "),
        (
            r"\circ",
            r"(\\(?:sin|cos|tan|cot|sec|csc)) ?[({]? ?([0-9.]{1,12}) ?\^\\circ ?[)}]?",
            r"\1{\\frac{\2\\pi}{180}}",
        ),
        ("E_", r"E_", r"\\Xi_"),
        # math-verify takes a last letter for a unit.
        ("", r"(?:(?<=[0-9)}]) ?|(?<=[A-Za-z]) )([A-Za-z])$", r"{\1}"),
    )
)
"""For each rewriting, a mark that a text must contain, a pattern, and the replacement of its matches."""


def for_algebra(text: str) -> str:
    """Return an expression rewritten where math-verify would misread it."""
    for mark, pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text) if mark in text else text
    return text
