"""Finished evaluations of a run: their numbers, and logs of inspect_ai (version 2 of its format)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, problem, warning
from reodsl.graph.lower import lower
from reodsl.graph.task import parse_role
from reodsl.ir.study import Arm
from reodsl.report.material import Material, read
from reodsl.store.files import storing, write_atomic
from reodsl.store.runs import RunRecord, require_spec
from reodsl.store.store import Store


@dataclass(frozen=True, slots=True)
class FinishedEvaluation:
    """A finished evaluation."""

    arm: Arm
    """The arm."""
    seed: int | None
    """Seed; None if no seed changes the arm."""
    key: str
    """Key of its result."""
    folder: Path
    """Folder of its files."""
    ended_at: datetime
    """Time of its end."""
    seconds: float
    """Seconds that it took."""
    versions: dict[str, str]
    """Versions of the packages that computed it."""

    @property
    def name(self) -> str:
        """Return the name with its seed, `reo_exp.s1`, or only the arm's name if no seed changes the arm."""
        return self.arm.name if self.seed is None else f"{self.arm.name}.s{self.seed}"

    @property
    def began(self) -> datetime:
        """Return when the evaluation started."""
        return self.ended_at - timedelta(seconds=self.seconds)

    def samples(self, benchmark: str) -> pl.DataFrame:
        """Return the responses on a benchmark, sorted by question and sample."""
        rows = pl.scan_parquet(self.folder / "samples.parquet", glob=False).filter(
            pl.col("benchmark") == benchmark
        )
        return rows.sort("question", "sample", maintain_order=True).collect()

    def forced(self, benchmark: str) -> pl.DataFrame:
        """Return the forced answers at every budget of a benchmark.

        Returns:
            Columns of `forced.parquet`, among them `question`, `sample`, `budget`, `answer` and `correct`.
        """
        rows = pl.scan_parquet(self.folder / "forced.parquet", glob=False).filter(
            pl.col("benchmark") == benchmark
        )
        return rows.sort("question", "sample", "budget").collect()


@dataclass(frozen=True, slots=True)
class ExportMaterial:
    """The material of a run's report, its finished evaluations in the study's order, and warnings of missing ones."""

    material: Material
    evaluations: tuple[FinishedEvaluation, ...]
    findings: tuple[Diagnostic, ...]


def gather(store: Store, record: RunRecord, arms: Sequence[str] = ()) -> ExportMaterial:
    """Return the material of a run's report, and its finished evaluations of some arms.

    Evaluations that are not finished are left out with a warning.

    Args:
        store: store of the results.
        record: the run.
        arms: names of the arms; empty for all.

    Raises:
        Problem: E0957 if no evaluation is finished, E0967 if the run's spec was not kept, E0981 if a result cannot be
            read, E0954 for an arm that the study does not evaluate.
    """
    spec = require_spec(store, record)
    graph = lower(spec)
    arms_by_name = {arm.name: arm for arm in spec.study.arms}
    for name in arms:
        if name not in arms_by_name:
            raise problem(
                "E0954",
                f"the study {record.study!r} has no arm {name!r}",
                where=record.name,
                help=f"there is {', '.join(arms_by_name)}",
            )
    inputs: dict[str, Path] = {}
    evaluations: list[FinishedEvaluation] = []
    missing: list[str] = []
    for role, task in graph["report"].inputs.items():
        key = record.tasks.get(task, "")
        manifest = store.get(key) if key else None
        parsed = parse_role(role)
        if manifest is not None:
            inputs[role] = store.path(key)
        if parsed.kind != "evaluate" or (arms and parsed.name not in arms):
            continue
        if manifest is None:
            missing.append(task)
            continue
        evaluations.append(
            FinishedEvaluation(
                arm=arms_by_name[parsed.name],
                seed=parsed.seed,
                key=key,
                folder=store.path(key),
                ended_at=datetime.fromisoformat(manifest.created),
                seconds=float(manifest.provenance.get("seconds") or 0),
                versions={str(name): str(of) for name, of in manifest.provenance.get("versions", {}).items()},
            )
        )
    if not evaluations:
        raise problem(
            "E0957",
            f"none of the {len(missing)} evaluations of this run is finished yet",
            where=record.name,
            help=f"look again later: reodsl watch; or finish the run: reodsl run {record.path}",
        )
    incomplete = warning(
        "W0805",
        f"the export leaves out {len(missing)} evaluations that are not finished",
        where=record.name,
        notes=(f"left out: {', '.join(missing[:5])}{' and more' if len(missing) > 5 else ''}",),
        help=f"finish the run, which does only what is missing: reodsl run {record.path}",
    )
    return ExportMaterial(read(spec, inputs), tuple(evaluations), (incomplete,) if missing else ())


