"""Find the evaluations of a run, filter and sort their responses, and read a single response with its cuts.

Tables of millions of responses are scanned, not loaded: a filter keeps row numbers, four bytes each, and only the rows of a
page are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
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
    """The evaluation of an arm with the files of its responses."""

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
        """Return the evaluation's name: `vanilla@1` with a seed, else the arm's name."""
        return self.arm if self.seed is None else f"{self.arm}@{self.seed}"


@dataclass(frozen=True, slots=True)
class RunStudy:
    """The study of a run with its evaluations and trainings."""

    spec: Spec
    """Compiled spec of the run."""
    evaluations: Mapping[str, Evaluation]
    """Evaluations with responses, by name."""
    trainings: Mapping[str, Training]
    """Trainings with rollouts, by task."""


def find_evaluations(store: Store, record: RunRecord) -> RunStudy:
    """Return the evaluations of a run that have responses so far, and the trainings that have rollouts so far.

    The files are not compared with their checksums here; that happens before they are read.

    Raises:
        Problem: E0967 if the run's spec is not in the store.
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
        evaluation = _list_files(store, folder, parsed.name, parsed.seed, task, key, is_complete)
        if evaluation.samples:
            evaluations[evaluation.name] = evaluation
    return RunStudy(spec, evaluations, trainings)


def _name_wordings(spec: Spec, role: Role) -> tuple[str, ...]:
    """Return the names of the wordings that prompt the rollouts of a stage; empty if the stage is no PPO.

    Args:
        spec: The spec.
        role: Role of the stage in the report, with the name of the arm and the index of the stage.
    """
    method = spec.study.arm(role.name).stages[role.index or 0].method
    return name_wordings(method.wordings) if isinstance(method, Ppo) else ()


def _list_files(
    store: Store, folder: Path, arm: str, seed: int | None, task: str, key: str, is_complete: bool
) -> Evaluation:
    """Return an evaluation with its files, which are chunks in a work folder if its task has not ended.

    Args:
        store: The store.
        folder: Folder of the result, or the task's work folder.
        arm: Name of the arm.
        seed: Seed of the arm's training, or None.
        task: Name of the task.
        key: Key of the task's result.
        is_complete: Whether the task has ended.
    """
    folders = (
        [folder] if is_complete else sorted(path.parent for path in folder.glob("chunks-*/*/samples.parquet"))
    )

    def files(name: str) -> tuple[Path, ...]:
        """Return the existing files called `name`.

        The table of responses of an ended task is returned even if it is missing, so that the damage is reported.
        """
        paths = (folder / name for folder in folders if folder.suffix != ".part")
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
WHOLE = ("benchmark", "question", "sample", "tokens", "finish", "correct")
"""Columns of a list of responses whose values are whole."""
MOST_TEXT = 2_000_000
"""Characters of a response that are sent; a longer response loses its middle."""
_CLIP = 160
"""Characters of questions, responses and answers in a list."""
_NEAR = 2_000
"""Distance of the first and last row below which all rows between them are read at once."""

Rows = NDArray[np.uint32]
Order = Literal["", "longest", "shortest", "wasted", "different"]
"""The order of a list; empty for the order of the files."""


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
    """Return the concatenated tables of Parquet files as a lazy frame."""
    return pl.scan_parquet(list(files), glob=False)


def budgets(evaluation: Evaluation) -> tuple[int, ...]:
    """Return the budgets, in tokens and ascending, at which an evaluation forced answers; empty without such answers."""
    return _read_budgets(evaluation.forced[:1])


@lru_cache(maxsize=256)
def _read_budgets(files: tuple[Path, ...]) -> tuple[int, ...]:
    """Return the budgets, in tokens and ascending, in tables of forced answers; empty without tables.

    Only the first response is read, as all responses have the same budgets.
    """
    if not files:
        return ()
    # The rows of a response follow each other, a row for each budget.
    first = _scan(files).head(20_000).select(*KEYS, "budget").collect()
    response = first.filter(pl.all_horizontal(pl.col(c) == first[c][0] for c in KEYS))
    return tuple(sorted(set(response["budget"].to_list())))


