"""Reasons why answers were not judged and responses not paid, grouped by what failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

REWARD = "reward"
"""The beginning of a reason for which a response was not paid; others begin with what stopped the verifier."""
COUNTS = {
    "verifier_timeouts": "took the verifier more than its time",
    "verifier_failures": "made the verifier fail",
    "reward_failures": "made the reward's Python fail",
}
"""Words for failures at answers and responses, by the metric that counts them."""
_RAISED = re.compile(r"(?P<cause>.*? failed: \w+): .*?(?P<line>, line \d+)?$", re.DOTALL)
_VARIES = re.compile(
    r"(?<!\w)'.*?(?:'(?!\w)|…)|(?<!\w)\".*?(?:\"(?!\w)|…)|(?<![\w`.])-?\d[\d.,]*(?:e[+-]?\d+)?", re.DOTALL
)
"""Quoted texts, whole or cut off, and numbers."""


def count_reasons(files: Iterable[Path]) -> list[tuple[str, int]]:
    """Return the reasons in the column `unsettled` of tables, the commonest first, with how often each is there.

    Reasons that differ in the text of a response alone are one, told as most of them are. Files that are missing count
    for nothing.
    """
    reasons: Counter[str] = Counter()
    for file in files:
        if not file.is_file():
            continue
        scan = pl.scan_parquet(file, glob=False)
        kind = scan.collect_schema().get("unsettled")
        if kind is not None:
            column = scan.select("unsettled").drop_nulls().collect(engine="streaming")["unsettled"]
            each = column.explode() if isinstance(kind, pl.List) else column
            reasons.update(dict(each.value_counts().iter_rows()))
    groups: dict[str, Counter[str]] = {}
    for why, count in sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])):
        groups.setdefault(_cause(why), Counter())[why] += count
    counted = [(next(iter(group)), group.total()) for group in groups.values()]
    return sorted(counted, key=lambda pair: (-pair[1], pair[0]))


def _cause(why: str) -> str:
    """Return a reason without what varies with the text of a response: an exception's words, quoted texts, numbers."""
    raised = _RAISED.match(why)
    if raised is not None:
        return f"{raised['cause']}{raised['line'] or ''}"
    head, mark, line = why.rpartition(", line ")
    return _VARIES.sub("…", head) + mark + line if mark else _VARIES.sub("…", why)


def say_failed(counts: Mapping[str, float]) -> str:
    """Return how many answers and responses these metrics count, and what happened at them; empty where they count none."""
    words = []
    for name, what in COUNTS.items():
        count = int(counts.get(name) or 0)
        noun = "response" if name == "reward_failures" else "answer"
        words += [f"{count:,} {noun}{'' if count == 1 else 's'} {what}"] if count else []
    return " and ".join(words)


def say_counted(counts: Mapping[str, float]) -> str:
    """Return how answers and responses are counted that these metrics count: empty where they count none."""
    judged = sum(counts.get(name, 0) for name in COUNTS if name != "reward_failures")
    words = ["answers that are not judged count as wrong"] if judged else []
    if counts.get("reward_failures"):
        words.append("a response at which the reward's Python fails is paid the least reward of its step")
    return ", and ".join(words)
