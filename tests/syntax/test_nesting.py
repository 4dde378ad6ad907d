"""However deep: one diagnostic past the limit, and at the limit nothing that walks a tree runs out of stack."""

from __future__ import annotations

import copy
import pickle
import sys

import pytest

from reodsl.syntax import Source, parse
from reodsl.syntax.formatter import format_source
from reodsl.syntax.tree import same, walk

MANY = 3000
DEEP = {
    "blocks": ("study s { " + "a { " * MANY, "}" * MANY + " }"),
    "unclosed blocks": ("study s { " + "a { " * MANY, ""),
    "amended": ("study s = " + "a { b = " * MANY + "1", " }" * MANY),
    "parentheses": ("study s = " + "(" * MANY + "1", ")" * MANY),
    "lists": ("study s = " + "[" * MANY, "]" * MANY),
    "calls": ("study s = " + "f(" * MANY, ")" * MANY),
    "named arguments": ("study s = " + "f(a: " * MANY + "1", ")" * MANY),
    "types": ("param p: " + "[" * MANY + "int", "]" * MANY),
    "sum": ("study s = 1", " + 1" * MANY),
    "minus": ("study s = " + "-" * MANY, "1"),
    "not": ("study s = " + "not " * MANY, "a"),
    "power": ("study s = " + "a ^ " * MANY, "1"),
    "choice": ("study s = " + "a if b else " * MANY, "c"),
    "members": ("study s = a", ".b" * MANY),
    "indexes": ("study s = a", "[0]" * MANY),
    "call of a call": ("study s = a", "()" * MANY),
    "amended again": ("study s = a", " {}" * MANY),
    "mixed brackets": ("study s = " + "f([(g { a = " * MANY, " })])" * MANY),
    "braces": ("experiment e = ppo " + "{ " * MANY, "}" * MANY),
    "braces alone": ("{" * MANY, "}" * MANY),
    "unclosed braces": ("experiment e = ppo " + "{\n" * MANY, ""),
    "unclosed braces alone": ("{" * MANY, ""),
    "named braces": ("experiment e = ppo " + "{ a = b " * MANY, "}" * MANY),
    "closing brackets": ("", ")]}" * MANY),
    "opening brackets": ("study s = ", "([" * MANY),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_one_error(name: str) -> None:
    text = "".join(DEEP[name]) + "\nstudy behind { a = 1 }\n"
    result = parse(Source("deep.reo", text))
    assert len(result.diagnostics) == 1, result.diagnostics
    assert result.diagnostics[0].code == ("E0131" if name == "closing brackets" else "E0138")
    assert format_source(Source("deep.reo", text)).text is None


@pytest.mark.parametrize(
    ("head", "opener", "middle", "closer", "tail"),
    [
        ("study s { ", "a { ", "b = 1", " }", " }"),
        ("study s = ", "a { b = ", "1", " }", ""),
        ("study s = ", "f(a: ", "1", ")", ""),
        ("study s = ", "1 + ", "1", "", ""),
        ("study s = ", "[", "1", "]", ""),
        ("study s = ", "a if b else ", "1", "", ""),
        ("study s = ", "f(g(z) for z in y if ", "1", ")", ""),
        ("param p: ", "[", "int", "]", ""),
    ],
)
def test_what_is_allowed_leaves_room_on_the_stack(
    head: str, opener: str, middle: str, closer: str, tail: str
) -> None:
    low = 1
    while parse(Source("deep.reo", head + opener * (low + 1) + middle + closer * (low + 1) + tail)).ok:
        low += 1
    assert 20 <= low <= 65
    text = head + opener * low + middle + closer * low + tail
    module, again = parse(Source("deep.reo", text)).module, parse(Source("deep.reo", text)).module
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(900)  # as much as is left below a command line, a test or a notebook
    try:
        assert module == again
        assert same(module, again)
        assert hash(module) == hash(again)
        assert len(repr(module)) > low
        assert copy.deepcopy(module) == module
        assert pickle.loads(pickle.dumps(module)) == module
        assert sum(1 for _ in walk(module)) > low
        formatted = format_source(Source("deep.reo", text)).text
        assert formatted is not None
        assert same(parse(Source("deep.reo", formatted)).module, module)
    finally:
        sys.setrecursionlimit(limit)


def test_laying_out_deep_blocks_takes_linear_time() -> None:
    # Laid out twice at each level, this would take 2**45 steps.
    text = "study s = " + "a { b = f([" * 15 + "1" + "]) }" * 15
    assert format_source(Source("deep.reo", text + "\n")).text is not None
    spread = text.replace("{", "{\n").replace("}", "\n}")
    assert format_source(Source("deep.reo", spread + "\n")).text is not None
