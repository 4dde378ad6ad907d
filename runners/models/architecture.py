"""Models from a description: family, sizes and a seed in; the same transformers model every time out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from reodsl.diagnostics import problem

FAMILIES = {"qwen3": (Qwen3Config, Qwen3ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}


@dataclass(frozen=True, slots=True)
class Architecture:
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


def architecture_of(description: Mapping[str, Any]) -> Architecture:
    """Checks a mapping with `Architecture`'s names. Raises E0808 for a name or value that makes no model."""
    known = {field.name: field for field in fields(Architecture)}
    unknown = sorted(set(description) - set(known))
    if unknown:
        raise problem("E0808", f"an architecture has no `{unknown[0]}`", help=f"it has {', '.join(known)}")
    required = [name for name in known if name not in ("tied", "rope_theta", "norm_eps", "init_std")]
    missing = [name for name in required if name not in description]
    if missing:
        raise problem(
            "E0808",
            f"the architecture says nothing of `{missing[0]}`",
            help=f"it needs {', '.join(required)}",
        )
    made = Architecture(**description)
    if made.family not in FAMILIES:
        raise problem(
            "E0808", f"no model family is called `{made.family}`", help=f"there is {', '.join(FAMILIES)}"
        )
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "context"):
        size = getattr(made, name)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise problem(
                "E0808",
                f"`{name}` is {size!r}, and a whole number of at least 1 is needed",
                help="write 1 or more",
            )
    if made.heads % made.kv_heads:
        raise problem(
            "E0808",
            f"{made.heads} heads cannot share {made.kv_heads} key-value heads evenly",
            help="make `heads` a multiple of `kv_heads`",
        )
    if made.head_dim % 2:
        raise problem(
            "E0808",
            f"`head_dim` is {made.head_dim}, and rotary positions need it to be even",
            help="write an even number",
        )
    for name in ("rope_theta", "norm_eps", "init_std"):
        if not getattr(made, name) > 0:
            raise problem(
                "E0808",
                f"`{name}` is {getattr(made, name)!r}, and has to be above 0",
                help="write a number above 0",
            )
    return made


def build(architecture: Architecture, vocab: int, seed: int, *, eos: int, pad: int) -> Any:
    """A fresh fp32 model in evaluation mode; equal arguments give equal weights, torch's own stream stays untouched.

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
