"""Take whole vanilla RL steps on the tiny model, and print a JSON line of tokens and seconds.

The counterpart of `benchmarks.peer_trl`: same model, batch, precision, lengths and a reward of the same kind (a coin for
each response, so every group has a gradient).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.tiny import PROMPT, line, settings
from reodsl.graph.job import Resources
from reodsl.ir.expression import Correct
from reodsl.ir.reward import Reward
from reodsl.ir.training import Advantage, Batch, Optimizer, Ppo
from reodsl.ir.training import Sampling as Draws
from runners.engine.open import open_engine
from runners.engine.protocol import Engine, TokenSampling
from runners.grade import Claim, Verdict
from runners.models.folder import load
from runners.rollout.grader import Generator, Grader, GradingQueue, grade
from runners.rollout.questions import PromptedQuestion
from runners.train.gather import batch_of, score
from runners.train.optimizers import build_optimizers
from runners.train.ppo import update
from runners.train.rollouts import RolloutSampler
from runners.train.update import Learner


class Coin:
    """A verifier to which half of the answers are right, whatever they are."""

    def __init__(self) -> None:
        self.tossed = 0

    def grade(self, answers: Sequence[Claim]) -> list[Verdict]:
        """Toss for each answer."""
        self.tossed += 1
        return [
            Verdict((i * 2654435761 + self.tossed * 40503) >> 7 & 1 == 1, "fast")
            for i, _ in enumerate(answers)
        ]

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """A model with all that takes steps on it: `prompts` copies of one question each."""

    engine: Engine
    sampler: RolloutSampler
    learner: Learner
    method: Ppo
    prompt: tuple[int, ...]

    @staticmethod
    def of(model: Path, prompts: int, rollouts: int, max_tokens: int, fixed: bool) -> Trainer:
        """Return a trainer of the model in a folder; with `fixed` no response ends before `max_tokens`."""
        loaded = load(model)
        reward = Reward(name="outcome", outcome=Correct(of="y"))
        engine, stop = open_engine(model, Resources()), () if fixed else (1,)
        grader = Grader(Coin(), loaded.tokenizer, stop, prefixes=True)
        return Trainer(
            engine=engine,
            sampler=RolloutSampler(
                generator=Generator(engine, loaded.tokenizer, TokenSampling(max_tokens, stop_ids=stop)),
                grader=grader,
                queue=GradingQueue(lambda rollouts: grade(rollouts, lambda _: grader)),
                rollouts=rollouts,
                reward=reward,
                shared_splits=(max_tokens,),
                question_splits={},
                references={},
                seed=1,
            ),
            learner=Learner.of(
                loaded.model, build_optimizers(loaded.model, Optimizer(algorithm="adamw", lr=1e-5)), 1.0
            ),
            method=Ppo(
                rollout=Draws(max_tokens=max_tokens),
                max_prompt=64,
                batch=Batch(prompts=prompts, rollouts=rollouts),
                minibatches=1,
                epochs=1,
                clip_low=0.2,
                clip_high=0.2,
                loss_mean="token",
                reward=reward,
                advantage=Advantage(),
            ),
            prompt=tuple(loaded.tokenizer.encode(PROMPT)),
        )

    def step(self, number: int) -> list[int]:
        """Take a whole step, from the weights' way into the engine on, and return the lengths of its responses."""
        asked = range(self.method.batch.prompts)
        questions = [PromptedQuestion(f"q{number}-{i}", "", "1", "{}", prompt=self.prompt) for i in asked]
        self.engine.load_weights(self.learner.model.state_dict(), number)
        step = self.sampler.sample(questions, number)
        batch = batch_of(score(step, self.method))
        update(self.learner, batch, self.method, 1, number)
        return [len(one.response.tokens) for one in step.rollouts]


def main() -> None:
    """Take the steps that are asked for, after one that carries the set-up of the libraries."""
    args = settings(__doc__)
    torch.set_num_threads(1)
    trainer = Trainer.of(args.model, args.prompts, args.rollouts, args.max_tokens, args.fixed)
    trainer.step(0)
    used = time.process_time()
    lengths = [length for number in range(args.steps) for length in trainer.step(number + 1)]
    used = time.process_time() - used
    trainer.engine.close()
    print(line(sum(lengths), used, lengths))


if __name__ == "__main__":
    main()
