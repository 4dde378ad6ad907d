"""Load the grammar of `grammar.lark`, and build the syntax tree from the tokens and nodes of its rules."""

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
    """The exception for an item that fits the grammar but is still wrong; the parser reports it and goes on."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def join(first: Span, last: Span) -> Span:
    """Return the span from the start of `first` to the end of `last`."""
    return Span(first.path, first.line, first.column, last.end_line, last.end_column)


def over(nodes: Children) -> Span:
    """Return the span that covers all nodes of a grammar rule, of which there is at least one."""
    return join(nodes[0].span, nodes[-1].span)


def unlink(chain: Any) -> tuple[Any, ...]:
    """Return the items of a linked chain in order.

    Nameless declarations are left out: the parser puts them in place of heads that have an error.

    Args:
        chain: Nested pairs (chain of the items before, item) as `Builder.one` and `Builder.more` make them,
            or None if empty.
    """
    items = []
    while chain is not None:
        chain, item = chain
        if not (
            isinstance(item, tree.Decl) and not item.name.name
        ):  # the parser's stand-in for a broken head
            items.append(item)
    return tuple(reversed(items))


def _ident(token: Any) -> tree.Ident:
    """Return a token as an identifier."""
    return tree.Ident(token.text, token.span)


def _starts_together(outer: Span, inner: Span) -> bool:
    """Return whether a node begins with an inner node, without a bracket before the inner node.

    The span of a node in `( )` includes the brackets. So the starts of the spans are equal only if there is no
    opening bracket.

    Args:
        outer: The span of the node.
        inner: The span of the inner node.
    """
    return outer.line == inner.line and outer.column == inner.column


class Builder:
    """The builder of the tree: for each grammar rule the parser calls the method with the name of the rule."""

    # Linked chains of items are never changed, so that the parser can go back to an earlier state.

    def one(self, nodes: Children) -> tuple[None, Any]:
        """Start a linked chain of items: a pair of None and the item."""
        return (None, nodes[0])

    def more(self, nodes: Children) -> tuple[Any, Any]:
        """Return a linked chain with one more item: a pair of the chain before and the item."""
        return (nodes[0], nodes[2])

    def first(self, nodes: Children) -> Children:
        """Start a list with the only child."""
        return [nodes[0]]

    def another(self, nodes: Children) -> Children:
        """Append the child behind the comma to the list of the first child, and return the list."""
        nodes[0].append(nodes[2])
        return nodes[0]  # type: ignore[no-any-return]

    # A file

    def module(self, nodes: Children) -> tuple[Any, tuple[Any, ...]]:
        """Return the token of the file's docstring (or None) and the items of the file."""
        text = nodes[0] if nodes and getattr(nodes[0], "type", "") == "TEXT" else None
        chain = next((child for child in nodes if isinstance(child, tuple)), None)
        return text, unlink(chain)

    def next(self, nodes: Children) -> Children:
        """Append the second child to the list of the first child, and return the list."""
        nodes[0].append(nodes[1])
        return nodes[0]  # type: ignore[no-any-return]

    def dotted(self, nodes: Children) -> tree.Ident:
        """Build one identifier from `a.b`."""
        return tree.Ident(f"{nodes[0].name}.{nodes[2].name}", over(nodes))

    def module_name(self, nodes: Children) -> tree.Ident:
        """Build the identifier of a module from optional leading dots and a dotted name."""
        dots = nodes[0] if isinstance(nodes[0], list) else []
        names = nodes[1:] if dots else nodes
        words = [token.text for token in dots] + [ident.name for ident in names]
        return tree.Ident("".join(words), over([*dots, *names]))

    def import_name(self, nodes: Children) -> tree.ImportName:
        """Build an imported name, `name` or `name as alias`."""
        return tree.ImportName(nodes[0], nodes[2] if len(nodes) == 3 else None, over(nodes))

    def import_(self, nodes: Children) -> tree.Import:
        """Build `from MODULE import NAME, NAME`, with or without `( )`."""
        names = next(child for child in nodes if isinstance(child, list))
        last = nodes[-1] if nodes[-1] is not names else names[-1]
        return tree.Import(nodes[1].name, nodes[1].span, tuple(names), join(nodes[0].span, last.span))

    def param(self, nodes: Children) -> tree.Param:
        """Build `param NAME: TYPE = DEFAULT in LOWEST..HIGHEST`; default, range and docstring are optional."""
        default, bounds, doc = _param_rest(nodes, 4)
        return tree.Param(nodes[1], nodes[3], default, bounds, doc, over(nodes))

    def bounds(self, nodes: Children) -> tree.Range:
        """Build the range of `in LOWEST..HIGHEST`."""
        return tree.Range(nodes[1], nodes[3], join(nodes[1].span, nodes[3].span))

    # Declarations

    def decl_value(self, nodes: Children) -> tree.Decl:
        """Build a declaration with a value, `KIND NAME(PARAMS) = VALUE`.

        The docstring is the text after the value. If the value is `BASE { … }`, it is the block's docstring.
        """
        i = 2
        params = None
        if isinstance(nodes[2], _Params):
            params, i = nodes[2].items, 3
        value = nodes[i + 1]
        doc = _trailing_doc(value, nodes[i + 2] if len(nodes) > i + 2 else None)
        if isinstance(value, tree.Amend):
            doc = value.block.doc
        return tree.Decl(_ident(nodes[0]), nodes[1], params, value, None, doc, over(nodes))

    def decl_block(self, nodes: Children) -> tree.Decl:
        """Build a declaration with a block, `KIND NAME(PARAMS) { … }`."""
        params = nodes[2].items if isinstance(nodes[2], _Params) else None
        return tree.Decl(_ident(nodes[0]), nodes[1], params, None, nodes[-1], nodes[-1].doc, over(nodes))

    def decl_params(self, nodes: Children) -> _Params:
        """Return the parameters in `( )` of a declaration; there may be none."""
        return _Params(tuple(nodes[1]) if len(nodes) > 2 else (), over(nodes))

    def decl_param(self, nodes: Children) -> tree.ParamDecl:
        """Build a parameter of a declaration, `NAME: TYPE = DEFAULT in LOWEST..HIGHEST`."""
        default, bounds, _ = _param_rest(nodes, 3)
        return tree.ParamDecl(nodes[0], nodes[2], default, bounds, over(nodes))

    def type_name(self, nodes: Children) -> tree.TypeName:
        """Build a type that is a name."""
        return tree.TypeName(nodes[0].name, nodes[0].span)

    def list_type(self, nodes: Children) -> tree.ListType:
        """Build the type of a list, `[TYPE]`."""
        return tree.ListType(nodes[1], over(nodes))

    # Blocks

    def block(self, nodes: Children) -> tree.BraceBlock:
        """Build `{ … }`; a triple-quoted text that is the first item becomes the block's docstring."""
        items = unlink(nodes[1]) if isinstance(nodes[1], tuple) else ()
        doc = _bare_doc(items[0]) if items else None
        if doc is None:
            return tree.BraceBlock(None, items, over(nodes))
        return tree.BraceBlock(doc, items[1:], over(nodes), items[0].span)

    def setting(self, nodes: Children) -> tree.Assignment:
        """Build `NAME = VALUE` or `NAME += VALUE`, with an optional docstring behind the value."""
        doc = _trailing_doc(nodes[2], nodes[3] if len(nodes) == 4 else None)
        return tree.Assignment(nodes[0], nodes[1].text, nodes[2], doc, over(nodes))

    def let(self, nodes: Children) -> tree.Let:
        """Build `let NAME = VALUE` or `let NAME(PARAMS) = VALUE`."""
        params = tuple(nodes[3]) if isinstance(nodes[3], list) else None
        return tree.Let(nodes[1], params, nodes[-1], over(nodes))

    def dense(self, nodes: Children) -> tree.Dense:
        """Build `dense NAME in LIST: BODY`."""
        return tree.Dense(nodes[1], nodes[3], nodes[5], over(nodes))

    def statement(self, nodes: Children) -> tree.NamedBlock | tree.ExprStatement:
        """Build a named block from `NAME { … }` or `NAME(ARGS) { … }`, or a statement from any other expression.

        An opening bracket before the name, as in `(name) { … }`, makes it an expression.
        """
        expr = nodes[0]
        if isinstance(expr, tree.Amend) and _starts_together(expr.span, expr.base.span):
            base = expr.base
            name, args = (base.function, base.args) if isinstance(base, tree.Call) else (base, ())
            if isinstance(name, tree.Name) and _starts_together(base.span, name.span):
                return tree.NamedBlock(tree.Ident(name.name, name.span), args, expr.block, expr.span)
        return tree.ExprStatement(expr, expr.span)

    # Expressions

    def if_else(self, nodes: Children) -> tree.IfElse:
        """Build `A if CONDITION else B`."""
        return tree.IfElse(nodes[0], nodes[2], nodes[4], over(nodes))

    def logic(self, nodes: Children) -> tree.Logic:
        """Build `A and B` or `A or B`."""
        return tree.Logic(nodes[1].text, nodes[0], nodes[2], over(nodes))

    def not_(self, nodes: Children) -> tree.Not:
        """Build `not A`."""
        return tree.Not(nodes[1], over(nodes))

    def compare(self, nodes: Children) -> tree.Compare:
        """Build a comparison such as `A < B`."""
        return tree.Compare(nodes[1].text, nodes[0], nodes[2], over(nodes))

    def range_(self, nodes: Children) -> tree.Range:
        """Build `LOWER..UPPER`."""
        return tree.Range(nodes[0], nodes[2], over(nodes))

    def binary(self, nodes: Children) -> tree.Binary:
        """Build a sum, difference, product, quotient or power."""
        return tree.Binary(nodes[1].text, nodes[0], nodes[2], over(nodes))

    def unary_(self, nodes: Children) -> tree.Unary:
        """Build `-A` or `+A`."""
        return tree.Unary(nodes[0].text, nodes[1], over(nodes))

    def attribute(self, nodes: Children) -> tree.Attribute:
        """Build `VALUE.NAME`."""
        return tree.Attribute(nodes[0], nodes[2], over(nodes))

    def call(self, nodes: Children) -> tree.Call:
        """Build `FUNCTION(ARGS)`."""
        return tree.Call(nodes[0], tuple(nodes[2]) if isinstance(nodes[2], list) else (), over(nodes))

    def index(self, nodes: Children) -> tree.Index:
        """Build `VALUE[INDEX]`."""
        return tree.Index(nodes[0], nodes[2], over(nodes))

    def slice_(self, nodes: Children) -> tree.Slice:
        """Build `VALUE[LOWER:UPPER]`, in which either bound may be missing."""
        colon = next(i for i, child in enumerate(nodes) if getattr(child, "type", "") == "COLON")
        lower = nodes[2] if colon == 3 else None
        upper = nodes[colon + 1] if len(nodes) == colon + 3 else None
        return tree.Slice(nodes[0], lower, upper, over(nodes))

    def amend(self, nodes: Children) -> tree.Amend:
        """Build `BASE { … }`, a value with some of its settings replaced."""
        return tree.Amend(nodes[0], nodes[1], over(nodes))

    def variable(self, nodes: Children) -> tree.Name:
        """Build the use of a name."""
        return tree.Name(nodes[0].text, nodes[0].span)

    def number(self, nodes: Children) -> tree.Number:
        """Build a number with an optional unit; the scanner has put (value, suffix) into the token's payload."""
        value, suffix = nodes[0].payload
        unit = nodes[1] if len(nodes) == 2 else None
        return tree.Number(nodes[0].text, value, suffix, unit and unit.text, unit and unit.span, over(nodes))

    def string(self, nodes: Children) -> tree.String:
        """Build a text; a `TEXT` token is one in triple quotes."""
        return tree.String(nodes[0].payload, nodes[0].type == "TEXT", nodes[0].span)

    def bool_(self, nodes: Children) -> tree.Bool:
        """Build `true` or `false`."""
        return tree.Bool(nodes[0].type == "TRUE", nodes[0].span)

    def parens(self, nodes: Children) -> Any:
        """Return the expression in `( )`, with a span that includes the brackets."""
        return replace(nodes[1], span=over(nodes))

    def list_(self, nodes: Children) -> tree.ListExpr:
        """Build a list in `[ ]`."""
        return tree.ListExpr(tuple(nodes[1]) if isinstance(nodes[1], list) else (), over(nodes))

    def positional(self, nodes: Children) -> tree.Arg:
        """Build an unnamed argument; `NAME in LIST` without brackets binds the name instead of comparing."""
        value = nodes[0]
        if isinstance(value, tree.Compare) and value.op == "in" and isinstance(value.left, tree.Name):
            name = value.left
            if _starts_together(value.span, name.span):
                value = tree.Binding(tree.Ident(name.name, name.span), value.right, value.span)
        return tree.Arg(None, value, value.span)

    def named(self, nodes: Children) -> tree.Arg:
        """Build an argument `NAME: VALUE`."""
        return tree.Arg(nodes[0], nodes[2], over(nodes))

    def comprehension(self, nodes: Children) -> tree.Arg:
        """Build an argument `EXPR for NAME in LIST if CONDITION`, of which the condition is optional."""
        span = over(nodes)
        value = tree.Comprehension(nodes[0], nodes[2], nodes[4], nodes[6] if len(nodes) == 7 else None, span)
        return tree.Arg(None, value, span)

    def name(self, nodes: Children) -> tree.Ident:
        return _ident(nodes[0])

    def any_name(self, nodes: Children) -> tree.Ident:
        return _ident(nodes[0])

    def expression(self, nodes: Children) -> Any:
        return nodes[0]


