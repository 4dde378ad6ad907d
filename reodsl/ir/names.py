"""Texts of a spec that become parts of paths: the pattern of each, and in words what it may be.

A spec may come from anywhere. What is checked here joins to a folder without leaving it, whatever the folder holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Form:
    """A form of texts: at most `longest` characters, all of which fit `pattern`.

    `noun` is what such a text names; `words` say what it is made of; `example` is one. The pattern means the same to
    Python and to pydantic. A `free` one may lead anywhere: the language checks it, and a compiled spec has any text there.
    """

    noun: str
    pattern: str
    words: str
    example: str
    longest: int = 200
    free: bool = False

    def holds(self, text: str) -> bool:
        """Return whether a text has this form."""
        return len(text) <= self.longest and re.fullmatch(self.pattern, text) is not None


_PART = r"[A-Za-z0-9_][A-Za-z0-9._+-]*"
"""One name of a path: not a hidden file, and never `..`."""
# The rule of hubs: `.` and `-` only between letters, never two of the same sign. `--` separates names in the cache.
_OWNED = r"[A-Za-z0-9_](?:-?(?:\.-)*\.?[A-Za-z0-9_])*"

REPO = Form(
    "a hub's repository",
    rf"{_OWNED}(?:/{_OWNED})?",
    "OWNER/NAME, each of letters, digits and `_`, with a `.` or `-` between them",
    "Qwen/Qwen3-4B",
)
REVISION = Form(
    "a commit, a tag or a branch",
    rf"{_PART}(?:/{_PART})*",
    "letters, digits and `_`, with `.`, `-`, `+` and `/` between them",
    "v1.0",
)
PART = Form(
    "a part of a data set", _PART, "letters, digits and `_`, with `.`, `-` and `+` after the first", "test"
)
PACKAGE = Form(
    "an installed package",
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?",
    "letters and digits, with `.`, `-` and `_` between them",
    "reasoning-gym",
    100,
)
DATA_FILES = (".parquet", ".jsonl", ".ndjson", ".json", ".csv")
"""The ends of the names of files with questions."""
DATA_FILE = Form(
    "a file with questions",
    rf"/?(?:[^/\x00-\x1f\x7f]{{1,255}}/+)*[^/\x00-\x1f\x7f]{{1,255}}(?i:{'|'.join(map(re.escape, DATA_FILES))})",
    f"a path of at most 1,024 characters that ends in {', '.join(DATA_FILES)}",
    "data/questions.jsonl",
    1024,
    free=True,
)
TABLE = replace(
    DATA_FILE,
    noun="a table of responses",
    pattern=r"/?(?:[^/\x00-\x1f\x7f]{1,255}/+)*[^/\x00-\x1f\x7f]{1,255}(?i:\.parquet)",
    words="a path of at most 1,024 characters that ends in .parquet, of a table that `reodsl import` wrote",
    example="theirs.parquet",
)
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
OWN_CODE = Form(
    "a function in Python",
    rf"(?:(?:{_PART}/)*{_PART}\.py|{_NAME}(?:\.{_NAME})*):{_NAME}",
    "FILE.py:FUNCTION, the file in the spec's folder or below it, or an installed package's MODULE:FUNCTION",
    "checks.py:check",
    400,
)
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])"
_HERE = r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])"
ADDRESS = Form(
    "an address of a server",
    rf"(?:https://{_HOST}|http://{_HERE})(?::[0-9]{{1,5}})?(?:/[A-Za-z0-9._~-]+)*/?",
    "https://HOST/PATH, or http:// on this machine (`localhost`, `127.0.0.1`), without a user, a question mark or a key",
    "http://127.0.0.1:30000/v1",
    1024,
)
VARIABLE = Form(
    "an environment variable",
    _NAME,
    "letters, digits and `_`: the name of the variable and never what it holds",
    "JUDGE_KEY",
    100,
)
FOLDER = Form(
    "a model's folder",
    r"/?[^/\x00-\x1f\x7f]{1,255}(?:/+[^/\x00-\x1f\x7f]{1,255})*/*",
    "a path of at most 1,024 characters, without line breaks",
    "models/mine",
    1024,
    free=True,
)


LARGEST_PATTERN = 2_000
"""The most that the characters of a regular expression times its counted repetitions may be; its time grows with it."""
NO_GROUP = "it has no group `(…)` around what is read"
PATTERNS = "write it in the dialect of Rust's `regex`, without look-around and back-references"
"""The help for a regular expression that cannot be used."""
_LOOKS_AROUND = re.compile(r"(?<!\\)(?:\\\\)*(\(\?<?[=!]|\(\?P=|\\[1-9])")
"""Look-around and back-references, which Rust's `regex` does not have."""
_REPEATED = re.compile(r"\{(\d+)(?:,(\d*))?\}")
"""A counted repetition such as `{2,5}`: its least and its largest count."""


def pattern_fault(pattern: str, groups: int = 0) -> str | None:
    """Return why a regular expression cannot be used, or None if it can; it needs at least `groups` groups.

    An expression must be small: its length times all its repetitions is at most `LARGEST_PATTERN`. It must also be
    valid for Rust's `regex`, the engine of polars, which never backtracks. If polars is not installed, Python's
    engine checks what it can, and a run checks again with polars.
    """
    size = len(pattern)
    for least, most in _REPEATED.findall(pattern):
        size *= max(1, int(least[:9]), int((most or "0")[:9]))
    if size > LARGEST_PATTERN:
        return f"it is too large: its characters times its repetitions are {size:,}, and at most {LARGEST_PATTERN:,} may be"
    try:
        import polars as pl
    except ModuleNotFoundError:
        return _fault_in_python(pattern, groups)
    try:
        found = len(pl.Series([""]).str.extract_groups(pattern).struct.fields)
    except pl.exceptions.PolarsError as failure:
        lines = [
            line.strip() for line in str(failure).split("This error occurred")[0].splitlines() if line.strip()
        ]
        return lines[-1].removeprefix("error: ") if lines else "it is not a regular expression"
    return NO_GROUP if found < groups else None


def _fault_in_python(pattern: str, groups: int) -> str | None:
    """Return why Rust's `regex` would refuse a regular expression, as far as Python can tell, or None.

    Rust's engine refuses look-around, back-references, and nearly all that Python's engine refuses.
    """
    match = _LOOKS_AROUND.search(pattern)
    if match is not None:
        return f"`{match[1]}` is a look-around or back-reference, which is not supported"
    try:
        return NO_GROUP if re.compile(pattern).groups < groups else None
    except re.error as failure:
        return str(failure)
