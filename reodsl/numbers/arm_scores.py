"""Scores of each question by model and benchmark, checked to be paired across models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reodsl.diagnostics import problem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ArmScores:
    """A checkpoint's scores by benchmark, each a mean over a question's samples; questions in one order for all checkpoints.

    `forced`: shape [questions, budgets], correctness of the forced answer. `accuracy` (a fraction) and `length`
    (tokens): shape [questions], of whole responses.
    """

    forced: Mapping[str, NDArray[np.float64]]
    accuracy: Mapping[str, NDArray[np.float64]]
    length: Mapping[str, NDArray[np.float64]]


def checked_arms(
    arms: Mapping[str, Sequence[ArmScores]], budgets: Sequence[int], seeds: int
) -> dict[str, int]:
    """The number of questions by benchmark, if all checkpoints have the same; else a `Problem`.

    A model has one checkpoint for each of the `seeds`, or one that is the same for all.
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
        for what, scores in (("forced", arm.forced), ("accuracy", arm.accuracy), ("length", arm.length)):
            if set(scores) != set(sizes):
                raise problem(
                    "E0431",
                    f"`{name}` and `{first}` were evaluated on different benchmarks ({what})",
                    notes=[
                        f"`{name}`: {', '.join(sorted(scores)) or 'none'}",
                        f"`{first}`: {', '.join(sorted(sizes))}",
                    ],
                    help="evaluate all models of a study on one suite",
                )
            for benchmark, values in scores.items():
                wanted = (sizes[benchmark], len(budgets)) if what == "forced" else (sizes[benchmark],)
                if values.shape != wanted:
                    raise problem(
                        "E0431",
                        f"`{name}` has {what} scores of shape {list(values.shape)}, and {list(wanted)} is needed",
                        where=benchmark,
                        help="give every model the same questions and budgets, in one order",
                    )
                top = np.inf if what == "length" else 1 + 1e-9
                if not (np.isfinite(values) & (values >= 0) & (values <= top)).all():
                    raise problem(
                        "E0431",
                        f"`{name}` has {what} scores that are not finite numbers "
                        + ("from 0 up" if what == "length" else "from 0 to 1"),
                        where=benchmark,
                        help="leave out questions without samples, for every model",
                    )
    return sizes
