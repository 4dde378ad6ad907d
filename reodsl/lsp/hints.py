"""Outline the declarations of a spec, and show values beside its expressions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from reodsl.diagnostics.model import Span
from reodsl.ir.expression import Weight, walk
from reodsl.language.bounds import LimitReached
from reodsl.language.changes import complete_stages
from reodsl.language.reward.body import let_units, type_reward
from reodsl.language.units import Quantity, name_unit
from reodsl.language.values import DeclaredExperiment, Definition, NestedBlock, Record, Value, WrittenBudgets
from reodsl.lsp.analysis import Analysis
from reodsl.numbers.budgets import coefficients
from reodsl.syntax import tree
from reodsl.syntax.tree import walk as nodes


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


MOST_VALUES = 3
"""The most values of a setting that a hint shows if stages give it several values."""
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
    all_hints: list[Hint] = []
    # After too many errors there are hints for the declarations that were checked.
    with suppress(LimitReached):
        for item in main.items.values():
            all_hints += _hint_item(analysis, item, first, last)
    return tuple(sorted(all_hints, key=lambda hint: (hint.line, hint.column)))


def _hint_item(analysis: Analysis, item: tree.ModuleItem, first: int, last: int) -> Iterator[Hint]:
    """Yield the hints of one declaration.

    For a reward, selection or measure they are units of its `let`s, for budgets the numbers of tokens. For
    other declarations they are values of settings that are names or calculations, and the weights of a reward.
    If stages give a setting several values, the hint lists at most `MOST_VALUES`.

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
    elif isinstance(record, WrittenBudgets) and first <= item.span.end_line <= last:
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
    """Yield ((line, column), value) for each setting of a record that is set in one file.

    Args:
        record: The record.
        path: The path of the file.
        depth: The number of blocks around the record; blocks nested more than 8 deep are skipped.
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
    """Return the weights of the token positions at which a reward divides responses, as text.

    The text is empty if the reward has no such positions, or if they are only known during a run or differ
    between responses. It is empty too unless the reward uses exactly one rule of weights.
    """
    typed = type_reward(analysis.program.context, reward, symbolic=True)
    split = typed.split if typed is not None else None
    if typed is None or typed.dense is None or not isinstance(split, WrittenBudgets) or split.data("reached"):
        return ""
    formulas = (typed.dense, *(let.value for let in typed.lets))
    rules = {node.rule for formula in formulas for node in walk(formula) if isinstance(node, Weight)}
    if len(rules) != 1:
        return ""
    schedule = split.schedule
    weights = coefficients(rules.pop(), schedule.budgets, schedule.l_max)
    return f"weights {', '.join(f'{weight:,g}' for weight in weights)}"
