"""Rewards on their own: types, units and ranges, for whatever arguments their parameters allow."""

from __future__ import annotations

from reodsl.language.context import Context
from reodsl.language.reward.body import type_reward
from reodsl.language.values import Definition


def check_reward(ctx: Context, reward: Definition) -> None:
    """Report what is wrong in a reward's body."""
    type_reward(ctx, reward, symbolic=True)
