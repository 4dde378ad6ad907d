"""Losses for `loss = python("losses.py:NAME")`: those of papers that no setting has."""

import torch
from torch import Tensor

from reodsl.own import Tokens


def _clipped(tokens: Tokens) -> Tensor:
    """Return PPO's loss of each token."""
    ratio = (tokens.logprobs - tokens.old).exp()
    within = ratio.clamp(1 - tokens.low, 1 + tokens.high)
    return -torch.minimum(ratio * tokens.advantages, within * tokens.advantages)


def _forks(tokens: Tokens) -> Tensor:
    """Return which tokens are of the fifth of their response with the most entropy, at least one."""
    parts = tokens.entropies.detach().split(tokens.lengths.tolist())
    return torch.cat([part >= part.sort().values[-max(1, len(part) // 5) :][:1] for part in parts])


def masked(tokens: Tokens) -> Tensor:
    """PPO's loss, weighed by trainer over engine where that is from 0.5 to 2, else 0 (IcePop: Ling Team 2025)."""
    weight = torch.where(tokens.drawn, (tokens.old - tokens.rollout).exp(), 1.0)
    return torch.where((weight >= 0.5) & (weight <= 2), weight, 0.0) * _clipped(tokens)


def forking(tokens: Tokens) -> Tensor:
    """PPO's loss of the tokens that fork (Wang et al. 2025, Beyond the 80/20 Rule)."""
    return torch.where(_forks(tokens), _clipped(tokens), 0.0)


def fork_bonus(tokens: Tokens) -> Tensor:
    """PPO's loss, and the bonus for entropy at the tokens that fork."""
    return _clipped(tokens) - tokens.entropy * tokens.entropies * _forks(tokens)


def skewed(tokens: Tokens, share: float = 0.1) -> Tensor:
    """KL(p, s p + (1 - s) q) of the policy p and the teacher q at each sampled token (DistiLLM: Ko et al. 2024)."""
    other = tokens.reference - tokens.logprobs.detach()
    mixed = (share + (1 - share) * other.exp()).log()
    return -tokens.kl * (mixed + share * (-mixed).exp()) * tokens.logprobs


def skewed_forward(tokens: Tokens, share: float = 0.1) -> Tensor:
    """KL(q, s q + (1 - s) p) at each sampled token."""
    other = (tokens.reference - tokens.logprobs.detach()).exp()
    return -tokens.kl * (1 - share) * other / (share * other + 1 - share) * tokens.logprobs
