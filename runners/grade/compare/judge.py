"""Decide whether an answer is right, or what to ask of computer algebra.

The shapes that answers have are taken apart here: numbers with their units, percent and powers of ten, choices and words,
tuples, intervals, sets, lists, matrices, assignments. What remains in their places are expressions, and only these are
asked of math-verify; docs/GRADING.md is the account of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import prod

from runners.grade.compare.final import LABELS, final_answer
from runners.grade.compare.kinds import opposed, read_kind, same_kind, without_sides
from runners.grade.compare.notation import HIDDEN, balanced, closing, plain, split_top
from runners.grade.compare.quantity import (
    MeasuredQuantity,
    quantity,
    quantity_in_words,
    same_quantity,
    unit_of,
)

MOST_ITEMS = 24
"""Members of a set or list that are compared in any order; longer ones are left to math-verify as they stand."""
MOST_LINKS = 8
"""Sides of a chain of equations; a longer one is not an answer."""
DEEPEST = 6
LONGEST = 20_000
"""Characters of an answer that are taken apart; a longer one is left to the worker, which has a limit of its own."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to computer algebra: are two expressions equal, numbers within a share of the first?"""

    gold: str
    answer: str
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class Every:
    """All of these have to hold."""

    parts: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """One of these has to hold."""

    parts: tuple[Plan, ...]


Plan = bool | Ask | Every | Some


def every(parts: Sequence[Plan]) -> Plan:
    """Return the conjunction, decided as far as it can be."""
    if any(part is False for part in parts):
        return False
    left = tuple(part for part in parts if part is not True)
    return True if not left else left[0] if len(left) == 1 else Every(left)


def some(parts: Sequence[Plan]) -> Plan:
    """Return the disjunction, decided as far as it can be."""
    if any(part is True for part in parts):
        return True
    left = tuple(part for part in parts if part is not False)
    return False if not left else left[0] if len(left) == 1 else Some(left)


def questions(plan: Plan) -> list[Ask]:
    """List the questions that a plan asks, each once."""
    if isinstance(plan, Ask):
        return [plan]
    if isinstance(plan, (Every, Some)):
        return list(dict.fromkeys(ask for part in plan.parts for ask in questions(part)))
    return []


def outcome(plan: Plan, verdict: Callable[[Ask], bool]) -> bool:
    """Return the outcome of a plan, given the answers to its questions."""
    match plan:
        case bool():
            return plan
        case Ask():
            return verdict(plan)
        case Every(parts):
            return all(outcome(part, verdict) for part in parts)
        case Some(parts):
            return any(outcome(part, verdict) for part in parts)


def judge(gold: str, answer: str, tolerance: float) -> Plan:
    r"""Plan how to tell whether an answer agrees with its reference; `tolerance` is a share of it, for rounded numbers.

    An empty answer or reference is wrong, and so is an answer that hides a part of itself (`\phantom`). In time linear
    in both lengths, but for the members of sets, of which there are at most `MOST_ITEMS`.
    """
    if not gold.strip() or not answer.strip():
        return False
    if len(gold) + len(answer) > LONGEST:
        return True if gold.strip() == answer.strip() and _WORD.search(gold) else Ask(gold, answer)
    if HIDDEN.search(answer) and not HIDDEN.search(gold):
        return False
    answer = final_answer(answer) or answer
    if _ABOUT.match(answer) and not _ABOUT.match(gold):
        return False
    gold, answer = _plain_reference(gold), plain(answer)
    if _SOME.search(answer) and not _SOME.search(gold):
        return False
    judging = _Judge(Fraction(str(tolerance)), tolerance)
    parts = _parts(gold), _parts(answer)
    if any(parts):
        return judging.in_parts(
            *(part or _listed(text) for part, text in zip(parts, (gold, answer), strict=True))
        )
    return some([judging.compare(*pair, 0) for pair in _of_one_integer(gold, answer)])


@lru_cache(maxsize=1024)
def _plain_reference(reference: str) -> str:
    """Return `plain` of a reference, which is compared with many answers."""
    return plain(reference)


@lru_cache(maxsize=1024)
def _reference_quantity(reference: str) -> MeasuredQuantity | None:
    """Return the number that a reference is."""
    return quantity(reference, reference=True) or quantity_in_words(reference, reference=True)


def expressions(reference: str) -> list[str]:
    """Return the parts of a reference that only computer algebra can read, each once; "" is a part that nothing reads.

    Numbers with their units, choices and words are read without it. Groups and equations are taken apart, as in `judge`.
    """
    if len(reference) > LONGEST:
        return [""]
    text = plain(reference)
    return list(dict.fromkeys(each for part in _parts(text) or [text] for each in _expressions(part, 0)))


def _expressions(text: str, depth: int) -> list[str]:
    if depth > DEEPEST:
        return [text]
    read = _reference_quantity(text) is not None or _is_words(text) or _with_text(text) is not None
    read = read or read_kind(text) is not None
    if read or text == r"\ldots" or _formula(text):
        return []
    if not text or several(text) or not balanced(text):
        return [""]
    residue = _MODULO.fullmatch(text)
    if residue is not None:
        return [part for each in residue.groups() if each for part in _expressions(each, depth + 1)]
    inner = _opened(text)
    if inner != text:
        return _expressions(inner, depth + 1)
    sides = _chain(text)
    if len(sides) > 1:
        if _strict_name(sides[0]) or _names_number(sides):
            sides = sides[-1:]
        elif len(sides) > MOST_LINKS or any(map(_is_words, sides)):
            return [""]
        return [part for side in sides for part in _expressions(side, depth + 1)]
    group = _group(text)
    if group is not None:
        return [part for item in _unnamed(group).items for part in _expressions(item, depth + 1)]
    return [_for_algebra(_without_unit(text)[0])]


