"""Find the evaluations of a run and filter their responses: how many fit, a page of them, and one with its cuts.

Tables are scanned and never held: of millions of responses a filter leaves row numbers, four bytes each, and only the rows
of a page leave the disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from reodsl.graph.identity import parse_role
from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.numbers.gap import CAUSES, split_losses, weigh
from reodsl.store.runs import Record, events, require_spec
from reodsl.store.store import Store


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Files of the responses of an arm: one a table where it is evaluated, one a chunk of a task that still goes.

    `tokenizer` is that of the model, where it can be found: it says at which character a token ends.
    """

    arm: str
    seed: int | None
    task: str
    key: str
    samples: tuple[Path, ...]
    forced: tuple[Path, ...]
    examples: tuple[Path, ...]
    tokenizer: Path | None
    whole: bool

    @property
    def name(self) -> str:
        """`vanilla@1`, or the arm alone where no seed changes it."""
        return self.arm if self.seed is None else f"{self.arm}@{self.seed}"


@dataclass(frozen=True, slots=True)
class Studied:
    """A run's study, and its evaluations by their names."""

    spec: Spec
    evaluations: Mapping[str, Evaluation]


def find_evaluations(store: Store, record: Record) -> Studied:
    """Return the evaluations of a run that ended or have written anything. Raises E0968 where its spec was not kept.

    Of what ended the files are named as they should be: whether they are there and undamaged is for the reader to see.
    """
    spec = require_spec(store, record)
    begun = {
        each["task"]: str(each.get("key", "")) for each in events(store, record) if each["kind"] == "started"
    }
    evaluations: dict[str, Evaluation] = {}
    for role, task in lower(spec)["report"].inputs.items():
        place = parse_role(role)
        key = record.tasks.get(task) or begun.get(task, "")
        if place.kind != "evaluate" or not key:
            continue
        whole = task in record.tasks or store.path(key).is_dir()
        folder = store.path(key) if whole else store.root / "work" / key
        evaluation = _evaluation(store, folder, place.name, place.seed, task, key, whole)
        if evaluation.samples:
            evaluations[evaluation.name] = evaluation
    return Studied(spec, evaluations)


def _evaluation(
    store: Store, folder: Path, arm: str, seed: int | None, task: str, key: str, whole: bool
) -> Evaluation:
    parts = [folder] if whole else sorted(path.parent for path in folder.glob("chunks-*/*/samples.parquet"))

    def files(name: str) -> tuple[Path, ...]:
        places = (part / name for part in parts if part.suffix != ".part")
        return tuple(place for place in places if place.is_file() or (whole and name == "samples.parquet"))

    manifest = store.get(key)
    start = manifest.provenance.get("inputs", {}).get("start") if manifest is not None else None
    tokenizer = store.path(start) / "checkpoint" / "tokenizer.json" if isinstance(start, str) else None
    return Evaluation(
        arm=arm,
        seed=seed,
        task=task,
        key=key,
        samples=files("samples.parquet"),
        forced=files("forced.parquet"),
        examples=files("examples.parquet"),
        tokenizer=tokenizer if tokenizer is not None and tokenizer.is_file() else None,
        whole=whole,
    )


LIGHT = ("benchmark", "question", "sample", "tokens", "finish", "answer", "correct", "gold")
"""Columns of a list; texts of responses are read for one at a time."""
MOST_TEXT = 2_000_000
"""Characters of a response that are sent; of a longer one the first and the last halves."""
_CLIP = 160
_NEAR = 20_000
"""Rows that are read as one stretch rather than looked for one by one."""

