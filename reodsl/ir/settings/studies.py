"""Studies: suites, clusters, arms, frontiers, scores and reports."""

# Annotations are read as they are: no `from __future__ import annotations` here.

from typing import Annotated, Any, ClassVar, Literal

from reodsl.ir.setting import (
    WORDS,
    A,
    Block,
    Choice,
    Either,
    Flag,
    Kind,
    Many,
    Num,
    Setting,
    Text,
    kind,
)
from reodsl.ir.settings.training import TRAINING
from reodsl.ir.settings.types import (
    CHECKPOINT,
    COUNT,
    HOURS,
    LENGTHS,
    NATURAL,
    POSITIVE,
    SHARE,
    TOKENS,
    TOKENS0,
    UTILISED,
    Engine,
    Temperature,
    TopK,
    TopP,
)


@kind("benchmark", parents=("benchmark",))
class Benchmark:
    """Named evaluation questions."""

    data: ClassVar[
        Annotated[Any, Setting(A(("data",)), "the questions", "data = aime24_questions", required=True)]
    ]


@kind("suite", parents=("suite",))
class Suite:
    """How a checkpoint is evaluated."""

    benchmarks: Annotated[
        Any, Setting(Many(A(("benchmark",))), "what on", "benchmarks = [aime24, amc23]", required=True)
    ]
    max_tokens: ClassVar[
        Annotated[Any, Setting(TOKENS, "longest response", "max_tokens = 32K tokens", required=True)]
    ]
    temperature: ClassVar[Temperature]
    top_p: ClassVar[TopP]
    top_k: ClassVar[TopK]
    samples: Annotated[int, Setting(COUNT, "responses a question", "samples = 32")]
    grid: Annotated[
        tuple[int, ...],
        Setting(
            Many(TOKENS0, 2),
            "the budgets at which answers are forced; left out, whole responses alone are graded",
            "grid = every(64 tokens, to: 1K tokens)",
            required=False,
        ),
    ]
    reg_to: Annotated[
        int,
        Setting(
            TOKENS,
            "where REG's integral ends; left out, at the end of the grid",
            "reg_to = 16K tokens",
            required=False,
        ),
    ]
    forcing: Annotated[
        Any,
        Setting(
            A(("forcing",)),
            "how a cut response is made to answer: required with a grid",
            "forcing = dynasor",
            required=False,
        ),
    ]
    wording: Annotated[
        Any, Setting(A(("wording",)), "how to ask; left out, the model's own prompt", required=False)
    ]
    expected_length: Annotated[
        int | None, Setting(TOKENS, "mean tokens of a response, for the price alone")
    ] = None
    seed: Annotated[int, Setting(NATURAL, "draws the responses")] = 0


@kind("cluster", parents=("cluster",))
class Cluster:
    """Where training and rollouts run."""

    nodes: Annotated[int, Setting(COUNT, "machines", "nodes = 16")]
    gpus_per_node: Annotated[int, Setting(COUNT, "GPUs in each", "gpus_per_node = 8")]
    gpu: Annotated[str, Setting(Text(), "its name", 'gpu = "H800"')]
    memory: ClassVar[
        Annotated[Any, Setting(Num("GiB", low=0, above=True), "of one GPU", "memory = 80 GiB", required=True)]
    ]
    placement: Annotated[
        Literal["colocated", "apart"], Setting(WORDS, "on the same devices in turn, or apart")
    ] = "colocated"
    tensor_parallel: Annotated[int, Setting(COUNT, "GPUs that share one engine")] = 1
    rollout_share: Annotated[
        float,
        Setting(Num(low=0, high=1, above=True, below=True), "GPUs that generate, where placement is `apart`"),
    ] = 0.75
    determinism: Annotated[
        Literal["exact", "seeded"],
        Setting(
            WORDS,
            "what SGLang draws: `exact`, the same tokens from a seed whatever else is in the batch, or `seeded`, faster"
            " kernels whose last bits depend on the batch",
            "determinism = seeded",
            later=True,
        ),
    ] = "exact"
    hardware: Annotated[
        Any, Setting(Block("hardware"), "what one GPU can do, which pricing needs", required=False)
    ]


