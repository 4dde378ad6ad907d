"""What a rehearsal with a spec's own models measured, kept in the store for the prices of runs to come.

It lies beside the results and is none: of a study it is that of the last rehearsal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reodsl.price.facts import Facts
from reodsl.price.past import Past
from reodsl.price.sizes import Sizes
from reodsl.store.files import write_atomic
from reodsl.store.plain import LARGEST_RECORD, read_plain

_FILE = "rehearsed.json"


def keep_rehearsal(root: Path, study: str, results: Sequence[Past]) -> None:
    """Put what a rehearsal of a study measured into the store at `root`, in the place of the one before."""
    studies = _read(root)
    studies[study] = [asdict(each) for each in results]
    write_atomic(root / _FILE, (json.dumps(studies, indent=1) + "\n").encode())


def read_rehearsals(root: Path) -> tuple[Past, ...]:
    """What the rehearsals of all studies of a store measured; nothing where there is none that can be read."""
    results = []
    for rows in _read(root).values():
        try:
            results += [_past(dict(row)) for row in rows]
        except (TypeError, ValueError, KeyError):
            continue
    return tuple(results)


def _read(root: Path) -> dict[str, Any]:
    try:
        studies = json.loads(read_plain(root / _FILE, LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    return studies if isinstance(studies, dict) else {}


def _past(row: dict[str, Any]) -> Past:
    return Past(**row | {"sizes": Sizes(**row["sizes"]), "facts": Facts(**row["facts"])})