_WORD = re.compile(r"[^\W_]")
_PREDICATE = re.compile(r"(?<![a-z])(?:is|are|has|have|divides?|not|even|odd|prime)(?![a-z])")
_COMMANDS = re.compile(r"\\[A-Za-z]+")
_CONSTANT = re.compile(
    r"\\(?:pi|infty|emptyset|theta|alpha|beta|gamma|phi|lambda|mu|omega|sigma)(?![A-Za-z])"
)
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])")
_TEXT = re.compile(r"\\(?:text|mathrm)\{([^{}]*+)\}")
_ALL_TEXT = re.compile(r"(?:\\(?:text|mathrm)\{[^{}]*+\} ?)++")
_CHOICE = re.compile(r"\(?([A-Za-z])\)?[.:]?")
_MODULO = re.compile(
    r"(?:((?:(?!\\equiv|mod(?![a-z]))[^=<>])*?) ?\\equiv ?)?((?:(?!\\equiv|mod(?![a-z])).)+?)"
    r" ?\(?(?:\\[pb]?mod(?![A-Za-z])|\\text\{ ?mod ?\}|mod ) ?\{?([^{}()]+?)\}?\)?"
)
_FORMULA = re.compile(r"(?=.*[0-9])(?:\(?[A-Z][a-z]?[0-9]*\)?[0-9]*){2,40}(?:\^?[0-9]?[+-])?")
_CHOSEN = re.compile(r"(?:[A-H]|\([A-H]\))(?:(?: ?[,;&]| ?,? and)? ?(?:[A-H]|\([A-H]\)))+")
_CHOICE_SAID = re.compile(
    r"(?:\\(?:text|mathrm)\{ ?)?"
    r"(?:\(([A-Z])\)[.:]?|([A-J])(?:[.):]|\}(?=\\text)| (?=\([a-z]{3}))|([A-J])(?=\})) ?\}?[ :]*(.*?)\}?",
    re.DOTALL,
)
_SOME = re.compile(r"\\(?:forall|exists)(?![A-Za-z])")
_GAP = r"(?:\s|~|\\[ ,;:]|\\q?quad)++"
_ONE_OF_SEVERAL = r"(?:\\[dt]?frac\{[0-9]++\}\{[0-9]++\}|[0-9]++(?:[./][0-9]++)?)"
_IN_BRACKETS = rf"(?:\\left)?[(\[]\s*+[+-]?{_ONE_OF_SEVERAL}\s*+(?:\\right)?[)\]]"
_SEVERAL = re.compile(
    rf"[+-]?(?:{_ONE_OF_SEVERAL}|{_IN_BRACKETS})(?:(?:{_GAP})?{_IN_BRACKETS}|(?:{_GAP}|(?<=[)\]])){_ONE_OF_SEVERAL})+"
)
_OTHER_CHOICE = re.compile(r"\([A-Z]\)|\b(?:and|or|not)\b|^ ?[A-H]$")
_OPINION = re.compile(r"(yes|no|true|false)(?:$|[,.;:] )", re.IGNORECASE)
_VERBS = frozenset({"is", "was", "has", "had"})
_CLASSES = frozenset({"triangle", "function", "number", "angle", "sequence", "series", "curve", "solutions"})
_DENIED = frozenset({"not", "no", "never", "and", "or", "neither", "either", "unless"})
_BARE_WORDS = re.compile(r"[A-Za-z]{4,}+(?:[ ,'-]+[A-Za-z0-9]+)*+[.!]?|[A-Za-z]{2,}+(?: [A-Za-z]+)++[.!]?")
_COUNTED = re.compile(r"([0-9][0-9.,]*+) ?([A-Za-z]++(?: [A-Za-z]++)*+)")
_LETTERS = re.compile(r"[A-Za-z][A-Za-z ,.'-]*+")
_ANY_WORDS = re.compile(r"[^\W\d_]+(?:[ .,'\u2019&-]+[^\W\d_]+)*[.!]?")
_LONG_WORD = re.compile(r"[A-Za-z]{4}|[^\x00-\x7f]")
_PLAIN_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_EQUALS = re.compile(r"(?<![<>!:])==?(?![<>])")
_IN = re.compile(r"\\in(?![A-Za-z])")
_COMMA = re.compile(
    r"[,;]? ?\\text\{,? ?(?:and|or),? ?\}|[,;]? (?:and|or) | ?[\u6216\u548c] ?|,|;|\\(?:lor|land)(?![A-Za-z])"
)
_OR = re.compile(r",? ?\\text\{,? ?or,? ?\}|,? or | ?\u6216 ?|\\lor(?![A-Za-z])")
_EITHER = re.compile(rf"{_OR.pattern}|;")
_AND = re.compile(r",? ?\\text\{,? ?and,? ?\}|,? and |\\land(?![A-Za-z])")
_CUP = re.compile(r"\\cup(?![A-Za-z])")
_CAP = re.compile(r"\\(?:cap|setminus|times|backslash)(?![A-Za-z])")
_ORDER = re.compile(r"(\\le(?![A-Za-z])|\\ge(?![A-Za-z])|<|>)")
_NAME = re.compile(
    r"(?:[A-Za-z]|\\(?!frac|sqrt|log|ln|sin|cos|tan|binom|pm|left|text|mathrm)[A-Za-z]+|\\vec\{[A-Za-z]\}|[A-Z]{2,3}"
    r"|\\angle ?[A-Z]{1,3}|\\(?:text|mathrm)\{[^{}]{1,40}\})(?:_(?:\{[^{}]{1,20}\}|[0-9A-Za-z]))?'*"
    r"(?:(?:\^\{-1\})?\([^()]{0,40}\))?"
)
_NAMES = re.compile(
    r"\( ?[A-Za-z](?:_\w)? ?(?:, ?(?:[A-Za-z](?:_\w)?|\\[a-z]+) ?)+\)|\(r, ?\\theta(?:, ?[a-z\\]+)?\)"
)
_POINT = re.compile(r"[A-Z](?:_[0-9]|')? ?(\([^()]*\))")
_AXES = re.compile(
    r" ?([+-]?) ?((?:\\(?:frac\{[^{}]*\}|sqrt|pi|cdot) ?|[0-9.]+|\{[^{}ijk]*\}|[a-hl-z] ?)*+) ?\{?([ijk])\}?(?![A-Za-z])"
)
_UNEQUAL = re.compile(r"[a-zA-Z] ?\\ne (-?[^,=<>\\ ]{1,20}|-?\\frac\{[^{}]{1,20}\}\{[^{}]{1,20}\})")
_APPROX = re.compile(r"\\approx(?![A-Za-z])")
_NUMERAL = re.compile(
    r"(?=.*[0-9])(?:\\(?:frac|sqrt|pi|cdot|times|ln|log)(?![A-Za-z])|[0-9.+*/^{}()\[\] -])+"
)
_ORDINAL = re.compile(r"(?<=[0-9])(?:st|nd|rd|th)\b")
_FREE = re.compile(r"(?<=\+)( ?)[cCkK]$")
_NUMBERED_POWER = re.compile(r"(?<=[A-Za-z)|}])\^(?:\{-?[0-9]\}|[0-9])")
_INDEX = re.compile(r"_(?:\{[^{}]{0,20}\}|[0-9A-Za-z])|\([^()]{0,40}\)")
_MATRIX = re.compile(r"\\begin\{([pbvBV]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\1\}", re.DOTALL)
_SCALED = re.compile(r"(-?(?:\\frac\{[0-9]+\}\{[0-9]+\}|[0-9]+)) ?(\\begin\{[pbBV]?matrix\}.*)", re.DOTALL)
_NESTED = re.compile(r"\[(?: ?\[[^\[\]]+\] ?,?){2,}\]")
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![A-Za-z]) ?")
_BUILDER = re.compile(r"\\\{ ?[A-Za-z](?: ?\\in ?\\mathbb\{?R\}?)? ?(?:\\mid|\||:) ?(.*)\\\}", re.DOTALL)
_UNIT_AFTER = re.compile(r" ?((?:\\(?:text|mathrm)\{(?![eEid]\})[^{}]*+\}(?:\^(?:\{-?\d\}|-?\d))? ?){1,6})$")
_BARE_UNIT = re.compile(
    r"(?:(?<=\\pi) |(?<=[})]) ?)((?:(?:square|cubic|sq) )?(?:[cmk]m|ft|in|yd|mi|kg|mg|mL|[a-z]{4,12})(?:(?:/| per )[a-z]+)?"
    r"(?:\^(?:\{[23]\}|[23]))?)$"
)
_RATIO = re.compile(r"[0-9]{1,12} ?: ?[0-9]{1,12}")
_COLON = re.compile(":")
_PART = re.compile(
    r"(?:\\(?:frac|sqrt|pi|cdot)(?![A-Za-z])|(?<![A-Za-z])[A-Za-z]{1,2}(?![A-Za-z])|[0-9.+*/^{}() -])+"
)
_FIXED = r"(?:\\[a-z]+|[^|<>=+A-Za-z\\-])+"
_DISTANCE = re.compile(
    rf"\| ?(?:[a-vxy](?: ?(?P<sign>[+-]) ?(?P<centre>{_FIXED}))?|(?P<first>{_FIXED})- ?[a-vxy]) ?\|"
)
_DECIMAL = re.compile(r"[0-9]?\.[0-9]")
_PI = re.compile(r"\\pi(?![A-Za-z])")


