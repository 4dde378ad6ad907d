"""Studies in the table of kinds: suites, clusters, arms, frontiers, scores and reports."""

from __future__ import annotations

from reodsl.language.kinds.training import TRAINING
from reodsl.language.kinds.types import (
    CHECKPOINT,
    COUNT,
    ENGINE,
    HOURS,
    LENGTHS,
    NATURAL,
    POSITIVE,
    SAMPLING,
    SHARE,
    TOKENS,
    TOKENS0,
    UTILISED,
)
from reodsl.language.schema import A, Block, Choice, Either, Field, Flag, Kind, Many, Num, Text

KINDS_OF_STUDIES: tuple[Kind, ...] = (
    Kind(
        "benchmark",
        "Named evaluation questions.",
        {"data": Field(A(("data",)), "the questions", required=True, example="data = aime24_questions")},
        parents=("benchmark",),
    ),
    Kind(
        "suite",
        "How a checkpoint is evaluated.",
        {
            "benchmarks": Field(
                Many(A(("benchmark",))), "what on", required=True, example="benchmarks = [aime24, amc23]"
            ),
            "max_tokens": Field(TOKENS, "longest response", required=True, example="max_tokens = 32K tokens"),
            "temperature": SAMPLING["temperature"],
            "top_p": SAMPLING["top_p"],
            "top_k": SAMPLING["top_k"],
            "samples": Field(COUNT, "responses a question", required=True, example="samples = 32"),
            "grid": Field(
                Many(TOKENS0, 2),
                "the budgets at which answers are forced",
                required=True,
                example="grid = every(64 tokens, to: 1K tokens)",
            ),
            "reg_to": Field(
                TOKENS, "where REG's integral ends", required=True, example="reg_to = 16K tokens"
            ),
            "forcing": Field(
                A(("forcing",)),
                "how a cut response is made to answer",
                required=True,
                example="forcing = dynasor",
            ),
            "wording": Field(A(("wording",)), "how to ask; left out, the model's own prompt"),
            "expected_length": Field(TOKENS, "mean tokens of a response, for the price alone"),
            "seed": Field(NATURAL, "draws the responses", default=0),
        },
        parents=("suite",),
    ),
    Kind(
        "cluster",
        "Where training and rollouts run.",
        {
            "nodes": Field(COUNT, "machines", required=True, example="nodes = 16"),
            "gpus_per_node": Field(COUNT, "GPUs in each", required=True, example="gpus_per_node = 8"),
            "gpu": Field(Text(), "its name", required=True, example='gpu = "H800"'),
            "memory": Field(
                Num("GiB", low=0, above=True), "of one GPU", required=True, example="memory = 80 GiB"
            ),
            "placement": Field(
                Choice(("colocated", "apart")), "on the same devices in turn, or apart", default="colocated"
            ),
            "tensor_parallel": Field(COUNT, "GPUs that share one engine", default=1),
            "rollout_share": Field(
                Num(low=0, high=1, above=True, below=True),
                "GPUs that generate, where placement is `apart`",
                default=0.75,
            ),
            "hardware": Field(Block("hardware"), "what one GPU can do, which pricing needs"),
        },
        parents=("cluster",),
    ),
    Kind(
        "hardware",
        "One GPU: its data sheet, and the share of it that work reaches.",
        {
            "flops": Field(POSITIVE, "dense bf16 FLOP a second", required=True, example="flops = 989.4e12"),
            "bandwidth": Field(
                POSITIVE, "of its memory, bytes a second", required=True, example="bandwidth = 3.35e12"
            ),
            "interconnect": Field(
                POSITIVE,
                "to other GPUs of its node, both ways, bytes a second",
                required=True,
                example="interconnect = 400e9",
            ),
            "mfu_train": Field(UTILISED, "share of `flops` that training reaches", default=0.4),
            "mfu_prefill": Field(UTILISED, "share of `flops` that reading prompts reaches", default=0.5),
            "mbu_decode": Field(UTILISED, "share of `bandwidth` that generation reaches", default=0.6),
            "prefix_cache": Field(Flag(), "engines keep what they have read of a response", default=True),
            "verifications": Field(POSITIVE, "answers checked a second", default=1400.0),
        },
        form="block",
    ),
    Kind(
        "study",
        "Arms that are evaluated alike, a frontier over some of them, and the report.",
        {
            "replicate": Field(Many(NATURAL), "the seeds: every trained arm once each", default=(1,)),
            "eval": Field(A(("suite",)), "the suite of arms that name none"),
            "score": Field(
                A(("reg",), "`reg(…)`"),
                "the measure against a frontier",
                example="score = reg(against: edge, to: 16K tokens)",
            ),
            "report": Field(Block("report"), "tables and charts"),
            "cluster": Field(A(("cluster",)), "where it runs"),
            "engine": ENGINE,
            "limit": Field(HOURS, "the most that may be spent"),
        },
        children=("arm", "frontier"),
    ),
    Kind(
        "arm",
        "A checkpoint with a name.",
        TRAINING,
        parents=("experiment", "checkpoint", "model", "recipe"),
        children=("stage",),
    ),
    Kind(
        "frontier",
        "A published frontier: accuracy over budgets.",
        {
            "benchmark": Field(
                Text(),
                "the benchmark that arms are evaluated on; `Average` where it is a mean over several",
                required=True,
                example='benchmark = "Average"',
            ),
            "budgets": Field(
                Many(TOKENS0, 2), "in tokens, increasing", required=True, example="budgets = [0, 1K, 2K]"
            ),
            "accuracy": Field(
                Many(SHARE, 2),
                "at each budget, as a fraction",
                required=True,
                example="accuracy = [0.1, 0.4, 0.5]",
            ),
        },
        parents=("frontier",),
    ),
    Kind(
        "published",
        "A table as printed, to stand beside what is measured.",
        {
            "benchmarks": Field(
                Many(Text()),
                "its columns, by the names of benchmarks; `mean` is the mean over them",
                required=True,
                example='benchmarks = ["aime24", "mean"]',
            ),
            "relative_to": Field(Text(), "the row that changes of REG are relative to"),
        },
        parents=("published",),
        children=("row",),
    ),
    Kind(
        "row",
        "A row of a published table, named as the arm that it is compared with.",
        {
            "title": Field(Text(), "its name in print", required=True, example='title = "Vanilla RL"'),
            "accuracy": Field(Many(SHARE, lone=True), "on each benchmark"),
            "length": Field(Many(LENGTHS, lone=True), "mean tokens of a response on each benchmark"),
            "reg": Field(Many(Num("tokens"), lone=True), "the reasoning efficiency gap on each benchmark"),
            "reg_change": Field(
                Many(Num(), lone=True), "how far REG is from that of `relative_to`, such as -46.6%"
            ),
        },
    ),
    Kind("report", "Tables and charts.", {}, form="block", children=("table", "chart")),
    Kind(
        "table",
        "Arms as rows.",
        {
            "rows": Field(
                Either((Choice(("arms",)), Many(A(("arm",), "an arm")))), "the arms", default="arms"
            ),
            "columns": Field(
                Many(Choice(("accuracy", "length", "reg"))),
                "what of each",
                required=True,
                example="columns = [accuracy, length, reg]",
            ),
            "subset": Field(
                Choice(("all", "balanced")),
                "all questions, or those on which every arm is right more than half of the time",
                default="all",
            ),
            "published": Field(A(("published",)), "numbers in print to stand beside these"),
        },
    ),
    Kind(
        "chart",
        "Arms and frontiers as lines.",
        {
            "x": Field(Choice(("budget", "length", "step")), "along", required=True, example="x = budget"),
            "y": Field(
                Choice(("accuracy", "reg", "reward", "length")), "up", required=True, example="y = accuracy"
            ),
            "lines": Field(
                Many(A(("arm", "frontier"), "an arm or a frontier")),
                "what is drawn",
                required=True,
                example="lines = [base, reo_exp]",
            ),
        },
    ),
    Kind(
        "reg",
        "The reasoning efficiency gap: the area between a frontier and a model's curve.",
        {
            "against": Field(
                A(("frontier",)), "what accuracy falls short of", required=True, example="against: edge"
            ),
            "to": Field(TOKENS, "where the integral ends", required=True, example="to: 16K tokens"),
            "relative_to": Field(
                A(("arm", *CHECKPOINT.kinds), "an arm"), "the arm that changes are relative to"
            ),
            "confidence": Field(Num(low=0, high=1, above=True, below=True), "of the intervals", default=0.95),
        },
        form="call",
    ),
    Kind(
        "envelope",
        "The best of some arms at each budget and benchmark.",
        {
            "of": Field(
                Many(A(("arm",), "an arm")), "the arms", required=True, example="of: [base, vanilla]"
            ),
            "on": Field(A(("suite",)), "the suite they must share"),
            "to": Field(TOKENS, "the last budget", required=True, example="to: 32K tokens"),
        },
        form="call",
    ),
)
