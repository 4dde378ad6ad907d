"""What forced answers cost on a GPU: shapes of Qwen3 with random weights in; shares of the generation out, as JSON.

`python -m benchmarks.gpu_forcing` lets the embedded engine generate long responses and then forces an answer of one token at
5 and at 32 evenly spaced budgets of each, in three ways: on the caches that generation left (`reused`), on each response
read once more (`read_once`), and with every prefix read anew (`read_each`), which is no reuse at all.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from benchmarks.gpu_train import QWEN_VOCABULARY, SHAPES, VOCABULARY, add, name_of, numbered, wait
from runners.engine.embedded import EmbeddedEngine, EmbeddedSettings
from runners.engine.protocol import Forced, Request, Response, Sampling
from runners.models.architecture import build

FORCING = (5, 6, 7)
PROMPT = 64
ANSWER = Sampling(1, temperature=0.0)
Dtype = Literal["float32", "bfloat16"]
Made = TypeVar("Made")


def measure(
    shape: str, device: torch.device, tokens: int, responses: int, budgets: Sequence[int], dtype: Dtype
) -> dict[str, Any]:
    """One line of figures: `responses` responses of `tokens` tokens each, and answers at each number of budgets."""
    vocabulary = VOCABULARY.get(shape, QWEN_VOCABULARY)
    with device:
        model = build(SHAPES[shape], vocabulary, 1, eos=1, pad=0)
    settings = replace(EmbeddedSettings.on(str(device)), dtype=dtype)
    engine = EmbeddedEngine(model.config, model.state_dict(), settings=settings)
    draw = np.random.default_rng(1)
    requests = [
        Request(tuple(int(one) for one in draw.integers(2, vocabulary, PROMPT)), seed)
        for seed in range(responses)
    ]
    # A first small round loads kernels and fills the allocator.
    engine.force(requests, engine.generate(requests, Sampling(4)), [[2]] * responses, FORCING, ANSWER)
    sampling = Sampling(tokens)
    given, generation = _timed(device, partial(engine.generate, requests, sampling))
    figures: dict[str, Any] = {"shape": shape, "tokens": tokens, "responses": responses, "dtype": dtype}
    figures |= {"device": name_of(device), "torch": torch.__version__, "seconds_generate": generation}
    figures["tokens_per_second"] = tokens * responses / generation
    shares: dict[str, dict[str, float]] = {}
    kept = {count: _reused(engine, device, requests, given, tokens, count) for count in budgets}
    # New weights drop the caches of the ones before.
    engine.load_weights(model.state_dict(), 1)
    for count in budgets:
        cuts = [_cuts(tokens, count)] * responses
        read, once = _timed(device, partial(engine.force, requests, given, cuts, FORCING, ANSWER))
        prefixes = [
            Request((*request.prompt, *response.tokens[:cut], *FORCING), request.seed)
            for request, response in zip(requests, given, strict=True)
            for cut in cuts[0]
        ]
        _, each = _timed(device, partial(engine.generate, prefixes, ANSWER))
        answers, reused = kept[count]
        shares[str(count)] = {
            "reused": reused / generation,
            "read_once": once / generation,
            "read_each": each / generation,
            "answers_equal": _share_equal(answers, read),
        }
    engine.close()
    return figures | {"shares": shares}


def _reused(
    engine: EmbeddedEngine,
    device: torch.device,
    requests: Sequence[Request],
    responses: Sequence[Response],
    tokens: int,
    count: int,
) -> tuple[list[list[Forced]], float]:
    cuts = [_cuts(tokens, count)] * len(requests)
    return _timed(device, partial(engine.force, requests, responses, cuts, FORCING, ANSWER))


def _cuts(tokens: int, count: int) -> list[int]:
    """As many places as `count`, evenly spaced within a response."""
    return [tokens * (number + 1) // (count + 1) for number in range(count)]


def _share_equal(one: Sequence[Sequence[Forced]], other: Sequence[Sequence[Forced]]) -> float:
    """How many answers are the same in both; random weights leave near ties, which rounding decides."""
    pairs = [
        (a, b) for ours, theirs in zip(one, other, strict=True) for a, b in zip(ours, theirs, strict=True)
    ]
    return sum(a == b for a, b in pairs) / len(pairs)


def _timed(device: torch.device, work: Callable[[], Made]) -> tuple[Made, float]:
    """What the work gives, and the seconds until the device has done it."""
    wait(device)
    began = time.perf_counter()
    result = work()
    wait(device)
    return result, time.perf_counter() - began


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=["qwen3-0.6b"])
    parser.add_argument("--device", type=numbered, default="cuda")
    parser.add_argument("--tokens", type=int, default=8192, help="of a response")
    parser.add_argument("--responses", type=int, default=16)
    parser.add_argument("--budgets", type=int, nargs="+", default=[5, 32])
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--out", type=Path, help="a file that the lines are added to")
    args = parser.parse_args(arguments)
    for shape in args.shapes:
        figures = measure(shape, args.device, args.tokens, args.responses, args.budgets, args.dtype)
        add(json.dumps(figures), args.out)


if __name__ == "__main__":
    main()