@dataclass(frozen=True, slots=True)
class _Group:
    """Several members.

    They are a `list` without brackets, a `set`, a `tuple` in brackets, a `union` of intervals, a `matrix`, or the parts
    of a `ratio`.
    """

    kind: str
    items: tuple[str, ...]
    ends: str = ""
    width: int = 0


@dataclass(frozen=True, slots=True)
class _Judge:
    tolerance: Fraction
    share: float

    def compare(self, gold: str, answer: str, depth: int) -> Plan:
        """Return how one text in one spelling is held against another."""
        if not gold or not answer:
            return False
        if _same_text(gold, answer):
            said = _WORD.search(_COMMANDS.sub(" ", gold)) or _CONSTANT.search(gold)
            return True if said else Ask(gold, answer)
        if r"\ce{" in gold + answer:
            return False
        if depth > DEEPEST:
            return Ask(gold, answer)
        kind = same_kind(gold, answer)
        if kind is not None:
            return kind
        figure = _FIGURE.fullmatch(gold)
        other_figure = None if figure is None else _FIGURE.fullmatch(answer)
        if figure is not None and other_figure is not None:
            return _same_figure(figure, other_figure)
        if opposed(gold, answer) or (r"\lor" in gold and r"\land" in answer and r"\lor" not in answer):
            return False
        if r"\land" in gold and r"\lor" in answer and r"\land" not in answer:
            return False
        spellings = product(_spellings(gold), _spellings(answer))
        return some(
            [self._by_value(first, _decimal_comma(first, second), depth) for first, second in spellings]
        )

    def _by_value(self, gold: str, answer: str, depth: int) -> Plan:
        """Compare what is of no kind: numbers, residues, words, equations, groups, and last expressions."""
        gold_quantity, answer_quantity = (
            _reference_quantity(gold),
            quantity(answer) or quantity_in_words(answer),
        )
        if (
            gold_quantity is None
            and answer_quantity is not None
            and (
                ("\\" not in gold and answer_quantity.counted)
                or (answer_quantity.unit is not None and not _TEXT.search(answer))
            )
        ):
            answer_quantity = None
        if gold_quantity is not None and answer_quantity is None:
            # One letter is a unit after a number with a unit, or after a space.
            gap = " ?" if gold_quantity.unit is not None else " "
            lone = re.sub(rf"(?<=[0-9}}]){gap}([A-Za-z])$", r" \\text{\1}", answer)
            answer_quantity = quantity(lone)
            if answer_quantity is not None and answer_quantity.unit is None:
                answer_quantity = None
        if gold_quantity is not None and answer_quantity is not None:
            return same_quantity(gold_quantity, answer_quantity, self.tolerance)
        residues = _MODULO.fullmatch(gold), _MODULO.fullmatch(answer)
        if residues[0] and not residues[1]:
            residues = residues[0], _MODULO.fullmatch(_as_residue(answer))
        if any(residues):
            return self._congruent(*residues, gold, answer, depth)
        spoken = _words(gold, answer)
        if spoken is not None:
            return spoken
        inner = _opened(gold), _opened(answer)
        if inner != (gold, answer):
            return self.compare(*inner, depth + 1)
        if _mirrored(gold, answer):
            return True
        gold, answer = _one_by_one(gold, answer), _one_by_one(answer, gold)
        gold, answer = _unlettered(gold, answer), _unlettered(answer, gold)
        gold, answer = _as_column(gold, answer), _as_column(answer, gold)
        chained = self._chains(gold, answer, gold_quantity, depth)
        if chained is not None:
            return chained
        if several(gold) or several(answer):
            return False
        return self._groups(gold, answer, gold_quantity, answer_quantity, depth)

    def in_parts(self, gold: Sequence[str], answer: Sequence[str]) -> Plan:
        """Compare the parts of a labelled answer in their order."""
        if len(gold) != len(answer):
            return False
        return every([self.compare(*pair, 1) for pair in zip(gold, answer, strict=True)])

    def _congruent(
        self, one: re.Match[str] | None, other: re.Match[str] | None, gold: str, answer: str, depth: int
    ) -> Plan:
        """Compare residues: equal up to their modulus. Without a name on its left side a residue is also its remainder."""
        left, right = (each.groups("") if each is not None else ("",) * 3 for each in (one, other))
        first, second = _remainder(*left[1:]), _remainder(*right[1:])
        if one is None or other is None:
            if left[0] or right[0]:
                return False
            return self.compare(first or left[1] or gold, second or right[1] or answer, depth + 1)
        named = [self.compare(left[0], right[0], depth + 1)] if left[0] and right[0] else []
        values = self.compare(first or left[1], second or right[1], depth + 1)
        return every([*named, values, self.compare(left[2], right[2], depth + 1)])

    def _chains(self, gold: str, answer: str, one: MeasuredQuantity | None, depth: int) -> Plan | None:
        """Compare assignments and equations; None if neither is one."""
        values = list(product(_rounded(gold), _rounded(answer)))
        if len(values) > 1:
            return some([self.compare(*pair, depth + 1) for pair in values])
        left, right = _chain(gold), _chain(answer)
        if len(left) == 1 and len(right) == 1:
            return None
        if len(left) > MOST_LINKS or len(right) > MOST_LINKS:
            return False
        if len(left) == 1:
            links = right[1:] if _loose_name(_NUMBERED_POWER.sub("", right[0])) else right
            # Of `F = ma = 5` the formula in the middle says nothing against a number.
            links = [*(link for link in links[:-1] if one is None or not _loose_name(link)), links[-1]]
            return every([self.compare(gold, link, depth + 1) for link in links])
        value = left[-1]
        if not _strict_name(left[0]):
            # An equation: another one can say the same, and a number where nothing else is to be known.
            alike = len(right) == 2 and _same_text(left[0].strip("|"), right[0].strip("|"))
            if _names_number(left) and (len(right) == 1 or alike):
                return self.compare(value, right[-1], depth + 1)
            return _asked(gold, answer, self.share) if len(right) > 1 else False
        if len(right) == 1:
            return self.compare(value, answer, depth + 1)
        names = left[0], right[0]
        alike = _same_text(*names)
        if _strict_name(right[0]) and (alike or quantity(value, reference=True) is not None):
            if not alike and (all(len(name) == 1 for name in names) or opposed(*names)):
                return False
            if not alike and _same_text(*(name.replace("'", "") for name in names)):
                return False
            return every([self.compare(value, link, depth + 1) for link in right[1:]])
        return _asked(gold, answer, self.share)

    def _groups(
        self, gold: str, answer: str, one: MeasuredQuantity | None, other: MeasuredQuantity | None, depth: int
    ) -> Plan:
        """Tuples, intervals, sets, lists and matrices by their members; whatever is left is asked."""
        left, right = _group(gold) if one is None else None, _group(answer) if other is None else None
        if left is None and right is None:
            return self._expressions(gold, answer, one, other)
        if left is None or right is None:
            lone = right if left is None else left
            assert lone is not None
            if len(lone.items) == 1 and lone.kind in ("set", "list"):
                pair = (gold, lone.items[0]) if left is None else (lone.items[0], answer)
                return self.compare(*pair, depth + 1)
            if lone.kind == "ratio":
                # A reference that is a ratio may be met by the quotient; a quotient by no ratio.
                if right is not None or len(lone.items) > 2:
                    return False
                return self.compare(_quotient(*lone.items), answer, depth + 1)
            if (one if left is None else other) is not None:
                return False
            return _asked(gold, answer, self.share)
        return self._members(left, right, gold, answer, depth)

    def _members(self, left: _Group, right: _Group, gold: str, answer: str, depth: int) -> Plan:
        kinds = {left.kind, right.kind}
        if "ratio" in kinds:
            return len(kinds) == 1 and self._in_proportion(left.items, right.items, depth)
        if "matrix" in kinds and kinds != {"matrix"}:
            vector = left if left.kind == "matrix" else right
            if "tuple" not in kinds or (vector.width > 1 and vector.width != len(vector.items)):
                return False
            return self._in_order(left, right, depth)
        if "matrix" in kinds:
            return left.width == right.width and self._in_order(left, right, depth)
        if "union" in kinds and kinds != {"union"}:
            return _asked(gold, answer, self.share)
        if kinds == {"tuple", "list"} and left.ends == "[]" and len(left.items) == 2:
            return False
        if kinds == {"tuple"}:
            if len(left.items) == 2 and left.ends != right.ends:
                return False
            return self._in_order(left, right, depth)
        if "tuple" in kinds:
            return "set" not in kinds and self._in_order(_unnamed(left), _unnamed(right), depth)
        if max(len(left.items), len(right.items)) > MOST_ITEMS:
            return _asked(gold, answer, self.share)
        one, other = (_by_name(group) for group in (left, right))
        if one is not None and other is not None and one.keys() == other.keys():
            return every([self.compare(one[name], other[name], depth + 1) for name in one])
        return self._in_any_order(_unnamed(left), _unnamed(right), depth)

    def _in_order(self, left: _Group, right: _Group, depth: int) -> Plan:
        if len(left.items) != len(right.items):
            return False
        pairs = zip(left.items, right.items, strict=True)
        return every([self.compare(*pair, depth + 1) for pair in pairs])

    def _in_proportion(self, left: Sequence[str], right: Sequence[str], depth: int) -> Plan:
        """Return whether the parts of two ratios are one another's multiples; as they are written where one of them is 0."""
        if len(left) != len(right):
            return False
        pairs = list(zip(left, right, strict=True))
        if any(not part.strip("0") for pair in pairs for part in pair):
            return every([self.compare(*pair, depth + 1) for pair in pairs])
        return every(
            [
                self.compare(_quotient(gold, left[0]), _quotient(answer, right[0]), depth + 1)
                for gold, answer in pairs[1:]
            ]
        )

    def _in_any_order(self, left: _Group, right: _Group, depth: int) -> Plan:
        if len(left.items) != len(right.items):
            return False
        table = [[self.compare(gold, answer, depth + 1) for answer in right.items] for gold in left.items]
        rows = [some(row) for row in table]
        columns = [some([row[at] for row in table]) for at in range(len(right.items))]
        return every([*rows, *columns])

    def _expressions(
        self, gold: str, answer: str, one: MeasuredQuantity | None, other: MeasuredQuantity | None
    ) -> Plan:
        """Two expressions, without the units after them, in radians where one of them is in degrees and the other has pi."""
        if _ORDER.match(answer):
            return False
        near = one.allowance(self.tolerance, not _DECIMAL.search(answer)) if one is not None else Fraction(0)
        share = float(near / abs(one.value)) if one is not None and one.value else self.share
        free = gold[-1:] if _FREE.search(gold) else ""
        if free and free not in gold[:-1]:
            answer = _FREE.sub(rf"\1{free}", answer)
        if one is not None and one.percent and other is None:
            return some(
                [_asked(_number(value, one), answer, share) for value in (one.value / 100, one.value)]
            )
        if one is not None and one.degrees and _PI.search(answer):
            gold, one = rf"\frac{{{_number(one.value, one)}\pi}}{{180}}", None
        if other is not None and other.degrees and _PI.search(gold):
            answer, other = rf"\frac{{{_number(other.value, other)}\pi}}{{180}}", None
        gold, first, condition = _without_unit(gold)
        answer, second, other_condition = _without_unit(answer)
        if _PREDICATE.search(condition) and _without_articles(condition) != _without_articles(
            other_condition
        ):
            return False
        units = (one.unit if one is not None else first, other.unit if other is not None else second)
        if units[0] is not None and units[1] is not None and units[0] != units[1]:
            return False
        if "%" in answer and "%" not in gold:
            return False
        if _other_case(gold, answer):
            return False
        exact = one is not None and one.whole
        gold = _number(one.value, one) if one is not None and one.base is None else gold
        answer = _number(other.value, other) if other is not None and other.base is None else answer
        return _asked(gold, answer, 0.0 if exact else share)


