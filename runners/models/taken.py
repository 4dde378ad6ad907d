"""Take of a checkpoint's config the settings that its architecture has, and none that chooses code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, AutoConfig

SHARED = frozenset({
    "model_type", "architectures", "dtype", "torch_dtype", "transformers_version", "is_causal", "tie_word_embeddings",
    "tokenizer_class", "model_name", "vocab_size", "bos_token_id", "eos_token_id", "pad_token_id",
    "num_labels", "id2label", "label2id", "initializer_range", "init_std",
    "rope_scaling", "rope_theta", "rope_parameters", "partial_rotary_factor", "head_dim",
    "max_position_embeddings", "original_max_position_embeddings",
    "layer_types", "sliding_window", "attention_chunk_size", "num_kv_shared_layers",
})  # fmt: skip
"""Settings that transformers itself reads, whatever the architecture."""
CODE = frozenset({
    "attn_implementation", "experts_implementation", "auto_map", "trust_remote_code", "quantization_config",
    "return_dict", "output_hidden_states", "output_attentions", "name_or_path",
})  # fmt: skip
"""Settings that choose code, kernels or what a call returns, and say nothing of the model."""
LAYERS = "per_layer_config"
"""Settings of single layers, by layer."""
_READ = re.compile(r"""(?:config|self)\.([A-Za-z]\w*)|["']([A-Za-z]\w*)["']""")
"""A setting in the code of an architecture: `config.NAME`, or `"NAME"` where it is asked for by name."""
_OLDER = re.compile(r"""kwargs\.(?:pop|get)\(\s*["'](\w+)["']""")
"""An older name of a setting, from which a class of configs makes another."""


def class_of(config: Mapping[str, Any]) -> Any:
    """Return the class of a config by its `model_type`; None if transformers has none."""
    name = config.get("model_type")
    return CONFIG_MAPPING[name] if isinstance(name, str) and name in CONFIG_MAPPING else None


def select_settings(config: Mapping[str, Any], kind: Any = None) -> dict[str, Any]:
    """Return the settings that the architecture's own code in transformers has a name for, also of the configs inside it.

    Everything else would become an attribute of the config, and could take the place of a method. An architecture that
    transformers does not know has no setting but its name.
    """
    kind = kind or class_of(config)
    names = SHARED | (_find_names(kind) if kind is not None else frozenset())
    return {name: _select_inside(kind, name, value) for name, value in config.items() if name in names}


def chooses_code(config: Mapping[str, Any]) -> bool:
    """Return whether any of a config's settings, or of those of the configs inside it, is one of `CODE`."""
    return any(
        name.lstrip("_") in CODE or (isinstance(value, dict) and chooses_code(value))
        for name, value in config.items()
    )


def _select_inside(kind: Any, name: str, value: Any) -> Any:
    """Return a setting's value, itself reduced to known settings if it is a config or has settings of single layers."""
    if not isinstance(value, dict):
        return value
    if name == LAYERS:
        return {
            layer: select_settings(each, kind) if isinstance(each, dict) else each
            for layer, each in value.items()
        }
    inner = getattr(kind, "sub_configs", {}).get(name)
    if inner is None:
        return value
    return select_settings(value, class_of(value) if inner is AutoConfig else inner)


@cache
def _find_names(kind: Any) -> frozenset[str]:
    """Return the settings that a class of configs declares and that its architecture's code reads, without `CODE`."""
    declared = {each.name for each in fields(kind)} | set(kind.attribute_map)
    code = "".join(file.read_text("utf-8") for file in Path(inspect.getfile(kind)).parent.glob("[cm]o*.py"))
    read = {name for names in _READ.findall(code) for name in names if name and _is_free(kind, name)}
    return frozenset(declared | read | set(_OLDER.findall(code))) - CODE


def _is_free(kind: Any, name: str) -> bool:
    """Return whether a config may be given the attribute: it takes the place of nothing, or is there to be set."""
    has = getattr(kind, name, None)
    return has is None or (isinstance(has, property) and has.fset is not None)
