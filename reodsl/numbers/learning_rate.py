"""The learning-rate curve: what the full rate is multiplied with at each step."""

from __future__ import annotations


def learning_rate_factor(step: int, steps: int, warmup: float, decay_from: float | None) -> float:
    """Return what the learning rate is multiplied with at `step` (from 0) of `steps`.

    The warm-up is a number of steps, rises linearly and is whole at its last step. The linear decay begins at the share
    `decay_from` of the steps and would reach 0 one step after the end; None is a constant rate.
    """
    factor = min(1.0, (step + 1) / warmup) if warmup > 0 else 1.0
    if decay_from is not None:
        start = decay_from * steps
        if step > start:
            factor *= max(0.0, (steps - step) / (steps - start))
    return factor


def warmup_steps(share: float, steps: int) -> int:
    """Return the steps of a warm-up that is a share of all steps, rounded down: 29% of 100 are 29."""
    # Rounded first: 29% of 100 steps is a little under 29 in binary.
    return int(round(share * steps, 6))