@kind("hardware", form="block")
class Hardware:
    """One GPU: its data sheet, and the share of it that work reaches."""

    flops: Annotated[float, Setting(POSITIVE, "dense bf16 FLOP a second", "flops = 989.4e12")]
    bandwidth: Annotated[float, Setting(POSITIVE, "of its memory, bytes a second", "bandwidth = 3.35e12")]
    interconnect: Annotated[
        float,
        Setting(POSITIVE, "to other GPUs of its node, both ways, bytes a second", "interconnect = 400e9"),
    ]
    mfu_train: Annotated[float, Setting(UTILISED, "share of `flops` that training reaches")] = 0.3
    mfu_prefill: Annotated[float, Setting(UTILISED, "share of `flops` that reading prompts reaches")] = 0.5
    mbu_decode: Annotated[float, Setting(UTILISED, "share of `bandwidth` that generation reaches")] = 0.6
    prefix_cache: Annotated[bool, Setting(Flag(), "engines keep what they have read of a response")] = True
    verifications: Annotated[float, Setting(POSITIVE, "answers checked a second")] = 1400.0


@kind("study", children=("arm", "frontier"))
class Study:
    """Arms that are evaluated alike, a frontier over some of them, and the report."""

    replicate: ClassVar[
        Annotated[Any, Setting(Many(NATURAL), "the seeds: every trained arm once each", default=(1,))]
    ]
    replicate_from: ClassVar[
        Annotated[
            Any,
            Setting(
                Many(A(("arm", "experiment", "checkpoint"), "a checkpoint")),
                "trained checkpoints that all seeds share: trained once, with the first seed; left out, every seed trains"
                " all stages",
                "replicate_from = [checkpoint(overthinker)]",
                required=False,
            ),
        ]
    ]
    eval: ClassVar[Annotated[Any, Setting(A(("suite",)), "the suite of arms that name none")]]
    score: Annotated[
        Any,
        Setting(
            A(("reg",), "`reg(…)`"),
            "the measure against a frontier",
            "score = reg(against: edge, to: 16K tokens)",
            required=False,
        ),
    ]
    report: ClassVar[Annotated[Any, Setting(Block("report"), "tables and charts")]]
    cluster: Annotated[Any, Setting(A(("cluster",)), "where it runs", required=False)]
    engine: Engine
    limit: Annotated[float | None, Setting(HOURS, "the most that may be spent")] = None
    unequal: Annotated[
        str | None,
        Setting(
            Text(),
            "why arms are compared that trained for unequal amounts: W0608 is silent then, and the report shows the reason",
            'unequal = "each stage of the schedule is a row"',
            later=True,
        ),
    ] = None


ARM = Kind(
    "arm",
    "A checkpoint with a name.",
    TRAINING,
    parents=("experiment", "checkpoint", "model", "recipe"),
    children=("stage",),
)


@kind("frontier", parents=("frontier",), children=("curve",))
class PublishedFrontier:
    """A published frontier: accuracy over budgets on each of its benchmarks."""

    base: ClassVar[
        Annotated[
            Any,
            Setting(
                Many(A(("model",), "a model"), lone=True),
                "the model from which all that it is over was trained, or several",
                "base = qwen3_4b",
                required=True,
            ),
        ]
    ]
    budgets: Annotated[
        tuple[int, ...], Setting(Many(TOKENS0, 2), "in tokens, increasing", "budgets = [0, 1K, 2K]")
    ]


@kind("curve")
class PublishedCurve:
    """A published frontier's curve on the benchmark of its name."""

    accuracy: Annotated[
        tuple[float, ...],
        Setting(Many(SHARE, 2), "at each budget, as a fraction", "accuracy = [0.1, 0.4, 0.5]"),
    ]


