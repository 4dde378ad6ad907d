"""Scores of each question by model and benchmark, checked to be paired, and the questions that all arms solve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reodsl.diagnostics import problem

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class ArmScores:
    """The scores of a checkpoint by benchmark: means over a question's samples, with questions in the same order for all.

    `forced`: [questions, budgets], correctness of the forced answer, 0 to 1. `accuracy` (0 to 1) and `length` (tokens):
    [questions], of complete responses.
    """

    forced: Mapping[str, NDArray[np.float64]]
    accuracy: Mapping[str, NDArray[np.float64]]
    length: Mapping[str, NDArray[np.float64]]


def check_arms(arms: Mapping[str, Sequence[ArmScores]], budgets: Sequence[int], seeds: int) -> dict[str, int]:
    """Check that all checkpoints have scores of the same benchmarks, questions and budgets, and count the questions.

    Args:
        arms: Scores of each model: a checkpoint for each seed, or a single checkpoint for all seeds.
        budgets: The columns of `forced`, in tokens.
        seeds: The number of seeds.

    Returns:
        The number of questions by benchmark.

    Raises:
        Problem: E0431 for the first difference.
    """
    import numpy as np

    if not arms:
        raise problem("E0431", "there are no models to score", help="give the scores of at least one")
    for name, of_seeds in arms.items():
        if len(of_seeds) not in (1, seeds):
            raise problem(
                "E0431",
                f"`{name}` has scores of {len(of_seeds)} checkpoints for {seeds} seeds",
                help="evaluate every model once a seed",
            )
    first, (reference, *_) = next(iter(arms.items()))
    sizes = {b: len(values) for b, values in reference.forced.items()}
    if not sizes or 0 in sizes.values():
        raise problem(
            "E0431", f"`{first}` has no question", help="evaluate at least one question a benchmark"
        )
    for name, arm in ((name, arm) for name, of_seeds in arms.items() for arm in of_seeds):
        for measure, scores in (("forced", arm.forced), ("accuracy", arm.accuracy), ("length", arm.length)):
            if set(scores) != set(sizes):
                raise problem(
                    "E0431",
                    f"`{name}` and `{first}` were evaluated on different benchmarks ({measure})",
                    notes=[
                        f"`{name}`: {', '.join(sorted(scores)) or 'none'}",
                        f"`{first}`: {', '.join(sorted(sizes))}",
                    ],
                    help="evaluate all models of a study on one suite",
                )
            for benchmark, values in scores.items():
                shape = (sizes[benchmark], len(budgets)) if measure == "forced" else (sizes[benchmark],)
                if values.shape != shape:
                    raise problem(
                        "E0431",
                        f"`{name}` has {measure} scores of shape {list(values.shape)}, and {list(shape)} is needed",
                        where=benchmark,
                        help="give every model the same questions and budgets, in one order",
                    )
                top = np.inf if measure == "length" else 1 + 1e-9
                if not (np.isfinite(values) & (values >= 0) & (values <= top)).all():
                    raise problem(
                        "E0431",
                        f"`{name}` has {measure} scores that are not finite numbers "
                        + ("from 0 up" if measure == "length" else "from 0 to 1"),
                        where=benchmark,
                        help="leave out questions without samples, for every model",
                    )
    return sizes


LOT_ROWS = 1 << 21
"""Rows of forced answers that are aggregated at once."""


def arm_scores(folder: Path, arm: str, lot: int = LOT_ROWS) -> tuple[ArmScores, tuple[int, ...]]:
    """Read an arm's scores from an evaluation's folder, as `scores_of` does.

    Args:
        folder: The evaluation's folder.
        arm: The arm's name, for messages.
        lot: Rows of forced answers that are aggregated at once.

    Returns:
        The scores, and the budgets of forced answers in tokens.

    Raises:
        Problem: E0431 if a question lacks a budget, or if budgets differ between benchmarks.
    """
    import polars as pl

    samples = pl.scan_parquet(folder / "samples.parquet", glob=False)
    return scores_of(samples, pl.scan_parquet(folder / "forced.parquet", glob=False), arm, lot)


def scores_of(
    samples: pl.LazyFrame, forced: pl.LazyFrame, arm: str, lot: int = LOT_ROWS
) -> tuple[ArmScores, tuple[int, ...]]:
    """Return an arm's scores by benchmark, with questions sorted by their ids, and the budgets of its forced answers.

    Rows of forced answers are aggregated `lot` at a time. Besides one lot, memory then holds twelve bytes for
    each question and budget: a sum and a count.

    Args:
        samples: Responses, rows of `samples.parquet`.
        forced: Forced answers, rows of `forced.parquet`.
        arm: The arm's name, for messages.
        lot: Rows of forced answers that are aggregated at once.

    Returns:
        The scores, and the budgets in tokens.

    Raises:
        Problem: E0431 if a question lacks a budget, or if budgets differ between benchmarks.
    """
    import numpy as np
    import polars as pl

    table = (
        samples.group_by("benchmark", "question")
        .agg(pl.col("correct").cast(pl.Float64).mean(), pl.col("tokens").cast(pl.Float64).mean())
        .sort("benchmark", "question")
        .collect(engine="streaming")
        .with_row_index("row")
    )
    column = forced.select(pl.col("budget").unique().sort()).collect(engine="streaming")["budget"]
    budgets = tuple(int(budget) for budget in column)
    rows = forced.select(pl.len()).collect(engine="streaming").item()
    right = np.zeros((table.height, len(budgets)))
    counts = np.zeros((table.height, len(budgets)), dtype=np.int32)
    places = table.select("benchmark", "question", "row")
    for first in range(0, rows, lot):
        cells = (
            forced.slice(first, lot)
            .group_by("benchmark", "question", "budget")
            .agg(pl.col("correct").cast(pl.Float64).sum(), pl.len())
            .collect(engine="streaming")
            .join(places, on=["benchmark", "question"])
        )
        cell_index = cells["row"].to_numpy(), np.searchsorted(budgets, cells["budget"].to_numpy())
        right[cell_index] += cells["correct"].to_numpy()
        counts[cell_index] += cells["len"].to_numpy().astype(np.int32)
    matrices: dict[str, NDArray[np.float64]] = {}
    accuracy: dict[str, NDArray[np.float64]] = {}
    length: dict[str, NDArray[np.float64]] = {}
    for name in table["benchmark"].unique(maintain_order=True):
        of_benchmark = table.filter(pl.col("benchmark") == name)
        mine = slice(of_benchmark["row"][0], of_benchmark["row"][-1] + 1)
        count = np.count_nonzero(counts[mine])
        if count != of_benchmark.height * len(budgets):
            raise problem(
                "E0431",
                f"`{arm}` has {count} forced scores for {of_benchmark.height} questions at {len(budgets)} budgets",
                where=str(name),
                help="evaluate every benchmark on one grid",
            )
        matrices[name] = right[mine] / counts[mine]
        accuracy[name], length[name] = of_benchmark["correct"].to_numpy(), of_benchmark["tokens"].to_numpy()
    return ArmScores(matrices, accuracy, length), budgets


@dataclass(frozen=True, slots=True)
class BalancedQuestions:
    """A balanced subset: `questions` as indices of the input, and results on them by model.

    `length` is the mean length of right responses in tokens, and `accuracy` the share of right responses. Both are
    None if the subset is empty.
    """

    questions: tuple[int, ...]
    length: dict[str, float | None]
    accuracy: dict[str, float | None]


def balance_questions(
    correct: Mapping[str, ArrayLike], lengths: Mapping[str, ArrayLike]
) -> BalancedQuestions:
    """Compare models on the questions that every model solves in more than half of its samples.

    On each of these questions, the lengths of a model's right responses are averaged; its length is the mean of these
    averages. Its accuracy is the share of its responses to these questions that are right.

    Args:
        correct: By model, whether each response is right (0 or 1): [questions, samples]. All models have the same
            questions in the same order; numbers of samples may differ.
        lengths: By model, the tokens of each response: [questions, samples].

    Raises:
        Problem: E0431 for shapes or questions that do not match.

    Source: tab:frontier of the paper.
    """
    import numpy as np

    if not correct:
        raise problem("E0431", "there are no models to compare", help="give the samples of at least one")
    right: dict[str, np.ndarray] = {}
    for name, values in correct.items():
        array = np.asarray(values, dtype=np.float64)
        used = np.asarray(lengths[name]) if name in lengths else np.empty(0)
        if array.ndim != 2 or array.shape[1] == 0 or array.shape != used.shape:
            raise problem(
                "E0431",
                f"`{name}` has grades of shape {list(array.shape)} and lengths of shape {list(used.shape)}",
                help="give both the shape [questions, samples]",
            )
        right[name] = array
    counts = {name: array.shape[0] for name, array in right.items()}
    if len(set(counts.values())) > 1:
        raise problem(
            "E0431",
            "the models were graded on different questions",
            notes=[f"`{name}`: {count} questions" for name, count in counts.items()],
            help="keep the questions that all models have, in one order",
        )
    shared = np.all([array.mean(axis=1) > 0.5 for array in right.values()], axis=0)
    questions = tuple(int(q) for q in np.flatnonzero(shared))
    length: dict[str, float | None] = dict.fromkeys(right)
    accuracy: dict[str, float | None] = dict.fromkeys(right)
    if questions:
        for name, array in right.items():
            hit = array[shared]
            used = np.asarray(lengths[name], dtype=np.float64)[shared]
            length[name] = float(((hit * used).sum(axis=1) / hit.sum(axis=1)).mean())
            accuracy[name] = float(hit.mean())
    return BalancedQuestions(questions, length, accuracy)
