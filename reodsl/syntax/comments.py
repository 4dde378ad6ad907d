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
    """The comments of a file by the `id` of their node; a declaration is the key for its parameters' brackets."""

    leading: dict[int, list[tree.Comment]] = field(default_factory=lambda: defaultdict(list))
    """Comments on lines above a node."""
    trailing: dict[int, tree.Comment] = field(default_factory=dict)
    """The comment behind a node on its last line."""
    opening: dict[int, tree.Comment] = field(default_factory=dict)
    """The comment behind an opening bracket."""
    closing: dict[int, list[tree.Comment]] = field(default_factory=lambda: defaultdict(list))
    """Comments above a closing bracket."""

    def inside(self, container: Container, entries: Iterable[Entry]) -> bool:
        """Return whether a container has a comment directly inside; it is then written over several lines.

        Args:
            container: The node with brackets.
            entries: The items, arguments or parameters between the brackets.
        """
        key = id(container)
        return (
            key in self.opening
            or key in self.closing
            or any(id(entry) in self.leading or id(entry) in self.trailing for entry in entries)
        )


def list_entries(module: tree.Module) -> list[tree.Import | tree.ModuleItem]:
    """Return the imports, params and declarations of a file in source order."""
    items: list[tree.Import | tree.ModuleItem] = [*module.imports, *module.items]
    return sorted(items, key=lambda item: _start(item.span))


def attach(module: tree.Module, comments: Sequence[tree.Comment]) -> CommentMap:
    """Return a map from nodes to comments that has every comment of a file.

    A docstring is not a node of the tree, so the key of its comments is the `id` of its span.

    Args:
        module: The tree of the file.
        comments: The comments in source order.
    """
    attached = CommentMap()
    _distribute(module, [*_list_doc_spans(module), *list_entries(module)], comments, attached)
    return attached


def _list_doc_spans(holder: tree.Module | tree.BraceBlock) -> list[Span]:
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
    """Attach all comments inside a container to its entries, to nodes inside the entries, or to its brackets.

    Args:
        container: The node with brackets, or the file.
        entries: The items, arguments or parameters of the container in source order; a span is a docstring.
        comments: The comments inside the container in source order.
        attached: The map to which the comments are added.
    """
    i = 0
    previous: Entry | None = None
    for entry in entries:
        span = _span(entry)
        while i < len(comments) and _start(comments[i].span) < _start(span):
            _attach_between(container, previous, entry, comments[i], attached)
            i += 1
        first = i
        while i < len(comments) and _start(comments[i].span) < _end(span):
            i += 1
        if i > first and not isinstance(entry, Span):
            _attach_within_entry(entry, comments[first:i], attached)
        previous = entry
    for comment in comments[i:]:
        _attach_between(container, previous, None, comment, attached)


def _attach_between(
    container: Container,
    previous: Entry | None,
    following: Entry | None,
    comment: tree.Comment,
    attached: CommentMap,
) -> None:
    """Attach a comment that lies between two neighbouring entries of a container.

    On the last line of `previous` it belongs to `previous`. Behind the opening bracket, on the same line, it
    belongs to the bracket. Otherwise it belongs to `following`, or at the end to the closing bracket.

    Args:
        container: The node with brackets, or the file.
        previous: The entry before the comment; None at the start of the container.
        following: The entry after the comment; None at the end of the container.
        comment: The comment.
        attached: The map to which the comment is added.
    """
    line = comment.span.line
    if previous is not None and line == _span(previous).end_line and id(previous) not in attached.trailing:
        attached.trailing[id(previous)] = comment
    elif previous is None and not comment.own_line and not isinstance(container, tree.Module):
        attached.opening[id(container)] = comment
    elif following is not None:
        attached.leading[id(following)].append(comment)
    else:
        attached.closing[id(container)].append(comment)


def _attach_within_entry(entry: tree.Node, comments: Sequence[tree.Comment], attached: CommentMap) -> None:
    """Attach comments that lie within the span of one entry.

    A comment goes to the innermost brackets around it that can hold comments (block, call, list, parameters).
    A comment outside of such brackets is written above the entry.

    Args:
        entry: The item, argument or parameter.
        comments: The comments within the span of the entry, in source order.
        attached: The map to which the comments are added.
    """
    stack: list[tree.Node] = [entry]
    pending = list(comments)
    starts = [_start(comment.span) for comment in pending]
    while stack and pending:
        node = stack.pop()
        brackets = _find_brackets(node)
        if brackets is not None:
            container, entries, inner_span = brackets
            first, stop = bisect_left(starts, _start(inner_span)), bisect_left(starts, _end(inner_span))
            if first < stop:
                inside = pending[first:stop]
                del pending[first:stop], starts[first:stop]
                _distribute(container, entries, inside, attached)
        stack.extend(children(node))
    if pending:
        attached.leading[id(entry)] += pending


def _find_brackets(node: tree.Node) -> tuple[Container, Sequence[Entry], Span] | None:
    """Return the brackets of a node that may hold comments; None for a node without such brackets.

    Returns:
        The node, the entries between its brackets, and a span that includes the brackets and no other entries.
    """
    match node:
        case tree.BraceBlock():
            return node, [*_list_doc_spans(node), *node.items], node.span
        case tree.Call():
            return node, node.args, _span_after(node.function.span, node.span)
        case tree.ListExpr():
            return node, node.items, node.span
        case tree.NamedBlock(args=args) if args:
            return node, args, _span_after(node.name.span, _span_before(node.span, node.block.span))
        case tree.Decl(params=params) if params:
            body = node.block or node.value
            return node, params, _span_after(node.name.span, _span_before(node.span, (body or node).span))
    return None


def _span_after(first: Span, outer: Span) -> Span:
    """Return the span from the end of `first` to the end of `outer`."""
    return Span(outer.path, first.end_line, first.end_column, outer.end_line, outer.end_column)


def _span_before(outer: Span, last: Span) -> Span:
    """Return the span from the start of `outer` to the start of `last`."""
    return Span(outer.path, outer.line, outer.column, last.line, last.column)
