"""One measurement of our side: whole vanilla RL steps on the tiny model, as a JSON line of tokens and seconds.

The counterpart of `benchmarks.peer_trl`: same model, batch, precision, lengths and a reward of the same kind (a coin
for each response, so that no group is without a gradient).
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> None:
    from benchmarks.step_settings import line, settings

    args = settings(__doc__)

    # Read after the settings of its threads stand.
    import torch

    from benchmarks.own_trainer import Trainer

    torch.set_num_threads(1)
    trainer = Trainer.of(args.model, args.prompts, args.rollouts, args.max_tokens, args.fixed)
    lengths: list[int] = []
    wall = cpu = 0.0
    # The first step carries the set-up of the libraries and is left out, as the peer's is.
    for number in range(args.steps + 1):
        began, used = time.perf_counter(), time.process_time()
        drawn = trainer.step(number)
        if number:
            wall += time.perf_counter() - began
            cpu += time.process_time() - used
            lengths += drawn
    trainer.engine.close()
    print(line(sum(lengths), wall, cpu, lengths))


if __name__ == "__main__":
    main()