def benchmarks(material: Material, evaluation: FinishedEvaluation) -> list[str]:
    """Return the names of the benchmarks that an evaluation has, in the order of the study."""
    names = set(material.summary.filter(pl.col("arm") == evaluation.arm.name)["benchmark"])
    return [name for name in material.benchmarks if name in names]


def mean_and_error(samples: pl.DataFrame, column: str) -> tuple[float, float]:
    """Return the mean of a column over questions, and its standard error.

    Args:
        samples: responses of a benchmark.
        column: name of the column.

    Returns:
        Both in the unit of the column; the error is 0 with a single question.
    """
    means = samples.group_by("question").agg(pl.col(column).cast(pl.Float64).mean())[column]
    error = float(means.std() or 0.0) / math.sqrt(len(means)) if len(means) > 1 else 0.0  # type: ignore[arg-type]
    return float(means.mean() or 0.0), error  # type: ignore[arg-type]


def curve(material: Material, evaluation: FinishedEvaluation, benchmark: str) -> dict[str, float]:
    """Return the accuracy of an evaluation by budget in tokens.

    Args:
        material: material of the report.
        evaluation: the evaluation.
        benchmark: name of the benchmark.

    Returns:
        Shares by the text of the budget, since keys of JSON are texts.
    """
    seed = pl.col("seed").is_null() if evaluation.seed is None else pl.col("seed") == evaluation.seed
    rows = material.curves.filter(
        (pl.col("name") == evaluation.arm.name) & seed & (pl.col("benchmark") == benchmark)
    )
    return {str(row["budget"]): row["accuracy"] for row in rows.sort("budget").iter_rows(named=True)}


def score(material: Material, evaluation: FinishedEvaluation, benchmark: str) -> dict[str, Any]:
    """Return the numbers of the study's score for an evaluation, in tokens: `reg`, `difference` and so on.

    They are those of the evaluation's seed if the score has rows by seed, else those over all seeds.

    Returns:
        Finite numbers by column; empty if the study has no score, or no row of this arm and benchmark.
    """
    scores = material.scores
    if not scores.height:
        return {}
    rows = scores.filter((pl.col("arm") == evaluation.arm.name) & (pl.col("benchmark") == benchmark))
    mine = rows.filter(pl.col("seed") == evaluation.seed) if evaluation.seed is not None else rows
    row = next((mine if mine.height else rows.filter(pl.col("seed").is_null())).iter_rows(named=True), {})
    columns = ("reg", "reg_low", "reg_high", "reg_plain", "difference", "difference_low", "difference_high")
    return {name: row[name] for name in columns if row.get(name) is not None and math.isfinite(row[name])}


SCORER = "answer"
"""The name of the score of a response in a log: whether its answer is right."""
_STOPS = {"stop": "stop", "length": "max_tokens"}


def file_name(material: Material, evaluation: FinishedEvaluation, benchmark: str) -> str:
    """Return the name of a log, such as `2026-01-01T12-00-00+00-00_easy-reo-exp.s1_0123456789ab.json`.

    It has the time at which the evaluation started, the benchmark, the arm with its seed, and the result's key. The
    program inspect sorts logs by the time. Other characters than ASCII letters, digits, `-` and `.` become dashes.
    """
    stamp = evaluation.began.isoformat(timespec="seconds").replace(":", "-")
    plain = "".join(
        c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in f"{benchmark}_{evaluation.name}"
    )
    return f"{stamp}_{plain}_{evaluation.key[:12]}.json"