Rows = np.ndarray[Any, np.dtype[np.uint32]]


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of responses; None is any.

    `words` stand in a question's text or id, or are its answer; `shortest` and `longest` are tokens. `flip` is a budget at
    which the forced answer turns right or wrong (`to`), compared with the next smaller budget of the grid.
    """

    benchmark: str | None = None
    words: str | None = None
    right: bool | None = None
    shortest: int | None = None
    longest: int | None = None
    flip: int | None = None
    to: Literal["right", "wrong"] = "right"


def _scan(files: Sequence[Path]) -> pl.LazyFrame:
    """Return the tables of several files as one, unread."""
    return pl.scan_parquet(list(files), glob=False)


def budgets(evaluation: Evaluation) -> tuple[int, ...]:
    """Return the budgets at which answers were forced."""
    return _budgets(evaluation.forced[:1])


@lru_cache(maxsize=256)
def _budgets(files: tuple[Path, ...]) -> tuple[int, ...]:
    if not files:
        return ()
    # The rows of a response stand together, one a budget.
    first = _scan(files).head(20_000).select("benchmark", "question", "sample", "budget").collect()
    one = first.filter(
        pl.all_horizontal(pl.col(c) == first[c][0] for c in ("benchmark", "question", "sample"))
    )
    return tuple(sorted(set(one["budget"].to_list())))


def matching(evaluation: Evaluation, wanted: Filter) -> Rows:
    """Return the numbers of the rows of an evaluation's samples that fit, in their order."""
    return _matching(evaluation.samples, evaluation.forced, wanted)


@lru_cache(maxsize=64)
def _matching(samples: tuple[Path, ...], forced: tuple[Path, ...], wanted: Filter) -> Rows:
    conditions = _conditions(wanted)
    frame = _scan(samples)
    if wanted.flip is not None:
        flips = _flips(samples, forced, wanted.flip, wanted.to)
        if not conditions:
            return flips
    if not conditions:
        count = frame.select(pl.len()).collect().item()
        return np.arange(count, dtype=np.uint32)
    hit = frame.select(pl.all_horizontal(conditions).fill_null(False).alias("hit")).collect(
        engine="streaming"
    )
    rows = hit["hit"].arg_true().cast(pl.UInt32).to_numpy()
    return np.intersect1d(rows, flips, assume_unique=True) if wanted.flip is not None else rows


def _conditions(wanted: Filter) -> list[pl.Expr]:
    conditions = []
    if wanted.benchmark is not None:
        conditions.append(pl.col("benchmark") == wanted.benchmark)
    if wanted.right is not None:
        conditions.append(pl.col("correct") == wanted.right)
    if wanted.shortest is not None:
        conditions.append(pl.col("tokens") >= wanted.shortest)
    if wanted.longest is not None:
        conditions.append(pl.col("tokens") <= wanted.longest)
    if wanted.words:
        conditions.append(
            pl.col("text").str.contains(wanted.words, literal=True)
            | pl.col("question").str.starts_with(wanted.words)
            | (pl.col("answer") == wanted.words)
        )
    return conditions


def _flips(samples: tuple[Path, ...], forced: tuple[Path, ...], budget: int, to: str) -> Rows:
    """Return the rows of responses whose forced answer turns at a budget."""
    grid = _budgets(forced[:1])
    if budget not in grid or grid.index(budget) == 0:
        return np.empty(0, dtype=np.uint32)
    before = grid[grid.index(budget) - 1]
    keys = ["benchmark", "question", "sample"]
    count = _scan(samples).select(pl.len()).collect().item()
    both = _scan(forced).filter(pl.col("budget").is_in([before, budget]))
    if _rows_match(samples, forced, len(grid)):
        # Rows stand in the order of the responses, so that two columns tell all.
        right = both.select("correct").collect(engine="streaming")["correct"].to_numpy()
        if len(right) == 2 * count:
            first, second = right[0::2], right[1::2]
            turned = (~first & second) if to == "right" else (first & ~second)
            return np.flatnonzero(turned).astype(np.uint32)
    wide = both.group_by(keys).agg(
        pl.col("correct").filter(pl.col("budget") == before).first().alias("before"),
        pl.col("correct").filter(pl.col("budget") == budget).first().alias("now"),
    )
    wanted = (~pl.col("before") & pl.col("now")) if to == "right" else (pl.col("before") & ~pl.col("now"))
    rows = (
        _scan(samples)
        .select(*keys)
        .with_row_index("row")
        .join(wide.filter(wanted).select(keys), on=keys, how="semi")
        .select("row")
        .collect(engine="streaming")
    )
    return np.sort(rows["row"].to_numpy().astype(np.uint32))


