"""A saved folder makes the same model and the same tokenizer: rotary positions, special tokens, sides of padding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Glm4Config,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.llama.tokenization_llama import LlamaTokenizer

from runners.models.folder import load, save
from runners.models.tokenizer import word_tokenizer

SIZES: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
    "initializer_range": 0.3, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPES = {
    "qwen3": (Qwen3Config, {"rope_type": "default", "rope_theta": 5e6}),
    "yarn": (
        Qwen3Config,
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16},
    ),
    "llama": (LlamaConfig, {"rope_type": "default", "rope_theta": 123.0}),
    "llama3": (LlamaConfig, {**LLAMA3, "rope_theta": 5e5, "original_max_position_embeddings": 32}),
    "part": (Glm4Config, {"rope_type": "default", "rope_theta": 3e4, "partial_rotary_factor": 0.25}),
    "experts": (Qwen3MoeConfig, {"rope_type": "default", "rope_theta": 2e6}),
}


def logits(folder: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(torch.arange(40)[None]).logits


@pytest.mark.parametrize("name", ROPES)
def test_a_saved_model_computes_the_same(tmp_path: Path, name: str) -> None:
    kind, rope = ROPES[name]
    more = (
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8} if name == "experts" else {}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(kind(**SIZES, **more, rope_parameters=dict(rope))).eval()
    save(model, word_tokenizer([f"w{i}" for i in range(35)]), tmp_path / "model")
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert written["rope_parameters"] == rope
    with torch.no_grad():
        expected = model(torch.arange(40)[None]).logits
    assert torch.equal(logits(tmp_path / "model"), expected)


def bytes_tokenizer() -> Tokenizer:
    alphabet = {mark: index for index, mark in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE({**alphabet, "ab": 256}, [("a", "b")]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return made


@pytest.mark.parametrize("kind", [PreTrainedTokenizerFast, LlamaTokenizer])
def test_the_tokenizer_is_what_its_file_says(tmp_path: Path, kind: Any) -> None:
    model = AutoModelForCausalLM.from_config(LlamaConfig(**{**SIZES, "vocab_size": 300}))
    special = {"eos_token": "<eos>", "extra_special_tokens": ["<call>", "<end>"]}
    if kind is LlamaTokenizer:
        tokenizer = kind(
            vocab={"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3, "b": 4, "ab": 5, "▁": 6}, merges=[("a", "b")]
        )
        tokenizer.add_special_tokens(special)
    else:
        tokenizer = kind(tokenizer_object=bytes_tokenizer(), padding_side="left", **special)
    save(model, tokenizer, tmp_path / "model")
    for loaded in (load(tmp_path / "model").tokenizer, AutoTokenizer.from_pretrained(tmp_path / "model")):
        for text in ("ab a<call>b", " ab  <end><eos>", ""):
            assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
            assert loaded.decode(loaded(text)["input_ids"]) == tokenizer.decode(tokenizer(text)["input_ids"])
        assert loaded.extra_special_tokens == ["<call>", "<end>"]
        assert (loaded.eos_token, loaded.padding_side) == ("<eos>", "left")