def matching(evaluation: Evaluation, filter_: Filter) -> Rows:
    """Return the numbers of the rows of an evaluation's responses that fit a filter.

    Args:
        evaluation: files of the responses.
        filter_: conditions.

    Returns:
        Row numbers in ascending order, [responses that fit].
    """
    return _find_matches(evaluation.samples, evaluation.forced, filter_)


@lru_cache(maxsize=64)
def _find_matches(samples: tuple[Path, ...], forced: tuple[Path, ...], filter_: Filter) -> Rows:
    """Return the numbers of the rows of responses that fit a filter.

    The result is cached, since a user pages through the same list.

    Args:
        samples: Tables of responses.
        forced: Tables of forced answers.
        filter_: Conditions.

    Returns:
        Row numbers in ascending order, [responses that fit].
    """
    values = {name: getattr(filter_, name) for name in _CONDITIONS}
    conditions = [_CONDITIONS[name](value) for name, value in values.items() if value is not None]
    if conditions:
        expression = pl.all_horizontal(conditions).fill_null(False).alias("hit")
        matches = _scan(samples).select(expression).collect(engine="streaming")["hit"].to_numpy()
    else:
        matches = np.ones(_count(samples), dtype=bool)
    for budget, right in ((filter_.right_at, True), (filter_.wrong_at, False)):
        if budget is not None:
            matches = matches & (_read_verdicts(samples, forced, budget) == right)
    if filter_.other and filter_.other_right is not None:
        other_matches = _read_beside(samples, filter_.other, "correct") == filter_.other_right
        matches = matches & other_matches.fill_null(False).to_numpy()
    return np.flatnonzero(matches).astype(np.uint32)


def _count(files: tuple[Path, ...]) -> int:
    """Return the number of rows of tables."""
    return int(_scan(files).select(pl.len()).collect().item())


def _join(samples: tuple[Path, ...], other: pl.LazyFrame) -> pl.DataFrame:
    """Return the columns of a table in the order of the responses, after a join by benchmark, question and sample.

    Args:
        samples: Tables of responses.
        other: The table, with at most one row for each response.

    Returns:
        A row for each response in `samples`, with nulls for a response that `other` lacks.
    """
    keys = _scan(samples).select(KEYS)
    return keys.join(other, on=KEYS, how="left", maintain_order="left").collect(engine="streaming")


def _read_beside(samples: tuple[Path, ...], other: tuple[Path, ...], column: str) -> pl.Series:
    """Return a column of one arm's responses in the order of another arm's responses to the same questions.

    The two arms may be the same.

    Args:
        samples: Tables of responses that give the order.
        other: Tables of responses with the column.
        column: Name of the column.

    Returns:
        A value for each response in `samples`; null if the other arm has no such response.
    """
    if _are_alike(samples, other):
        return _scan(other).select(column).collect(engine="streaming")[column]
    return _join(samples, _scan(other).select(*KEYS, column))[column]


@lru_cache(maxsize=256)
def _are_alike(samples: tuple[Path, ...], other: tuple[Path, ...]) -> bool:
    """Return whether the tables of two arms have the same questions and samples in the same order, so need no join."""
    if samples == other or _count(samples) != _count(other):
        return samples == other
    keys, other_keys = (_scan(files).select(KEYS).collect(engine="streaming") for files in (samples, other))
    return keys.equals(other_keys)


def _contains(words: str) -> pl.Expr:
    """Return the condition on a response for a search of words.

    The question, the response or the answer contains the words, in upper or lower case, or the question's id starts with
    the words.
    """
    texts = pl.col("text", "response", "answer").str.to_lowercase()
    has_words = texts.str.contains(words.lower(), literal=True).fill_null(False)
    return pl.any_horizontal(has_words, pl.col("question").str.starts_with(words))