def _asked(gold: str, answer: str, share: float) -> Plan:
    """Return a question to computer algebra; numbers may differ by a share where one of them is written with decimals."""
    if _other_case(gold, answer) or (r"\ldots" in gold) != (r"\ldots" in answer):
        return False
    if _RATIO.search(answer) and not _RATIO.search(gold):
        return False
    rounded = _DECIMAL.search(gold) is not None or _DECIMAL.search(answer) is not None
    gold, answer = (_apart(text, gold + answer) for text in (gold, answer))
    return Ask(_for_algebra(gold), _for_algebra(answer), share if rounded else 0.0)


def _apart(text: str, letters: str) -> str:
    """Return `text` with an index at each capital that `letters` has as a small letter too: math-verify makes all small."""
    small = _COMMANDS.sub(" ", letters)

    def indexed(letter: re.Match[str]) -> str:
        if letter[1] is None or letter[1].lower() not in small:
            return letter[0]
        return f"{letter[1]}_{{0{letter[2] or letter[3] or ''}}} "

    return _CAPITAL.sub(indexed, text)


_LAST_LETTER = re.compile(r"(?:(?<=[0-9)}]) ?|(?<=[A-Za-z]) )([A-Za-z])$")
_IN_DEGREES = re.compile(r"(\\(?:sin|cos|tan|cot|sec|csc)) ?[({]? ?([0-9.]{1,12}) ?\^\\circ ?[)}]?")
_LOG_E = re.compile(r"\\log_ ?(?:\{ ?e ?\}|e(?![A-Za-z]))")
_CAPITAL = re.compile(
    r"\\(?:mathbb|text|mathrm|operatorname|begin|end) ?\{[^{}]*\}|\\[A-Za-z]+|([A-Z])(?:_(?:\{([^{}]*)\}|(\w)))?"
)
_PRIMED = re.compile(r"([A-Za-z])(?:_(?:\{([^{}]*)\}|(\w)))?('+)")
_DOUBLE_FACTORIAL = re.compile(r"(?<![0-9.])([0-9]{1,2})!!(?!!)")
_MATRIX_TRANSPOSED = re.compile(r"(?<![\\A-Za-z])([A-Z]) ?\^ ?\{?(?:T|\\top|\\intercal)\}?(?![A-Za-z])")
_RATE = re.compile(r"\\frac\{ ?d ?([A-Za-z]) ?\}\{ ?d ?([a-z]) ?\}")
_PARTIAL = re.compile(r"\\partial ?\{?([A-Za-z])(?![A-Za-z_])\}?")
_INVERSE = re.compile(r"(?<![\\A-Za-z])([fghFGH]) ?\^ ?\{-1\} ?(?=\()")
_GAMMA = re.compile(r"\\gamma(?![A-Za-z])")


