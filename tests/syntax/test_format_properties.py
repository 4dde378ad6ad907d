"""Laws of the layout on generated trees and on specs strewn with comments."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reodsl.diagnostics import Span
from reodsl.syntax import Source, parse, tree
from reodsl.syntax.brackets import balance
from reodsl.syntax.formatter import format_module, format_source
from reodsl.syntax.literals import clean_doc
from reodsl.syntax.scanner import scan
from reodsl.syntax.tree import same
from tests.syntax.trees import EVERY_SPEC, source
from tests.syntax.words import WORDS

FLAT = Span("generated", 1, 1, 1, 2)
TALL = Span("generated", 1, 1, 2, 1)

names = st.sampled_from(["a", "b2", "_c", "mean", "a_name_that_is_rather_long_for_a_name", "e"])
any_names = names | st.sampled_from(WORDS)
idents = names.map(lambda name: tree.Ident(name, FLAT))
any_idents = any_names.map(lambda name: tree.Ident(name, FLAT))
characters = st.characters(codec="utf-8", exclude_characters="\r")
texts = st.text(characters, max_size=12) | st.sampled_from(
    ['"', "\\", "\n", '"""', "# no", "{", "a" * 90, "\u202e\t"]
)


def long_text(value: str) -> bool:
    return '"""' not in value and not value.endswith('"')


def as_doc(text: str) -> str:
    """A text that can be a docstring, cleaned for good."""
    text = clean_doc(text.replace('"""', "'").replace("\x00", ""))
    return text if clean_doc(text) == text else clean_doc(clean_doc(text))


docs = st.text(characters | st.sampled_from("\n  "), max_size=30).map(as_doc)
no_doc = st.none()
numbers = st.builds(
    lambda text, unit: tree.Number(text, 0, None, unit, None, FLAT),
    st.sampled_from(["0", "16K", "0.2%", "5e-6", "1_000", "2.50", "007", "1E5"]),
    st.none() | names,
).map(lambda node: parsed_number(node))


def parsed_number(node: tree.Number) -> tree.Number:
    """The node with the value its text has."""
    from reodsl.syntax.literals import read_number

    read = read_number(node.text)
    assert isinstance(read, tuple)
    return tree.Number(node.text, read[0], read[1], node.unit, None, FLAT)


atoms: st.SearchStrategy[Any] = st.one_of(
    numbers,
    texts.map(lambda value: tree.String(value, False, FLAT)),
    texts.filter(long_text).map(lambda value: tree.String(value, True, FLAT)),
    st.booleans().map(lambda value: tree.Bool(value, FLAT)),
    names.map(lambda name: tree.Name(name, FLAT)),
)


