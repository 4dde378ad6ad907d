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

Container: TypeAlias = tree.Module | tree.BraceBlock | tree.Call | tree.ListExpr | tree.NamedBlock | tree.Decl
Entry: TypeAlias = tree.Node | Span


@dataclass(slots=True)
class CommentMap:
    """Comments by the `id` of their node; a declaration as a container stands for its parameters."""

    leading: dict[int, list[tree.Comment]] = field(default_factory=lambda: defaultdict(list))
    """Comments on lines above a node."""
    trailing: dict[int, tree.Comment] = field(default_factory=dict)
    """The comment behind a node on its last line."""
    opening: dict[int, tree.Comment] = field(default_factory=dict)
    """The comment behind an opening bracket."""
    closing: dict[int, list[tree.Comment]] = field(default_factory=lambda: defaultdict(list))
    """Comments above a closing bracket."""

    def inside(self, container: Container, entries: Iterable[Entry]) -> bool:
        """Return whether comments stand directly in a container, which then takes several lines."""
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


def attach(module: tree.Module, comments: Sequence[tree.Comment]) -> CommentMap:
    """Attach every comment to a node; the docstring of a block or a file is known by its span."""
    attached = CommentMap()
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
    container: Container, entries: Sequence[Entry], comments: Sequence[tree.Comment], attached: CommentMap
) -> None:
    """Attach all comments inside a container to its entries or to nodes inside them."""
    i = 0
    previous: Entry | None = None
    for entry in entries:
        span = _span(entry)
        while i < len(comments) and _start(comments[i].span) < _start(span):
            _between(container, previous, entry, comments[i], attached)
            i += 1
        first = i
        while i < len(comments) and _start(comments[i].span) < _end(span):
            i += 1
        if i > first and not isinstance(entry, Span):
            _attach_inside(entry, comments[first:i], attached)
        previous = entry
    for comment in comments[i:]:
        _between(container, previous, None, comment, attached)


def _between(
    container: Container,
    previous: Entry | None,
    following: Entry | None,
    comment: tree.Comment,
    attached: CommentMap,
) -> None:
    """Attach a comment between two entries to an entry or to the container's brackets."""
    line = comment.span.line
    if previous is not None and line == _span(previous).end_line and id(previous) not in attached.trailing:
        attached.trailing[id(previous)] = comment
    elif previous is None and not comment.own_line and not isinstance(container, tree.Module):
        attached.opening[id(container)] = comment
    elif following is not None:
        attached.leading[id(following)].append(comment)
    else:
        attached.closing[id(container)].append(comment)


def _attach_inside(entry: tree.Node, comments: Sequence[tree.Comment], attached: CommentMap) -> None:
    """Attach comments inside an entry: to brackets around them that can have comments, else before the entry."""
    stack: list[tree.Node] = [entry]
    pending = list(comments)
    starts = [_start(comment.span) for comment in pending]
    while stack and pending:
        node = stack.pop()
        opened = _find_brackets(node)
        if opened is not None:
            container, entries, region = opened
            first, stop = bisect_left(starts, _start(region)), bisect_left(starts, _end(region))
            if first < stop:
                inside = pending[first:stop]
                del pending[first:stop], starts[first:stop]
                _distribute(container, entries, inside, attached)
        stack.extend(children(node))
    if pending:
        attached.leading[id(entry)] += pending


def _find_brackets(node: tree.Node) -> tuple[Container, Sequence[Entry], Span] | None:
    """Find a node's own brackets that may hold comments: the container, its entries, and the span."""
    match node:
        case tree.BraceBlock():
            return node, [*_doc(node), *node.items], node.span
        case tree.Call():
            return node, node.args, _behind(node.function.span, node.span)
        case tree.ListExpr():
            return node, node.items, node.span
        case tree.NamedBlock(args=args) if args:
            return node, args, _behind(node.name.span, _before(node.span, node.block.span))
        case tree.Decl(params=params) if params:
            rest = node.block or node.value
            return node, params, _behind(node.name.span, _before(node.span, (rest or node).span))
    return None


def _behind(first: Span, outer: Span) -> Span:
    return Span(outer.path, first.end_line, first.end_column, outer.end_line, outer.end_column)


def _before(outer: Span, last: Span) -> Span:
    return Span(outer.path, outer.line, outer.column, last.line, last.column)
