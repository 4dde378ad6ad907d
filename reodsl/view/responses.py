"""Find the evaluations of a run and filter their responses: how many fit, a page of them, and one with its cuts.

Tables are scanned and never held: of millions of responses a filter leaves row numbers, four bytes each, and only the rows
of a page leave the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from reodsl.graph.lower import lower
from reodsl.graph.task import Role, parse_role
from reodsl.ir import Spec
from reodsl.ir.training import Ppo
from reodsl.ir.wording import name_wordings
from reodsl.numbers.verdict import CAUSES, split_losses, weigh
from reodsl.store.runs import RunRecord, begun, require_spec
from reodsl.store.store import Store
from reodsl.tokenizer import open_tokenizer
from reodsl.view.trainings import Training, find_training


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The files with the responses of an arm."""

    arm: str
    """Name of the arm."""
    seed: int | None
    """Seed; None if no seed changes the arm."""
    task: str
    """Task of the evaluation."""
    key: str
    """Key of its result."""
    samples: tuple[Path, ...]
    """Tables of responses: one if the task has ended, else one for each chunk."""
    forced: tuple[Path, ...]
    """Tables of forced answers."""
    examples: tuple[Path, ...]
    """Tables of cuts with their characters."""
    tokenizer: Path | None
    """Tokenizer of the model, if found; it tells the character at which a token ends."""
    is_complete: bool
    """True if the task has ended."""

    @property
    def name(self) -> str:
        """`vanilla@1`, or the arm alone where no seed changes it."""
        return self.arm if self.seed is None else f"{self.arm}@{self.seed}"


@dataclass(frozen=True, slots=True)
class RunStudy:
    """The study of a run with its evaluations by name and its trainings with rollouts by task."""

    spec: Spec
    evaluations: Mapping[str, Evaluation]
    trainings: Mapping[str, Training]


def find_evaluations(store: Store, record: RunRecord) -> RunStudy:
    """Return a run's evaluations and trainings with any output.

    Files of ended tasks are not looked at: the reader sees whether they are undamaged.

    Raises:
        Problem: E0967 if the run's spec was not kept.
    """
    spec = require_spec(store, record)
    keys = begun(store, record) | record.tasks
    graph = lower(spec)
    evaluations: dict[str, Evaluation] = {}
    trainings: dict[str, Training] = {}
    for role, task in graph["report"].inputs.items():
        parsed = parse_role(role)
        key = keys.get(task, "")
        if parsed.kind == "train" and key:
            inputs = {name: keys[source] for name, source in graph[task].inputs.items() if source in keys}
            training = find_training(store, parsed.name, task, key, inputs, _name_wordings(spec, parsed))
            if training is not None:
                trainings[task] = training
        if parsed.kind != "evaluate" or not key:
            continue
        is_complete = task in record.tasks or store.path(key).is_dir()
        folder = store.path(key) if is_complete else store.root / "work" / key
        evaluation = _evaluation(store, folder, parsed.name, parsed.seed, task, key, is_complete)
        if evaluation.samples:
            evaluations[evaluation.name] = evaluation
    return RunStudy(spec, evaluations, trainings)


def _name_wordings(spec: Spec, role: Role) -> tuple[str, ...]:
    """Return the names of the wordings of a stage's rollouts."""
    method = spec.study.arm(role.name).stages[role.index or 0].method
    return name_wordings(method.wordings) if isinstance(method, Ppo) else ()


def _evaluation(
    store: Store, folder: Path, arm: str, seed: int | None, task: str, key: str, is_complete: bool
) -> Evaluation:
    """Return the files of an evaluation, ended or under way."""
    parts = (
        [folder] if is_complete else sorted(path.parent for path in folder.glob("chunks-*/*/samples.parquet"))
    )

    def files(name: str) -> tuple[Path, ...]:
        paths = (folder / name for folder in parts if folder.suffix != ".part")
        return tuple(path for path in paths if path.is_file() or (is_complete and name == "samples.parquet"))

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
        is_complete=is_complete,
    )


