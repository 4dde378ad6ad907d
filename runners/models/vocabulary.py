"""Compare the tokens of two models by what their numbers mean."""

from __future__ import annotations

from pathlib import Path

from reodsl.diagnostics import Diagnostic, Problem, error
from reodsl.store.files import LARGEST_RECORD, read_object


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
