"""Responses of any models in one table, as `reodsl import` writes it: their curves, and their scores with intervals."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from reodsl.diagnostics import first_line, in_percent, problem
from reodsl.numbers.arm_scores import ArmScores, scores_of
from reodsl.numbers.curves import Curve, Curves, common_kind
from reodsl.numbers.intervals import Interval, Scores, score_arms

if TYPE_CHECKING:
    import polars as pl

COLUMNS = (
    "model", "seed", "benchmark", "question", "sample", "text", "gold", "response", "tokens", "finish", "answer",
    "correct", "at",
)  # fmt: skip
"""A row is a response. `at` holds its forced answers, `{budget, correct}`, and is null without forced answers."""

KEYS = ("model", "seed", "benchmark", "question", "sample")
"""Columns that tell two responses apart."""
MAX_NAME_CHARS = 300
"""Characters of a model's or a benchmark's name."""
MAX_LOT_ROWS = 1 << 31
"""More rows of forced answers than any table has, so that all are read at once."""
_TYPES = dict.fromkeys(COLUMNS, "String") | {
    "seed": "Int64",
    "sample": "Int64",
    "tokens": "Int64",
    "correct": "Boolean",
    "at": "List(Struct({'budget': Int64, 'correct': Boolean}))",
}
_REIMPORT = "make the table again: `reodsl import {} -o again.parquet`"
_REMEDY = "mend it where the table was made, or make the table by `reodsl import`, which sees to this"


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """The files of an import, each with its model if the command names it, and the table to write."""

    files: tuple[tuple[Path, str | None], ...]
    """Each file, and the model that the command names for it."""
    out: Path
    """The table to write."""
    benchmark: str | None = None
    """The benchmark's name, if the command gives it."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Paths of fields in the files by column of the table, in place of the paths of a file's format."""
    tokenizer: str | None = None
    """A tokenizer's folder, file or name on the hub, to count tokens if a file has no counts."""
    right_from: float | None = None
    """The least score of a right answer; without it scores are 0 or 1."""
    common: bool = False
    """True if only the questions that all models have are imported."""
    leave_out_forced: bool = False
    """True if forced answers are left out."""
    thinks: bool = True
    """True if a file is refused whose texts seem to lack the reasoning."""


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """The counts of an import for a model."""

    model: str
    """The model's name."""
    form: tuple[str, ...]
    """The formats of the model's files."""
    questions: int
    """The number of questions."""
    responses: int
    """The number of responses."""
    counted: int
    """Responses whose tokens the import counted."""
    graded: int
    """Responses that the import graded."""
    unfinished: int
    """Responses that were cut off."""
    forced: bool
    """True if all responses have forced answers."""
    density: float | None
    """The median number of characters per token; None without texts."""

    @property
    def kind(self) -> str:
        """Return the kind of curve that these responses give: `J` with forced answers, else `ended`."""
        return "J" if self.forced else "ended"


@dataclass(frozen=True, slots=True)
class Responses:
    """The responses in a file: the kind of each model's curves (`kinds`) and its seeds, None for a missing seed.

    `budgets` are the budgets of forced answers. `cut` is the least number of tokens at which a response of each model was
    cut off, up to which its `ended` curve is known; None if no response was cut off.
    """

    path: Path
    frame: pl.LazyFrame
    kinds: Mapping[str, str]
    seeds: Mapping[str, tuple[int | None, ...]]
    cut: Mapping[str, int | None]
    budgets: tuple[int, ...]


def missing_columns(path: Path) -> list[str]:
    """Return the columns of a table of responses that a file lacks: all of them if it is no readable Parquet file."""
    import polars as pl

    found: Collection[str] = ()
    if path.suffix.lower() in (".parquet", ".pq") and path.is_file():
        # polars raises no single class of error for a file with a wrong suffix.
        with suppress(Exception, pl.exceptions.PanicException):
            found = pl.scan_parquet(path, glob=False).collect_schema().keys()
    return [name for name in COLUMNS if name not in found]


def holds_responses(path: Path) -> bool:
    """Return whether a file is Parquet with the columns of a table of responses."""
    return not missing_columns(path)


