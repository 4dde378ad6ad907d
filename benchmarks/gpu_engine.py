"""What a trainer and an engine that share a device cost each other: seconds of new weights, memory given back, mismatch.

`python -m benchmarks.gpu_engine` lets a trainer and an SGLang server take turns on one GPU, as a colocated step does: the
engine generates, gives its memory back, and gets the trainer's weights again, a few times. JSON out: seconds of each
sync and the way it went, free memory before and after the engine gave its own back, and how far the engine's
log-probabilities of its tokens are from the trainer's. `--engine embedded` needs no server, and runs on a processor too.
`--engine receiver` is a process that reads all weights as a server does, and nothing else: it needs no SGLang.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import HashStore

from benchmarks.gpu_train import QWEN_VOCABULARY, SETTINGS, SHAPES, VOCABULARY, add, name_of, numbered, wait
from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.engine.protocol import Engine, Request, TokenSampling
from runners.engine.sglang import weights
from runners.models.folder import build, save
from runners.models.tokenizer import word_tokenizer
from runners.train.agreement import agreement
from runners.train.batch import TrainBatch
from runners.train.crew import Crew
from runners.train.optimizers import build_optimizers
from runners.train.ranks import join_ranks
from runners.train.sharding import enable_activation_checkpointing, shard
from runners.train.update import Learner

PROMPT = 64
STATE = 12
"""Bytes a weight that a trainer takes only with its first step: its gradient and two moments."""


def measure(
    shape: str,
    device: torch.device,
    engine_name: str,
    tokens: int,
    responses: int,
    syncs: int,
    caches: str = "auto",
) -> dict[str, Any]:
    """One line of figures on an engine and a trainer with the same random weights."""
    vocabulary = VOCABULARY.get(shape, QWEN_VOCABULARY)
    half = torch.bfloat16 if device.type != "cpu" else torch.float32
    figures: dict[str, Any] = {"shape": shape, "engine": engine_name, "device": name_of(device)}
    with tempfile.TemporaryDirectory() as folder, join_ranks(0, 1, HashStore(), device) as ranks:
        with device:
            model = build(vocabulary, 1, eos=1, pad=0, **SHAPES[shape])
        place = Path(folder) / "model"
        save(model, word_tokenizer([f"w{i}" for i in range(2, vocabulary)]), place)
        enable_activation_checkpointing(model)
        longest = PROMPT + tokens
        learner = Learner.of(
            model, build_optimizers(model, SETTINGS), 1.0, ranks, shard(model, ranks, half), longest
        )
        parameters = sum(each.numel() for each in model.parameters())
        resources = Resources(device=device.type, engine=engine_name)
        engine = open_engine(
            place, resources, longest, Path(folder) / "engine", float(STATE * parameters), caches=caches
        )
        try:
            figures |= {"parameters": parameters, "tokens": tokens, "responses": responses}
            figures |= _in_turn(engine, learner, device, vocabulary, tokens, responses, syncs)
        finally:
            engine.close()
    return figures


def hand_over(shape: str, device: torch.device, syncs: int) -> dict[str, Any]:
    """One line of figures on weights that another process reads by their handles, and the memory that stays taken."""
    vocabulary = VOCABULARY.get(shape, QWEN_VOCABULARY)
    figures: dict[str, Any] = {"shape": shape, "engine": "receiver", "device": name_of(device)}
    with device:
        model = build(vocabulary, 1, eos=1, pad=0, **SHAPES[shape]).to(torch.bfloat16)
    seconds, free = [], []
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for _ in range(syncs):
            began = time.perf_counter()
            for bucket in weights.buckets(weights.iter_untied(model.state_dict())):
                print(weights.packed_tensors(bucket), file=reader.stdin, flush=True)
                read = float(reader.stdout.readline() or "nan")
                # One that has ended says nothing, which is no number.
                if not abs(read - float(bucket.flat.sum(dtype=torch.float64))) <= 0.5:
                    raise RuntimeError(f"the other process reads {read}")
            seconds.append(time.perf_counter() - began)
            free.append(_free(device))
        reader.stdin.close()
    return figures | {
        "way": "handles",
        "seconds_first_sync": seconds[0],
        "seconds_sync": statistics.median(seconds[1:] or seconds),
        "gib_lost": (free[0] - free[-1]) / 2**30,
    }


_READER = """
import base64, pickle, sys, torch
from torch.multiprocessing import reductions

rebuild, number_of = reductions.rebuild_cuda_tensor, {}
for number in range(torch.cuda.device_count()):
    number_of[str(torch.cuda.get_device_properties(number).uuid)] = number
reductions.rebuild_cuda_tensor = lambda *given: rebuild(*given[:6], number_of[given[6]], *given[7:])
for line in sys.stdin:
    tensors = pickle.loads(base64.b64decode(line))
    print(sum(float(one.contiguous().view(torch.uint8).sum(dtype=torch.float64)) for _, one in tensors), flush=True)
    del tensors
"""
"""Reads tensors whose GPU is named by what it is, as servers do."""


def _in_turn(
    engine: Engine,
    learner: Learner,
    device: torch.device,
    vocabulary: int,
    tokens: int,
    responses: int,
    syncs: int,
) -> dict[str, Any]:
    draw = np.random.default_rng(1)
    requests = [
        Request(tuple(int(one) for one in draw.integers(2, vocabulary, PROMPT)), seed)
        for seed in range(responses)
    ]
    seconds, given_back = [], []
    for version in range(1, syncs + 1):
        before = _free(device)
        engine.release()
        given_back.append(_free(device) - before)
        wait(device)
        began = time.perf_counter()
        engine.load_weights(Crew(learner).weights(), version)
        seconds.append(time.perf_counter() - began)
    given = engine.generate(requests, TokenSampling(tokens, logprobs=True))
    batch = TrainBatch.of([request.prompt for request in requests], [response.tokens for response in given])
    engine.release()
    mine = learner.score(batch, 1.0).numpy()
    theirs = np.concatenate([response.logprobs for response in given])
    return {
        "way": "handles" if hasattr(engine, "fleet") else "same process",
        "seconds_first_sync": seconds[0],
        "seconds_sync": statistics.median(seconds[1:] or seconds),
        "gib_given_back": max(given_back) / 2**30,
        **agreement(mine - theirs),
    }


def _free(device: torch.device) -> float:
    """Bytes of a GPU that nobody has; 0 of other devices, whose memory is everybody's."""
    if device.type != "cuda":
        return 0.0
    torch.cuda.empty_cache()
    return float(torch.cuda.mem_get_info(device)[0])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=["qwen3-0.6b"])
    parser.add_argument("--device", type=numbered, default="cuda")
    parser.add_argument("--engine", choices=["sglang", "embedded", "receiver"], default="sglang")
    parser.add_argument("--tokens", type=int, default=1024, help="of a response")
    parser.add_argument("--responses", type=int, default=32)
    parser.add_argument("--syncs", type=int, default=4)
    parser.add_argument(
        "--caches", choices=["auto", "fp8"], default="auto", help="keys and values of servers"
    )
    parser.add_argument("--out", type=Path, help="a file that the lines are added to")
    args = parser.parse_args(arguments)
    for shape in args.shapes:
        figures = (
            hand_over(shape, args.device, args.syncs)
            if args.engine == "receiver"
            else measure(
                shape, args.device, args.engine, args.tokens, args.responses, args.syncs, args.caches
            )
        )
        add(json.dumps(figures), args.out)


if __name__ == "__main__":
    main()
