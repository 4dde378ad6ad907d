"""The loss of TOPR."""

import torch

from reodsl.own import Tokens


def loss(tokens: Tokens) -> torch.Tensor:
    """-A log pi of each token; where A < 0 it weighs what its response's probability has become, 1 at most."""
    change = (tokens.logprobs - tokens.old).detach()
    sums = torch.zeros_like(tokens.lengths, dtype=change.dtype).index_add(0, tokens.responses, change)
    ratio = sums.clamp(max=0).exp()[tokens.responses]
    weight = torch.where(tokens.advantages < 0, ratio, torch.ones_like(ratio))
    return -weight * tokens.advantages * tokens.logprobs