_CONDITIONS: Mapping[str, Callable[[Any], pl.Expr]] = {
    "benchmark": lambda name: pl.col("benchmark") == name,
    "right": lambda right: pl.col("correct") == right,
    "unfinished": lambda _: pl.col("finish") == "length",
    "shortest": lambda least: pl.col("tokens") >= least,
    "longest": lambda most: pl.col("tokens") <= most,
    "words": _contains,
}
"""Conditions on a row of the table of responses, by the field of the filter."""


@lru_cache(maxsize=32)
def _read_verdicts(samples: tuple[Path, ...], forced: tuple[Path, ...], budget: int) -> NDArray[np.int8]:
    """Return the verdicts on the answers that were forced at a budget.

    Args:
        samples: Tables of responses.
        forced: Tables of forced answers.
        budget: Budget in tokens.

    Returns:
        1 for right, 0 for wrong, -1 without a forced answer, [responses].
    """
    grid = _read_budgets(forced[:1])
    if budget not in grid:
        return np.full(_count(samples), -1, dtype=np.int8)
    at_budget = _scan(forced).filter(pl.col("budget") == budget)
    if _rows_match(samples, forced, len(grid)):
        # Rows are in the order of the responses, so that no join is needed.
        right = at_budget.select("correct").collect(engine="streaming")["correct"]
        if len(right) == _count(samples):
            return right.cast(pl.Int8).to_numpy()
    right = _join(samples, at_budget.select(*KEYS, pl.col("correct").alias("_right")))["_right"]
    return right.cast(pl.Int8).fill_null(-1).to_numpy()


