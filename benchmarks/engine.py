"""Time the embedded engine against `transformers.generate`, and forced answers as a share of generation.

The tiny model has varied lengths up to 256 tokens. Own and peer runs alternate; figures are medians of tokens per
CPU-second and of ratios within a round.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.tiny import VOCABULARY, write
from runners.engine.embedded import EmbeddedEngine
from runners.engine.protocol import Request, TokenSampling

MAX_TOKENS, EOS = 256, 1


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of some work, and its processor seconds."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def peer(model: Any, texts: Any, rollouts: int) -> int:
    """Let `transformers` generate `rollouts` responses to each row of `texts` [prompts, 16], and count their tokens."""
    with torch.inference_mode():
        ids = texts.repeat_interleave(rollouts, 0)
        generated = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=MAX_TOKENS,
            do_sample=True,
            top_k=0,
            eos_token_id=EOS,
            pad_token_id=0,
        )[:, 16:]
    # Every token up to and with the first end of sequence is real.
    return int(((generated == EOS).cumsum(1) - (generated == EOS).int() == 0).sum())


def measure(rounds: int, prompts: int = 64, rollouts: int = 8) -> dict[str, Any]:
    """Return medians over rounds of own generation, forced answers at 5 and 32 budgets, and the peer's generation."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        write(Path(place))
        model = AutoModelForCausalLM.from_pretrained(place).eval()
    engine = EmbeddedEngine(model.config, model.state_dict())
    torch.manual_seed(1)
    texts = torch.randint(3, VOCABULARY, (prompts, 16))
    sampling, answer = TokenSampling(MAX_TOKENS, stop_ids=(EOS,)), TokenSampling(1, temperature=0.0)
    figures: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    for turn in range(rounds + 1):
        requests = [
            Request(tuple(text), turn * prompts * rollouts + row * rollouts + one)
            for row, text in enumerate(texts.tolist())
            for one in range(rollouts)
        ]
        responses, generation = timed(partial(engine.generate, requests, sampling))
        tokens = sum(len(response.tokens) for response in responses)
        shares = {}
        for budgets in (5, 32):
            cuts = [[MAX_TOKENS * (i + 1) // (budgets + 1) for i in range(budgets)] for _ in responses]
            work = partial(engine.force, requests, responses, cuts, (5, 6, 7), answer)
            shares[budgets] = timed(work)[1] / generation
        peer_tokens, peer_seconds = timed(partial(peer, model, texts, rollouts))
        if turn == 0:
            continue  # The first round warms both up.
        note("tokens_per_cpu_second", tokens / generation)
        note("peer_tokens_per_cpu_second", peer_tokens / peer_seconds)
        note("speed_over_peer", tokens / generation * peer_seconds / peer_tokens)
        note("mean_length", tokens / len(responses))
        for budgets, share in shares.items():
            note(f"forced_{budgets}_over_generation", share)
    return {name: round(statistics.median(values), 3) for name, values in figures.items()}
