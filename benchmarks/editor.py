"""Answers to an editor on the largest spec, in processor time: after a key, each answer with the analysis that it needs."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reodsl.lsp.analysis import Analysis, analyse, findings_of
from reodsl.lsp.colours import encode_colours
from reodsl.lsp.complete import completions
from reodsl.lsp.hints import hints
from reodsl.lsp.meaning import meaning
from reodsl.lsp.references import references
from reodsl.lsp.shape import folds, signature

SPECS = Path(__file__).resolve().parent.parent / "specs"


def measure(rounds: int) -> dict[str, Any]:
    """Medians over rounds, in milliseconds of processor time. Each round changes the text, as a key does."""
    largest = max(SPECS.rglob("*.reo"), key=lambda path: path.stat().st_size)
    text = largest.read_text()
    lines = text.split("\n")
    middle = len(lines) // 2
    answers: dict[str, Callable[[Analysis], object]] = {
        "diagnostics": findings_of,
        "completion": lambda it: completions(it, middle, 1),
        "hover": lambda it: meaning(it, middle, 5),
        "hints": lambda it: hints(it, 1, len(lines)),
        "signature": lambda it: signature(it, middle, 20),
        "references": lambda it: references(it, {largest: it.text}, middle, 5),
    }
    seconds: dict[str, list[float]] = {name: [] for name in (*answers, "folding", "colours")}
    for number in range(rounds + 1):
        for name, answer in answers.items():
            typed = f"{text}# {number} {name}\n"
            began = time.process_time()
            answer(analyse(largest, {largest: typed}))
            seconds[name].append(time.process_time() - began)
        if number == 0:
            gc.freeze()  # as the server does
        # These read the text alone.
        for name, reads in (("folding", folds), ("colours", colours)):
            began = time.process_time()
            reads(f"{text}# {number}\n")
            seconds[name].append(time.process_time() - began)
    # The first round reads the library.
    medians = {name: round(1000 * statistics.median(each[1:]), 1) for name, each in seconds.items()}
    return {
        "spec": str(largest.relative_to(SPECS.parent)),
        "lines": len(lines) - 1,
        "milliseconds": medians,
        "slowest": max(medians.values()),
    }


def colours(text: str) -> object:
    """The semantic tokens of a text."""
    return encode_colours(text, "utf-16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    print(json.dumps(measure(parser.parse_args().rounds), indent=2))


if __name__ == "__main__":
    main()
