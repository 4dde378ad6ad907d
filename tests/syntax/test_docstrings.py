"""Docstrings: their text, without its indentation."""

from __future__ import annotations

import pytest

from reodsl.syntax.literals import clean_doc


@pytest.mark.parametrize(
    ("text", "doc"),
    [
        (" one line. ", "one line."),
        ("One.\n\n  Two\n    deeper\n  ", "One.\n\nTwo\n  deeper"),
        ("\n  One\n\tTwo\n", "One\n      Two"),
        ("", ""),
        ("a\n    b", "a\nb"),
    ],
)
def test_documentation_without_indentation(text: str, doc: str) -> None:
    assert clean_doc(text) == doc
