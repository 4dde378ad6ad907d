"""Write a tree and its comments as canonical text; parsing it gives the same tree back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from reodsl.diagnostics.model import Diagnostic, Span, quote
from reodsl.syntax import tree
from reodsl.syntax.comments import CommentMap, Container, Entry, attach, list_entries
from reodsl.syntax.literals import canonical_number
from reodsl.syntax.parser import parse
from reodsl.syntax.source import Source

WIDTH = 120

_Element = TypeVar("_Element", bound=tree.Node)
_Args = ParamSpec("_Args")


@dataclass(frozen=True, slots=True)
class FormatResult:
    """The canonical text, or None with the syntax errors."""

    text: str | None
    diagnostics: tuple[Diagnostic, ...]


def format_module(module: tree.Module, comments: Sequence[tree.Comment] = (), width: int = WIDTH) -> str:
    """Return the canonical text of a module, with its comments.

    Args:
        module: A tree that was parsed without errors.
        comments: All comments of the file in source order.
        width: The largest line length, in columns; text that cannot be broken may be longer.
    """
    return print_lines(Layout(attach(module, comments), width).module(module))


def format_source(source: Source) -> FormatResult:
    """Return the canonical text of a file, or its diagnostics if the file has syntax errors."""
    result = parse(source)
    if not result.ok:
        return FormatResult(None, result.diagnostics)
    return FormatResult(format_module(result.module, result.comments), ())


# Expressions on one line

CHOICE, OR, AND, NOT, COMPARISON, RANGE, SUM, PRODUCT, UNARY, POWER, POSTFIX, ATOM = range(12)
"""The levels of binding, loosest first; an operand that binds more loosely than needed is written in `( )`."""
_BINARY = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "^": POWER}


def binding(expr: tree.Expr) -> int:
    """Return how tightly an expression's outermost operator binds, from `CHOICE` (loosest) to `ATOM` (tightest)."""
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
    """Return an expression as the words and operands that are written in a row.

    Returns:
        Texts to write as they are, and pairs (operand, level). An operand that binds more loosely than `level`
        must be written in `( )`.
    """
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
    """Return the operands that an expression of several lines writes one per line.

    They are the operands of a chain of equally binding operators, such as `a + b - c`, of a comparison, or of
    `A if CONDITION else B`.

    Returns:
        For each operand (the word before the operand, the operand, level): an operand that binds more loosely
        than `level` must be written in `( )`. For any other expression the only operand is the expression.
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
    """Return the text of a number, a string, a bool or a name.

    Raises:
        TypeError: The expression is of another class.
    """
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
    """Return a string literal in triple quotes, or in double quotes if triple quotes cannot hold the value."""
    return quote(value) if '"""' in value or value.endswith('"') or "\r" in value else f'"""{value}"""'


def doc_text(doc: str, indent: int) -> str:
    """Return the literal of a docstring in triple quotes, its further lines indented.

    Args:
        doc: The docstring without indentation; `clean_doc` applied to the literal's content returns exactly
            this text.
        indent: The indentation level of the block, in steps of two columns.
    """
    lines = doc.split("\n")
    pad = "  " * indent
    if len(lines) == 1:
        return f'"""{doc}{" " if doc.endswith(chr(34)) else ""}"""'
    indented_lines = [pad + line if line else "" for line in lines]
    # If all further lines are indented deeper, `clean_doc` needs the first line on a line of its own.
    starts_on_own_line = lines[0].startswith(" ") or all(line.startswith(" ") for line in lines[1:] if line)
    first = ['"""', indented_lines[0]] if starts_on_own_line else [f'"""{lines[0]}']
    return "\n".join([*first, *indented_lines[1:], f'{pad}"""'])


def type_text(type_: tree.TypeExpr) -> str:
    """Return a type as it is written, such as `tokens` or `[int]`."""
    depth = 0
    while isinstance(type_, tree.ListType):
        type_, depth = type_.item, depth + 1
    return "[" * depth + type_.name + "]" * depth


def import_name_text(name: tree.ImportName) -> str:
    """Return an imported name as it is written: `name` or `name as alias`."""
    return name.name.name + (f" as {name.alias.name}" if name.alias is not None else "")


