"""Load the grammar of `grammar.lark`, and build the tree from what it has read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark
from lark.lexer import PatternStr, TerminalDef, Token

from reodsl.diagnostics.model import Diagnostic, Span, error
from reodsl.syntax import tree
from reodsl.syntax.literals import clean_doc

Children = list[
    Any
]  # of tokens (`scanner.Token`) and of what the methods below return; all of them have a `span`


class Rejection(Exception):
    """The signal of an item that fits the grammar and is still wrong; the parser recovers from it."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def join(first: Span, last: Span) -> Span:
    """Return the span from the start of a span to the end of another."""
    return Span(first.path, first.line, first.column, last.end_line, last.end_column)


def over(children: Children) -> Span:
    """Return the span of a rule's children, which are never empty."""
    return join(children[0].span, children[-1].span)


def unlink(chain: Any) -> tuple[Any, ...]:
    """Return the items of a chain of `one` and `more`, in order."""
    items = []
    while chain is not None:
        chain, item = chain
        if not (
            isinstance(item, tree.Decl) and not item.name.name
        ):  # the parser's stand-in for a broken head
            items.append(item)
    return tuple(reversed(items))


def _ident(token: Any) -> tree.Ident:
    return tree.Ident(token.text, token.span)


def _starts_together(outer: Span, inner: Span) -> bool:
    """Return whether two spans start together; brackets before `inner` are part of the outer span."""
    return outer.line == inner.line and outer.column == inner.column


