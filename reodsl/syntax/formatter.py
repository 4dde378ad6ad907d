"""Write a tree and its comments as canonical text; parsing it gives the same tree back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from reodsl.diagnostics.model import Diagnostic, Span
from reodsl.syntax import tree
from reodsl.syntax.comments import CommentMap, Container, Entry, attach, list_entries
from reodsl.syntax.literals import canonical_number, quote
from reodsl.syntax.parser import parse
from reodsl.syntax.source import Source

WIDTH = 120

_Part = TypeVar("_Part", bound=tree.Node)
_Args = ParamSpec("_Args")


@dataclass(frozen=True, slots=True)
class FormatResult:
    """The canonical text, or None and the syntax errors."""

    text: str | None
    diagnostics: tuple[Diagnostic, ...]


def format_module(module: tree.Module, comments: Sequence[tree.Comment] = (), width: int = WIDTH) -> str:
    """Format a module that was parsed without errors, with its comments."""
    return print_lines(Layout(attach(module, comments), width).module(module))


def format_source(source: Source) -> FormatResult:
    """Format a file; a file with syntax errors gives their diagnostics and no text."""
    result = parse(source)
    if not result.ok:
        return FormatResult(None, result.diagnostics)
    return FormatResult(format_module(result.module, result.comments), ())


# Expressions on one line

# How tightly an expression binds; one that binds looser than its place wants stands in ( ).
CHOICE, OR, AND, NOT, COMPARISON, RANGE, SUM, PRODUCT, UNARY, POWER, POSTFIX, ATOM = range(12)
_BINARY = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "^": POWER}


def binding(expr: tree.Expr) -> int:
    """Return how tightly an expression binds, from `CHOICE` to `ATOM`."""
    match expr:
        case tree.IfElse():
            return CHOICE
        case tree.Logic(op=op):
            return OR if op == "or" else AND
        case tree.Not():
            return NOT
        case tree.Compare():
            return COMPARISON
        case tree.Range():
            return RANGE
        case tree.Binary(op=op):
            return _BINARY[op]
        case tree.Unary():
            return UNARY
        case tree.Attribute() | tree.Index() | tree.Slice() | tree.Call() | tree.Amend():
            return POSTFIX
        case _:
            return ATOM


def operation_parts(expr: tree.Expr) -> list[str | tuple[tree.Expr, int]]:
    """Split an operation into words and operands, each operand with the binding that it needs."""
    match expr:
        case tree.IfElse(then=then, condition=condition, otherwise=otherwise):
            return [(then, OR), " if ", (condition, OR), " else ", (otherwise, CHOICE)]
        case tree.Logic(op=op, left=left, right=right):
            level = binding(expr)
            return [(left, level), f" {op} ", (right, level + 1)]
        case tree.Not(operand=operand):
            return ["not ", (operand, NOT)]
        case tree.Compare(op=op, left=left, right=right):
            return [(left, RANGE), f" {op} ", (right, RANGE)]
        case tree.Range(lower=lower, upper=upper):
            return [(lower, SUM), "..", (upper, SUM)]
        case tree.Binary(op="^", left=left, right=right):
            return [(left, POSTFIX), "^", (right, UNARY)]
        case tree.Binary(op=op, left=left, right=right):
            level = binding(expr)
            return [(left, level), f" {op} ", (right, level + 1)]
        case tree.Unary(op=op, operand=operand):
            return [op, (operand, UNARY)]
        case tree.Attribute(value=value, name=name):
            return [(value, POSTFIX), f".{name.name}"]
        case tree.Index(value=value, index=index):
            return [(value, POSTFIX), "[", (index, CHOICE), "]"]
        case tree.Slice(value=value, lower=lower, upper=upper):
            ends: list[str | tuple[tree.Expr, int]] = [(value, POSTFIX), "["]
            if lower is not None:
                ends.append((lower, CHOICE))
            ends.append(":")
            if upper is not None:
                ends.append((upper, CHOICE))
            return [*ends, "]"]
        case _:
            return [atom_text(expr)]


def chain_parts(value: tree.Expr) -> list[tuple[str, tree.Expr, int]]:
    """Split a chain of equally binding operators into its operands.

    Returns:
        For each operand the word before it, the operand, and the binding that it needs.
    """
    level = binding(value)
    if isinstance(value, tree.IfElse):
        return [("", value.then, OR), ("if ", value.condition, OR), ("else ", value.otherwise, CHOICE)]
    if isinstance(value, tree.Compare):
        return [("", value.left, RANGE), (f"{value.op} ", value.right, RANGE)]
    links: list[tuple[str, tree.Expr, int]] = []
    while isinstance(value, tree.Binary | tree.Logic) and binding(value) == level != POWER:
        links.append((f"{value.op} ", value.right, level + 1))
        value = value.left
    return [("", value, level), *reversed(links)]


def atom_text(expr: tree.Expr) -> str:
    """Write a number, a text, a bool or a name."""
    match expr:
        case tree.Number(text=text, unit=unit):
            return canonical_number(text) + (f" {unit}" if unit else "")
        case tree.String(value=value, long=long):
            return long_text(value) if long else quote(value)
        case tree.Bool(value=value):
            return "true" if value else "false"
        case tree.Name(name=name):
            return name
    raise TypeError(f"{type(expr).__name__} is not an atom")


def long_text(value: str) -> str:
    """Write a text in triple quotes, or in double quotes if triple quotes cannot hold it."""
    if '"""' in value or value.endswith('"') or "\r" in value:
        return quote(value)
    return f'"""{value}"""'


