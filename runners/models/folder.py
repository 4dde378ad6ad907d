"""Load and save model folders, and build new models, without unpickling files and without a network."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging as transformers_logging

from reodsl.diagnostics import Problem, first_line, misread, problem, refuse
from reodsl.store.external import leads_out
from reodsl.store.files import is_full
from reodsl.tokenizer import of_whole_texts
from runners.models.bounds import (
    INCOMPLETE,
    MATCH_REMEDY,
    RELOAD_REMEDY,
    require_bounded,
    require_small_tables,
)
from runners.models.products import replace_linear
from runners.models.tensors import tensor_shapes
from runners.models.tokenizer import TimedTokenizer, report_unreadable

CODE = frozenset({
    "attn_implementation", "experts_implementation", "auto_map", "trust_remote_code", "quantization_config",
    "return_dict", "output_hidden_states", "output_attentions", "name_or_path", "transformers_weights",
    "configuration_files", "attribute_map", "sub_configs", "base_model_tp_plan", "base_model_pp_plan",
})  # fmt: skip
"""Settings that choose code, kernels, files or the form of results, and do not describe the model."""


def class_of(config: Mapping[str, Any]) -> Any:
    """Return the config class of transformers for a config's `model_type`; None if the type is unknown."""
    name = config.get("model_type")
    return CONFIG_MAPPING[name] if isinstance(name, str) and name in CONFIG_MAPPING else None


