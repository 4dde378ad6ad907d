"""Reasons why answers were not judged and responses not paid, grouped by what failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from reodsl.diagnostics import plural

REWARD = "reward"
"""The beginning of a reason for which a response was not paid; others begin with what stopped the verifier."""
COUNTS = {
    "verifier_timeouts": "took the verifier more than its time",
    "verifier_failures": "made the verifier fail",
    "reward_failures": "made the reward's Python fail",
}
"""Words for failures at answers and responses, by the metric that counts them."""
_TABLES = ("rollouts", "monitor", "samples", "forced")
"""The tables that have reasons: files of a result, and of a task under way folders of files or files in its chunks."""
_MAX_CAUSES = 5
"""Reasons that a terminal shows of a task."""
_KIND = {REWARD: "reward_failures", "timeout": "verifier_timeouts"}
_EXCEPTION = re.compile(r"(?P<cause>.*? failed: \w+): .*?(?P<line>, line \d+)?$", re.DOTALL)
_VARIABLE = re.compile(
    r"(?<!\w)'.*?(?:'(?!\w)|…)|(?<!\w)\".*?(?:\"(?!\w)|…)|(?<![\w`.])-?\d[\d.,]*(?:e[+-]?\d+)?", re.DOTALL
)
"""Quoted texts, whole or cut off, and numbers."""


def list_tables(folder: Path) -> list[Path]:
    """Return the tables with reasons of a result, or of what a task under way has done so far, by its work folder."""
    places = [f"{way}.parquet" for name in _TABLES for way in (name, f"{name}/*", f"chunks-*/*/{name}")]
    return [file for pattern in places for file in sorted(folder.glob(pattern))]


Reasons = Sequence[tuple[str, int]]
"""Reasons with how often each was met, the commonest first."""


def count_reasons(files: Iterable[Path]) -> list[tuple[str, int]]:
    """Return the reasons in the column `unsettled` of tables with their counts, the commonest first.

    Reasons that differ only in the text of a response count as the commonest of them. Missing files count for nothing.
    """
    reasons: Counter[str] = Counter()
    for file in files:
        if file.is_file():
            reasons.update(_count_file(file, file.stat().st_mtime_ns))
    return group_reasons(reasons)


# Who watches a run looks again and again at the files of its steps, which are written once.
@lru_cache(maxsize=4096)
def _count_file(file: Path, changed: int) -> Mapping[str, int]:
    import polars as pl

    scan = pl.scan_parquet(file, glob=False)
    kind = scan.collect_schema().get("unsettled")
    if kind is None:
        return {}
    column = scan.select("unsettled").drop_nulls().collect(engine="streaming")["unsettled"]
    values = column.explode() if isinstance(kind, pl.List) else column
    return dict(values.value_counts().iter_rows())


def group_reasons(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return reasons with their counts, grouped by cause, the commonest first."""
    groups: dict[str, Counter[str]] = {}
    for why, count in sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])):
        groups.setdefault(_cause(why), Counter())[why] += count
    totals = [(next(iter(group)), group.total()) for group in groups.values()]
    return sorted(totals, key=lambda pair: (-pair[1], pair[0]))


def count_kinds(reasons: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Return the number of answers and responses that some reasons concern.

    Returns:
        Counts by the metric that counts them.
    """
    counts = dict.fromkeys(COUNTS, 0.0)
    for why, count in reasons:
        counts[_KIND.get(why.partition(":")[0], "verifier_failures")] += count
    return counts


def say_reasons(reasons: Sequence[tuple[str, int]], most: int) -> list[str]:
    """Return the commonest reasons with their counts, and the count of all other reasons."""
    more = sum(count for _, count in reasons[most:])
    listed = [*reasons[:most], *([("other reasons", more)] if more else [])]
    return [f"{plural(count, 'time')}: {why}" for why, count in listed]


def _cause(why: str) -> str:
    """Return a reason without what varies with the text of a response: an exception's words, quoted texts, numbers."""
    raised = _EXCEPTION.match(why)
    if raised is not None:
        return f"{raised['cause']}{raised['line'] or ''}"
    head, mark, line = why.rpartition(", line ")
    return _VARIABLE.sub("…", head) + mark + line if mark else _VARIABLE.sub("…", why)


def say_failed(counts: Mapping[str, float]) -> str:
    """Return how many answers and responses failed, and why; empty without failures.

    Args:
        counts: Counts by metric.

    Returns:
        Words for a message.
    """
    words = []
    for name, happened in COUNTS.items():
        count = int(counts.get(name) or 0)
        noun = "response" if name == "reward_failures" else "answer"
        words += [f"{plural(count, noun)} {happened}"] if count else []
    return " and ".join(words)


def say_failing(reasons: Reasons) -> list[str]:
    """Return lines about failures: how many, what they count as, and why; none without failures."""
    counts = count_kinds(reasons)
    return (
        [f"{say_failed(counts)}; {say_counted(counts)}", *say_reasons(reasons, _MAX_CAUSES)]
        if reasons
        else []
    )


def say_counted(counts: Mapping[str, float]) -> str:
    """Return what failed answers and responses count as; empty without failures.

    Args:
        counts: Counts by metric.

    Returns:
        Words for a message.
    """
    judged = sum(counts.get(name, 0) for name in COUNTS if name != "reward_failures")
    words = ["answers that are not judged count as wrong"] if judged else []
    if counts.get("reward_failures"):
        words.append("a response at which the reward's Python fails is paid the least reward of its step")
    return ", and ".join(words)
