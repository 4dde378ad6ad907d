"""SimPO's loss: summed log-probabilities and lengths of preferred and rejected responses in, a mean out (Meng 2024)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def simpo_loss(
    preferred: Tensor,
    preferred_tokens: Tensor,
    rejected: Tensor,
    rejected_tokens: Tensor,
    beta: float,
    gamma: float,
) -> Tensor:
    """Mean of `-log sigmoid(beta (logp_w / |y_w| - logp_l / |y_l|) - gamma)` over pairs; all tensors [pairs].

    `gamma` is the margin itself, not its ratio to `beta`.
    """
    margin = preferred / preferred_tokens - rejected / rejected_tokens
    return -F.logsigmoid(beta * margin - gamma).mean()
