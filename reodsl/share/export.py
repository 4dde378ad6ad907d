"""Logs of inspect_ai (version 2 of its format) of a run's evaluations: a file of JSON for each benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.report.material import Material
from reodsl.share import evaluated
from reodsl.share.evaluated import FinishedEvaluation, Shared
from reodsl.store.files import storing, write_atomic

SCORER = "answer"
"""The name of the score that a response has: whether its own answer is right."""
_STOPS = {"stop": "stop", "length": "max_tokens"}


def file_name(material: Material, one: FinishedEvaluation, benchmark: str) -> str:
    """Return `2026-01-01T12-00-00+00-00_easy_STUDY-ARM-KEY.json`: inspect finds logs by the time at the beginning."""
    stamp = one.began.isoformat(timespec="seconds").replace(":", "-")
    plain = "".join(
        c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in f"{benchmark}_{one.name}"
    )
    return f"{stamp}_{plain}_{one.key[:12]}.json"


def log(material: Material, one: FinishedEvaluation, benchmark: str) -> Iterator[str]:
    """Yield the text of a log, piece by piece: one response at a time."""
    samples = one.samples(benchmark)
    header = json.dumps(_header(material, one, benchmark, samples), ensure_ascii=False, allow_nan=False)
    yield header.removesuffix("}") + ', "samples": [\n'
    before = ""
    for sample in _samples(material, one, benchmark, samples):
        yield before + json.dumps(sample, ensure_ascii=False, allow_nan=False)
        before = ",\n"
    yield "\n]}\n"


def model_name(material: Material, one: FinishedEvaluation) -> str:
    """Return `STUDY/ARM.sSEED`, as names of models are `OWNER/NAME` elsewhere."""
    return f"{material.study.name}/{one.name}"


def _header(
    material: Material, one: FinishedEvaluation, benchmark: str, samples: pl.DataFrame
) -> dict[str, Any]:
    suite, model = one.arm.suite, model_name(material, one)
    questions = samples["question"].unique(maintain_order=True).to_list()
    accuracy, error = evaluated.mean_and_error(samples, "correct")
    usage = _usage(int(samples["tokens"].sum()))
    limit = suite.rollout.max_tokens
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": f"{one.key[:32]}-{benchmark}",
            "run_id": one.key[:32],
            "created": _format_moment(one.began),
            "task": f"{suite.name or 'reodsl'}/{benchmark}",
            "task_id": f"{benchmark}-{one.key[:16]}",
            "task_version": 0,
            "dataset": {"name": benchmark, "samples": len(questions), "sample_ids": questions},
            "model": model,
            "model_generate_config": {
                "temperature": suite.rollout.temperature,
                "top_p": suite.rollout.top_p,
                "max_tokens": limit,
            },
            "config": {"epochs": suite.samples, "epochs_reducer": ["mean"]},
            "packages": {"reodsl": one.versions.get("reodsl", "")},
            "metadata": {"study": material.study.name, "arm": one.arm.name, "seed": one.seed, "key": one.key},
            "scorers": [
                {"name": SCORER, "metrics": [{"name": "inspect_ai/accuracy"}, {"name": "inspect_ai/stderr"}]}
            ],
        },
        "plan": {"name": "plan", "steps": [{"solver": "generate"}], "config": {"max_tokens": limit}},
        "results": {
            "total_samples": samples.height,
            "completed_samples": samples.height,
            "scores": [
                {
                    "name": SCORER,
                    "scorer": SCORER,
                    "reducer": "mean",
                    "scored_samples": len(questions),
                    "unscored_samples": 0,
                    "metrics": {
                        "accuracy": {"name": "accuracy", "value": accuracy},
                        "stderr": {"name": "stderr", "value": error},
                    },
                }
            ],
            "metadata": {
                "tokens": evaluated.mean_and_error(samples, "tokens")[0],
                "accuracy_by_budget": evaluated.curve(material, one, benchmark),
                "score": evaluated.score(material, one, benchmark),
            },
        },
        "stats": {
            "started_at": _format_moment(one.began),
            "completed_at": _format_moment(one.ended),
            "model_usage": {model: usage},
        },
    }


def _samples(
    material: Material, one: FinishedEvaluation, benchmark: str, samples: pl.DataFrame
) -> Iterator[dict[str, Any]]:
    """Yield a sample for each response, with its answers at every budget beside it."""
    model = model_name(material, one)
    rows = one.forced(benchmark).iter_rows(named=True)
    at_budgets = {
        place: {str(row["budget"]): {"answer": row["answer"], "correct": row["correct"]} for row in group}
        for place, group in groupby(rows, key=lambda row: (row["question"], row["sample"]))
    }
    for row in samples.iter_rows(named=True):
        golds = row["gold"].split("\x1e")
        usage = _usage(row["tokens"])
        answered = {
            "role": "assistant",
            "content": row["response"] or "",
            "source": "generate",
            "model": model,
        }
        why = f"not judged: {row['unsettled']}" if row.get("unsettled") else None
        yield {
            "id": row["question"],
            "epoch": row["sample"] + 1,
            "input": row["text"],
            "target": golds[0] if len(golds) == 1 else golds,
            "messages": [{"role": "user", "content": row["text"], "source": "input"}, answered],
            "output": {
                "model": model,
                "choices": [{"message": answered, "stop_reason": _STOPS.get(row["finish"], "unknown")}],
                "completion": row["response"] or "",
                "usage": usage,
            },
            "scores": {
                SCORER: {
                    "value": "C" if row["correct"] else "I",
                    "answer": row["answer"],
                    "explanation": why,
                }
            },
            "metadata": {
                "tokens": row["tokens"],
                "at_budgets": at_budgets.get((row["question"], row["sample"]), {}),
            },
            "store": {},
            "events": [],
            "model_usage": {model: usage},
            "attachments": {},
        }


def _usage(tokens: int) -> dict[str, int]:
    """Return the tokens of responses; those of prompts are not counted."""
    return {"input_tokens": 0, "output_tokens": tokens, "total_tokens": tokens}


def _format_moment(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def export(shared: Shared, out: Path) -> list[Path]:
    """Write a log per evaluation and benchmark into `out`, each file whole or not at all, and return the files.

    An older file of that name is of the same evaluation, and is replaced. Raises E0950 or E0951 if the disk
    refuses.
    """
    files = []
    with storing(out):
        out.mkdir(parents=True, exist_ok=True)
        for one in shared.evaluations:
            for benchmark in evaluated.benchmarks(shared.material, one):
                files.append(out / file_name(shared.material, one, benchmark))
                pieces = log(shared.material, one, benchmark)
                write_atomic(files[-1], (piece.encode() for piece in pieces), durable=False)
    return files