def _for_algebra(text: str) -> str:
    r"""Return an expression in words that math-verify reads as they are meant.

    It takes `\gamma` for a function or a constant, a last letter for a unit, degrees for radians, and no `E_0`.
    """
    if "'" in text:
        text = _PRIMED.sub(lambda name: f"{name[1]}_{{{name[2] or name[3] or ''}{'9' * len(name[4])}}}", text)
    if "!!" in text:
        text = _DOUBLE_FACTORIAL.sub(lambda number: str(prod(range(int(number[1]), 0, -2))), text)
    text = _RATE.sub(r"\\frac{\1_{7}}{\2_{7}}", text)
    text = _MATRIX_TRANSPOSED.sub(r"\1_{6}", _PARTIAL.sub(r"\1_{7}", text))
    text = _INVERSE.sub(r"\1_{8}", text)
    text = _IN_DEGREES.sub(r"\1{\\frac{\2\\pi}{180}}", _LOG_E.sub(r"\\ln ", _GAMMA.sub(r"\\varsigma ", text)))
    return _LAST_LETTER.sub(r"{\1}", text.replace("E_", r"\Xi_"))


_LINEAR = re.compile(
    r"(?:([a-z]) ?= ?)?(?:([0-9]{1,9}) ?[a-z] ?(?:([+-]) ?([0-9]{1,9}))?|([+-]?[0-9]{1,9}) ?\+ ?([0-9]{1,9}) ?[a-z])"
    r"(?: ?, ?[a-z] ?\\in ?\\mathbb\{Z\})?"
)


def _as_residue(text: str) -> str:
    r"""Return `n = 7k + 3` as `n \equiv 3 \pmod{7}`; another text as it is."""
    linear = _LINEAR.fullmatch(text)
    if linear is None:
        return text
    name, modulus, sign, rest, first, after = linear.groups("")
    return rf"{name} \equiv {first or ('-' if sign == '-' else '') + (rest or '0')} \pmod{{{modulus or after}}}".strip()


_PART_LABEL = re.compile(
    r"(?:(?:^|[;,]|(?<= ))(?: ?\\text\{ ?and ?\}| ?and )? ?(?:\\text\{,? ?)?(?:[Pp]art ?)?)\(?"
    r"([a-h]|[1-9]|i{1,3}|iv|v)\)[.:]? ?\}?[:=]? ?"
)
_ANY_INTEGER = re.compile(r"(.+?) ?, ([a-z]) \\in \\mathbb\{Z\}")


def _parts(text: str) -> list[str]:
    """Return the parts of `(a) 12; (b) 7`, in the order of their labels; nothing for another text."""
    labels = list(_PART_LABEL.finditer(text))
    found = [label[1] for label in labels]
    if len(labels) < 2 or labels[0].start() > 0:
        return []
    series = next((each for each in LABELS if set(found) == set(each[: len(found)])), None)
    if series is None or len(set(found)) < len(found):
        return []
    ends = [*(label.start() for label in labels[1:]), len(text)]
    parts = {label[1]: text[label.end() : end].strip(" ,;") for label, end in zip(labels, ends, strict=True)}
    return [parts[label] for label in series[: len(found)]] if all(parts.values()) else []


def _listed(text: str) -> Sequence[str]:
    """Return the members of a list or a tuple, and another text as the only one."""
    group = _group(text)
    return group.items if group is not None and group.kind in ("list", "tuple") else (text,)


def _of_one_integer(gold: str, answer: str) -> list[tuple[str, str]]:
    r"""Return the pairs to compare if a letter of both is any integer, as in `k\pi, k \in \mathbb{Z}`.

    The letter may have another name, be counted from another number, or downwards.
    """
    said = _ANY_INTEGER.fullmatch(gold), _ANY_INTEGER.fullmatch(answer)
    if said[0] is None:
        bare = said[1] is not None and said[1][2] in _letters(gold)
        return [(gold, said[1][1] if bare and said[1] is not None else answer)]
    body, name = said[0].groups()
    given = said[1][1] if said[1] is not None else answer
    own = _letters(given) - _letters(body)
    other = said[1][2] if said[1] is not None else name if name in _letters(given) else next(iter(own), "")
    if other != name and (
        name in _letters(given) or (said[1] is None and (len(own) != 1 or other not in "klmn"))
    ):
        return [(gold, answer)]
    put = (
        [name]
        if re.search(rf"[\^_]\{{?{other}", given)
        else [name, f"({name}+1)", f"({name}-1)", f"(-{name})"]
    )
    return [
        (body, _NAME_ALONE.sub(lambda found, put=value: put if found[0] == other else found[0], given))
        for value in put
    ]


_NAME_ALONE = re.compile(r"\\(?:text|mathrm)\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]")


def _letters(text: str) -> set[str]:
    return {each for each in _NAME_ALONE.findall(text) if len(each) == 1}


def _remainder(text: str, modulus: str) -> str:
    numbers = [quantity(each) for each in (text, modulus)]
    whole = [int(each.value) for each in numbers if each is not None and each.whole]
    return str(whole[0] % whole[1]) if len(whole) == 2 and whole[1] > 0 else ""


def _quotient(above: str, below: str) -> str:
    return rf"\frac{{{above}}}{{{below}}}"


def _same_text(gold: str, answer: str) -> bool:
    return gold == answer or _tight(gold) == _tight(answer) or "" != _formula(gold) == _formula(answer)


def _formula(text: str) -> str:
    """Return a formula of chemistry without its marks of LaTeX, and nothing for other texts."""
    bare = re.sub(r"[_{} ]|\\(?:text|mathrm|ce)(?![a-z])", "", text)
    return bare if r"\ce{" in text or _FORMULA.fullmatch(bare) else ""


def _tight(text: str) -> str:
    return _LOOSE_SPACE.sub("", " ".join(_TEXT.sub(r" \1 ", text).split()))


def _number(value: Fraction, written: MeasuredQuantity) -> str:
    """Return a number as computer algebra reads it: whole, with decimals where it was rounded, else a fraction."""
    if value.denominator == 1 and not written.rounded:
        return str(value.numerator)
    if written.rounded:
        digits = f"{float(abs(value)):.15e}".split("e")
        return rf"{'-' if value < 0 else ''}{digits[0]} \cdot 10^{{{int(digits[1])}}}"
    return rf"{'-' if value < 0 else ''}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def several(text: str) -> bool:
    """Return whether these are numbers with only space or brackets between them, and not one number, which is no answer.

    math-verify adds them up, or reads the first alone, where others read a product, a list or a mixed number.
    """
    return _SEVERAL.fullmatch(text) is not None and quantity(text) is None


def _opened(text: str) -> str:
    r"""Return the text without a wrapping that says nothing: brackets around one thing, `\text{…}` around mathematics."""
    if text[0] == "(" and text[-1] == ")" and closing(text, 0) == len(text) - 1 and "," not in text:
        return text[1:-1].strip(" ") or text
    wrapped = _TEXT.fullmatch(text)
    if wrapped is not None and re.search("[0-9]", wrapped[1]):
        inside = plain(wrapped[1])
        counted = _COUNTED.fullmatch(inside)
        if counted is not None:
            return rf"{counted[1]} \text{{ {counted[2]}}}"
        return inside if inside and (not _spoken(inside) or quantity(inside) is not None) else text
    return text


def _spoken(text: str) -> bool:
    """Return whether a text says something in words, other than what joins a list."""
    words = [word for word in _PLAIN_WORD.findall(text) if not word.isdigit()]
    return any(len(word) > 1 and word.lower() not in ("and", "or") for word in words)


