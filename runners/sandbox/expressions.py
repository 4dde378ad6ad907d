"""Evaluate somebody else's expressions; anything beyond arithmetic is a ValueError.

sympy's parser hands what it reads to `eval`. What it means to read is a formula; what it runs is any Python. Here the first
is kept and the rest refused, before anything is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

LONGEST_EXPRESSION = 20_000
_PLAIN = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)
_NUMBERS = (int, float, complex, bool)
# What sympy's parser writes around names and decimals that it finds.
_NAMERS = frozenset({"Symbol", "Function", "Float"})
_BUILDERS = frozenset({"Integer", "Rational", "Add", "Mul", "Pow", "Mod", "Eq", "Ne", "Lt", "Le", "Gt", "Ge"})
_ORDINARY = frozenset({"abs", "max", "min", "pow"})
_CONSTANTS = frozenset(
    {"pi", "E", "I", "oo", "zoo", "nan", "GoldenRatio", "EulerGamma", "Catalan", "TribonacciConstant"}
)


def guard_sympy() -> None:
    """Make sympy's parser refuse, for every caller, what `check_formula` refuses."""
    parser = import_module("sympy.parsing.sympy_parser")
    functions = frozenset(import_module("sympy.functions").__all__)
    write: Callable[..., str] = parser.stringify_expr

    def write_checked(text: str, local_dict: Any, global_dict: Any, transformations: Any, **more: Any) -> str:
        code = write(text, local_dict, global_dict, transformations, **more)
        check_formula(code, functions, frozenset(local_dict or ()))
        return code

    vars(parser)["stringify_expr"] = write_checked


def check_formula(code: str, functions: Collection[str], names: Collection[str]) -> None:
    """Raise ValueError for `code` of sympy's parser that is more than a formula.

    `functions` can be called; `names` are the caller's own. No attribute, no item, no text but a symbol's name.
    """
    callable_names = {*functions, *_NAMERS, *_BUILDERS, *_ORDINARY}
    allowed = {*callable_names, *_CONSTANTS, *names}
    tree = _parsed(code)
    symbol_texts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _check_call(node, callable_names, symbol_texts)
        elif isinstance(node, ast.Name):
            if node.id not in allowed:
                raise ValueError(f"`{node.id}` is not part of a formula")
        elif isinstance(node, ast.Constant):
            if not isinstance(node.value, _NUMBERS) and id(node) not in symbol_texts:
                raise ValueError("a text is not part of a formula")
        elif not isinstance(node, (*_PLAIN, ast.keyword)):
            raise ValueError(f"{type(node).__name__} is not part of a formula")


def _check_call(node: ast.Call, callable_names: Collection[str], symbol_texts: set[int]) -> None:
    """Check that a call is of a function by name, or of `Function('f')`, and note the texts in it."""
    callee = node.func
    if isinstance(callee, ast.Call) and isinstance(callee.func, ast.Name) and callee.func.id == "Function":
        return
    if not isinstance(callee, ast.Name) or callee.id not in callable_names:
        raise ValueError("a formula calls functions by their names")
    if callee.id in _NAMERS:
        symbol_texts.update(
            id(arg) for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        )


def _parsed(text: str) -> ast.Expression:
    if len(text) > LONGEST_EXPRESSION:
        raise ValueError("an expression this long is not read")
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, MemoryError, RecursionError) as caught:
        raise ValueError(f"no expression: {caught}") from None