@lru_cache(maxsize=256)
def _rows_match(samples: tuple[Path, ...], forced: tuple[Path, ...], budgets: int) -> bool:
    """Return whether forced answers are sorted like the responses, with a row for each budget in ascending order.

    Then row numbers can be computed, and no join is needed. Not all rows are compared: only their number, and the rows of
    50 responses each at the beginning, in the middle and at the end.

    Args:
        samples: Tables of responses.
        forced: Tables of forced answers.
        budgets: Number of budgets.
    """
    count = _count(samples)
    if _count(forced) != count * budgets:
        return False
    for start in {0, count // 2, max(0, count - 50)}:
        keys = _scan(samples).select(KEYS).slice(start, 50).collect()
        rows = _scan(forced).select(*KEYS, "budget").slice(start * budgets, len(keys) * budgets).collect()
        if not rows.select(KEYS).gather_every(budgets).equals(keys):
            return False
        if rows["budget"].to_list() != sorted(rows["budget"].head(budgets).to_list()) * len(keys):
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
    """Return the number of responses that fit a filter, and a page of them, without the texts of responses.

    Args:
        evaluations: Evaluations whose responses are listed.
        filter_: Conditions.
        offset: Number of fitting responses before the page.
        limit: Responses on the page at most.
        order: Order of the list, as `_sort_responses` describes; empty for the order of the files.
        compared: Evaluations whose lengths count for the order `different`.

    Returns:
        (number of responses that fit, columns of each response on the page).
    """
    rows = [matching(evaluation, filter_) for evaluation in evaluations]
    starts = np.cumsum([0, *map(len, rows)])
    total = int(starts[-1])
    if order and total:
        positions = _sort_responses(
            tuple(evaluations), filter_, order, tuple(evaluation.samples for evaluation in compared)
        )
        positions = positions[offset : offset + limit]
    else:
        positions = np.arange(min(offset, total), min(offset + limit, total))
    page: dict[int, dict[str, Any]] = {}
    for evaluation, matches, start in zip(evaluations, rows, starts, strict=False):
        positions_here = np.sort(positions[(positions >= start) & (positions < start + len(matches))])
        for position, row in zip(
            positions_here,
            _read_rows(evaluation, matches[positions_here - start], filter_.words),
            strict=True,
        ):
            page[position] = {"evaluation": evaluation.name, **row}
            if order == "wasted":
                page[position]["wasted"] = int(_count_wasted(evaluation)[row["row"]])
    return total, [page[position] for position in positions]


@lru_cache(maxsize=4)
def _sort_responses(
    evaluations: tuple[Evaluation, ...], filter_: Filter, order: Order, compared: tuple[tuple[Path, ...], ...]
) -> NDArray[np.int64]:
    """Return the positions of the responses that fit a filter, sorted by an order.

    Args:
        evaluations: Evaluations whose responses are listed.
        filter_: Conditions.
        order: `longest` or `shortest` response first; `wasted`: the response with the most tokens of `_count_wasted`
            first; or `different`: first the responses to questions whose lengths differ most between `evaluations` and the
            compared ones. At equal numbers the longest response comes first.
        compared: Tables of responses of the compared evaluations.

    Returns:
        Positions in the concatenated fitting responses of all evaluations, [responses that fit].
    """
    lengths, ranges = [], []
    for evaluation in evaluations:
        rows = matching(evaluation, filter_)
        tokens = _read_beside(evaluation.samples, evaluation.samples, "tokens").to_numpy()
        lengths.append(tokens[rows])
        if order == "wasted":
            ranges.append(_count_wasted(evaluation)[rows])
        elif order == "different":
            other_tokens = [
                _read_beside(evaluation.samples, files, "tokens").to_numpy() for files in compared
            ]
            high, low = (end.reduce([tokens, *other_tokens]) for end in (np.fmax, np.fmin))
            ranges.append((high - low)[rows])
    longest = -np.concatenate(lengths).astype(np.int64)
    if ranges:
        return np.lexsort((longest, -np.concatenate(ranges).astype(np.int64)))
    return np.argsort(longest if order == "longest" else -longest, kind="stable")


@lru_cache(maxsize=16)
def _count_wasted(evaluation: Evaluation) -> NDArray[np.int64]:
    """Return how many tokens each response has after it knew its answer.

    A response knows its answer from the first budget at which its forced answer is right and stays right at all larger
    budgets and at the end of the response; if there is no such budget, at its end.

    Returns:
        Tokens, [responses]; -1 for a response that ends with a wrong answer.
    """
    own = evaluation.samples
    tokens = _read_beside(own, own, "tokens").cast(pl.Int64).to_numpy()
    right = _read_beside(own, own, "correct").fill_null(False).to_numpy()
    first_right = np.where(right, tokens, tokens + 1)
    for budget in reversed(budgets(evaluation)):
        right = right & (_read_verdicts(evaluation.samples, evaluation.forced, budget) == 1)
        first_right = np.where(right, np.minimum(first_right, budget), first_right)
    return tokens - first_right


def _read_rows(evaluation: Evaluation, rows: Rows, words: str | None) -> list[dict[str, Any]]:
    """Return the columns that a list of responses shows, for some rows of an evaluation.

    Questions (`asked`), responses (`begins`) and answers are cut to `_CLIP` characters. If words were searched that a
    response has, `begins` has the first of them, with some characters before them.

    Args:
        evaluation: Files of the responses.
        rows: Row numbers in ascending order.
        words: Words that were searched, or None.
    """
    if not len(rows):
        return []
    excerpt = pl.col("response").str.extract(f"(?is)(.{{0,40}}{pl.escape_regex(words or '')}.{{0,{_CLIP}}})")
    texts = {
        "answer": pl.col("answer"),
        "asked": pl.col("text"),
        "begins": excerpt.fill_null(pl.col("response")),
    }
    cut = [text.str.slice(0, _CLIP).alias(name) for name, text in texts.items()]
    frame = _scan(evaluation.samples).select(*WHOLE, "answer", "text", "response")
    first, last = int(rows[0]), int(rows[-1])
    if last - first < _NEAR:
        page = frame.slice(first, last - first + 1).collect(engine="streaming")[rows - first]
    else:
        # Each row is read alone, since texts of all rows between them would be read with a filter.
        page = pl.concat(pl.collect_all([frame.slice(int(row), 1) for row in rows]))
    return page.with_columns(row=rows).select("row", *WHOLE, *cut).to_dicts()


def response(
    evaluation: Evaluation, row: int, keeps_middle: bool = False, last_budget: int | None = None
) -> dict[str, Any] | None:
    """Return a response with its text, its cuts at budgets, and the tokens that it loses; None if no row has the number.

    Args:
        evaluation: Files of the responses.
        row: Number of the response's row.
        keeps_middle: Whether a text of more than `MOST_TEXT` characters keeps its middle.
        last_budget: Budget at which the integration of lost tokens ends, in tokens; None for the last budget.

    Returns:
        The columns of the row, with further entries. `cuts` has for each budget the forced answer and the character of
        the text at which the budget ends. A cut is `exact` if this character is known; otherwise the character is
        estimated in proportion to the tokens. `wasted` are the tokens of `_count_wasted`, or None if the response ends
        with a wrong answer. `left_out` is the number of characters that the text lacks in its middle.
        `lost` has the tokens that the response loses, by cause, and `lost_mean` the mean over the question's responses.
    """
    rows = _scan(evaluation.samples).slice(row, 1).collect()
    if not rows.height:
        return None
    columns = rows.row(0, named=True)
    text = str(columns.pop("response") or "")
    characters = _find_characters(evaluation, columns, text)
    cuts = _read_forced(evaluation, row, columns)
    for cut in cuts:
        budget, tokens = int(cut["budget"]), int(columns["tokens"])
        end = (characters or {}).get(budget)
        character = end if end is not None else len(text) * budget // max(1, tokens)
        cut.update(characters=min(character, len(text)), exact=end is not None or budget >= tokens)
    left_out = 0
    if len(text) > MOST_TEXT and not keeps_middle:
        half = MOST_TEXT // 2
        left_out = len(text) - 2 * half
        text = text[:half] + text[-half:]
        for cut in cuts:
            character = cut["characters"]
            cut["characters"] = character if character <= half else max(half, character - left_out)
    last_right = [cut["budget"] for cut in takewhile(lambda cut: cut["correct"], reversed(cuts))]
    first_right = min([columns["tokens"], *last_right])
    gold = [text_ for text_ in str(columns.pop("gold") or "").split("\x1e") if text_.strip()]
    return {
        "evaluation": evaluation.name,
        "row": row,
        **columns,
        "gold": gold,
        "response": text,
        "left_out": left_out,
        "cuts": cuts,
        "wasted": columns["tokens"] - first_right if columns["correct"] else None,
        **_count_lost_tokens(evaluation, columns, last_budget),
    }


def _count_lost_tokens(
    evaluation: Evaluation, columns: dict[str, Any], last_budget: int | None
) -> dict[str, Any]:
    """Return the tokens that a response loses, by cause, and the mean over all responses to the same question.

    Lost tokens are the tokens of budget at which the response's forced answer is wrong.

    Args:
        evaluation: Files of the responses.
        columns: Columns of the response, which name its benchmark, question and sample.
        last_budget: Budget at which the integration ends, in tokens; None for the last budget.

    Returns:
        `lost` and `lost_mean`, each a list of causes with tokens; empty without forced answers at two or more budgets.
    """
    grid = budgets(evaluation)
    if not evaluation.forced or len(grid) < 2:
        return {}
    question = (pl.col("benchmark") == columns["benchmark"]) & (pl.col("question") == columns["question"])
    weights = weigh(grid, last_budget if last_budget is None or last_budget <= grid[-1] else None)
    forced, samples = (_scan(files).filter(question) for files in (evaluation.forced, evaluation.samples))
    lost = split_losses(forced, samples, weights).collect()
    of_response = lost.filter(pl.col("sample") == columns["sample"])
    means = lost.select(pl.col(tuple(CAUSES)).mean())
    return {
        name: [{"cause": CAUSES[cause], "tokens": frame[cause].item()} for cause in CAUSES]
        for name, frame in (("lost", of_response), ("lost_mean", means))
        if frame.height == 1
    }


def _is_response(columns: Mapping[str, Any]) -> pl.Expr:
    """Return the condition that a row has the benchmark, question and sample of a response's columns."""
    return pl.all_horizontal(pl.col(name) == columns[name] for name in KEYS)


def row_of(evaluation: Evaluation, benchmark: str, question: str, sample: int) -> int | None:
    """Return the number of the row of a response, by its benchmark, question and sample; None if it does not exist."""
    is_row = _is_response({"benchmark": benchmark, "question": question, "sample": sample})
    is_match = _scan(evaluation.samples).select(is_row.alias("hit")).collect(engine="streaming")["hit"]
    rows = is_match.arg_true()
    return int(rows[0]) if len(rows) else None


def _read_forced(evaluation: Evaluation, row: int, columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the forced answers of a response with their verdicts, sorted by budget.

    Args:
        evaluation: Files of the responses.
        row: Number of the response's row.
        columns: Columns of the response.
    """
    if not evaluation.forced:
        return []
    grid = budgets(evaluation)
    # Older tables do not say why an answer was not judged.
    names = ["budget", "forced", "answer", "correct", "^unsettled$"]
    frame = _scan(evaluation.forced)
    if grid and _rows_match(evaluation.samples, evaluation.forced, len(grid)):
        frame = frame.slice(row * len(grid), len(grid))
    return frame.filter(_is_response(columns)).select(names).sort("budget").collect().to_dicts()


def _find_characters(evaluation: Evaluation, columns: dict[str, Any], text: str) -> dict[int, int] | None:
    """Return for each budget the number of the response's characters that it covers.

    The evaluation has stored these numbers for some responses. For other responses the text is tokenized again.

    Args:
        evaluation: Files of the responses.
        columns: Columns of the response.
        text: Text of the response.

    Returns:
        Characters by budget in tokens. None without a tokenizer, or if the text now has another number of tokens than the
        model generated.
    """
    if evaluation.examples:
        stored = (
            _scan(evaluation.examples).filter(_is_response(columns)).select("budget", "characters").collect()
        )
        if stored.height:
            return dict(zip(stored["budget"].to_list(), stored["characters"].to_list(), strict=True))
    ends = _find_token_ends(evaluation.tokenizer, text)
    # The text lacks the stop token. With any other difference, the model generated other tokens than the tokenizer finds.
    if ends is None or int(columns["tokens"]) - len(ends) not in (0, 1):
        return None
    return {
        budget: ends[budget - 1] if budget else 0 for budget in budgets(evaluation) if budget <= len(ends)
    }


def _find_token_ends(tokenizer: Path | None, text: str) -> list[int] | None:
    """Return the character at which each token of a text ends.

    The result is None without a tokenizer, for a text of more than `MOST_TEXT` characters, or if tokenizing fails.
    """
    if tokenizer is None or len(text) > MOST_TEXT:
        return None
    try:
        # A batch, as the library blocks all other threads while it encodes a single text.
        (encoded,) = _tokenizer(tokenizer).encode_batch([text], add_special_tokens=False)
    except BaseException as fault:
        # The library reads a model's file that a stranger may have made, and a panic of it is not an `Exception`.
        if isinstance(fault, KeyboardInterrupt):
            raise
        return None
    return [end for _, end in encoded.offsets]


_tokenizer = lru_cache(maxsize=4)(open_tokenizer)
