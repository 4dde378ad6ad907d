"""Responses of any models in one table, as `reodsl import` writes it: their curves, and their scores with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from reodsl.diagnostics import first_line, problem
from reodsl.numbers.arm_scores import ArmScores, scores_of
from reodsl.numbers.curves import Curve, Curves, common_kind
from reodsl.numbers.intervals import Interval, Scores, score_arms
from reodsl.numbers.shares import in_percent

if TYPE_CHECKING:
    import polars as pl

COLUMNS = (
    "model", "seed", "benchmark", "question", "sample", "text", "gold", "response", "tokens", "finish", "answer",
    "correct", "at",
)  # fmt: skip
"""A row is a response. `at` holds its forced answers, `{budget, correct}`, and is null where there are none."""

KEYS = ("model", "seed", "benchmark", "question", "sample")
"""Columns that tell two responses apart."""
MAX_NAME_CHARS = 300
"""Characters of a model's or a benchmark's name."""
MAX_LOT_ROWS = 1 << 31
"""Rows of forced answers, more than any table has."""
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
    """Paths of fields by our columns, which replace those of a file's form."""
    tokenizer: str | None = None
    """A folder, file or name on the hub, which counts tokens if a file has no counts."""
    right_from: float | None = None
    """The least score of a right answer; without it scores are 0 or 1."""
    common: bool = False
    """True if only the questions that all models have are imported."""
    leave_out_forced: bool = False
    """True if forced answers are left out."""
    thinks: bool = True
    """True if texts are refused from which the reasoning seems to be missing."""


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """The counts of an import for a model."""

    model: str
    """The model's name."""
    form: tuple[str, ...]
    """The forms of its files."""
    questions: int
    """Its questions."""
    responses: int
    """Its responses."""
    counted: int
    """Responses whose tokens were counted here."""
    graded: int
    """Responses that were graded here."""
    unfinished: int
    """Responses that were cut off."""
    forced: bool
    """True if all responses have forced answers."""
    density: float | None
    """The median of characters for each token; None without texts."""

    @property
    def kind(self) -> str:
        """Return the kind of curve that these responses give."""
        return "J" if self.forced else "ended"


@dataclass(frozen=True, slots=True)
class Responses:
    """The responses in a file: the `kind` of curve that each model's give, and its `seeds`, of which none is none.

    `budgets` are those of forced answers. `cut` is the number of tokens at which the first response of a model was cut
    off; up to there `ended` curves are known.
    """

    path: Path
    frame: pl.LazyFrame
    kinds: Mapping[str, str]
    seeds: Mapping[str, tuple[int | None, ...]]
    cut: Mapping[str, int | None]
    budgets: tuple[int, ...]


def holds_responses(path: Path) -> bool:
    """Return whether a file has the columns of a table of responses."""
    import polars as pl

    if path.suffix.lower() not in (".parquet", ".pq") or not path.is_file():
        return False
    try:
        return set(COLUMNS) <= pl.scan_parquet(path, glob=False).collect_schema().keys()
    # polars has no one error for a file that is not what its ending says.
    except (Exception, pl.exceptions.PanicException):
        return False


def require_table(path: Path) -> pl.LazyFrame:
    """Return the responses of a table, whoever made it. Raises E0421 for the first thing that makes it none.

    Its columns have their types. A response has a name of its own, tokens, a score, and one verdict at each budget at which
    answers were forced out of its model's responses to its benchmark. All of the file is read once.
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
    # The same for bytes that are not those that were written.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as fault:
        words = f"the table cannot be read: {first_line(fault)}"
        raise problem("E0421", words, where=str(path), help="copy it again, or import it again") from None
    return frame


def find_faults(frame: pl.LazyFrame) -> Iterator[tuple[str, int]]:
    """Yield faults in the values of a table, each with its first row, counted from 1."""
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
        "a budget is there twice": forced_at.list.eval(budget).list.n_unique() < forced_at.list.len(),
    }
    firsts = rows.select(
        *(pl.col("row").filter(fault).min().alias(words) for words, fault in faults.items()),
        # Texts are in no fault, and may be damaged.
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
            "this response is there twice: model, seed, benchmark, question and sample are those of one before it",
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
    """Read what a table of responses holds.

    Raises E0421 for what is no table, and E0431 for a model of which some responses alone were forced.
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
                f"`{model}` has forced answers for {in_percent(forced)}% of its responses alone",
                where=str(path),
                help="force answers for all of them, or import them again without: `--ended`",
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
    """Check that the responses of models are known up to `end` tokens, where nothing is forced. Raises E0424."""
    for name in models:
        cut = responses.cut[name]
        if responses.kinds[name] == "ended" and cut is not None and cut < end:
            raise problem(
                "E0424",
                f"responses of `{name}` were cut off at {cut} tokens, and this goes to {end}: nothing says which would"
                " have ended by then",
                where=str(responses.path),
                help=f"stop there: add `--l-max {cut}` (`--to {cut}` of `reodsl frontier`)",
            )


