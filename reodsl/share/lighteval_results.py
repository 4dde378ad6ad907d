"""An evaluation as lighteval's `EvaluationTracker` saves one: a file of results, and a table of details for each task.

`results/STUDY/ARM/results_DATE.json` and `details/STUDY/ARM/DATE/details_TASK_DATE.parquet`, as
`lighteval/logging/evaluation_tracker.py` of 0.13 writes and finds them. A task is `BENCHMARK|0`: no examples in the prompt.
"""

from __future__ import annotations

import hashlib
from typing import Any

import polars as pl

from reodsl.report.material import Material
from reodsl.share import figures
from reodsl.share.evaluated import Evaluated
from reodsl.share.inspect_log import model_name
from reodsl.store.runs import slug


def folder(material: Material, one: Evaluated) -> str:
    """Where files of a model are: its name as a path, of a safe alphabet."""
    return f"{slug(material.study.name)}/{slug(one.arm.name)}{'' if one.seed is None else f'.s{one.seed}'}"


def date(one: Evaluated) -> str:
    """When the evaluation was done, as lighteval has it in names of files: `2026-01-01T12-00-00`."""
    return one.ended.replace(tzinfo=None).isoformat(timespec="seconds").replace(":", "-")


def task(benchmark: str) -> str:
    """A benchmark as a task's name; `|` and `:` part such names, and `/` parts folders."""
    return "".join("_" if c in "|:/\\" or not c.isprintable() else c for c in benchmark) + "|0"


def results(material: Material, one: Evaluated) -> dict[str, Any]:
    """What `results_DATE.json` holds. Accuracies are `avg@n`: means over a question's n responses, then over questions."""
    suite = one.arm.suite
    samples = suite.samples
    scored: dict[str, dict[str, float]] = {}
    configs: dict[str, Any] = {}
    summaries: dict[str, Any] = {}
    for benchmark in figures.benchmarks(material, one):
        rows = one.samples(benchmark)
        questions = rows["question"].n_unique()
        scored[task(benchmark)] = _metrics(material, one, benchmark, rows)
        configs[task(benchmark)] = {
            "name": task(benchmark).removesuffix("|0"),
            "generation_size": suite.rollout.max_tokens,
            "num_samples": [samples],
            "num_fewshots": 0,
            "original_num_docs": questions,
            "effective_num_docs": questions,
            "version": 0,
        }
        summaries[task(benchmark)] = _summary(rows)
    names = list(dict.fromkeys(name for metrics in scored.values() for name in metrics))
    every = {name: [metrics[name] for metrics in scored.values() if name in metrics] for name in names}
    scored["all"] = {name: sum(values) / len(values) for name, values in every.items()}
    return {
        "config_general": {
            "lighteval_sha": "?",
            "num_fewshot_seeds": 1,
            "max_samples": None,
            "job_id": one.key,
            "start_time": one.began.timestamp(),
            "end_time": one.ended.timestamp(),
            "total_evaluation_time_secondes": str(one.seconds),
            "model_config": {
                "model_name": model_name(material, one),
                "generation_parameters": {
                    "temperature": suite.rollout.temperature,
                    "top_p": suite.rollout.top_p,
                    "max_new_tokens": suite.rollout.max_tokens,
                },
            },
            "model_name": model_name(material, one),
        },
        "results": scored,
        "versions": dict.fromkeys(configs, 0),
        "config_tasks": configs,
        "summary_tasks": summaries,
        "summary_general": _summary(
            pl.concat([one.samples(each) for each in figures.benchmarks(material, one)])
        ),
    }


def details(material: Material, one: Evaluated) -> dict[str, pl.DataFrame]:
    """By task a row for each question: `doc`, `metric` and `model_response`, with all its responses."""
    return {task(benchmark): _details(one, benchmark) for benchmark in figures.benchmarks(material, one)}


def _metrics(material: Material, one: Evaluated, benchmark: str, rows: pl.DataFrame) -> dict[str, float]:
    name = f"avg@n:n={one.arm.suite.samples}"
    accuracy, error = figures.mean_and_error(rows, "correct")
    tokens, spread = figures.mean_and_error(rows, "tokens")
    forced = {f"accuracy_at_{at}": value for at, value in figures.curve(material, one, benchmark).items()}
    return {
        name: accuracy,
        f"{name}_stderr": error,
        "tokens": tokens,
        "tokens_stderr": spread,
        **figures.score(material, one, benchmark),
        **forced,
    }


def _summary(rows: pl.DataFrame) -> dict[str, Any]:
    """Hashes of what was asked and answered. Nothing was cut off a prompt, and nothing is told of padding."""
    ordered = rows.sort("question", "sample")
    asked = ordered.unique("question", maintain_order=True)["text"].to_list()
    return {
        "hashes": {
            "hash_examples": _hash(asked),
            "hash_full_prompts": _hash(asked),
            "hash_input_tokens": "",
            "hash_cont_tokens": _hash(ordered["response"].to_list()),
        },
        "truncated": 0,
        "non_truncated": rows["question"].n_unique(),
        "padded": 0,
        "non_padded": rows["question"].n_unique(),
    }


def _hash(texts: list[str]) -> str:
    return hashlib.sha256("\x00".join(texts).encode()).hexdigest()[:16]


def _details(one: Evaluated, benchmark: str) -> pl.DataFrame:
    name = f"avg@n:n={one.arm.suite.samples}"
    questions = (
        one.samples(benchmark)
        .group_by("question", maintain_order=True)
        .agg(
            pl.col("text").first(),
            pl.col("gold").first().str.split("\x1e"),
            pl.col("response"),
            pl.col("tokens"),
            pl.col("answer"),
            pl.col("correct").cast(pl.Float64).mean(),
        )
    )
    return questions.select(
        pl.struct(
            query=pl.col("text"),
            choices=pl.col("gold"),
            gold_index=pl.int_ranges(pl.col("gold").list.len()),
            task_name=pl.lit(task(benchmark)),
            id=pl.col("question"),
            num_samples=pl.lit(one.arm.suite.samples),
            generation_size=pl.lit(one.arm.suite.rollout.max_tokens),
            specific=pl.struct("tokens", pl.col("answer").alias("answers")),
        ).alias("doc"),
        pl.struct(pl.col("correct").alias(name)).alias("metric"),
        # Only what lighteval's `ModelResponse` has: it makes one of these to score responses again.
        pl.struct(input=pl.col("text"), text=pl.col("response")).alias("model_response"),
    )
