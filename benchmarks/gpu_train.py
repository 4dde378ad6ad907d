"""Training speed of the GPU path: shapes of Qwen3 with random weights in; tokens a second, MFU and memory out, as JSON.

`python -m benchmarks.gpu_train` on a machine with a CUDA device runs whole optimizer steps (forward, backward, clipping,
AdamW) in bfloat16 over float32 weights, with the loss in chunks and activations computed again. As in a run, sequences of
mixed lengths are packed into passes of at most 16K, 32K and 48K tokens.
MFU counts the model's own FLOPs, 3 forward passes a token, over the device's peak for dense bfloat16 products. For
comparison prime-rl publishes 11.1% for a 0.6B and 14.7% for a 4B Qwen3 at 16K.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import HashStore
from torch.nn.attention import current_flash_attention_impl

from reodsl.diagnostics import Problem
from reodsl.ir.training import Optimizer
from reodsl.price.machine import processor
from runners.execute.perform import give_back_freed
from runners.models.folder import build
from runners.train.batch import TrainBatch
from runners.train.metrics import peak_flops
from runners.train.optimizers import build_optimizers
from runners.train.ranks import join_ranks
from runners.train.sharding import enable_activation_checkpointing, shard
from runners.train.stages import batch_loss
from runners.train.update import Learner, optimizer_step

QWEN3: dict[str, Any] = {
    "family": "qwen3",
    "head_dim": 128,
    "context": 40960,
    "rope_theta": 1e6,
    "kv_heads": 8,
}
SHAPES = {
    "qwen3-0.6b": {**QWEN3, "layers": 28, "hidden": 1024, "heads": 16, "intermediate": 3072},
    "qwen3-1.7b": {**QWEN3, "layers": 28, "hidden": 2048, "heads": 16, "intermediate": 6144},
    "qwen3-4b": {**QWEN3, "layers": 36, "hidden": 2560, "heads": 32, "intermediate": 9728},
    "tiny": {
        **QWEN3,
        "rope_theta": 1e4,
        "context": 4096,
        "layers": 2,
        "hidden": 32,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "intermediate": 48,
    },
}
"""The layers of the published configurations (config.json of Qwen/Qwen3-0.6B, Qwen3-1.7B and Qwen3-4B)."""
VOCABULARY = {"tiny": 512}
QWEN_VOCABULARY = 151_936
SETTINGS = Optimizer(algorithm="adamw", lr=1e-6)


def mixed_lengths(tokens: int, passes: int, draw: np.random.Generator) -> list[int]:
    """Lengths of responses that fill so many passes of `tokens` tokens: exponential, and none longer than a pass."""
    lengths: list[int] = []
    while (left := passes * tokens - sum(lengths)) > 0:
        lengths.append(min(max(2, int(draw.exponential(tokens / 4))), tokens - 1, max(2, left)))
    return lengths


def measure(
    shape: str, device: torch.device, tokens: int, rows: int, steps: int, recompute: bool, on: str = "device"
) -> dict[str, Any]:
    """One line of figures: `steps` steps of `rows` passes of `tokens` tokens each, after two that are left out."""
    vocabulary = VOCABULARY.get(shape, QWEN_VOCABULARY)
    draw = np.random.default_rng(1)
    ids = [draw.integers(2, vocabulary, length + 1).tolist() for length in mixed_lengths(tokens, rows, draw)]
    batch = TrainBatch.of([row[:1] for row in ids], [row[1:] for row in ids])
    batch = replace(batch, weights=torch.full_like(batch.weights, 1.0 / (rows * tokens)))
    figures: dict[str, Any] = {"shape": shape, "tokens": tokens, "rows": len(ids), "checkpointing": recompute}
    figures["optimizer"] = on
    figures |= {"device": name_of(device), "torch": torch.__version__, "precision": "bfloat16"}
    with join_ranks(0, 1, HashStore(), device) as ranks:
        with device:
            model = build(vocabulary, 1, eos=1, pad=0, **SHAPES[shape])
        if recompute:
            enable_activation_checkpointing(model)
        scorer = shard(model, ranks, torch.bfloat16)
        settings = SETTINGS.model_copy(update={"on": on})
        learner = Learner.of(model, build_optimizers(model, settings), 1.0, ranks, scorer, tokens)
        sizes = learner.sizes
        figures["attention"] = current_flash_attention_impl() or "torch's"
        if device.type != "cpu":
            torch.get_device_module(device).reset_peak_memory_stats(device)
        figures["parameters"] = sum(p.numel() for p in model.parameters())
        try:
            for number in range(steps + 2):
                if number == 2:
                    wait(device)
                    learner.throughput.empty(1.0, sizes, 1, None)
                    began = time.perf_counter()
                optimizer_step(learner, batch, batch_loss, 1.0, f"step {number + 1}")
            wait(device)
        except Problem as caught:
            return figures | {"error": caught.diagnostics[0].message, "notes": caught.diagnostics[0].notes}
        seconds = time.perf_counter() - began
        figures |= learner.throughput.empty(seconds, sizes, 1, peak_flops(device))
        figures["seconds_a_step"] = seconds / steps
        # A backward pass costs two forward ones; each token attends to half of its sequence on average.
        attended = sum((len(row) - 1) ** 2 / 2 for row in ids)
        trained = sum(len(row) - 1 for row in ids)
        if sizes is not None and (peak := peak_flops(device)) is not None:
            figures["at_peak"] = {
                "products": 3 * sizes.forward_flops(trained, 0) / peak,
                "attention": 3 * sizes.attention_flops(attended) / peak,
            }
        if device.type != "cpu":
            figures["peak_gib"] = torch.get_device_module(device).max_memory_allocated(device) / 2**30
    return figures


def numbered(text: str) -> torch.device:
    """The device that a text names, of several of its kind the first where it names none."""
    device = torch.device(text)
    return device if device.type == "cpu" or device.index is not None else torch.device(device.type, 0)


def name_of(device: torch.device) -> str:
    """What the device calls itself."""
    if device.type == "cpu":
        return processor()
    return str(torch.get_device_module(device).get_device_name(device))


def wait(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(device)


def add(line: str, out: Path | None) -> None:
    """Prints a line of figures and, with a file, adds it there."""
    print(line, flush=True)
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=["qwen3-0.6b", "qwen3-4b"])
    parser.add_argument("--device", type=numbered, default="cuda")
    parser.add_argument("--tokens", type=int, nargs="+", default=[16384, 32768, 49152], help="of a pass")
    parser.add_argument("--rows", type=int, default=4, help="passes a step, one after another")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--on", choices=["device", "host"], default="device", help="where the optimizer is")
    parser.add_argument("--without-checkpointing", action="store_true")
    parser.add_argument("--out", type=Path, help="a file that the lines are added to")
    args = parser.parse_args(arguments)
    for shape, tokens in product(args.shapes, args.tokens):
        figures = measure(
            shape, args.device, tokens, args.rows, args.steps, not args.without_checkpointing, args.on
        )
        add(json.dumps(figures), args.out)
        # Else the next model would find this one on its GPU.
        give_back_freed()


if __name__ == "__main__":
    main()