def log(material: Material, evaluation: FinishedEvaluation, benchmark: str) -> Iterator[str]:
    """Yield the text of an evaluation's log on a benchmark as JSON, in pieces: a head, a response each, and an end.

    Args:
        material: material of the report.
        evaluation: the evaluation.
        benchmark: name of the benchmark.
    """
    samples = evaluation.samples(benchmark)
    header = json.dumps(
        _header(material, evaluation, benchmark, samples), ensure_ascii=False, allow_nan=False
    )
    yield header.removesuffix("}") + ', "samples": [\n'
    before = ""
    for sample in _list_samples(material, evaluation, benchmark, samples):
        yield before + json.dumps(sample, ensure_ascii=False, allow_nan=False)
        before = ",\n"
    yield "\n]}\n"


def model_name(material: Material, evaluation: FinishedEvaluation) -> str:
    """Return the model's name in a log, `STUDY/ARM.sSEED`, in the form `OWNER/NAME` that other tools use."""
    return f"{material.study.name}/{evaluation.name}"


def _header(
    material: Material, evaluation: FinishedEvaluation, benchmark: str, samples: pl.DataFrame
) -> dict[str, Any]:
    """Return a log's data without its samples.

    Args:
        material: material of the report.
        evaluation: the evaluation.
        benchmark: name of the benchmark.
        samples: responses on the benchmark.
    """
    suite, model = evaluation.arm.suite, model_name(material, evaluation)
    questions = samples["question"].unique(maintain_order=True).to_list()
    accuracy, error = mean_and_error(samples, "correct")
    usage = _usage(int(samples["tokens"].sum()))
    limit = suite.rollout.max_tokens
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": f"{evaluation.key[:32]}-{benchmark}",
            "run_id": evaluation.key[:32],
            "created": _format_moment(evaluation.began),
            "task": f"{suite.name or 'reodsl'}/{benchmark}",
            "task_id": f"{benchmark}-{evaluation.key[:16]}",
            "task_version": 0,
            "dataset": {"name": benchmark, "samples": len(questions), "sample_ids": questions},
            "model": model,
            "model_generate_config": {
                "temperature": suite.rollout.temperature,
                "top_p": suite.rollout.top_p,
                "max_tokens": limit,
            },
            "config": {"epochs": suite.samples, "epochs_reducer": ["mean"]},
            "packages": {"reodsl": evaluation.versions.get("reodsl", "")},
            "metadata": {
                "study": material.study.name,
                "arm": evaluation.arm.name,
                "seed": evaluation.seed,
                "key": evaluation.key,
            },
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
                "tokens": mean_and_error(samples, "tokens")[0],
                "accuracy_by_budget": curve(material, evaluation, benchmark),
                "score": score(material, evaluation, benchmark),
            },
        },
        "stats": {
            "started_at": _format_moment(evaluation.began),
            "completed_at": _format_moment(evaluation.ended_at),
            "model_usage": {model: usage},
        },
    }


def _list_samples(
    material: Material, evaluation: FinishedEvaluation, benchmark: str, samples: pl.DataFrame
) -> Iterator[dict[str, Any]]:
    """Yield a log's sample for each response, with its forced answers by budget as metadata.

    Args:
        material: material of the report.
        evaluation: the evaluation.
        benchmark: name of the benchmark.
        samples: responses on the benchmark.
    """
    model = model_name(material, evaluation)
    rows = evaluation.forced(benchmark).iter_rows(named=True)
    at_budgets = {
        key: {str(row["budget"]): {"answer": row["answer"], "correct": row["correct"]} for row in group}
        for key, group in groupby(rows, key=lambda row: (row["question"], row["sample"]))
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
                SCORER: {"value": "C" if row["correct"] else "I", "answer": row["answer"], "explanation": why}
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
    """Return a log's entry for the tokens of responses; tokens of prompts are written as 0, since none are stored."""
    return {"input_tokens": 0, "output_tokens": tokens, "total_tokens": tokens}


def _format_moment(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def export(shared: ExportMaterial, out: Path) -> list[Path]:
    """Write a log for each evaluation and benchmark, each file atomically, and return the files.

    Args:
        shared: the evaluations.
        out: folder that the files are written into.
    """
    files = []
    with storing(out):
        out.mkdir(parents=True, exist_ok=True)
        for evaluation in shared.evaluations:
            for benchmark in benchmarks(shared.material, evaluation):
                files.append(out / file_name(shared.material, evaluation, benchmark))
                pieces = log(shared.material, evaluation, benchmark)
                write_atomic(files[-1], (piece.encode() for piece in pieces), durable=False)
    return files
