"""Specs broken at random end in diagnostics inside the file, never in an exception.

`REODSL_MUTATIONS` sets how many per run (3000 for a thorough one); the sequence is the same each time.
"""

from __future__ import annotations

import os
import random
import re

import pytest

from reodsl.diagnostics import Diagnostic, Problem
from reodsl.diagnostics.render import render
from reodsl.syntax import Source, parse, source_from_bytes
from reodsl.syntax.formatter import format_source
from reodsl.syntax.tree import same, walk
from tests.syntax.trees import EVERY_SPEC

COUNT = int(os.environ.get("REODSL_MUTATIONS", "300"))
PARTS = 12
TEXTS = [path.read_bytes() for path in EVERY_SPEC]
TOKENS = re.compile(rb"\w+|\s+|[^\w\s]")
SPLICES = [
    *(
        b'( ) [ ] { } , ; : = += == .. . + - * / ^ < <= # " """ \\ \' @ % ! // ** -> \n \n\n \t 1e999 5k 0x1'
    ).split(b" "),
    *(
        b"from import as param let dense in for if else and or not true false experiment study 16K tokens"
    ).split(b" "),
    b"\x00",
    b"\xff\xfe",
    b"\xc3",
    "é×“”\u202e\u00a0\u2028\ufeff".encode(),
    b"((((((((",
    b"}}}}",
    b"{" * 100,
    b"(" * 1000,
    b"1 + " * 200,
    b"9" * 200,
    b"\r\n",
    b"\r",
    b"\x0c",
    b"\x1b[31m",
]


def mutated(draw: random.Random) -> bytes:
    """One of the specs, cut short, with bytes flipped, tokens deleted, doubled, swapped or spliced in."""
    data = draw.choice(TEXTS)
    for _ in range(draw.choice([1, 1, 1, 2, 3, 8])):
        way = draw.randrange(7)
        if way == 0:
            data = data[: draw.randrange(len(data) + 1)]
        elif way == 1:
            data = data[draw.randrange(len(data) + 1) :]
        elif way == 2 and data:
            at = draw.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        elif way == 3:
            at = draw.randrange(len(data) + 1)
            data = data[:at] + draw.choice(SPLICES) + data[at:]
        else:
            tokens = TOKENS.findall(data)
            if len(tokens) < 2:
                continue
            one, other = draw.randrange(len(tokens)), draw.randrange(len(tokens))
            if way == 4:
                del tokens[one]
            elif way == 5:
                tokens.insert(one, tokens[other])
            else:
                tokens[one], tokens[other] = tokens[other], tokens[one]
            data = b"".join(tokens)
    return data


def inside(diagnostic: Diagnostic, text: str) -> bool:
    """Every place of a diagnostic is in the text, or one column behind the end of a line."""
    lines = text.split("\n")
    for label in diagnostic.labels:
        span = label.span
        if not (1 <= span.line <= span.end_line <= len(lines) and span.column >= 1):
            return False
        if span.column > len(lines[span.line - 1]) + 1 or span.end_column > len(lines[span.end_line - 1]) + 2:
            return False
        if (span.end_line, span.end_column) <= (span.line, span.column):
            return False
    return bool(diagnostic.labels)


def read(data: bytes) -> Source | None:
    """The source, or None where one diagnostic says why the bytes are none."""
    try:
        return source_from_bytes(data, "spec.reo")
    except Problem as problem:
        codes = [d.code for d in problem.diagnostics]
    assert codes == ["E0101"]
    return None


def checked(data: bytes) -> None:
    source = read(data)
    if source is None:
        return
    result = parse(source)
    for diagnostic in result.diagnostics:
        assert inside(diagnostic, source.text), (diagnostic, data)
        assert diagnostic.message
        assert "\n" not in diagnostic.message
    shown = render(result.diagnostics, {"spec.reo": source.text})
    assert all(c == "\n" or c.isprintable() for c in shown), shown
    assert len(list(walk(result.module))) > 0
    formatted = format_source(source)
    assert (formatted.text is not None) == result.ok
    if formatted.text is not None:
        again = parse(Source("spec.reo", formatted.text))
        assert same(again.module, result.module), data
        assert sorted(c.text for c in again.comments) == sorted(c.text for c in result.comments)
        assert format_source(Source("spec.reo", formatted.text)).text == formatted.text


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_ends_in_an_exception(part: int) -> None:
    draw = random.Random(part)
    for _ in range(-(-COUNT // PARTS)):
        checked(mutated(draw))


def test_every_prefix_of_a_spec() -> None:
    for data in TEXTS[:5]:
        for end in range(0, len(data), 7):
            checked(data[:end])


def test_bytes_at_random() -> None:
    draw = random.Random(0)
    for _ in range(COUNT // 10):
        checked(draw.randbytes(draw.randrange(200)))
        checked("".join(draw.choices("abK(){}[]=,;:.\"#\\ \n1%^*/+-<>!'é", k=draw.randrange(120))).encode())
