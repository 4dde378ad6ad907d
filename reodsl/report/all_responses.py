"""Every response that fits into the page: each text once, read by the page's script when a reader asks for it.

Responses are taken in an order that is fair to arms and benchmarks: the first sample of each question under the first
seed, from all arms; then the next seed, then the next sample. What does not fit is shown by `reodsl view`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.report.markup import Markup, json_block, legible, tag
from reodsl.report.material import Material, reading

PAGE = 10_000_000
"""Bytes that a page may have with all its responses."""
LONGEST = 100_000
"""Characters of a response that are shown; a longer one loses its middle."""
SEPARATOR = "\x1e"
"""Divides the right answers of a question that has several (docs/STORE.md)."""
_A_TOKEN, _A_RESPONSE = 4, 120
"""Bytes that a token and a response take at least, to choose what is read at all."""
_KEYS = ["benchmark", "question", "sample"]
_Row = tuple[str, int | None, dict[str, Any], list[tuple[int, str | None, bool]], dict[int, int]]
"""Arm, seed, response, its forced answers (budget, answer, right), and where cuts are, in characters by budget, if known."""


@dataclass(frozen=True, slots=True)
class ResponseData:
    """The data of the page's script, and how many responses it has of all."""

    data: dict[str, Any]
    shown: int
    all: int


@dataclass(slots=True)
class _Texts:
    """Texts by their number, each once; `size` is the bytes that they take in the page."""

    numbers: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def number(self, text: str | None) -> int:
        """Return the number of a text; -1 for none."""
        if text is None:
            return -1
        text = legible(text)
        if text not in self.numbers:
            self.numbers[text] = len(self.numbers)
            self.size += _size(text)
        return self.numbers[text]


def responses(material: Material, room: int) -> ResponseData:
    """Return the responses that fit into so many bytes. Only texts of those that may fit are read."""
    arms = list(material.arms)
    texts = _Texts()
    questions: dict[tuple[str, str], int] = {}
    asked: list[list[Any]] = []
    rows: list[list[Any]] = []
    grids: dict[str, list[int]] = {}
    size = 2_000
    for arm, seed, row, cuts, places in _read(material, room):
        grid = grids.setdefault(arm, [budget for budget, _, _ in cuts])
        before = texts.size
        key = (row["benchmark"], row["question"])
        if key not in questions:
            questions[key] = len(questions)
            gold = [texts.number(part) for part in (row["gold"] or "").split(SEPARATOR) if part.strip()]
            named = (texts.number(row["question"]), texts.number(row["text"]))
            asked.append([material.benchmarks.index(row["benchmark"]), *named, gold])
            size += 24
        response, left_out = _clip_response(row["response"] or "")
        known = [cut for cut in cuts if cut[0] in grid]
        entry = [
            arms.index(arm),
            seed,
            questions[key],
            row["sample"],
            texts.number(response),
            row["tokens"],
            int(row["finish"] == "length"),
            texts.number(row["answer"]),
            int(bool(row["correct"])),
            left_out,
            "".join(str(int(bool(right))) for _, _, right in known),
            [texts.number(answer) for _, answer, _ in known],
            [places.get(budget) for budget, _, _ in known] if places else [],
            texts.number(material.study.arm(arm).name_wording(row.get("mode")) or None),
        ]
        size += texts.size - before + _size(entry)
        if size > room:
            break
        rows.append(entry)
    data = {
        "arms": arms,
        "benchmarks": list(material.benchmarks),
        "grids": [grids.get(arm, []) for arm in arms],
        "texts": list(texts.numbers),
        "questions": asked,
        "responses": rows,
    }
    return ResponseData(data, len(rows), sum(_count(folder) for folder in material.evaluations.values()))


def section(material: Material, kept: ResponseData) -> Markup | None:
    """Return the place where the script shows responses, and the data; None where no response was kept."""
    if not kept.shown:
        return None
    view = shlex.join(["reodsl", "view", material.study.name])
    every = f"All {kept.all:,} responses are here"
    some = f"{kept.shown:,} of {kept.all:,} responses fit on this page"
    return tag(
        "div",
        tag(
            "p",
            f"{every if kept.shown == kept.all else some}; ",
            tag("code", view),
            " shows every one. Move the slider to cut a response and see what it answers when made to answer there.",
            class_="about",
        ),
        tag("div", class_="reader"),
        tag("noscript", "Responses are listed by the page's script."),
        json_block("colours", material.colours),
        json_block("responses", kept.data),
        id="all-responses",
    )


