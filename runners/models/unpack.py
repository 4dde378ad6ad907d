"""Read a Llama model and its tokenizer from a GGUF file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGUFValueType
from gguf.gguf_reader import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from reodsl.diagnostics import Problem, first_line, problem
from runners.models.folder import LoadedModel

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL = 3
_DIGITS = {"smollm": r"\p{N}"}
"""Splits that a pre-tokenizer makes before the byte-level one of GPT-2, by its name in `tokenizer.ggml.pre`."""


def unpack(path: Path) -> LoadedModel:
    """Return the model of a GGUF file. Raises E0851 for a file that cannot be read or holds another kind of model."""
    file = Gguf(path)
    try:
        return LoadedModel(_model(file), _tokenizer(file))
    except Problem:
        raise
    except Exception as fault:
        # Settings may be of any type and size, and the tokenizers library raises bare Exception.
        words = f"it has no `{fault.args[0]}`" if isinstance(fault, KeyError) else first_line(fault)
        raise _unfit(file, words) from fault


def _model(file: Gguf) -> Any:
    metadata = file.metadata
    if metadata["general.architecture"] != "llama":
        raise _unfit(
            file, f"its architecture is `{metadata['general.architecture']!s:.40}`, and `llama` is read"
        )
    heads, kv_heads = (
        int(metadata["llama.attention.head_count"]),
        int(metadata["llama.attention.head_count_kv"]),
    )
    tied = "output.weight" not in file.tensors
    config = LlamaConfig(
        vocab_size=file.shape("token_embd.weight")[0],
        hidden_size=int(metadata["llama.embedding_length"]),
        intermediate_size=int(metadata["llama.feed_forward_length"]),
        num_hidden_layers=int(metadata["llama.block_count"]),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=int(metadata["llama.rope.dimension_count"]),
        max_position_embeddings=int(metadata["llama.context_length"]),
        rms_norm_eps=float(metadata["llama.attention.layer_norm_rms_epsilon"]),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": float(metadata.get("llama.rope.freq_base", 10_000.0)),
        },
        tie_word_embeddings=tied,
        bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=int(metadata["tokenizer.ggml.eos_token_id"]),
        pad_token_id=metadata.get("tokenizer.ggml.padding_token_id"),
    )
    if config.num_hidden_layers > len(file.tensors):
        raise _unfit(file, f"it claims {config.num_hidden_layers} layers and has {len(file.tensors)} tensors")
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise _unfit(file, f"its positions are scaled as `{scaling!s:.40}`, and plain rotary ones are read")
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    state = {name: torch.from_numpy(values) for name, values in _weights(file, config, heads, kv_heads)}
    _require_all_read(file, config.num_hidden_layers)
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = model.to_empty(device="cpu")
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    # What is no weight (the rotary frequencies) was on no device: it is derived from the config again.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config)
    return model.eval()


def _require_all_read(file: Gguf, layers: int) -> None:
    """Refuse further tensors (a bias, factors of rotary frequencies), without which numbers would silently be others."""
    known = {"token_embd.weight", "output_norm.weight", "output.weight"}
    known |= {f"blk.{layer}.{theirs}.weight" for layer in range(layers) for theirs in _LAYER}
    more = sorted(set(file.tensors) - known)
    if more:
        raise _unfit(file, f"it has a tensor `{more[0]:.80}`, which no Llama model of transformers has here")


def _weights(file: Gguf, config: Any, heads: int, kv_heads: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    yield "model.embed_tokens.weight", file.read("token_embd.weight")
    yield "model.norm.weight", file.read("output_norm.weight")
    if not config.tie_word_embeddings:
        yield "lm_head.weight", file.read("output.weight")
    for layer in range(config.num_hidden_layers):
        for theirs, ours in _LAYER.items():
            values = file.read(f"blk.{layer}.{theirs}.weight")
            if theirs in ("attn_q", "attn_k"):
                values = _split_halves(values, heads if theirs == "attn_q" else kv_heads)
            yield f"model.layers.{layer}.{ours}.weight", values


def _split_halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Return each head's rows in first and second halves, as transformers rotates them; GGUF has them in pairs."""
    size, width = rows.shape
    paired = rows.reshape(heads, size // heads // 2, 2, width)
    return np.ascontiguousarray(paired.swapaxes(1, 2).reshape(size, width))


def _tokenizer(file: Gguf) -> Any:
    metadata: Mapping[str, Any] = file.metadata
    if metadata["tokenizer.ggml.model"] != "gpt2":
        raise _unfit(
            file,
            f"its tokenizer is `{metadata['tokenizer.ggml.model']!s:.40}`, and `gpt2` (byte-level BPE) is read",
        )
    split = _DIGITS.get(metadata.get("tokenizer.ggml.pre", ""))
    if split is None:
        raise _unfit(
            file,
            f"its tokenizer splits text as `{metadata.get('tokenizer.ggml.pre')!s:.40}`, and `smollm` is known",
        )
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ", 1)) for pair in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(BPE({token: index for index, token in enumerate(tokens)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), byte_level]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    named = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    token_ids = {role: metadata.get(f"tokenizer.ggml.{name}_token_id") for name, role in named.items()}
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        model_max_length=int(metadata["llama.context_length"]),
        **{role: tokens[index] for role, index in token_ids.items() if index is not None},
    )
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str | None):
        raise _unfit(file, f"its chat template is {template!r:.40}, and no text")
    wrapped.chat_template = template
    return wrapped


