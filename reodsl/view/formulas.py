"""Convert the formulas of a text to MathML as plain data: browsers draw it, so that no script of others is needed."""

from __future__ import annotations

import html
import re
import time
from typing import Any
from xml.etree.ElementTree import Element

MOST = 400
"""Formulas of a text that are converted."""
LONGEST = 1_000
"""Characters of a formula."""
SECONDS = 0.5
"""The time for the formulas of a text; those after it stay as they are written."""
_DEEPEST = 60
_OPENS = re.compile(r"\$\$?|\\[\[(]")
_CLOSES = {"$$": "$$", "$": "$", r"\[": r"\]", r"\(": r"\)"}
_TAG = re.compile(
    "math|mrow|m[inos]|mtext|mspace|msu[bp]|msubsup|mfrac|msqrt|mroot|mover|munder|munderover|mtable|mt[rd]|mstyle|mpadded|"
    "mphantom|menclose|mmultiscripts|mprescripts|none|merror"
)
_ATTRIBUTE = re.compile(
    "display|displaystyle|scriptlevel|stretchy|fence|form|separator|accent|accentunder|movablelimits|[lr]space|(?:min|max)size|"
    "linethickness|mathvariant|width|height|depth|notation|columnalign|(?:column|row)spacing|linebreak"
)
Tree = list[Any]
"""An element: its name, its attributes, and its children, each a text or a tree."""


def find_formulas(text: str) -> list[tuple[int, int, Tree]]:
    """Return each formula of a text that can be drawn: where it begins and ends, in characters, and its tree."""
    found: list[tuple[int, int, Tree]] = []
    end, until = 0, time.monotonic() + SECONDS
    while len(found) < MOST and time.monotonic() < until and (begin := _OPENS.search(text, end)):
        close = _CLOSES[begin[0]]
        at = text.find(close, begin.end(), begin.end() + LONGEST)
        end = begin.end()
        inside, after = text[end : max(at, end)], at + len(close)
        if at > 0 and _is_formula(inside, begin[0], text[after : after + 1]):
            tree = _convert(inside, begin[0])
            if tree is not None:
                end = after
                found.append((begin.start(), end, tree))
    return found


def _is_formula(inside: str, opened: str, after: str) -> bool:
    """Return whether a text between two marks is a formula: between single dollars it may be two prices."""
    if opened != "$":
        return bool(inside.strip())
    tight = bool(inside) and not inside[0].isspace() and not inside[-1].isspace()
    return tight and "\n" not in inside and inside[-1] != "\\" and not after.isdigit()


def _convert(formula: str, opened: str) -> Tree | None:
    """Return a formula's tree; None where it cannot be read or drawn."""
    try:
        from latex2mathml.converter import convert_to_element

        # It does not know `aligned`, which is `split` with a place of its own.
        known = re.sub(r"(\\(?:begin|end)\{)(?:aligned|gathered)\}", r"\1split}", formula)
        return _tree(convert_to_element(known, display="block" if opened in ("$$", r"\[") else "inline"))
    except Exception:
        # A package's parser, over what a model wrote.
        return None


def _tree(element: Element, depth: int = 0) -> Tree:
    """Return an element as data. Raises ValueError for what no formula needs, such as a link."""
    if not _TAG.fullmatch(element.tag) or depth > _DEEPEST:
        raise ValueError(element.tag)
    children: list[Any] = [html.unescape(element.text)] if element.text else []
    for child in element:
        children.append(_tree(child, depth + 1))
    attributes = {name: value for name, value in element.attrib.items() if _ATTRIBUTE.fullmatch(name)}
    return [element.tag, attributes, children]
