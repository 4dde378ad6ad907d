"""Engine and trainer: a step's tokens with the engine's log-probabilities in; what PPO's ratios divide by, each token's
importance weight, and how far the two are apart, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reodsl.diagnostics import Problem, error
from reodsl.ir.training import Ppo
from runners.train.batches import Example
from runners.train.update import Learner

Floats = NDArray[np.float32]


class Disagreement(Problem):
    """Engine and trainer are too far apart (E0936). Nothing of the step has been applied."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the update reads of a step, response by response.

    `tokens` follow `prompts` and are learnt; the first `leads` of them were part of what the engine was asked, and the
    rest is its response, with `logprobs` and `behaviour` as the engine gives them. `advantages` has one number a token.
    """

    prompts: tuple[tuple[int, ...], ...]
    tokens: tuple[tuple[int, ...], ...]
    leads: tuple[int, ...]
    logprobs: Sequence[Floats]
    behaviour: Sequence[Floats]
    advantages: Sequence[Floats]
    whole: bool = False

    @property
    def cuts(self) -> list[int]:
        """How many tokens of each are run: up to the last with an advantage, or all of them where `whole`."""
        if self.whole:
            return [len(own) for own in self.advantages]
        return [int(np.flatnonzero(own)[-1]) + 1 if own.any() else 0 for own in self.advantages]


@dataclass(frozen=True, slots=True)
class Old:
    """Log-probabilities that ratios divide by and weights, each response's first tokens up to its cut.

    `apart` are trainer minus engine, a number for each token that both know, or None where the trainer has not yet
    computed its own. `numbers` are for `metrics.parquet`.
    """

    logprobs: Sequence[Floats]
    weights: Sequence[Floats | float]
    apart: NDArray[np.floating] | None
    numbers: dict[str, float]


def old_logprobs(
    learner: Learner,
    learnt: Learnt,
    method: Ppo,
    temperature: float,
    same_numbers: bool,
    shown: bool = True,
) -> Old:
    """By the method's `old_logprobs` and `importance_cap`; the trainer's own are those before any change.

    `shown` says that the first minibatch has tokens to learn from, so that its passes show the trainer's own in time.
    """
    rollout, cuts = method.rollout, learnt.cuts
    cropped = rollout.top_p < 1.0 or rollout.top_k > 0
    whole = rollout.temperature == 1.0 and not cropped and not any(learnt.leads)
    rule = method.old_logprobs
    if rule == "auto":
        rule = "engine" if whole and same_numbers and method.importance_cap is None else "trainer"
    if rule == "engine" and whole and shown:
        return Old(
            [own[:cut] for own, cut in zip(learnt.logprobs, cuts, strict=True)], [1.0] * len(cuts), None, {}
        )
    mine = recomputed(learner, learnt, cuts, temperature)
    # At temperature 0 nothing was drawn, and at others with a cropped distribution the engine's are of another one.
    plain = rollout.temperature in (0.0, 1.0) or cropped
    compared = mine if temperature == 1.0 or not plain else recomputed(learner, learnt, cuts, 1.0)
    apart = _joined(_gaps(compared, learnt.logprobs if plain else learnt.behaviour, learnt.leads))
    if method.importance_cap is not None:
        ratios = [np.exp(gap) for gap in _gaps(mine, learnt.behaviour, learnt.leads)]
        weights = [
            # What the engine was given it did not draw.
            np.concatenate((np.ones(min(lead, cut)), np.minimum(ratio, method.importance_cap))).astype(
                np.float32
            )
            for ratio, lead, cut in zip(ratios, learnt.leads, cuts, strict=True)
        ]
        return Old(mine, weights, apart, _weighing(_joined(ratios), method.importance_cap))
    if rule == "engine":
        for own, theirs, lead in zip(mine, learnt.behaviour, learnt.leads, strict=True):
            own[lead:] = theirs[: max(0, len(own) - lead)]
    return Old(mine, [1.0] * len(cuts), apart, {})


def _weighing(ratios: NDArray[np.floating], cap: float) -> dict[str, float]:
    """The mean weight, and the share of tokens whose weight was cut to the cap."""
    if not len(ratios):
        return {}
    return {
        "importance_mean": float(np.minimum(ratios, cap).mean()),
        "importance_capped": float((ratios > cap).mean()),
    }


def agreement(apart: NDArray[np.floating] | None) -> dict[str, float]:
    """Median and largest of exp |trainer's - engine's log-probability|, and the divergence of the trainer from the engine.

    The divergence KL(engine || trainer) is the mean of r - 1 - log r over tokens that the engine drew, r the trainer's
    probability over the engine's (Schulman 2020, Approximating KL Divergence, k3), in nats a token.
    """
    if apart is None or not len(apart):
        return {}
    gap = apart.astype(np.float64)
    with np.errstate(over="ignore"):
        return {
            "mismatch_median": float(np.exp(np.median(np.abs(gap)))),
            "mismatch_max": float(np.exp(np.abs(gap).max())),
            "mismatch_kl": float((np.expm1(gap) - gap).mean()),
        }


def require_agreement(apart: NDArray[np.floating], limit: float | None, number: int) -> None:
    """Raises a Disagreement where the median of a step is past the limit."""
    found = agreement(apart)
    if limit is None or not found or found["mismatch_median"] <= limit:
        return
    raise Disagreement(
        error(
            "E0936",
            f"engine and trainer give the same tokens probabilities that differ by a factor of"
            f" {found['mismatch_median']:.4g} in the median, and `mismatch_limit` is {limit:g}",
            where=f"step {number + 1}",
            notes=[
                f"over {len(apart)} tokens the largest factor is {found['mismatch_max']:.4g}, and the trainer"
                f" diverges from the engine by {found['mismatch_kl']:.3g} nats a token",
                "the steps before are saved, and nothing of this one has been applied",
            ],
            help="look for an engine with other weights, precision, temperature or tokenizer; where the factor is"
            " what this precision gives, raise `mismatch_limit` (the run goes on from here) and set"
            " `importance_cap = 2`",
        )
    )


def recomputed(learner: Learner, learnt: Learnt, cuts: Sequence[int], temperature: float) -> list[Floats]:
    """Log-probabilities by the trainer as it is, of each response's first tokens."""
    found = [np.zeros(cut, dtype=np.float32) for cut in cuts]
    chosen = [i for i, cut in enumerate(cuts) if cut]
    examples = [Example(learnt.prompts[i], learnt.tokens[i][: cuts[i]], found[i]) for i in chosen]
    for i, own in zip(chosen, learner.score(examples, temperature), strict=True):
        found[i] = own
    return found


def _gaps(mine: Sequence[Floats], theirs: Sequence[Floats], leads: Sequence[int]) -> list[Floats]:
    """Trainer minus engine over the tokens of each response, as far as the trainer has gone."""
    return [
        own[lead:] - engine[: max(0, len(own) - lead)]
        for own, engine, lead in zip(mine, theirs, leads, strict=True)
    ]


def _joined(parts: Sequence[NDArray[np.floating]]) -> NDArray[np.floating]:
    return np.concatenate([np.zeros(0, dtype=np.float32), *parts])
