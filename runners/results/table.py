"""Result files as one table of responses: tokens counted and answers graded where a file has neither."""

from __future__ import annotations

import math
import os
import re
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import first_line, problem
from reodsl.numbers.responses import COLUMNS, KEYS, ImportCounts, ResultFiles, find_faults
from reodsl.store.files import stat_plain
from reodsl.tokenizer import open_tokenizer
from runners.grade import SEPARATOR, Claim, Verifier, final_answer, make_verifier
from runners.results.read import PLAIN, SPEED_FIELDS, ResultForm, find, form_of, read_rows, unreadable
from runners.sandbox.untrusted import is_missing, shown

MOST_ROWS = 5_000_000
PART_ROWS, PART_CHARACTERS = 5_000, 1 << 25
"""Responses that are in memory together, at most so many and with so much text, and one."""
FORCED = pl.List(pl.Struct({"budget": pl.Int64, "correct": pl.Boolean}))
SCHEMA: dict[str, Any] = dict.fromkeys(COLUMNS, pl.String) | {
    "seed": pl.Int64,
    "sample": pl.Int64,
    "tokens": pl.Int64,
    "correct": pl.Boolean,
    "at": FORCED,
    # What the table has only until it is written.
    "form": pl.String,
    "counted": pl.Boolean,
    "graded": pl.Boolean,
}
_FINISH = {
    "stop": "stop", "eos": "stop", "end_turn": "stop", "length": "length", "max_tokens": "length", "model_length": "length",
}  # fmt: skip
_LETTERS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "true": 1.0, "false": 0.0}
_AT = re.compile(r"correct(?:s_.*forced.*)?@(\d+)(?:toks)?")
LONGEST_NAME = 200
"""Characters of the name of a field that may hold forced answers."""
_CLOSE = "</think>"
_WORDS = ("text", "response", "answer")
"""Columns whose texts are anything that somebody wrote, `None` too."""


def import_results(order: ResultFiles) -> tuple[ImportCounts, ...]:
    """Write the responses in files as a table, completely or not at all, and return counts for each model.

    Raises:
        Problem: the first fault of a file, a row or the table.
    """
    scratch = Path(tempfile.mkdtemp(prefix=f".{order.out.name}.", dir=order.out.parent))
    try:
        parts = _write_parts(order, scratch)
        frame = pl.scan_parquet(parts, glob=False)
        if order.common:
            frame = _common(frame)
        if order.leave_out_forced:
            frame = frame.with_columns(at=pl.lit(None, dtype=FORCED))
        frame.sink_parquet(scratch / "whole.parquet")
        counts = _check(pl.scan_parquet(scratch / "whole.parquet", glob=False))
        final = scratch / f"{secrets.token_hex(4)}.parquet"
        pl.scan_parquet(scratch / "whole.parquet", glob=False).select(COLUMNS).sink_parquet(final)
        os.replace(final, order.out)
        return counts
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_parts(order: ResultFiles, folder: Path) -> list[Path]:
    """Write responses in parts of bounded size, with tokens counted and answers graded."""
    tokenizer = None if order.tokenizer is None else _tokenizer(order.tokenizer)
    verifier = make_verifier("math")
    parts: list[Path] = []
    lot: list[dict[str, Any]] = []
    numbers: Counter[tuple[Any, ...]] = Counter()
    size = 0

    def write() -> None:
        _count(lot, tokenizer, order.thinks)
        _grade(lot, verifier)
        _settle(lot)
        parts.append(folder / f"{len(parts)}.parquet")
        pl.DataFrame(lot, schema=SCHEMA, orient="row").write_parquet(parts[-1])
        lot.clear()

    try:
        for count, row in enumerate(_responses(order, numbers)):
            if count == MOST_ROWS:
                raise unreadable(
                    order.out, f"these are more than {MOST_ROWS:,} responses", "import some of the files"
                )
            lot.append(row)
            size += len(row["response"] or "")
            if len(lot) == PART_ROWS or size > PART_CHARACTERS:
                write()
                size = 0
        if lot or not parts:
            write()
    finally:
        verifier.close()
    return parts