def tuples(elements: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(elements, max_size=most).map(tuple)


def is_binding(value: Any) -> bool:
    return isinstance(value, tree.Compare) and value.op == "in" and isinstance(value.left, tree.Name)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arguments = st.one_of(
        st.builds(lambda v: tree.Arg(None, v, FLAT), inner),
        st.builds(lambda n, v: tree.Arg(n, v, FLAT), any_idents, inner),
        # Only brackets tell these from bindings.
        st.builds(
            lambda n, v: tree.Arg(None, tree.Compare("in", tree.Name(n, FLAT), v, FLAT), FLAT), names, inner
        ),
        st.builds(lambda v, o: tree.Arg(None, tree.Binding(v, o, FLAT), FLAT), idents, inner),
        st.builds(
            lambda e, v, o, c: tree.Arg(None, tree.Comprehension(e, v, o, c, FLAT), FLAT),
            inner,
            idents,
            inner,
            st.none() | inner,
        ),
    )
    return st.one_of(
        st.builds(lambda v, n: tree.Attribute(v, n, FLAT), inner, any_idents),
        st.builds(lambda v, i: tree.Index(v, i, FLAT), inner, inner),
        st.builds(lambda v, lo, hi: tree.Slice(v, lo, hi, FLAT), inner, st.none() | inner, st.none() | inner),
        st.builds(lambda f, a: tree.Call(f, a, FLAT), inner, tuples(arguments)),
        st.builds(lambda op, v: tree.Unary(op, v, FLAT), st.sampled_from(["-", "+"]), inner),
        st.builds(
            lambda op, a, b: tree.Binary(op, a, b, FLAT),
            st.sampled_from(["+", "-", "*", "/", "^"]),
            inner,
            inner,
        ),
        st.builds(
            lambda op, a, b: tree.Compare(op, a, b, FLAT),
            st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in"]),
            inner,
            inner,
        ),
        st.builds(lambda op, a, b: tree.Logic(op, a, b, FLAT), st.sampled_from(["and", "or"]), inner, inner),
        st.builds(lambda v: tree.Not(v, FLAT), inner),
        st.builds(lambda a, b, c: tree.IfElse(a, b, c, FLAT), inner, inner, inner),
        st.builds(lambda i: tree.ListExpr(i, FLAT), tuples(inner)),
        st.builds(lambda lo, hi: tree.Range(lo, hi, FLAT), inner, inner),
        st.builds(lambda b, k: tree.Amend(b, k, FLAT), inner, blocks(inner, arguments)),
    )


types = st.recursive(
    names.map(lambda name: tree.TypeName(name, FLAT)),
    lambda inner: inner.map(lambda item: tree.ListType(item, FLAT)),
    max_leaves=3,
)


def bounds(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.builds(lambda lo, hi: tree.Range(lo, hi, FLAT), inner, inner)


def declarations(inner: st.SearchStrategy[Any], block: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    params = st.none() | tuples(
        st.builds(
            lambda n, t, d, r: tree.ParamDecl(n, t, d, r, FLAT),
            idents,
            types,
            st.none() | inner,
            bounds(inner),
        )
    )

    def valued(kind: Any, name: Any, given: Any, value: Any, doc: Any) -> tree.Decl:
        doc = value.block.doc if isinstance(value, tree.Amend) else doc
        return tree.Decl(kind, name, given, value, None, doc, FLAT)

    return st.one_of(
        st.builds(valued, idents, idents, params, inner, no_doc | docs),
        st.builds(lambda k, n, p, b: tree.Decl(k, n, p, None, b, b.doc, FLAT), idents, idents, params, block),
    )


def blocks(inner: st.SearchStrategy[Any], arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def setting(name: Any, op: Any, value: Any, doc: Any) -> tree.Assignment:
        return tree.Assignment(name, op, value, None if isinstance(value, tree.Amend) else doc, FLAT)

    def statement(expr: Any) -> Any:
        return tree.ExprStatement(expr, FLAT)

    simple = st.one_of(
        st.builds(setting, any_idents, st.sampled_from(["=", "+="]), inner, no_doc | docs),
        st.builds(
            lambda n, p, v: tree.Let(n, p, v, FLAT),
            idents,
            st.none() | st.lists(idents, min_size=1, max_size=2).map(tuple),
            inner,
        ),
        st.builds(lambda v, o, b: tree.Dense(v, o, b, FLAT), idents, inner, inner),
        inner.map(statement),
    )
    leaf = st.builds(
        lambda d, i, s: tree.BraceBlock(d, i, s), no_doc | docs, tuples(simple), st.sampled_from([FLAT, TALL])
    )
    called = names.map(lambda name: tree.Name(name, FLAT))
    items = st.one_of(
        simple,
        # Only brackets tell these from nested blocks and docstrings.
        st.builds(lambda b, k: statement(tree.Amend(b, k, FLAT)), called, leaf),
        st.builds(lambda f, k: statement(tree.Amend(tree.Call(f, (), FLAT), k, FLAT)), called, leaf),
        texts.filter(long_text).map(lambda value: statement(tree.String(value, True, FLAT))),
        st.builds(lambda n, a, b: tree.NamedBlock(n, a, b, FLAT), idents, tuples(arguments), leaf),
        declarations(inner, leaf),
    )
    return st.builds(
        lambda d, i, s: tree.BraceBlock(d, i, s), no_doc | docs, tuples(items), st.sampled_from([FLAT, TALL])
    )


expressions = st.recursive(atoms, grown, max_leaves=6)
plain_arguments = st.builds(lambda v: tree.Arg(None, v, FLAT), expressions).filter(
    lambda a: not is_binding(a.value)
)
params = st.builds(
    lambda n, t, d, r, doc: tree.Param(n, t, d, r, doc, FLAT),
    idents,
    types,
    st.none() | expressions,
    bounds(expressions),
    no_doc | docs,
)
imports = st.builds(
    lambda m, n: tree.Import(m, FLAT, n, FLAT),
    st.sampled_from(["std.models", ".", "..a.b", "x"]),
    st.lists(
        st.builds(lambda n, a: tree.ImportName(n, a, FLAT), idents, st.none() | idents),
        min_size=1,
        max_size=8,
    ).map(tuple),
)
modules = st.builds(
    lambda doc, i, items: tree.Module("generated", doc, i, items, FLAT),
    no_doc | docs,
    tuples(imports),
    tuples(params | declarations(expressions, blocks(expressions, plain_arguments))),
)


def canonical(module: tree.Module) -> str:
    text = format_module(module)
    again = parse(Source("generated", text))
    assert again.ok, (text, again.diagnostics)
    assert same(again.module, module), text
    return text


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(modules)
def test_reading_a_layout_gives_back_the_tree(module: tree.Module) -> None:
    read_back(module)


@pytest.mark.heavy
@settings(max_examples=2_000, suppress_health_check=list(HealthCheck))
@given(modules)
def test_reading_many_layouts_gives_back_their_trees(module: tree.Module) -> None:
    read_back(module)


def read_back(module: tree.Module) -> None:
    text = canonical(module)
    result = format_source(Source("generated", text))
    assert result.text == text


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(expressions)
def test_every_expression_survives_as_every_kind_of_value(expr: Any) -> None:
    doc = expr.block.doc if isinstance(expr, tree.Amend) else None
    decl = tree.Decl(tree.Ident("k", FLAT), tree.Ident("n", FLAT), None, expr, None, doc, FLAT)
    canonical(tree.Module("generated", None, (), (decl,), FLAT))


def strewn(text: str, draw: random.Random) -> str:
    """The text with numbered comments behind lines, on lines of their own, and inside ( ) and [ ]."""
    scanned = scan(Source("spec", text))
    balanced = balance(scanned.tokens)
    free = set()
    opened: list[str] = []
    for token in balanced.tokens:
        if token.type in ("LPAR", "LSQB", "LBRACE"):
            opened.append(token.type)
        elif token.type in ("RPAR", "RSQB", "RBRACE"):
            opened.pop()
        if opened and opened[-1] != "LBRACE":
            free.add((token.span.end_line, token.span.end_column))
    inside = {
        line
        for token in scanned.tokens
        if token.type == "TEXT"
        for line in range(token.span.line, token.span.end_line)
    }
    commented = {comment.span.line for comment in scanned.comments}
    out = []
    for number, line in enumerate(text.split("\n"), 1):
        places = [c for (at, c) in free if at == number]
        if number not in inside | commented and places and draw.random() < 0.3:
            column = draw.choice(places) - 1
            line = f"{line[:column]}  # inside {number}\n{line[column:]}"
        elif number not in inside | commented and draw.random() < 0.3:
            line = f"{line} # behind {number}" + "\n" * draw.randrange(3)
        out.append(line)
        if number not in inside and draw.random() < 0.2:
            out += [f"   # own {number}"] + [""] * draw.randrange(3)
    return "\n".join(out)


@pytest.mark.parametrize("path", EVERY_SPEC, ids=lambda path: path.stem)
def test_comments_anywhere_stay(path: Any) -> None:
    text = source(path).text
    added = 0
    for seed in range(2):
        commented = strewn(text, random.Random(seed))
        before = parse(Source("spec", commented))
        assert before.ok, before.diagnostics
        added += len(before.comments)
        once = format_source(Source("spec", commented)).text
        assert once is not None
        after = parse(Source("spec", once))
        assert same(before.module, after.module)
        assert Counter(c.text for c in before.comments) == Counter(c.text for c in after.comments)
        assert format_source(Source("spec", once)).text == once
    assert added > 2 * len(parse(Source("spec", text)).comments)
