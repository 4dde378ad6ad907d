"""Open a tokenizer that gives the tokens of whole texts, which is what counts and prompts need."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def open_tokenizer(path: Path) -> Any:
    """Return the tokenizer in a file, without the truncation and padding that a fine-tuned model's may have saved."""
    # An extra package, which most commands do without.
    from tokenizers import Tokenizer

    return of_whole_texts(Tokenizer.from_file(str(path)))


def of_whole_texts(tokenizer: Any) -> Any:
    """Return a tokenizer after its truncation and padding are turned off."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
