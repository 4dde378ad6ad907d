"""Explain the numbers around a value in words, for the page, the terminal and the charts."""

from __future__ import annotations

from reodsl.diagnostics import plural
from reodsl.ir.study import Score, Study
from reodsl.numbers.curves import MEAN_NAMES
from reodsl.report import formats


def intervals(study: Study, seeds: int) -> str:
    """Return sentences that explain the brackets or spreads beside values; empty without a score and with one seed.

    With one seed they say that intervals do not cover differences between training runs.

    Args:
        study: the study.
        seeds: number of seeds with results.
    """
    score = study.score
    if score is None:
        return "± is one standard deviation over seeds." if seeds > 1 else ""
    level = f"Brackets: {100 * score.confidence:g}% intervals over "
    if seeds > 1:
        level += f"{plural(seeds, 'seed')} and questions."
    else:
        level += "questions. With one seed they do not cover differences between training runs."
    return level if score.relative_to is None else f"{level} {star(score)}"


def star(score: Score) -> str:
    """Return the sentence that explains the star at a difference."""
    return f"{formats.STAR} significantly different from {score.relative_to} (Holm-corrected)."


def frontiers(study: Study) -> str:
    """Explain the cross-fitted and the plain frontier and how each is biased; empty for a published frontier."""
    score = study.score
    edge = next((edge for edge in study.frontiers if score is not None and edge.name == score.frontier), None)
    if edge is None or edge.published:
        return ""
    return (
        "REG is against the cross-fitted frontier: the best arm at a budget is chosen on some questions and seeds and "
        "valued on others. It is biased downward, if at all. REG, plain frontier, is the paper's: the best measured "
        "score at each budget. It is biased upward, because it picks whichever arm was ahead by luck."
    )


def misfits(study: Study) -> tuple[str, ...]:
    """Return the reasons why the published frontier of the score does not match the arms.

    They are those that the compiler found, or else that the frontier is a mean over unnamed benchmarks. They are empty
    if the frontier matches or is measured by the study itself, and without a score.
    """
    score = study.score
    curves = next((edge.published for edge in study.frontiers if score and edge.name == score.frontier), ())
    if score is None or score.misfits or not any(curve.benchmark.lower() in MEAN_NAMES for curve in curves):
        return score.misfits if score is not None else ()
    benchmarks = dict.fromkeys(benchmark.name for arm in study.arms for benchmark in arm.suite.benchmarks)
    return (
        f"{score.frontier} is a mean over unnamed benchmarks, but each arm's mean is over "
        + ", ".join(benchmarks),
    )


def approximate(study: Study) -> str:
    """Return the sentence that says why REG is approximate; empty if REG is exact."""
    reasons = "; ".join(misfits(study))
    return f"REG is approximate ({formats.APPROXIMATE_MARK}): {reasons}." if reasons else ""


def nearly(study: Study) -> str:
    """Return the mark that precedes the name of an approximate REG; empty if REG is exact."""
    return formats.APPROXIMATE_MARK if misfits(study) else ""


def bars(study: Study, seeds: int) -> str:
    """Return the meaning of the bars of charts, to complete a sentence that begins with "Bars are".

    Args:
        study: the study.
        seeds: number of seeds with results.
    """
    if study.score is not None:
        return f"{100 * study.score.confidence:g}% intervals"
    return "one standard deviation over seeds" if seeds > 1 else "absent: there is one seed and no score"
