"""`make smollm2` against the package `gguf`: a whole model's logits, digits as tokens, and the model that is written."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.smollm2 import convert
from runners.models.folder import load

HEADS, KV_HEADS = 4, 2
FOLDER = Path(__file__).resolve().parents[2] / "models" / "smollm2-135m-instruct"
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def in_pairs(weight: Any, heads: int) -> Any:
    """The rows of each head as GGUF has them: row i and row i + half side by side."""
    half = weight.shape[0] // heads // 2
    order = [h * 2 * half + offset for h in range(heads) for i in range(half) for offset in (i, i + half)]
    return weight[order]


def small(tied: bool) -> Any:
    torch.manual_seed(3)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=260,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            head_dim=16,
            max_position_embeddings=128,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
            tie_word_embeddings=tied,
        )
    ).eval()


def written(place: Path, model: Any) -> Path:
    """The model as a GGUF file, made by the reference package."""
    import gguf

    file = gguf.GGUFWriter(str(place), "llama")
    file.add_name("small")
    file.add_vocab_size(260)
    file.add_block_count(2)
    file.add_context_length(128)
    file.add_embedding_length(64)
    file.add_feed_forward_length(96)
    file.add_head_count(HEADS)
    file.add_head_count_kv(KV_HEADS)
    file.add_rope_dimension_count(16)
    file.add_rope_freq_base(5000.0)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("smollm")
    letters = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    tokens = ["<|endoftext|>", "<|im_end|>", *letters, "he", "Ġhe"]
    file.add_token_list(tokens)
    file.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    file.add_token_merges(["h e", "Ġ he"])
    file.add_bos_token_id(0)
    file.add_eos_token_id(1)
    file.add_pad_token_id(1)
    file.add_chat_template("{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}")
    for name, tensor in model.state_dict().items():
        whole = name.removesuffix(".weight")
        if whole == "lm_head" and model.config.tie_word_embeddings:
            continue
        values, theirs = tensor, OUTER.get(whole)
        if theirs is None:
            layer, part = whole.removeprefix("model.layers.").split(".", 1)
            theirs = f"blk.{layer}.{NAMES[part]}"
            if part in ("self_attn.q_proj", "self_attn.k_proj"):
                values = in_pairs(tensor, HEADS if "q_proj" in part else KV_HEADS)
        file.add_tensor(f"{theirs}.weight", np.ascontiguousarray(values.numpy()))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return place


@pytest.mark.skipif(find_spec("gguf") is None, reason="make smollm2")
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_computes_what_it_did_before(tied: bool, tmp_path: Path) -> None:
    model = small(tied)
    convert(written(tmp_path / "small.gguf", model), tmp_path / "folder")
    made = load(tmp_path / "folder")
    ids = torch.arange(2, 42)[None]
    torch.testing.assert_close(made.model(ids).logits, model(ids).logits, rtol=0, atol=0)
    assert made.model.config.tie_word_embeddings == tied
    tokenizer = made.tokenizer
    assert tokenizer.tokenize("he said 123") == ["he", "Ġ", "s", "a", "i", "d", "Ġ", "1", "2", "3"]
    text = "The 2019 café isn't open — €12.50, \t ok?\n\n  日本"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("h<|im_end|>") == [tokenizer.convert_tokens_to_ids("h"), 1]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|im_end|>")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "x<|im_end|>"


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason="make smollm2")
def test_smollm2_expects_what_it_has_read() -> None:
    made = load(FOLDER)
    assert sum(weight.numel() for weight in made.model.parameters()) == 134_515_008
    words = " apple river seven chalk dragon violin mustard cloud hammer pencil lantern tiger"
    ids = made.tokenizer(words * 4, return_tensors="pt").input_ids
    with torch.no_grad():
        logits = made.model(ids).logits
    last = ids.shape[1] * 3 // 4
    surprise = torch.nn.functional.cross_entropy(logits[0, last:-1], ids[0, last + 1 :])
    # What came three times is expected: 1.7 nats a word. With the rows of a head in another order it is 7.6.
    assert surprise < 3
    assert made.tokenizer.eos_token == "<|im_end|>"
