"""Losses over pairs of responses, from how far each preferred one is ahead."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor


def pair_loss(lead: Tensor, beta: float, gamma: float, link: Literal["logistic", "square"]) -> Tensor:
    """Return the mean loss over pairs; `lead` [pairs] is the preferred response's score less the rejected one's.

    - `logistic`: `-log sigmoid(beta lead - gamma)`. Scores that are means of log-probabilities make it SimPO (Meng et al.
      2024), where `gamma` is the margin itself and not its ratio to `beta`; sums of their differences from a reference's,
      with a `gamma` of 0, DPO (Rafailov et al. 2023, eq. 7).
    - `square`: `(lead - 1 / (2 beta))^2`, with DPO's scores IPO (Azar et al. 2024, eq. 17), whose tau is `beta`.
    """
    if link == "square":
        return (lead - 1.0 / (2.0 * beta)).square().mean()
    return -F.logsigmoid(beta * lead - gamma).mean()
