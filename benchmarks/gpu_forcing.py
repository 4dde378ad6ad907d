"""What forced answers cost on a GPU: shapes of Qwen3 with random weights in; shares of the generation out, as JSON.

`python -m benchmarks.gpu_forcing` lets the embedded engine generate long responses and then forces an answer of one token at
5 and at 32 evenly spaced budgets of each, in three ways: on the caches that generation left (`reused`), on each response
read once more (`read_once`), and with every prefix read anew (`read_each`), which is no reuse at all.

`--engine sglang` asks a server. There `reused` is what answers cost that are asked for as each response ends, as runs do.
`read_again` is the share of their prefixes' tokens that the server had to read for them. A server keeps what it reads, so
that it has no `read_each`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from benchmarks.gpu_train import QWEN_VOCABULARY, SHAPES, VOCABULARY, add, name_of, numbered, wait
from reodsl.graph.job import Resources
from runners.engine.embedded import EmbeddedEngine, EmbeddedSettings
from runners.engine.open import open_engine
from runners.engine.protocol import ForcedTokens, ForcingPlan, Generation, Request, TokenSampling
from runners.engine.sglang.engine import SGLangEngine
from runners.models.folder import build, save
from runners.models.tokenizer import word_tokenizer

FORCING = (5, 6, 7)
PROMPT = 64
ANSWER = TokenSampling(1, temperature=0.0)
Dtype = Literal["float32", "bfloat16"]
Made = TypeVar("Made")


def measure(
    shape: str, device: torch.device, tokens: int, responses: int, budgets: Sequence[int], dtype: Dtype
) -> dict[str, Any]:
    """One line of figures: `responses` responses of `tokens` tokens each, and answers at each number of budgets."""
    model, requests = _given(shape, device, responses)
    settings = replace(EmbeddedSettings.on(str(device)), dtype=dtype)
    engine = EmbeddedEngine(model.config, model.state_dict(), settings=settings)
    # A first small round loads kernels and fills the allocator.
    engine.force(requests, engine.generate(requests, TokenSampling(4)), [[2]] * responses, FORCING, ANSWER)
    given, generation = _timed(device, partial(engine.generate, requests, TokenSampling(tokens)))
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
    return {**_named(shape, device, tokens, responses, "embedded", dtype, generation), "shares": shares}


def measure_served(
    shape: str, device: torch.device, tokens: int, responses: int, budgets: Sequence[int]
) -> dict[str, Any]:
    """The same of a server, whose numbers are bfloat16 on a GPU and float32 on a processor."""
    model, requests = _given(shape, device, responses)
    shares: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        words = word_tokenizer([f"w{i}" for i in range(2, model.config.vocab_size)])
        save(model, words, place)
        longest = PROMPT + tokens + len(FORCING) + ANSWER.max_tokens
        resources = Resources(device=device.type, engine="sglang")
        engine = open_engine(place, resources, longest, Path(folder) / "engine")
        assert isinstance(engine, SGLangEngine)
        try:
            engine.force(
                requests, engine.generate(requests, TokenSampling(4)), [[2]] * responses, FORCING, ANSWER
            )
            given, generation = _timed(device, partial(engine.generate, requests, TokenSampling(tokens)))
            for version, count in enumerate(budgets, start=1):
                cuts = [_cuts(tokens, count)] * responses
                # New weights drop the caches of the ones before, here and below.
                engine.load_weights(place, 2 * version)
                sent, cached = engine.read.sent, engine.read.cached
                ahead = ForcingPlan(partial(_same, cuts[0]), FORCING, ANSWER)
                _, both = _timed(device, partial(engine.generate, requests, TokenSampling(tokens), ahead))
                answers = engine.force(requests, given, cuts, FORCING, ANSWER)
                sent, cached = engine.read.sent - sent, engine.read.cached - cached
                engine.load_weights(place, 2 * version + 1)
                read, once = _timed(device, partial(engine.force, requests, given, cuts, FORCING, ANSWER))
                shares[str(count)] = {
                    "reused": both / generation - 1.0,
                    "read_once": once / generation,
                    "read_again": 1.0 - cached / sent,
                    "answers_equal": _share_equal(answers, read),
                }
        finally:
            engine.close()
    dtype: Dtype = "float32" if device.type == "cpu" else "bfloat16"
    return {**_named(shape, device, tokens, responses, "sglang", dtype, generation), "shares": shares}


def _same(cuts: Sequence[int], index: int, response: Generation) -> Sequence[int]:
    """The cuts of any response."""
    return cuts


def _given(shape: str, device: torch.device, responses: int) -> tuple[Any, list[Request]]:
    """Random weights of a shape, and prompts of random tokens."""
    vocabulary = VOCABULARY.get(shape, QWEN_VOCABULARY)
    with device:
        model = build(vocabulary, 1, eos=1, pad=0, **SHAPES[shape])
    draw = np.random.default_rng(1)
    return model, [
        Request(tuple(int(one) for one in draw.integers(2, vocabulary, PROMPT)), seed)
        for seed in range(responses)
    ]


def _named(
    shape: str,
    device: torch.device,
    tokens: int,
    responses: int,
    engine: str,
    dtype: Dtype,
    generation: float,
) -> dict[str, Any]:
    return {
        "shape": shape,
        "tokens": tokens,
        "responses": responses,
        "engine": engine,
        "dtype": dtype,
        "device": name_of(device),
        "torch": torch.__version__,
        "seconds_generate": generation,
        "tokens_per_second": tokens * responses / generation,
    }


def _reused(
    engine: EmbeddedEngine,
    device: torch.device,
    requests: Sequence[Request],
    responses: Sequence[Generation],
    tokens: int,
    count: int,
) -> tuple[list[list[ForcedTokens]], float]:
    cuts = [_cuts(tokens, count)] * len(requests)
    return _timed(device, partial(engine.force, requests, responses, cuts, FORCING, ANSWER))


def _cuts(tokens: int, count: int) -> list[int]:
    """As many places as `count`, evenly spaced within a response."""
    return [tokens * (number + 1) // (count + 1) for number in range(count)]


def _share_equal(one: Sequence[Sequence[ForcedTokens]], other: Sequence[Sequence[ForcedTokens]]) -> float:
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
    parser.add_argument("--engine", choices=["embedded", "sglang"], default="embedded")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="bfloat16", help="of the embedded engine"
    )
    parser.add_argument("--out", type=Path, help="a file that the lines are added to")
    args = parser.parse_args(arguments)
    for shape in args.shapes:
        size = (shape, args.device, args.tokens, args.responses, args.budgets)
        figures = measure_served(*size) if args.engine == "sglang" else measure(*size, args.dtype)
        add(json.dumps(figures), args.out)


if __name__ == "__main__":
    main()
