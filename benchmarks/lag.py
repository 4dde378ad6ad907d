"""Time rollouts beside training on two cores: the seconds of a stage with `lag = 1` over those of the same without.

Both are the runner's own stages of vanilla RL on the tiny model, one thread for generation and one for training.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import torch

from benchmarks.tiny import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, PROMPT, write
from reodsl.graph.job import Job, Resources
from reodsl.graph.task import Task
from reodsl.ir.data import Data
from reodsl.ir.expression import Length
from reodsl.ir.model import Architecture, Model, Prompt, WordTokenizer
from reodsl.ir.reward import Reward
from reodsl.ir.training import Advantage, Batch, Optimizer, Ppo, Sampling, Stage
from runners.train.run import train


def measure(rounds: int, steps: int = 12, prompts: int = 32, rollouts: int = 8) -> dict[str, Any]:
    """Return the seconds of both by round, and the median of their ratios."""
    torch.set_num_threads(1)
    ratios, seconds = [], []
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        write(root / "start" / "checkpoint")
        _questions(root / "data", PROMPT)
        for number in range(rounds):
            shares_device, beside = (
                _stage(root, f"{number}-{lag}", steps, prompts, rollouts, lag) for lag in (0, 1)
            )
            seconds.append((round(shares_device, 2), round(beside, 2)))
            ratios.append(beside / shares_device)
    return {
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "seconds": seconds,
        "cores": len(os.sched_getaffinity(0)),
    }


def _questions(folder: Path, prompt: str) -> None:
    """Write one question many times; whether it is answered does not matter."""
    folder.mkdir()
    rows = [{"id": str(i), "question": prompt, "answer": f"t{i % 100}", "meta": None} for i in range(256)]
    pl.DataFrame(rows, schema_overrides={"meta": pl.String}).write_parquet(folder / "questions.parquet")


def _stage(root: Path, name: str, steps: int, prompts: int, rollouts: int, lag: int) -> float:
    """Return the seconds of a whole stage. Longer responses earn more, so every group has a gradient."""
    method = Ppo(
        rollout=Sampling(max_tokens=256),
        max_prompt=64,
        batch=Batch(prompts=prompts, rollouts=rollouts),
        minibatches=4,
        epochs=1,
        clip_low=0.2,
        clip_high=0.2,
        loss_mean="token",
        reward=Reward(name="length", outcome=Length(of="y")),
        advantage=Advantage(),
        lag=lag,
    )
    stage = Stage(
        name="rl",
        method=method,
        data=Data(name="", sources=(), verifier="exact"),
        optim=Optimizer(algorithm="adamw", lr=1e-6),
        steps=steps,
    )
    model = Model(
        name="tiny",
        source=Architecture(
            family="qwen3",
            hidden=HIDDEN,
            layers=LAYERS,
            heads=HEADS,
            kv_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            intermediate=4 * HIDDEN,
            tokenizer=WordTokenizer(words=("a",), eos="<eos>", pad="<pad>"),
        ),
        context=1024,
        prompt=Prompt(template="{question}"),
    )
    named = {"stage": stage, "model": model}
    task = Task(name, "train", {**named, "seed": 1, "index": 0}, {}, arm=name)
    out, work = root / name, root / f"{name}.work"
    out.mkdir()
    work.mkdir()
    inputs = {"start": root / "start", "data": root / "data"}
    began = time.perf_counter()
    train(Job(task, inputs, out, work, root, lambda progress: None, Resources()))
    return time.perf_counter() - began