def _words(gold: str, answer: str) -> Plan | None:
    """Choices and words: whether they are the same ones. None where the reference is neither."""
    opinions = [_OPINION.match(_TEXT.sub(r"\1", text)) for text in (gold, answer)]
    if opinions[0] is not None and opinions[1] is not None and not opinions[0][0].endswith(" "):
        return len({opinion[1].lower() in ("yes", "true") for opinion in opinions if opinion}) == 1
    left, right = _said(gold), _said(answer)
    chosen = _chosen(gold), _chosen(answer)
    if all(chosen):
        return chosen[0] == chosen[1]
    choice = _CHOICE.fullmatch(left if left is not None else gold)
    if choice is not None:
        given = _CHOICE.fullmatch(plain(right) if right is not None else answer)
        if given is not None:
            return choice[1] in (given[1], given[0][0] == "(" and given[1].upper())
        said = _with_text(answer)
        if choice[1].isupper() and said is not None:
            return said[0] == choice[1]
        return False if right is not None else None
    letter = _with_text(gold)
    if letter is not None:
        given, said = _CHOICE.fullmatch(right if right is not None else answer), _with_text(answer)
        if given is not None:
            return given[1] == letter[0]
        same_letter = said is None or said[0] == letter[0]
        return same_letter and _folded(letter[1]) == _folded(answer if said is None else said[1])
    if left is None or not _spoken(left):
        return None
    if right is None:
        right = answer if _LETTERS.fullmatch(answer) or _ANY_WORDS.fullmatch(answer) else ""
    named, met = _folded(left), _folded(right)
    more = met[len(named) :]
    if more and (
        (more[0] in _VERBS and not _DENIED.intersection(more)) or (len(more) == 1 and more[0] in _CLASSES)
    ):
        met = met[: len(named)]
    return named == met and bool(named)


_FIGURE = re.compile(r"(?:\\(angle|triangle|overline|overrightarrow|vec|bar) ?)?\{? ?([A-Z]{2,6}) ?\}?")


def _same_figure(gold: re.Match[str], answer: re.Match[str]) -> bool:
    """Return whether two names are of one figure: segments and angles from either end, triangles from any corner."""
    signs = {gold[1] or "overline", answer[1] or "overline"}
    if len(signs) > 1:
        return False
    if "triangle" in signs:
        return sorted(gold[2]) == sorted(answer[2])
    return gold[2] == answer[2] or (not signs <= {"overrightarrow", "vec"} and gold[2] == answer[2][::-1])


_ABOUT = re.compile(r"\s*+\$?~ ?[0-9]")
_OUT_OF = re.compile(r"([0-9]{1,12}) ?(?:\\text\{ ?)?(?:out of|in) ?\}? ?([0-9]{1,12})")
_DOZEN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(?:\\text\{ ?)?dozen(?:s(?: of)?)?(?![a-z]) ?\}?")
_COMMA_DECIMAL = re.compile(r"(?<![0-9.])([0-9]{1,12}),([0-9]{2}|[0-9]{4,12})(?![0-9,])")


@lru_cache(maxsize=1024)
def _spellings(text: str) -> tuple[str, ...]:
    """Return what a text may say without words: a share, dozens or the things themselves, a number without its direction."""
    share = _OUT_OF.fullmatch(text)
    if share is not None:
        return (_quotient(share[1], share[2]),)
    dozens = _DOZEN.match(text)
    number = [] if dozens is None else [f"{_number_text(12 * Fraction(dozens[1]))}{text[dozens.end() :]}"]
    return (*without_sides(text), *number)


