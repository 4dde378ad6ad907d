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
    """Return the value and the suffix of a number: `16K` gives (16, "K"), `0.2%` (0.2, "%"), `1_000` (1000, None).

    Returns:
        The number without its suffix, and the suffix; or the fault (E0136) if the text is not a valid number.
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
    # The largest suffix multiplies by 1024**3, which must not overflow later.
    if not math.isfinite(float(value) * 1024**3):
        return LiteralFault(
            "E0136", "this number is too large", "numbers reach up to about 1e299", 0, len(text)
        )
    if value == 0 and any(digit in "123456789" for digit in mantissa.lower().partition("e")[0]):
        return LiteralFault("E0136", "this number is too small to tell from 0", "write `0`", 0, len(text))
    suffix: Suffix | None = match["suffix"] or None  # type: ignore[assignment]
    return value, suffix


def _explain_malformed(text: str, match: re.Match[str] | None) -> LiteralFault:
    """Return the fault (E0136) of a malformed number, with advice and the number that was probably meant.

    The assumed number is 0 if it is not clear which number was meant.

    Args:
        text: The malformed number.
        match: The match of the longest beginning of `text` that is a number; None if no beginning is.
    """
    length = len(text)
    value: tuple[int | float, Suffix | None] = (0, None)
    if match is not None:
        number_text, tail = text[: match.end()], text[match.end() :]
        if tail.isalpha():
            read = read_number(number_text + tail.upper() if tail in ("k", "m", "g") else number_text)
            value = value if isinstance(read, LiteralFault) else read
        if tail in ("k", "m", "g"):
            advice = f"write `{number_text}{tail.upper()}`: the suffixes are K, M, G and %"
        elif number_text[-1] in "KMG" and text[match.end("mantissa") :].isalpha() and tail[0].islower():
            advice = f"write `{number_text} {tail}`, with a space before the unit"
        elif tail.isalpha() and number_text[-1] not in "%":
            advice = f"write `{number_text} {tail}`, with a space before a unit"
        elif re.fullmatch(r"[xX][0-9A-Fa-f_]+|[bB][01_]+|[oO][0-7_]+", tail) and number_text == "0":
            advice = "numbers are decimal: write it out"
        elif tail.startswith("."):
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
    """Return the canonical spelling of a number: `5E-06` gives `5e-6`, `0.20%` gives `0.2%`, `1_00_0` gives `1_000`."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    digits, _, exponent = match["mantissa"].lower().partition("e")
    integer, _, fraction = digits.replace("_", "").partition(".")
    integer = integer.lstrip("0") or "0"
    if "_" in digits and len(integer) > 3:
        integer = f"{int(integer):_}"
    fraction = fraction.rstrip("0")
    # `1.0` is a float and `1` an int, so one zero behind the point stays.
    fraction_text = f".{fraction or '0'}" if "." in digits and (fraction or not exponent) else ""
    exponent_text = f"e{int(exponent)}" if exponent else ""
    return f"{integer}{fraction_text}{exponent_text}{match['suffix']}"


def read_string(quoted: str) -> tuple[str, list[LiteralFault]]:
    """Return the content of a text in double quotes, with its escapes replaced.

    Returns:
        The text, in which faulty escapes stay as they are written, and the faults (E0134), at most
        `MOST_FAULTS`.
    """
    inner = quoted[1:-1]
    if "\\" not in inner:
        return inner, []
    faults: list[LiteralFault] = []

    def replace_escape(match: re.Match[str]) -> str:
        """Return the character of an escape; for a faulty escape record the fault and return it unchanged."""
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


def clean_doc(text: str) -> str:
    """Return a docstring without indentation and without empty lines at its start and end.

    The first line begins behind the quotes, so the common indentation is that of the other lines.
    """
    lines = [line.rstrip() for line in text.expandtabs().split("\n")]
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line), default=0)
    return "\n".join([lines[0].lstrip(), *(line[margin:] for line in lines[1:])]).strip("\n")
