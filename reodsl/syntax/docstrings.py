"""Docstrings: from a triple-quoted text, or a statement that may be one, to the text without its indentation."""

from __future__ import annotations

from reodsl.syntax import tree


def clean_doc(text: str) -> str:
    """A documentation text without the indentation and the empty lines around it."""
    lines = [line.rstrip() for line in text.expandtabs().split("\n")]
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line), default=0)
    return "\n".join([lines[0].lstrip(), *(line[margin:] for line in lines[1:])]).strip("\n")


def bare_doc(item: object) -> str | None:
    """The text of a triple-quoted statement without brackets around it."""
    if isinstance(item, tree.ExprStatement) and isinstance(item.expr, tree.String) and item.expr.long:
        value, span = item.expr.value, item.span
        last = value.rpartition("\n")[2]
        start = span.column + 3 if "\n" not in value else 1
        if span.end_column == start + len(last) + 3:
            return clean_doc(value)
    return None
