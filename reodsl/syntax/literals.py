"""Read numbers, texts and docstrings, and spell them canonically."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from reodsl.syntax.tree import Suffix

LONGEST_NUMBER = 64
MOST_FAULTS = 1000
"""The most faulty escapes reported of one text; far more than are shown."""

_NUMBER = re.compile(
    r"(?P<mantissa>[0-9]+(?:_[0-9]+)*(?:\.[0-9]+(?:_[0-9]+)*)?(?:[eE][+-]?[0-9]+)?)(?P<suffix>[KMG%]?)"
)
_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class LiteralFault:
    """A fault in a literal, and what to write instead."""

    code: str
    message: str
    help: str
    offset: int
    """The offset of the fault in the literal, in characters."""
    length: int
    """The length of the fault, in characters."""
    assumed_value: tuple[int | float, Suffix | None] = (0, None)
    """The value that a faulty number is taken for, so that no second finding follows."""


def read_number(text: str) -> tuple[int | float, Suffix | None] | LiteralFault:
    """Read a number: `16K` is (16, "K"), `0.2%` is (0.2, "%"), `1_000` is (1000, None).

    Returns:
        The number without its suffix and the suffix, or the fault.
    """
    if len(text) > LONGEST_NUMBER:
        return LiteralFault(
            "E0136",
            f"a number has at most {LONGEST_NUMBER} characters, and this has {len(text)}",
            "write it with an exponent (`1e30`) or a suffix (`16K`)",
            0,
            len(text),
        )
    match = _NUMBER.match(text)
    if match is None or match.end() != len(text):
        return _explain_malformed(text, match)
    mantissa = match["mantissa"].replace("_", "")
    value: int | float = int(mantissa) if mantissa.isdigit() else float(mantissa)
    # The largest suffix is 1024**3, so that no later reading of it overflows either.
    if not math.isfinite(float(value) * 1024**3):
        return LiteralFault(
            "E0136", "this number is too large", "numbers reach up to about 1e299", 0, len(text)
        )
    if value == 0 and any(digit in "123456789" for digit in mantissa.lower().partition("e")[0]):
        return LiteralFault("E0136", "this number is too small to tell from 0", "write `0`", 0, len(text))
    suffix: Suffix | None = match["suffix"] or None  # type: ignore[assignment]
    return value, suffix


def _explain_malformed(text: str, match: re.Match[str] | None) -> LiteralFault:
    """Return the fault of a text that begins like a number; `match` is its part that is a number."""
    length = len(text)
    value: tuple[int | float, Suffix | None] = (0, None)
    if match is not None:
        head, rest = text[: match.end()], text[match.end() :]
        if rest.isalpha():
            read = read_number(head + rest.upper() if rest in ("k", "m", "g") else head)
            value = value if isinstance(read, LiteralFault) else read
        if rest in ("k", "m", "g"):
            advice = f"write `{head}{rest.upper()}`: the suffixes are K, M, G and %"
        elif head[-1] in "KMG" and text[match.end("mantissa") :].isalpha() and rest[0].islower():
            advice = f"write `{head} {rest}`, with a space before the unit"
        elif rest.isalpha() and head[-1] not in "%":
            advice = f"write `{head} {rest}`, with a space before a unit"
        elif re.fullmatch(r"[xX][0-9A-Fa-f_]+|[bB][01_]+|[oO][0-7_]+", rest) and head == "0":
            advice = "numbers are decimal: write it out"
        elif rest.startswith("."):
            advice = "a number has one decimal point; a range is written `1..16`"
        elif "_" in text:
            advice = "`_` goes between two digits: `1_000`"
        else:
            advice = "numbers look like `16`, `0.5`, `5e-6`, `16K`, `0.2%`"
    else:
        read = read_number(f"0{text}")
        advice, value = (
            (read.help, read.assumed_value) if isinstance(read, LiteralFault) else (f"write `0{text}`", read)
        )
    return LiteralFault("E0136", f"`{text}` is not a number", advice, 0, length, value)


def canonical_number(text: str) -> str:
    """Spell a number canonically: `5E-06` as `5e-6`, `0.20%` as `0.2%`, `1_00_0` as `1_000`."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    digits, _, exponent = match["mantissa"].lower().partition("e")
    integer, _, fraction = digits.replace("_", "").partition(".")
    integer = integer.lstrip("0") or "0"
    if "_" in digits and len(integer) > 3:
        integer = f"{int(integer):_}"
    fraction = fraction.rstrip("0")
    # `1.0` and `1` differ in kind (a float, an int), as do `1e3` and `1000`: one zero stays.
    point = f".{fraction or '0'}" if "." in digits and (fraction or not exponent) else ""
    power = f"e{int(exponent)}" if exponent else ""
    return f"{integer}{point}{power}{match['suffix']}"


def read_string(quoted: str) -> tuple[str, list[LiteralFault]]:
    """Read a text in double quotes with its escapes.

    Returns:
        The text, in which faulty escapes stay as written, and the faults.
    """
    inner = quoted[1:-1]
    if "\\" not in inner:
        return inner, []
    faults: list[LiteralFault] = []

    def replace_escape(match: re.Match[str]) -> str:
        hexadecimal, letter = match.groups()
        if hexadecimal is None and letter in _ESCAPES:
            return _ESCAPES[letter]
        if hexadecimal is not None:
            code = int(hexadecimal, 16)
            if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
                return chr(code)
            message, advice = f"U+{hexadecimal.upper()} is not a character", "characters end at U+10FFFF"
        elif letter == "u":
            message, advice = "`\\u` needs a character's number in braces", "write it like `\\u{e9}`"
        else:
            message = f"`\\{letter}` is not an escape"
            advice = (
                f"write `\\\\{letter}` for a backslash, or use triple quotes, where no escapes are read; "
                'the escapes are \\n \\t \\r \\" \\\\ \\u{…}'
            )
        if len(faults) >= MOST_FAULTS:
            return match[0]
        faults.append(LiteralFault("E0134", message, advice, match.start() + 1, match.end() - match.start()))
        return match[0]

    return _ESCAPE.sub(replace_escape, inner), faults


def quote(value: str) -> str:
    """Spell a text in double quotes, canonically: `read_string(quote(v)) == (v, [])`."""
    parts: list[str] = []
    back = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
    for character in value:
        if character in back:
            parts.append(back[character])
        elif character.isprintable():
            parts.append(character)
        else:
            parts.append(f"\\u{{{ord(character):x}}}")
    return '"' + "".join(parts) + '"'


def clean_doc(text: str) -> str:
    """Strip a docstring of its indentation and of the empty lines around it."""
    lines = [line.rstrip() for line in text.expandtabs().split("\n")]
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line), default=0)
    return "\n".join([lines[0].lstrip(), *(line[margin:] for line in lines[1:])]).strip("\n")
