"""The double of a model, for rehearsals: the same architecture and tokenizer with two narrow layers and random weights.

A double writes meaningless text. It ends a response with probability 1/32 at each token, so that lengths vary.
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
"""The sizes of a double by the setting's name; a setting that the architecture lacks is not used."""
HEADS, SHARED_HEADS = 4, 2
"""The query heads of a double, and its key-value heads if the model has fewer key-value heads than query heads."""
NUM_TOKENS = 32
"""The number of different tokens that a double writes, all equally likely; one of these tokens ends the response."""
LOGIT_GAP = 20.0
"""The difference between the logits of tokens that a double writes and those of other tokens."""
TEXTS = (
    "\n\n", "Wait", "\\boxed{", "}", "</think>", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", " = ", ".",
)  # fmt: skip
"""Texts whose tokens a double writes, so that some responses have thinking, boxes and numbers."""
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
END, PAD = "<|im_end|>", "<|endoftext|>"


def double_of(folder: Path, target: Path, seed: int) -> None:
    """Write the double of a model to a folder.

    Args:
        folder: The model folder; its weights may be missing.
        target: The folder to write.
        seed: The seed of the double's weights.

    Raises:
        Problem: As `load_config` and `load_tokenizer`.
    """
    config = load_config(folder)
    load_generation(folder)
    require_bounded_steps(folder)
    tokenizer = load_tokenizer(folder)
    draw_double(config, tokenizer, target, seed)
    # The file may name further tokens that end a response.
    if (folder / "generation_config.json").is_file():
        shutil.copyfile(folder / "generation_config.json", target / "generation_config.json")


def draw_double(config: Any, tokenizer: Any, target: Path, seed: int) -> None:
    """Write a small model of a config's architecture, with random weights, and a tokenizer to a folder.

    Args:
        config: The config of the model to imitate.
        tokenizer: The tokenizer to save with the model.
        target: The folder to write.
        seed: The seed of the weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(
            narrow_config(config), dtype=torch.float32, trust_remote_code=False
        ).eval()
    _raise_logits(model, _list_tokens(tokenizer))
    save(model, tokenizer, target)


def narrow_config(config: Any) -> Any:
    """Return a copy of a config with two narrow layers, and the vocabulary and context length of the original."""
    small = deepcopy(config)
    shares_heads = config.num_key_value_heads < config.num_attention_heads
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": SHARED_HEADS if shares_heads else HEADS}
    for name, value in {**SMALL_SIZES, **heads}.items():
        if getattr(config, name, None) is not None:
            setattr(small, name, value)
    layer_types = getattr(config, "layer_types", None)
    if layer_types is not None:
        layers = SMALL_SIZES["num_hidden_layers"]
        small.layer_types = (list(layer_types) * layers)[:layers]
    return small


def make_up_model(marks: tuple[str, ...], context: int) -> tuple[Any, Any]:
    """Return a Qwen3 config and a tokenizer with a token per byte, for the double of a model without files.

    Args:
        marks: The marks of thinking, which become single tokens.
        context: The longest sequence in tokens.

    Returns:
        The config, and the tokenizer, which has a chat template.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([PAD, "<|im_start|>", END])
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in dict.fromkeys(marks)])
    fast_tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False
    )
    fast_tokenizer.chat_template = CHAT
    config = Qwen3Config(
        vocab_size=len(fast_tokenizer),
        num_attention_heads=HEADS,
        num_key_value_heads=SHARED_HEADS,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=fast_tokenizer.eos_token_id,
        pad_token_id=fast_tokenizer.pad_token_id,
        **{
            name: SMALL_SIZES[name]
            for name in ("num_hidden_layers", "hidden_size", "intermediate_size", "head_dim")
        },
    )
    return config, fast_tokenizer


def _list_tokens(tokenizer: Any) -> list[int]:
    """Return the ids of the `NUM_TOKENS` tokens that a double writes.

    These are the end of text, the tokens of `TEXTS`, and as many first tokens of the vocabulary as are needed.
    """
    tokens = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    for text in TEXTS:
        tokens += tokenizer.encode(text, add_special_tokens=False)
    return list(dict.fromkeys([*tokens, *range(len(tokenizer))]))[:NUM_TOKENS]


@torch.no_grad()
def _raise_logits(model: Any, tokens: list[int]) -> None:
    """Raise the logits of these tokens by about `LOGIT_GAP` at every position, by changing weights in place.

    All embeddings get a large first component, which stays the largest through the layers. After the last norm it is
    about sqrt(width). The output matrix's first column is therefore raised by `LOGIT_GAP` / sqrt(width) for the tokens.
    """
    model.get_input_embeddings().weight[:, 0] += 1.0
    head = model.get_output_embeddings().weight
    head[tokens, 0] += LOGIT_GAP / head.shape[1] ** 0.5