KEYS = ["benchmark", "question", "sample"]
"""Columns that name a response of an evaluation."""
LIGHT = ("benchmark", "question", "sample", "tokens", "finish", "answer", "correct", "gold")
"""Columns of a list; texts of responses are read for one at a time."""
MOST_TEXT = 2_000_000
"""Characters of a response that are sent; of a longer one the first and the last halves."""
_CLIP = 160
_NEAR = 20_000
"""Rows that are read as one stretch rather than looked for one by one."""

Rows = NDArray[np.uint32]
Order = Literal["", "longest", "shortest", "different"]
"""The order of a list; without one it is that of the files."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of responses; a condition that is None is not applied."""

    benchmark: str | None = None
    """Name of the benchmark."""
    words: str | None = None
    """Text in the question, response or answer, in any case, or the beginning of the question's id."""
    right: bool | None = None
    """Verdict of the response."""
    unfinished: bool | None = None
    """True for responses that were cut at the longest length."""
    shortest: int | None = None
    """Least tokens."""
    longest: int | None = None
    """Most tokens."""
    right_at: int | None = None
    """Budget in tokens at which the forced answer is right."""
    wrong_at: int | None = None
    """Budget in tokens at which the forced answer is wrong."""
    other: tuple[Path, ...] = ()
    """Files of another arm, compared by question and sample."""
    other_right: bool | None = None
    """Verdict of the other arm's response."""


def _scan(files: Sequence[Path]) -> pl.LazyFrame:
    """Return the tables of several files as a lazy frame."""
    return pl.scan_parquet(list(files), glob=False)


def budgets(evaluation: Evaluation) -> tuple[int, ...]:
    """Return the budgets in tokens at which answers were forced."""
    return _budgets(evaluation.forced[:1])


@lru_cache(maxsize=256)
def _budgets(files: tuple[Path, ...]) -> tuple[int, ...]:
    if not files:
        return ()
    # The rows of a response stand together, one a budget.
    first = _scan(files).head(20_000).select(*KEYS, "budget").collect()
    response = first.filter(pl.all_horizontal(pl.col(c) == first[c][0] for c in KEYS))
    return tuple(sorted(set(response["budget"].to_list())))


def matching(evaluation: Evaluation, filter_: Filter) -> Rows:
    """Return the rows of an evaluation's responses that fit a filter.

    Args:
        evaluation: files of the responses.
        filter_: conditions.

    Returns:
        Row numbers in ascending order, [responses that fit].
    """
    return _matching(evaluation.samples, evaluation.forced, filter_)


@lru_cache(maxsize=64)
def _matching(samples: tuple[Path, ...], forced: tuple[Path, ...], filter_: Filter) -> Rows:
    """Return the rows that fit, from cached files."""
    values = {name: getattr(filter_, name) for name in _CONDITIONS}
    conditions = [_CONDITIONS[name](value) for name, value in values.items() if value is not None]
    if conditions:
        fits = pl.all_horizontal(conditions).fill_null(False).alias("hit")
        hit = _scan(samples).select(fits).collect(engine="streaming")["hit"].to_numpy()
    else:
        hit = np.ones(_count(samples), dtype=bool)
    for budget, right in ((filter_.right_at, True), (filter_.wrong_at, False)):
        if budget is not None:
            hit = hit & (_verdicts(samples, forced, budget) == right)
    if filter_.other and filter_.other_right is not None:
        other_hit = _read_beside(samples, filter_.other, "correct") == filter_.other_right
        hit = hit & other_hit.fill_null(False).to_numpy()
    return np.flatnonzero(hit).astype(np.uint32)


def _count(files: tuple[Path, ...]) -> int:
    return int(_scan(files).select(pl.len()).collect().item())


