"""Bounds on a checkpoint's config, checked before it is built.

transformers makes lists and tables as long as a config says, in whatever part of it: these bounds are far above every model
that trains, and far below what fills a machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reodsl.diagnostics import misread, problem
from reodsl.store.external import LARGEST_CONFIG
from reodsl.store.files import read_plain
from runners.models.names import AGAIN

if TYPE_CHECKING:
    from torch import nn

MOST_LAYERS = 1000
MOST_LABELS = 1000
LARGEST_SIZE = 1 << 24
"""The largest size, such as a width or a vocabulary; positions and bases of rotary embeddings may be larger."""
LARGEST_NUMBER = 1 << 63
"""The largest whole number anywhere in a config; torch holds none past it."""
MOST_TABLES = 1 << 30
"""Bytes of the tables that a model computes and no file holds, such as those of its positions."""
DEEPEST = 8
MOST_VALUES = 20_000
_LAYERS = re.compile(r"(^|_)(n_)?(layers?|blocks?|depths?)($|_)|hidden_layers")
_LABELS = re.compile(r"(^|_)labels?$")
_UNBOUNDED = re.compile(r"position|length|theta|base|context|window|seed|token_id|factor|scale|n_ctx")


def require_bounded(folder: Path) -> dict[str, Any]:
    """Return the settings in a folder's `config.json`, which are within the bounds. Raises E0805, E0817, E0818."""
    place = folder / "config.json"
    try:
        config = json.loads(read_plain(place, LARGEST_CONFIG).decode("utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it is not JSON object")
    except (OSError, ValueError, RecursionError) as fault:
        why = fault.strerror if isinstance(fault, OSError) and fault.strerror else misread(fault)
        raise problem("E0805", f"config.json cannot be read: {why}", where=str(folder), help=AGAIN) from fault
    quantized = config.get("quantization_config")
    if quantized is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else None
        raise problem(
            "E0818",
            f"the weights are quantized ({method or 'quantization_config'!s:.40}), and whole ones are trained",
            where=str(place),
            help="take the model's bfloat16 weights, or dequantize it (`model.dequantize()`) and save it again",
        )
    for count, (name, value, depth) in enumerate(_settings(config, (), 1)):
        beyond = _beyond(name, value, depth, count)
        if beyond is not None:
            shown = ".".join(name)
            raise problem(
                "E0817",
                f"config.json is out of bounds: `{shown[:80]}` {beyond}",
                where=str(place),
                help="take the config.json that the model was published with; no model that trains has such a one",
            )
    return config


def require_small_tables(folder: Path, outline: nn.Module) -> None:
    """Refuse a model whose tables would fill a machine, before they are computed: E0817. `outline` is on the meta device."""
    size = sum(each.numel() * each.element_size() for each in outline.buffers())
    if size > MOST_TABLES:
        raise problem(
            "E0817",
            f"config.json is out of bounds: it makes tables of {size / 2**30:,.3g} GiB",
            where=str(folder / "config.json"),
            notes=[f"no file holds them, they are computed; at most {MOST_TABLES >> 30} GiB of them are"],
            help="take the config.json that the model was published with; above all, look at its number of positions",
        )


def _settings(config: Any, name: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Any, int]]:
    """Yield every value in a config with its name and depth."""
    items = (
        config.items()
        if isinstance(config, dict)
        else ((str(index), item) for index, item in enumerate(config))
    )
    for key, value in items:
        yield (*name, key), value, depth
        if isinstance(value, (dict, list)) and depth <= DEEPEST:
            yield from _settings(value, (*name, key), depth + 1)


def _beyond(name: tuple[str, ...], value: Any, depth: int, count: int) -> str | None:
    """Return why a setting is out of bounds; None where it is not."""
    last = next((part for part in reversed(name) if not part.isdigit()), "")
    if depth > DEEPEST:
        return f"stands more than {DEEPEST} deep"
    if count >= MOST_VALUES:
        return f"is one of more than {MOST_VALUES:,} values"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    shown = f"{value:.6g}" if abs(value) < LARGEST_NUMBER else f"a number of {len(str(value)):,} digits"
    if isinstance(value, int) and abs(value) >= LARGEST_NUMBER:
        return f"is {shown}, and numbers are less than 2**63"
    if _LAYERS.search(last) and not 0 <= value <= MOST_LAYERS and isinstance(value, int):
        return f"is {shown}, and at most {MOST_LAYERS:,} layers are built"
    if _LABELS.search(last) and not 0 <= value <= MOST_LABELS:
        return f"is {shown}, and at most {MOST_LABELS:,} labels are read"
    if isinstance(value, int) and not _UNBOUNDED.search(last) and abs(value) > LARGEST_SIZE:
        return f"is {shown}, and sizes are at most {LARGEST_SIZE:,}"
    return None
