"""Reasons why answers have no verdict and responses no reward, grouped by what failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from reodsl.diagnostics import plural

REWARD = "reward"
"""The first word of a reason why a response has no reward; other reasons begin with what stopped the verifier."""
COUNTS = {
    "verifier_timeouts": "exceeded the verifier's time limit",
    "verifier_failures": "made the verifier fail",
    "reward_failures": "made the reward's Python fail",
}
"""Words for the failures that each metric counts."""
_TABLES = ("rollouts", "monitor", "samples", "forced")
"""The tables that have reasons. A result has a file for each; a task under way has folders of files, or files in chunks."""
_MAX_CAUSES = 5
"""The most reasons that a terminal shows for a task."""
_KIND = {REWARD: "reward_failures", "timeout": "verifier_timeouts"}
_EXCEPTION = re.compile(r"(?P<cause>.*? failed: \w+): .*?(?P<line>, line \d+)?$", re.DOTALL)
_VARIABLE = re.compile(
    r"(?<!\w)'.*?(?:'(?!\w)|…)|(?<!\w)\".*?(?:\"(?!\w)|…)|(?<![\w`.])-?\d[\d.,]*(?:e[+-]?\d+)?", re.DOTALL
)
"""Quoted texts, complete or shortened by `…`, and numbers."""


def list_tables(folder: Path) -> list[Path]:
    """Return the tables that may have reasons, in the folder of a result or in the work folder of a task under way."""
    patterns = [f"{way}.parquet" for name in _TABLES for way in (name, f"{name}/*", f"chunks-*/*/{name}")]
    return [file for pattern in patterns for file in sorted(folder.glob(pattern))]


Reasons = Sequence[tuple[str, int]]
"""Reasons with their counts, the commonest first."""


def count_reasons(files: Iterable[Path]) -> list[tuple[str, int]]:
    """Return the reasons in the column `unsettled` of tables with their counts, the commonest first.

    A reason says why an answer has no verdict or a response no reward. Reasons that differ only in what a response
    wrote are counted together, under the commonest of them. Missing files are skipped.
    """
    reasons: Counter[str] = Counter()
    for file in files:
        if file.is_file():
            reasons.update(_count_file(file, file.stat().st_mtime_ns))
    return group_reasons(reasons)


# A watched run is read again and again, but most of its files do not change.
@lru_cache(maxsize=4096)
def _count_file(file: Path, changed: int) -> Mapping[str, int]:
    """Return how often each reason occurs in a file; empty for a table without the column `unsettled`.

    Args:
        file: The table.
        changed: The time of the file's last change, in nanoseconds, which renews the cached result.
    """
    import polars as pl

    scan = pl.scan_parquet(file, glob=False)
    kind = scan.collect_schema().get("unsettled")
    if kind is None:
        return {}
    column = scan.select("unsettled").drop_nulls().collect(engine="streaming")["unsettled"]
    values = column.explode() if isinstance(kind, pl.List) else column
    return dict(values.value_counts().iter_rows())


def group_reasons(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return reasons grouped by cause, the commonest first.

    Returns:
        For each group its commonest reason, and the count of all its reasons together.
    """
    groups: dict[str, Counter[str]] = {}
    for why, count in sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])):
        groups.setdefault(_cause(why), Counter())[why] += count
    totals = [(next(iter(group)), group.total()) for group in groups.values()]
    return sorted(totals, key=lambda pair: (-pair[1], pair[0]))


def count_kinds(reasons: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Return the number of answers and responses that failed, by the metric that counts them.

    Args:
        reasons: Reasons with their counts.
    """
    counts = dict.fromkeys(COUNTS, 0.0)
    for why, count in reasons:
        counts[_KIND.get(why.partition(":")[0], "verifier_failures")] += count
    return counts


def say_reasons(reasons: Sequence[tuple[str, int]], most: int) -> list[str]:
    """Return a line for each of the commonest reasons with its count, and a line for all other reasons together.

    Args:
        reasons: Reasons with their counts, the commonest first.
        most: The most reasons that are listed.
    """
    rest = sum(count for _, count in reasons[most:])
    listed = [*reasons[:most], *([("other reasons", rest)] if rest else [])]
    return [f"{plural(count, 'time')}: {why}" for why, count in listed]


def _cause(why: str) -> str:
    """Return a reason without what varies from response to response: an exception's message, quoted texts, numbers."""
    raised = _EXCEPTION.match(why)
    if raised is not None:
        return f"{raised['cause']}{raised['line'] or ''}"
    head, mark, line = why.rpartition(", line ")
    return _VARIABLE.sub("…", head) + mark + line if mark else _VARIABLE.sub("…", why)


def say_failed(counts: Mapping[str, float]) -> str:
    """Return how many answers and responses failed, by what failed, as a text; empty without failures.

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
    """Return lines about failures: how many there are, what they count as, and their reasons; none without failures."""
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