def _responses(order: ResultFiles, numbers: Counter[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Yield the responses of all files with model, benchmark and sample; of lm-eval only the first filter's."""
    for path, model in order.files:
        form: ResultForm | None = None
        chosen: str | None = None
        for where, row in read_rows(path):
            if form is None:
                form = _form(row, where, order)
            if form.name == "lm-eval":
                chosen = chosen or _text(row["filter"], {})
                if _text(row.get("filter"), {}) != chosen:
                    continue
            label = f"{form.name}, filter {chosen}" if chosen else form.name
            for response in _take(form, row, where, order):
                response["model"] = _text(model or response["model"] or path.stem, {})
                response["benchmark"] = order.benchmark or response["benchmark"] or "all"
                response["form"] = label
                if response["sample"] is None:
                    key = tuple(response[name] for name in KEYS[:-1])
                    response["sample"] = numbers[key]
                    numbers[key] += 1
                yield response
        if form is None:
            raise unreadable(path, "it has no row of results", "give a file with one")


def _form(row: Mapping[str, Any], where: str, order: ResultFiles) -> ResultForm:
    """Return a file's form by its first row, with the columns that options name. Raises E0436 if no form fits."""
    if all(name in row for name in SPEED_FIELDS):
        raise unreadable(
            where, "these are speeds, not results: no answer was graded", "give graded responses"
        )
    form = form_of(row)
    if form is None and not order.columns:
        names = ", ".join(f"`{shown(name)}`" for name in list(row)[:20] if name not in ("head", "file"))
        lacks = " ".join(f"--column {n}=NAME" for n in ("question", "correct", "tokens") if n not in row)
        raise problem(
            "E0436",
            "this form of results is not known",
            where=where,
            notes=[f"its first row has {names}"],
            help=f"name the fields: `{lacks}`, with points for what is inside others (`usage.output_tokens`)",
        )
    form = form or PLAIN
    return ResultForm(form.name, form.has, {**form.columns, **order.columns})


def _take(
    form: ResultForm, row: Mapping[str, Any], where: str, order: ResultFiles
) -> Iterator[dict[str, Any]]:
    """Yield the responses of a row. Raises E0436 whatever is wrong with it."""
    try:
        yield from _unroll(form, row, where, order)
    except (TypeError, ValueError, RecursionError) as why:
        raise unreadable(
            where, f"this row is none of its form: {first_line(why)}", "mend it or take it out"
        ) from None


def _unroll(
    form: ResultForm, row: Mapping[str, Any], where: str, order: ResultFiles
) -> Iterator[dict[str, Any]]:
    """Yield a response for each entry of a row's lists, or a single response."""
    values: dict[str, Any] = {}
    unclear = ""
    for name, path in form.columns.items():
        try:
            values[name] = find(row, path)
        except LookupError as entries:
            unclear = unclear or str(entries)
    names = [name for name in row if name.startswith("correct")]
    if any(len(name) > LONGEST_NAME for name in names):
        raise unreadable(
            where, f"a field's name has more than {LONGEST_NAME} characters", "mend it or take it out"
        )
    forced = {int(m[1]): row[name] for name in names if (m := _AT.fullmatch(name))}
    lists = [name for name, path in form.columns.items() if path.endswith("[]")]
    columns = [*(values.get(name) for name in lists), *forced.values()]
    sizes = {len(value) for value in columns if isinstance(value, list) and value}
    if len(sizes) > 1:
        few = " and ".join(map(str, sorted(sizes)[:3]))
        raise unreadable(where, f"its lists have {few} values", "mend it or take it out")
    several = sizes.pop() if sizes else 1
    for index in range(several):
        response = {name: _entry(value, index) if name in lists else value for name, value in values.items()}
        if several > 1 and "correct" not in lists:
            # One score of several responses is that of the first, or of all together.
            response["correct"] = None
        elif unclear:
            raise unreadable(
                where,
                f"{shown(unclear)}, and which of them counts is not said",
                "name it: `--column correct=PATH`",
            )
        cuts = {budget: _entry(value, index) for budget, value in forced.items()}
        yield _response(response, cuts, row, where, order)


def _entry(value: Any, index: int) -> Any:
    """Return an entry of a list, None of an empty list, or a value that is no list."""
    return (value[index] if value else None) if isinstance(value, list) else value


def _response(
    values: Mapping[str, Any], cuts: Mapping[int, Any], row: Mapping[str, Any], where: str, order: ResultFiles
) -> dict[str, Any]:
    """Return a response in the columns of `SCHEMA`, its values checked. Raises E0436 for a value of another type."""
    values = {
        name: None if is_missing(value) and not (name in _WORDS and isinstance(value, str)) else value
        for name, value in values.items()
    }
    out: dict[str, Any] = dict.fromkeys(SCHEMA) | {
        name: _text(values.get(name), row)
        for name in ("model", "benchmark", "question", "text", "response", "answer")
    }
    gold = values.get("gold")
    if isinstance(gold, list):
        gold = SEPARATOR.join(_text(entry, row) or "" for entry in gold if not is_missing(entry)) or None
    out["gold"] = _text(gold, row)
    if values.get("question") is None:
        raise unreadable(where, "this row names no question", "name the field: `--column question=NAME`")
    for name in ("seed", "sample", "tokens"):
        value = values.get(name)
        value = len(value) or None if isinstance(value, list) else value
        out[name] = None if value is None else _whole(value, name, where)
    out["finish"] = _FINISH.get(str(values.get("finish")).lower())
    if values.get("correct") is not None:
        out["correct"] = _right(values["correct"], where, order.right_from)
    own_cuts, entries = values.get("at"), list[tuple[Any, Any]](cuts.items())
    if isinstance(own_cuts, list):
        # A table of our own, or one like it.
        entries += [(entry.get("budget"), entry) for entry in own_cuts if isinstance(entry, Mapping)]
    elif isinstance(own_cuts, Mapping):
        entries += own_cuts.items()
    pairs = [pair for pair in entries if not is_missing(_inner(pair[1]))]
    if pairs:
        out["at"] = sorted(
            ({"budget": _whole(budget, "at", where), "correct": _right(_inner(entry), where, order.right_from)}
             for budget, entry in pairs),
            key=lambda entry: entry["budget"],
        )  # fmt: skip
    return out


def _inner(value: Any) -> Any:
    return value.get("correct") if isinstance(value, Mapping) else value


def _text(value: Any, row: Mapping[str, Any]) -> str | None:
    """Return a string, a number as text, or the text of a message's parts with reasoning first; attachments are resolved."""
    if isinstance(value, str):
        name = value.removeprefix("attachment://")
        attachments = None if name == value else find(row, "attachments")
        text = str(attachments.get(name, value)) if isinstance(attachments, Mapping) else value
        # JSON may hold halves of characters, which no table can.
        return text.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return "".join(_text(piece, row) or "" for piece in value)
    if isinstance(value, Mapping):
        return "".join(_text(value.get(name), row) or "" for name in ("reasoning", "text", "content"))
    return None if value is None else str(value)


def _whole(value: Any, name: str, where: str) -> int:
    try:
        number = float(value)
        if isinstance(value, bool) or not number.is_integer() or not 0 <= number < 1 << 40:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise unreadable(
            where, f"`{name}` is {str(value)[:40]!r}, which is no whole number from 0", "mend it"
        ) from None
    return int(number)


def _right(value: Any, where: str, least: float | None) -> bool:
    """Return whether a score is that of a right answer: 1 or 0, a letter of inspect's, or what `--right-from` says."""
    try:
        score = _LETTERS.get(str(value).lower())
        score = float(value) if score is None else score
        if not math.isfinite(score):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise unreadable(
            where,
            f"the score is {str(value)[:40]!r}, which is no number",
            "name another field: `--column correct=NAME`",
        ) from None
    if least is None and score not in (0.0, 1.0):
        raise unreadable(
            where,
            f"a score is {score:g}, neither 0 nor 1: right from which value?",
            "name the least score that is right: `--right-from 1`",
        )
    return score == 1.0 if least is None else score >= least


def _tokenizer(name: str) -> Any:
    """Return a watched tokenizer. Raises E0436 if it is not found, and E0803."""
    from runners.models.tokenizer import TimedTokenizer, report_unreadable, require_bounded_steps

    file = Path(name)
    try:
        if not file.exists():
            from huggingface_hub import hf_hub_download

            file = Path(hf_hub_download(name, "tokenizer.json"))
        folder = file if file.is_dir() else file.parent
        stat_plain(folder / "tokenizer.json")
    except Exception as why:  # the hub has no one error
        raise unreadable(
            name,
            f"there is no tokenizer to count with: {why}"[:300],
            "give a folder with tokenizer.json, or a model's name on the hub",
        ) from None
    require_bounded_steps(folder)
    with report_unreadable(folder):
        return TimedTokenizer(open_tokenizer(folder / "tokenizer.json"), folder)


def _count(lot: Sequence[dict[str, Any]], tokenizer: Any, thinks: bool) -> None:
    """Count the tokens of responses without a count: their text's tokens, and a stop token unless the response was cut."""
    without = [row for row in lot if row["tokens"] is None and row["response"] is not None]
    if tokenizer is None or not without:
        return
    if (
        thinks
        and tokenizer.token_to_id(_CLOSE) is not None
        and not any(_CLOSE in row["response"] for row in without)
    ):
        raise unreadable(
            shown(without[0]["model"]),
            f"no response has {_CLOSE}, which the tokenizer knows: the reasoning seems to have been cut out before it was"
            " logged, so tokens cannot be counted",
            "log whole responses (lm-eval: without `think_end_token`), or add `--no-thinking` for a model that does not",
        )
    for row, encoded in zip(
        without,
        tokenizer.encode_batch([row["response"] for row in without], add_special_tokens=False),
        strict=True,
    ):
        row["tokens"] = len(encoded.ids) + (row["finish"] != "length")
        row["counted"] = True


def _settle(lot: Sequence[dict[str, Any]]) -> None:
    """Give each budget at or past a response's end the verdict on the response, as `J` is defined."""
    for row in lot:
        if row["tokens"] is not None and row["correct"] is not None:
            for cut in row["at"] or ():
                if cut["budget"] >= row["tokens"]:
                    cut["correct"] = row["correct"]


def _grade(lot: Sequence[dict[str, Any]], verifier: Verifier) -> None:
    """Grade responses without a score by their last box, as mathematics."""
    without = [row for row in lot if row["correct"] is None and None not in (row["response"], row["gold"])]
    answers = [Claim(final_answer(row["response"]), row["gold"]) for row in without]
    for row, answer, verdict in zip(without, answers, verifier.grade(answers), strict=True):
        row |= {"answer": answer.text, "correct": verdict.correct, "graded": True}


def _common(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows of the questions that all models have."""
    models = frame.select(pl.col("model").n_unique()).collect().item()
    shared = frame.group_by("benchmark", "question").agg(pl.col("model").n_unique() == models)
    return frame.join(
        shared.filter("model").select("benchmark", "question"), on=["benchmark", "question"], how="semi"
    )


def _check(frame: pl.LazyFrame) -> tuple[ImportCounts, ...]:
    """Return counts for each model. Raises E0436 for an incomplete or repeated response."""
    keys = frame.select(*KEYS, "tokens", "correct").collect(engine="streaming")
    lacks = {
        "tokens": "have no number of tokens: add `--tokenizer MODEL`, by which they are counted from the text",
        "correct": "have no score, nor a reference to grade them by: name a field, `--column correct=NAME`",
    }
    if keys.is_empty():
        raise unreadable("the table", "no response is left", "check the files, and `--common`")
    for name, what in lacks.items():
        missing = keys.filter(pl.col(name).is_null())
        if missing.height:
            model = missing["model"][0]
            why, _, advice = what.partition(": ")
            raise unreadable(shown(model), f"{missing.height} responses {why}", advice)
    twice = keys.filter(keys.select(KEYS).is_duplicated())
    if twice.height:
        model, _, benchmark, question, sample = twice.row(0)[:5]
        raise unreadable(
            shown(f"{model} on {benchmark}"),
            f"question `{shown(question)}` has sample {sample} twice",
            "give each file once, name models with `--model`, and benchmarks of files that do not with `--benchmark`",
        )
    for words, row in find_faults(frame.select(COLUMNS)):
        model, _, benchmark, question, _ = frame.slice(row - 1, 1).select(KEYS).collect().row(0)
        raise unreadable(
            shown(f"{model} on {benchmark}: question {question}"),
            words,
            "give all responses to a benchmark the same budgets, each once, or leave forced answers out: `--ended`",
        )
    rows = (
        frame.group_by("model")
        .agg(
            pl.col("form").unique().sort(),
            pl.struct("benchmark", "question").n_unique().alias("questions"),
            pl.len().alias("responses"),
            pl.col("counted").fill_null(False).sum(),
            pl.col("graded").fill_null(False).sum(),
            (pl.col("finish") == "length").fill_null(False).sum().alias("unfinished"),
            pl.col("at").is_not_null().all().alias("forced"),
            # A token has three characters and more: text of much less was cut out before it was logged.
            (pl.col("response").str.len_chars() / pl.col("tokens")).median().alias("density"),
        )
        .sort("model")
        .collect(engine="streaming")
    )
    return tuple(ImportCounts(**row) for row in rows.iter_rows(named=True))
