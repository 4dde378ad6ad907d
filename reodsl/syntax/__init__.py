"""Text to syntax tree and back: reading, parsing with recovery, and the canonical layout."""

from reodsl.syntax import tree
from reodsl.syntax.format import FormatResult, format_module, format_source
from reodsl.syntax.parser import ExpressionResult, ParseResult, parse, parse_expression
from reodsl.syntax.source import Source, read_source, source_from_bytes

__all__ = [
    "ExpressionResult",
    "FormatResult",
    "ParseResult",
    "Source",
    "format_module",
    "format_source",
    "parse",
    "parse_expression",
    "read_source",
    "source_from_bytes",
    "tree",
]
