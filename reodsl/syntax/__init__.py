"""Parse a spec into its syntax tree, past every error; `formatter` writes the tree as text again."""

from reodsl.syntax import tree
from reodsl.syntax.parser import ExpressionResult, ParseResult, parse, parse_expression
from reodsl.syntax.source import Source, read_source, source_from_bytes

__all__ = [
    "ExpressionResult", "ParseResult", "Source", "parse", "parse_expression", "read_source",
    "source_from_bytes", "tree",
]  # fmt: skip
