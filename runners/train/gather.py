"""Gathering a step's batch: rounds of experience in; what is learnt from, the step's numbers and its rollouts out.

Without resampling there is one round. With it, questions whose responses give no gradient, because all earn the same,
are replaced from further rounds, as DAPO's dynamic sampling does (Yu et al. 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from reodsl.ir.training import Ppo
from runners.rewards.step import Floats, Ints
from runners.train.advantages import batch_normalised, of_tokens
from runners.train.agreement import Learnt
from runners.train.collect import Experience
from runners.train.scored import ROLLOUTS, Scored, learnt_of, rollout_columns, score, step_metrics

SUMS = ("tokens", "forced_answers", "verifier_timeouts", "verifier_failures")
"""Numbers of a step that add up over its rounds; all others are means."""
WEIGHTS = {"entropy": "tokens", "forced_accuracy": "forced_answers"}
"""Means over something that rounds have unlike amounts of, and its number."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """A step's batch. `row` and `rollouts` are about everything that was sampled, learnt from or not."""

    learnt: Learnt
    row: Mapping[str, float]
    rollouts: pl.DataFrame
    seconds: Mapping[str, float]


def gather(experience_of: Callable[[int], Experience], method: Ppo, number: int) -> Gathered:
    """Step `number` (from 0). `experience_of(k)` makes the k-th draw of questions and their responses.

    Draws are numbered so that no two rounds of any steps share one. The batch has `batch.prompts` questions with a
    gradient, or those that were found in `resample` further rounds; without any, the first round as it is.
    """
    rounds = 1 + method.resample
    parts: list[_Part] = []
    rows: list[Mapping[str, float]] = []
    frames: list[pl.DataFrame] = []
    seconds: list[Mapping[str, float]] = []
    wanted = method.batch.prompts
    for own in range(rounds):
        # Nothing else holds on to a round: of many, only what is learnt from stays in memory.
        experience = experience_of(number * rounds + own)
        scored = score(experience, method)
        every = _Part(learnt_of(experience, scored, method.kl > 0), scored.sections, scored.tokens)
        groups = with_gradient(scored)[:wanted]
        if own == 0:
            first = every
        parts.append(every.of(groups))
        rows.append(step_metrics(experience, scored))
        frames.append(pl.DataFrame(rollout_columns(experience, scored, number + 1), schema=ROLLOUTS))
        seconds.append(experience.seconds)
        wanted -= len(groups)
        if wanted == 0:
            break
    if not method.resample or not any(part.learnt.tokens for part in parts):
        parts = [first]
    row = _merged(rows)
    if method.resample:
        row["rounds"] = float(len(rows))
        row["groups_short"] = float(wanted)
    batch = _batch(parts, method.advantage.batch)
    return Gathered(batch, row, pl.concat(frames), _merged(seconds, tuple(seconds[0])))


@dataclass(frozen=True, slots=True)
class _Part:
    """What is learnt from some questions, with the advantages of their sections and how many tokens these have, both
    [questions, rollouts, sections]."""

    learnt: Learnt
    sections: Floats
    tokens: Ints

    def of(self, groups: Sequence[int]) -> _Part:
        """That of the questions at these positions alone."""
        chosen = list(groups)
        learnt = of_groups(self.learnt, groups, self.sections.shape[1])
        return _Part(learnt, self.sections[chosen], self.tokens[chosen])


def _batch(parts: Sequence[_Part], normalise: bool) -> Learnt:
    """What is learnt from all parts; with `normalise` z-scored as a whole."""
    batch = joined([part.learnt for part in parts])
    if not normalise:
        return batch
    # Rounds may have unlike numbers of reasoning steps: what is added has no tokens.
    width = max(part.sections.shape[2] for part in parts)
    sections, tokens = (
        np.concatenate([np.pad(own, ((0, 0), (0, 0), (0, width - own.shape[2]))) for own in column])
        for column in ([part.sections for part in parts], [part.tokens for part in parts])
    )
    return replace(batch, advantages=of_tokens(batch_normalised(sections, tokens), tokens))


def with_gradient(scored: Scored) -> list[int]:
    """The positions of the questions of which some token has an advantage."""
    moved = ((scored.sections != 0) & (scored.tokens > 0)).any(axis=(1, 2))
    return [int(at) for at in np.flatnonzero(moved)]


def of_groups(learnt: Learnt, groups: Iterable[int], size: int) -> Learnt:
    """The part of a batch that belongs to the questions at these positions."""
    kept = [at * size + own for at in groups for own in range(size)]
    return Learnt(
        tuple(learnt.prompts[i] for i in kept),
        tuple(learnt.tokens[i] for i in kept),
        tuple(learnt.leads[i] for i in kept),
        [learnt.logprobs[i] for i in kept],
        [learnt.behaviour[i] for i in kept],
        [learnt.advantages[i] for i in kept],
        learnt.whole,
    )


def joined(parts: Sequence[Learnt]) -> Learnt:
    """Batches one after another."""
    return Learnt(
        tuple(each for part in parts for each in part.prompts),
        tuple(each for part in parts for each in part.tokens),
        tuple(each for part in parts for each in part.leads),
        [each for part in parts for each in part.logprobs],
        [each for part in parts for each in part.behaviour],
        [each for part in parts for each in part.advantages],
        any(part.whole for part in parts),
    )


def _merged(rows: Sequence[Mapping[str, float]], sums: Sequence[str] = SUMS) -> dict[str, float]:
    """Numbers of rounds of one size as those of a step: sums, or means over the rounds that have them."""
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        own = [row for row in rows if name in row]
        if name in sums:
            found[name] = sum(row[name] for row in own)
        else:
            weights = [row[WEIGHTS[name]] if name in WEIGHTS else 1.0 for row in own]
            weighted = zip(own, weights, strict=True)
            found[name] = sum(row[name] * weight for row, weight in weighted) / sum(weights)
    return found
