"""Explain the numbers around a value in words, for the page, the terminal and the charts."""

from __future__ import annotations

from reodsl.ir.study import Study
from reodsl.report import formats


def intervals(study: Study, seeds: int) -> str:
    """What is in brackets, over what it reaches, and what the mark says; with one seed, what it leaves out."""
    score = study.score
    if score is None:
        deviation = "± is one standard deviation over seeds."
        if study.shared:
            deviation += f" {shared(study)}: how far its trainings differ is not in it."
        return deviation if seeds > 1 else ""
    level = f"[ ] {100 * score.confidence:g}% interval"
    if seeds > 1:
        level += f" over {formats.plural(seeds, 'seed')} and the questions."
        if study.shared:
            level += f" {shared(study)}: how far its trainings differ is not in it."
    else:
        level += " over the questions, of these trained models: with one seed, how far trainings differ is not in it."
    if score.relative_to is None:
        return level
    return f"{level} {formats.APART} leaves out 0: apart from {score.relative_to}."


def shared(study: Study) -> str:
    """Which trainings all seeds go on from."""
    return f"All seeds go on from one training of {' and '.join(study.shared)}, with seed {study.seeds[0]}"


def frontiers(study: Study) -> str:
    """Which frontier leads, which is the paper's, and how each errs; nothing where it is published."""
    score = study.score
    edge = next((each for each in study.frontiers if score is not None and each.name == score.frontier), None)
    if edge is None or edge.published:
        return ""
    return (
        "REG is against the cross-fitted frontier: the best arm at a budget is chosen on some questions and seeds and "
        "valued on others. It errs low, if at all. REG, plain frontier, is the paper's: the best measured score at each "
        "budget, which errs high, since who is ahead by chance is taken."
    )


def bars(study: Study, seeds: int) -> str:
    """What the bars of charts are."""
    if study.score is not None:
        return f"{100 * study.score.confidence:g}% intervals"
    return "one standard deviation over seeds" if seeds > 1 else "absent: there is one seed and no score"