def _unfit(file: Gguf, why: str) -> Problem:
    return problem(
        "E0851",
        f"the GGUF file makes no model here: {why}",
        where=str(file.path),
        help="give the model as safetensors in a `folder(…)`, which transformers reads whatever its architecture",
    )


_MOST_PIECES = 4_000_000
"""Lengths, numbers and texts of a header: a vocabulary of 256K tokens with its merges has about two million."""


class Gguf:
    """An open GGUF file: `metadata` by key, `tensors` by name."""

    def __init__(self, path: Path) -> None:
        """Read everything but the tensors' numbers. Raises E0851 for another kind of file or of tensors."""
        self.path = path
        try:
            with np.errstate(over="raise"):
                reader = _Reader(path)
            self.metadata = {name: field.contents() for name, field in reader.fields.items()}
        # The reader raises whatever the bytes lead it into, and the bytes may be anyone's.
        except Exception as fault:
            raise self._broken(first_line(fault)) from fault
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, rows first. Raises E0851 if the file does not have it."""
        if name not in self.tensors:
            raise self._broken(f"it has no tensor `{name}`")
        # The file names the fastest dimension first.
        return tuple(reversed(self.tensors[name].shape.tolist()))

    def read(self, name: str) -> NDArray[np.float32]:
        """Return a tensor's numbers, shape as `shape`. Raises E0851 if the file does not have it or stores it otherwise."""
        shape, tensor = self.shape(name), self.tensors[name]
        try:
            return np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32).reshape(shape)
        except NotImplementedError as fault:
            kind = tensor.tensor_type.name
            raise self._broken(f"the tensor `{name}` is stored as {kind}, which is not read") from fault

    def _broken(self, why: str) -> Problem:
        return problem(
            "E0851",
            f"the GGUF file cannot be read: {why}",
            where=str(self.path),
            help="copy or install it again; weights as safetensors are read from a `folder(…)`",
        )


class _Reader(GGUFReader):
    """The package's reader within bounds: by itself it goes on past the end of a file as long as a forged length says."""

    def __init__(self, path: Path) -> None:
        self._pieces = 0
        self._in_list = False
        super().__init__(path)
        if self.byte_order != "I":
            raise ValueError("its numbers have their bytes in the other order")
        for tensor in self.tensors:
            # The product of the sizes overflows without an error.
            if prod(tensor.shape.tolist()) != tensor.n_elements or tensor.n_elements < 1:
                raise ValueError(f"the tensor `{tensor.name:.80}` has a size that no tensor has")

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        """Return a setting's parts. Raises ValueError for a list of lists, whose parts are copied at each depth."""
        outside, self._in_list = self._in_list, int(raw_type) == GGUFValueType.ARRAY
        if outside and self._in_list:
            raise ValueError("a setting is a list of lists")
        parts = super()._get_field_parts(orig_offs, raw_type)
        self._in_list = outside
        return parts

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> NDArray[Any]:
        """Return `count` numbers at a place of the file. Raises ValueError if the file ends before."""
        self._pieces += 1
        if self._pieces > _MOST_PIECES:
            raise ValueError(f"its header has more than {_MOST_PIECES:,} parts")
        end = int(offset) + np.dtype(dtype).itemsize * int(count)
        if end > len(self.data):
            raise ValueError(f"it claims a byte {end:,} and has {len(self.data):,}")
        return super()._get(offset, dtype, count, override_order)
