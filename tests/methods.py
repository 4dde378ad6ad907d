"""Methods as values, for tests of graphs, reports and training: PPO with nothing special, and rewards at budgets."""

from __future__ import annotations

from typing import Any

from reodsl.ir.expression import ForcedAnswer, Infix, Variable, Weight
from reodsl.ir.reward import DenseReward, Reward, Split
from reodsl.ir.training import Advantage, Batch, Ppo, Sampling


def plain_ppo(
    reward: Reward, *, tokens: int, max_prompt: int, prompts: int, rollouts: int, **more: Any
) -> Ppo:
    """One pass over each step's responses of `tokens` tokens at most, clipped at 0.2."""
    settings: dict[str, Any] = {"minibatches": 1, "epochs": 1, "advantage": Advantage()}
    return Ppo(
        rollout=Sampling(max_tokens=tokens),
        max_prompt=max_prompt,
        batch=Batch(prompts=prompts, rollouts=rollouts),
        clip_low=0.2,
        clip_high=0.2,
        loss_mean="token",
        reward=reward,
        **settings | more,
    )


def dense(split: Split, name: str = "reo") -> Reward:
    """REO's reward: whether the answer that is forced at each budget is right, weighed by the trapezoid rule."""
    value = Infix(fn="*", left=Weight(rule="trapezoid"), right=ForcedAnswer(of="y", cut=Variable(name="L")))
    return Reward(name=name, dense=DenseReward(split=split, var="L", value=value))
