"""Write the tiny model that both sides of a comparison take steps on, and read the settings that both have.

The model is a folder in the layout of `transformers` with random weights from a seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 128, 4, 4, 2, 32, 128
PROMPT = "t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11 t12 t13 t14 t15 t16"


def write(folder: Path) -> None:
    """Write model and word-level tokenizer.

    One token in 128 is the end of sequence, with near-uniform logits: cut at 256, responses have 111 tokens on average.
    """
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    words = ["<pad>", "<eos>", "<unk>"] + [f"t{i}" for i in range(VOCABULARY - 3)]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        intermediate_size=4 * HIDDEN,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = 1
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder)


def settings(description: str | None) -> argparse.Namespace:
    """Read `model`, `steps`, `prompts`, `rollouts`, `max_tokens` and `fixed` from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--fixed", action="store_true", help="never end early: every response has max-tokens")
    return parser.parse_args()


def line(tokens: float, cpu: float, lengths: Sequence[int], **rates: float) -> str:
    """Return the JSON line that `benchmarks.step` reads: tokens and seconds of the steps, mean length of responses.

    Args:
        tokens: Tokens of all responses.
        cpu: Processor seconds of the steps.
        lengths: Tokens of each response.
        **rates: FLOP/s of phases of the steps.
    """
    return json.dumps({"tokens": tokens, "cpu": cpu, "mean_length": sum(lengths) / len(lengths), **rates})