class _Params:
    """The parameters of a declaration with the span of their brackets, until the declaration is built."""

    __slots__ = ("items", "span")

    def __init__(self, items: tuple[tree.ParamDecl, ...], span: Span) -> None:
        self.items = items
        self.span = span


def _param_rest(nodes: Children, i: int) -> tuple[tree.Expr | None, tree.Range | None, str | None]:
    """Return the default, range and docstring of a parameter, each None if it is missing.

    Args:
        nodes: The tokens and nodes of the parameter's rule.
        i: The index of the first child behind the type.
    """
    default = bounds = doc = None
    while i < len(nodes):
        kind = getattr(nodes[i], "type", "")
        if kind == "EQUAL":
            default, i = nodes[i + 1], i + 2
        elif kind == "TEXT":
            doc, i = clean_doc(nodes[i].payload), i + 1
        else:
            bounds, i = nodes[i], i + 1
    return default, bounds, doc


def _trailing_doc(value: object, text: Any) -> str | None:
    """Return the docstring behind a value, without indentation; None if there is none.

    Args:
        value: The value before the docstring.
        text: The token of the docstring, or None.

    Raises:
        Rejection: E0139, if the value is `BASE { … }`, whose docstring must be the first item of its block.
    """
    if text is None:
        return None
    if isinstance(value, tree.Amend):
        raise Rejection(
            error(
                "E0139",
                "the docstring of a block is its first item, and does not follow it",
                text.span,
                help='write `{ """…""" … }`',
            )
        )
    return clean_doc(text.payload)