def needs_brackets(expr: tree.Expr) -> bool:
    """Return whether an expression must be in `( )` if it is a statement of a block.

    Without brackets `name { … }` or `name(…) { … }` would be read as a nested block, and a triple-quoted text
    as a docstring.
    """
    amended = expr.base if isinstance(expr, tree.Amend) else None
    function = amended.function if isinstance(amended, tree.Call) else amended
    return isinstance(function, tree.Name) or (isinstance(expr, tree.String) and expr.long)


def _let_head(item: tree.Let) -> str:
    """Return the left side of a `let`: its name, and the parameters in `( )` if it is a function."""
    if item.params is None:
        return item.name.name
    return f"{item.name.name}({', '.join(param.name for param in item.params)})"


# Lines of a file


@dataclass(slots=True)
class TextLine:
    """A line of the formatted file.

    Neighbouring lines with the same `key` are aligned at their offset `split`.
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
        """Return the column at which this line ends; for a text with newlines, the length of its last line."""
        last = self.text.rpartition("\n")
        return len(last[2]) if last[1] else 2 * self.indent + len(self.text)


def join_lines(first: list[TextLine], between: str, second: list[TextLine]) -> list[TextLine]:
    """Return two lists of lines as one, in which the first line of `second` continues the last line of `first`.

    Args:
        first: The lines before; its last line is changed.
        between: The text between the joined lines.
        second: The lines after; not empty.
    """
    if not first:
        return second
    last, head = first[-1], second[0]
    last.text += between + head.text
    last.comment = last.comment or head.comment
    return first + second[1:]


def append_text(lines: list[TextLine], text: str) -> list[TextLine]:
    """Append `text` to the last line and return the lines."""
    lines[-1].text += text
    return lines


def wrap_in_brackets(lines: list[TextLine]) -> list[TextLine]:
    """Put `( )` around the lines and return the lines."""
    lines[0].text = "(" + lines[0].text
    lines[-1].text += ")"
    return lines


def print_lines(lines: list[TextLine]) -> str:
    """Return the file's text for the lines, with aligned columns and a newline at the end.

    Neighbouring lines of the same kind are aligned at their `=` or `{`, and then at their comments. Changes
    the lines.
    """
    for group in _group_aligned(lines, lambda line: bool(line.key), lambda line: line.split, 8):
        column = max(line.split for line in group)
        for line in group:
            line.text = line.text[: line.split].ljust(column) + line.text[line.split :]
    for group in _group_aligned(lines, lambda line: bool(line.comment and line.text), TextLine.width, 40):
        column = max(line.width() for line in group)
        for line in group:
            line.text += " " * (column - line.width() + 2) + line.comment
    texts: list[str] = []
    for line in lines:
        if line.blank and texts:
            texts.append("")
        text = line.text or line.comment
        texts.append("  " * line.indent + text if text else "")
    return "\n".join(texts) + "\n" if texts else ""


def _group_aligned(
    lines: Iterable[TextLine],
    is_alignable: Callable[[TextLine], bool],
    column_of: Callable[[TextLine], int],
    max_spread: int,
) -> Iterator[list[TextLine]]:
    """Yield groups of neighbouring lines to align with each other.

    The lines of a group have the same indentation and key, and no blank line between them. A line whose
    column differs by more than `max_spread` starts a new group, because it would widen the gaps of the others.
    A text of several lines is a group on its own.

    Args:
        lines: All lines of the file.
        is_alignable: Returns whether a line has something to align.
        column_of: Returns the column of a line that is to be aligned.
        max_spread: The largest difference, in columns, between the columns of a group.
    """
    group: list[TextLine] = []
    low = high = 0
    for line in lines:
        fits = is_alignable(line) and "\n" not in line.text
        column = column_of(line)
        if group and not (
            fits
            and not line.blank
            and (line.indent, line.key) == (group[-1].indent, group[-1].key)
            and max(high, column) - min(low, column) <= max_spread
        ):
            yield group
            group = []
        if fits:
            low, high = (min(low, column), max(high, column)) if group else (column, column)
            group.append(line)
        elif is_alignable(line):
            yield [line]
    if group:
        yield group


# Items over as many lines as they need


class Layout:
    """The layout of items, blocks and expressions: each method returns the lines that a node is written on."""

    def __init__(self, comments: CommentMap, width: int) -> None:
        self.comments = comments
        self.width = width

    # Items

    def module(self, module: tree.Module) -> list[TextLine]:
        """Return the lines of a file, with blank lines around imports and around items of several lines."""
        lines = self._lay_doc(module.doc, module.doc_span, 0)
        last = module.doc_span
        is_tall = len(lines) > 1 or any("\n" in line.text for line in lines)
        was_import = False
        for item in list_entries(module):
            item_lines = self._lay_item(item, 0)
            is_import = isinstance(item, tree.Import)
            needs_blank = bool(lines) and (is_tall or len(item_lines) > 1 or (was_import and not is_import))
            lines += self._lay_with_comments(item, item_lines, last, 0, needs_blank)
            last, is_tall, was_import = item.span, len(item_lines) > 1, is_import
        return lines + self._comments(self.comments.closing.get(id(module), []), last, 0)

    def _lay_items(self, block: tree.BraceBlock, indent: int) -> list[TextLine]:
        """Return the lines between the braces of a block: its docstring, items and comments."""
        lines = self._lay_doc(block.doc, block.doc_span, indent)
        last = block.doc_span
        for item in block.items:
            lines += self._lay_with_comments(item, self._lay_item(item, indent), last, indent, False)
            last = item.span
        lines += self._comments(self.comments.closing.get(id(block), []), last, indent)
        if lines:
            lines[0].blank = False
        return lines

    def _lay_doc(self, doc: str | None, span: Span | None, indent: int) -> list[TextLine]:
        """Return the lines of a docstring and its comments; no lines if `doc` is None.

        Args:
            doc: The docstring without indentation.
            span: The span of the docstring, to which its comments belong.
            indent: The indentation level.
        """
        if doc is None:
            return []
        line = TextLine(indent, doc_text(doc, indent))
        return [line] if span is None else self._lay_with_comments(span, [line], None, indent, False)

    def _lay_with_comments(
        self, entry: Entry, item_lines: list[TextLine], last: Span | None, indent: int, needs_blank: bool
    ) -> list[TextLine]:
        """Return an entry's lines, with the comments above and behind the entry.

        Args:
            entry: The item, argument or parameter; a span is a docstring.
            item_lines: The lines of the entry without its comments.
            last: The span of the entry before; a blank line after it is kept. None at the start.
            indent: The indentation level of the entry.
            needs_blank: Whether a blank line must come before the entry.
        """
        leading = self.comments.leading.get(id(entry), [])
        lines = self._comments(leading, last, indent)
        span = entry if isinstance(entry, Span) else entry.span
        above = leading[-1].span if leading else last
        item_lines[0].blank = above is not None and span.line - above.end_line > 1
        trailing = self.comments.trailing.get(id(entry))
        if trailing is not None:
            item_lines[-1].comment = trailing.text
        lines += item_lines
        lines[0].blank = lines[0].blank or needs_blank
        return lines

    def _comments(self, comments: Sequence[tree.Comment], last: Span | None, indent: int) -> list[TextLine]:
        """Return a line for each comment; a blank line before a comment in the source is kept.

        Args:
            comments: The comments in source order.
            last: The span before the first comment; None at the start of a file.
            indent: The indentation level.
        """
        lines = []
        for comment in comments:
            blank = last is not None and comment.span.line - last.end_line > 1
            lines.append(TextLine(indent, "", comment.text, blank))
            last = comment.span
        return lines

    def _lay_item(self, item: tree.Import | tree.ModuleItem | tree.BlockItem, indent: int) -> list[TextLine]:
        """Return the lines of an item of a file or a block."""
        match item:
            case tree.Import(module=module, names=names):
                text = f"from {module} import {', '.join(map(import_name_text, names))}"
                if 2 * indent + len(text) <= self.width:
                    return [TextLine(indent, text, key="import", split=len(f"from {module} "))]
                listed = [TextLine(indent + 1, f"{import_name_text(name)},") for name in names]
                return [TextLine(indent, f"from {module} import ("), *listed, TextLine(indent, ")")]
            case tree.Param():
                lines = self._lay_parameter(item, indent)
                lines[0].text = f"param {lines[0].text}"
                return append_text(lines, self._text_behind(item.doc, indent))
            case tree.Decl():
                return self._lay_decl(item, indent)
            case tree.Assignment(name=name, op=op, value=value, doc=doc):
                lines = self._lay_assignment(f"{name.name} ", op, value, indent, "item" if op == "=" else "")
                return append_text(lines, self._text_behind(doc, indent))
            case tree.Let(value=value):
                return self._lay_assignment(f"let {_let_head(item)} ", "=", value, indent, "let")
            case tree.Dense(var=var, over=over, body=body):
                head = self.expr(over, CHOICE, indent, self.width)
                head[0].text = f"dense {var.name} in {head[0].text}"
                return join_lines(head, ": ", self._lay_value(body, indent, head[-1].width() + 2))
            case tree.NamedBlock(name=name, args=args, block=block):
                lines = [TextLine(indent, name.name)]
                if args:
                    lines = self._lay_in_parens(lines, item, args, self._lay_arg)
                return self._lay_with_block(lines, block, "item")
            case tree.ExprStatement(expr=expr):
                return self._lay_statement(expr, indent)

    def _lay_decl(self, decl: tree.Decl, indent: int) -> list[TextLine]:
        """Return the lines of a declaration with its parameters, and its value or block."""
        lines = [TextLine(indent, f"{decl.kind.name} {decl.name.name}")]
        if decl.params is not None:
            lines = self._lay_in_parens(lines, decl, decl.params, self._lay_parameter)
        if decl.block is not None:
            return self._lay_with_block(lines, decl.block, "decl {")
        if decl.value is None:
            return lines
        split = len(lines[-1].text) + 1
        single = len(lines) == 1
        lines = join_lines(lines, " = ", self._lay_value(decl.value, indent, lines[-1].width() + 3))
        if single and len(lines) == 1:
            lines[0].key, lines[0].split = "decl =", split
        trailing = None if isinstance(decl.value, tree.Amend) else decl.doc
        return append_text(lines, self._text_behind(trailing, indent))

    def _lay_parameter(self, param: tree.Param | tree.ParamDecl, indent: int) -> list[TextLine]:
        """Return the lines of a parameter: `name: type = default in lower..upper`."""
        lines = [TextLine(indent, f"{param.name.name}: {type_text(param.type)}")]
        if param.default is not None:
            lines = join_lines(lines, " = ", self.expr(param.default, SUM, indent, self.width))
        if param.range is not None:
            lines = join_lines(lines, " in ", self.expr(param.range, RANGE, indent, self.width))
        return lines

    def _text_behind(self, doc: str | None, indent: int) -> str:
        """Return a space and the literal of the docstring that follows a value; empty if `doc` is None."""
        return "" if doc is None else f" {doc_text(doc, indent)}"

    def _lay_assignment(self, head: str, op: str, value: tree.Expr, indent: int, key: str) -> list[TextLine]:
        """Return the lines of `name = value`.

        Args:
            head: The text before the operator, with a space at its end.
            op: The operator, `=` or `+=`.
            value: The value.
            indent: The indentation level.
            key: The `TextLine.key` of the result if it is a single line: neighbours with this key are aligned
                at their operators. Empty to align nothing.
        """
        lines = join_lines(
            [TextLine(indent, f"{head}{op} ")],
            "",
            self._lay_value(value, indent, 2 * indent + len(head) + 2),
        )
        if len(lines) == 1 and key:
            lines[0].key, lines[0].split = key, len(head)
        return lines

    def _lay_statement(self, expr: tree.Expr, indent: int) -> list[TextLine]:
        """Return the lines of an expression as a statement of a block, in `( )` if `needs_brackets`."""
        if needs_brackets(expr):
            return wrap_in_brackets(self.expr(expr, CHOICE, indent, self.width))
        return self._lay_value(expr, indent, 2 * indent)

    def _lay_with_block(self, lines: list[TextLine], block: tree.BraceBlock, key: str) -> list[TextLine]:
        """Return the lines of a head followed by a block in `{ }`.

        Args:
            lines: The lines of the head.
            block: The block.
            key: The `TextLine.key` of the result if it is a single line: neighbours with this key are aligned
                at their `{`.
        """
        split = len(lines[-1].text) + 1
        single = len(lines) == 1
        lines = join_lines(lines, " ", self.block(block, lines[0].indent, self.width - lines[-1].width() - 1))
        if single and len(lines) == 1:
            lines[0].key, lines[0].split = key, split
        return lines

    def block(self, block: tree.BraceBlock, indent: int, max_width: int) -> list[TextLine]:
        """Return the lines of a block: a single line if it was written on one line and fits, else one item per line.

        Args:
            block: The block.
            indent: The indentation level of the line with the `{`.
            max_width: The columns that are left on this line.
        """
        lines = self._lay_items(block, indent + 1)
        has_docs = block.doc is not None or any(
            getattr(item, "doc", None) is not None for item in block.items
        )
        if block.span.line == block.span.end_line and not has_docs:
            text = f"{{ {', '.join(line.text for line in lines)} }}" if lines else "{}"
            is_complete = len(lines) == len(block.items) and "\n" not in text
            if is_complete and not self.comments.inside(block, block.items) and len(text) <= max_width:
                return [TextLine(indent, text)]
        lines = [TextLine(indent, "{"), *lines, TextLine(indent, "}")]
        opening = self.comments.opening.get(id(block))
        if opening is not None:
            lines[0].comment = opening.text
        return lines

    # Expressions

    def _lay_value(self, value: tree.Expr, indent: int, column: int) -> list[TextLine]:
        """Return the lines of an expression, broken in `( )` to one operand per line if it does not fit.

        Args:
            value: The expression.
            indent: The indentation level of the line on which the expression starts.
            column: The column at which the expression starts.
        """
        max_width, links = self.width - column, chain_parts(value)
        if len(links) < 2:
            return self.expr(value, CHOICE, indent, max_width)
        # Each operand is laid out once: laying it out twice would double the time at each level of nesting.
        broken: list[TextLine] = []
        for word, operand, level in links:
            operand_lines = self.expr(operand, level, indent + 1, self.width - 2 * indent - 2 - len(word))
            operand_lines[0].text = word + operand_lines[0].text
            broken += operand_lines
        text = " ".join(line.text for line in broken)
        if len(broken) == len(links) and _fits(text, max_width):
            return [TextLine(indent, text)]
        return [TextLine(indent, "("), *broken, TextLine(indent, ")")]

    def expr(self, expr: tree.Expr, level: int, indent: int, max_width: int) -> list[TextLine]:
        """Return the lines of an expression, in `( )` if it binds more loosely than `level`.

        Args:
            expr: The expression.
            level: The loosest binding that may be written without brackets, from `CHOICE` to `ATOM`.
            indent: The indentation level of the line on which the expression starts.
            max_width: The columns that are left on this line; calls and lists that need more are written over
                several lines.
        """
        match expr:
            case tree.Call(function=function, args=args):
                lines = self.expr(function, POSTFIX, indent, max_width)
                lines = self._lay_in_brackets(lines, "()", expr, args, self._lay_arg, max_width)
            case tree.ListExpr(items=items):
                lines = self._lay_in_brackets(
                    [TextLine(indent, "")], "[]", expr, items, self._lay_element, max_width
                )
            case tree.Amend(base=base, block=block):
                lines = self.expr(base, POSTFIX, indent, max_width)
                lines = join_lines(lines, " ", self.block(block, indent, max_width - len(lines[-1].text) - 1))
            case _:
                lines = [TextLine(indent, "")]
                for piece in operation_parts(expr):
                    if isinstance(piece, str):
                        lines[-1].text += piece
                    else:
                        space = max_width - len(lines[-1].text)
                        lines = join_lines(lines, "", self.expr(piece[0], piece[1], indent, space))
        return lines if binding(expr) >= level else wrap_in_brackets(lines)

    def _lay_in_parens(
        self,
        lines: list[TextLine],
        container: Container,
        items: Sequence[_Element],
        lay_item: Callable[[_Element, int], list[TextLine]],
    ) -> list[TextLine]:
        """Return the lines of a head followed by items in `( )`, on one line if a ` {` still fits behind them.

        Args:
            lines: The lines of the head.
            container: The node that has the items.
            items: The arguments or parameters.
            lay_item: Returns the lines of an item at an indentation level.
        """
        return self._lay_in_brackets(
            lines, "()", container, items, lay_item, self.width - 2 * lines[-1].indent - 2
        )

    def _lay_in_brackets(
        self,
        lines: list[TextLine],
        brackets: str,
        container: Container,
        items: Sequence[_Element],
        lay_item: Callable[[_Element, int], list[TextLine]],
        max_width: int,
    ) -> list[TextLine]:
        """Return the lines of a head and items in brackets: on one line if they fit, else one item per line.

        Args:
            lines: The lines of the head.
            brackets: The opening and the closing bracket, `()` or `[]`.
            container: The node that has the items; comments inside it force several lines.
            items: The arguments, parameters or list items.
            lay_item: Returns the lines of an item at an indentation level.
            max_width: The columns that are available from the start of the head's last line.
        """
        indent = lines[0].indent
        layouts = [lay_item(item, indent + 1) for item in items]
        text = brackets[0] + ", ".join(item[0].text for item in layouts) + brackets[1]
        is_single_line = all(len(item) == 1 for item in layouts) and not self.comments.inside(
            container, items
        )
        if is_single_line and _fits(text, max_width - len(lines[-1].text)):
            return append_text(lines, text)
        lines[-1].text += brackets[0]
        opening = self.comments.opening.get(id(container))
        if opening is not None:
            lines[-1].comment = opening.text
        inner: list[TextLine] = []
        last = None
        for item, item_lines in zip(items, layouts, strict=True):
            item_lines[-1].text += ","
            inner += self._lay_with_comments(item, item_lines, last, indent + 1, False)
            last = item.span
        inner += self._comments(self.comments.closing.get(id(container), []), last, indent + 1)
        if not inner and opening is None:
            return append_text(lines, brackets[1])
        if inner:
            inner[0].blank = False
        return [*lines, *inner, TextLine(indent, brackets[1])]

    def _lay_element(self, item: tree.Expr, indent: int) -> list[TextLine]:
        """Return the lines of an item of a list."""
        return self.expr(item, CHOICE, indent, self.width - 2 * indent - 1)

    def _lay_arg(self, arg: tree.Arg, indent: int) -> list[TextLine]:
        """Return the lines of a call's argument: `value`, `name: value`, `name in list` or `expr for name in list`.

        A comparison `name in list` is written in `( )`, since it would be read as an argument `name in list`.
        """
        max_width = self.width - 2 * indent - 1
        match arg.value:
            case tree.Binding(var=var, over=over):
                head = f"{var.name} in "
                return join_lines(
                    [TextLine(indent, head)], "", self.expr(over, RANGE, indent, max_width - len(head))
                )
            case tree.Comprehension(expr=expr, var=var, over=over, condition=condition):
                lines = self.expr(expr, CHOICE, indent, max_width)
                lines = join_lines(lines, f" for {var.name} in ", self.expr(over, OR, indent, max_width))
                if condition is not None:
                    lines = join_lines(lines, " if ", self.expr(condition, OR, indent, max_width))
                return lines
            case tree.Compare(op="in", left=tree.Name()) if arg.name is None:
                return wrap_in_brackets(self.expr(arg.value, CHOICE, indent, max_width - 2))
            case value:
                head = "" if arg.name is None else f"{arg.name.name}: "
                return join_lines(
                    [TextLine(indent, head)], "", self.expr(value, CHOICE, indent, max_width - len(head))
                )


def _fits(text: str, max_width: int) -> bool:
    """Return whether a text needs at most `max_width` columns.

    A text with a newline always counts as fitting, because a line break before or behind it would not help.
    """
    return "\n" in text or len(text) <= max_width
