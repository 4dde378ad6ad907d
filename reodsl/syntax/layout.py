"""Items, blocks and expressions to rows: what stands on one line, what is broken over several, and where comments go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from reodsl.diagnostics.model import Span
from reodsl.syntax import flat, tree
from reodsl.syntax.attach import Attached, Container, Entry, entries_of
from reodsl.syntax.flat import doc_text, import_name_text, type_text
from reodsl.syntax.rows import Row, around, behind, join

_Part = TypeVar("_Part", bound=tree.Node)


class Layout:
    """Knows the comments and the width; everything else it is asked about comes in by arguments."""

    def __init__(self, comments: Attached, width: int) -> None:
        self.comments = comments
        self.flat = flat.Flat(comments)
        self.width = width

    # Items

    def module(self, module: tree.Module) -> list[Row]:
        """The rows of a file."""
        rows = self._doc(module.doc, module.doc_span, 0)
        last = module.doc_span
        wide = len(rows) > 1 or any("\n" in row.text for row in rows)
        imports = False
        for item in entries_of(module):
            laid = self._item(item, 0)
            is_import = isinstance(item, tree.Import)
            apart = bool(rows) and (wide or len(laid) > 1 or (imports and not is_import))
            rows += self._with_comments(item, laid, last, 0, apart)
            last, wide, imports = item.span, len(laid) > 1, is_import
        return rows + self._comments(self.comments.closing.get(id(module), []), last, 0)

    def _items(self, block: tree.Block, indent: int) -> list[Row]:
        rows = self._doc(block.doc, block.doc_span, indent)
        last = block.doc_span
        for item in block.items:
            rows += self._with_comments(item, self._item(item, indent), last, indent, False)
            last = item.span
        rows += self._comments(self.comments.closing.get(id(block), []), last, indent)
        if rows:
            rows[0].blank = False
        return rows

    def _doc(self, doc: str | None, span: Span | None, indent: int) -> list[Row]:
        if doc is None:
            return []
        row = Row(indent, doc_text(doc, indent))
        return [row] if span is None else self._with_comments(span, [row], None, indent, False)

    def _with_comments(
        self, entry: Entry, laid: list[Row], last: Span | None, indent: int, apart: bool
    ) -> list[Row]:
        """An entry's rows with the comments before and behind it; `apart` asks for a blank line first."""
        before = self.comments.leading.get(id(entry), [])
        rows = self._comments(before, last, indent)
        span = entry if isinstance(entry, Span) else entry.span
        above = before[-1].span if before else last
        laid[0].blank = above is not None and span.line - above.end_line > 1
        trailing = self.comments.trailing.get(id(entry))
        if trailing is not None:
            laid[-1].comment = trailing.text
        rows += laid
        rows[0].blank = rows[0].blank or apart
        return rows

    def _comments(self, comments: Sequence[tree.Comment], last: Span | None, indent: int) -> list[Row]:
        rows = []
        for comment in comments:
            blank = last is not None and comment.span.line - last.end_line > 1
            rows.append(Row(indent, "", comment.text, blank))
            last = comment.span
        return rows

    def _item(self, item: tree.Import | tree.ModuleItem | tree.BlockItem, indent: int) -> list[Row]:
        match item:
            case tree.Import(module=module, names=names):
                text = f"from {module} import {', '.join(map(import_name_text, names))}"
                if 2 * indent + len(text) <= self.width:
                    return [Row(indent, text, key="import", split=len(f"from {module} "))]
                listed = [Row(indent + 1, f"{import_name_text(name)},") for name in names]
                return [Row(indent, f"from {module} import ("), *listed, Row(indent, ")")]
            case tree.Param():
                rows = self._parameter(item, indent)
                rows[0].text = f"param {rows[0].text}"
                return behind(rows, self._text_behind(item.doc, indent))
            case tree.Decl():
                return self._decl(item, indent)
            case tree.Setting(name=name, op=op, value=value, doc=doc):
                rows = self._assigned(f"{name.name} ", op, value, indent, "item" if op == "=" else "")
                return behind(rows, self._text_behind(doc, indent))
            case tree.Let(name=name, value=value):
                return self._assigned(f"let {name.name} ", "=", value, indent, "let")
            case tree.Dense(var=var, over=over, body=body):
                head = self.expr(over, flat.CHOICE, indent, self.width)
                head[0].text = f"dense {var.name} in {head[0].text}"
                return join(head, ": ", self._value(body, indent, head[-1].width() + 2))
            case tree.Nested(name=name, args=args, block=block):
                rows = [Row(indent, name.name)]
                if args:
                    rows = self._bracketed(rows, self.flat.args(item), item, args, self._arg)
                return self._with_block(rows, block, "item")
            case tree.ExprStatement(expr=expr):
                return self._statement(expr, indent)

    def _decl(self, decl: tree.Decl, indent: int) -> list[Row]:
        rows = [Row(indent, f"{decl.kind.name} {decl.name.name}")]
        if decl.params is not None:
            rows = self._bracketed(rows, self.flat.params(decl), decl, decl.params, self._parameter)
        if decl.block is not None:
            return self._with_block(rows, decl.block, "decl {")
        if decl.value is None:
            return rows
        split = len(rows[-1].text) + 1
        single = len(rows) == 1
        rows = join(rows, " = ", self._value(decl.value, indent, rows[-1].width() + 3))
        if single and len(rows) == 1:
            rows[0].key, rows[0].split = "decl =", split
        trailing = None if isinstance(decl.value, tree.Amend) else decl.doc
        return behind(rows, self._text_behind(trailing, indent))

    def _parameter(self, param: tree.Param | tree.ParamDecl, indent: int) -> list[Row]:
        rows = [Row(indent, f"{param.name.name}: {type_text(param.type)}")]
        if param.default is not None:
            rows = join(rows, " = ", self.expr(param.default, flat.SUM, indent, self.width))
        if param.range is not None:
            rows = join(rows, " in ", self.expr(param.range, flat.RANGE, indent, self.width))
        return rows

    def _text_behind(self, doc: str | None, indent: int) -> str:
        return "" if doc is None else f" {doc_text(doc, indent)}"

    def _assigned(self, head: str, op: str, value: tree.Expr, indent: int, key: str) -> list[Row]:
        rows = join([Row(indent, f"{head}{op} ")], "", self._value(value, indent, 2 * indent + len(head) + 2))
        if len(rows) == 1 and key:
            rows[0].key, rows[0].split = key, len(head)
        return rows

    def _statement(self, expr: tree.Expr, indent: int) -> list[Row]:
        if flat.needs_brackets(expr):
            return around(self.expr(expr, flat.CHOICE, indent, self.width))
        return self._value(expr, indent, 2 * indent)

    def _with_block(self, rows: list[Row], block: tree.Block, key: str) -> list[Row]:
        split = len(rows[-1].text) + 1
        single = len(rows) == 1
        rows = join(rows, " ", self.block(block, rows[0].indent, self.width - rows[-1].width() - 1))
        if single and len(rows) == 1:
            rows[0].key, rows[0].split = key, split
        return rows

    def block(self, block: tree.Block, indent: int, room: int) -> list[Row]:
        """`{ a = 1, b = 2 }` where it was written on one line and fits, else one item to a line."""
        text = self.flat.block(block)
        if text is not None and len(text) <= room:
            return [Row(indent, text)]
        rows = [Row(indent, "{"), *self._items(block, indent + 1), Row(indent, "}")]
        opening = self.comments.opening.get(id(block))
        if opening is not None:
            rows[0].comment = opening.text
        return rows

    # Expressions

    def _value(self, value: tree.Expr, indent: int, column: int) -> list[Row]:
        """An expression in an item, begun at `column`; a long chain of operators is put in ( ) and broken at them."""
        text, room = self.flat.expr(value), self.width - column
        chain = flat.chain(value) if text is None or not _fits(text, room) else []
        if len(chain) < 2:
            return self.expr(value, flat.CHOICE, indent, room)
        broken = [Row(indent, "(")]
        for word, operand, level in chain:
            part = self.expr(operand, level, indent + 1, self.width - 2 * indent - 2 - len(word))
            part[0].text = word + part[0].text
            broken += part
        return [*broken, Row(indent, ")")]

    def expr(self, expr: tree.Expr, level: int, indent: int, room: int) -> list[Row]:
        """An expression where something binding as `level` is wanted; calls and lists are broken if `room` is short."""
        text = self.flat.expr(expr, level)
        if text is not None and _fits(text, room):
            return [Row(indent, text)]
        match expr:
            case tree.Call(function=function, args=args):
                rows = self.expr(function, flat.POSTFIX, indent, room)
                rows[-1].text += "("
                rows = self._broken(rows, ")", expr, args, self._arg)
            case tree.ListExpr(items=items):
                rows = self._broken([Row(indent, "[")], "]", expr, items, self._element)
            case tree.Amend(base=base, block=block):
                rows = self.expr(base, flat.POSTFIX, indent, room)
                rows = join(rows, " ", self.block(block, indent, room - len(rows[-1].text) - 1))
            case _:
                rows = [Row(indent, "")]
                for part in flat.parts(expr):
                    if isinstance(part, str):
                        rows[-1].text += part
                    else:
                        rows = join(rows, "", self.expr(part[0], part[1], indent, room - len(rows[-1].text)))
        return rows if flat.binding(expr) >= level else around(rows)

    def _bracketed(
        self,
        rows: list[Row],
        text: str | None,
        container: Container,
        parts: Sequence[_Part],
        lay: Callable[[_Part, int], list[Row]],
    ) -> list[Row]:
        """`(a, b)` behind a head: as `text` where that fits with a ` {` behind it, else one part to a line."""
        if text is not None and _fits(text, self.width - rows[-1].width() - 2):
            rows[-1].text += text
            return rows
        rows[-1].text += "("
        return self._broken(rows, ")", container, parts, lay)

    def _broken(
        self,
        rows: list[Row],
        closer: str,
        container: Container,
        parts: Sequence[_Part],
        lay: Callable[[_Part, int], list[Row]],
    ) -> list[Row]:
        """The parts in brackets, one to a line, each with its comments."""
        indent = rows[0].indent
        opening = self.comments.opening.get(id(container))
        if opening is not None:
            rows[-1].comment = opening.text
        inner: list[Row] = []
        last = None
        for part in parts:
            laid = lay(part, indent + 1)
            laid[-1].text += ","
            inner += self._with_comments(part, laid, last, indent + 1, False)
            last = part.span
        inner += self._comments(self.comments.closing.get(id(container), []), last, indent + 1)
        if not inner and opening is None:
            rows[-1].text += closer
            return rows
        if inner:
            inner[0].blank = False
        return [*rows, *inner, Row(indent, closer)]

    def _element(self, item: tree.Expr, indent: int) -> list[Row]:
        return self.expr(item, flat.CHOICE, indent, self.width - 2 * indent - 1)

    def _arg(self, arg: tree.Arg, indent: int) -> list[Row]:
        room = self.width - 2 * indent - 1
        match arg.value:
            case tree.Binding(var=var, over=over):
                head = f"{var.name} in "
                return join([Row(indent, head)], "", self.expr(over, flat.RANGE, indent, room - len(head)))
            case tree.Comprehension(expr=expr, var=var, over=over, condition=condition):
                rows = self.expr(expr, flat.CHOICE, indent, room)
                rows = join(rows, f" for {var.name} in ", self.expr(over, flat.OR, indent, room))
                if condition is not None:
                    rows = join(rows, " if ", self.expr(condition, flat.OR, indent, room))
                return rows
            case tree.Compare(op="in", left=tree.Name()) if arg.name is None:
                return around(self.expr(arg.value, flat.CHOICE, indent, room - 2))
            case value:
                head = "" if arg.name is None else f"{arg.name.name}: "
                return join([Row(indent, head)], "", self.expr(value, flat.CHOICE, indent, room - len(head)))


def _fits(text: str, room: int) -> bool:
    """Whether a text fits; one with a text over several lines in it would not be bettered by breaking it."""
    return "\n" in text or len(text) <= room