def _bare_doc(item: object) -> str | None:
    """Return the docstring if a block item is a triple-quoted text without brackets around it; else None.

    A text in brackets is recognised by its span, which includes the brackets and so ends behind the closing
    quotes.
    """
    if isinstance(item, tree.ExprStatement) and isinstance(item.expr, tree.String) and item.expr.long:
        value, span = item.expr.value, item.span
        last = value.rpartition("\n")[2]
        first_column = span.column + 3 if "\n" not in value else 1
        if span.end_column == first_column + len(last) + 3:
            return clean_doc(value)
    return None


GRAMMAR = Path(__file__).with_name("grammar.lark")


class KeepAll:
    """A lexer filter that keeps the terminals that no grammar rule uses; `scanner.py` and `brackets.py` need them."""

    always_accept = ("NEWLINE", "COMMENT", "OPEN_TEXT", "OPEN_STRING", "FOREIGN", "STRAY", "SEP")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Return all tokens unchanged."""
        return stream


@cache
def load_grammar() -> Lark:
    """Return the parser for `grammar.lark`; it is built once per process."""
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
    """Return the path of the cache file for lark's parse tables; False if no folder is safe for it.

    Lark unpickles this file, so its folder must belong to this user, and nobody else may write to the folder.
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
    """Return the terminals in the order in which the lexer tries them."""
    lexer = load_grammar().parser.lexer.lexer
    # Lark sorts the terminals when it creates its scanner.
    return list(lexer.scanner.terminals)


@cache
def words() -> dict[str, str]:
    """Return the terminal of each keyword by its spelling: `from` gives `FROM`."""
    return {t.pattern.value: t.name for t in _spell_terminals() if t.pattern.value.isalpha()}


@cache
def signs() -> dict[str, str]:
    """Return the spelling of each sign by its terminal: `PLUS` gives `+`."""
    return {t.name: t.pattern.value for t in _spell_terminals() if not t.pattern.value.isalpha()}


def _spell_terminals() -> list[TerminalDef]:
    """Return the terminals that are a fixed text: keywords and signs."""
    return [t for t in load_grammar().terminals if isinstance(t.pattern, PatternStr)]