class Builder:
    """The builder of the tree: the parser calls the method of a rule or its alias with the rule's tokens and nodes."""

    # Chains of items are linked and never changed, so that the parser can go back to an earlier state.

    def one(self, c: Children) -> tuple[None, Any]:
        return (None, c[0])

    def more(self, c: Children) -> tuple[Any, Any]:
        return (c[0], c[2])

    def first(self, c: Children) -> Children:
        return [c[0]]

    def another(self, c: Children) -> Children:
        c[0].append(c[2])
        return c[0]  # type: ignore[no-any-return]

    # A file

    def module(self, c: Children) -> tuple[Any, tuple[Any, ...]]:
        text = c[0] if c and getattr(c[0], "type", "") == "TEXT" else None
        chain = next((child for child in c if isinstance(child, tuple)), None)
        return text, unlink(chain)

    def next(self, c: Children) -> Children:
        c[0].append(c[1])
        return c[0]  # type: ignore[no-any-return]

    def dotted(self, c: Children) -> tree.Ident:
        return tree.Ident(f"{c[0].name}.{c[2].name}", over(c))

    def module_name(self, c: Children) -> tree.Ident:
        dots = c[0] if isinstance(c[0], list) else []
        names = c[1:] if dots else c
        words = [token.text for token in dots] + [ident.name for ident in names]
        return tree.Ident("".join(words), over([*dots, *names]))

    def import_name(self, c: Children) -> tree.ImportName:
        return tree.ImportName(c[0], c[2] if len(c) == 3 else None, over(c))

    def import_(self, c: Children) -> tree.Import:
        names = next(child for child in c if isinstance(child, list))
        last = c[-1] if c[-1] is not names else names[-1]
        return tree.Import(c[1].name, c[1].span, tuple(names), join(c[0].span, last.span))

    def param(self, c: Children) -> tree.Param:
        default, bounds, doc = _param_rest(c, 4)
        return tree.Param(c[1], c[3], default, bounds, doc, over(c))

    def bounds(self, c: Children) -> tree.Range:
        return tree.Range(c[1], c[3], join(c[1].span, c[3].span))

    # Declarations

    def decl_value(self, c: Children) -> tree.Decl:
        i = 2
        params = None
        if isinstance(c[2], _Params):
            params, i = c[2].items, 3
        value = c[i + 1]
        doc = _trailing_doc(value, c[i + 2] if len(c) > i + 2 else None)
        if isinstance(value, tree.Amend):
            doc = value.block.doc
        return tree.Decl(_ident(c[0]), c[1], params, value, None, doc, over(c))

    def decl_block(self, c: Children) -> tree.Decl:
        params = c[2].items if isinstance(c[2], _Params) else None
        return tree.Decl(_ident(c[0]), c[1], params, None, c[-1], c[-1].doc, over(c))

    def decl_params(self, c: Children) -> _Params:
        return _Params(tuple(c[1]) if len(c) > 2 else (), over(c))

    def decl_param(self, c: Children) -> tree.ParamDecl:
        default, bounds, _ = _param_rest(c, 3)
        return tree.ParamDecl(c[0], c[2], default, bounds, over(c))

    def type_name(self, c: Children) -> tree.TypeName:
        return tree.TypeName(c[0].name, c[0].span)

    def list_type(self, c: Children) -> tree.ListType:
        return tree.ListType(c[1], over(c))

    # Blocks

    def block(self, c: Children) -> tree.BraceBlock:
        items = unlink(c[1]) if isinstance(c[1], tuple) else ()
        doc = _bare_doc(items[0]) if items else None
        if doc is None:
            return tree.BraceBlock(None, items, over(c))
        return tree.BraceBlock(doc, items[1:], over(c), items[0].span)

    def setting(self, c: Children) -> tree.Assignment:
        doc = _trailing_doc(c[2], c[3] if len(c) == 4 else None)
        return tree.Assignment(c[0], c[1].text, c[2], doc, over(c))

    def let(self, c: Children) -> tree.Let:
        params = tuple(c[3]) if isinstance(c[3], list) else None
        return tree.Let(c[1], params, c[-1], over(c))

    def dense(self, c: Children) -> tree.Dense:
        return tree.Dense(c[1], c[3], c[5], over(c))

    def statement(self, c: Children) -> tree.NamedBlock | tree.ExprStatement:
        expr = c[0]
        if isinstance(expr, tree.Amend) and _starts_together(expr.span, expr.base.span):
            base = expr.base
            name, args = (base.function, base.args) if isinstance(base, tree.Call) else (base, ())
            if isinstance(name, tree.Name) and _starts_together(base.span, name.span):
                return tree.NamedBlock(tree.Ident(name.name, name.span), args, expr.block, expr.span)
        return tree.ExprStatement(expr, expr.span)

    # Expressions

    def if_else(self, c: Children) -> tree.IfElse:
        return tree.IfElse(c[0], c[2], c[4], over(c))

    def logic(self, c: Children) -> tree.Logic:
        return tree.Logic(c[1].text, c[0], c[2], over(c))

    def not_(self, c: Children) -> tree.Not:
        return tree.Not(c[1], over(c))

    def compare(self, c: Children) -> tree.Compare:
        return tree.Compare(c[1].text, c[0], c[2], over(c))

    def range_(self, c: Children) -> tree.Range:
        return tree.Range(c[0], c[2], over(c))

    def binary(self, c: Children) -> tree.Binary:
        return tree.Binary(c[1].text, c[0], c[2], over(c))

    def unary_(self, c: Children) -> tree.Unary:
        return tree.Unary(c[0].text, c[1], over(c))

    def attribute(self, c: Children) -> tree.Attribute:
        return tree.Attribute(c[0], c[2], over(c))

    def call(self, c: Children) -> tree.Call:
        return tree.Call(c[0], tuple(c[2]) if isinstance(c[2], list) else (), over(c))

    def index(self, c: Children) -> tree.Index:
        return tree.Index(c[0], c[2], over(c))

    def slice_(self, c: Children) -> tree.Slice:
        colon = next(i for i, child in enumerate(c) if getattr(child, "type", "") == "COLON")
        lower = c[2] if colon == 3 else None
        upper = c[colon + 1] if len(c) == colon + 3 else None
        return tree.Slice(c[0], lower, upper, over(c))

    def amend(self, c: Children) -> tree.Amend:
        return tree.Amend(c[0], c[1], over(c))

    def variable(self, c: Children) -> tree.Name:
        return tree.Name(c[0].text, c[0].span)

    def number(self, c: Children) -> tree.Number:
        value, suffix = c[0].payload
        unit = c[1] if len(c) == 2 else None
        return tree.Number(c[0].text, value, suffix, unit and unit.text, unit and unit.span, over(c))

    def string(self, c: Children) -> tree.String:
        return tree.String(c[0].payload, c[0].type == "TEXT", c[0].span)

    def bool_(self, c: Children) -> tree.Bool:
        return tree.Bool(c[0].type == "TRUE", c[0].span)

    def parens(self, c: Children) -> Any:
        return replace(c[1], span=over(c))

    def list_(self, c: Children) -> tree.ListExpr:
        return tree.ListExpr(tuple(c[1]) if isinstance(c[1], list) else (), over(c))

    def positional(self, c: Children) -> tree.Arg:
        value = c[0]
        if isinstance(value, tree.Compare) and value.op == "in" and isinstance(value.left, tree.Name):
            name = value.left
            if _starts_together(value.span, name.span):
                value = tree.Binding(tree.Ident(name.name, name.span), value.right, value.span)
        return tree.Arg(None, value, value.span)

    def named(self, c: Children) -> tree.Arg:
        return tree.Arg(c[0], c[2], over(c))

    def comprehension(self, c: Children) -> tree.Arg:
        span = over(c)
        value = tree.Comprehension(c[0], c[2], c[4], c[6] if len(c) == 7 else None, span)
        return tree.Arg(None, value, span)

    def name(self, c: Children) -> tree.Ident:
        return _ident(c[0])

    def any_name(self, c: Children) -> tree.Ident:
        return _ident(c[0])

    def expression(self, c: Children) -> Any:
        return c[0]


