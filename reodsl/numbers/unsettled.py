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
_CAUSES = 5
"""Reasons that a terminal shows of a task."""
_KIND = {REWARD: "reward_failures", "timeout": "verifier_timeouts"}
_RAISED = re.compile(r"(?P<cause>.*? failed: \w+): .*?(?P<line>, line \d+)?$", re.DOTALL)
_VARIES = re.compile(
    r"(?<!\w)'.*?(?:'(?!\w)|…)|(?<!\w)\".*?(?:\"(?!\w)|…)|(?<![\w`.])-?\d[\d.,]*(?:e[+-]?\d+)?", re.DOTALL
)
"""Quoted texts, whole or cut off, and numbers."""


def list_tables(folder: Path) -> list[Path]:
    """Return the tables with reasons of a result, or of what a task under way has done so far, by its work folder."""
    places = [f"{way}.parquet" for name in _TABLES for way in (name, f"{name}/*", f"chunks-*/*/{name}")]
    return [file for place in places for file in sorted(folder.glob(place))]


Reasons = Sequence[tuple[str, int]]
"""Reasons with how often each was met, the commonest first."""


def count_reasons(files: Iterable[Path]) -> list[tuple[str, int]]:
    """Return the reasons in the column `unsettled` of tables, the commonest first, with how often each is there.

    Reasons that differ in the text of a response alone are one, told as most of them are. Files that are missing count
    for nothing.
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
    each = column.explode() if isinstance(kind, pl.List) else column
    return dict(each.value_counts().iter_rows())


def group_reasons(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return reasons with how often each is there, those of one cause together, the commonest first."""
    groups: dict[str, Counter[str]] = {}
    for why, count in sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])):
        groups.setdefault(_cause(why), Counter())[why] += count
    counted = [(next(iter(group)), group.total()) for group in groups.values()]
    return sorted(counted, key=lambda pair: (-pair[1], pair[0]))


def count_kinds(reasons: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Return how many answers and responses some reasons are of, by the metric that counts them."""
    counts = dict.fromkeys(COUNTS, 0.0)
    for why, count in reasons:
        counts[_KIND.get(why.partition(":")[0], "verifier_failures")] += count
    return counts


def say_reasons(reasons: Sequence[tuple[str, int]], most: int) -> list[str]:
    """Return the commonest reasons with how often each was met, and how often there was another one."""
    more = sum(count for _, count in reasons[most:])
    shown = [*reasons[:most], *([("other reasons", more)] if more else [])]
    return [f"{plural(count, 'time')}: {why}" for why, count in shown]


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
        words += [f"{plural(count, noun)} {what}"] if count else []
    return " and ".join(words)


def say_failing(reasons: Reasons) -> list[str]:
    """Return lines of failures, if there are any: how many, what they count as, and why."""
    counts = count_kinds(reasons)
    return [f"{say_failed(counts)}; {say_counted(counts)}", *say_reasons(reasons, _CAUSES)] if reasons else []


def say_counted(counts: Mapping[str, float]) -> str:
    """Return how answers and responses are counted that these metrics count: empty where they count none."""
    judged = sum(counts.get(name, 0) for name in COUNTS if name != "reward_failures")
    words = ["answers that are not judged count as wrong"] if judged else []
    if counts.get("reward_failures"):
        words.append("a response at which the reward's Python fails is paid the least reward of its step")
    return ", and ".join(words)