def _forced(samples: pl.LazyFrame, kind: str, points: Sequence[int], most: bool = False) -> pl.LazyFrame:
    """Return a row for each response and budget; with `most`, longer responses count as right where nothing was forced."""
    import polars as pl

    keys = ["benchmark", "question"]
    if kind == "J":
        return samples.select(*keys, "at").explode("at").unnest("at")
    longer = pl.col("tokens") > pl.col("budget")
    right = pl.col("correct") | longer if most else pl.col("correct") & ~longer
    grid = pl.LazyFrame({"budget": list(points)}, schema={"budget": pl.Int64})
    return samples.select(*keys, "tokens", "correct").join(grid, how="cross").with_columns(correct=right)


def curves_by_model(responses: Responses, points: Sequence[int]) -> dict[str, Curves]:
    """Return the curves of each model over all its responses; `ended` curves have the budgets `points`."""
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
    """Check that all models have the same questions. Raises E0431, which names some that are not everywhere."""
    import polars as pl

    every = len(responses.kinds)
    lacking = (
        responses.frame.group_by("benchmark", "question")
        .agg(pl.col("model").unique().sort())
        .filter(pl.col("model").list.len() < every)
        .sort("benchmark", "question")
        .collect(engine="streaming")
    )
    if lacking.height:
        examples = lacking.head(3).iter_rows()
        raise problem(
            "E0431",
            f"{lacking.height} questions are not those of all models, and are paired with nothing",
            where=str(responses.path),
            notes=[f"`{question}` of {b} is of {', '.join(of)} alone" for b, question, of in examples],
            help="import responses of all models to the same questions, or import again what all have: `--common`",
        )


@dataclass(frozen=True, slots=True)
class ResponseScores:
    """A row of `score_responses`: `scores`, in which REG and its difference are None where they are not sound.

    For `ended` responses `low` and `high` are the ends between which REG lies, with their intervals, where a frontier is
    given. `auc_oaa` is the area under the `ended` curve as a share of the longest budget, and `auc_oaa_change` its
    difference from the baseline.
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
    """Return the sound scores of each model on each benchmark and their mean, paired by question.

    `frontier` names models, whose best it is, or is curves; without it only differences are scored. All models are of
    the same kind. Raises `Problem` for different questions, and for `ended` models as a frontier.
    """
    import polars as pl

    kind = common_kind((f"`{name}`", Curve((0,), (0.0,), of)) for name, of in responses.kinds.items())
    check_paired(responses)
    edge = frontier if frontier is not None else list(responses.kinds)[:1]
    if kind == "ended" and frontier is not None and not isinstance(frontier, Mapping):
        raise problem(
            "E0435",
            "a frontier of `ended` responses gives no REG, and bounds none",
            help="leave out `--of`, or give a frontier of the kind `J`: `--frontier`",
        )
    seeds = sorted({seed for seeds_ in responses.seeds.values() for seed in seeds_ if seed is not None}) or [
        0
    ]

    def rows(most: bool) -> list[Scores]:
        arms: dict[str, list[ArmScores]] = {}
        budgets: tuple[int, ...] = ()
        for name, of_model in responses.seeds.items():
            for seed in of_model:
                mine = (pl.col("model") == name) & pl.col("seed").eq_missing(seed)
                samples = responses.frame.filter(mine)
                forced = _forced(samples, kind, points, most)
                if most:
                    saved = (points[-1] - pl.col("tokens")).clip(lower_bound=0) / points[-1]
                    samples = samples.with_columns(correct=pl.col("correct") * saved)
                # These rows are made anew at each reading, in no one order: they are read once.
                scores, columns = scores_of(samples, forced, name, MAX_LOT_ROWS)
                budgets = budgets or columns
                arms.setdefault(name, []).append(scores)
        every = score_arms(
            arms, budgets, edge, seeds=seeds, l_max=points[-1], grid=points, relative_to=relative_to
        )
        return [row for row in every if row.seed is None]

    under = rows(False)
    if kind == "J":
        return tuple(ResponseScores(row if frontier is not None else replace(row, reg=None)) for row in under)
    return tuple(
        ResponseScores(
            replace(low, reg=None, difference=None),
            high.reg if frontier is not None else None,
            low.reg if frontier is not None else None,
            high.accuracy,
            high.accuracy_change,
        )
        for low, high in zip(under, rows(True), strict=True)
    )
