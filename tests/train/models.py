"""Small random models of both families, with norms away from 1 so that each weight matters."""

from __future__ import annotations

from typing import Any

import torch

from runners.models.folder import build


def small_model(family: str = "qwen3", *, tied: bool = True, vocab: int = 23, seed: int = 0) -> Any:
    model = build(
        vocab,
        seed,
        eos=1,
        pad=0,
        family=family,
        layers=2,
        hidden=32,
        heads=4,
        kv_heads=2,
        head_dim=8,
        intermediate=48,
        context=64,
        tied=tied,
        init_std=0.2,
    )
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=noise))
    return model
