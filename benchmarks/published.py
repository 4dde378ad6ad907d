"""`python -m benchmarks.published` writes hours that others have published beside what `plan` prices into PUBLISHED.md.

`published.json` has each figure with its source, and `published.reo` the runs. Where a part of a run is not known, its row
says which, and what is assumed in its place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tables import rewrite
from reodsl.graph.lower import lower
from reodsl.language import compile_file
from reodsl.price import price

HERE = Path(__file__).resolve().parent
PAGE = HERE / "PUBLISHED.md"


@dataclass(frozen=True)
class PublishedTime:
    """A published figure, in seconds of a step (`s`) or hours of a run (`h`), and the run in `published.reo`.

    `unknown` says what of the run is not known. Without a `target` there is nothing to price.
    """

    project: str
    run: str
    published: float
    unit: str
    target: str
    amends: dict[str, str]
    unknown: str
    source: str

    def price(self) -> float:
        """Return what `plan` says before anything has run, in the same unit."""
        compiled = compile_file(HERE / "published.reo", target=self.target, amends=self.amends)
        assert compiled.spec is not None, compiled.diagnostics
        prices = price(lower(compiled.spec), compiled.spec)
        (found,) = (each for name, each in prices.tasks.items() if name.startswith(f"{self.target}.train"))
        return found.seconds["training"] / found.steps if self.unit == "s" else found.total_seconds / 3600


def read() -> list[PublishedTime]:
    """Return all rows."""
    return [PublishedTime(**row) for row in json.loads((HERE / "published.json").read_text("utf-8"))]


def table() -> str:
    """Return the rows as Markdown."""
    lines = [
        "| project | run | published | priced | priced over published | not known, or not here | source |",
        "|" + " --- |" * 7,
    ]
    for row in read():
        priced = row.price() if row.target else None
        told = "–" if priced is None else f"{priced:.3g} {row.unit}"
        sources = ", ".join(f"[{i}]({link})" for i, link in enumerate(row.source.split(", "), 1))
        ratio = "–" if priced is None else f"{priced / row.published:.2f}"
        lines.append(
            f"| {row.project} | {row.run} | {row.published:.3g} {row.unit} | {told} | {ratio} | {row.unknown} "
            f"| {sources} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    rewrite(PAGE, {"published": table()})
