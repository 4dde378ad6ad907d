"""Let sympy's parser evaluate formulas only, and no other Python.

sympy's parser rewrites a text as Python code and passes the code to `eval`, which would run any Python. Here the code is
checked first, and raises ValueError if it is more than a formula.
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
_NAMERS = frozenset({"Symbol", "Function", "Float"})
"""Functions that sympy's parser calls with the text of a name or a decimal."""
_BUILDERS = frozenset({"Integer", "Rational", "Add", "Mul", "Pow", "Mod", "Eq", "Ne", "Lt", "Le", "Gt", "Ge"})
_ORDINARY = frozenset({"abs", "max", "min", "pow"})
_CONSTANTS = frozenset(
    {"pi", "E", "I", "oo", "zoo", "nan", "GoldenRatio", "EulerGamma", "Catalan", "TribonacciConstant"}
)


def guard_sympy() -> None:
    """Replace a function of sympy's parser, for all callers in this process, so that it checks its code first."""
    parser = import_module("sympy.parsing.sympy_parser")
    functions = frozenset(import_module("sympy.functions").__all__)
    write: Callable[..., str] = parser.stringify_expr

    def write_checked(
        text: str, local_dict: Any, global_dict: Any, transformations: Any, **options: Any
    ) -> str:
        """Replace `stringify_expr`: return the Python code for a text. Raises ValueError if it is no formula."""
        code = write(text, local_dict, global_dict, transformations, **options)
        check_formula(code, functions, frozenset(local_dict or ()))
        return code

    vars(parser)["stringify_expr"] = write_checked


def check_formula(code: str, functions: Collection[str], names: Collection[str]) -> None:
    """Check that Python code of sympy's parser is only a formula.

    A formula has numbers, operators, permitted names, and calls of permitted functions. It has no attributes, no
    subscripts, and no texts except the names of symbols.

    Args:
        code: The code.
        functions: The names of functions that a formula may call, besides sympy's basic functions.
        names: Further names that a formula may have.

    Raises:
        ValueError: The code is more than a formula.
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
    """Check that a call names a permitted function, or calls `Function('f')`.

    Args:
        node: The call.
        callable_names: The permitted functions.
        symbol_texts: The ids of nodes that are names of symbols, to which those of this call are added.

    Raises:
        ValueError: The call is not permitted.
    """
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
    """Return the syntax tree of a Python expression. Raises ValueError if it is too long or not an expression."""
    if len(text) > LONGEST_EXPRESSION:
        raise ValueError("an expression this long is not read")
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, MemoryError, RecursionError) as caught:
        raise ValueError(f"no expression: {caught}") from None
