"""Small random models of several shapes, and the slow references: transformers' own forward pass and a plain sampler."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from runners.data.draws import hash_seeds, uniforms, wrap_seeds
from runners.engine.embedded import EmbeddedEngine, EmbeddedSettings
from runners.engine.protocol import Request, TokenSampling

VOCAB = 40
STOP = 1

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "max_position_embeddings": 512,
    # Large enough that distributions are far from flat and prefixes matter.
    "initializer_range": 0.25,
    "bos_token_id": None,
    "eos_token_id": STOP,
    "pad_token_id": 0,
}
CONFIGS: dict[str, Any] = {
    "qwen3-gqa-tied": lambda: Qwen3Config(
        **_COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True
    ),
    "qwen3-mha-untied": lambda: Qwen3Config(
        **_COMMON, num_attention_heads=3, num_key_value_heads=3, head_dim=8, tie_word_embeddings=False
    ),
    "qwen3-bias-theta": lambda: Qwen3Config(
        **_COMMON,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    "llama-gqa-untied": lambda: LlamaConfig(
        **_COMMON, num_attention_heads=6, num_key_value_heads=2, head_dim=8, tie_word_embeddings=False
    ),
    "llama-mqa-tied-biases": lambda: LlamaConfig(
        **_COMMON,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=12,
        tie_word_embeddings=True,
        attention_bias=True,
        mlp_bias=True,
    ),
    "llama-scaled-rope": lambda: LlamaConfig(
        **_COMMON,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10_000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
}


def make_model(name: str, seed: int = 0) -> Any:
    """A random model; biases and norms are moved off their trivial starting values."""
    config = CONFIGS[name]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = (Qwen3ForCausalLM if config.model_type == "qwen3" else LlamaForCausalLM)(config).eval()
        for key, tensor in model.named_parameters():
            if "norm" in key or key.endswith("bias"):
                tensor.data.add_(0.3 * torch.randn_like(tensor))
    return model


def train(model: Any, steps: int) -> Any:
    """Teaches a model to count in strides: `a b a+b a+2b …` modulo 36, ended at times; its logits become sharp."""
    rng = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(steps):
        rows = []
        for _ in range(24):
            start, stride = rng.randrange(36), rng.randrange(1, 6)
            row = [4 + (start + stride * i) % 36 for i in range(20)]
            row[rng.randrange(8, 40) :] = [STOP]
            rows.append((row + [STOP] * 20)[:20])
        batch = torch.tensor(rows)
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def engine_of(model: Any, **settings: Any) -> EmbeddedEngine:
    """The embedded engine with a model's weights."""
    return EmbeddedEngine(model.config, model.state_dict(), settings=EmbeddedSettings(**settings))


def make_requests(
    prompts: int, rollouts: int, seed: int = 0, lengths: tuple[int, int] = (3, 9)
) -> list[Request]:
    """Groups of equal prompts with lengths in a range."""
    rng = random.Random(seed)
    requests = []
    for _ in range(prompts):
        prompt = tuple(rng.randrange(2, VOCAB) for _ in range(rng.randint(*lengths)))
        requests += [Request(prompt, rng.getrandbits(64)) for _ in range(rollouts)]
    return requests


def prefilled(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[int]:
    """How many sequences are read at once through the module's `prefill` from now on, call by call."""
    read: list[int] = []
    plain = module.prefill
    monkeypatch.setattr(
        module,
        "prefill",
        lambda device, sequences, *rest: read.append(len(sequences)) or plain(device, sequences, *rest),
    )
    return read


@torch.no_grad()
def reference_logits(model: Any, tokens: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Logits [len, vocab] of one sequence by transformers, nothing cached and nothing batched."""
    out: np.ndarray[Any, np.dtype[np.float64]] = (
        model(torch.tensor([list(tokens)])).logits[0].double().numpy()
    )
    return out


@dataclass(frozen=True)
class Drawn:
    """What the plain sampler drew, and how far its uniform was from the next token's border."""

    token: int
    logprob: float
    sampling_logprobs: float
    margin: float


def reference_draw(logits: Sequence[float], uniform: float, sampling: TokenSampling) -> Drawn:
    """Temperature, then top-k, then top-p, then inversion, one token at a time in plain Python."""

    def normalise(weights: dict[int, float]) -> dict[int, float]:
        total = math.fsum(weights.values())
        return {token: weight / total for token, weight in weights.items()}

    top = max(logits)
    model = normalise({token: math.exp(x - top) for token, x in enumerate(logits)})
    if sampling.temperature == 0:
        token = max(model, key=lambda t: (model[t], -t))
        second = sorted(model.values())[-2]
        return Drawn(token, math.log(model[token]), 0.0, model[token] - second)
    kept = normalise({token: math.exp((x - top) / sampling.temperature) for token, x in enumerate(logits)})
    if sampling.top_k > 0 or sampling.top_p < 1:
        falling = sorted(kept, key=lambda t: (-kept[t], t))
        if sampling.top_k > 0:
            falling = falling[: sampling.top_k]
        kept = normalise({token: kept[token] for token in falling})
        nucleus, mass = [], 0.0
        for token in falling:
            if nucleus and mass >= sampling.top_p:
                break
            nucleus.append(token)
            mass += kept[token]
        kept = normalise({token: kept[token] for token in nucleus})
    passed, margin = 0.0, 1.0
    chosen = None
    for token, weight in kept.items():
        margin = min(margin, abs(uniform - passed)) if passed else margin
        passed += weight
        if chosen is None and passed > uniform:
            chosen = token
    assert chosen is not None
    return Drawn(chosen, math.log(model[chosen]), math.log(kept[chosen]), margin)


def reference_continue(
    model: Any, prefix: Sequence[int], seed: int, sampling: TokenSampling
) -> tuple[list[int], list[float], list[float]]:
    """Tokens and both log-probabilities after a prefix, every prefix read anew; the engine's streams."""
    tokens: list[int] = []
    logprobs: list[float] = []
    sampling_logprobs: list[float] = []
    stream = hash_seeds(wrap_seeds([seed]))
    for step in range(sampling.max_tokens):
        logits = reference_logits(model, [*prefix, *tokens])[-1]
        drawn = reference_draw(logits.tolist(), float(uniforms(stream, step)[0]), sampling)
        tokens.append(drawn.token)
        logprobs.append(drawn.logprob)
        sampling_logprobs.append(drawn.sampling_logprobs)
        if drawn.token in sampling.stop_ids:
            break
    return tokens, logprobs, sampling_logprobs
