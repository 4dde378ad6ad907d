"""Make a model's small double: its architecture with two narrow layers and drawn weights, and its own tokenizer.

A double writes nothing that means anything, and ends one response in 32 at each token, so that lengths vary as they do.
"""

from __future__ import annotations

import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

from runners.models.folder import load_config, load_generation, load_tokenizer, save
from runners.models.tokenizer import require_bounded_steps

NARROW = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "head_dim": 16,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_window_layers": 2,
}
"""The sizes of a double, where its architecture has such a thing."""
HEADS, SHARED_HEADS = 4, 2
"""Heads of a double, and those of keys and values where its model has fewer of them than of queries."""
WRITTEN = 32
"""Tokens that a double writes, each as likely as any other; one of them ends the response."""
LIKELY = 20.0
"""The distance by which their logits exceed all others."""
TEXTS = (
    "\n\n",
    "Wait",
    "\\boxed{",
    "}",
    "</think>",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "9",
    " = ",
    ".",
)
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
END, PAD = "<|im_end|>", "<|endoftext|>"


def double_of(folder: Path, place: Path, seed: int) -> None:
    """Write the double of the model in `folder`, which needs no weights there, to `place`. Raises as `load_config` does."""
    config = load_config(folder)
    load_generation(folder)
    require_bounded_steps(folder)
    tokenizer = load_tokenizer(folder)
    draw_double(config, tokenizer, place, seed)
    # It may name more tokens that end a response.
    if (folder / "generation_config.json").is_file():
        shutil.copyfile(folder / "generation_config.json", place / "generation_config.json")


def draw_double(config: Any, tokenizer: Any, place: Path, seed: int) -> None:
    """Write a small model of a config's architecture, with drawn weights, to `place`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(
            narrow_config(config), dtype=torch.float32, trust_remote_code=False
        ).eval()
    _make_likely(model, _list_written(tokenizer))
    save(model, tokenizer, place)


def narrow_config(config: Any) -> Any:
    """Return a config of the same architecture, two narrow layers deep; vocabulary and context stay."""
    small = deepcopy(config)
    shared = config.num_key_value_heads < config.num_attention_heads
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": SHARED_HEADS if shared else HEADS}
    for name, value in {**NARROW, **heads}.items():
        if getattr(config, name, None) is not None:
            setattr(small, name, value)
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        layers = NARROW["num_hidden_layers"]
        small.layer_types = (list(kinds) * layers)[:layers]
    return small


def make_up_model(marks: tuple[str, ...], context: int) -> tuple[Any, Any]:
    """Return a Qwen3 config and a tokenizer for an unknown model: one token a byte, with a chat template.

    `marks`, of thinking, are tokens of their own. `context` is the longest sequence.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([PAD, "<|im_start|>", END])
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in dict.fromkeys(marks)])
    whole = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False
    )
    whole.chat_template = CHAT
    config = Qwen3Config(
        vocab_size=len(whole),
        num_attention_heads=HEADS,
        num_key_value_heads=SHARED_HEADS,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=whole.eos_token_id,
        pad_token_id=whole.pad_token_id,
        **{
            name: NARROW[name]
            for name in ("num_hidden_layers", "hidden_size", "intermediate_size", "head_dim")
        },
    )
    return config, whole


def _list_written(tokenizer: Any) -> list[int]:
    """Return the tokens that a double writes: the end, those of `TEXTS`, and the first of the vocabulary."""
    tokens = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    for text in TEXTS:
        tokens += tokenizer.encode(text, add_special_tokens=False)
    return list(dict.fromkeys([*tokens, *range(len(tokenizer))]))[:WRITTEN]


@torch.no_grad()
def _make_likely(model: Any, tokens: list[int]) -> None:
    """Raise the logits of these tokens at every place: by one direction that every embedding has and no layer takes away.

    After the last norm that direction is as long as the root of the width.
    """
    model.get_input_embeddings().weight[:, 0] += 1.0
    head = model.get_output_embeddings().weight
    head[tokens, 0] += LIKELY / head.shape[1] ** 0.5
