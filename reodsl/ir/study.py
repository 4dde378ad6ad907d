"""Studies: arms evaluated alike, frontiers, scores and the report; and the whole compiled spec around one."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from reodsl.ir.base import IR, Origin
from reodsl.ir.cluster import Cluster
from reodsl.ir.data import Data
from reodsl.ir.model import Forcing, Model
from reodsl.ir.reward import Measure
from reodsl.ir.setting import (
    CHECKPOINT,
    COUNT,
    HOURS,
    LENGTHS,
    NATURAL,
    SHARE,
    TOKENS,
    TOKENS0,
    WORDS,
    AnyOf,
    Block,
    Flag,
    Kind,
    ListOf,
    Num,
    OfKind,
    OneOf,
    Text,
    flatten,
    kind,
    setting,
    settings_below,
    settings_of,
)
from reodsl.ir.training import (
    ENGINE,
    Engine,
    Experiment,
    FromResults,
    FromTraining,
    Sampling,
    Source,
    Stage,
    Start,
)
from reodsl.ir.wording import Wording, name_wordings

CONFIDENCE = 0.95
"""The confidence of intervals if a spec names none."""
MEASURE = OfKind(("measure",), "a measure")


@kind("benchmark", parents=("benchmark",))
class Benchmark(IR):
    """Named evaluation questions."""

    name: str
    data: Data = setting(OfKind(("data",)), "the questions", "data = aime24_questions")


@kind("suite", parents=("suite",))
class Suite(IR):
    """An evaluation of a checkpoint: benchmarks, sampling and budgets.

    Accuracy and length are those of whole responses, up to the longest; REG integrates up to `reg_to`. A suite of accuracy
    alone has no `forcing`, and its grid is the longest response: no response goes on there.
    """

    presentation = frozenset({"name"})
    name: str
    benchmarks: tuple[Benchmark, ...] = setting(
        ListOf(OfKind(("benchmark",))), "what on", "benchmarks = [aime24, amc23]"
    )
    rollout: Sampling = flatten(Sampling)
    samples: int = setting(COUNT, "responses a question", "samples = 32")
    grid: tuple[int, ...] = setting(
        ListOf(TOKENS0, 2),
        "the budgets at which answers are forced; left out, only complete responses are graded",
        "grid = every(64 tokens, to: 1K tokens)",
        required=False,
    )
    reg_to: int = setting(
        TOKENS,
        "where REG's integral ends; left out, at the end of the grid",
        "reg_to = 16K tokens",
        required=False,
    )
    forcing: Forcing | None = setting(
        OfKind(("forcing",)),
        "how a cut response is made to answer; required with a grid",
        "forcing = dynasor",
        default=None,
    )
    wording: Wording | None = setting(
        OfKind(("wording",)), "the wording of the prompt; left out, the model's own prompt", default=None
    )
    wordings: tuple[Wording, ...] = setting(
        ListOf(OfKind(("wording",))),
        "a list of wordings: each question takes the first wording whose `when` and `share` admit it, "
        "and the last wording has neither",
        "wordings = [brief, full]",
        default=(),
        later=True,
    )
    reference: Start | None = setting(
        CHECKPOINT,
        "the model whose responses `ref` is in a `when`: usually the model that training started "
        "with, with its own prompt and this suite's sampling",
        "reference = checkpoint(start)",
        default=None,
        later=True,
    )
    reference_samples: int = setting(
        NATURAL, "samples of the `reference` per question, for `ref`", default=0, later=True
    )
    expected_length: int | None = setting(
        TOKENS, "mean tokens of a response, for the price alone", default=None
    )
    seed: int = setting(NATURAL, "draws the responses", default=0)


class Arm(IR):
    """A checkpoint with a name, evaluated on a suite; or responses that a model elsewhere gave to its questions."""

    name: str
    checkpoint: Source = Field(discriminator="kind")
    suite: Suite

    @property
    def is_trained(self) -> bool:
        """Return whether the arm's checkpoint is the result of a training."""
        return isinstance(self.checkpoint, FromTraining)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of the arm's experiment up to its checkpoint; empty if the arm is not trained."""
        start = self.checkpoint
        return start.experiment.stages[: start.stage + 1] if isinstance(start, FromTraining) else ()

    def name_wording(self, mode: int | None) -> str:
        """Return the name of the wording in which a response's question was asked.

        Args:
            mode: The position of the wording in the suite's list, from 0; None without a list.

        Returns:
            The name; empty for the model's own prompt, and for responses that were made elsewhere.
        """
        if isinstance(self.checkpoint, FromResults) and self.checkpoint.at is None:
            return ""
        names = name_wordings(self.suite.wordings)
        if mode is not None and 0 <= mode < len(names):
            return names[mode]
        return "" if self.suite.wording is None else self.suite.wording.name


