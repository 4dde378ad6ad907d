"""Say a verdict as a colleague would: who leads, who ties, how far ahead of the baseline, and what it rests on."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reodsl.numbers.verdict import VERDICT, PairDifference, StudyVerdict, to_json
from reodsl.report import formats
from reodsl.store.files import LARGEST_RECORD, read_plain

MOST_NAMED = 4
ALIKE = 0.5
"""The share of equal responses from which two arms that lead are said to have them in common."""


def sentences(verdict: StudyVerdict | None) -> tuple[str, ...]:
    """Return the verdict in sentences, the headline first; nothing of fewer than two arms."""
    if verdict is None or len(verdict.arms) < 2:
        return ()
    if verdict.pairs[0].low is None:
        lead = f"No two arms can be told apart: {_questions(verdict)} tells no spread."
        return (lead, *_common(verdict))
    return (_lead(verdict), *_widest(verdict), *_same(verdict), *_common(verdict), _rests(verdict))


def outcome(verdict: StudyVerdict | None) -> dict[str, Any] | None:
    """Return a verdict with its sentences as JSON data; None without one."""
    return None if verdict is None else {"sentences": list(sentences(verdict)), **to_json(verdict)}


def read_verdict(folder: Path) -> Any:
    """Return the verdict in a report's folder as JSON data; None where there is none that can be read."""
    try:
        return json.loads(read_plain(folder / VERDICT, LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return None


def said(folder: Path) -> tuple[str, ...]:
    """Return the sentences of the verdict in a report's folder."""
    match read_verdict(folder):
        case {"sentences": [*lines]}:
            return tuple(line for line in lines if isinstance(line, str))
    return ()


def _lead(verdict: StudyVerdict) -> str:
    """Return who beats the baseline and by how much, and whether a difference between those who lead is certain."""
    base, leaders = verdict.baseline, verdict.leaders
    if base is None or base in leaders:
        known = "" if base is None else ", the baseline,"
        if len(leaders) == 1:
            return f"{leaders[0]}{known} leads."
        tie = _tie(verdict, leaders)
        return f"No arm is sure to beat {base}{known} and {tie}." if base else f"{tie[0].upper()}{tie[1:]}."
    pairs = (*verdict.pairs, *(pair.turned() for pair in verdict.pairs))
    against = {pair.one: pair for pair in pairs if pair.two == base}
    if len(leaders) == 1:
        return f"{leaders[0]} leads: it beats {base} by {format_gain(against[leaders[0]])} tokens of REG."
    ahead = [arm for arm in leaders if against[arm].apart]
    by = [formats.number(-against[arm].value) for arm in sorted(ahead, key=lambda arm: -against[arm].value)]
    one = len(ahead) == 1
    among = ("it" if one else "them", *(arm for arm in leaders if arm not in ahead))
    gains = " to ".join(dict.fromkeys((by[0], by[-1])))
    return f"{join_arms(ahead)} beat{'s' if one else ''} {base} by {gains} tokens of REG; {_tie(verdict, among)}."


def _tie(verdict: StudyVerdict, among: Sequence[str]) -> str:
    """Return whether those who lead tie, with the difference where they are two."""
    state = "there is a tie" if is_tie(verdict) else "no difference is certain"
    shown = f" ({format_pair(verdict.tied[0])})" if len(verdict.tied) == 1 else ""
    return f"{state} {'between' if len(verdict.leaders) == 2 else 'among'} {join_arms(among)}{shown}"


def is_tie(verdict: StudyVerdict) -> bool:
    """Return whether those who lead tie: each difference between them may be chance by itself.

    A pair that is only open because all pairs are counted is no tie.
    """
    return all(pair.low is None or pair.high is None or pair.low <= 0 <= pair.high for pair in verdict.tied)


def _widest(verdict: StudyVerdict) -> list[str]:
    """Return which two of those who lead differ most, where they are more than two or their difference looks certain."""
    if len(verdict.leaders) == 1 or (len(verdict.leaders) == 2 and is_tie(verdict)):
        return []
    pair = min(verdict.tied, key=lambda pair: pair.value)
    end = "" if is_tie(verdict) else f", which does not survive the count of all {len(verdict.pairs)} pairs"
    return [f"{pair.one} and {pair.two} differ most, by {format_gain(pair)} tokens{end}."]


def _same(verdict: StudyVerdict) -> list[str]:
    """Return which leaders are the same within a margin that is worth naming."""
    pairs = [pair for pair in verdict.same if pair.one in verdict.leaders and pair.two in verdict.leaders]
    said = [
        f"{pair.one} and {pair.two} are the same within {format_margin(pair)}" for pair in pairs[:MOST_NAMED]
    ]
    more = (
        f"; so are {len(pairs) - MOST_NAMED} more pairs, each within its own"
        if len(pairs) > MOST_NAMED
        else ""
    )
    return [f"{'; '.join(said)}{more}."] if said else []


def _common(verdict: StudyVerdict) -> list[str]:
    """Return how many responses of leaders are the same text, where it is most of them."""
    shares = sorted(
        pair.common.same / pair.common.compared
        for pair in verdict.tied
        if pair.common is not None and pair.common.same >= ALIKE * pair.common.compared > 0
    )
    if not shares:
        return []
    if len(verdict.tied) == 1:
        (pair,) = verdict.tied
        return [f"{equal(pair)} of {join_arms(verdict.leaders)} are the same text."]
    ends = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (shares[0], shares[-1])))
    count = "each" if len(shares) == len(verdict.tied) else str(len(shares))
    return [
        f"In {count} of the {len(verdict.tied)} pairs of leading arms {ends} of the responses are the same text."
    ]


def _rests(verdict: StudyVerdict) -> str:
    if verdict.trained_once:
        return f"This rests on one seed and {_questions(verdict)}: a new training may differ."
    return f"This rests on {verdict.seeds} seeds and {_questions(verdict)}."


def _questions(verdict: StudyVerdict) -> str:
    return formats.plural(verdict.questions, "question")


def format_pair(pair: PairDifference) -> str:
    """Return REG of a pair's first arm minus that of its second, with the interval: `−0.4 [−1.3, 0.5]`."""
    return f"{formats.format_signed(pair.value)} {formats.interval(pair.low, pair.high)}".strip()


def format_margin(pair: PairDifference) -> str:
    """Return the margin within which a pair is the same, rounded up to what is shown."""
    return f"{formats.number(math.ceil(10 * (pair.same_within or 0.0)) / 10)} tokens"


def equal(pair: PairDifference) -> str:
    """Return how many of a pair's responses are the same: `545 of 576 responses`; nothing where none was compared."""
    return "" if pair.common is None else f"{pair.common.same:,} of {pair.common.compared:,} responses"


def format_gain(pair: PairDifference) -> str:
    """Return by how much a pair's first arm is ahead of its second, with the interval: `19.8 [17.5, 22.2]`."""
    low, high = (None if end is None else 0.0 - end for end in (pair.high, pair.low))
    return f"{formats.number(0.0 - pair.value)} {formats.interval(low, high)}".strip()


def join_arms(arms: Sequence[str]) -> str:
    """Return arms in a sentence: `a`, `a and b`, `a, b, c and 3 more`."""
    shown = list(arms[:MOST_NAMED])
    last = f"{len(arms) - MOST_NAMED} more" if len(arms) > MOST_NAMED else shown.pop()
    return f"{', '.join(shown)} and {last}" if shown else last