def _read(material: Material, room: int) -> Iterator[_Row]:
    """Yield responses in the order in which they are taken."""
    folders = {key: folder for key, folder in material.evaluations.items() if _count(folder)}
    seeds = sorted({seed for _, seed in folders}, key=lambda seed: (seed is not None, seed or 0))
    samples = 0
    for folder in folders.values():
        with reading(folder):
            most = (
                pl.scan_parquet(folder / "samples.parquet", glob=False)
                .select(pl.col("sample").max())
                .collect()
                .item()
            )
        samples = max(samples, int(most or 0) + 1)
    for sample in range(samples):
        for seed in seeds:
            of_seed = {arm: folder for (arm, s), folder in folders.items() if s == seed}
            light = [
                pl.scan_parquet(folder / "samples.parquet", glob=False)
                .filter(pl.col("sample") == sample)
                .select("benchmark", "question", "tokens")
                for folder in of_seed.values()
            ]
            with reading(next(iter(of_seed.values()))):
                sizes = (
                    pl.concat(light)
                    .group_by("benchmark", "question")
                    .agg((pl.col("tokens") * _A_TOKEN + _A_RESPONSE).sum().alias("size"))
                    .sort("benchmark", "question")
                    .collect(engine="streaming")
                )
            # A question of each benchmark in turn.
            ordered = sizes.with_columns(pl.int_range(pl.len()).over("benchmark").alias("turn")).sort(
                "turn", "benchmark"
            )
            fits = ordered.filter(pl.col("size").cum_sum() <= room)
            yield from _whole(of_seed, seed, sample, fits.select("benchmark", "question").rows())
            room -= int(fits["size"].sum())
            if fits.height < ordered.height:
                return


def _whole(
    folders: dict[str, Path], seed: int | None, sample: int, wanted: list[tuple[str, str]]
) -> Iterator[_Row]:
    """Yield the responses of some questions with their texts, question by question, each by all arms."""
    names = [question for _, question in wanted]
    chosen = (pl.col("sample") == sample) & pl.col("question").is_in(names)
    rows_of: dict[tuple[str, str], list[Any]] = {key: [] for key in wanted}
    for arm, folder in folders.items():
        with reading(folder):
            rows = (
                pl.scan_parquet(folder / "samples.parquet", parallel="prefiltered", glob=False)
                .filter(chosen)
                .select(*_KEYS, "text", "gold", "response", "tokens", "finish", "answer", "correct", "^mode$")
                .collect(engine="streaming")
            )
            cuts: dict[tuple[str, str], list[tuple[int, str | None, bool]]] = {}
            if (folder / "forced.parquet").is_file():
                forced = (
                    pl.scan_parquet(folder / "forced.parquet", glob=False)
                    .filter(chosen)
                    .select("benchmark", "question", "budget", "answer", "correct")
                    .sort("benchmark", "question", "budget")
                    .collect(engine="streaming")
                )
                for benchmark, question, budget, answer, correct in forced.iter_rows():
                    cuts.setdefault((benchmark, question), []).append((budget, answer, bool(correct)))
            places: dict[tuple[str, str], dict[int, int]] = {}
            if (folder / "examples.parquet").is_file():
                read = pl.scan_parquet(folder / "examples.parquet", glob=False).filter(chosen)
                known = read.select("benchmark", "question", "budget", "characters").collect()
                for benchmark, question, budget, at in known.iter_rows():
                    places.setdefault((benchmark, question), {})[budget] = at
        for row in rows.iter_rows(named=True):
            key = (row["benchmark"], row["question"])
            if key in rows_of:
                rows_of[key].append((arm, seed, row, cuts.get(key, []), places.get(key, {})))
    for key in wanted:
        yield from rows_of[key]


def _clip_response(text: str) -> tuple[str, int]:
    """Return a response, and how many characters of its middle are left out."""
    if len(text) <= LONGEST:
        return text, 0
    half = LONGEST // 2
    return f"{text[:half]} … {text[-half:]}", len(text) - LONGEST


def _count(folder: Path) -> int:
    path = folder / "samples.parquet"
    if not path.is_file():
        return 0
    with reading(path):
        return int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())


def _size(value: Any) -> int:
    """Return the bytes that a value takes in a block of data, with the comma after it."""
    text = json.dumps(value, separators=(",", ":"))
    return len(text) + 1 + 5 * sum(text.count(char) for char in "<>&")
