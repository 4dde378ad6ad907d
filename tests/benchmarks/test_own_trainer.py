"""The steps that are measured against a peer's: taken, and with responses of the lengths that were asked for."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.own_trainer import Coin, Trainer
from benchmarks.tiny import write
from runners.grade import Claim


def test_steps_are_whole(tmp_path: Path) -> None:
    write(tmp_path)
    trainer = Trainer.of(tmp_path, prompts=2, rollouts=3, max_tokens=8, fixed=True)
    weights = [parameter.detach().clone() for parameter in trainer.learner.model.parameters()]
    assert trainer.step(0) == [8] * 6
    # The coin leaves a group with a gradient, and the step goes by it.
    now = trainer.learner.model.parameters()
    assert not all(torch.equal(before, after) for before, after in zip(weights, now, strict=True))
    trainer.engine.close()


def test_half_of_the_tosses_are_right() -> None:
    coin = Coin()
    right = sum(verdict.correct for _ in range(8) for verdict in coin.grade([Claim("1", "1")] * 100))
    assert 350 < right < 450
