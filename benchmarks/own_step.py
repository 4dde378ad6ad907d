"""One measurement of our side: whole vanilla RL steps on the tiny model, as a JSON line of tokens and seconds.

The counterpart of `benchmarks.peer_trl`: same model, batch, precision, lengths and a reward of the same kind (a coin
for each response, so that no group is without a gradient).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--fixed", action="store_true", help="never end early: every response has max-tokens")
    args = parser.parse_args()

    import torch

    from benchmarks.tiny import PROMPT
    from reodsl.graph.job import Resources
    from reodsl.ir.expression import Correct
    from reodsl.ir.reward import Reward
    from reodsl.ir.training import Advantage, Batch, Optimizer, Ppo
    from reodsl.ir.training import Sampling as Draws
    from runners.engine.open import open_engine
    from runners.engine.protocol import Sampling
    from runners.models.folder import load
    from runners.train.collect import Collector, collect
    from runners.train.optimizers import build_optimizers
    from runners.train.ppo import update
    from runners.train.questions import Question
    from runners.train.scored import learnt_of, score
    from runners.train.update import Learner
    from runners.verify import Answer, Verdict

    torch.set_num_threads(1)
    loaded = load(args.model)
    reward = Reward(name="outcome", outcome=Correct(of="y"))
    method = Ppo(
        rollout=Draws(max_tokens=args.max_tokens),
        max_prompt=64,
        batch=Batch(prompts=args.prompts, rollouts=args.rollouts),
        minibatches=1,
        epochs=1,
        clip_low=0.2,
        clip_high=0.2,
        loss_mean="token",
        reward=reward,
        advantage=Advantage(),
    )
    learner = Learner.of(
        loaded.model, build_optimizers(loaded.model, Optimizer(algorithm="adamw", lr=1e-5)), 1.0
    )
    engine = open_engine(args.model, Resources())

    class Coin:
        """Half of the answers are right, whatever they say."""

        tossed = 0

        def grade(self, answers: Sequence[Answer]) -> list[Verdict]:
            self.tossed += 1
            return [
                Verdict((i * 2654435761 + self.tossed * 40503) >> 7 & 1 == 1, "fast")
                for i, _ in enumerate(answers)
            ]

        def close(self) -> None:
            """Nothing to give back."""

    stop = () if args.fixed else (1,)
    collector = Collector(
        engine=engine,
        verifier=Coin(),
        tokenizer=loaded.tokenizer,
        sampling=Sampling(args.max_tokens, stop_ids=stop),
        rollouts=args.rollouts,
        reward=reward,
        forcing=None,
        places=(args.max_tokens,),
        own_places={},
        references={},
        seed=1,
    )
    prompt = tuple(loaded.tokenizer.encode(PROMPT))
    tokens, lengths = 0, []
    wall = cpu = 0.0
    # The first step carries the set-up of the libraries and is left out, as the peer's is.
    for number in range(args.steps + 1):
        questions = [Question(f"q{number}-{i}", prompt, "1", "{}", {}) for i in range(args.prompts)]
        began, used = time.perf_counter(), time.process_time()
        engine.load_weights(loaded.model.state_dict(), number)
        experience = collect(collector, questions, number)
        update(learner, learnt_of(experience, score(experience, method)), method, 1, number)
        if number:
            wall += time.perf_counter() - began
            cpu += time.process_time() - used
            lengths += [len(response.tokens) for response in experience.responses]
            tokens += sum(lengths[-len(experience.responses) :])
    engine.close()
    print(
        json.dumps({"tokens": tokens, "wall": wall, "cpu": cpu, "mean_length": sum(lengths) / len(lengths)})
    )


if __name__ == "__main__":
    main()
