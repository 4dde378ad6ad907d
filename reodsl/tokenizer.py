"""Open a tokenizer for counts and prompts: it returns all tokens of a text, without truncation or padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def open_tokenizer(path: Path) -> Any:
    """Return the tokenizer in a `tokenizer.json`, without the truncation and padding that the file may set."""
    # Most commands need no tokenizer, so the optional package is imported here.
    from tokenizers import Tokenizer

    return of_whole_texts(Tokenizer.from_file(str(path)))


def of_whole_texts(tokenizer: Any) -> Any:
    """Turn a tokenizer's truncation and padding off, and return the tokenizer."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
