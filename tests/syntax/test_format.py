"""The canonical layout: golden files, a second time changes nothing, the tree and every comment stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics.model import quote
from reodsl.syntax import Source, parse
from reodsl.syntax.formatter import format_source, long_text
from reodsl.syntax.literals import read_string
from reodsl.syntax.tree import same
from tests.syntax.trees import EVERY_SPEC, SPECS, source


def formatted(text: str) -> str:
    result = format_source(Source("a.reo", text))
    assert result.text is not None, result.diagnostics
    return result.text


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_layouts_are_as_they_were(path: Path, golden: Callable[[str, str], None]) -> None:
    golden(f"syntax/formatted/{path.name}", formatted(source(path).text))


@pytest.mark.parametrize("path", EVERY_SPEC, ids=lambda path: path.stem)
def test_meaning_and_comments_stay(path: Path) -> None:
    text = source(path).text
    once = formatted(text)
    before, after = parse(Source("a", text)), parse(Source("a", once))
    assert same(before.module, after.module)
    assert [c.text for c in before.comments] == [c.text for c in after.comments]
    assert formatted(once) == once


@pytest.mark.parametrize(
    "path", [path for path in EVERY_SPEC if path not in SPECS], ids=lambda path: path.stem
)
def test_what_the_project_ships_is_in_its_own_layout(path: Path) -> None:
    assert formatted(source(path).text) == source(path).text, "run `reodsl fmt stdlib specs`"


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        # spaces, separators, numbers
        ("study s{a=1;b=2 ,c+=[1,2,]}", "study s { a = 1, b = 2, c += [1, 2] }\n"),
        ("study s {a=1_00_0 steps\n}", "study s {\n  a = 1_000 steps\n}\n"),
        ("study s { }", "study s {}\n"),
        (
            "study s {\n\n\n  a=f( b:1,c , )\n\n\n\n  d=1\n\n}\n\n\n",
            "study s {\n  a = f(b: 1, c)\n\n  d = 1\n}\n",
        ),
        (
            "reward r {\n dense L in at: # why\n\n  x\n let a = 1\n}",
            "reward r {\n  # why\n  dense L in at: x\n  let a = 1\n}\n",
        ),
        ("param  n:[int]=[ 1,2 ]in 1 .. 2", "param n: [int] = [1, 2] in 1..2\n"),
        (
            "reward r ( a:int=1 in 0..2,b:[ number ] ) { a }",
            "reward r(a: int = 1 in 0..2, b: [number]) { a }\n",
        ),
        # brackets only where they are needed
        ("reward r { ((a))+(b*c)-((d+e)) }", "reward r { a + b * c - (d + e) }\n"),
        ("reward r { (a^b)^(-(c)) }", "reward r { (a^b)^-c }\n"),
        ("reward r { (a if b else c) + 1 }", "reward r { (a if b else c) + 1 }\n"),
        ("reward r { f((a in b), (c)) }", "reward r { f((a in b), c) }\n"),
        ("reward r { (a { }) }", "reward r { (a {}) }\n"),
        ("reward r { not (not a) and (b or c) }", "reward r { not not a and (b or c) }\n"),
        ("reward r { -(-1) - (-2) }", "reward r { --1 - -2 }\n"),
        # columns in runs, broken by blank lines and by very long names
        ("study s {\n a=1\n bbb=2\n\n cc=3\n}", "study s {\n  a   = 1\n  bbb = 2\n\n  cc = 3\n}\n"),
        (
            "study s {\n a=1\n b{c=1}\n a_very_long_name=2\n}",
            "study s {\n  a = 1\n  b { c = 1 }\n  a_very_long_name = 2\n}\n",
        ),
        ("from std.a import b\nfrom std.abc import d", "from std.a   import b\nfrom std.abc import d\n"),
        ("study s {\n arm a=b\n arm abc=d\n}", "study s {\n  arm a   = b\n  arm abc = d\n}\n"),
        # declarations over several lines stand apart
        ("study s {\n a=1\n}\nstudy t { }\nstudy u { }", "study s {\n  a = 1\n}\n\nstudy t {}\nstudy u {}\n"),
        ("from a import b\nparam n: int", "from a import b\n\nparam n: int\n"),
        # docstrings
        ('"""  One. """\nstudy s { """Two\n        lines.\n          deeper"""\n }', None),
        (
            'study s { text = """\\[ {\n  as it stands""" }',
            'study s {\n  text = """\\[ {\n  as it stands"""\n}\n',
        ),
        # comments
        ("#a\n\n\n#b\nstudy s { #c\n#d\n}#e\n#f", "#a\n\n#b\nstudy s {  #c\n  #d\n}  #e\n#f\n"),
        ("study s {\n a=1 #x\n bb=22222 #y\n}", "study s {\n  a  = 1      #x\n  bb = 22222  #y\n}\n"),
        ("study s { a = 1 } # why", "study s { a = 1 }  # why\n"),
        ("reward r(a: int, # the a\n b: int) { a }", "reward r(\n  a: int,  # the a\n  b: int,\n) { a }\n"),
        ("study s {\n a = (b # in brackets\n + c)\n}", "study s {\n  # in brackets\n  a = b + c\n}\n"),
        ("# only a comment", "# only a comment\n"),
        ("from a import (b, # why\n c)", "# why\nfrom a import b, c\n"),
    ],
)
def test_one_layout(text: str, layout: str | None) -> None:
    once = formatted(text)
    if layout is None:
        assert once == '"""One."""\n\nstudy s {\n  """Two\n  lines.\n    deeper\n  """\n}\n'
    else:
        assert once == layout
    assert formatted(once) == once
    before, after = parse(Source("a", text)), parse(Source("a", once))
    assert same(before.module, after.module)
    assert [c.text for c in before.comments] == [c.text for c in after.comments]


def test_what_is_too_long_is_broken() -> None:
    name = "a_name_of_some_length"
    call = ", ".join(f"{name}: {name}_{n}" for n in range(4))
    text = f"study s {{ a = f({call}) }}\n"
    assert formatted(text) == (
        "study s {\n  a = f(\n" + "".join(f"    {name}: {name}_{n},\n" for n in range(4)) + "  )\n}\n"
    )
    chain = " + ".join(f"{name}_{n} * {n}" for n in range(5))
    broken = formatted(f"study s {{ a = {chain} }}\n")
    assert broken == (
        f"study s {{\n  a = (\n    {name}_0 * 0\n"
        + "".join(f"    + {name}_{n} * {n}\n" for n in range(1, 5))
        + "  )\n}\n"
    )
    names = ", ".join(f"{name}_{n}" for n in range(6))
    assert formatted(f"from std import {names}") == (
        "from std import (\n" + "".join(f"  {name}_{n},\n" for n in range(6)) + ")\n"
    )
    for line in (broken + formatted(text)).split("\n"):
        assert len(line) <= 120


def test_an_inline_block_that_is_too_long_is_opened() -> None:
    settings = ", ".join(f"setting_number_{n} = {n}" for n in range(8))
    assert formatted(f"study s {{ {settings} }}").count("\n") == 10


def test_a_file_with_errors_is_refused() -> None:
    result = format_source(Source("a.reo", "study s { a = }\n"))
    assert result.text is None
    assert [d.code for d in result.diagnostics] == ["E0140"]


def test_a_warning_does_not_stand_in_the_way() -> None:
    assert format_source(Source("a.reo", 'study s { a = """\\n""" }\n')).text is not None


@pytest.mark.parametrize("value", ['say """so"""', 'ends in "', "a\rb"])
def test_a_text_that_cannot_be_in_triple_quotes_is_escaped(value: str) -> None:
    spelled = long_text(value)
    assert spelled == quote(value)
    assert read_string(spelled) == (value, [])
