"""Build models from a description: family, sizes and a seed give the same transformers model every time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

FAMILIES = {"qwen3": (Qwen3Config, Qwen3ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}


@dataclass(frozen=True, slots=True)
class DecoderSizes:
    """Sizes of a Qwen3 or Llama decoder that is to be made from nothing.

    `context` is the longest sequence (prompt, response and forced answer) in tokens; `tied` shares the embedding
    with the output; `init_std` is the standard deviation of the initial matrices.
    """

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    context: int
    tied: bool = True
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6
    init_std: float = 0.02


def build(architecture: DecoderSizes, vocab: int, seed: int, *, eos: int, pad: int) -> Any:
    """Return a fresh fp32 model in evaluation mode; equal arguments give equal weights, torch's own stream stays untouched.

    `vocab` is the number of tokens, `eos` and `pad` the tokenizer's ids.
    """
    config_class, model_class = FAMILIES[architecture.family]
    config = config_class(
        vocab_size=vocab,
        hidden_size=architecture.hidden,
        intermediate_size=architecture.intermediate,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.kv_heads,
        head_dim=architecture.head_dim,
        max_position_embeddings=architecture.context,
        rms_norm_eps=architecture.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": architecture.rope_theta},
        tie_word_embeddings=architecture.tied,
        initializer_range=architecture.init_std,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model_class(config).eval()
