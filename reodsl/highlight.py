"""Colour specs in documents: a lexer for Pygments, which MkDocs, Sphinx, notebooks and `pygmentize` read."""

from __future__ import annotations

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from reodsl.syntax.grammar import words

_WORDS = "|".join(words())
# A word that is not one of the language's.
_NAME = rf"(?!(?:{_WORDS})\b)[A-Za-z_]\w*\b"
_NUMBER = r"\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?:[KMG]\b|%)?"


class ReoLexer(RegexLexer):  # type: ignore[misc]
    """Colours of a spec, from the text alone; a character outside the language is an Error."""

    name = "reodsl"
    aliases = ["reo", "reodsl"]
    filenames = ["*.reo"]
    url = "https://arxiv.org/abs/2506.07104"
    tokens = {
        "root": [
            (r"\s+", Whitespace),
            (r"#.*", Comment.Single),
            (r'"""(?s:.*?)(?:"""|\Z)', String),
            (r'"(?:\\.|[^"\\\n])*"?', String),
            (r"(from)(\s+)([\w.]+)(?=\s)", bygroups(Keyword, Whitespace, Name.Namespace)),
            (rf"(param|let)([ \t]+)({_NAME})", bygroups(Keyword, Whitespace, Name)),
            (
                rf"(:)(\s*)(\[?)({_NAME})(?=\]?\s*=)",
                bygroups(Punctuation, Whitespace, Punctuation, Keyword.Type),
            ),
            (rf"({_NUMBER})([ \t]+)({_NAME})", bygroups(Number, Whitespace, Keyword.Type)),
            (_NUMBER, Number),
            # The word of a kind and a name; then a name before its value or block, and a value that a block changes.
            (rf"({_NAME})([ \t]+)({_NAME})", bygroups(Keyword, Whitespace, Name.Class)),
            (rf"(=)([ \t]*)({_NAME})(?=\s*\{{)", bygroups(Operator, Whitespace, Name)),
            (rf"{_NAME}(?=\s*(?:\+?=(?!=)|\{{))", Name.Attribute),
            (rf"{_NAME}(?=\()", Name.Function),
            (rf"{_NAME}(?=\s*:)", Name.Variable),
            (rf"(?:{_WORDS})\b", Keyword),
            (_NAME, Name),
            (r"\.\.|[=!<>+]=|[-+*/^=<>]", Operator),
            (r"[{}()\[\],;:.]", Punctuation),
        ]
    }
