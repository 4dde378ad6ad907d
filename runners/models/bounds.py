"""Faults of model folders that are found without building the model: missing files, other tokens, extreme settings.

transformers builds lists and tables as long as a config says. The bounds on settings are far above the sizes of real
models, and far below sizes that would fill a machine's memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reodsl.diagnostics import Diagnostic, error, misread, problem, refuse
from reodsl.ir.model import Architecture
from reodsl.store.external import LARGEST_CONFIG
from reodsl.store.files import LARGEST_RECORD, read_object, read_plain

INCOMPLETE = "a model folder holds config.json, model.safetensors, tokenizer.json and tokenizer_config.json"
MADE = {"smollm2-135m-instruct": "run `make smollm2` in the checkout of reodsl, which writes this folder"}
"""Names of model folders that the user has to make, and the advice that says how."""
RELOAD_REMEDY = "copy or download it again, or write it with `save_pretrained`"
MATCH_REMEDY = "take config.json and the weights from the same model, and copy all files"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
UNREAD = "that is never read, because unpickling runs code"
CONVERT = "convert them where you trust them: `model.save_pretrained(FOLDER, safe_serialization=True)`"
ADAPTER = "adapter_model.safetensors"
_SAVE = "and save it again with `save_pretrained`"
OTHER_FORMATS = {
    "adapter_config.json": ("an adapter to other weights", f"merge it (`model.merge_and_unload()`), {_SAVE}"),
    "*.gguf": ("a GGUF file", "take the same model as safetensors"),
    "*.h5": (
        "TensorFlow's format",
        f"load it with a transformers that still reads it (`from_tf=True`), {_SAVE}",
    ),
    "*.msgpack": (
        "Flax's format",
        f"load it with a transformers that still reads it (`from_flax=True`), {_SAVE}",
    ),
}
"""Other formats of weights, by a pattern of file names: (the format in words, how to convert it to safetensors)."""


def explain_unread(folder: Path) -> Diagnostic | None:
    """Return E0803 if a folder has weights as pickles or in another known format that is not read; else None."""
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        message = f"the weights are a pickle, `{pickles[0]}`: {UNREAD}"
        return error("E0803", message, where=str(folder), help=CONVERT)
    for pattern, (kind, remedy) in OTHER_FORMATS.items():
        names = sorted(path.name for path in folder.glob(pattern))
        if names:
            message = f"the folder holds {kind}, `{names[0]}`, and only safetensors are read"
            return error("E0803", message, where=str(folder), help=remedy)
    return None


def check_architecture(source: Architecture, where: str) -> Diagnostic | None:
    """Return E0808 if the sizes of an architecture do not fit together; else None.

    `heads` must be a multiple of `kv_heads`, and `head_dim` must be even.

    Args:
        source: The architecture, whose sizes are at least 1.
        where: The place to name in the message.
    """
    if source.heads % source.kv_heads:
        return error(
            "E0808",
            f"{source.heads} heads cannot share {source.kv_heads} key-value heads evenly",
            where=where,
            help="make `heads` a multiple of `kv_heads`",
        )
    if source.head_dim % 2:
        return error(
            "E0808",
            f"`head_dim` is {source.head_dim}, and rotary positions need it to be even",
            where=where,
            help="write an even number",
        )
    return None


def require_same_tokens(student_folder: Path, teacher_folder: Path) -> None:
    """Check that a teacher's tokenizer has the same tokens as the student's.

    Args:
        student_folder: The model folder of the student.
        teacher_folder: The model folder of the teacher.

    Raises:
        Problem: E0514, if a token id means different tokens.
    """
    refuse(compare_tokens(student_folder, teacher_folder))


def compare_tokens(student_folder: Path, teacher_folder: Path, where: str | None = None) -> Diagnostic | None:
    """Return E0514 if the token ids of a teacher and a student mean different tokens; else None.

    Args:
        student_folder: The model folder of the student.
        teacher_folder: The model folder of the teacher.
        where: The place to name in the message.

    Returns:
        The diagnostic; None if the tokens are equal, or if a folder has no readable tokenizer.
    """
    student, teacher = _tokens(student_folder), _tokens(teacher_folder)
    if student is None or teacher is None or student == teacher:
        return None
    token_id = min(i for i in student.keys() | teacher.keys() if student.get(i) != teacher.get(i))
    texts = [f"{tokens[token_id]!r}" if token_id in tokens else "none" for tokens in (student, teacher)]
    return error(
        "E0514",
        f"the teacher has other tokens than the model: token id {token_id} is {texts[1]}, and the model's is {texts[0]}",
        where=where,
        notes=[f"the teacher has {len(teacher)} tokens, the model {len(student)}"],
        help="name a teacher with the same tokenizer",
    )


def _tokens(folder: Path) -> dict[int, str] | None:
    """Return the tokens of a folder's tokenizer by their ids; None if the folder has no readable tokenizer."""
    settings = read_object(folder / "tokenizer.json", LARGEST_RECORD)
    if settings is None:
        return None
    try:
        vocab = settings["model"]["vocab"]
        pairs = vocab.items() if isinstance(vocab, dict) else ((row[0], i) for i, row in enumerate(vocab))
        tokens = {int(token_id): str(token) for token, token_id in pairs}
        return tokens | {
            int(token["id"]): str(token["content"]) for token in settings.get("added_tokens") or ()
        }
    except (KeyError, IndexError, TypeError, ValueError):
        return None


