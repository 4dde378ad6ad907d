"""Faults of models that are seen without building one: missing files, sizes, other tokens."""

from __future__ import annotations

from pathlib import Path

from reodsl.diagnostics import Diagnostic, Problem, error
from reodsl.ir.model import Architecture
from reodsl.store.files import LARGEST_RECORD, read_object

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


def check_architecture(source: Architecture, where: str) -> Diagnostic | None:
    """Return why no model has these sizes (E0808), whole numbers of at least 1; None if there is one."""
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


def require_same_tokens(mine: Path, theirs: Path) -> None:
    """Check that two folders' tokenizers give each number the same meaning. Raises E0514."""
    fault = compare_tokens(mine, theirs)
    if fault is not None:
        raise Problem(fault)


def compare_tokens(mine: Path, theirs: Path, where: str | None = None) -> Diagnostic | None:
    """Return what is wrong (E0514) if a teacher's folder has other tokens than the student's; None where one has no file."""
    own, others = _tokens(mine), _tokens(theirs)
    if own is None or others is None or own == others:
        return None
    number = min(each for each in own.keys() | others.keys() if own.get(each) != others.get(each))
    says = [f"{tokens[number]!r}" if number in tokens else "none" for tokens in (own, others)]
    return error(
        "E0514",
        f"the teacher has other tokens than the model: its number {number} is {says[1]}, and the model's is {says[0]}",
        where=where,
        notes=[f"the teacher has {len(others)} tokens, the model {len(own)}"],
        help="name a teacher with the same tokenizer",
    )


def _tokens(folder: Path) -> dict[int, str] | None:
    """Return the tokens of a folder's tokenizer by their numbers; None where it has none that can be read."""
    stored = read_object(folder / "tokenizer.json", LARGEST_RECORD)
    if stored is None:
        return None
    try:
        words = stored["model"]["vocab"]
        pairs = words.items() if isinstance(words, dict) else ((row[0], at) for at, row in enumerate(words))
        tokens = {int(number): str(token) for token, number in pairs}
        return tokens | {int(each["id"]): str(each["content"]) for each in stored.get("added_tokens") or ()}
    except (KeyError, IndexError, TypeError, ValueError):
        return None
