"""Colour words by their sort, outline declarations, and show values beside expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from reodsl.diagnostics.model import Span
from reodsl.ir.expression import Weight, walk
from reodsl.language.bounds import LimitReached
from reodsl.language.changes import complete_stages
from reodsl.language.reward.body import let_units, type_reward
from reodsl.language.units import Quantity, name_unit
from reodsl.language.values import DeclaredExperiment, Definition, NestedBlock, Record, Value, WrittenBudgets
from reodsl.lsp.analysis import Analysis, lines_of
from reodsl.numbers.budgets import coefficients
from reodsl.syntax import tree
from reodsl.syntax.scanner import KEYWORDS, Token, scan
from reodsl.syntax.source import Source
from reodsl.syntax.tree import walk as nodes

Sort = Literal[
    "keyword",
    "class",
    "property",
    "function",
    "parameter",
    "variable",
    "namespace",
    "type",
    "number",
    "string",
    "comment",
]
_PLAIN: dict[str, Sort] = {
    "NUMBER": "number",
    "STRING": "string",
    "TEXT": "string",
    "OPEN_STRING": "string",
    "OPEN_TEXT": "string",
}
_OPENERS = {"LBRACE": "RBRACE", "LPAR": "RPAR", "LSQB": "RSQB"}


@dataclass(frozen=True, slots=True)
class Colour:
    """A piece of a line with the sort that determines its colour."""

    span: Span
    sort: Sort


@dataclass(frozen=True, slots=True)
class OutlineSymbol:
    """A declaration in the outline."""

    kind: str
    """The word of its kind; empty for a block."""
    name: str
    span: Span
    """The span of the declaration."""
    name_span: Span
    """The span of its name."""
    children: tuple[OutlineSymbol, ...]
    """The declarations inside it."""


def colours(text: str) -> list[Colour]:
    """Return the coloured pieces of a text in order; a piece over several lines is split at line ends."""
    scanned = scan(Source("", "\n".join(lines_of(text))))
    words = [*_colour_tokens(scanned.tokens), *(Colour(word.span, "comment") for word in scanned.comments)]
    lines = lines_of(text)
    pieces = [piece for word in words for piece in _split_by_line(word, lines)]
    return sorted(pieces, key=lambda word: (word.span.line, word.span.column))


def symbols(items: tuple[tree.BlockItem | tree.ModuleItem, ...]) -> tuple[OutlineSymbol, ...]:
    """Return the outline of a file or block: its declarations and params, with the declarations inside them."""
    outline = []
    for item in items:
        if isinstance(item, tree.Param):
            outline.append(OutlineSymbol("param", item.name.name, item.span, item.name.span, ()))
        elif isinstance(item, tree.Decl):
            inside = symbols(item.block.items) if item.block is not None else ()
            outline.append(OutlineSymbol(item.kind.name, item.name.name, item.span, item.name.span, inside))
        elif isinstance(item, tree.NamedBlock) and (inside := symbols(item.block.items)):
            outline.append(OutlineSymbol("", item.name.name, item.span, item.name.span, inside))
    return tuple(outline)


def _colour_tokens(tokens: list[Token]) -> Iterator[Colour]:
    """Yield the tokens of a text that have a colour."""
    opened: list[str] = []
    item: list[str] = []  # the types of the item's tokens so far
    for token, next_token in zip_longest(tokens, tokens[1:]):
        kind, next_type = token.type, next_token.type if next_token is not None else ""
        in_call = bool(opened) and opened[-1] != "LBRACE"
        if kind in _OPENERS:
            opened.append(kind)
        elif opened and kind == _OPENERS[opened[-1]]:
            opened.pop()
        is_in_import = kind == "COMMA" and item[:1] == ["FROM"]
        if kind == "LBRACE" or (kind in ("NEWLINE", "COMMA", "SEP") and not in_call and not is_in_import):
            item = []
            continue
        if kind in KEYWORDS:
            yield Colour(token.span, "keyword")
        elif kind in _PLAIN:
            yield Colour(token.span, _PLAIN[kind])
        elif kind == "NAME":
            yield Colour(token.span, _sort_name(item, next_type, in_call))
        item.append(kind)


def _sort_name(item: list[str], next_type: str, in_call: bool) -> Sort:
    """Return the sort of a name from its position in its item.

    Args:
        item: The types of the item's tokens before the name.
        next_type: The type of the token after the name.
        in_call: Whether the name is in `( )` or `[ ]`.
    """
    first, previous = (item[0], item[-1]) if item else ("", "")
    if previous == "NUMBER" or (previous == "COLON" and first == "PARAM"):
        return "type"
    if first == "FROM":
        return "variable" if "IMPORT" in item else "namespace"
    if in_call:
        return "parameter" if next_type == "COLON" else "function" if next_type == "LPAR" else "variable"
    if not item and next_type == "NAME":
        return "keyword"
    if not item and next_type in ("EQUAL", "PLUS_EQUAL", "LBRACE"):
        return "property"
    if item == ["NAME"]:
        return "class"
    return "function" if next_type == "LPAR" else "variable"


def _split_by_line(colour: Colour, lines: Sequence[str]) -> Iterator[Colour]:
    """Yield a coloured piece as pieces that each lie on one line.

    Args:
        colour: The piece.
        lines: The lines of the text.
    """
    span = colour.span
    if span.line == span.end_line:
        yield colour
        return
    for line in range(span.line, span.end_line + 1):
        start = span.column if line == span.line else 1
        end = span.end_column if line == span.end_line else len(lines[line - 1]) + 1
        if end > start:
            yield Colour(Span(span.path, line, start, line, end), colour.sort)


MOST_VALUES = 3
"""Values of one setting that are shown, where stages give it several."""
_CALCULATED = (tree.Name, tree.Binary, tree.Unary, tree.Attribute, tree.Index)


@dataclass(frozen=True, slots=True)
class Hint:
    """Words that an editor shows beside the text, at a line and column from 1."""

    line: int
    column: int
    text: str


def hints(analysis: Analysis, first: int, last: int) -> tuple[Hint, ...]:
    """Return the values and units to show beside the text, in the order of the text.

    Args:
        analysis: The evaluated spec.
        first: The first line to show hints for, from 1.
        last: The last line.
    """
    main = analysis.program.main
    if main is None:
        return ()
    every: list[Hint] = []
    # A file with more mistakes than anybody reads has hints as far as it was read.
    with suppress(LimitReached):
        for item in main.items.values():
            every += _hint_item(analysis, item, first, last)
    return tuple(sorted(every, key=lambda hint: (hint.line, hint.column)))


def _hint_item(analysis: Analysis, item: tree.ModuleItem, first: int, last: int) -> Iterator[Hint]:
    """Yield the hints of one declaration: units of its `let`s, its budgets, and its calculated values.

    Args:
        analysis: The evaluated spec.
        item: The declaration.
        first: The first line to show hints for, from 1.
        last: The last line.
    """
    if item.span.line > last or item.span.end_line < first:
        return
    value = analysis.program.values.get(item.name.name)
    record = value.data if value is not None else None
    if isinstance(record, Definition) and record.item is item:
        for span, unit in let_units(analysis.program.context, record).items():
            if unit and first <= span.line <= last:
                yield Hint(span.end_line, span.end_column, f": {name_unit(unit)}")
    elif isinstance(record, WrittenBudgets):
        if first <= item.span.end_line <= last:
            yield Hint(item.span.end_line, item.span.end_column, f" {_budgets(record)}")
    elif isinstance(record, Record):
        values = dict[tuple[int, int], dict[str, None]]()
        # Values may differ between stages, above all those that depend on the variable of a sweep.
        stages = (
            complete_stages(analysis.program.context, record)
            if isinstance(record, DeclaredExperiment) and record.stages
            else ()
        )
        for settings in (record, *(stage for _, stage in stages)):
            for position, setting_value in _list_given(settings, str(analysis.path)):
                text = _show_value(analysis, setting_value)
                if text:
                    values.setdefault(position, {})[text] = None
        for node in nodes(item):
            if isinstance(node, tree.Assignment) and first <= node.span.end_line <= last:
                words = list(values.get((node.span.line, node.span.column), ()))
                if words and (_is_calculated(node.value) or words[0].startswith("weights")):
                    ending = ", …" if len(words) > MOST_VALUES else ""
                    end = node.value.span
                    yield Hint(end.end_line, end.end_column, f" = {', '.join(words[:MOST_VALUES])}{ending}")


def _list_given(record: Record, path: str, depth: int = 0) -> Iterator[tuple[tuple[int, int], Value]]:
    """Yield the settings of a record that this file gives: ((line, column), value) for each setting.

    Args:
        record: The record.
        path: The path of the file.
        depth: The number of nested blocks around the record; deeper than 8 nothing is listed.
    """
    for slot in record.fields.values():
        if isinstance(slot.value.data, NestedBlock) and depth < 8:
            yield from _list_given(slot.value.data, path, depth + 1)
        if slot.span is not None and slot.span.path == path:
            yield (slot.span.line, slot.span.column), slot.value


def _is_calculated(value: tree.Expr) -> bool:
    """Return whether an expression needs a hint with its value: a name, a calculation, or a number with a suffix."""
    return isinstance(value, _CALCULATED) or (
        isinstance(value, tree.Number) and value.suffix in ("K", "M", "G")
    )


def _show_value(analysis: Analysis, value: Value) -> str:
    """Return the text of a hint: a number with its unit, budgets, or a reward's weights; empty for other values."""
    data = value.data
    if isinstance(data, Quantity):
        return f"{data.number:,} {name_unit(data.unit)}".strip()
    if isinstance(data, WrittenBudgets):
        return _budgets(data)
    return _weights(analysis, data) if isinstance(data, Definition) else ""


def _budgets(record: WrittenBudgets) -> str:
    """Return the budgets of a schedule with the longest response, as text."""
    schedule = record.schedule
    return f"{', '.join(f'{budget:,}' for budget in (*schedule.budgets, schedule.l_max))} tokens"


def _weights(analysis: Analysis, reward: Definition) -> str:
    """Return the weights of a reward's splits as text.

    The text is empty if several rules of weights occur, or if the budgets differ between responses or are not
    known yet.
    """
    typed = type_reward(analysis.program.context, reward, symbolic=True)
    if typed is None or typed.dense is None or not isinstance(typed.split, WrittenBudgets):
        return ""
    if typed.split.data("reached"):
        return ""
    formulas = (typed.dense, *(let.value for let in typed.lets))
    rules = {node.rule for formula in formulas for node in walk(formula) if isinstance(node, Weight)}
    if len(rules) != 1:
        return ""
    schedule = typed.split.schedule
    weights = coefficients(rules.pop(), schedule.budgets, schedule.l_max)
    return f"weights {', '.join(f'{weight:,g}' for weight in weights)}"