def _join(samples: tuple[Path, ...], other: pl.LazyFrame) -> pl.DataFrame:
    """Return what another table has about each response, in the order of the responses; null where it has nothing."""
    keys = _scan(samples).select(KEYS)
    return keys.join(other, on=KEYS, how="left", maintain_order="left").collect(engine="streaming")


def _read_beside(samples: tuple[Path, ...], other: tuple[Path, ...], column: str) -> pl.Series:
    """Return a column of another arm's responses in the order of `samples`; null without such a response."""
    if _are_alike(samples, other):
        return _scan(other).select(column).collect(engine="streaming")[column]
    return _join(samples, _scan(other).select(*KEYS, column))[column]


@lru_cache(maxsize=256)
def _are_alike(samples: tuple[Path, ...], other: tuple[Path, ...]) -> bool:
    """Return whether two arms responded to the same questions in the same order, as most do: it spares a join."""
    if samples == other or _count(samples) != _count(other):
        return samples == other
    keys, other_keys = (_scan(files).select(KEYS).collect(engine="streaming") for files in (samples, other))
    return keys.equals(other_keys)


def _have_words(words: str) -> pl.Expr:
    """Return the condition that words occur in a question, a response or an answer, or begin a question's id."""
    pattern = f"(?i){pl.escape_regex(words)}"
    texts = (pl.col(name).str.contains(pattern).fill_null(False) for name in ("text", "response", "answer"))
    return pl.any_horizontal(*texts, pl.col("question").str.starts_with(words))


_CONDITIONS: Mapping[str, Callable[[Any], pl.Expr]] = {
    "benchmark": lambda name: pl.col("benchmark") == name,
    "right": lambda right: pl.col("correct") == right,
    "unfinished": lambda _: pl.col("finish") == "length",
    "shortest": lambda least: pl.col("tokens") >= least,
    "longest": lambda most: pl.col("tokens") <= most,
    "words": _have_words,
}
"""The conditions of a filter on one row, by the filter's fields."""


@lru_cache(maxsize=32)
def _verdicts(samples: tuple[Path, ...], forced: tuple[Path, ...], budget: int) -> NDArray[np.int8]:
    """Return the verdicts of the answers forced at a budget: 1, 0, or -1 without an answer, [responses]."""
    grid = _budgets(forced[:1])
    if budget not in grid:
        return np.full(_count(samples), -1, dtype=np.int8)
    at_budget = _scan(forced).filter(pl.col("budget") == budget)
    if _rows_match(samples, forced, len(grid)):
        # Rows are in the order of the responses, so that one column tells all.
        right = at_budget.select("correct").collect(engine="streaming")["correct"]
        if len(right) == _count(samples):
            return right.cast(pl.Int8).to_numpy()
    right = _join(samples, at_budget.select(*KEYS, pl.col("correct").alias("_right")))["_right"]
    return right.cast(pl.Int8).fill_null(-1).to_numpy()