def doc_text(doc: str, indent: int) -> str:
    """Write a docstring, its further lines indented; `clean_doc` gives back `doc` exactly."""
    lines = doc.split("\n")
    pad = "  " * indent
    if len(lines) == 1:
        return f'"""{doc}{" " if doc.endswith(chr(34)) else ""}"""'
    rest = [pad + line if line else "" for line in lines]
    # Where all further lines are indented deeper, the first one has to start a line too.
    hanging = lines[0].startswith(" ") or all(line.startswith(" ") for line in lines[1:] if line)
    first = ['"""', rest[0]] if hanging else [f'"""{lines[0]}']
    return "\n".join([*first, *rest[1:], f'{pad}"""'])


def type_text(type_: tree.TypeExpr) -> str:
    """Format `tokens`, `[int]`."""
    depth = 0
    while isinstance(type_, tree.ListType):
        type_, depth = type_.item, depth + 1
    return "[" * depth + type_.name + "]" * depth


def import_name_text(name: tree.ImportName) -> str:
    """Format `name` or `name as alias`."""
    return name.name.name + (f" as {name.alias.name}" if name.alias is not None else "")


def needs_brackets(expr: tree.Expr) -> bool:
    """Return whether a statement needs ( ) so as not to read as a nested block or as a docstring."""
    base = expr.base if isinstance(expr, tree.Amend) else None
    named = base.function if isinstance(base, tree.Call) else base
    return isinstance(named, tree.Name) or (isinstance(expr, tree.String) and expr.long)


def _let_head(item: tree.Let) -> str:
    """Return the name of a `let`, with the parameters of a function."""
    if item.params is None:
        return item.name.name
    return f"{item.name.name}({', '.join(param.name for param in item.params)})"


# Lines of a file


@dataclass(slots=True)
class TextLine:
    """A line of the file.

    Lines with the same `key` in direct succession are aligned at `split`.
    """

    indent: int
    """Levels of two columns."""
    text: str
    """The text; a triple-quoted text has newlines, whose further lines stay as they are."""
    comment: str = ""
    """The comment behind the text."""
    blank: bool = False
    """True if a blank line stands before it."""
    key: str = ""
    """The kind of line that is aligned; empty for none."""
    split: int = 0
    """The offset in `text` of the `=` or `{` that is aligned."""

    def width(self) -> int:
        """Return the width of the last line, in columns."""
        last = self.text.rpartition("\n")
        return len(last[2]) if last[1] else 2 * self.indent + len(self.text)


