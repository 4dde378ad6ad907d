"""Hints that an editor shows in the text: units, and the budgets, weights and numbers that expressions come to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reodsl.ir.expression import Weight, walk
from reodsl.language.reward.body import let_units, type_reward
from reodsl.language.stages import complete_stages
from reodsl.language.units import Quantity, name_unit
from reodsl.language.values import DeclaredExperiment, Definition, Record, Section, Value, WrittenBudgets
from reodsl.lsp.analysis import Analysis
from reodsl.numbers.budgets import coefficients
from reodsl.syntax import tree
from reodsl.syntax.tree import walk as nodes

MOST = 3
"""Values of one setting that are shown, where stages give it several."""
_CALCULATED = (tree.Name, tree.Binary, tree.Unary, tree.Attribute, tree.Index)


@dataclass(frozen=True, slots=True)
class Hint:
    """Words beside the text, at a line and column from 1."""

    line: int
    column: int
    text: str


def hints(analysis: Analysis, first: int, last: int) -> tuple[Hint, ...]:
    """Return the hints on lines `first` to `last`, by line and column."""
    main = analysis.program.main
    if main is None:
        return ()
    every = [each for item in main.items.values() for each in _hint_item(analysis, item, first, last)]
    return tuple(sorted(every, key=lambda each: (each.line, each.column)))


def _hint_item(analysis: Analysis, item: tree.ModuleItem, first: int, last: int) -> Iterator[Hint]:
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
        # A stage has its own values, and a variable over stages another one in each.
        stages = (
            complete_stages(analysis.program.context, record)
            if isinstance(record, DeclaredExperiment) and record.stages
            else ()
        )
        for each in (record, *(stage for _, stage in stages)):
            for place, given in _list_given(each, str(analysis.path)):
                shown = _show_value(analysis, given)
                if shown:
                    values.setdefault(place, {})[shown] = None
        for node in nodes(item):
            if isinstance(node, tree.Setting) and first <= node.span.end_line <= last:
                words = list(values.get((node.span.line, node.span.column), ()))
                if words and (_is_calculated(node.value) or words[0].startswith("weights")):
                    more = ", …" if len(words) > MOST else ""
                    end = node.value.span
                    yield Hint(end.end_line, end.end_column, f" = {', '.join(words[:MOST])}{more}")


def _list_given(record: Record, path: str, depth: int = 0) -> Iterator[tuple[tuple[int, int], Value]]:
    """Yield the values of a record's settings, of its blocks' and of its stages', by where they stand in this file."""
    for slot in record.fields.values():
        if isinstance(slot.value.data, Section) and depth < 8:
            yield from _list_given(slot.value.data, path, depth + 1)
        if slot.span is not None and slot.span.path == path:
            yield (slot.span.line, slot.span.column), slot.value


def _is_calculated(value: tree.Expr) -> bool:
    """Return whether a value's number is not written: it is a name, a sum, or thousands of tokens, which are 1024 each."""
    return isinstance(value, _CALCULATED) or (
        isinstance(value, tree.Number) and value.suffix in ("K", "M", "G")
    )


def _show_value(analysis: Analysis, value: Value) -> str:
    """Return a number with its unit, the budgets of a schedule, or the weights of a reward; empty for all else."""
    data = value.data
    if isinstance(data, Quantity):
        return f"{data.number:,} {name_unit(data.unit)}".strip()
    if isinstance(data, WrittenBudgets):
        return _budgets(data)
    return _weights(analysis, data) if isinstance(data, Definition) else ""


def _budgets(record: WrittenBudgets) -> str:
    schedule = record.schedule
    return f"{', '.join(f'{each:,}' for each in (*schedule.budgets, schedule.l_max))} tokens"


def _weights(analysis: Analysis, reward: Definition) -> str:
    """Return the weights of a reward's splits, if one rule gives them and the budgets are known."""
    typed = type_reward(analysis.program.context, reward, symbolic=True)
    if typed is None or typed.dense is None or not isinstance(typed.split, WrittenBudgets):
        return ""
    if typed.split.data("reached"):
        # Each response has its own.
        return ""
    of = (typed.dense, *(value for _, value in typed.lets))
    rules = {node.rule for each in of for node in walk(each) if isinstance(node, Weight)}
    if len(rules) != 1:
        return ""
    schedule = typed.split.schedule
    weights = coefficients(rules.pop(), schedule.budgets, schedule.l_max)
    return f"weights {', '.join(f'{each:,g}' for each in weights)}"
