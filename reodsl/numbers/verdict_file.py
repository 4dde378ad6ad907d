"""Write a verdict as JSON data, and read it with the names that arms have now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from reodsl.numbers.verdict import Common, PairDifference, Verdict

VERDICT = "verdict.json"
"""The file of a score or a report that holds it."""


def to_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON data."""
    return asdict(verdict)


def from_json(data: Any, called: Mapping[str, str] | None = None) -> Verdict:
    """Return the verdict of JSON data, with the arms that `called` names under those names. Raises ValueError."""
    names = called or {}

    def arm(name: str) -> str:
        return names.get(name, name)

    def pairs(rows: Any) -> tuple[PairDifference, ...]:
        return tuple(
            PairDifference(
                **{
                    **row,
                    "one": arm(row["one"]),
                    "two": arm(row["two"]),
                    "common": None if row["common"] is None else Common(**row["common"]),
                }
            )
            for row in rows
        )

    try:
        return Verdict(
            **{
                **{key: value for key, value in data.items() if key != "sentences"},
                **{key: pairs(data[key]) for key in ("tied", "pairs", "against_baseline")},
                **{key: tuple(arm(each) for each in data[key]) for key in ("arms", "leaders")},
                "baseline": None if data["baseline"] is None else arm(data["baseline"]),
            }
        )
    except (KeyError, TypeError, AttributeError) as failure:
        raise ValueError(f"this is no verdict: {failure}") from None
