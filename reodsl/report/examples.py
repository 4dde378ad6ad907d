"""Example responses: a few questions with each arm's response, its cuts and forced answers.

Only rows of the questions that are shown are collected from the files of samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from reodsl.report import formats
from reodsl.report.artifacts import reading
from reodsl.report.markup import Child, Markup, tag
from reodsl.report.material import Material

MOST_QUESTIONS = 4
MOST_ARMS = 5
MOST_CUTS = 6
MOST_REFERENCES = 8
SEPARATOR = "\x1e"
"""Stands between the right answers of a question that has several (docs/ARTIFACTS.md)."""
STRETCH = 900
"""Characters of a response shown in one piece; a longer stretch between cuts loses its middle."""


@dataclass(frozen=True, slots=True)
class Cut:
    """An answer forced after `budget` tokens, the first `characters` of the response."""

    budget: int
    characters: int
    answer: str
    correct: bool


@dataclass(frozen=True, slots=True)
class Example:
    """One arm's response to a question, and some of the answers forced out of it, in the order of their budgets."""

    arm: str
    benchmark: str
    question: str
    gold: str
    response: str
    tokens: int
    finish: str
    answer: str
    correct: bool
    cuts: tuple[Cut, ...]


def examples(material: Material, arms: Sequence[str]) -> list[list[Example]]:
    """A list a question, of one example an arm, from the first seed: those whose lengths differ most between arms."""
    frames = []
    for arm in arms[:MOST_ARMS]:
        folder = next((f for (name, _), f in material.evaluations.items() if name == arm), None)
        if folder is not None and (folder / "examples.parquet").exists():
            frames.append(_rows(folder).with_columns(pl.lit(arm).alias("arm")))
    if not frames:
        return []
    rows = pl.concat(frames, how="diagonal_relaxed")
    chosen = (
        rows.group_by("benchmark", "question", maintain_order=True)
        .agg(
            pl.col("arm").n_unique().alias("arms"),
            (pl.col("tokens").max() - pl.col("tokens").min()).alias("range"),
        )
        .sort("arms", "range", descending=True, maintain_order=True)
        .with_columns(pl.int_range(pl.len()).over("benchmark").alias("rank"))
        .sort("rank", maintain_order=True)
        .head(MOST_QUESTIONS)
    )
    groups = []
    for benchmark, question in chosen.select("benchmark", "question").iter_rows():
        of_question = rows.filter((pl.col("benchmark") == benchmark) & (pl.col("question") == question))
        groups.append([_example(part) for part in of_question.partition_by("arm", maintain_order=True)])
    return groups


def _rows(folder: Path) -> pl.DataFrame:
    """Rows of an evaluation's examples with their responses: the first sample of each question."""
    keys = ["benchmark", "question", "sample"]
    with reading(folder):
        cuts = pl.read_parquet(folder / "examples.parquet", glob=False)
        first = cuts.group_by("benchmark", "question", maintain_order=True).agg(pl.col("sample").min())
        cuts = cuts.join(first, on=keys, how="semi", maintain_order="left")
        samples = (
            # The filter is read first and alone, so that other responses stay on the disk.
            pl.scan_parquet(folder / "samples.parquet", parallel="prefiltered", glob=False)
            .filter(
                pl.col("question").is_in(first["question"].unique().to_list())
                & pl.col("sample").is_in(first["sample"].unique().to_list())
            )
            .select(*keys, "text", "gold", "response", "tokens", "finish", "answer", "correct")
            .collect(engine="streaming")
        )
    return cuts.join(samples, on=keys, how="inner", suffix="_whole", maintain_order="left")


def _example(rows: pl.DataFrame) -> Example:
    head = rows.row(0, named=True)
    inside = rows.filter(pl.col("budget") < pl.col("tokens")).sort("budget")
    spread = _spread(inside["budget"].to_list())
    cuts = tuple(
        Cut(r["budget"], r["characters"], r["answer"] or "", bool(r["correct"]))
        for r in inside.filter(pl.col("budget").is_in(spread)).iter_rows(named=True)
    )
    return Example(
        arm=head["arm"],
        benchmark=head["benchmark"],
        question=head["text"],
        gold=head["gold"],
        response=head["response"],
        tokens=head["tokens"],
        finish=head["finish"],
        answer=head["answer_whole"] or "",
        correct=bool(head["correct_whole"]),
        cuts=cuts,
    )


def _spread(budgets: list[int]) -> list[int]:
    """At most `MOST_CUTS` of the budgets: evenly spread in their order, the first above 0 and the last included."""
    above = [b for b in budgets if b > 0]
    if len(above) <= MOST_CUTS:
        return above
    return [above[round(i * (len(above) - 1) / (MOST_CUTS - 1))] for i in range(MOST_CUTS)]


def section(material: Material, arms: Sequence[str]) -> Markup | None:
    """The questions as folded boxes, the first one open; None where no examples were kept."""
    groups = examples(material, arms)
    if not groups:
        return None
    colour = material.colours
    boxes = []
    for i, group in enumerate(groups):
        head = group[0]
        boxes.append(
            tag(
                "details",
                tag("summary", f"{head.benchmark}: ", _clip(head.question, 110)),
                tag(
                    "div",
                    tag("p", head.question, class_="question"),
                    _reference(head.gold),
                    [_response(example, colour[example.arm]) for example in group],
                    class_="inside",
                ),
                open=i == 0,
            )
        )
    return tag("div", boxes)


def _reference(gold: str) -> Markup:
    """The right answer of a question, or the several that it has, which artifacts hold joined by a separator."""
    several = [text for text in gold.split(SEPARATOR) if text.strip()]
    shown: list[Child] = []
    for text in several[:MOST_REFERENCES]:
        shown += [" or " if shown else None, tag("b", _clip(text, 200))]
    if len(several) > MOST_REFERENCES:
        shown.append(f" or one of {len(several) - MOST_REFERENCES} more")
    return tag("p", f"Reference answer{'s' if len(several) > 1 else ''}: ", shown or "none", class_="note")


def _response(example: Example, colour: str) -> Markup:
    tone = "good" if example.correct else "bad"
    verdict = tag("span", _mark(example.correct), " ", _clip(example.answer, 60) or "no answer", class_=tone)
    length = f"{formats.plural(example.tokens, 'token')}{', cut off' if example.finish == 'length' else ''}"
    head = tag(
        "header",
        tag("b", tag("span", class_="dot", style=f"background:{colour}"), example.arm),
        tag("span", length, class_="quiet"),
        verdict,
    )
    return tag("div", head, tag("div", trace(example), class_="trace"), class_="response")


def trace(example: Example) -> list[Markup | str]:
    """The response's text with a mark at each cut: the budget and the answer forced there, right or wrong."""
    parts: list[Markup | str] = []
    at = 0
    for cut in example.cuts:
        place = min(max(cut.characters, at), len(example.response))
        parts += _stretch(example.response[at:place])
        parts.append(
            tag(
                "span",
                tag("i", f"at {cut.budget:,} "),
                _mark(cut.correct),
                " ",
                tag("b", _clip(cut.answer, 40) or "no answer"),
                class_=f"cut {'good' if cut.correct else 'bad'}",
            )
        )
        at = place
    return [*parts, *_stretch(example.response[at:])]


def _stretch(text: str) -> list[Markup | str]:
    if len(text) <= STRETCH:
        return [text]
    half = STRETCH // 2
    left_out = tag("span", f" … {len(text) - 2 * half:,} characters … ", class_="skip")
    return [text[:half], left_out, text[-half:]]


def _mark(correct: bool) -> str:
    return "✓" if correct else "✗"


def _clip(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"