def drop_code(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config's settings, also inside dicts, without settings that would run code or choose files.

    Left out are the names in `CODE`, and names that would override a method of the config's class.
    """
    config_class = class_of(config) or PreTrainedConfig
    return {
        name: drop_code(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name.lstrip("_") not in CODE and not callable(getattr(config_class, name, None))
    }


_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
# Tasks show progress of their own.
transformers_logging.disable_progress_bar()


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A transformers model in evaluation mode, and its tokenizer."""

    model: Any
    tokenizer: Any


def load(folder: Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Load the model and tokenizer of a local folder on the CPU.

    Raises:
        Problem: E0801, if transformers does not know the architecture; E0803, if a file is missing, pickled or
            unreadable, or tensors do not fit the config.
    """
    return LoadedModel(load_model(folder, dtype), load_tokenizer(folder))


def load_config(folder: Path) -> Any:
    """Load the transformers config of a model folder.

    Raises:
        Problem: E0801, if transformers does not know the architecture; E0803, if the config is missing, unreadable or
            out of bounds.
    """
    refuse(leads_out(folder))
    if not folder.is_dir():
        raise problem("E0803", "there is no model folder here", where=str(folder), help=INCOMPLETE)
    if not (folder / "config.json").is_file():
        raise problem("E0803", "the model folder has no config.json", where=str(folder), help=INCOMPLETE)
    settings = require_bounded(folder)
    if class_of(settings) is None:
        raise problem(
            "E0801",
            "the model's architecture is unknown to the installed transformers, or runs code of its own",
            where=str(folder),
            notes=[f"its `model_type` is {json.dumps(settings.get('model_type'))[:80]}"],
            help="take a model whose architecture transformers has, such as Qwen3 or Llama",
        )
    try:
        for name in ("dtype", "torch_dtype"):
            if not isinstance(getattr(torch, settings.get(name) or "float32", None), torch.dtype):
                raise ValueError(f"`{name}` is `{settings[name]}`, which is not a data type of torch")
        with tempfile.TemporaryDirectory() as folder_copy:
            (Path(folder_copy) / "config.json").write_text(json.dumps(drop_code(settings)), "utf-8")
            config = AutoConfig.from_pretrained(folder_copy, local_files_only=True, trust_remote_code=False)
    except Exception as fault:
        # transformers raises exceptions of many types for unusual values.
        reason = " ".join(str(fault).split()) or type(fault).__name__
        message = f"config.json cannot be read: {reason[:300]}"
        raise problem("E0803", message, where=str(folder), help=RELOAD_REMEDY) from fault
    return config


def load_model(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Load the model of a local folder on the CPU, in evaluation mode.

    Raises:
        Problem: E0801 or E0803, as `load`.
    """
    config = load_config(folder)
    require_fit(folder, config)
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (RuntimeError, ValueError, OSError, TypeError, KeyError) as fault:
        raise _misfit(folder, f"the tensors do not fit the config: {first_line(fault)}") from fault
    for name in sorted(report["missing_keys"]):
        raise _misfit(folder, f"the weights have no tensor `{name}`")
    replace_linear(model)
    return model.eval()


def load_outline(folder: Path) -> Any:
    """Return the model of a local folder in evaluation mode, without loading its weights.

    Returns:
        The model with float32 parameters on the meta device, and with computed buffers.

    Raises:
        Problem: E0801 or E0803, as `load`.
    """
    config = load_config(folder)
    require_fit(folder, config)
    with _weightless():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    generation = load_generation(folder)
    if generation is not None:
        model.generation_config = generation
    replace_linear(model)
    return model.eval()


def load_generation(folder: Path) -> Any:
    """Return the settings of `generation_config.json`, or None if the folder has no such file.

    Raises:
        Problem: E0803, if the file cannot be read.
    """
    if not (folder / "generation_config.json").is_file():
        return None
    try:
        generation = GenerationConfig.from_pretrained(folder, local_files_only=True)
        for name in _TOKENS:
            ids = getattr(generation, name)
            for token in ids if isinstance(ids, list) else [ids]:
                if token is not None and (type(token) is not int or abs(token) >= 1 << 31):
                    raise ValueError(f"`{name}` is {token!r:.40}, which is not a token id")
    except Exception as fault:
        message = f"generation_config.json cannot be read: {misread(fault)[:300]}"
        raise problem("E0803", message, where=str(folder), help=RELOAD_REMEDY) from fault
    return generation


def _saveable(generation: Any) -> Any:
    """Return generation settings that transformers can save.

    If the settings conflict, transformers refuses to save them, e.g. a temperature without sampling. The result then has
    only the special token ids.
    """
    try:
        generation.validate(strict=True)
    except (ValueError, TypeError):
        return GenerationConfig(**{name: getattr(generation, name) for name in _TOKENS})
    return generation


@contextmanager
def _weightless() -> Iterator[None]:
    """Create all parameters on the meta device inside a `with` block; buffers are computed as usual.

    Buffers cannot be loaded later, because no file has them.
    """
    register = nn.Module.register_parameter

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        """Register a parameter after moving it to the meta device."""
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = on_meta  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def require_fit(folder: Path, config: Any) -> None:
    """Check that stored tensors have the shapes that the config says, before memory is allocated.

    A tensor that the files lack is not reported here.

    Args:
        folder: The model folder.
        config: The transformers config of the folder.

    Raises:
        Problem: E0803, if a shape differs, the config describes no model, or its computed tables are too large.
    """
    shapes = tensor_shapes(folder)
    layers = getattr(config, "num_hidden_layers", 0)
    if not isinstance(layers, int) or layers > len(shapes):
        raise _misfit(folder, f"the config says {layers} layers, and the files have {len(shapes)} tensors")
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as fault:
        raise _misfit(folder, f"the config describes no model: {first_line(fault)}") from fault
    require_small_tables(folder, model)
    for name, tensor in model.state_dict().items():
        stored = shapes.get(name, tuple(tensor.shape))
        if stored != tuple(tensor.shape):
            size = _shape_text(tuple(tensor.shape))
            raise _misfit(folder, f"the tensor `{name}` is {_shape_text(stored)}, and the config says {size}")


def _misfit(folder: Path, message: str) -> Problem:
    """Return E0803 about a folder whose config and weights do not fit together."""
    return problem("E0803", message, where=str(folder), help=MATCH_REMEDY)


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a local folder.

    Raises:
        Problem: E0803, if the tokenizer is missing or unreadable.
    """
    refuse(leads_out(folder))
    if not (folder / "tokenizer.json").is_file():
        raise problem("E0803", "the model folder has no tokenizer.json", where=str(folder), help=INCOMPLETE)
    # Without a config argument, transformers would read config.json with all of its settings.
    config = load_config(folder) if (folder / "config.json").is_file() else None
    with report_unreadable(folder):
        tokenizer = AutoTokenizer.from_pretrained(
            folder, config=config, local_files_only=True, trust_remote_code=False
        )
        templates = tokenizer.chat_template
        for text in templates.values() if isinstance(templates, dict) else [templates]:
            if not isinstance(text, str | None):
                raise TypeError(f"`chat_template` is {text!r:.40}, which is not a text")
        tokenizer._tokenizer = TimedTokenizer(of_whole_texts(tokenizer._tokenizer), folder)
    return tokenizer


def save(model: Any, tokenizer: Any, folder: Path, state: Mapping[str, torch.Tensor] | None = None) -> None:
    """Write a model folder that transformers 5 loads; an older folder of this name is replaced.

    The files are written to a temporary folder, which is renamed when it is complete.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        folder: The folder to write.
        state: Full tensors by name to save instead of the model's own tensors.

    Raises:
        Problem: E0811, if the folder cannot be written.
        OSError: The disk is full.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new_folder = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            if model.can_generate():
                model.generation_config = _saveable(model.generation_config)
            model.save_pretrained(new_folder, safe_serialization=True, state_dict=state)
            tokenizer.save_pretrained(new_folder)
            os.chmod(new_folder, 0o755)
            if folder.exists():
                old_folder = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
                os.rename(folder, old_folder / folder.name)
                os.rename(new_folder, folder)
                shutil.rmtree(old_folder)
            else:
                os.rename(new_folder, folder)
        finally:
            shutil.rmtree(new_folder, ignore_errors=True)
    except (OSError, SafetensorError) as fault:
        if is_full(fault, folder.parent):
            raise
        message = f"the model cannot be saved: {getattr(fault, 'strerror', None) or fault}"
        remedy = "choose a folder that you may write to"
        raise problem("E0811", message, where=str(folder), help=remedy) from fault


def _shape_text(size: tuple[Any, ...]) -> str:
    """Return a shape as in `2×3`."""
    return "×".join(map(str, size))


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
    """Return a new fp32 model in evaluation mode, with random weights.

    Equal arguments give equal weights. The state of torch's random generator does not change.

    Args:
        vocab: The number of tokens in the vocabulary.
        seed: The seed of the weights.
        eos: The token id of the end of text.
        pad: The token id of padding.
        family: `qwen3` or `llama`.
        layers: The number of decoder layers.
        hidden: The width of the residual stream.
        heads: The number of query heads.
        kv_heads: The number of key-value heads.
        head_dim: The width of a head.
        intermediate: The width of the MLP.
        context: The longest sequence (prompt, response and forced answer) in tokens.
        tied: Whether the output matrix is the embedding matrix.
        rope_theta: The base of rotary positions.
        norm_eps: The epsilon of RMS norms.
        init_std: The standard deviation of the initial matrices.
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
