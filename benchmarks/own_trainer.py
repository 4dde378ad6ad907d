"""Take whole vanilla RL steps on the tiny model, and print a JSON line of tokens and seconds.

The counterpart of `benchmarks.peer_trl`: same model, batch, precision, lengths and a reward of the same kind (a coin for
each response, so every group has a gradient).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
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
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("generation", "scoring", "update"), 0.0)
    )
    """Processor seconds of each phase; scoring is no part of a step, and is taken once at the end."""

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

    def step(self, number: int, is_last: bool = False) -> list[int]:
        """Take a whole step, from the weights' way into the engine on, and return the lengths of its responses.

        Args:
            number: The number of the step.
            is_last: Whether its responses are scored once more after it, as for a reference model.
        """
        asked = range(self.method.batch.prompts)
        questions = [PromptedQuestion(f"q{number}-{i}", "", "1", "{}", prompt=self.prompt) for i in asked]
        start = time.process_time()
        self.engine.load_weights(self.learner.model.state_dict(), number)
        step = self.sampler.sample(questions, number)
        sampled = time.process_time()
        batch = batch_of(score(step, self.method))
        began = time.process_time()
        update(self.learner, batch, self.method, 1, number)
        ended = time.process_time()
        self.seconds["generation"] += sampled - start
        self.seconds["update"] += ended - began
        if is_last:
            self.learner.score(batch, 1.0)
            self.seconds["scoring"] = time.process_time() - ended
        return [len(one.response.tokens) for one in step.rollouts]

    def rates(self, lengths: Sequence[int], steps: int) -> dict[str, float]:
        """Return the FLOP/s of each phase in steps whose responses have these lengths; a backward pass is two passes."""
        sizes = self.learner.sizes
        assert sizes is not None
        whole = [len(self.prompt) + length for length in lengths]
        flops = sum(sizes.forward_flops(length, length**2 / 2) for length in whole)
        passes = {"generation": 1.0, "scoring": 1 / steps, "update": 3.0}
        return {phase: passes[phase] * flops / seconds for phase, seconds in self.seconds.items()}


def main() -> None:
    """Take the steps that are asked for, after one that carries the set-up of the libraries."""
    args = settings(__doc__)
    torch.set_num_threads(1)
    trainer = Trainer.of(args.model, args.prompts, args.rollouts, args.max_tokens, args.fixed)
    trainer.step(0)
    trainer.seconds.update(dict.fromkeys(trainer.seconds, 0.0))
    used = time.process_time()
    steps = range(1, args.steps + 1)
    lengths = [length for number in steps for length in trainer.step(number, number == args.steps)]
    used = time.process_time() - used - trainer.seconds["scoring"]
    trainer.engine.close()
    print(line(sum(lengths), used, lengths, **trainer.rates(lengths, args.steps)))


if __name__ == "__main__":
    main()