if TYPE_CHECKING:
    from torch import nn

MAX_LAYERS = 1000
MAX_LABELS = 1000
MAX_SIZE = 1 << 24
"""The largest size, such as a width or a vocabulary. The settings of `_UNBOUNDED` may be larger."""
MAX_NUMBER = 1 << 63
"""The bound of all whole numbers in a config: torch's integers are smaller."""
MAX_TABLE_BYTES = 1 << 30
"""The largest size in bytes of a model's computed tables, such as tables of positions."""
MAX_DEPTH = 8
MAX_VALUES = 20_000
_LAYERS = re.compile(r"(^|_)(n_)?(layers?|blocks?|depths?)($|_)|hidden_layers")
_LABELS = re.compile(r"(^|_)labels?$")
_UNBOUNDED = re.compile(r"position|length|theta|base|context|window|seed|token_id|factor|scale|n_ctx")


def require_bounded(folder: Path) -> dict[str, Any]:
    """Read the settings in a folder's `config.json`, and check that they are within the bounds.

    Returns:
        The settings by name.

    Raises:
        Problem: E0803, if the file cannot be read, a setting is out of bounds, or the weights are quantized.
    """
    path = folder / "config.json"
    try:
        config = json.loads(read_plain(path, LARGEST_CONFIG).decode("utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError, RecursionError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) and fault.strerror else misread(fault)
        raise problem(
            "E0803", f"config.json cannot be read: {reason}", where=str(folder), help=RELOAD_REMEDY
        ) from fault
    quantized = config.get("quantization_config")
    if quantized is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else None
        raise problem(
            "E0803",
            f"the weights are quantized ({method or 'quantization_config'!s:.40}), and only full weights can be trained",
            where=str(path),
            help="take the model's bfloat16 weights, or dequantize it (`model.dequantize()`) and save it again",
        )
    for index, (name, value, depth) in enumerate(_settings(config, (), 1)):
        violation = _violation(name, value, depth, index)
        if violation is not None:
            dotted = ".".join(name)
            raise problem(
                "E0803",
                f"config.json is out of bounds: `{dotted[:80]}` {violation}",
                where=str(path),
                help="take the config.json that the model was published with; no trainable model has this value",
            )
    return config


def require_small_tables(folder: Path, outline: nn.Module) -> None:
    """Check that a model's computed tables (its buffers) are not too large, before they are computed.

    Args:
        folder: The model folder, for the message.
        outline: The model on torch's meta device, which stores no values.

    Raises:
        Problem: E0803, if the tables are larger than `MAX_TABLE_BYTES`.
    """
    size = sum(buffer.numel() * buffer.element_size() for buffer in outline.buffers())
    if size > MAX_TABLE_BYTES:
        raise problem(
            "E0803",
            f"config.json is out of bounds: it makes tables of {size / 2**30:,.3g} GiB",
            where=str(folder / "config.json"),
            notes=[f"these tables are computed, not loaded; at most {MAX_TABLE_BYTES >> 30} GiB are allowed"],
            help="take the config.json that the model was published with; check the number of positions first",
        )


def _settings(config: Any, name: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Any, int]]:
    """Yield every value in a config, also inside dicts and lists, down to one level below `MAX_DEPTH`.

    Args:
        config: The config, or a dict or list inside it.
        name: The keys that lead to `config`.
        depth: The depth of the values in `config`, 1 at the top.

    Yields:
        The keys that lead to a value, the value, and its depth.
    """
    items = (
        config.items()
        if isinstance(config, dict)
        else ((str(index), item) for index, item in enumerate(config))
    )
    for key, value in items:
        yield (*name, key), value, depth
        if isinstance(value, (dict, list)) and depth <= MAX_DEPTH:
            yield from _settings(value, (*name, key), depth + 1)


def _violation(name: tuple[str, ...], value: Any, depth: int, index: int) -> str | None:
    """Return why a setting is out of bounds, as the rest of a sentence after its name; None if it is within bounds.

    The bound depends on the setting's name: layers, labels, settings that may be large such as positions, and others.

    Args:
        name: The keys that lead to the setting.
        value: The setting.
        depth: The depth of the setting in the config, 1 at the top.
        index: The number of settings before it in the config.
    """
    key = next((key for key in reversed(name) if not key.isdigit()), "")
    if depth > MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} levels deep"
    if index >= MAX_VALUES:
        return f"is one of more than {MAX_VALUES:,} values"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    text = f"{value:.6g}" if abs(value) < MAX_NUMBER else f"a number of {len(str(value)):,} digits"
    if isinstance(value, int) and abs(value) >= MAX_NUMBER:
        return f"is {text}, and numbers are less than 2**63"
    if _LAYERS.search(key) and not 0 <= value <= MAX_LAYERS and isinstance(value, int):
        return f"is {text}, and at most {MAX_LAYERS:,} layers are built"
    if _LABELS.search(key) and not 0 <= value <= MAX_LABELS:
        return f"is {text}, and at most {MAX_LABELS:,} labels are read"
    if isinstance(value, int) and not _UNBOUNDED.search(key) and abs(value) > MAX_SIZE:
        return f"is {text}, and sizes are at most {MAX_SIZE:,}"
    return None
