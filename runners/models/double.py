"""Make a model's small double: its architecture with two narrow layers and random weights, and its own tokenizer.

A double writes nothing meaningful, and ends a response in 32 at each token, so that lengths vary as a model's do.
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

SMALL_SIZES = {
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
"""The sizes of a double, if its architecture has the setting."""
HEADS, SHARED_HEADS = 4, 2
"""Heads of a double, and key-value heads if its model has fewer of them than query heads."""
NUM_TOKENS = 32
"""Tokens that a double writes, all equally likely; one of them ends the response."""
LOGIT_GAP = 20.0
"""The distance by which their logits exceed the logits of other tokens."""
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


def double_of(folder: Path, target: Path, seed: int) -> None:
    """Write the double of the model in `folder`, whose weights are not needed, to `target`. Raises as `load_config`."""
    config = load_config(folder)
    load_generation(folder)
    require_bounded_steps(folder)
    tokenizer = load_tokenizer(folder)
    draw_double(config, tokenizer, target, seed)
    # It may name more tokens that end a response.
    if (folder / "generation_config.json").is_file():
        shutil.copyfile(folder / "generation_config.json", target / "generation_config.json")


def draw_double(config: Any, tokenizer: Any, target: Path, seed: int) -> None:
    """Write a small model of a config's architecture, with random weights, to `target`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(
            narrow_config(config), dtype=torch.float32, trust_remote_code=False
        ).eval()
    _raise_logits(model, _list_tokens(tokenizer))
    save(model, tokenizer, target)


def narrow_config(config: Any) -> Any:
    """Return a config of the same architecture, two narrow layers deep; vocabulary and context stay."""
    small = deepcopy(config)
    shared = config.num_key_value_heads < config.num_attention_heads
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": SHARED_HEADS if shared else HEADS}
    for name, value in {**SMALL_SIZES, **heads}.items():
        if getattr(config, name, None) is not None:
            setattr(small, name, value)
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        layers = SMALL_SIZES["num_hidden_layers"]
        small.layer_types = (list(kinds) * layers)[:layers]
    return small


def make_up_model(marks: tuple[str, ...], context: int) -> tuple[Any, Any]:
    """Return a Qwen3 config and a tokenizer for an unknown model: a token for each byte, with a chat template.

    `marks`, of thinking, are tokens of their own. `context` is the longest sequence in tokens.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([PAD, "<|im_start|>", END])
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in dict.fromkeys(marks)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False
    )
    wrapped.chat_template = CHAT
    config = Qwen3Config(
        vocab_size=len(wrapped),
        num_attention_heads=HEADS,
        num_key_value_heads=SHARED_HEADS,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=wrapped.eos_token_id,
        pad_token_id=wrapped.pad_token_id,
        **{
            name: SMALL_SIZES[name]
            for name in ("num_hidden_layers", "hidden_size", "intermediate_size", "head_dim")
        },
    )
    return config, wrapped


def _list_tokens(tokenizer: Any) -> list[int]:
    """Return the tokens that a double writes: the end, the tokens of `TEXTS`, and the first of the vocabulary."""
    tokens = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    for text in TEXTS:
        tokens += tokenizer.encode(text, add_special_tokens=False)
    return list(dict.fromkeys([*tokens, *range(len(tokenizer))]))[:NUM_TOKENS]


@torch.no_grad()
def _raise_logits(model: Any, tokens: list[int]) -> None:
    """Raise the logits of these tokens at every position, by a direction that every embedding has and no layer removes.

    After the last norm that direction is as long as the root of the width.
    """
    model.get_input_embeddings().weight[:, 0] += 1.0
    head = model.get_output_embeddings().weight
    head[tokens, 0] += LOGIT_GAP / head.shape[1] ** 0.5