@kind("published", parents=("published",), children=("row",))
class Published:
    """A table as printed, to stand beside what is measured."""

    benchmarks: Annotated[
        tuple[str, ...],
        Setting(
            Many(Text()),
            "its columns, by the names of benchmarks; `mean` is the mean over them",
            'benchmarks = ["aime24", "mean"]',
        ),
    ]
    relative_to: Annotated[str | None, Setting(Text(), "the row that changes of REG are relative to")] = None


@kind("row")
class Row:
    """A row of a published table, named as the arm that it is compared with."""

    title: Annotated[str, Setting(Text(), "its name in print", 'title = "Vanilla RL"')]
    accuracy: Annotated[Any, Setting(Many(SHARE, lone=True), "on each benchmark", required=False)]
    length: Annotated[
        Any, Setting(Many(LENGTHS, lone=True), "mean tokens of a response on each benchmark", required=False)
    ]
    reg: Annotated[
        Any,
        Setting(
            Many(Num("tokens"), lone=True), "the reasoning efficiency gap on each benchmark", required=False
        ),
    ]
    reg_change: Annotated[
        Any,
        Setting(
            Many(Num(), lone=True),
            "how far REG is from that of `relative_to`, such as -46.6%",
            required=False,
        ),
    ]


@kind("report", form="block", children=("table", "chart"))
class Report:
    """Tables and charts."""


@kind("table")
class Table:
    """Arms as rows."""

    rows: Annotated[
        Any,
        Setting(
            Either((Choice(("arms",)), Many(A(("arm",), "an arm")))),
            "the arms",
            default="arms",
            required=False,
        ),
    ]
    columns: Annotated[
        tuple[Literal["accuracy", "length", "reg"], ...],
        Setting(Many(WORDS), "what of each", "columns = [accuracy, length, reg]"),
    ]
    subset: Annotated[
        Literal["all", "balanced"],
        Setting(WORDS, "all questions, or those on which every arm is right more than half of the time"),
    ] = "all"
    published: Annotated[
        Any, Setting(A(("published",)), "numbers in print to stand beside these", required=False)
    ]


@kind("chart")
class Chart:
    """Arms and frontiers as lines."""

    x: Annotated[Literal["budget", "length", "step"], Setting(WORDS, "along", "x = budget")]
    y: Annotated[Literal["accuracy", "reg", "reward", "length"], Setting(WORDS, "up", "y = accuracy")]
    lines: Annotated[
        Any,
        Setting(
            Many(A(("arm", "frontier"), "an arm or a frontier")),
            "what is drawn",
            "lines = [base, reo_exp]",
            required=True,
        ),
    ]


@kind("reg", form="call")
class Reg:
    """The reasoning efficiency gap: the area between a frontier and a model's curve."""

    against: ClassVar[
        Annotated[
            Any, Setting(A(("frontier",)), "what accuracy falls short of", "against: edge", required=True)
        ]
    ]
    to: Annotated[int, Setting(TOKENS, "where the integral ends", "to: 16K tokens")]
    approximate: ClassVar[
        Annotated[
            Any,
            Setting(
                Flag(),
                "takes a published frontier of another model or other benchmarks, or too few points; the report says so",
                default=False,
            ),
        ]
    ]
    relative_to: Annotated[
        Any,
        Setting(
            A(("arm", *CHECKPOINT.kinds), "an arm"), "the arm that changes are relative to", required=False
        ),
    ]
    confidence: Annotated[float, Setting(Num(low=0, high=1, above=True, below=True), "of the intervals")] = (
        0.95
    )


@kind("envelope", form="call")
class Envelope:
    """The best of some arms at each budget and benchmark."""

    of: ClassVar[
        Annotated[Any, Setting(Many(A(("arm",), "an arm")), "the arms", "of: [base, vanilla]", required=True)]
    ]
    on: ClassVar[Annotated[Any, Setting(A(("suite",)), "the suite they must share")]]
    to: ClassVar[Annotated[Any, Setting(TOKENS, "the last budget", "to: 32K tokens", required=True)]]
