"""The language's own words, for grammars that editors and pages colour specs by."""

from __future__ import annotations

from dataclasses import dataclass

from reodsl.ir.kinds import DECLARED, KINDS
from reodsl.language.functions import SIGNATURES
from reodsl.language.reward.names import FUNCTIONS
from reodsl.language.units import UNITS
from reodsl.syntax import grammar


@dataclass(frozen=True, slots=True)
class Words:
    """Words by what they are, each group sorted.

    `kinds` begin declarations, `functions` are called, `units` stand behind numbers, and `keywords` are the grammar's.
    `number` is the pattern of a number.
    """

    keywords: tuple[str, ...]
    constants: tuple[str, ...]
    kinds: tuple[str, ...]
    functions: tuple[str, ...]
    units: tuple[str, ...]
    number: str


def words() -> Words:
    """Collect the words from the grammar's tables, the table of kinds, the functions and the units."""
    constants = {"true", "false"}
    children = {child for kind in KINDS.values() for child in kind.children}
    called = {name for name, kind in KINDS.items() if kind.form == "call"}
    return Words(
        keywords=tuple(sorted(set(grammar.words()) - constants)),
        constants=tuple(sorted(constants)),
        kinds=tuple(sorted({*DECLARED, *children, "track", "metric"})),
        functions=tuple(sorted({*SIGNATURES, *FUNCTIONS, "quantile", *called})),
        units=tuple(sorted(UNITS)),
        number=next(t.pattern.to_regexp() for t in grammar.terminals() if t.name == "NUMBER"),
    )
