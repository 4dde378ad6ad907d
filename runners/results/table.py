"""Write result files of other tools as a table of responses; count missing tokens and grade answers without a verdict."""

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
"""Largest number of responses in a table."""
PART_ROWS, PART_CHARACTERS = 5_000, 1 << 25
"""Largest number of responses in memory, and characters of text after which no further response is added to them."""
FORCED = pl.List(pl.Struct({"budget": pl.Int64, "correct": pl.Boolean}))
SCHEMA: dict[str, Any] = dict.fromkeys(COLUMNS, pl.String) | {
    "seed": pl.Int64,
    "sample": pl.Int64,
    "tokens": pl.Int64,
    "correct": pl.Boolean,
    "at": FORCED,
    # Columns that the written table lacks.
    "form": pl.String,
    "counted": pl.Boolean,
    "graded": pl.Boolean,
}
_FINISH = {
    "stop": "stop", "eos": "stop", "end_turn": "stop", "length": "length", "max_tokens": "length", "model_length": "length",
}  # fmt: skip
# Scores by their names in inspect (correct, partial, incorrect, no answer) and as truth values.
_LETTERS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "true": 1.0, "false": 0.0}
# A field with verdicts on answers forced at a budget, such as `correct@512`.
_AT = re.compile(r"correct(?:s_.*forced.*)?@(\d+)(?:toks)?")
LONGEST_NAME = 200
"""Largest number of characters in the name of a field that begins with `correct`."""
_CLOSE = "</think>"
_WORDS = ("text", "response", "answer")
"""Columns of free text, in which texts such as `None` are no missing values."""


def import_results(order: ResultFiles) -> tuple[ImportCounts, ...]:
    """Write the responses in result files as a table, completely or not at all.

    Tokens are counted and answers graded where the files lack them.

    Args:
        order: Files with the names of their models, the table's path, and options of the import.

    Returns:
        Counts for each model.

    Raises:
        Problem: E0436 for the first mistake in a file, a row or the table.
    """
    scratch = Path(tempfile.mkdtemp(prefix=f".{order.out.name}.", dir=order.out.parent))
    try:
        parts = _write_parts(order, scratch)
        frame = pl.scan_parquet(parts, glob=False)
        if order.common:
            frame = _keep_common(frame)
        if order.leave_out_forced:
            frame = frame.with_columns(at=pl.lit(None, dtype=FORCED))
        frame.sink_parquet(scratch / "whole.parquet")
        counts = _check_table(pl.scan_parquet(scratch / "whole.parquet", glob=False))
        final = scratch / f"{secrets.token_hex(4)}.parquet"
        pl.scan_parquet(scratch / "whole.parquet", glob=False).select(COLUMNS).sink_parquet(final)
        os.replace(final, order.out)
        return counts
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_parts(order: ResultFiles, folder: Path) -> list[Path]:
    """Write all responses into Parquet files of bounded size, so that memory is bounded as well.

    Missing tokens are counted and answers without a verdict graded. Without any response a single empty file is written.

    Args:
        order: The import.
        folder: Folder for the files.

    Returns:
        Paths of the files.
    """
    tokenizer = None if order.tokenizer is None else _open_tokenizer(order.tokenizer)
    verifier = make_verifier("math")
    parts: list[Path] = []
    batch: list[dict[str, Any]] = []
    sample_counts: Counter[tuple[Any, ...]] = Counter()
    size = 0

    def write() -> None:
        """Count tokens and grade answers of the responses in `batch`, write them into a new file, and empty `batch`."""
        _count_tokens(batch, tokenizer, order.thinks)
        _grade_ungraded(batch, verifier)
        _settle_ended(batch)
        parts.append(folder / f"{len(parts)}.parquet")
        pl.DataFrame(batch, schema=SCHEMA, orient="row").write_parquet(parts[-1])
        batch.clear()

    try:
        for count, row in enumerate(_read_responses(order, sample_counts)):
            if count == MOST_ROWS:
                raise unreadable(
                    order.out, f"these are more than {MOST_ROWS:,} responses", "import some of the files"
                )
            batch.append(row)
            size += len(row["response"] or "")
            if len(batch) == PART_ROWS or size > PART_CHARACTERS:
                write()
                size = 0
        if batch or not parts:
            write()
    finally:
        verifier.close()
    return parts


