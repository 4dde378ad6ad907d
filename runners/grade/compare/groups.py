"""Read answers with members: labelled answers, residues, equations, lists, tuples, intervals, sets, matrices and ratios."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from runners.grade.compare.final import LABELS
from runners.grade.compare.notation import COMMANDS, TEXT, closing, split_top
from runners.grade.compare.quantity import number_text, quantity, without_unit
from runners.grade.compare.words import is_words

MOST_LINKS = 8
"""The most sides of a chain of equations that is an answer."""


@dataclass(frozen=True, slots=True)
class Residue:
    r"""A residue class such as `n \equiv 4 \pmod 7`, as texts."""

    name: str
    """The left side, `n`; may be empty."""
    value: str
    """The residue, `4`."""
    modulus: str

    @property
    def parts(self) -> list[str]:
        """Return the texts of the residue that are not empty."""
        return [text for text in (self.name, self.value, self.modulus) if text]

    @property
    def remainder(self) -> str:
        """Return the value modulo the modulus, or the unchanged value if one of the two is no positive integer."""
        numbers = quantity(self.value), quantity(self.modulus)
        integers = [int(number.value) for number in numbers if number is not None and number.is_integer]
        return str(integers[0] % integers[1]) if len(integers) == 2 and integers[1] > 0 else self.value


@dataclass(frozen=True, slots=True)
class Group:
    """An answer with several members, as texts."""

    kind: str
    """A `list` without brackets, a `set`, a `tuple` in brackets (also an interval), a `union`, a `matrix`, or a `ratio`."""
    items: tuple[str, ...]
    """The members; the cells of a matrix row by row."""
    ends: str = ""
    """The opening and closing bracket of a tuple, such as `[)`."""
    width: int = 0
    """The number of columns of a matrix, else 0."""

    def by_name(self) -> dict[str, str] | None:
        """Return the values of members like `x = 1` by name; None if a member has no name or a name occurs twice."""
        values = dict(filter(None, map(_assignment, self.items)))
        return values if len(values) == len(self.items) else None

    def unnamed(self) -> Group:
        """Return the group with only the value of each member that assigns a name: `1` for `x = 1`."""
        return replace(self, items=tuple((_assignment(item) or ("", item))[1] for item in self.items))


def _join(word: str, signs: str) -> str:
    r"""Return a pattern for the separator between two members.

    Args:
        word: The word that separates them, such as `or`, also inside `\text{}` and after a comma or semicolon.
        signs: A pattern of signs with the same meaning.
    """
    return rf"[,;]? ?\\text\{{,? ?{word},? ?\}}|[,;]? {word} | ?{signs} ?"


_OR = re.compile(_join("or", r"(?:\u6216|\\lor(?![A-Za-z]))"))
_AND = re.compile(_join("and", r"(?:\u548c|\\land(?![A-Za-z]))"))
_EITHER = re.compile(f"{_OR.pattern}|;")
_COMMA = re.compile(f"{_OR.pattern}|{_AND.pattern}|[,;]")
_EQUALS = re.compile(r"(?<![<>!:])==?(?![<>])")
_IN = re.compile(r"\\in(?![A-Za-z])")
_CUP = re.compile(r"\\cup(?![A-Za-z])")
_CAP = re.compile(r"\\cap(?![A-Za-z])")
_OTHER_SETS = re.compile(r"\\(?:cap|setminus|times|backslash)(?![A-Za-z])")
_COLON = re.compile(":")
RATIO = re.compile(r"[0-9]{1,12} ?: ?[0-9]{1,12}")
_APPROX = re.compile(r"\\approx(?![A-Za-z])")
_NUMERAL = re.compile(
    r"(?=.*[0-9])(?:\\(?:frac|sqrt|pi|cdot|times|ln|log)(?![A-Za-z])|[0-9.+*/^{}()\[\] -])+"
)
_NAMES = re.compile(
    r"\( ?[A-Za-z](?:_\w)? ?(?:, ?(?:[A-Za-z](?:_\w)?|\\[a-z]+) ?)+\)|\(r, ?\\theta(?:, ?[a-z\\]+)?\)"
)
_NAME = re.compile(
    r"(?:[A-Za-z]|\\(?!frac|sqrt|log|ln|sin|cos|tan|binom|pm|left|text|mathrm)[A-Za-z]+|\\vec\{[A-Za-z]\}|[A-Z]{2,3}"
    r"|\\angle ?[A-Z]{1,3}|\\(?:text|mathrm)\{[^{}]{1,40}\})(?:_(?:\{[^{}]{1,20}\}|[0-9A-Za-z]))?'*"
    rf"(?:(?:\^\{{-1\}})?\([^()]{{0,40}}\))?|{_NAMES.pattern}"
)
_INDEX = re.compile(r"_(?:\{[^{}]{0,20}\}|[0-9A-Za-z])|\([^()]{0,40}\)")
_NO_NAME = re.compile(r"[0-9^<>]|\\pm|\\mp")


def is_name(text: str) -> bool:
    r"""Return whether a text is the name of an unknown, such as `x_1`, `f(x)`, `\theta` or `(x, y)`."""
    return _NAME.fullmatch(text) is not None


def is_named(text: str) -> bool:
    """Return whether the left side of an equation is a name, or an expression of names, such as `m + n`, without numbers."""
    if is_name(text):
        return True
    unindexed = _INDEX.sub("", TEXT.sub("t", text))
    if len(text) > 80 or text[:1] == "-" or _NO_NAME.search(unindexed):
        return False
    return re.search("[A-Za-z]", unindexed) is not None


def _assignment(text: str) -> tuple[str, str] | None:
    """Return the name and the value of a text like `x = 1`, or None."""
    sides = split_top(text, _EQUALS)
    return (sides[0], sides[1]) if len(sides) == 2 and is_name(sides[0]) else None


def read_near(text: str) -> list[str] | None:
    r"""Return the two sides of a numerical approximation such as `6\pi \approx 18.85`; None for another text."""
    sides = split_top(text, _APPROX) if r"\approx" in text else []
    return sides if len(sides) == 2 and _NUMERAL.fullmatch(sides[0]) else None


def read_equation(text: str) -> list[str] | None:
    r"""Return the sides of an equation or a chain (`F = ma = 5`), or the name and the set of `x \in S`.

    The result is None for another text, for several assignments (`x = 1, y = 2`), which are a list, and for equations
    with inequalities that describe an interval.
    """
    if "=" not in text and r"\in" not in text:
        return None
    sides = split_top(text, _EQUALS)
    if len(sides) == 1:
        member = split_top(text, _IN)
        return member if len(member) == 2 and is_name(member[0]) else None
    items = split_top(text, _COMMA)
    if len(items) < 2 or (_NAMES.match(text) and len(sides) == 2):
        return sides
    is_list = all(len(split_top(item, _EQUALS)) > 1 for item in items)
    return None if is_list or _read_inequalities(text) is not None else sides


def equation_parts(sides: Sequence[str]) -> Sequence[str]:
    """Return the sides of a reference's equation that have to be readable, for `expressions`.

    For an assignment of a value, it is the value; for another equation, all sides. If an equation has a side of words,
    or too many sides, the result is `[""]`, a text that counts as unreadable.
    """
    if is_name(sides[0]) or names_number(sides):
        return sides[-1:]
    return [""] if len(sides) > MOST_LINKS or any(map(is_words, sides)) else sides


def names_number(sides: Sequence[str]) -> bool:
    """Return whether an equation has names on its left side, and a number other than 0 or a ratio on its right.

    Examples: `a + b = 12`, `a : b = 2 : 3`.
    """
    if len(sides) != 2 or not is_named(sides[0]):
        return False
    number = quantity(sides[1], reference=True)
    return bool(number.value) if number is not None else RATIO.fullmatch(sides[1]) is not None


def one_by_one(sides: Sequence[str] | None, other: str) -> str | None:
    """Return a chain of equations with a single value as a list: `x = 1, y = 1` for `x = y = 1`.

    The list is compared with the other text member by member.

    Args:
        sides: The sides of an equation, or None.
        other: The text that the equation is compared with.

    Returns:
        The list; None if the sides are no chain of names with a value at the end, or if the other text is no list.
    """
    if sides is None or len(sides) < 3 or not all(map(is_name, sides[:-1])) or not _listed(other):
        return None
    return ", ".join(f"{name} = {sides[-1]}" for name in sides[:-1])


def _listed(text: str) -> bool:
    """Return whether a text is a list: several members with commas, `and` or `or` between them."""
    return len(split_top(text, _COMMA)) > 1


_MODULO = re.compile(
    r"(?:((?:(?!\\equiv|mod(?![a-z]))[^=<>])*?) ?\\equiv ?)?((?:(?!\\equiv|mod(?![a-z])).)+?)"
    r" ?\(?(?:\\[pb]?mod(?![A-Za-z])|\\text\{ ?mod ?\}|mod ) ?\{?([^{}()]+?)\}?\)?"
)
_LINEAR = re.compile(
    r"(?:([a-z]) ?= ?)?(?:([0-9]{1,9}) ?[a-z] ?(?:([+-]) ?([0-9]{1,9}))?|([+-]?[0-9]{1,9}) ?\+ ?([0-9]{1,9}) ?[a-z])"
    r"(?: ?, ?[a-z] ?\\in ?\\mathbb\{Z\})?"
)


def read_residue(text: str) -> Residue | None:
    r"""Return the residue that `n \equiv 4 \pmod{7}` or `4 \pmod{7}` names; None for another text."""
    residue = _MODULO.fullmatch(text)
    return None if residue is None else Residue(*residue.groups(""))


def read_linear(text: str) -> Residue | None:
    """Return the residue that `n = 7k + 3` or `3 + 7k` describes; None for another text."""
    linear = _LINEAR.fullmatch(text)
    if linear is None:
        return None
    name, modulus, sign, constant, first, last_modulus = linear.groups("")
    return Residue(name, first or ("-" if sign == "-" else "") + (constant or "0"), modulus or last_modulus)


_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![A-Za-z]) ?")
_LEADING_PLUS = re.compile(r"(?<=[({=,]) ?\+")


def _expand_plus_minus(text: str) -> tuple[str, ...]:
    r"""Return the two values of an expression with a single `\pm` or `\mp`; any other text is its only value."""
    if len(_PLUS_MINUS.findall(text)) != 1:
        return (text,)
    values = _PLUS_MINUS.sub("+", text).removeprefix("+"), _PLUS_MINUS.sub("-", text)
    return tuple(_LEADING_PLUS.sub("", value) for value in values)


def _members(text: str) -> tuple[str, ...]:
    r"""Return the members of a list; a member with `\pm` counts as two."""
    return tuple(value for item in split_top(text, _COMMA) if item for value in _expand_plus_minus(item))


_PART = re.compile(
    r"(?:\\(?:frac|sqrt|pi|cdot)(?![A-Za-z])|(?<![A-Za-z])[A-Za-z]{1,2}(?![A-Za-z])|[0-9.+*/^{}() -])+"
)


def read_group(text: str) -> Group | None:
    """Return the group that a text is; None for another text.

    The kinds are tried from the most specific, lists of solutions, to the least, ratios. Members are not read here.
    """
    readers = (_read_solutions, _read_transposed, _read_matrix, _read_set, _read_inequalities)
    group = next(filter(None, (read(text) for read in readers)), None)
    if group is not None:
        return group
    parts = split_top(text, _CUP)
    if len(parts) > 1:
        return Group("union", tuple(parts))
    if _OTHER_SETS.search(text):
        return None
    members = _members(text)
    if len(members) > 1:
        return Group("list", members)
    if text[0] in "([" and text[-1] in ")]" and closing(text, 0) == len(text) - 1:
        items = split_top(text[1:-1], _COMMA)
        return Group("tuple", tuple(items), text[0] + text[-1]) if len(items) > 1 else None
    parts = split_top(without_unit(text)[0], _COLON)
    return Group("ratio", tuple(parts)) if len(parts) > 1 and all(map(_PART.fullmatch, parts)) else None


def _read_solutions(text: str) -> Group | None:
    """Return the list of tuples `(1, 2), (2, 1)` for the solutions `x = 1, y = 2 or x = 2, y = 1`; None for another text.

    There are at least two solutions of at least two names, and all have the same names in the same order.
    """
    if "=" not in text:
        return None
    cases = [
        [split_top(item, _EQUALS) for item in split_top(case, _COMMA)] for case in split_top(text, _EITHER)
    ]
    names = [[sides[0] for sides in case] for case in cases]
    if len(cases) < 2 or len(names[0]) < 2 or any(row != names[0] for row in names):
        return None
    if not all(len(sides) == 2 for case in cases for sides in case):
        return None
    return Group("list", tuple(f"({', '.join(sides[1] for sides in case)})" for case in cases))


_MATRIX = re.compile(r"\\begin\{([pbvBV]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\1\}", re.DOTALL)
_SCALING = re.compile(r"(-?(?:\\frac\{[0-9]+\}\{[0-9]+\}|[0-9]+)) ?(\\begin\{[pbB]?matrix\}.*)", re.DOTALL)
_NESTED = re.compile(r"\[(?: ?\[[^\[\]]+\] ?,?){2,}\]")
_TRANSPOSE = re.compile(
    r"((?:[(\[]|\\begin).*(?:[)\]]|\\end\{[a-z]{1,9}\})) ?\^ ?\{? ?(?:T|\\top|\\intercal|\\(?:mathrm|text)\{T\}) ?\}?",
    re.DOTALL,
)


def _read_matrix(text: str) -> Group | None:
    """Return the matrix of a LaTeX environment, or of lists such as `[[1, 2], [3, 4]]`.

    Each cell is multiplied by a factor before the matrix. The result is None for another text, and for a determinant,
    which has vertical bars.
    """
    if _NESTED.fullmatch(text):
        return _rows([split_top(row[1:-1], _COMMA) for row in split_top(text[1:-1], _COMMA)])
    body = text[1:-1].strip(" ") if text[0] in "([|" and text[-1] in ")]|" else text
    scaled = _SCALING.fullmatch(body)
    matrix = _MATRIX.fullmatch(scaled[2] if scaled else body)
    if matrix is None or r"\begin" in matrix[2]:
        return None
    if matrix[1] in ("vmatrix", "Vmatrix") or (matrix[1] == "array" and body == text):
        return None
    rows = [row.split("&") for row in matrix[2].split(r"\\") if row.strip(" ")]
    if scaled:
        rows = [[rf"{scaled[1]} \cdot ({cell.strip()})" for cell in row] for row in rows]
    return _rows(rows)


def _rows(rows: Sequence[Sequence[str]]) -> Group | None:
    """Return the matrix with these rows of cells, or None if the rows differ in length."""
    if len({len(row) for row in rows}) != 1:
        return None
    return Group("matrix", tuple(cell.strip(" ") for row in rows for cell in row), width=len(rows[0]))


def _read_transposed(text: str) -> Group | None:
    """Return the transpose that a text like `(1, 2)^T` describes, as a matrix; None for another text."""
    match = _TRANSPOSE.fullmatch(text) if text[-1] in "T}p" or text.endswith("intercal") else None
    group = read_group(match[1]) if match is not None else None
    if group is None or group.kind not in ("tuple", "matrix"):
        return None
    width = group.width or len(group.items)
    rows = [group.items[start : start + width] for start in range(0, len(group.items), width)]
    return _rows(list(zip(*rows, strict=True)))


_BUILDER = re.compile(r"\\\{ ?[A-Za-z](?: ?\\in ?\\mathbb\{?R\}?)? ?(?:\\mid|\||:) ?(.*)\\\}", re.DOTALL)


def _read_set(text: str) -> Group | None:
    r"""Return a set in braces, `\emptyset`, or the interval of `\{x \mid x > 2\}`; None for another text."""
    if text == r"\emptyset":
        return Group("set", ())
    if not (text.startswith(r"\{") and text.endswith(r"\}") and closing(text, 0) == len(text) - 1):
        return None
    builder = _BUILDER.fullmatch(text)
    return (
        Group("set", _members(text[2:-2])) if builder is None else _read_inequalities(builder[1].strip(" "))
    )


_ORDER = re.compile(r"(\\le(?![A-Za-z])|\\ge(?![A-Za-z])|<|>)")
_RELATION = re.compile(r"(\\(?:le|ge|subset|supset|subseteq|supseteq)(?![A-Za-z])|<|>)")
_MIRROR = {"<": ">", r"\le": r"\ge", r"\subset": r"\supset", r"\subseteq": r"\supseteq"}
_MIRROR |= {right: left for left, right in _MIRROR.items()}
_LESS = ("<", r"\le")
_UNEQUAL = re.compile(r"[a-zA-Z] ?\\ne (-?[^,=<>\\ ]{1,20}|-?\\frac\{[^{}]{1,20}\}\{[^{}]{1,20}\})")
_FIXED = r"(?:\\[a-z]+|[^|<>=+A-Za-z\\-])+"
_DISTANCE = re.compile(
    rf"\| ?(?:[a-vxy](?: ?(?P<sign>[+-]) ?(?P<centre>{_FIXED}))?|(?P<first>{_FIXED})- ?[a-vxy]) ?\|"
)


def _pieces(text: str, marks: re.Pattern[str]) -> list[str]:
    """Return the texts between marks and the marks, in their order: `a < b` gives `a`, `<`, `b`."""
    return [piece.strip(" ") for piece in marks.split(text)]


def read_relation(text: str) -> tuple[str, ...] | None:
    r"""Return a relation or an intersection in a normal form, a tuple of texts; None for another text.

    Equal relations have equal tuples: `b > a` and `a < b` give `("a", "<", "b")`, and `B \cap A` gives `("A", "B")`.
    """
    if _CAP.search(text):
        return tuple(sorted(split_top(text, _CAP)))
    pieces = _pieces(text, _RELATION)
    if len(pieces) != 3:
        return None
    left, sign, right = pieces
    return (left, sign, right) if sign < _MIRROR[sign] else (right, _MIRROR[sign], left)


def _read_inequalities(text: str) -> Group | None:
    r"""Return the interval or the union of intervals that inequalities describe; None for another text.

    Examples: `x < 2 or x > 3`, `x > 2 and x < 3`, `x \ne 2`, `|x - 1| < 2`, `1 < x \le 3`. Inequalities that are joined
        by
    `or` or `and` must have the same variable. Two joined by `and` must be a lower and an upper bound.
    """
    has_order = _ORDER.search(text) is not None
    if not has_order and r"\ne" not in text:
        return None
    for joined, mark in (("or", _OR), ("and", _AND)) if has_order else ():
        parts = split_top(text, mark)
        ranges = [_interval(part) or _point(part, joined) for part in parts] if len(parts) > 1 else [None]
        names = {name for part in parts for name in re.findall(r"[A-Za-z]+", COMMANDS.sub(" ", part))}
        if None in ranges or len(names) != 1:
            continue
        if joined == "or":
            return Group("union", tuple(map(_format_member, filter(None, ranges))))
        intervals = [(interval.ends, *interval.items) for interval in ranges if interval is not None]
        above = [(ends[0], low) for ends, low, _ in intervals if low != r"-\infty"]
        below = [(ends[1], high) for ends, _, high in intervals if high != r"\infty"]
        if len(parts) == 2 and len(above) == len(below) == 1:
            return Group("tuple", (above[0][1], below[0][1]), above[0][0] + below[0][0])
    unequal = _UNEQUAL.fullmatch(text)
    if unequal is not None:
        return Group("union", (rf"(-\infty,{unequal[1]})", rf"({unequal[1]},\infty)"))
    return _within_distance(text) or _interval(text)


def _point(text: str, joined: str) -> Group | None:
    """Return the set with the value of an equation `x = a` among inequalities that `or` joins; else None.

    Args:
        text: The equation.
        joined: `or` or `and`, the word between the inequalities.
    """
    assigned = _assignment(text) if joined == "or" else None
    return None if assigned is None else Group("set", assigned[1:])


def _format_member(member: Group) -> str:
    r"""Return the text of an interval or a set as a member of a union, such as `(1,2]` or `\{3\}`."""
    open_, close = (r"\{", r"\}") if member.kind == "set" else (member.ends[0], member.ends[1])
    return f"{open_}{','.join(member.items)}{close}"


def _within_distance(text: str) -> Group | None:
    """Return the interval that `|x - a| < r` describes, or the union for `|x - a| > r`; None for another text."""
    pieces = _pieces(text, _ORDER)
    if len(pieces) != 3:
        return None
    distance, sign, radius = pieces if pieces[0][:1] == "|" else reversed(pieces)
    measured = _DISTANCE.fullmatch(distance)
    if measured is None or not radius or radius[0] == "-" or "|" in radius or _listed(radius):
        return None
    is_inside = (sign in _LESS) == (distance == pieces[0])
    centre = measured["first"] or (measured["centre"] or "0")
    low, high = (_interval_end(centre, mark, radius, measured["sign"] == "+") for mark in "-+")
    # Not strict: the signs `\le` and `\ge` have an e.
    open_, close = "[]" if "e" in sign else "()"
    if is_inside:
        return Group("tuple", (low, high), open_ + close)
    return Group("union", (rf"(-\infty,{low}{close}", rf"{open_}{high},\infty)"))


def _interval_end(centre: str, mark: str, radius: str, negate: bool) -> str:
    """Return the end of an interval, centre + radius or centre - radius, as a number if both are numbers.

    Args:
        centre: The centre of the interval.
        mark: `+` for the upper end, `-` for the lower end.
        radius: Half the width of the interval.
        negate: True if the centre has to change its sign.
    """
    c, r = quantity(centre), quantity(radius)
    if c is None or r is None:
        signed = "" if centre == "0" else f"-{centre}" if negate else centre
        return f"{signed}{mark}{radius if radius.isalnum() else f'({radius})'}".removeprefix("+")
    value = -c.value if negate else c.value
    return number_text(value + (r.value if mark == "+" else -r.value), c.rounded or r.rounded)


def _interval(text: str) -> Group | None:
    r"""Return the interval that `a \le x < b`, `x > a` or `a < x` describes; None for another text."""
    if not _ORDER.search(text) or _listed(text):
        return None
    pieces = _pieces(text, _ORDER)
    sides, signs = pieces[::2], pieces[1::2]
    if len(sides) == 2 and is_name(sides[1]) and not is_name(sides[0]):
        sides, signs = sides[::-1], [_MIRROR[signs[0]]]
    if len(sides) == 2:
        # `x < b` is `-\infty < x < b`.
        less = signs[0] in _LESS
        sides, signs = [r"-\infty" if less else r"\infty", *sides], ["<" if less else ">", *signs]
    if len(sides) != 3 or not is_name(sides[1]) or (signs[0] in _LESS) != (signs[1] in _LESS):
        return None
    if signs[0] not in _LESS:
        sides, signs = sides[::-1], signs[::-1]
    return Group("tuple", (sides[0], sides[2]), "(["["e" in signs[0]] + ")]"["e" in signs[1]])


_POINT = re.compile(r"[A-Z](?:_[0-9]|')? ?(\([^()]*\))")
_AXES = re.compile(
    r" ?([+-]?) ?((?:\\(?:frac\{[^{}]*\}|sqrt|pi|cdot) ?|[0-9.]+|\{[^{}ijk]*\}|[a-hl-z] ?)*+) ?\{?([ijk])\}?(?![A-Za-z])"
)
_COLUMN = re.compile(r"\\binom\{([^{}]*)\}\{([^{}]*)\}")


def read_as(text: str, other: Group) -> Group | None:
    r"""Return a text as a vector, if the text that it is compared with is a vector or a list of tuples; else None.

    Args:
        text: A point `A(2, 5)`, a sum `2i + 5j` of unit vectors, or `\binom{2}{5}` as a column.
        other: The group that the text is compared with.
    """
    if other.kind not in ("tuple", "matrix") and "".join(other.items)[:1] != "(":
        return None
    column = _COLUMN.fullmatch(text) if other.kind == "matrix" else None
    if column is not None:
        return Group("matrix", column.groups(), width=1)
    point = _POINT.fullmatch(text)
    if point is not None:
        return read_group(point[1]) if "," in point[1] else None
    sizes: dict[str, str] = {}
    # Matches from the start keep the time linear; a search would begin again at each letter.
    while term := _AXES.match(text):
        sign, size, axis = term.groups()
        sizes[axis] = f"{sign}{size.strip(' ') or 1}"
        text = text[term.end() :].strip(" ")
    if "j" not in sizes or text:
        return None
    return Group("tuple", tuple(sizes.get(axis, "0") for axis in "ijk"[: max(2, len(other.items))]), "()")


_PART_LABEL = re.compile(
    r"(?:(?:^|[;,]|(?<= ))(?: ?\\text\{ ?and ?\}| ?and )? ?(?:\\text\{,? ?)?(?:[Pp]art ?)?)\(?"
    r"([a-h]|[1-9]|i{1,3}|iv|v)\)[.:]? ?\}?[:=]? ?"
)


def labelled(text: str) -> list[str]:
    """Return the answers of `(a) 12; (b) 7` in the order of their labels; an empty list for another text.

    The labels have to be the beginning of a series, such as a, b, c, in any order, and each needs an answer.
    """
    labels = list(_PART_LABEL.finditer(text))
    names = [label[1] for label in labels]
    if len(labels) < 2 or labels[0].start() > 0:
        return []
    series = next((sequence for sequence in LABELS if set(names) == set(sequence[: len(names)])), None)
    if series is None or len(set(names)) < len(names):
        return []
    ends = [*(label.start() for label in labels[1:]), len(text)]
    parts = {label[1]: text[label.end() : end].strip(" ,;") for label, end in zip(labels, ends, strict=True)}
    return [parts[label] for label in series[: len(names)]] if all(parts.values()) else []


_ANY_INTEGER = re.compile(r"(.+?) ?, ([a-z]) \\in \\mathbb\{Z\}")
_LETTER = re.compile(r"\\(?:text|mathrm)\{[^{}]*\}|\\[A-Za-z]+|([A-Za-z])")


def with_one_integer(gold: str, answer: str) -> list[tuple[str, str]]:
    r"""Return pairs (reference, answer) of texts to compare, of which one pair has to agree.

    There are several pairs if the reference is a formula with a parameter that is any integer, such as `k` in
    `k\pi, k \in \mathbb{Z}`. The answer's parameter may have another letter, count from another number, or count down.
    So it is replaced by k, k + 1, k - 1 and -k, in a pair each; if it is an exponent or an index, only by k. For other
    references, and if it is not clear which letter is the answer's parameter, the result is a single pair.
    """
    gold_match, answer_match = _ANY_INTEGER.fullmatch(gold), _ANY_INTEGER.fullmatch(answer)
    formula, other = answer_match.groups() if answer_match is not None else (answer, "")
    if gold_match is None:
        return [(gold, formula if other and other in _letters(gold) else answer)]
    body, name = gold_match.groups()
    new_letters = _letters(formula) - _letters(body)
    if not other:
        # The answer does not say which letter is its parameter.
        other = name if name in _letters(formula) else next(iter(new_letters), "")
        if other != name and (len(new_letters) != 1 or other not in "klmn"):
            return [(gold, answer)]
    if other != name and name in _letters(formula):
        return [(gold, answer)]
    values = [name]
    if not re.search(rf"[\^_]\{{?{other}", formula):
        values += [f"({name}+1)", f"({name}-1)", f"(-{name})"]
    return [
        (body, _LETTER.sub(lambda match, new=value: new if match[0] == other else match[0], formula))
        for value in values
    ]


def _letters(text: str) -> set[str]:
    r"""Return the letters of a text outside commands and `\text{}`."""
    return set(_LETTER.findall(text)) - {""}