class _Params:
    """The parameters of a declaration, until the declaration is built."""

    __slots__ = ("items", "span")

    def __init__(self, items: tuple[tree.ParamDecl, ...], span: Span) -> None:
        self.items = items
        self.span = span


def _param_rest(c: Children, i: int) -> tuple[tree.Expr | None, tree.Range | None, str | None]:
    """Read the default, range and text of a param, each optional, from child `i` on."""
    default = bounds = doc = None
    while i < len(c):
        kind = getattr(c[i], "type", "")
        if kind == "EQUAL":
            default, i = c[i + 1], i + 2
        elif kind == "TEXT":
            doc, i = clean_doc(c[i].payload), i + 1
        else:
            bounds, i = c[i], i + 1
    return default, bounds, doc


def _trailing_doc(value: object, text: Any) -> str | None:
    """Read the text behind a value.

    Raises:
        Rejection: The value is a block, in which the text comes first.
    """
    if text is None:
        return None
    if isinstance(value, tree.Amend):
        raise Rejection(
            error(
                "E0139",
                "the docstring of a block comes first in it, not after it",
                text.span,
                help='write `{ """…""" … }`',
            )
        )
    return clean_doc(text.payload)


def _bare_doc(item: object) -> str | None:
    """Read the text of a triple-quoted statement, or None if the text is in brackets."""
    if isinstance(item, tree.ExprStatement) and isinstance(item.expr, tree.String) and item.expr.long:
        value, span = item.expr.value, item.span
        last = value.rpartition("\n")[2]
        start = span.column + 3 if "\n" not in value else 1
        if span.end_column == start + len(last) + 3:
            return clean_doc(value)
    return None


GRAMMAR = Path(__file__).with_name("grammar.lark")


class KeepAll:
    """A filter that keeps the terminals that no rule reads; `scanner.py` and `brackets.py` deal with them."""

    always_accept = ("NEWLINE", "COMMENT", "OPEN_TEXT", "OPEN_STRING", "FOREIGN", "STRAY", "SEP")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Pass all tokens on."""
        return stream


@cache
def load_grammar() -> Lark:
    """Return the parser of the grammar, loaded once a process."""
    return Lark(
        GRAMMAR.read_text(encoding="utf-8"),
        parser="lalr",
        lexer="basic",
        start=["expression", "module"],
        keep_all_tokens=True,
        maybe_placeholders=False,
        postlex=KeepAll(),
        transformer=Builder(),
        cache=cache_file(),
    )


def cache_file() -> str | bool:
    """Return the file for lark's tables in a folder that only this user can write, or False without such a folder.

    Lark unpickles this file, so nobody else may have made it or its folder.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reodsl"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except (OSError, RuntimeError):
        return False
    private = about.st_uid == os.getuid() and not about.st_mode & 0o022
    return str(folder / "grammar.pickle") if private else False


def terminals() -> list[TerminalDef]:
    """List the terminals in the order in which the lexer tries them."""
    lexer = load_grammar().parser.lexer.lexer
    # Lark sorts terminals, and finds out which words are names, as it makes its scanner.
    return list(lexer.scanner.terminals)


@cache
def words() -> dict[str, str]:
    """Return the terminals of keywords by spelling: `from` is `FROM`."""
    return {t.pattern.value: t.name for t in _spell_terminals() if t.pattern.value.isalpha()}


@cache
def signs() -> dict[str, str]:
    """Return the spelling of each sign by its terminal: `PLUS` is `+`."""
    return {t.name: t.pattern.value for t in _spell_terminals() if not t.pattern.value.isalpha()}


def _spell_terminals() -> list[TerminalDef]:
    return [t for t in load_grammar().terminals if isinstance(t.pattern, PatternStr)]
