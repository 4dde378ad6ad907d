"""Show how much of its data each arm's training had: what selections picked, and what was too long."""

from __future__ import annotations

import polars as pl

from reodsl.report import formats, theme
from reodsl.report.markup import Child, Markup, tag
from reodsl.report.material import Material

_COUNTS = ("questions", "lost", "picked", "dropped")


def section(material: Material) -> list[Child]:
    """Return a table of how much of its data each training had, means over seeds; nothing where each had all of it."""
    if not material.selections.height:
        return []
    rows = (
        material.selections.group_by("arm", "stage", "by", maintain_order=True)
        .agg(pl.col(_COUNTS).mean())
        .with_columns((pl.col("lost") / pl.col("questions")).alias("share"))
    )
    drops = bool(rows["dropped"].sum())
    words = (
        "Questions, traces or pairs that were not trained on, and the setting that decides it. A selection loses a question"
        " where it picks none of its responses"
        + (", and picks with the lowest margins are left out" if drops else "")
        + ("; means over seeds." if len(material.seeds) > 1 else ".")
    )
    colour = material.colours
    several = set(rows.filter(pl.col("arm").is_duplicated())["arm"])
    body = [
        tag(
            "tr",
            tag(
                "th",
                tag("span", class_="dot", style=f"background:{colour.get(row['arm'], theme.UNTRAINED)}"),
                row["arm"],
                tag("span", row["stage"], class_="tag") if row["arm"] in several else None,
                class_="name",
                scope="row",
            ),
            tag("td", row["by"]),
            tag("td", formats.number(row["questions"], 0)),
            tag("td", formats.number(row["lost"], 0)),
            tag("td", formats.percent(row["share"])),
            tag("td", formats.number(row["picked"], 0)),
            tag("td", formats.number(row["dropped"], 0)) if drops else None,
        )
        for row in rows.to_dicts()
    ]
    heads = ("decided by", "of", "lost", "lost (%)", "trained on", *(("left out",) if drops else ()))
    head = tag("tr", tag("th", "arm", class_="name"), [tag("th", name) for name in heads], class_="only")
    return [tag("h3", "Left out of training"), tag("p", words, class_="about"), _table(head, body)]


def _table(head: Markup, body: list[Markup]) -> Markup:
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="scroll", tabindex="0")