@kind("curve")
class PublishedCurve(IR):
    """A published frontier's curve on the benchmark of its name."""

    benchmark: str
    budgets: tuple[int, ...] = setting(
        ListOf(TOKENS0, 2), "in tokens, increasing", "budgets = [0, 1K, 2K]", spelled="/budgets"
    )
    accuracy: tuple[float, ...] = setting(
        ListOf(SHARE, 2), "at each budget, as a fraction", "accuracy = [0.1, 0.4, 0.5]"
    )


class Frontier(IR):
    """The best of the arms `of` at each budget and benchmark; or, with `published`, curves given as numbers."""

    name: str
    base: ClassVar[Any] = setting(
        ListOf(OfKind(("model",), "a model"), lone=True),
        "the base model of everything in the frontier, or a list of base models",
        "base = qwen3_4b",
    )
    of: tuple[str, ...] = setting(
        ListOf(OfKind(("arm",), "an arm")),
        "the arms",
        "of: [base, vanilla]",
        default=(),
        required=True,
        spelled="envelope.of",
    )
    on: ClassVar[Any] = setting(
        OfKind(("suite",)), "the suite they must share", required=False, spelled="envelope.on"
    )
    to: int = setting(TOKENS, "the last budget", "to: 32K tokens", spelled="envelope.to")
    published: tuple[PublishedCurve, ...] = ()


FRONTIER = Kind(
    "frontier",
    "A published frontier: accuracy over budgets on each of its benchmarks.",
    settings_of(Frontier) | settings_below(PublishedCurve, "/"),
    parents=("frontier",),
    children=("curve",),
)
ENVELOPE = Kind(
    "envelope",
    "The best of some arms at each budget and benchmark.",
    settings_below(Frontier, "envelope."),
    form="call",
)


@kind("reg", form="call")
class Score(IR):
    """The reasoning efficiency gap: the area between a frontier and a model's curve.

    Intervals are over seeds and questions. `misfits` are why the frontier does not fit, where the spec allows that.
    """

    later = frozenset({"misfits"})
    frontier: str = setting(
        OfKind(("frontier",)), "what accuracy falls short of", "against: edge", spelled="against"
    )
    to: int = setting(TOKENS, "where the integral ends", "to: 16K tokens")
    approximate: ClassVar[Any] = setting(
        Flag(),
        "accept a published frontier of another base model, of other benchmarks, or with too few "
        "points; the report says so",
        default=False,
    )
    relative_to: str | None = setting(
        OfKind(("arm", *CHECKPOINT.kinds), "an arm"), "the arm that differences are relative to", default=None
    )
    confidence: float = setting(
        Num(low=0, high=1, above=True, below=True), "of the intervals", default=CONFIDENCE
    )
    misfits: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _drop_resamples(cls, value: Any) -> Any:
        """Return the data of a score without `resamples`, a setting of bootstrap intervals in older compiled specs."""
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if key != "resamples"}
        return value


