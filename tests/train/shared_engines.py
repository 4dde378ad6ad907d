"""What each of two processes does in tests/engine/sglang/test_two_trainers.py."""

from __future__ import annotations

import json

import torch

from reodsl.graph.job import Job
from runners.engine.open import open_engine
from runners.engine.protocol import Request, TokenSampling
from runners.engine.sglang.engine import SGLangEngine
from runners.train.crew import Crew
from runners.train.ranks import Ranks
from runners.train.sharding import shard
from runners.train.update import Learner
from tests.train.models import small_model

REQUESTS = [Request((2, 3, 5), 1), Request((7, 4), 2), Request((9,), 3), Request((11, 12), 4)]
GREEDY = TokenSampling(12, temperature=0.0)


def body(job: Job, ranks: Ranks) -> None:
    """Train nothing, and hand other weights than those of the folder to a server each, or send them to all."""
    model = small_model(seed=5)
    learner = Learner.of(model, (), 0.0, ranks, shard(model, ranks, torch.float32), 64)
    crew = Crew(learner)
    if not ranks.is_rank_zero:
        ranks.barrier()
        crew.serve()
        crew.serve()
        return
    beside = None if job.resources.disaggregated else 0.0
    engine = open_engine(job.out / "model", job.resources, 40, job.out / "engine", trainer_bytes=beside)
    try:
        assert isinstance(engine, SGLangEngine)
        ranks.barrier()
        engine.load_weights(crew.weights(), 3)
        crew.release()
        found = [r.tokens for r in engine.generate(REQUESTS, GREEDY)]
        (job.out / "found.json").write_text(json.dumps(found))
    finally:
        engine.close()
    crew.release()