def require_table(path: Path) -> pl.LazyFrame:
    """Return the rows of a table of responses after a check of all its values.

    Every column must have its type. Every response must have a unique key (`KEYS`, of which only the seed may be
    missing), a number of tokens and a verdict. A model's forced answers on a benchmark must be at the same budgets.

    Args:
        path: A Parquet file with the columns of a table of responses, as `holds_responses` finds.

    Raises:
        Problem: E0421 for the first fault.
    """
    import polars as pl

    try:
        frame = pl.scan_parquet(path, glob=False)
        types = {name: str(kind) for name, kind in frame.collect_schema().items()}
        wrong = next((name for name, kind in _TYPES.items() if types[name] != kind), None)
        if wrong is not None:
            words = (
                f"`{wrong}` has the type {types[wrong]}, and a table of responses has {_TYPES[wrong]} there"
            )
            raise problem("E0421", words, where=str(path), help=_REIMPORT.format(path))
        for words, row in find_faults(frame):
            raise problem("E0421", words, where=f"{path}: row {row}", help=_REMEDY)
    # The file is damaged.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as fault:
        words = f"the table cannot be read: {first_line(fault)}"
        raise problem("E0421", words, where=str(path), help="copy it again, or import it again") from None
    return frame


def find_faults(frame: pl.LazyFrame) -> Iterator[tuple[str, int]]:
    """Yield each kind of fault in the values of a table of responses; none if the table is valid.

    Yields:
        The fault in words, and the number of the first row that has it, from 1.
    """
    import polars as pl

    budget, correct = (pl.element().struct.field(name) for name in ("budget", "correct"))
    forced_at, rows = pl.col("at"), frame.with_row_index("row", 1)
    faults = {
        f"`{name}` is missing": pl.col(name).is_null()
        for name in (*KEYS, "tokens", "correct")
        if name != "seed"
    }
    faults |= {
        f"`{name}` has more than {MAX_NAME_CHARS} characters": pl.col(name).str.len_chars() > MAX_NAME_CHARS
        for name in ("model", "benchmark")
    }
    faults |= {
        "`tokens` is below 0": pl.col("tokens") < 0,
        "`finish` is neither `stop` nor `length`": ~pl.col("finish").is_in(["stop", "length"]),
        "a forced answer has no budget from 0, or no verdict": forced_at.list.eval(
            budget.is_null() | correct.is_null() | (budget < 0)
        ).list.any(),
        "a budget is listed twice": forced_at.list.eval(budget).list.n_unique() < forced_at.list.len(),
    }
    firsts = rows.select(
        *(pl.col("row").filter(fault).min().alias(words) for words, fault in faults.items()),
        # No fault reads texts, but a damaged text has to be found too.
        *(pl.col(name).null_count().alias(name) for name in COLUMNS),
    )
    first_rows = firsts.collect(engine="streaming").row(0, named=True)
    yield from ((words, first_rows[words]) for words in faults if first_rows[words] is not None)
    twice = (
        rows.group_by(KEYS)
        .agg(pl.len(), pl.col("row").max())
        .filter(pl.col("len") > 1)
        .select(pl.col("row").min())
    )
    if (row := twice.collect(engine="streaming").item()) is not None:
        yield (
            "this response is listed twice: an earlier row has its model, seed, benchmark, question and sample",
            row,
        )
    keys = ["model", "benchmark"]
    forced = rows.filter(forced_at.is_not_null()).select(
        *keys, "row", forced_at.list.eval(budget).list.sort().alias("budgets")
    )
    firsts = forced.group_by(keys).agg(pl.col("budgets").first(), pl.col("row").first())
    other = forced.join(firsts, on=keys, suffix="_first").filter(pl.col("budgets") != pl.col("budgets_first"))
    if (row := other.select(pl.col("row").min()).collect(engine="streaming").item()) is not None:
        yield "answers are forced at other budgets than in other responses to this benchmark", row


