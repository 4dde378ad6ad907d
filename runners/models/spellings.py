"""Spell the settings of a model and its tokenizer for transformers 4 and 5 alike.

A reader takes a setting whose name it does not know for unset, and without a word puts its own default there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

_FROM_FILE = "PreTrainedTokenizerFast"
"""The class that both versions know (5 as another name of its own) and that is what `tokenizer.json` says."""

_BY_CLASS = ("model_input_names", "padding_side", "truncation_side")
"""Settings of a tokenizer that are the class's own where none are written."""

_APART = ("rope_theta", "partial_rotary_factor")
"""Settings of rotary positions that 4 has beside their scaling, and 5 inside."""


def for_both(config: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """A config's settings with the names of transformers 4 beside those of 5, which stay.

    `aliases` are other names of settings, `{another: written}`. Where kinds of layers have positions of their own,
    4 has a name for each family, and none is added.
    """
    both = dict(config)
    rope = config.get("rope_parameters") or {}
    if not any(isinstance(value, Mapping) for value in rope.values()):
        both |= {name: rope[name] for name in _APART if name in rope}
        if rope.get("rope_type", "default") != "default":
            both["rope_scaling"] = {name: value for name, value in rope.items() if name not in _APART}
    for another, written in {**aliases, "torch_dtype": "dtype"}.items():
        if written in config:
            both.setdefault(another, config[written])
    return both


def tokenizer_for_both(config: Mapping[str, Any], by_class: Mapping[str, Any]) -> dict[str, Any]:
    """A tokenizer's settings such that both versions take all that it does from `tokenizer.json`.

    Classes of 4 that are made for one family add tokens of their own accord, the first one of a text above all.
    `by_class` are settings that a class has where none are written.
    """
    both = {**config, **by_class, "tokenizer_class": _FROM_FILE}
    # Under the name that 5 writes, 4 fails at anything but a mapping; 5 reads a list under that of 4.
    if isinstance(both.get("extra_special_tokens"), list):
        both["additional_special_tokens"] = both.pop("extra_special_tokens")
    return both


def spell_for_both(folder: Path, model: Any, tokenizer: Any) -> None:
    """Rewrites what `save_pretrained` of this model and tokenizer has written to a folder."""
    config = folder / "config.json"
    _write(config, for_both(json.loads(config.read_text("utf-8")), model.config.attribute_map))
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        settings = folder / "tokenizer_config.json"
        by_class = {name: getattr(tokenizer, name) for name in _BY_CLASS}
        _write(settings, tokenizer_for_both(json.loads(settings.read_text("utf-8")), by_class))


def _write(path: Path, settings: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
