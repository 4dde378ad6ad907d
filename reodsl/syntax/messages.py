"""A place where the grammar cannot go on to the diagnostic for it: what was found, what fits, what to write."""

from __future__ import annotations

from collections.abc import Callable

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.syntax import item_mistakes, value_mistakes
from reodsl.syntax.place import Place, describe, wanted, where


def explain(place: Place) -> Diagnostic:
    """The first rule that knows the mistake speaks; else what was found and what would fit."""
    for rule in _VALUE_RULES if place.alone else (*_ITEM_RULES, *_VALUE_RULES, item_mistakes.form):
        found = rule(place)
        if found is not None:
            return found
    return _anything(place)


def _anything(place: Place) -> Diagnostic:
    return error(
        "E0130",
        f"{describe(place.found)} does not fit here",
        where(place),
        wanted(place.expected),
        help="write what is wanted before it, or delete it",
    )


_ITEM_RULES: tuple[Callable[[Place], Diagnostic | None], ...] = (
    item_mistakes.returned,
    item_mistakes.missing_name,
    item_mistakes.name_and_value,
    item_mistakes.python_block,
    item_mistakes.outside_a_block,
    item_mistakes.inside_a_block,
    item_mistakes.declaration_without_value,
    item_mistakes.behind_a_block,
)
_VALUE_RULES: tuple[Callable[[Place], Diagnostic | None], ...] = (
    value_mistakes.equals_and_colon,
    value_mistakes.value_missing,
    value_mistakes.two_values,
    value_mistakes.comprehension,
)
