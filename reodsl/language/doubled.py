"""A name that is given twice to the finding of it: where it stands again, where it stood first, what to do."""

from __future__ import annotations

from reodsl.diagnostics.model import Diagnostic, Label, Span, error


def doubled(name: str, again: Span, first: Span | None, help: str) -> Diagnostic:
    """E0208 at the second of two places; `first` is None where it is not known."""
    others = [Label(first, "first here")] if first is not None else []
    return error("E0208", f"`{name}` is there twice", again, "again here", others=others, help=help)
