"""Files and names given on the command line, as values of the numbers layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from reodsl.diagnostics import Problem, problem
from reodsl.numbers.reference import Reference


def frontier_of(name_or_file: str, base: Sequence[str] = ()) -> Reference:
    """Return a published frontier by its name in the standard library (`std.paper.qwen3_4b`), or a frontier file.

    Of a file of several, that of the models `base`. Raises `Problem` where neither is there, naming the frontiers that are.
    """
    from reodsl.language import named_frontier
    from reodsl.numbers.curve_files import read_reference

    path = Path(name_or_file)
    if path.exists() or path.suffix in {".json", ".csv", ".parquet"}:
        return read_reference(path, base)
    with placed(name_or_file):
        return named_frontier(name_or_file)


@contextmanager
def placed(place: object) -> Iterator[None]:
    """Names `place` in every problem inside the block that has none: the numbers layer knows values, not files."""
    try:
        yield
    except Problem as caught:
        named = (d if d.labels or d.where else replace(d, where=str(place)) for d in caught.diagnostics)
        raise Problem(*named) from None


def token_count(option: str, text: str) -> int:
    """`16K` or `16384` as tokens; K is 1024, and M that of K. Raises `Problem` for anything else."""
    factor = {"K": 1024, "M": 1024**2}.get(text[-1:].upper(), 1)
    digits = text if factor == 1 else text[:-1]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise problem(
            "E0117",
            f"{option} {text!r} is not a number of tokens",
            help=f"write a whole number, as in `{option} 16K`",
        )
    return int(digits) * factor


def token_grid(option: str, text: str) -> tuple[int, ...]:
    """`0,64,1K` as tokens."""
    return tuple(token_count(option, part.strip()) for part in text.split(","))
