"""Warn of responses that hold no answer or never end, and of trainings that learned nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from reodsl.diagnostics import Diagnostic, listed, warning
from reodsl.doubts.left_out import Findings, findings_of
from reodsl.graph.task import Graph, Task
from reodsl.ir.data import Grading

LEAST_GRADIENT = 1e-3
"""The norm above which a gradient is more than rounding."""
FEW_ANSWERED = 0.5
"""The share of ended responses with an answer below which a warning is given."""
LEAST = 8
"""Ended responses below which there is no warning."""
_SHOWN = 60
_NAMED = 12
_MARK = re.compile(r"####\s*\S")
_NUMBER = re.compile(r"[0-9]")


def find_unanswered(graph: Graph, folders: Mapping[str, Path]) -> Findings:
    """Return a warning (W0804) for every evaluation in which most responses that ended hold no answer.

    A response that was cut at the longest length had no chance to answer and counts for nothing.
    """

    def read(task: Task, folder: Path) -> list[Diagnostic]:
        columns = ["benchmark", "response", "finish", "answer"]
        samples = pl.read_parquet(folder / "samples.parquet", columns=columns, glob=False)
        ended = samples.filter(pl.col("finish") == "stop").group_by("benchmark", maintain_order=True)
        warnings = (_without(task, str(name), rows) for (name,), rows in ended)
        return [each for each in warnings if each is not None]

    return findings_of(graph, folders, "evaluate", read)


def warn_unanswered_step(task: Task, answered: float) -> Diagnostic:
    """Return the warning (W0804) of a step of training; `answered` is the share of ended responses with an answer."""
    return _warning(
        task.id, f"{1 - answered:.0%} of the responses that ended", task.payload["stage"]["data"], ()
    )


def _without(task: Task, benchmark: str, rows: pl.DataFrame) -> Diagnostic | None:
    silent = rows.filter(pl.col("answer").is_null())
    if rows.height < LEAST or silent.height <= (1 - FEW_ANSWERED) * rows.height:
        return None
    data = next(each["data"] for each in task.payload["suite"]["benchmarks"] if each["name"] == benchmark)
    ends = [" ".join(text[-4 * _SHOWN :].split())[-_SHOWN:] for text in silent["response"].head(20)]
    share = f"{silent.height} of {rows.height} responses to `{benchmark}` that ended"
    return _warning(task.id, share, data, ends)


def _warning(where: str, share: str, data: Mapping[str, object], ends: Iterable[str]) -> Diagnostic:
    last = list(ends)
    given = {name: data[name] for name in ("verifier", "answer", "tolerance") if name in data}
    read = f"`answer = {Grading.model_validate(given).words}`"
    advice = f"say where: {_advice(last)} in the data"
    if data.get("thinking") == "skip":
        read += " found none after the thinking"
        advice += "; where the model does not think, or never closes its thinking, take out `thinking = skip`"
    else:
        read += " found none"
    return warning(
        "W0804",
        f"{share} have no answer: {read}",
        where=where,
        notes=[f"one ends in: …{last[0]}"] if last else [],
        help=f"they count as wrong; if they do answer, {advice}",
    )


def _advice(ends: list[str]) -> str:
    """Return the setting that would read what responses end in, as far as that can be told."""
    if any(_MARK.search(end) for end in ends):
        return '`answer = after("####")`'
    if sum(_NUMBER.search(end) is not None for end in ends) > len(ends) / 2:
        return "`answer = last_number`"
    return '`answer = after("…")` or `answer = regex("…")`'


def find_inexact(graph: Graph, folders: Mapping[str, Path]) -> Findings:
    """Return a warning (W0809) of each evaluation whose responses are not exactly what its model would answer."""

    def read(task: Task, folder: Path) -> list[Diagnostic]:
        curves = json.loads((folder / "curves.json").read_bytes())
        reasons: list[str] = next((curve.get("inexact", []) for curve in curves.values()), [])
        return [
            warning("W0809", _INEXACT[each][0], where=task.id, help=_INEXACT[each][1])
            for each in reasons
            if each in _INEXACT
        ]

    return findings_of(graph, folders, "evaluate", read)


_INEXACT = {
    "retokenised": (
        "responses came as texts, so answers were forced after tokens that may not be the model's own",
        "exact ones come from a server that replies token ids, as vLLM and SGLang do",
    ),
    "asked_as_text": (
        "the server took prompts as texts alone, so it read tokens of its own where a response was cut",
        "exact ones come from a server that takes prompts of token ids, as vLLM and SGLang do",
    ),
    "unrepeatable": (
        "the server gave two answers to the same greedy request",
        "evaluate again to see how far the numbers move; vLLM has `VLLM_BATCH_INVARIANT=1`, and SGLang"
        " `--enable-deterministic-inference`",
    ),
}
"""Words that an evaluation has beside its curves: what each says, and what helps."""


def find_unended(folder: Path) -> list[Diagnostic]:
    """Return a warning (W0801) of a run's arms whose every response was cut at the longest length; `folder` is the run's."""
    lengths: dict[str, float] = {}
    for summary in sorted((folder / "arms").glob("*/summary.json")):
        try:
            mean = json.loads(summary.read_bytes())["mean"]
            cut, length = float(mean["unfinished"]), float(mean["length"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if cut >= 1:
            lengths[summary.parent.name] = length
    if not lengths:
        return []
    names = [f"`{name}`" for name in lengths]
    length = sum(lengths.values()) / len(lengths)
    return [
        warning(
            "W0801",
            f"no response of {listed(names, _NAMED)} ended: all were cut, at {length:g} tokens on average",
            where=str(folder / "arms" / next(iter(lengths))) if len(lengths) == 1 else str(folder / "arms"),
            help="raise the suite's `max_tokens`, or train longer; what a response answered before it was cut counts, "
            "in its thinking too unless its data say `thinking = skip`",
        )
    ]


def unlearnt(folder: Path) -> list[Diagnostic]:
    """Return a warning (W0803) of a run's stages in which no question's responses ever earned differently."""
    idle = [
        (arm, stage, count, silent)
        for arm in sorted(path for path in (folder / "arms").glob("*") if path.is_dir())
        for stage, count, silent in _stages(arm)
    ]
    if not idle:
        return []
    names = [f"`{arm.name}`" + (f", stage {stage + 1}" if count > 1 else "") for arm, stage, count, _ in idle]
    remedy = (
        "most responses have no answer where one is looked for: say where it stands by `answer` in the data"
        if all(silent for *_, silent in idle)
        else "begin from a model that is sometimes right, take easier questions or more `rollouts`, "
        "or let responses be longer"
    )
    return [
        warning(
            "W0803",
            f"nothing was learned in {listed(names, _NAMED, '; ')}: "
            "at every step, all responses to a question earned the same",
            where=str(idle[0][0]) if len(idle) == 1 else str(folder / "arms"),
            help=remedy,
        )
    ]


def _stages(arm: Path) -> list[tuple[int, int, bool]]:
    """Return an arm's stages without any advantage, but for unreadable ones.

    Each has its position, the number of stages, and whether most of the responses that ended held no answer.
    """
    metrics = sorted((arm / "stages").glob("*/metrics.parquet"))
    idle = []
    for path in metrics:
        try:
            table = pl.read_parquet(path, glob=False)
            equal = table["equal_groups"]
        except (OSError, pl.exceptions.PolarsError):
            continue
        if len(equal) and equal.null_count() == 0 and bool((equal >= 1).all()) and not _drawn(table):
            answered = float(table["answered"].mean() or 0) if "answered" in table.columns else 1.0  # type: ignore[arg-type]
            idle.append((int(path.parent.name), len(metrics), answered < FEW_ANSWERED))
    return idle


def _drawn(table: pl.DataFrame) -> bool:
    """Return whether a training was drawn to another model, a teacher: a divergence then has a gradient of its own."""
    if not {"kl", "grad_norm"} <= set(table.columns):
        return False
    return float(table["grad_norm"].max() or 0) > LEAST_GRADIENT  # type: ignore[arg-type]
