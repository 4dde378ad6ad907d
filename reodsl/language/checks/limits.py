"""Limits: rewards and selections once more with what is known where they are used, such as the longest response."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reodsl.diagnostics.model import Diagnostic
from reodsl.language.checks.cases import StageCase, amount
from reodsl.language.checks.wordings import wordings_of
from reodsl.language.context import Context
from reodsl.language.reward.body import type_reward
from reodsl.language.reward.names import INF, Limits
from reodsl.language.reward.selection import type_selection
from reodsl.language.values import Definition, Record


def check_limits(ctx: Context, stage: StageCase) -> Iterator[Diagnostic]:
    """W0301, E0307, E0316: a reward that is constant or no number, or a condition that never holds, for the responses that
    there can be.

    What is so whatever the responses are is reported where the reward or the selection stands.
    """
    data, reward = stage.record.sub("data"), stage.record.sub("reward")
    pool = data.sub("pool") if data is not None and data.kind == "selected" else None
    rule = data.sub("selection") if data is not None and pool is not None else None
    if pool is not None and isinstance(rule, Definition):
        ways = max(1, len(wordings_of(pool)))
        limits = _limits(pool, ways, pool.data("samples") * ways)
        yield from ctx.once_of(str(limits), rule, lambda: _picking(ctx, rule, limits))
    rollout, rollouts = stage.record.sub("rollout"), stage.record.at("batch.rollouts")
    count = amount(rollouts.value) if rollouts is not None else None
    if stage.reward is None or not isinstance(reward, Definition) or rollout is None:
        return
    # A mode where all are asked alike is a mistake of its own (E0511).
    known = _limits(rollout, len(wordings_of(rollout)) or INF, count if count is not None else INF)
    yield from ctx.once_of(str(known), reward, lambda: _earning(ctx, reward, known))


def _picking(ctx: Context, rule: Definition, limits: Limits) -> list[Diagnostic]:
    trial = ctx.trial()
    type_selection(trial, rule, limits=limits)
    return list(_noted(trial, "E0316", "a pool", limits))


def _earning(ctx: Context, reward: Definition, limits: Limits) -> list[Diagnostic]:
    trial = ctx.trial()
    type_reward(trial, reward, limits=limits)
    return [each for code in ("W0301", "E0307") for each in _noted(trial, code, "training", limits)]


def _limits(sampling: Record, ways: float, group: float) -> Limits:
    longest = sampling.data("max_tokens")
    if any(wording.data("prefix") for wording in wordings_of(sampling)):
        longest = None  # what a response was made to begin with comes on top
    return Limits(INF if longest is None else longest, ways, group)


def _noted(trial: Context, code: str, where: str, limits: Limits) -> Iterator[Diagnostic]:
    """The findings of a code, with what they rest on."""
    known = [f"{limits.group:g} responses a question"] if limits.group < INF else []
    known += [f"at most {limits.longest:g} tokens each"] if limits.longest < INF else []
    note = f"{where} has {', '.join(known)}"
    for finding in trial.reported:
        if finding.code == code:
            yield replace(finding, notes=(note, *finding.notes)) if known else finding