def read_responses(path: Path) -> Responses:
    """Read a table of responses: its models, their kinds of curve and seeds, and the budgets of forced answers.

    Raises:
        Problem: E0421 for a file that is not a valid table, E0431 for a model with forced answers for only some
            responses.
    """
    import polars as pl

    frame = require_table(path)
    facts = (
        frame.group_by("model", maintain_order=True)
        .agg(
            pl.col("at").is_not_null().mean().alias("forced"),
            pl.col("seed").unique().sort().alias("seeds"),
            pl.col("tokens").filter(pl.col("finish") == "length").min().alias("cut"),
        )
        .collect(engine="streaming")
        .sort("model")
    )
    for model, forced in facts.select("model", "forced").iter_rows():
        if 0 < forced < 1:
            raise problem(
                "E0431",
                f"`{model}` has forced answers for only {in_percent(forced)}% of its responses",
                where=str(path),
                help="force answers for all responses, or import them again without forced answers: `--ended`",
            )
    budgets = (
        frame.select(pl.col("at").explode().struct.field("budget").unique().sort().drop_nulls())
        .collect(engine="streaming")
        .to_series()
    )
    rows = facts.to_dicts()
    return Responses(
        path,
        frame,
        {row["model"]: "J" if row["forced"] else "ended" for row in rows},
        {row["model"]: tuple(row["seeds"]) for row in rows},
        {row["model"]: row["cut"] for row in rows},
        tuple(int(budget) for budget in budgets),
    )


def check_end(responses: Responses, models: Sequence[str], end: int) -> None:
    """Check that responses without forced answers were not cut off before `end` tokens.

    Args:
        responses: The table of responses.
        models: Names of the models that are checked.
        end: The last budget, in tokens.

    Raises:
        Problem: E0424 for the first model whose responses were cut off earlier.
    """
    for name in models:
        cut = responses.cut[name]
        if responses.kinds[name] == "ended" and cut is not None and cut < end:
            raise problem(
                "E0424",
                f"responses of `{name}` were cut off at {cut} tokens, so it is unknown which of them would have ended"
                f" by {end} tokens",
                where=str(responses.path),
                help=f"stop there: add `--l-max {cut}` (`--to {cut}` of `reodsl frontier`)",
            )


def _forced(samples: pl.LazyFrame, kind: str, points: Sequence[int], upper: bool = False) -> pl.LazyFrame:
    """Return a row for each response and budget that says whether the answer at this budget counts as right.

    For `J` it is the verdict on the forced answer. An `ended` response counts with its verdict from its length on; at
    smaller budgets it counts as `upper` says.

    Args:
        samples: Responses of a model.
        kind: `J` for responses with forced answers, else `ended`.
        points: The budgets of `ended` responses, in tokens.
        upper: Whether an `ended` response counts as right at budgets below its length; otherwise it counts as wrong.
            The two choices bound the accuracy of forced answers from above and below.

    Returns:
        Columns `benchmark`, `question`, `budget` and `correct`.
    """
    import polars as pl

    keys = ["benchmark", "question"]
    if kind == "J":
        return samples.select(*keys, "at").explode("at").unnest("at")
    longer = pl.col("tokens") > pl.col("budget")
    right = pl.col("correct") | longer if upper else pl.col("correct") & ~longer
    grid = pl.LazyFrame({"budget": list(points)}, schema={"budget": pl.Int64})
    return samples.select(*keys, "tokens", "correct").join(grid, how="cross").with_columns(correct=right)


def curves_by_model(responses: Responses, points: Sequence[int]) -> dict[str, Curves]:
    """Return each model's accuracy by budget on each benchmark, over all its responses.

    Args:
        responses: The table of responses.
        points: The budgets of `ended` curves, in tokens; `J` curves have the budgets of forced answers.
    """
    import polars as pl

    models: dict[str, Curves] = {}
    for name, kind in responses.kinds.items():
        rows = _forced(responses.frame.filter(pl.col("model") == name), kind, points)
        means = (
            rows.group_by("benchmark", "budget")
            .agg(pl.col("correct").cast(pl.Float64).mean())
            .sort("benchmark", "budget")
            .collect(engine="streaming")
        )
        models[name] = {
            str(benchmark): Curve(tuple(rows_["budget"].to_list()), tuple(rows_["correct"].to_list()), kind)
            for (benchmark,), rows_ in means.group_by("benchmark", maintain_order=True)
        }
    return models