@lru_cache(maxsize=256)
def _rows_match(samples: tuple[Path, ...], forced: tuple[Path, ...], budgets: int) -> bool:
    """Return whether each response has one row a budget, in the order of the responses and the budgets."""
    keys = ["benchmark", "question", "sample"]
    count = _scan(samples).select(pl.len()).collect().item()
    if _scan(forced).select(pl.len()).collect().item() != count * budgets:
        return False
    for start in {0, count // 2, max(0, count - 50)}:
        some = _scan(samples).select(keys).slice(start, 50).collect()
        rows = _scan(forced).select(*keys, "budget").slice(start * budgets, len(some) * budgets).collect()
        if not rows.select(keys).gather_every(budgets).equals(some):
            return False
        if rows["budget"].to_list() != sorted(rows["budget"].head(budgets).to_list()) * len(some):
            return False
    return True


def list_responses(
    evaluations: Sequence[Evaluation], wanted: Filter, offset: int, limit: int
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many responses of some evaluations fit, and `limit` of them from `offset` on, without their texts."""
    matches = [(each, matching(each, wanted)) for each in evaluations]
    total = sum(len(rows) for _, rows in matches)
    page: list[dict[str, Any]] = []
    for each, rows in matches:
        if offset >= len(rows):
            offset -= len(rows)
            continue
        chosen = rows[offset : offset + limit - len(page)]
        page += [{"evaluation": each.name, **row} for row in _rows(each, chosen)]
        offset = 0
        if len(page) >= limit:
            break
    return total, page


def _rows(evaluation: Evaluation, rows: Rows) -> list[dict[str, Any]]:
    """Return the light columns of some rows, and the beginning of each question."""
    if not len(rows):
        return []
    asked = pl.col("text").str.slice(0, _CLIP).alias("asked")
    clipped = pl.col("answer").str.slice(0, _CLIP)
    light = [pl.col(c) for c in LIGHT if c not in ("answer", "gold")]
    frame = _scan(evaluation.samples)
    first, last = int(rows[0]), int(rows[-1])
    wanted = pl.DataFrame({"row": rows})
    if last - first < _NEAR:
        frame = frame.slice(first, last - first + 1)
        shown = frame.select(*light, clipped, asked).with_row_index("row", offset=first)
    else:
        shown = frame.select(*light, clipped, asked).with_row_index("row")
    return shown.join(wanted.lazy(), on="row", how="semi").collect(engine="streaming").sort("row").to_dicts()


def response(
    evaluation: Evaluation, row: int, whole: bool = False, to: int | None = None
) -> dict[str, Any] | None:
    """One response with its text, and a cut for each budget: the answer forced there, and at which character that is.

    `lost` has the tokens up to `to` that it loses by cause, and `lost_mean` those of the question's responses. `exact` says
    that a cut's place is known; else it is in proportion to the tokens. A text of more than `MOST_TEXT` characters comes
    without its middle, unless `whole`.
    """
    rows = _scan(evaluation.samples).slice(row, 1).collect()
    if not rows.height:
        return None
    head = rows.row(0, named=True)
    text = str(head.pop("response") or "")
    places = _places(evaluation, head, text)
    cuts = []
    for cut in _cuts(evaluation, row, head):
        budget, tokens = int(cut["budget"]), int(head["tokens"])
        exact = places is not None and budget in places
        at = places[budget] if places is not None and exact else len(text) * budget // max(1, tokens)
        cuts.append({**cut, "characters": min(at, len(text)), "exact": exact or budget >= tokens})
    left_out = 0
    if len(text) > MOST_TEXT and not whole:
        half = MOST_TEXT // 2
        left_out = len(text) - 2 * half
        text = text[:half] + text[-half:]
        for cut in cuts:
            at = cut["characters"]
            cut["characters"] = at if at <= half else max(half, at - left_out)
    gold = [part for part in str(head.pop("gold") or "").split("\x1e") if part.strip()]
    return {
        "evaluation": evaluation.name,
        "row": row,
        **head,
        "gold": gold,
        "response": text,
        "left_out": left_out,
        "cuts": cuts,
        **_losses(evaluation, head, to),
    }


def _losses(evaluation: Evaluation, head: dict[str, Any], to: int | None) -> dict[str, Any]:
    """Return what is lost to each cause, where answers were forced."""
    grid = budgets(evaluation)
    if not evaluation.forced or len(grid) < 2:
        return {}
    question = (pl.col("benchmark") == head["benchmark"]) & (pl.col("question") == head["question"])
    weights = weigh(grid, to if to is None or to <= grid[-1] else None)
    lost = split_losses(_scan(evaluation.forced).filter(question), weights).collect()
    own = lost.filter(pl.col("sample") == head["sample"])
    means = lost.select(pl.col(tuple(CAUSES)).mean())
    return {
        name: [{"cause": CAUSES[cause], "tokens": frame[cause].item()} for cause in CAUSES]
        for name, frame in (("lost", own), ("lost_mean", means))
        if frame.height == 1
    }


def row_of(evaluation: Evaluation, benchmark: str, question: str, sample: int) -> int | None:
    """Return the row of a response by what it answers; None where the evaluation has no such response."""
    same = (
        (pl.col("benchmark") == benchmark) & (pl.col("question") == question) & (pl.col("sample") == sample)
    )
    hit = _scan(evaluation.samples).select(same.alias("hit")).collect(engine="streaming")["hit"]
    rows = hit.arg_true()
    return int(rows[0]) if len(rows) else None


def _cuts(evaluation: Evaluation, row: int, head: dict[str, Any]) -> list[dict[str, Any]]:
    if not evaluation.forced:
        return []
    grid = budgets(evaluation)
    # Older tables do not say why an answer was not judged.
    columns = ["budget", "forced", "answer", "correct", "^unsettled$"]
    same = (
        (pl.col("benchmark") == head["benchmark"])
        & (pl.col("question") == head["question"])
        & (pl.col("sample") == head["sample"])
    )
    frame = _scan(evaluation.forced)
    if grid and _rows_match(evaluation.samples, evaluation.forced, len(grid)):
        frame = frame.slice(row * len(grid), len(grid))
    return frame.filter(same).select(columns).sort("budget").collect().to_dicts()


def _places(evaluation: Evaluation, head: dict[str, Any], text: str) -> dict[int, int] | None:
    """At which character each budget cuts: as the evaluation kept it, or as the model's tokenizer has it."""
    if evaluation.examples:
        kept = (
            _scan(evaluation.examples)
            .filter(
                (pl.col("benchmark") == head["benchmark"])
                & (pl.col("question") == head["question"])
                & (pl.col("sample") == head["sample"])
            )
            .select("budget", "characters")
            .collect()
        )
        if kept.height:
            return dict(zip(kept["budget"].to_list(), kept["characters"].to_list(), strict=True))
    ends = _ends(evaluation.tokenizer, text)
    # The text is without its stop token. Another count: it was written by other tokens than it is read by.
    if ends is None or int(head["tokens"]) - len(ends) not in (0, 1):
        return None
    return {
        budget: ends[budget - 1] if budget else 0 for budget in budgets(evaluation) if budget <= len(ends)
    }


def _ends(tokenizer: Path | None, text: str) -> list[int] | None:
    if tokenizer is None or len(text) > MOST_TEXT:
        return None
    try:
        # For a single text the library lets no other thread run, however long it takes.
        (encoded,) = _tokenizer(tokenizer).encode_batch([text], add_special_tokens=False)
    except Exception:
        # An extra package, reading a file of a model that anybody may have made.
        return None
    return [end for _, end in encoded.offsets]


@lru_cache(maxsize=4)
def _tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))
