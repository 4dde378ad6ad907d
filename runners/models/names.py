"""File names in a model folder, and the errors of a folder that lacks them."""

from __future__ import annotations

from pathlib import Path

from reodsl.diagnostics import Diagnostic, error

INCOMPLETE = "a model folder holds config.json, model.safetensors, tokenizer.json and tokenizer_config.json"
AGAIN = "copy or download it again, or write it with `save_pretrained`"
TOGETHER = "take config.json and the weights from one and the same model, whole"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
UNREAD = "that is never read, because unpickling runs code"
CONVERT = "convert them where you trust them: `model.save_pretrained(FOLDER, safe_serialization=True)`"
ADAPTER = "adapter_model.safetensors"
_SAVE = "and save it again with `save_pretrained`"
OTHERS = {
    "adapter_config.json": ("an adapter to other weights", f"merge it (`model.merge_and_unload()`), {_SAVE}"),
    "*.gguf": (
        "a GGUF file",
        "take the model's safetensors; of GGUF only a package's is read, by `package(…)`",
    ),
    "*.h5": (
        "TensorFlow's format",
        f"load it with a transformers that still reads it (`from_tf=True`), {_SAVE}",
    ),
    "*.msgpack": (
        "Flax's format",
        f"load it with a transformers that still reads it (`from_flax=True`), {_SAVE}",
    ),
}
"""Older and other formats by a file that gives them away: what they are, and how to get safetensors from them."""


def explain_unread(folder: Path) -> Diagnostic | None:
    """Return why a folder without safetensors is not read: it has a pickle (E0804) or another format (E0814)."""
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        message = f"the weights are a pickle, `{pickles[0]}`: {UNREAD}"
        return error("E0804", message, where=str(folder), help=CONVERT)
    for pattern, (what, remedy) in OTHERS.items():
        names = sorted(path.name for path in folder.glob(pattern))
        if names:
            message = f"the folder holds {what}, `{names[0]}`, and safetensors are read"
            return error("E0814", message, where=str(folder), help=remedy)
    return None
