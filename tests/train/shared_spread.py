"""What each of two processes does in tests/train/test_spread.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from reodsl.graph.job import Job
from runners.train.crew import Crew
from runners.train.ranks import Ranks
from runners.train.sharding import shard
from runners.train.update import Learner
from tests.train.models import small_model


def write_down(
    pieces: Iterator[tuple[str, torch.Tensor]],
    rank: int,
    gather: Callable[[Any], list[Any]],
    folder: str,
    most: int,
) -> None:
    """Keeps what comes, at most so many tensors, and what all processes say."""
    held = {name: tensor.clone() for _, (name, tensor) in zip(range(most), pieces, strict=False)}
    torch.save({"pieces": held, "all": gather(f"rank {rank}")}, f"{folder}/{rank}-{most}.pt")


def body(job: Job, ranks: Ranks) -> None:
    """The first process calls twice, puts all together, and says what comes next."""
    model = small_model(tied=True)
    learner = Learner.of(model, (), 0.0, ranks, shard(model, ranks, torch.float32), 64)
    crew = Crew(learner)
    if ranks.is_rank_zero:
        weights = crew.weights()
        weights.run_on_all(write_down, str(job.out), 10_000)
        # Ended early, on all alike.
        weights.run_on_all(write_down, str(job.out), 2)
        whole = weights.assemble("cpu")
        assert weights.shapes == {name: tuple(tensor.shape) for name, tensor in whole.items()}
        torch.save(whole, job.out / "whole.pt")
        crew.release()
    else:
        crew.serve()
