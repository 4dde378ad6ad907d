"""Take whole GRPO steps of TRL on the tiny model, and print a JSON line of tokens and seconds.

Run by `benchmarks.step` in an environment that has `trl`; needs nothing of this project.
"""

from __future__ import annotations

import os
import tempfile
import time

from benchmarks.tiny import PROMPT, line, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def main() -> None:
    args = settings(__doc__)

    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    lengths: list[int] = []

    def reward(completion_ids: list[list[int]], **_: object) -> list[float]:
        lengths.extend(len(ids) for ids in completion_ids)
        return [float(sum(ids) % 2) for ids in completion_ids]

    sequences = args.prompts * args.rollouts
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=64,
        gradient_accumulation_steps=sequences // 64,
        num_generations=args.rollouts,
        max_completion_length=args.max_tokens,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=1e-5,
        max_steps=args.steps + 1,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        generation_kwargs={"min_new_tokens": args.max_tokens} if args.fixed else None,
        seed=0,
    )
    marks: list[tuple[float, int]] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: object, **__: object) -> None:
            marks.append((time.process_time(), sum(lengths)))

    trainer = GRPOTrainer(
        model=str(args.model),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": PROMPT}] * sequences * (args.steps + 1)),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.train()
    # The first step carries the set-up of both libraries and is left out.
    cpu, tokens = (last - first for first, last in zip(marks[0], marks[-1], strict=True))
    print(line(tokens, cpu, lengths))


if __name__ == "__main__":
    main()