@kind("row")
class PublishedRow(IR):
    """A row of a published table, named as the arm that it is compared with.

    It has one number for each benchmark of its table, or none of a measure that it does not give.
    """

    name: str
    title: str = setting(Text(), "its name in print", 'title = "Vanilla RL"')
    accuracy: tuple[float, ...] = setting(
        ListOf(SHARE, lone=True), "on each benchmark", required=False, default=()
    )
    length: tuple[float, ...] = setting(
        ListOf(LENGTHS, lone=True), "mean tokens of a response on each benchmark", required=False, default=()
    )
    reg: tuple[float, ...] = setting(
        ListOf(Num("tokens"), lone=True),
        "the reasoning efficiency gap on each benchmark",
        required=False,
        default=(),
    )
    reg_change: tuple[float, ...] = setting(
        ListOf(Num(), lone=True),
        "the change of REG relative to `relative_to`, such as -46.6%",
        required=False,
        default=(),
    )


@kind("published", parents=("published",), children=("row",))
class PublishedTable(IR):
    """A printed table, shown beside the measured numbers."""

    name: str
    doc: str
    benchmarks: tuple[str, ...] = setting(
        ListOf(Text()),
        "the columns of the table, by benchmark; `mean` is the mean over the benchmarks",
        'benchmarks = ["aime24", "mean"]',
    )
    relative_to: str | None = setting(Text(), "the row that changes of REG are relative to", default=None)
    rows: tuple[PublishedRow, ...]


@kind("table")
class Table(IR):
    """A table of the report: arms as rows.

    Lengths of the `balanced` subset are those of right responses.
    """

    name: str
    rows: tuple[str, ...] = setting(
        AnyOf((OneOf(("arms",)), ListOf(OfKind(("arm",), "an arm")))),
        "the arms",
        required=False,
        in_spec="arms",
    )
    columns: tuple[Literal["accuracy", "length", "reg"] | Measure, ...] = setting(
        ListOf(AnyOf((OneOf(("accuracy", "length", "reg")), MEASURE))),
        "what of each",
        "columns = [accuracy, length, reg]",
    )
    subset: Literal["all", "balanced"] = setting(
        WORDS,
        "all questions, or the questions that every arm solves in more than half of its samples",
        default="all",
    )
    published: PublishedTable | None = setting(
        OfKind(("published",)), "published numbers to show in the same table", default=None
    )

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the names of the table's columns: words of the language and names of measures."""
        return tuple(column.name if isinstance(column, Measure) else column for column in self.columns)


class BudgetRule(IR):
    """A rule for token budgets as a line of a chart: its schedules of one budget, of two, and so on up to its longest."""

    name: str
    l_max: int
    schedules: tuple[tuple[int, ...], ...]


@kind("chart")
class Chart(IR):
    """A chart of the report: arms and frontiers as lines, or rules for budgets over how many they choose.

    Over `count`, `budget` is the n-th smallest of all that a rule chooses, and `error` is that of the trapezoid rule on the
    score's frontier with n budgets, relative and without its sign (figure 3 of the paper).
    """

    later = frozenset({"rules"})
    name: str
    x: Literal["budget", "length", "step", "count"] = setting(WORDS, "along", "x = budget")
    y: Literal["accuracy", "reg", "reward", "length", "budget", "error"] | Measure = setting(
        AnyOf((OneOf(("accuracy", "reg", "reward", "length", "budget", "error")), MEASURE)),
        "up",
        "y = accuracy",
    )
    lines: tuple[str, ...] = setting(
        ListOf(OfKind(("arm", "frontier", "budgets"), "an arm, a frontier or budgets")),
        "what is drawn",
        "lines = [base, reo_exp]",
    )
    rules: tuple[BudgetRule, ...] = ()

    @property
    def y_key(self) -> str:
        """Return what the vertical axis shows: a word of the language, or the name of a measure."""
        return self.y.name if isinstance(self.y, Measure) else self.y