def check_paired(responses: Responses) -> None:
    """Check that all models have responses to the same questions.

    Raises:
        Problem: E0431, which names up to three questions that some models lack.
    """
    import polars as pl

    num_models = len(responses.kinds)
    lacking = (
        responses.frame.group_by("benchmark", "question")
        .agg(pl.col("model").unique().sort())
        .filter(pl.col("model").list.len() < num_models)
        .sort("benchmark", "question")
        .collect(engine="streaming")
    )
    if lacking.height:
        examples = lacking.head(3).iter_rows()
        raise problem(
            "E0431",
            f"{lacking.height} questions lack responses of some models, so they cannot be paired",
            where=str(responses.path),
            notes=[f"`{question}` of {b}: only {', '.join(names)}" for b, question, names in examples],
            help="import responses of all models to the same questions, or only the common questions: `--common`",
        )


@dataclass(frozen=True, slots=True)
class ResponseScores:
    """A row of `score_responses`. In `scores`, REG and its difference are None if the responses do not give them.

    For `ended` responses scored against a frontier, REG lies between `low` and `high`. `auc_oaa` is the area under
    the `ended` curve as a share of the longest budget, and `auc_oaa_change` its difference from the baseline.
    """

    scores: Scores
    low: Interval | None = None
    high: Interval | None = None
    auc_oaa: Interval | None = None
    auc_oaa_change: Interval | None = None


def score_responses(
    responses: Responses,
    points: Sequence[int],
    frontier: Sequence[str] | Curves | None = None,
    relative_to: str | None = None,
) -> tuple[ResponseScores, ...]:
    """Return the scores of each model on each benchmark and on their mean, paired by question.

    `ended` responses are scored twice: with wrong and with right answers at budgets below a response's length. The two
    give an upper and a lower bound of REG.

    Args:
        responses: The table of responses, all of one kind.
        points: The points of integration, in tokens.
        frontier: Models whose best makes the frontier, or curves; None to score only differences.
        relative_to: The baseline, if any.

    Returns:
        Rows over all seeds. For `ended` responses REG has only bounds. Without a frontier, REG and its bounds are None.

    Raises:
        Problem: E0431 if models have different questions, E0435 for `ended` models as a frontier.
    """
    import polars as pl

    kind = common_kind((f"`{name}`", Curve((0,), (0.0,), of)) for name, of in responses.kinds.items())
    check_paired(responses)
    edge = frontier if frontier is not None else list(responses.kinds)[:1]
    if kind == "ended" and frontier is not None and not isinstance(frontier, Mapping):
        raise problem(
            "E0435",
            "a frontier of `ended` responses gives neither REG nor bounds of REG",
            help="leave out `--of`, or give a frontier of the kind `J`: `--frontier`",
        )
    seeds = sorted({seed for seeds_ in responses.seeds.values() for seed in seeds_ if seed is not None}) or [
        0
    ]

    def rows(upper: bool) -> list[Scores]:
        """Return the scores of all models over all seeds.

        Args:
            upper: Whether an `ended` response counts as right at budgets below its length, which gives the lower bound
                of REG. Accuracy is then also multiplied by the share of the longest budget that the response leaves
                unused. This mean is the area under the `ended` curve as a share of the longest budget, AUC_OAA.
        """
        arms: dict[str, list[ArmScores]] = {}
        budgets: tuple[int, ...] = ()
        for name, of_model in responses.seeds.items():
            for seed in of_model:
                is_chosen = (pl.col("model") == name) & pl.col("seed").eq_missing(seed)
                samples = responses.frame.filter(is_chosen)
                forced = _forced(samples, kind, points, upper)
                if upper:
                    saved = (points[-1] - pl.col("tokens")).clip(lower_bound=0) / points[-1]
                    samples = samples.with_columns(correct=pl.col("correct") * saved)
                # Each reading gives these rows in another order, so they are read once.
                scores, columns = scores_of(samples, forced, name, MAX_LOT_ROWS)
                budgets = budgets or columns
                arms.setdefault(name, []).append(scores)
        every = score_arms(
            arms, budgets, edge, seeds=seeds, l_max=points[-1], grid=points, relative_to=relative_to
        )
        return [row for row in every if row.seed is None]

    lower = rows(False)
    if kind == "J":
        return tuple(ResponseScores(row if frontier is not None else replace(row, reg=None)) for row in lower)
    return tuple(
        ResponseScores(
            replace(low, reg=None, difference=None),
            high.reg if frontier is not None else None,
            low.reg if frontier is not None else None,
            high.accuracy,
            high.accuracy_change,
        )
        for low, high in zip(lower, rows(True), strict=True)
    )
