"""A tree to its parts: children, all nodes, depth, and the tree without its places. Nothing here recurses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from reodsl.diagnostics.model import Span
from reodsl.syntax import tree

_PLACES = frozenset({"span", "unit_span", "module_span", "doc_span", "text", "path"})
_WORDS = _PLACES | {"doc", "op", "module", "suffix", "unit", "long"}
_KINDS = [kind for kind in vars(tree).values() if isinstance(kind, type) and is_dataclass(kind)]
# For each class of node: the fields that can hold nodes, as written; those that say what it is, wherever it stands.
_BELOW = {kind: tuple(f.name for f in fields(kind) if f.name not in _WORDS) for kind in _KINDS}
_COMPARED = {kind: tuple(f.name for f in fields(kind) if f.name not in _PLACES) for kind in _KINDS}


def children(node: tree.Node) -> Iterator[tree.Node]:
    """The nodes directly below a node, in the order in which they are written."""
    for name in _BELOW[type(node)]:
        value: Any = getattr(node, name)
        if isinstance(value, tuple):
            yield from value
        elif hasattr(value, "span"):
            yield value


def walk(node: tree.Node) -> Iterator[tree.Node]:
    """A node and all nodes below it, parents first, in the order in which they are written."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(children(node))))


def depth_exceeding(node: tree.Node, limit: int) -> Span | None:
    """The place of the first node more than `limit` levels below `node`, if there is one."""
    stack = [(node, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > limit:
            return node.span
        # An argument and a block are no levels of their own: they stand for what holds them.
        below = depth if isinstance(node, tree.Arg | tree.Block) else depth + 1
        stack.extend((child, below) for child in children(node) if not isinstance(child, tree.Ident))
    return None


def same(left: tree.Node, right: tree.Node) -> bool:
    """Whether two trees say the same, wherever it stands: equal but for spans, paths and the spelling of numbers."""
    stack: list[tuple[Any, Any]] = [(left, right)]
    while stack:
        one, other = stack.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, tuple):
            if len(one) != len(other):
                return False
            stack.extend(zip(one, other, strict=True))
        elif hasattr(one, "span"):
            stack.extend((getattr(one, name), getattr(other, name)) for name in _COMPARED[type(one)])
        elif one != other:
            return False
    return True
