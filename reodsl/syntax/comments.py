"""Attach each comment to an item that it precedes or follows, or to the brackets around it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from reodsl.diagnostics.model import Span
from reodsl.syntax import tree
from reodsl.syntax.tree import children

Container: TypeAlias = tree.Module | tree.BraceBlock | tree.Call | tree.ListExpr | tree.Nested | tree.Decl
Entry: TypeAlias = tree.Node | Span


@dataclass(slots=True)
class Attached:
    """Comments by the `id` of their node. A declaration as a container stands for its parameters."""

    leading: dict[int, list[tree.Comment]] = field(default_factory=lambda: defaultdict(list))
    trailing: dict[int, tree.Comment] = field(default_factory=dict)
    opening: dict[int, tree.Comment] = field(default_factory=dict)
    closing: dict[int, list[tree.Comment]] = field(default_factory=lambda: defaultdict(list))

    def inside(self, container: Container, entries: Iterable[Entry]) -> bool:
        """Return whether comments stand directly in a container, so that it takes more than one line."""
        key = id(container)
        return (
            key in self.opening
            or key in self.closing
            or any(id(entry) in self.leading or id(entry) in self.trailing for entry in entries)
        )


def list_entries(module: tree.Module) -> list[tree.Import | tree.ModuleItem]:
    """List the items of a file in source order."""
    items: list[tree.Import | tree.ModuleItem] = [*module.imports, *module.items]
    return sorted(items, key=lambda item: _start(item.span))


def attach(module: tree.Module, comments: Sequence[tree.Comment]) -> Attached:
    """Attach every comment to exactly one place. The docstring of a block or a file is known by its span."""
    attached = Attached()
    _distribute(module, [*_doc(module), *list_entries(module)], comments, attached)
    return attached


def _doc(holder: tree.Module | tree.BraceBlock) -> list[Span]:
    return [] if holder.doc_span is None else [holder.doc_span]


def _span(entry: Entry) -> Span:
    return entry if isinstance(entry, Span) else entry.span


def _start(span: Span) -> tuple[int, int]:
    return span.line, span.column


def _end(span: Span) -> tuple[int, int]:
    return span.end_line, span.end_column


def _distribute(
    container: Container, entries: Sequence[Entry], comments: Sequence[tree.Comment], attached: Attached
) -> None:
    """Attach all comments inside a container, to its entries or to what is in them."""
    at = 0
    previous: Entry | None = None
    for entry in entries:
        span = _span(entry)
        while at < len(comments) and _start(comments[at].span) < _start(span):
            _between(container, previous, entry, comments[at], attached)
            at += 1
        first = at
        while at < len(comments) and _start(comments[at].span) < _end(span):
            at += 1
        if at > first and not isinstance(entry, Span):
            _attach_inside(entry, comments[first:at], attached)
        previous = entry
    for comment in comments[at:]:
        _between(container, previous, None, comment, attached)


def _between(
    container: Container,
    previous: Entry | None,
    following: Entry | None,
    comment: tree.Comment,
    attached: Attached,
) -> None:
    line = comment.span.line
    if previous is not None and line == _span(previous).end_line and id(previous) not in attached.trailing:
        attached.trailing[id(previous)] = comment
    elif previous is None and not comment.own_line and not isinstance(container, tree.Module):
        attached.opening[id(container)] = comment
    elif following is not None:
        attached.leading[id(following)].append(comment)
    else:
        attached.closing[id(container)].append(comment)


def _attach_inside(entry: tree.Node, comments: Sequence[tree.Comment], attached: Attached) -> None:
    """Attach comments inside an entry: to brackets around them that can have some, else before the entry."""
    stack: list[tree.Node] = [entry]
    left = list(comments)
    starts = [_start(comment.span) for comment in left]
    while stack and left:
        node = stack.pop()
        opened = _find_brackets(node)
        if opened is not None:
            container, entries, region = opened
            first, behind = bisect_left(starts, _start(region)), bisect_left(starts, _end(region))
            if first < behind:
                inside = left[first:behind]
                del left[first:behind], starts[first:behind]
                _distribute(container, entries, inside, attached)
        stack.extend(children(node))
    if left:
        attached.leading[id(entry)] += left


def _find_brackets(node: tree.Node) -> tuple[Container, Sequence[Entry], Span] | None:
    """Find a node's own brackets that may hold comments: what is in them, and where they are."""
    match node:
        case tree.BraceBlock():
            return node, [*_doc(node), *node.items], node.span
        case tree.Call():
            return node, node.args, _behind(node.function.span, node.span)
        case tree.ListExpr():
            return node, node.items, node.span
        case tree.Nested(args=args) if args:
            return node, args, _behind(node.name.span, _before(node.span, node.block.span))
        case tree.Decl(params=params) if params:
            rest = node.block or node.value
            return node, params, _behind(node.name.span, _before(node.span, (rest or node).span))
    return None


def _behind(first: Span, whole: Span) -> Span:
    return Span(whole.path, first.end_line, first.end_column, whole.end_line, whole.end_column)


def _before(whole: Span, last: Span) -> Span:
    return Span(whole.path, whole.line, whole.column, last.line, last.column)