def _number_text(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else str(float(value))


def _decimal_comma(gold: str, answer: str) -> str:
    """Return an answer with a point for its comma, where the reference is a number with a decimal point.

    One with a point takes the comma of the reference `0,25`, which may else be a list.
    """
    if "." in answer and "," in gold and _LESS_THAN_ONE.fullmatch(gold):
        return answer.replace(".", ",")
    if "," not in answer or "." not in gold or "," in gold:
        return answer
    return _COMMA_DECIMAL.sub(r"\1.\2", answer) if _ONE_DECIMAL.match(gold) else answer


_LESS_THAN_ONE = re.compile(r"-?0,[0-9]{2,12}")
_ONE_DECIMAL = re.compile(r"(?:-|\\?\$)?[0-9]+\.[0-9]+(?![0-9])[^0-9]*$")


def _chosen(text: str) -> list[str]:
    """Return the letters of several choices, `ACD` or `A, C and D`; without marks between them they rise as choices do."""
    flat = " ".join(_TEXT.sub(r" \1 ", text).split())
    letters = re.findall("[A-H]", flat) if _CHOSEN.fullmatch(flat) else []
    return sorted(letters) if not flat.isalpha() or letters == sorted(set(letters)) else []


def _with_text(text: str) -> tuple[str, str] | None:
    """Return the letter of a choice and the text with it, which names no other choice; None where it is something else."""
    said = _CHOICE_SAID.fullmatch(text)
    if said is None or not said[4].strip() or _OTHER_CHOICE.search(said[4]):
        return None
    return said[1] or said[2] or said[3], said[4]


def _said(text: str) -> str | None:
    """Return the words of a text; None if it is mathematics, or a number with its unit."""
    if _ALL_TEXT.fullmatch(text):
        said = _TEXT.sub(r"\1", text).strip()
        return None if said[:1].isdigit() and quantity(said) is not None else said
    return text if _BARE_WORDS.fullmatch(text) else None


def _is_words(text: str) -> bool:
    """Return whether a reference is a choice or words, in any script: what is compared as text."""
    said = _said(text)
    if _CHOICE.fullmatch(text if said is None else said) is not None:
        return True
    if said is not None:
        return _spoken(said)
    return _ANY_WORDS.fullmatch(text) is not None and _LONG_WORD.search(text) is not None


def _folded(words: str) -> list[str]:
    """Words without case, marks and a leading article."""
    folded = [word.casefold() for word in _PLAIN_WORD.findall(_ORDINAL.sub("", words))]
    while len(folded) > 1 and folded[0] in ("a", "an", "the", "on", "in", "at", "to"):
        folded = folded[1:]
    return folded


def _without_articles(words: str) -> list[str]:
    """Return words without case, marks and articles."""
    return [word for word in _folded(words) if word not in ("a", "an", "the")]


def _chain(text: str) -> list[str]:
    """Return the sides of equations in order, and the set of a membership; the text alone if it has neither."""
    if "=" not in text and r"\in" not in text:
        return [text]
    sides = split_top(text, _EQUALS)
    if len(sides) == 1:
        member = split_top(text, _IN)
        return member if len(member) == 2 and _strict_name(member[0]) else [text]
    items = split_top(text, _COMMA)
    if len(items) < 2 or (_NAMES.match(text) and len(sides) == 2):
        return sides
    # Members may be assignments of their own: `x = 1, y = 2`.
    assigned = all(len(split_top(item, _EQUALS)) > 1 for item in items)
    return [text] if assigned or _orders(text) is not None else sides


def _one_by_one(text: str, other: str) -> str:
    """Return `x = y = 1` as `x = 1, y = 1`, where it is compared with a list."""
    sides = _chain(text)
    if len(sides) < 3 or not all(map(_strict_name, sides[:-1])) or len(split_top(other, _COMMA)) < 2:
        return text
    return ", ".join(f"{name} = {sides[-1]}" for name in sides[:-1])


def _unlettered(text: str, other: str) -> str:
    """Return the coordinates of `A(2, 5)` or of `2i + 5j`, where they are compared with coordinates alone."""
    column = "matrix}" in other and "&" not in other
    if (other[:1] != "(" or "," not in other) and not column:
        return text
    point = _POINT.fullmatch(text)
    if point is not None:
        return point[1] if "," in point[1] else text
    parts: dict[str, str] = {}
    rest = text
    # Part after part from the start: a search would try a long text anew at each letter.
    while part := _AXES.match(rest):
        sign, size, axis = part.groups()
        parts[axis] = f"{sign}{size.strip(' ') or 1}"
        rest = rest[part.end() :].strip(" ")
    if "j" not in parts or rest:
        return text
    size = (other.count(r"\\") if column else other.count(",")) + 1
    return f"({', '.join(parts.get(axis, '0') for axis in 'ijk'[: max(2, size)])})"


def _rounded(text: str) -> list[str]:
    r"""Return a number and what it is near to, of `6\pi \approx 18.85`; the text alone where it is something else."""
    sides = split_top(text, _APPROX) if r"\approx" in text else [text]
    return sides if len(sides) == 2 and _NUMERAL.fullmatch(sides[0]) else [text]


def _names_number(sides: list[str]) -> bool:
    """Return whether an equation gives a number other than 0, or a ratio, as its answer: `a + b = 12`, `a : b = 2 : 3`."""
    if len(sides) != 2 or not _loose_name(sides[0]):
        return False
    read = quantity(sides[1], reference=True)
    return bool(read.value) if read is not None else _RATIO.fullmatch(sides[1]) is not None


def _strict_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None or _NAMES.fullmatch(text) is not None


def _loose_name(text: str) -> bool:
    """Return whether the left side of an equation only says what is sought: a name, or a sum of names such as `m + n`."""
    if _strict_name(text):
        return True
    bare = _INDEX.sub("", _TEXT.sub("t", text))
    if len(text) > 80 or text[:1] == "-" or re.search(r"[0-9^<>]|\\pm|\\mp", bare):
        return False
    return re.search("[A-Za-z]", bare) is not None


def _solutions(text: str) -> _Group | None:
    """Return the tuples of `x = 1, y = 2 or x = 2, y = 1`, in which each part has a value for each of the names."""
    parts = [
        [split_top(item, _EQUALS) for item in split_top(part, _COMMA)] for part in split_top(text, _EITHER)
    ]
    names = [[sides[0] for sides in part] for part in parts]
    if len(parts) < 2 or len(names[0]) < 2 or any(each != names[0] for each in names):
        return None
    if not all(len(sides) == 2 for part in parts for sides in part):
        return None
    return _Group("list", tuple(f"({', '.join(sides[1] for sides in part)})" for part in parts))


def _group(text: str) -> _Group | None:
    """Return the members of a text that has several, or of a set."""
    if "=" in text and (solutions := _solutions(text)) is not None:
        return solutions
    group = _transposed(text) or _matrix(text) or _set(text) or _orders(text)
    if group is not None:
        return group
    parts = split_top(text, _CUP)
    if len(parts) > 1:
        return _Group("union", tuple(parts))
    if _CAP.search(text):
        return None
    if text[0] in "([" and text[-1] in ")]" and closing(text, 0) == len(text) - 1:
        if len(signed := _both(text)) > 1:
            return _Group("list", signed)
        items = split_top(text[1:-1], _COMMA)
        return _Group("tuple", tuple(items), text[0] + text[-1]) if len(items) > 1 else None
    items = [item for item in split_top(text, _COMMA) if item]
    if len(items) > 1:
        return _Group("list", tuple(both for item in items for both in _both(item)))
    parts = split_top(_without_unit(text)[0], _COLON)
    if len(parts) > 1 and all(map(_PART.fullmatch, parts)):
        return _Group("ratio", tuple(parts))
    both_signs = _both(text)
    return _Group("list", both_signs) if len(both_signs) > 1 else None


def _both(text: str) -> tuple[str, ...]:
    """Return the two values of an expression with one sign of plus and minus."""
    signs = _PLUS_MINUS.findall(text)
    if len(signs) != 1:
        return (text,)
    plus = _PLUS_MINUS.sub("+", text).removeprefix("+")
    minus = _PLUS_MINUS.sub("-", text)
    return tuple(re.sub(r"(?<=[({=,]) ?\+", "", each) for each in (plus, minus))


def _matrix(text: str) -> _Group | None:
    body = text
    if _NESTED.fullmatch(text):
        # Lists of lists, as programs write them.
        rows = [split_top(row[1:-1], _COMMA) for row in split_top(text[1:-1], _COMMA)]
        return _rows(rows)
    if text[0] in "([|" and text[-1] in ")]|":
        body = text[1:-1].strip(" ")
    scaled = _SCALED.fullmatch(body)
    matrix = _MATRIX.fullmatch(scaled[2] if scaled else body)
    if matrix is None or r"\begin" in matrix[2]:
        return None
    if matrix[1] in ("vmatrix", "Vmatrix") or (matrix[1] == "array" and body == text):
        return None
    rows = [row.split("&") for row in matrix[2].split(r"\\") if row.strip(" ")]
    return _rows(
        [[rf"{scaled[1]} \cdot ({cell.strip()})" for cell in row] for row in rows] if scaled else rows
    )


_TRANSPOSED = re.compile(
    r"((?:[(\[]|\\begin).*(?:[)\]]|\\end\{[a-z]{1,9}\})) ?\^ ?\{? ?(?:T|\\top|\\intercal|\\(?:mathrm|text)\{T\}) ?\}?",
    re.DOTALL,
)
_TWO_ROWS = re.compile(r"\\binom\{([^{}]*)\}\{([^{}]*)\}")


def _transposed(text: str) -> _Group | None:
    """Return the column that a transposed row or tuple is, and a transposed matrix."""
    match = _TRANSPOSED.fullmatch(text) if text[-1] in "T}p" or text.endswith("intercal") else None
    group = _group(match[1]) if match is not None else None
    if group is None or group.kind not in ("tuple", "matrix"):
        return None
    width = group.width or len(group.items)
    rows = [group.items[start : start + width] for start in range(0, len(group.items), width)]
    return _rows(list(zip(*rows, strict=True)))


def _as_column(text: str, other: str) -> str:
    r"""Return `\binom{1}{2}` as a column, where it is compared with a matrix."""
    if r"\binom" not in text or "matrix}" not in other:
        return text
    return _TWO_ROWS.sub(r"\\begin{pmatrix}\1\\\\\2\\end{pmatrix}", text)


def _rows(rows: Sequence[Sequence[str]]) -> _Group | None:
    """Return the matrix of some rows, None where they differ in length."""
    if len({len(row) for row in rows}) != 1:
        return None
    return _Group("matrix", tuple(cell.strip(" ") for row in rows for cell in row), width=len(rows[0]))


def _set(text: str) -> _Group | None:
    if text == r"\emptyset":
        return _Group("set", ())
    if not (text.startswith(r"\{") and text.endswith(r"\}") and closing(text, 0) == len(text) - 1):
        return None
    builder = _BUILDER.fullmatch(text)
    if builder is not None:
        return _orders(builder[1].strip(" "))
    inside = text[2:-2].strip(" ")
    items = [item for item in split_top(inside, _COMMA) if item] if inside else []
    return _Group("set", tuple(both for item in items for both in _both(item)))


def _orders(text: str) -> _Group | None:
    """Return the interval or the union that orders joined by words describe: `x < 2 or x > 3`, `x > 2 and x < 3`."""
    if _ORDER.search(text) is None and r"\ne" not in text:
        return None
    for joined, mark in (("or", _OR), ("and", _AND)):
        parts = split_top(text, mark)
        ranges = [_interval_of_order(part) or _point(part, joined) for part in parts]
        names = {name for part in parts for name in re.findall(r"[A-Za-z]+", _COMMANDS.sub(" ", part))}
        if len(parts) < 2 or None in ranges or len(names) != 1 or _ORDER.search(text) is None:
            continue
        if joined == "or":
            return _Group("union", tuple(map(_written, filter(None, ranges))))
        intervals = [(each.ends, *each.items) for each in ranges if each is not None]
        above = [(ends[0], low) for ends, low, _ in intervals if low != r"-\infty"]
        below = [(ends[1], high) for ends, _, high in intervals if high != r"\infty"]
        if len(parts) == 2 and len(above) == len(below) == 1:
            return _Group("tuple", (above[0][1], below[0][1]), above[0][0] + below[0][0])
    unequal = _UNEQUAL.fullmatch(text)
    if unequal is not None:
        return _Group("union", (rf"(-\infty,{unequal[1]})", rf"({unequal[1]},\infty)"))
    return _of_distance(text) or _interval_of_order(text)


def _point(text: str, joined: str) -> _Group | None:
    """Return the set that `x = a` describes, where it is joined to orders by `or`."""
    sides = split_top(text, _EQUALS)
    return (
        _Group("set", (sides[1],)) if joined == "or" and len(sides) == 2 and _strict_name(sides[0]) else None
    )


def _written(part: _Group) -> str:
    """Return an interval or a set as a member of a union."""
    inside = ",".join(part.items)
    return rf"\{{{inside}\}}" if part.kind == "set" else f"{part.ends[0]}{inside}{part.ends[1]}"


def _of_distance(text: str) -> _Group | None:
    r"""Return the interval of `|x - a| < r`, or what is left beside that of `|x - a| > r`."""
    pieces = [piece.strip(" ") for piece in _ORDER.split(text)]
    if len(pieces) != 3:
        return None
    distance, sign, radius = pieces if pieces[0][:1] == "|" else reversed(pieces)
    measured = _DISTANCE.fullmatch(distance)
    if measured is None or not radius or radius[0] == "-" or "|" in radius or split_top(radius, _COMMA)[1:]:
        return None
    inside = (sign in ("<", r"\le")) == (distance == pieces[0])
    centre = measured["first"] or (measured["centre"] or "0")
    low, high = (_sum(centre, mark, radius, measured["sign"] == "+") for mark in "-+")
    open_, close = "[]" if "e" in sign else "()"
    if inside:
        return _Group("tuple", (low, high), open_ + close)
    return _Group("union", (rf"(-\infty,{low}{close}", rf"{open_}{high},\infty)"))


def _sum(centre: str, mark: str, radius: str, negative: bool) -> str:
    """Return an end of an interval: as a number where both are, else as an expression."""
    one, other = quantity(centre), quantity(radius)
    if one is None or other is None:
        side = "" if centre == "0" else f"-{centre}" if negative else centre
        return f"{side}{mark}{radius if radius.isalnum() else f'({radius})'}".removeprefix("+")
    ends = -one.value if negative else one.value
    return _number(ends + (other.value if mark == "+" else -other.value), one if one.rounded else other)


_RELATION = re.compile(r"(\\(?:le|ge|subset|supset|subseteq|supseteq)(?![A-Za-z])|<|>)")
_MIRRORED = {"<": ">", r"\le": r"\ge", r"\subset": r"\supset", r"\subseteq": r"\supseteq"}
_MIRRORED |= {right: left for left, right in _MIRRORED.items()}
_COMMON = re.compile(r"\\cap(?![A-Za-z])")


def _mirrored(gold: str, answer: str) -> bool:
    r"""Return whether a relation is another one read from its right: `a < b` and `b > a`, `A \cap B` and `B \cap A`."""
    if _COMMON.search(gold):
        return sorted(split_top(gold, _COMMON)) == sorted(split_top(answer, _COMMON))
    if not _RELATION.search(gold):
        return False
    first, second = ([piece.strip(" ") for piece in _RELATION.split(text)] for text in (gold, answer))
    mirrored = len(first) == len(second) == 3 and _MIRRORED[first[1]] == second[1]
    return mirrored and _same_text(first[0], second[2]) and _same_text(first[2], second[0])


def _interval_of_order(text: str) -> _Group | None:
    r"""Return the interval that `a \le x < b`, `x > a` or `a < x` describes."""
    if not _ORDER.search(text) or len(split_top(text, _COMMA)) > 1:
        return None
    pieces = [piece.strip(" ") for piece in _ORDER.split(text)]
    sides, signs = pieces[::2], [{r"\le": "<=", r"\ge": ">="}.get(sign, sign) for sign in pieces[1::2]]
    if len(sides) == 2 and _strict_name(sides[1]) and not _strict_name(sides[0]):
        sides.reverse()
        signs = [{"<": ">", ">": "<", "<=": ">=", ">=": "<="}[signs[0]]]
    if len(sides) == 2 and _strict_name(sides[0]):
        closed = "=" in signs[0]
        if signs[0][0] == "<":
            return _Group("tuple", (r"-\infty", sides[1]), "(" + ("]" if closed else ")"))
        return _Group("tuple", (sides[1], r"\infty"), ("[" if closed else "(") + ")")
    if len(sides) == 3 and _strict_name(sides[1]) and signs[0][0] == signs[1][0]:
        if signs[0][0] == ">":
            sides.reverse()
            signs.reverse()
        first, second = ("=" in sign for sign in signs)
        return _Group("tuple", (sides[0], sides[2]), ("[" if first else "(") + ("]" if second else ")"))
    return None


def _by_name(group: _Group) -> dict[str, str] | None:
    """Map the names in a list to their values; None if a member has no name, or a name has several values."""
    sides = [split_top(item, _EQUALS) for item in group.items]
    values = {side[0]: side[1] for side in sides if len(side) == 2 and _strict_name(side[0])}
    return values if len(values) == len(group.items) else None


def _unnamed(group: _Group) -> _Group:
    """Return a list without the names that its members are assigned to."""
    items = []
    for item in group.items:
        sides = split_top(item, _EQUALS)
        items.append(sides[-1] if len(sides) == 2 and _strict_name(sides[0]) else item)
    return _Group(group.kind, tuple(items), group.ends, group.width)


def _without_unit(text: str) -> tuple[str, object, str]:
    """Return an expression without the unit or the words after it, that unit if it is one, and what was after it."""
    after = _UNIT_AFTER.search(text) or _BARE_UNIT.search(text)
    if after is None or after.start() == 0:
        return text, None, ""
    unit = unit_of(after[1].strip(" "))
    if unit is None and (
        after.re is _BARE_UNIT or r"\mathrm" in after[1] or not after[1].startswith(r"\text{ ")
    ):
        return text, None, ""
    return text[: after.start()].strip(" "), unit, after[1]


def _other_case(gold: str, answer: str) -> bool:
    """Return whether an answer has a letter in another case than the reference, which math-verify takes for the same one."""
    left, right = (
        set(re.findall("[A-Za-z]", _COMMANDS.sub(" ", _TEXT.sub(" ", text)))) for text in (gold, answer)
    )
    return any(letter.swapcase() in left - right for letter in right - left)