def join_lines(first: list[TextLine], between: str, second: list[TextLine]) -> list[TextLine]:
    """Return `second` begun on the last line of `first`, with `between` before it."""
    if not first:
        return second
    last, head = first[-1], second[0]
    last.text += between + head.text
    last.comment = last.comment or head.comment
    return first + second[1:]


def append_text(lines: list[TextLine], text: str) -> list[TextLine]:
    """Return the lines with `text` at the end of the last line."""
    lines[-1].text += text
    return lines


def wrap_in_brackets(lines: list[TextLine]) -> list[TextLine]:
    """Put the lines in ( )."""
    lines[0].text = "(" + lines[0].text
    lines[-1].text += ")"
    return lines


def print_lines(lines: list[TextLine]) -> str:
    """Join the lines to the file's text, with columns aligned and a newline at the end."""
    for run in _runs(lines, lambda line: bool(line.key), lambda line: line.split, 8):
        column = max(line.split for line in run)
        for line in run:
            line.text = line.text[: line.split].ljust(column) + line.text[line.split :]
    for run in _runs(lines, lambda line: bool(line.comment and line.text), TextLine.width, 40):
        column = max(line.width() for line in run)
        for line in run:
            line.text += " " * (column - line.width() + 2) + line.comment
    texts: list[str] = []
    for line in lines:
        if line.blank and texts:
            texts.append("")
        text = line.text or line.comment
        texts.append("  " * line.indent + text if text else "")
    return "\n".join(texts) + "\n" if texts else ""


def _runs(
    lines: Iterable[TextLine],
    belongs: Callable[[TextLine], bool],
    extent: Callable[[TextLine], int],
    spread: int,
) -> Iterator[list[TextLine]]:
    """Yield runs of lines to align: neighbours with the same indent and key, of similar extents, in columns.

    A line much longer than its neighbours starts a new run, so that it does not widen the gaps of all.
    """
    run: list[TextLine] = []
    least = most = 0
    for line in lines:
        fits = belongs(line) and "\n" not in line.text
        extended = extent(line)
        if run and not (
            fits
            and not line.blank
            and (line.indent, line.key) == (run[-1].indent, run[-1].key)
            and max(most, extended) - min(least, extended) <= spread
        ):
            yield run
            run = []
        if fits:
            least, most = (min(least, extended), max(most, extended)) if run else (extended, extended)
            run.append(line)
        elif belongs(line):
            yield [line]
    if run:
        yield run


# Items over as many lines as they need


