"""A step scored: its experience in; rewards, advantages, what the update reads of it, and the rows of its tables out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from reodsl.ir.training import Ppo
from runners.rewards.step import Floats, Ints
from runners.rewards.vectorise import vectorise
from runners.train.advantages import advantages_of, normalised, of_tokens
from runners.train.agreement import Learnt
from runners.train.collect import Experience


@dataclass(frozen=True, slots=True)
class Scored:
    """Rewards [questions, rollouts, splits] (absent ones 0), and by response the advantage of each of its sections'
    `tokens`, both [questions, rollouts, sections], before any normalisation over the batch.

    The tokens of a prefix that is learnt come first. `equal_groups` is the share of questions without any advantage.
    """

    rewards: Floats
    sections: Floats
    tokens: Ints
    equal_groups: float


def score(experience: Experience, method: Ppo) -> Scored:
    """Rewards and advantages of a step. Raises E0920 where a reward is not finite."""
    step = experience.step
    rewards = vectorise(method.reward, step, experience.forced.look_up, experience.bare.look_up)
    if method.reward.parts:
        return _score_parts(experience, method, rewards)
    dense = method.reward.dense is not None
    places = step.places if dense else step.length[:, :, None]
    present = np.broadcast_to(step.present if dense else np.True_, rewards.shape)
    sections, tokens = advantages_of(rewards, places, present, step.length, method.advantage)
    return Scored(np.where(present, rewards, 0.0), sections, tokens, _equal(sections))


def _score_parts(experience: Experience, method: Ppo, values: Floats) -> Scored:
    """A_t: the sum of the parts' normalised values, those on the prefix for its tokens (or the first token) alone."""
    rule, step = method.advantage, experience.step
    parts = method.reward.parts
    weights = np.array([part.weight for part in parts])
    everywhere = np.array([part.on == "response" for part in parts])
    scored = normalised(values, np.ones(values.shape, dtype=np.bool_), rule.normalise, rule.std) * weights
    leads = np.array(experience.leads).reshape(step.length.shape)
    begun = np.maximum(leads, 1)
    tokens = np.stack((begun, step.length + leads - begun), axis=2).astype(np.int64)
    sections = np.stack((scored.sum(axis=2), scored[:, :, everywhere].sum(axis=2)), axis=2)
    return Scored(values * weights, sections, tokens, _equal(scored))


def _equal(advantages: Floats) -> float:
    """The share of questions of which no response has an advantage."""
    return 1.0 - float((advantages != 0).any(axis=(1, 2)).mean())


def learnt_of(experience: Experience, scored: Scored, whole: bool = False) -> Learnt:
    """What the update reads of a step, whose advantages are not normalised over the batch; `whole` where tokens without
    an advantage are learnt as well."""
    pairs = list(zip(experience.requests, experience.responses, experience.leads, strict=True))
    reads = [len(request.prompt) - lead for request, _, lead in pairs]
    return Learnt(
        tuple(request.prompt[:read] for (request, _, _), read in zip(pairs, reads, strict=True)),
        tuple(
            (*request.prompt[read:], *one.tokens)
            for (request, one, _), read in zip(pairs, reads, strict=True)
        ),
        experience.leads,
        [np.asarray(one.logprobs, dtype=np.float32) for one in experience.responses],
        [np.asarray(one.behaviour, dtype=np.float32) for one in experience.responses],
        of_tokens(scored.sections, scored.tokens),
        whole,
    )


def step_metrics(experience: Experience, scored: Scored) -> dict[str, float]:
    """What is known of a step before its update: means over responses, and how many gave no signal.

    `entropy` is the mean of minus the log-probability of the tokens drawn, in nats: its expectation at temperature 1.
    """
    responses = experience.responses
    logprobs = np.concatenate([np.asarray(r.logprobs) for r in responses])
    rewards = scored.rewards.sum(axis=2)
    found = {
        "reward": float(rewards.mean()),
        "reward_std": float(rewards.std(axis=1).mean()),
        "accuracy": float(experience.step.correct.mean()),
        "length": float(experience.step.length.mean()),
        "unfinished": float(np.mean([r.finish == "length" for r in responses])),
        "answered": experience.answered,
        "entropy": float(-logprobs.mean()),
        "equal_groups": scored.equal_groups,
        "tokens": float(experience.step.length.sum()),
        "verifier_timeouts": float(experience.unsettled.get("timeout", 0)),
        "verifier_failures": float(experience.unsettled.get("failed", 0)),
    }
    if len(experience.forced.values):
        found["forced_answers"] = float(len(experience.forced.values))
        found["forced_accuracy"] = float(experience.forced.values.mean())
    return found


ROLLOUTS: dict[str, Any] = {
    "step": pl.Int64,
    "question": pl.String,
    "rollout": pl.Int64,
    "tokens": pl.Int64,
    "finish": pl.String,
    "weight_versions": pl.List(pl.Int64),
    "mode": pl.Int64,
    "budget": pl.Int64,
    "correct": pl.Boolean,
    "reward": pl.Float64,
    "cuts": pl.List(pl.Int64),
    "forced": pl.List(pl.Boolean),
    "bare_cuts": pl.List(pl.Int64),
    "bare": pl.List(pl.Boolean),
}
"""`rollouts.parquet`: `forced[k]` is the verdict on the answer forced at `cuts[k]` tokens. The bare prefix's verdict is
`bare[k]` from `bare_cuts[k]` tokens on until the next, and false before the first. `weight_versions` counts the steps of
the stage that the engine's weights had behind them. `mode` is the position of the response's
wording and `budget` what was written into its prompt, both null where there is none."""


def rollout_columns(experience: Experience, scored: Scored, number: int) -> Mapping[str, Sequence[object]]:
    """The step's rows of `rollouts.parquet`."""
    size = experience.step.length.shape[1]
    forced: list[tuple[list[int], list[bool]]] = [([], []) for _ in experience.responses]
    for key, value in zip(experience.forced.keys.tolist(), experience.forced.values.tolist(), strict=True):
        cuts, verdicts = forced[key // experience.forced.width]
        cuts.append(key % experience.forced.width)
        verdicts.append(value)
    return {
        "step": [number] * len(experience.responses),
        "question": [q.id for q in experience.questions for _ in range(size)],
        "rollout": list(range(size)) * len(experience.questions),
        "tokens": [len(r.tokens) for r in experience.responses],
        "finish": [r.finish for r in experience.responses],
        "weight_versions": [list(r.weight_versions) for r in experience.responses],
        **{name: _drawn_numbers(experience, name) for name in ("mode", "budget")},
        "correct": [bool(c) for c in experience.step.correct.ravel()],
        "reward": scored.rewards.sum(axis=2).ravel().tolist(),
        "cuts": [cuts for cuts, _ in forced],
        "forced": [verdicts for _, verdicts in forced],
        "bare_cuts": [[at for at, _ in own] for own in experience.prefixes],
        "bare": [[correct for _, correct in own] for own in experience.prefixes],
    }


def _drawn_numbers(experience: Experience, name: str) -> list[int | None]:
    """A number that each response was asked with; nothing where wordings give none."""
    given = experience.step.given
    if "mode" not in given or name not in given:
        return [None] * len(experience.responses)
    return [int(each) for each in given[name].ravel()]
