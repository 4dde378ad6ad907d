"""Errors as values: what went wrong, where, with which values, and what to write instead."""

from reodsl.diagnostics.model import (
    Diagnostic,
    Label,
    Problem,
    Severity,
    Span,
    error,
    first_line,
    fold,
    group,
    in_percent,
    join_words,
    listed,
    misread,
    note,
    plural,
    problem,
    refuse,
    warning,
)

__all__ = [
    "Diagnostic", "Label", "Problem", "Severity", "Span", "error", "first_line", "fold", "group",
    "in_percent", "join_words", "listed", "misread", "note", "plural", "problem", "refuse", "warning",
]  # fmt: skip
