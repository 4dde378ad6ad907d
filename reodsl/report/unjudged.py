"""Count answers that were never judged, in evaluations and in training, with the commonest reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from reodsl.report import formats
from reodsl.report.artifacts import reading
from reodsl.report.markup import Markup, tag
from reodsl.report.material import MEAN, Material

SHOWN = 5
"""Reasons that are shown, the commonest first."""
_WORDS = {
    "verifier_timeouts": "took the verifier more than its time",
    "verifier_failures": "made it fail",
    "reward_failures": "made the reward's Python fail",
}


def note_evaluations(material: Material) -> Markup | None:
    """Return how many answers of evaluations count as wrong because they were never judged, or None where none are."""
    means = material.summary.filter(pl.col("benchmark") == MEAN)
    words = _count_unjudged(means)
    if not words:
        return None
    worst = means.with_columns((pl.col("verifier_timeouts") + pl.col("verifier_failures")).alias("all"))
    arm = worst.sort("all", descending=True, maintain_order=True)["arm"][0]
    names = ("samples.parquet", "forced.parquet")
    files = [folder / name for folder in material.evaluations.values() for name in names]
    return _draw_note(f"{words}, whole or forced, most of {arm}'s; they count as wrong.", files)


def note_trainings(material: Material) -> Markup | None:
    """Return the same of trainings, where a response that made the reward's Python fail is paid least."""
    words = _count_unjudged(material.metrics)
    files = [folder / "rollouts.parquet" for folder in material.trainings.values()]
    about = "while training; they count as wrong, and a response at which the reward's Python fails is paid least."
    return _draw_note(f"{words} {about}", files) if words else None


def _count_unjudged(rows: pl.DataFrame) -> str:
    counts = {name: int(rows[name].sum()) for name in _WORDS if name in rows.columns}
    return " and ".join(
        f"{formats.plural(count, 'answer')} {_WORDS[name]}" for name, count in counts.items() if count
    )


def _draw_note(words: str, files: Iterable[Path]) -> Markup:
    reasons: Counter[str] = Counter()
    for file in files:
        if not file.is_file():
            continue
        with reading(file):
            scan = pl.scan_parquet(file, glob=False)
            kind = scan.collect_schema().get("unsettled")
            if kind is not None:
                column = scan.select("unsettled").drop_nulls().collect(engine="streaming")["unsettled"]
                each = column.explode() if isinstance(kind, pl.List) else column
                reasons.update(dict(each.value_counts().iter_rows()))
    shown = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    lines = [tag("li", f"{count:,} × {why}") for why, count in shown[:SHOWN]]
    more = sum(count for _, count in shown[SHOWN:])
    lines += [tag("li", f"{more:,} for other reasons")] if more else []
    return tag("div", tag("p", words), tag("ul", lines) if lines else None, class_="about warn")