@kind("study", children=("arm", "frontier"))
class Study(IR):
    """Arms that are evaluated alike, a frontier over some of the arms, and the report: everything that a run does.

    A study without arms has published frontiers or rules for budgets, and a chart of them.
    Every arm is trained and evaluated once a seed; what experiments share is trained and evaluated once for all of them.
    An experiment that has a part of `cluster` for itself has its own. Engines draw from other random streams, so what is
    sampled depends on `engine`.
    """

    presentation = frozenset({"name", "doc", "unequal"})
    name: str
    doc: str = ""
    seeds: tuple[int, ...] = setting(
        ListOf(NATURAL),
        "the seeds: every arm is trained once for each seed",
        required=False,
        in_spec=(1,),
        spelled="replicate",
    )
    eval: ClassVar[Any] = setting(
        OfKind(("suite",)), "the suite of every arm that names no suite", required=False
    )
    score: Score | None = setting(
        OfKind(("reg",), "`reg(…)`"),
        "the score of an arm against a frontier",
        "score = reg(against: edge, to: 16K tokens)",
        default=None,
    )
    report: ClassVar[Any] = setting(Block("report"), "tables and charts", required=False)
    cluster: Cluster | None = setting(OfKind(("cluster",)), "where it runs", default=None)
    engine: Engine = ENGINE  # what generates the responses of evaluations
    limit: float | None = setting(HOURS, "the most that may be spent", default=None)
    unequal: str | None = setting(
        Text(),
        "why the arms train for unequal amounts: it silences W0608, and the report shows it",
        'unequal = "each stage of the schedule is a row"',
        default=None,
        later=True,
    )
    arms: tuple[Arm, ...]  # in the order of the spec
    frontiers: tuple[Frontier, ...] = ()  # the frontiers that a report draws or scores by
    tables: tuple[Table, ...] = ()  # tables of the report
    charts: tuple[Chart, ...] = ()  # charts of the report

    @property
    def models(self) -> tuple[Model, ...]:
        """Return the distinct models from which all checkpoints of the study descend.

        These are the checkpoints of arms, of the reference models of suites, and of the pools and teachers of stages.
        Imported responses without a checkpoint have no model here.
        """
        checkpoints = [arm.checkpoint for arm in self.arms]
        starts = [start.at if isinstance(start, FromResults) else start for start in checkpoints]
        starts += [arm.suite.reference for arm in self.arms]
        waiting = [start for start in starts if start is not None]
        seen: dict[int, Experiment] = {}
        for start in waiting:
            for experiment in start.experiments:
                if id(experiment) not in seen:
                    seen[id(experiment)] = experiment
                    waiting += [other for stage in experiment.stages for other in stage.others]
        return tuple(dict.fromkeys(start.model for start in waiting))

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Return the distinct measures that tables and charts show."""
        columns = (
            *(column for table in self.tables for column in table.columns),
            *(chart.y for chart in self.charts),
        )
        return tuple(dict.fromkeys(column for column in columns if isinstance(column, Measure)))

    @property
    def confidence(self) -> float:
        """Return the confidence of intervals: the score's, or the usual one without a score."""
        return self.score.confidence if self.score is not None else CONFIDENCE

    def arm(self, name: str) -> Arm:
        """Return the arm named `name`."""
        return next(arm for arm in self.arms if arm.name == name)


REPORT = Kind("report", "Tables and charts.", {}, form="block", children=("table", "chart"))


class Change(IR):
    """A `--set` or `--amend` of the command line, shown in plan and report as not saved in a spec."""

    option: str
    target: str
    value: str


class Spec(IR):
    """A compiled spec. Only `study` is part of its identity.

    `origins` are the lines that declare its arms and frontiers, by name; its values know those that gave their settings.
    `folder` is where relative data paths start. `sources` holds the text of every file that took part, by path, for report
    and provenance.
    """

    presentation = frozenset({"path", "folder", "changes", "origins", "sources", "params"})
    study: Study  # the only part of its identity
    path: str = ""  # path of the file
    folder: str = ""  # where relative data paths start
    params: dict[str, str] = {}  # values of parameters, by name
    changes: tuple[Change, ...] = ()  # changes by the command line
    origins: dict[str, Origin] = {}  # lines that declare arms and frontiers, by name
    sources: dict[str, str] = {}  # texts of all files, by path