def _read_responses(order: ResultFiles, sample_counts: Counter[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Yield the responses of all files, each with model, benchmark and the number of its sample.

    lm-eval writes a row for each filter, a way to extract the answer; only rows of a file's first filter are read.

    Args:
        order: The import.
        sample_counts: Number of responses so far to each question that had no sample number, by (model, seed, benchmark,
            question). Such a response gets this number, which is then increased.
    """
    for path, model in order.files:
        form: ResultForm | None = None
        first_filter: str | None = None
        for where, row in read_rows(path):
            if form is None:
                form = _find_form(row, where, order)
            if form.name == "lm-eval":
                first_filter = first_filter or _to_text(row["filter"], {})
                if _to_text(row.get("filter"), {}) != first_filter:
                    continue
            label = f"{form.name}, filter {first_filter}" if first_filter else form.name
            for response in _read_row(form, row, where, order):
                response["model"] = _to_text(model or response["model"] or path.stem, {})
                response["benchmark"] = order.benchmark or response["benchmark"] or "all"
                response["form"] = label
                if response["sample"] is None:
                    key = tuple(response[name] for name in KEYS[:-1])
                    response["sample"] = sample_counts[key]
                    sample_counts[key] += 1
                yield response
        if form is None:
            raise unreadable(path, "it has no row of results", "name a file with results")


def _find_form(row: Mapping[str, Any], where: str, order: ResultFiles) -> ResultForm:
    """Return the form of a result file by its first row, with the paths of `--column` in place of the form's own.

    Args:
        row: The first row.
        where: Place of the row, for messages.
        order: The import.

    Raises:
        Problem: E0436 if the row has no known form, and no options name its columns.
    """
    if all(name in row for name in SPEED_FIELDS):
        raise unreadable(
            where, "these are speeds, not results: no answer was graded", "give graded responses"
        )
    form = form_of(row)
    if form is None and not order.columns:
        names = ", ".join(f"`{shown(name)}`" for name in list(row)[:20] if name not in ("head", "file"))
        options = " ".join(f"--column {n}=NAME" for n in ("question", "correct", "tokens") if n not in row)
        raise problem(
            "E0436",
            "this form of results is not known",
            where=where,
            notes=[f"its first row has {names}"],
            help=f"name the fields: `{options}`, with points for nested fields (`usage.output_tokens`)",
        )
    form = form or PLAIN
    return ResultForm(form.name, form.has, {**form.columns, **order.columns})


def _read_row(
    form: ResultForm, row: Mapping[str, Any], where: str, order: ResultFiles
) -> Iterator[dict[str, Any]]:
    """Yield the responses of a row of a result file, and turn any error into E0436.

    Args:
        form: Form of the file.
        row: The row.
        where: Place of the row, for messages.
        order: The import.
    """
    try:
        yield from _unroll(form, row, where, order)
    except (TypeError, ValueError, RecursionError) as why:
        raise unreadable(
            where, f"this row does not have the file's form: {first_line(why)}", "correct or remove the row"
        ) from None


def _unroll(
    form: ResultForm, row: Mapping[str, Any], where: str, order: ResultFiles
) -> Iterator[dict[str, Any]]:
    """Yield the responses of a row: one for each entry of its lists, or a single response without lists.

    Verdicts on forced answers are in fields such as `correct@512`. If a row has several responses and a single score, the
    responses have no verdict, since the score may belong to any of them.

    Args:
        form: Form of the file.
        row: The row.
        where: Place of the row, for messages.
        order: The import.

    Raises:
        Problem: E0436 if the lists have different lengths, or a value is wrong or ambiguous.
    """
    values: dict[str, Any] = {}
    ambiguity = ""
    for name, path in form.columns.items():
        try:
            values[name] = find(row, path)
        except LookupError as entries:
            ambiguity = ambiguity or str(entries)
    names = [name for name in row if name.startswith("correct")]
    if any(len(name) > LONGEST_NAME for name in names):
        raise unreadable(
            where, f"a field's name has more than {LONGEST_NAME} characters", "rename or remove the field"
        )
    forced = {int(m[1]): row[name] for name in names if (m := _AT.fullmatch(name))}
    lists = [name for name, path in form.columns.items() if path.endswith("[]")]
    columns = [*(values.get(name) for name in lists), *forced.values()]
    sizes = {len(value) for value in columns if isinstance(value, list) and value}
    if len(sizes) > 1:
        sizes_text = " and ".join(map(str, sorted(sizes)[:3]))
        raise unreadable(where, f"its lists have {sizes_text} values", "correct or remove the row")
    num_responses = sizes.pop() if sizes else 1
    for index in range(num_responses):
        response = {name: _entry(value, index) if name in lists else value for name, value in values.items()}
        if num_responses > 1 and "correct" not in lists:
            # A single score of several responses may belong to the first or to all together, so none is graded by it.
            response["correct"] = None
        elif ambiguity:
            raise unreadable(
                where,
                f"{shown(ambiguity)}, and it is not known which of them counts",
                "name the field: `--column correct=PATH`",
            )
        cuts = {budget: _entry(value, index) for budget, value in forced.items()}
        yield _make_response(response, cuts, row, where, order)


def _entry(value: Any, index: int) -> Any:
    """Return the entry of a list at an index, None for an empty list, or the value itself if it is no list."""
    return (value[index] if value else None) if isinstance(value, list) else value


def _make_response(
    values: Mapping[str, Any], cuts: Mapping[int, Any], row: Mapping[str, Any], where: str, order: ResultFiles
) -> dict[str, Any]:
    """Return a response in the columns of `SCHEMA`, with values of the right types; missing values are None.

    Args:
        values: Values by column, as found in the row.
        cuts: Verdicts on forced answers by budget in tokens.
        row: The row, in which attachments of texts are looked up.
        where: Place of the row, for messages.
        order: The import.

    Raises:
        Problem: E0436 for a missing question, or a value of a wrong type.
    """
    values = {
        name: None if is_missing(value) and not (name in _WORDS and isinstance(value, str)) else value
        for name, value in values.items()
    }
    response: dict[str, Any] = dict.fromkeys(SCHEMA) | {
        name: _to_text(values.get(name), row)
        for name in ("model", "benchmark", "question", "text", "response", "answer")
    }
    gold = values.get("gold")
    if isinstance(gold, list):
        gold = SEPARATOR.join(_to_text(entry, row) or "" for entry in gold if not is_missing(entry)) or None
    response["gold"] = _to_text(gold, row)
    if values.get("question") is None:
        raise unreadable(where, "this row names no question", "name the field: `--column question=NAME`")
    for name in ("seed", "sample", "tokens"):
        value = values.get(name)
        value = len(value) or None if isinstance(value, list) else value
        response[name] = None if value is None else _parse_whole(value, name, where)
    response["finish"] = _FINISH.get(str(values.get("finish")).lower())
    if values.get("correct") is not None:
        response["correct"] = _is_right(values["correct"], where, order.right_from)
    own_cuts, entries = values.get("at"), list[tuple[Any, Any]](cuts.items())
    if isinstance(own_cuts, list):
        # The form of a table that reodsl wrote.
        entries += [(entry.get("budget"), entry) for entry in own_cuts if isinstance(entry, Mapping)]
    elif isinstance(own_cuts, Mapping):
        entries += own_cuts.items()
    pairs = [pair for pair in entries if not is_missing(_verdict_of(pair[1]))]
    if pairs:
        response["at"] = sorted(
            ({"budget": _parse_whole(budget, "at", where), "correct": _is_right(_verdict_of(entry), where, order.right_from)}
             for budget, entry in pairs),
            key=lambda entry: entry["budget"],
        )  # fmt: skip
    return response


def _verdict_of(value: Any) -> Any:
    """Return the field `correct` of a forced answer that is a record, else the value itself."""
    return value.get("correct") if isinstance(value, Mapping) else value


def _to_text(value: Any, row: Mapping[str, Any]) -> str | None:
    """Return a value of a row as text; None for None.

    The entries of a list are joined. Of a record, such as a message, the reasoning comes first and the text follows.

    Args:
        value: A text, number, list of parts, or record with `reasoning`, `text` or `content`.
        row: The row, in which a text `attachment://NAME` is looked up.
    """
    if isinstance(value, str):
        name = value.removeprefix("attachment://")
        attachments = None if name == value else find(row, "attachments")
        text = str(attachments.get(name, value)) if isinstance(attachments, Mapping) else value
        # JSON may have lone surrogates, which Parquet cannot store.
        return text.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return "".join(_to_text(piece, row) or "" for piece in value)
    if isinstance(value, Mapping):
        return "".join(_to_text(value.get(name), row) or "" for name in ("reasoning", "text", "content"))
    return None if value is None else str(value)


def _parse_whole(value: Any, name: str, where: str) -> int:
    """Return a value as a whole number from 0 to less than 2**40.

    Args:
        value: A number, or a number as text.
        name: Column of the value, for the message.
        where: Place of the row, for the message.

    Raises:
        Problem: E0436 for another value.
    """
    try:
        number = float(value)
        if isinstance(value, bool) or not number.is_integer() or not 0 <= number < 1 << 40:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise unreadable(
            where, f"`{name}` is {str(value)[:40]!r}, which is no whole number from 0", "correct the value"
        ) from None
    return int(number)


def _is_right(value: Any, where: str, least_right: float | None) -> bool:
    """Return whether a score means a right answer.

    Args:
        value: A number, or a letter or truth value of inspect.
        where: Place of the row, for messages.
        least_right: Least score of a right answer, by `--right-from`; None if scores must be 0 or 1.

    Raises:
        Problem: E0436 if the score is no number, or between 0 and 1 without `--right-from`.
    """
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
    if least_right is None and score not in (0.0, 1.0):
        raise unreadable(
            where,
            f"a score is {score:g}, neither 0 nor 1",
            "name the least score of a right answer: `--right-from 1`",
        )
    return score == 1.0 if least_right is None else score >= least_right


def _open_tokenizer(name: str) -> Any:
    """Return the tokenizer of a folder or file on this machine, or of a model on the hub, from which it is downloaded.

    It raises E0803 if a text takes too long, since its maker may be a stranger.

    Args:
        name: Path of the folder or of tokenizer.json, or name of a model on the hub.

    Raises:
        Problem: E0436 if it is not found, E0803 if it cannot be read.
    """
    from runners.models.tokenizer import TimedTokenizer, report_unreadable, require_bounded_steps

    file = Path(name)
    try:
        if not file.exists():
            from huggingface_hub import hf_hub_download

            file = Path(hf_hub_download(name, "tokenizer.json"))
        folder = file if file.is_dir() else file.parent
        stat_plain(folder / "tokenizer.json")
    except Exception as why:  # errors of the hub have no common class
        raise unreadable(
            name,
            f"no tokenizer was found to count tokens: {why}"[:300],
            "name a folder with tokenizer.json, or a model on the hub",
        ) from None
    require_bounded_steps(folder)
    with report_unreadable(folder):
        return TimedTokenizer(open_tokenizer(folder / "tokenizer.json"), folder)


def _count_tokens(batch: Sequence[dict[str, Any]], tokenizer: Any, thinks: bool) -> None:
    """Count the tokens of the texts of responses that have no number of tokens.

    One is added for the stop token, except for a response that was cut off. Responses without a text stay uncounted.

    Args:
        batch: Responses in the columns of `SCHEMA`, which are changed.
        tokenizer: The tokenizer, or None to count nothing.
        thinks: Whether the model thinks, so that texts must have the end of its thinking.

    Raises:
        Problem: E0436 if the model thinks and no text has the end of thinking: the logs then seem to lack the thinking.
    """
    uncounted = [row for row in batch if row["tokens"] is None and row["response"] is not None]
    if tokenizer is None or not uncounted:
        return
    if (
        thinks
        and tokenizer.token_to_id(_CLOSE) is not None
        and not any(_CLOSE in row["response"] for row in uncounted)
    ):
        raise unreadable(
            shown(uncounted[0]["model"]),
            f"no response has {_CLOSE}, which is a token of the tokenizer: the reasoning seems to have been removed from the"
            " logs, so tokens cannot be counted",
            "log them completely (lm-eval: without `think_end_token`), or add `--no-thinking` if the model never thinks",
        )
    for row, encoded in zip(
        uncounted,
        tokenizer.encode_batch([row["response"] for row in uncounted], add_special_tokens=False),
        strict=True,
    ):
        row["tokens"] = len(encoded.ids) + (row["finish"] != "length")
        row["counted"] = True


def _settle_ended(batch: Sequence[dict[str, Any]]) -> None:
    """Set the verdict at each budget that a response does not exceed to the verdict on the whole response.

    This is how the curve J is defined: at such a budget nothing of the response is cut.

    Args:
        batch: Responses in the columns of `SCHEMA`, whose cuts in `at` are changed. Responses without a number of tokens
            or a verdict stay unchanged.
    """
    for row in batch:
        if row["tokens"] is not None and row["correct"] is not None:
            for cut in row["at"] or ():
                if cut["budget"] >= row["tokens"]:
                    cut["correct"] = row["correct"]


def _grade_ungraded(batch: Sequence[dict[str, Any]], verifier: Verifier) -> None:
    """Grade responses without a verdict as mathematics, by the last boxed answer in their text.

    Responses without a text or a reference answer stay without a verdict.

    Args:
        batch: Responses in the columns of `SCHEMA`, which are changed.
        verifier: The verifier of mathematics.
    """
    ungraded = [row for row in batch if row["correct"] is None and None not in (row["response"], row["gold"])]
    answers = [Claim(final_answer(row["response"]), row["gold"]) for row in ungraded]
    for row, answer, verdict in zip(ungraded, answers, verifier.grade(answers), strict=True):
        row |= {"answer": answer.text, "correct": verdict.correct, "graded": True}


def _keep_common(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows of the questions to which every model in the table has a response."""
    models = frame.select(pl.col("model").n_unique()).collect().item()
    shared = frame.group_by("benchmark", "question").agg(pl.col("model").n_unique() == models)
    return frame.join(
        shared.filter("model").select("benchmark", "question"), on=["benchmark", "question"], how="semi"
    )


def _check_table(frame: pl.LazyFrame) -> tuple[ImportCounts, ...]:
    """Check that all responses in a table are complete and unique, and return counts for each model, sorted by name.

    Raises:
        Problem: E0436 for a response without tokens or verdict, a repeated sample, or wrong budgets of forced answers.
    """
    keys = frame.select(*KEYS, "tokens", "correct").collect(engine="streaming")
    required = {
        "tokens": "have no number of tokens: add `--tokenizer MODEL` to count the tokens of their texts",
        "correct": "have neither a score nor a reference answer: name a field, `--column correct=NAME`",
    }
    if keys.is_empty():
        raise unreadable("the table", "no response is left", "check the files, and `--common`")
    for name, text in required.items():
        missing = keys.filter(pl.col(name).is_null())
        if missing.height:
            model = missing["model"][0]
            why, _, advice = text.partition(": ")
            raise unreadable(shown(model), f"{missing.height} responses {why}", advice)
    repeated = keys.filter(keys.select(KEYS).is_duplicated())
    if repeated.height:
        model, _, benchmark, question, sample = repeated.row(0)[:5]
        raise unreadable(
            shown(f"{model} on {benchmark}"),
            f"question `{shown(question)}` has sample {sample} twice",
            "name each file once, models with `--model`, and benchmarks that files do not name with `--benchmark`",
        )
    for mistake, row in find_faults(frame.select(COLUMNS)):
        model, _, benchmark, question, _ = frame.slice(row - 1, 1).select(KEYS).collect().row(0)
        raise unreadable(
            shown(f"{model} on {benchmark}: question {question}"),
            mistake,
            "force answers at the same budgets for all responses to a benchmark, or leave them out: `--ended`",
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
            # A token has about three characters or more; a lower median means that text was removed before logging.
            (pl.col("response").str.len_chars() / pl.col("tokens")).median().alias("density"),
        )
        .sort("model")
        .collect(engine="streaming")
    )
    return tuple(ImportCounts(**row) for row in rows.iter_rows(named=True))