class Layout:
    """Lay out items, blocks and expressions over as many lines as they need."""

    def __init__(self, comments: CommentMap, width: int) -> None:
        self.comments = comments
        self.width = width

    # Items

    def module(self, module: tree.Module) -> list[TextLine]:
        """Lay out a file."""
        lines = self._doc(module.doc, module.doc_span, 0)
        last = module.doc_span
        wide = len(lines) > 1 or any("\n" in line.text for line in lines)
        imports = False
        for item in list_entries(module):
            item_lines = self._item(item, 0)
            is_import = isinstance(item, tree.Import)
            spaced = bool(lines) and (wide or len(item_lines) > 1 or (imports and not is_import))
            lines += self._with_comments(item, item_lines, last, 0, spaced)
            last, wide, imports = item.span, len(item_lines) > 1, is_import
        return lines + self._comments(self.comments.closing.get(id(module), []), last, 0)

    def _items(self, block: tree.BraceBlock, indent: int) -> list[TextLine]:
        lines = self._doc(block.doc, block.doc_span, indent)
        last = block.doc_span
        for item in block.items:
            lines += self._with_comments(item, self._item(item, indent), last, indent, False)
            last = item.span
        lines += self._comments(self.comments.closing.get(id(block), []), last, indent)
        if lines:
            lines[0].blank = False
        return lines

    def _doc(self, doc: str | None, span: Span | None, indent: int) -> list[TextLine]:
        if doc is None:
            return []
        line = TextLine(indent, doc_text(doc, indent))
        return [line] if span is None else self._with_comments(span, [line], None, indent, False)

    def _with_comments(
        self, entry: Entry, item_lines: list[TextLine], last: Span | None, indent: int, spaced: bool
    ) -> list[TextLine]:
        """Add the comments before and behind an entry to its lines; `spaced` asks for a blank line first."""
        leading = self.comments.leading.get(id(entry), [])
        lines = self._comments(leading, last, indent)
        span = entry if isinstance(entry, Span) else entry.span
        above = leading[-1].span if leading else last
        item_lines[0].blank = above is not None and span.line - above.end_line > 1
        trailing = self.comments.trailing.get(id(entry))
        if trailing is not None:
            item_lines[-1].comment = trailing.text
        lines += item_lines
        lines[0].blank = lines[0].blank or spaced
        return lines

    def _comments(self, comments: Sequence[tree.Comment], last: Span | None, indent: int) -> list[TextLine]:
        lines = []
        for comment in comments:
            blank = last is not None and comment.span.line - last.end_line > 1
            lines.append(TextLine(indent, "", comment.text, blank))
            last = comment.span
        return lines

    def _item(self, item: tree.Import | tree.ModuleItem | tree.BlockItem, indent: int) -> list[TextLine]:
        """Lay out an item of a file or a block."""
        match item:
            case tree.Import(module=module, names=names):
                text = f"from {module} import {', '.join(map(import_name_text, names))}"
                if 2 * indent + len(text) <= self.width:
                    return [TextLine(indent, text, key="import", split=len(f"from {module} "))]
                listed = [TextLine(indent + 1, f"{import_name_text(name)},") for name in names]
                return [TextLine(indent, f"from {module} import ("), *listed, TextLine(indent, ")")]
            case tree.Param():
                lines = self._parameter(item, indent)
                lines[0].text = f"param {lines[0].text}"
                return append_text(lines, self._text_behind(item.doc, indent))
            case tree.Decl():
                return self._decl(item, indent)
            case tree.Assignment(name=name, op=op, value=value, doc=doc):
                lines = self._assigned(f"{name.name} ", op, value, indent, "item" if op == "=" else "")
                return append_text(lines, self._text_behind(doc, indent))
            case tree.Let(value=value):
                return self._assigned(f"let {_let_head(item)} ", "=", value, indent, "let")
            case tree.Dense(var=var, over=over, body=body):
                head = self.expr(over, CHOICE, indent, self.width)
                head[0].text = f"dense {var.name} in {head[0].text}"
                return join_lines(head, ": ", self._value(body, indent, head[-1].width() + 2))
            case tree.NamedBlock(name=name, args=args, block=block):
                lines = [TextLine(indent, name.name)]
                if args:
                    lines = self._bracketed(lines, item, args, self._arg)
                return self._with_block(lines, block, "item")
            case tree.ExprStatement(expr=expr):
                return self._statement(expr, indent)

    def _decl(self, decl: tree.Decl, indent: int) -> list[TextLine]:
        """Lay out a declaration with its parameters, value or block."""
        lines = [TextLine(indent, f"{decl.kind.name} {decl.name.name}")]
        if decl.params is not None:
            lines = self._bracketed(lines, decl, decl.params, self._parameter)
        if decl.block is not None:
            return self._with_block(lines, decl.block, "decl {")
        if decl.value is None:
            return lines
        split = len(lines[-1].text) + 1
        single = len(lines) == 1
        lines = join_lines(lines, " = ", self._value(decl.value, indent, lines[-1].width() + 3))
        if single and len(lines) == 1:
            lines[0].key, lines[0].split = "decl =", split
        trailing = None if isinstance(decl.value, tree.Amend) else decl.doc
        return append_text(lines, self._text_behind(trailing, indent))

    def _parameter(self, param: tree.Param | tree.ParamDecl, indent: int) -> list[TextLine]:
        lines = [TextLine(indent, f"{param.name.name}: {type_text(param.type)}")]
        if param.default is not None:
            lines = join_lines(lines, " = ", self.expr(param.default, SUM, indent, self.width))
        if param.range is not None:
            lines = join_lines(lines, " in ", self.expr(param.range, RANGE, indent, self.width))
        return lines

    def _text_behind(self, doc: str | None, indent: int) -> str:
        return "" if doc is None else f" {doc_text(doc, indent)}"

    def _assigned(self, head: str, op: str, value: tree.Expr, indent: int, key: str) -> list[TextLine]:
        lines = join_lines(
            [TextLine(indent, f"{head}{op} ")], "", self._value(value, indent, 2 * indent + len(head) + 2)
        )
        if len(lines) == 1 and key:
            lines[0].key, lines[0].split = key, len(head)
        return lines

    def _statement(self, expr: tree.Expr, indent: int) -> list[TextLine]:
        if needs_brackets(expr):
            return wrap_in_brackets(self.expr(expr, CHOICE, indent, self.width))
        return self._value(expr, indent, 2 * indent)

    def _with_block(self, lines: list[TextLine], block: tree.BraceBlock, key: str) -> list[TextLine]:
        split = len(lines[-1].text) + 1
        single = len(lines) == 1
        lines = join_lines(lines, " ", self.block(block, lines[0].indent, self.width - lines[-1].width() - 1))
        if single and len(lines) == 1:
            lines[0].key, lines[0].split = key, split
        return lines

    def block(self, block: tree.BraceBlock, indent: int, room: int) -> list[TextLine]:
        """Format `{ a = 1, b = 2 }` if it was written on a single line and fits, else each item on its line."""
        lines = self._items(block, indent + 1)
        documented = block.doc is not None or any(
            getattr(item, "doc", None) is not None for item in block.items
        )
        if block.span.line == block.span.end_line and not documented:
            text = f"{{ {', '.join(line.text for line in lines)} }}" if lines else "{}"
            is_complete = len(lines) == len(block.items) and "\n" not in text
            if is_complete and not self.comments.inside(block, block.items) and len(text) <= room:
                return [TextLine(indent, text)]
        lines = [TextLine(indent, "{"), *lines, TextLine(indent, "}")]
        opening = self.comments.opening.get(id(block))
        if opening is not None:
            lines[0].comment = opening.text
        return lines

    # Expressions

    def _value(self, value: tree.Expr, indent: int, column: int) -> list[TextLine]:
        """Lay out an expression in an item from `column` on; a long chain of operators is broken in ( )."""
        room, links = self.width - column, chain_parts(value)
        if len(links) < 2:
            return self.expr(value, CHOICE, indent, room)
        # Each operand is laid out once, whatever it holds: else nested ones would take twice as long a level.
        broken: list[TextLine] = []
        for word, operand, level in links:
            operand_lines = self.expr(operand, level, indent + 1, self.width - 2 * indent - 2 - len(word))
            operand_lines[0].text = word + operand_lines[0].text
            broken += operand_lines
        text = " ".join(line.text for line in broken)
        if len(broken) == len(links) and _fits(text, room):
            return [TextLine(indent, text)]
        return [TextLine(indent, "("), *broken, TextLine(indent, ")")]

    def expr(self, expr: tree.Expr, level: int, indent: int, room: int) -> list[TextLine]:
        """Format an expression that binds at least as `level`; calls and lists are broken beyond `room` columns."""
        match expr:
            case tree.Call(function=function, args=args):
                lines = self.expr(function, POSTFIX, indent, room)
                lines = self._listed(lines, "()", expr, args, self._arg, room)
            case tree.ListExpr(items=items):
                lines = self._listed([TextLine(indent, "")], "[]", expr, items, self._element, room)
            case tree.Amend(base=base, block=block):
                lines = self.expr(base, POSTFIX, indent, room)
                lines = join_lines(lines, " ", self.block(block, indent, room - len(lines[-1].text) - 1))
            case _:
                lines = [TextLine(indent, "")]
                for piece in operation_parts(expr):
                    if isinstance(piece, str):
                        lines[-1].text += piece
                    else:
                        rest = room - len(lines[-1].text)
                        lines = join_lines(lines, "", self.expr(piece[0], piece[1], indent, rest))
        return lines if binding(expr) >= level else wrap_in_brackets(lines)

    def _bracketed(
        self,
        lines: list[TextLine],
        container: Container,
        parts: Sequence[_Part],
        lay: Callable[[_Part, int], list[TextLine]],
    ) -> list[TextLine]:
        """Return `(a, b)` behind a head, if it fits with a ` {` behind it, else each part on a line."""
        return self._listed(lines, "()", container, parts, lay, self.width - 2 * lines[-1].indent - 2)

    def _listed(
        self,
        lines: list[TextLine],
        brackets: str,
        container: Container,
        parts: Sequence[_Part],
        lay: Callable[[_Part, int], list[TextLine]],
        room: int,
    ) -> list[TextLine]:
        """Lay out parts in brackets: on a single line if they fit, else each on its line, with its comments."""
        indent = lines[0].indent
        layouts = [lay(item, indent + 1) for item in parts]
        text = brackets[0] + ", ".join(item[0].text for item in layouts) + brackets[1]
        single = all(len(item) == 1 for item in layouts) and not self.comments.inside(container, parts)
        if single and _fits(text, room - len(lines[-1].text)):
            return append_text(lines, text)
        lines[-1].text += brackets[0]
        opening = self.comments.opening.get(id(container))
        if opening is not None:
            lines[-1].comment = opening.text
        inner: list[TextLine] = []
        last = None
        for item, item_lines in zip(parts, layouts, strict=True):
            item_lines[-1].text += ","
            inner += self._with_comments(item, item_lines, last, indent + 1, False)
            last = item.span
        inner += self._comments(self.comments.closing.get(id(container), []), last, indent + 1)
        if not inner and opening is None:
            return append_text(lines, brackets[1])
        if inner:
            inner[0].blank = False
        return [*lines, *inner, TextLine(indent, brackets[1])]

    def _element(self, item: tree.Expr, indent: int) -> list[TextLine]:
        return self.expr(item, CHOICE, indent, self.width - 2 * indent - 1)

    def _arg(self, arg: tree.Arg, indent: int) -> list[TextLine]:
        """Lay out an argument of a call."""
        room = self.width - 2 * indent - 1
        match arg.value:
            case tree.Binding(var=var, over=over):
                head = f"{var.name} in "
                return join_lines(
                    [TextLine(indent, head)], "", self.expr(over, RANGE, indent, room - len(head))
                )
            case tree.Comprehension(expr=expr, var=var, over=over, condition=condition):
                lines = self.expr(expr, CHOICE, indent, room)
                lines = join_lines(lines, f" for {var.name} in ", self.expr(over, OR, indent, room))
                if condition is not None:
                    lines = join_lines(lines, " if ", self.expr(condition, OR, indent, room))
                return lines
            case tree.Compare(op="in", left=tree.Name()) if arg.name is None:
                return wrap_in_brackets(self.expr(arg.value, CHOICE, indent, room - 2))
            case value:
                head = "" if arg.name is None else f"{arg.name.name}: "
                return join_lines(
                    [TextLine(indent, head)], "", self.expr(value, CHOICE, indent, room - len(head))
                )


def _fits(text: str, room: int) -> bool:
    """Return whether a text fits; a text over several lines counts as fitting, since breaking would not help."""
    return "\n" in text or len(text) <= room
