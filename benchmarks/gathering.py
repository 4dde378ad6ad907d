"""Time what the first process does between generation and update, while every GPU waits for it.

The step is a recorded one: made-up responses of log-normal lengths, rewarded by length, dealt to 128 processes. This
process takes its part of all four minibatches, twice, with a model whose passes cost nothing.
"""

from __future__ import annotations

import gc
import pickle
import statistics
import time
from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from reodsl.ir.expression import Length
from reodsl.ir.reward import Reward
from reodsl.ir.training import Advantage, Batch, Ppo, Sampling
from runners.engine.protocol import Generation, Request
from runners.rewards.inputs import CutVerdicts, RewardInputs, pad_places
from runners.rollout.grader import Rollout
from runners.rollout.questions import PromptedQuestion
from runners.train.batch import MicroBatch, TrainBatch, broadcast_batch
from runners.train.gather import make_step
from runners.train.ppo import update
from runners.train.ranks import Ranks
from runners.train.rollouts import GradedStep
from runners.train.sharding import Scorer
from runners.train.update import Learner

WORLD, PROMPTS, ROLLOUTS, LONGEST, VOCABULARY = 128, 128, 16, 32_768, 151_936
T = TypeVar("T")
SHAPE = {
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": True,
}
"""Qwen3-4B (config.json of Qwen/Qwen3-4B), by which rows are dealt."""

METHOD = Ppo(
    rollout=Sampling(max_tokens=LONGEST),
    max_prompt=1024,
    batch=Batch(prompts=PROMPTS, rollouts=ROLLOUTS),
    minibatches=4,
    epochs=2,
    clip_low=0.2,
    clip_high=0.2,
    loss_mean="token",
    reward=Reward(name="length", outcome=Length(of="y")),
    advantage=Advantage(),
    mismatch_limit=1e6,
)


class FirstOfMany(Ranks):
    """The first process of many, whose others take what they are given and have nothing to say."""

    def broadcast(self, value: T | None) -> T:
        taken: T = pickle.loads(pickle.dumps(value))
        return taken

    def all_gather_objects(self, value: T) -> list[T]:
        return [value] * self.world

    def all_gather(self, numbers: Tensor) -> Tensor:
        return numbers

    def broadcast_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors)


class Weight(nn.Module):
    """A model of one number."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.zeros(()))
        self.config = SimpleNamespace(to_dict=lambda: SHAPE)


class FreeLearner(Learner):
    """A learner whose passes give the engine's log-probabilities and cost nothing."""

    def logprobs(self, micro: MicroBatch, *_: Any, **__: Any) -> Tensor:
        scores: Tensor = micro.columns.engine_logprobs + self.model.one
        return scores

    def score(self, batch: TrainBatch, temperature: float) -> Tensor:
        self.microbatches(batch, 1, self.assign_rows(batch))
        return batch.engine_logprobs


def recorded(tokens: int) -> GradedStep:
    """Return a step of about so many tokens."""
    draw = np.random.default_rng(1)
    shape = (PROMPTS, ROLLOUTS)
    weights = draw.lognormal(0.0, 0.7, PROMPTS * ROLLOUTS)
    lengths = np.clip(weights / weights.sum() * tokens, 1, LONGEST).astype(int)
    rollouts = []
    for number, length in enumerate(lengths.tolist()):
        prompt = tuple(draw.integers(2, VOCABULARY, 120).tolist())
        logprobs = array("d", np.log(draw.random(length) * 0.99 + 0.01).tobytes())
        response = Generation(
            tuple(draw.integers(2, VOCABULARY, length).tolist()), logprobs, logprobs, "stop", (0,)
        )
        question = PromptedQuestion(str(number // ROLLOUTS), "", "1", prompt=prompt)
        rollouts.append(Rollout(question, number, Request(prompt, number), response))
    inputs = RewardInputs(
        tuple(map(str, range(PROMPTS))),
        lengths.reshape(shape).astype(float),
        np.zeros(shape),
        *pad_places([[(LONGEST,)]]),
    )
    nothing = CutVerdicts.of([], 1)
    return GradedStep(tuple(rollouts), inputs, nothing, nothing, ((),) * len(rollouts), {})


def measure(rounds: int, tokens: int = 22_000_000) -> dict[str, Any]:
    """Return medians of seconds of processor time, by part, of a step of so many tokens."""
    torch.set_num_threads(1)
    graded = recorded(tokens)
    gc.freeze()
    every: dict[str, list[float]] = {"gather": [], "update": []}
    for _ in range(rounds):
        model = Weight()
        learner = FreeLearner(
            model,
            Scorer(model),
            [torch.optim.SGD(model.parameters())],
            1.0,
            FirstOfMany(0, WORLD),
            microbatch=49_152,
            packed=True,
        )
        began = time.process_time()
        step = make_step(lambda _: graded, METHOD, 0)
        gathered = time.process_time()
        batch = broadcast_batch(learner.ranks, step.batch)
        update(learner, batch, METHOD, 1, 0, engine_is_exact=False)
        every["gather"].append(gathered - began)
        every["update"].append(time.process_time() - gathered)
    seconds = {name: round(statistics.median(each), 2) for name, each in every.items()}
    return {"tokens": tokens, "world": WORLD, "seconds": seconds, "total": round(sum(seconds.values()), 2)}
