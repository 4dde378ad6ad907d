"""Expressions: values and formulas are what they were, and everything else is refused before it is evaluated."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from runners.sandbox.expressions import check_formula

FUNCTIONS = frozenset({"sin", "sqrt"})
FORMULAS = [
    "Integer (3 )+Integer (4 )",
    "sin (Symbol ('x' ))",
    "Function ('f')(Symbol ('x'))",
    "pi *I",
    "C + x",
    "sqrt(2, evaluate=False)",
]
ESCAPES = [
    "exec ('1')",
    "Symbol ('x' ).diff ()",
    "sin ('__import__(\"os\")')",
    "sin (exec )",
    "Function ('f').__class__",
    "[].__class__",
    "sin (*[1])",
    "sin (lambda :1 )",
    "().__len__ ()",
    "Integer (3 )[0]",
    "open",
    "sin (b'x')",
    "sin (x =open )",
    "Symbol (Symbol ('x'))(1)",
]


@pytest.mark.parametrize("code", FORMULAS)
def test_formulas_pass(code: str) -> None:
    check_formula(code, FUNCTIONS, {"C", "x"})


@pytest.mark.parametrize("code", ESCAPES)
def test_more_than_a_formula_is_refused(code: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        check_formula(code, FUNCTIONS, {"C", "x"})


READ = [
    "2*x + 3", "x**2/4 - sqrt(2)", "sin(x)*exp(-x) + C", "log(x, 2)", "3!", "Abs(-3)", "abs(-3) + max(1, 2)",
    "1.5*pi", "E**(I*x)", "f(x) + 1", "Rational(1, 3)", "0.2[3]", "(46 - 3) * 2", "gamma(5)",
    "1e3", "atan(x) + asin(y)", "[1, 2]",
]  # fmt: skip


def test_sympy_reads_with_the_guard_what_it_read_without() -> None:
    """In a process of its own: the guard stays where it was set up."""
    code = (
        "import sys, json\n"
        "from sympy import srepr, sympify\n"
        "from sympy.parsing.sympy_parser import parse_expr\n"
        "texts = json.loads(sys.argv[1])\n"
        "def read():\n    return [(srepr(parse_expr(t)), srepr(parse_expr(t, evaluate=False))) for t in texts]\n"
        "before = read()\n"
        "from runners.sandbox.expressions import guard_sympy\n"
        "guard_sympy()\n"
        "assert read() == before\n"
        "for text in ('exec(\"print(1)\")', 'open(\"/etc/passwd\")', 'x.__class__', 'sin(\"exec(1)\")', 'S(\"1\")'):\n"
        "    for reads in (parse_expr, sympify):\n"
        "        try:\n            reads(text)\n"
        "        except Exception:\n            continue\n"
        "        raise SystemExit(f'{reads.__name__} read {text}')\n"
    )
    arguments: list[Any] = [sys.executable, "-P", "-c", code, __import__("json").dumps(READ)]
    told = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert (told.returncode, told.stderr) == (0, "")