@lru_cache(maxsize=256)
def _rows_match(samples: tuple[Path, ...], forced: tuple[Path, ...], budgets: int) -> bool:
    """Return whether each response has a row for each budget, in the order of responses and budgets."""
    count = _count(samples)
    if _count(forced) != count * budgets:
        return False
    for start in {0, count // 2, max(0, count - 50)}:
        some = _scan(samples).select(KEYS).slice(start, 50).collect()
        rows = _scan(forced).select(*KEYS, "budget").slice(start * budgets, len(some) * budgets).collect()
        if not rows.select(KEYS).gather_every(budgets).equals(some):
            return False
        if rows["budget"].to_list() != sorted(rows["budget"].head(budgets).to_list()) * len(some):
            return False
    return True


def list_responses(
    evaluations: Sequence[Evaluation],
    filter_: Filter,
    offset: int,
    limit: int,
    order: Order = "",
    compared: Sequence[Evaluation] = (),
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many responses of some evaluations fit, and `limit` of them from `offset` on, without their texts.

    The most `different` are those to whose question the `compared` arms responded at the most different lengths.
    """
    rows = [matching(evaluation, filter_) for evaluation in evaluations]
    starts = np.cumsum([0, *map(len, rows)])
    total = int(starts[-1])
    if order and total:
        positions = _order(
            tuple(evaluations), filter_, order, tuple(evaluation.samples for evaluation in compared)
        )
        positions = positions[offset : offset + limit]
    else:
        positions = np.arange(min(offset, total), min(offset + limit, total))
    page: dict[int, dict[str, Any]] = {}
    for evaluation, fitting, start in zip(evaluations, rows, starts, strict=False):
        own_positions = np.sort(positions[(positions >= start) & (positions < start + len(fitting))])
        for position, row in zip(
            own_positions, _rows(evaluation, fitting[own_positions - start]), strict=True
        ):
            page[position] = {"evaluation": evaluation.name, **row}
    return total, [page[position] for position in positions]


@lru_cache(maxsize=4)
def _order(
    evaluations: tuple[Evaluation, ...], filter_: Filter, order: Order, compared: tuple[tuple[Path, ...], ...]
) -> NDArray[np.int64]:
    """Return the positions of responses that fit, over all evaluations; of equal responses the longest first."""
    lengths, spreads = [], []
    for evaluation in evaluations:
        rows = matching(evaluation, filter_)
        tokens = _read_beside(evaluation.samples, evaluation.samples, "tokens").to_numpy()
        lengths.append(tokens[rows])
        if order == "different":
            other_tokens = [
                _read_beside(evaluation.samples, files, "tokens").to_numpy() for files in compared
            ]
            high, low = (end.reduce([tokens, *other_tokens]) for end in (np.fmax, np.fmin))
            spreads.append((high - low)[rows])
    longest = -np.concatenate(lengths).astype(np.int64)
    if order == "different":
        return np.lexsort((longest, -np.concatenate(spreads).astype(np.int64)))
    return np.argsort(longest if order == "longest" else -longest, kind="stable")


def _rows(evaluation: Evaluation, rows: Rows) -> list[dict[str, Any]]:
    """Return the light columns of some rows, and the beginning of each question."""
    if not len(rows):
        return []
    question = pl.col("text").str.slice(0, _CLIP).alias("asked")
    clipped = pl.col("answer").str.slice(0, _CLIP)
    light = [pl.col(c) for c in LIGHT if c not in ("answer", "gold")]
    frame = _scan(evaluation.samples)
    first, last = int(rows[0]), int(rows[-1])
    numbers = pl.DataFrame({"row": rows})
    if last - first < _NEAR:
        frame = frame.slice(first, last - first + 1)
        light_rows = frame.select(*light, clipped, question).with_row_index("row", offset=first)
    else:
        light_rows = frame.select(*light, clipped, question).with_row_index("row")
    return (
        light_rows.join(numbers.lazy(), on="row", how="semi")
        .collect(engine="streaming")
        .sort("row")
        .to_dicts()
    )


def response(
    evaluation: Evaluation, row: int, whole: bool = False, to: int | None = None
) -> dict[str, Any] | None:
    """Return a response with its text, and for each budget the cut's character and the answer forced there.

    `lost` has the tokens up to `to` that the response loses by cause, and `lost_mean` the mean over the question's
    responses. `exact` says that the character of a cut is known; otherwise it is in proportion to the tokens.

    Args:
        evaluation: files of the responses.
        row: number of the row.
        whole: whether a text of more than `MOST_TEXT` characters keeps its middle.
        to: last budget in tokens.
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
        character = places[budget] if places is not None and exact else len(text) * budget // max(1, tokens)
        cuts.append({**cut, "characters": min(character, len(text)), "exact": exact or budget >= tokens})
    left_out = 0
    if len(text) > MOST_TEXT and not whole:
        half = MOST_TEXT // 2
        left_out = len(text) - 2 * half
        text = text[:half] + text[-half:]
        for cut in cuts:
            character = cut["characters"]
            cut["characters"] = character if character <= half else max(half, character - left_out)
    gold = [text_ for text_ in str(head.pop("gold") or "").split("\x1e") if text_.strip()]
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
    """Return the tokens lost by cause; empty without forced answers."""
    grid = budgets(evaluation)
    if not evaluation.forced or len(grid) < 2:
        return {}
    question = (pl.col("benchmark") == head["benchmark"]) & (pl.col("question") == head["question"])
    weights = weigh(grid, to if to is None or to <= grid[-1] else None)
    forced, samples = (_scan(files).filter(question) for files in (evaluation.forced, evaluation.samples))
    lost = split_losses(forced, samples, weights).collect()
    own = lost.filter(pl.col("sample") == head["sample"])
    means = lost.select(pl.col(tuple(CAUSES)).mean())
    return {
        name: [{"cause": CAUSES[cause], "tokens": frame[cause].item()} for cause in CAUSES]
        for name, frame in (("lost", own), ("lost_mean", means))
        if frame.height == 1
    }


def _is_response(head: Mapping[str, Any]) -> pl.Expr:
    """Return the condition that a row is of a response, by what it answers."""
    return pl.all_horizontal(pl.col(name) == head[name] for name in KEYS)


def row_of(evaluation: Evaluation, benchmark: str, question: str, sample: int) -> int | None:
    """Return the row of a response, by question and sample; None without such a response."""
    same = _is_response({"benchmark": benchmark, "question": question, "sample": sample})
    hit = _scan(evaluation.samples).select(same.alias("hit")).collect(engine="streaming")["hit"]
    rows = hit.arg_true()
    return int(rows[0]) if len(rows) else None


def _cuts(evaluation: Evaluation, row: int, head: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the forced answers of a response, by budget."""
    if not evaluation.forced:
        return []
    grid = budgets(evaluation)
    # Older tables do not say why an answer was not judged.
    columns = ["budget", "forced", "answer", "correct", "^unsettled$"]
    frame = _scan(evaluation.forced)
    if grid and _rows_match(evaluation.samples, evaluation.forced, len(grid)):
        frame = frame.slice(row * len(grid), len(grid))
    return frame.filter(_is_response(head)).select(columns).sort("budget").collect().to_dicts()


def _places(evaluation: Evaluation, head: dict[str, Any], text: str) -> dict[int, int] | None:
    """At which character each budget cuts: as the evaluation kept it, or as the model's tokenizer has it."""
    if evaluation.examples:
        stored = (
            _scan(evaluation.examples).filter(_is_response(head)).select("budget", "characters").collect()
        )
        if stored.height:
            return dict(zip(stored["budget"].to_list(), stored["characters"].to_list(), strict=True))
    ends = _ends(evaluation.tokenizer, text)
    # The text is without its stop token. Another count: it was written by other tokens than it is read by.
    if ends is None or int(head["tokens"]) - len(ends) not in (0, 1):
        return None
    return {
        budget: ends[budget - 1] if budget else 0 for budget in budgets(evaluation) if budget <= len(ends)
    }


def _ends(tokenizer: Path | None, text: str) -> list[int] | None:
    """Return the character at which each token of a text ends; None without a tokenizer."""
    if tokenizer is None or len(text) > MOST_TEXT:
        return None
    try:
        # For a single text the library lets no other thread run, however long it takes.
        (encoded,) = _tokenizer(tokenizer).encode_batch([text], add_special_tokens=False)
    except BaseException as fault:
        # An extra package, reading a file of a model that anybody may have made. Where it panics that is no Exception.
        if isinstance(fault, KeyboardInterrupt):
            raise
        return None
    return [end for _, end in encoded.offsets]


_tokenizer = lru_cache(maxsize=4)(open_tokenizer)
