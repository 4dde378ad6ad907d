"""Build models from a description: family, sizes and a seed give the same transformers model every time."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

FAMILIES = {"qwen3": (Qwen3Config, Qwen3ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}


def build(
    vocab: int,
    seed: int,
    *,
    eos: int,
    pad: int,
    family: str,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    intermediate: int,
    context: int,
    tied: bool = True,
    rope_theta: float = 10_000.0,
    norm_eps: float = 1e-6,
    init_std: float = 0.02,
) -> Any:
    """Return a fresh fp32 model in evaluation mode; equal arguments give equal weights, torch's own stream stays untouched.

    `vocab` is the number of tokens, `eos` and `pad` the tokenizer's ids. `context` is the longest sequence (prompt, response
    and forced answer) in tokens; `tied` shares the embedding with the output; `init_std` is the standard deviation of the
    initial matrices.
    """
    config_class, model_class = FAMILIES[family]
    config = config_class(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=context,
        rms_norm_eps=norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
        tie_word_embeddings=tied,
        initializer_range=init_std,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model_class(config).eval()
