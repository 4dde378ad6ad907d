"""Say a verdict as a colleague would: who leads, who ties, how far ahead of the baseline, and what it rests on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from reodsl.diagnostics import in_percent, join_words, plural
from reodsl.ir import Spec
from reodsl.numbers.extension import CHANCE
from reodsl.numbers.verdict import VERDICT, PairDifference, StudyVerdict, to_json
from reodsl.report import formats, provenance
from reodsl.store.files import LARGEST_RECORD, read_plain

MOST_NAMED = 4
COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ALIKE_SHARE = 0.5
"""The least share of equal responses at which the verdict says that two leading arms wrote the same texts."""

SEEDS_FOR_SPREAD = 3
"""Seeds of a study that is to show how trainings differ, if it had one."""


def sentences(verdict: StudyVerdict | None) -> tuple[str, ...]:
    """Return the verdict in sentences, the headline first; empty for fewer than two arms."""
    if verdict is None or len(verdict.arms) < 2:
        return ()
    if verdict.pairs[0].low is None:
        lead = f"The arms cannot be ranked: {_questions(verdict)} shows no spread."
        return (lead, *_overlap(verdict))
    lines = (_lead(verdict), *_list_followers(verdict), *_largest(verdict), *_equivalent(verdict))
    return (*lines, *_overlap(verdict), _evidence(verdict))


def settle(
    spec: Spec, verdict: StudyVerdict | None, cost: Callable[[int], str] = lambda more: ""
) -> tuple[str, ...]:
    """Return a sentence on what would settle the difference of the two best leaders, and a command that does it.

    The sentence has the numbers of seeds that would make the difference significant or show that the arms are the same,
    or else the number of questions. The command runs the smaller of these numbers of seeds. Nothing is returned if nothing
    is to be settled, and no command if no number of seeds is enough.

    Args:
        spec: the spec.
        verdict: its verdict.
        cost: function that returns what a number of further seeds costs.
    """
    if verdict is None or (sizes := verdict.extension) is None:
        return ()

    def enough(seeds: int) -> str:
        """Return a number of seeds with what the missing seeds cost: `9 seeds (6 more, 40m)`."""
        return f"{seeds} seeds ({seeds - verdict.seeds} more{cost(seeds - verdict.seeds)})"

    pair = verdict.tied[0]
    lines = [f"If {pair.one} and {pair.two} truly differ by {formats.number(abs(pair.value))} tokens, "]
    ways = [f"find it with {enough(sizes.seeds)}"] if sizes.seeds is not None else []
    if sizes.questions is not None and sizes.seeds is None:
        ways.append(f"find it with {sizes.questions:,} questions instead of {verdict.questions:,}")
    if sizes.same_seeds is not None:
        ways.append(
            f"show that they are the same within {formats.number(verdict.margin)} tokens with "
            f"{enough(sizes.same_seeds)}"
        )
    least = min(filter(None, (sizes.seeds, sizes.same_seeds)), default=None)
    lines[0] += (
        f"a study has {in_percent(CHANCE)}% power to {', and to '.join(ways)}."
        if ways
        else f"no study of a feasible size has {in_percent(CHANCE)}% power to find it."
    )
    if verdict.trained_once and any(arm.stages for arm in spec.study.arms):
        least = SEEDS_FOR_SPREAD
        lines[0] += f" Measuring how much trainings differ takes {enough(least)}."
    return (*lines, provenance.rerun_with(spec, least)) if least is not None else tuple(lines)


def outcome(verdict: StudyVerdict | None, settling: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return a verdict with its sentences as JSON data; None without a verdict.

    Args:
        verdict: the verdict.
        settling: lines of `settle`: a further sentence and a command, if there are any.
    """
    if verdict is None:
        return None
    return {
        "sentences": [*sentences(verdict), *settling[:1]],
        "command": next(iter(settling[1:]), None),
        **to_json(verdict),
    }


def read_verdict(folder: Path) -> Any:
    """Return the verdict in a report's folder as JSON data; None without a readable file."""
    try:
        return json.loads(read_plain(folder / VERDICT, LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return None


def read_sentences(folder: Path) -> tuple[str, ...]:
    """Return the sentences of the verdict in a report's folder."""
    match read_verdict(folder):
        case {"sentences": [*lines]}:
            return tuple(line for line in lines if isinstance(line, str))
    return ()


def _lead(verdict: StudyVerdict) -> str:
    """Return the headline: which arms lead, how far their REG is below the baseline's, and whether they can be ranked.

    A leader is an arm that no arm beats significantly, so there may be several. What is significant follows the
    comparisons that are corrected for the study, not the intervals.
    """
    base, leaders = verdict.baseline, verdict.leaders
    by_arm = {pair.one: pair for pair in verdict.against_baseline}
    lower_arms = [arm for arm, pair in by_arm.items() if pair.significant and pair.value < 0]
    if base in leaders:
        if len(leaders) == 1:
            higher = f"every other arm has a significantly higher REG, by {_sizes(by_arm.values())} tokens"
            all_significant = all(pair.significant for pair in by_arm.values())
            return f"{base}, the baseline, leads{f': {higher}' if all_significant else ''}."
        return f"No arm has a significantly lower REG than {base}, the baseline; {_ranking(verdict)}."
    if base is None:
        return _sentence(_ranking(verdict, named=True)) if len(leaders) > 1 else f"{leaders[0]} leads."
    significant_leaders = [arm for arm in leaders if arm in lower_arms]
    if len(leaders) == 1 and significant_leaders:
        return f"{leaders[0]} leads: its REG is lower than {base}'s by {_gain(by_arm[leaders[0]], verdict)}."
    below = "a significantly lower" if len(significant_leaders) == len(leaders) else "a lower"
    gains = _sizes([by_arm[arm] for arm in leaders])
    verb = "has" if len(leaders) == 1 else "have"
    lead = f"{join_arms(leaders)} {verb} {below} REG than {base}, by {gains} tokens"
    if len(significant_leaders) == len(leaders):
        return f"{lead}; {_ranking(verdict)}."
    lead = f"{lead}; for {join_arms(significant_leaders or lower_arms)} the difference is significant."
    return f"{lead} {_sentence(_ranking(verdict))}" if len(leaders) > 1 else lead


def _sizes(pairs: Iterable[PairDifference]) -> str:
    """Return the smallest and the largest size of REG differences in tokens: `13.6 to 21.1`."""
    sizes = sorted(abs(pair.value) for pair in pairs)
    return " to ".join(dict.fromkeys(formats.number(size) for size in (sizes[0], sizes[-1])))


def _sentence(words: str) -> str:
    """Return words as a sentence: a capital first, a full stop last."""
    return f"{words[0].upper()}{words[1:]}."


def _ranking(verdict: StudyVerdict, *, named: bool = False) -> str:
    """Return a clause that says that several leaders are tied or cannot be ranked.

    Two leaders are tied if the interval of their difference contains 0. If it excludes 0 but the difference is not
    significant after correction, and with more than two leaders, the clause says that they cannot be ranked.

    Args:
        verdict: verdict with two or more leaders.
        named: whether the leaders are named. If not, they are called `they` or `the three`.
    """
    leaders = verdict.leaders
    named = named or verdict.baseline in leaders
    if len(leaders) > 2:
        count = COUNTS[len(leaders)] if len(leaders) < len(COUNTS) else f"{len(leaders)}"
        return f"{join_arms(leaders) if named else f'the {count}'} cannot be ranked"
    (pair,) = verdict.tied
    subject = join_arms(leaders) if named else "they"
    distance = f"{formats.number(0.0 - pair.value)} tokens apart"
    interval_text = _interval(pair, verdict)
    if is_tie(verdict):
        return f"{subject} are tied ({', '.join(filter(None, (distance, interval_text)))})"
    return f"{subject} cannot be ranked ({distance}, {interval_text}, {_not_significant(verdict)})"


def _not_significant(verdict: StudyVerdict) -> str:
    """Return the clause for a difference that is not significant after the correction for all comparisons."""
    return f"not significant after correcting for all {verdict.comparisons:,} comparisons"


def is_tie(verdict: StudyVerdict) -> bool:
    """Return whether the leaders are tied: the interval of each difference between them contains 0.

    If an interval excludes 0, the leaders are called not ranked, since the corrected test finds no difference.
    """
    return all(pair.low is None or pair.high is None or pair.low <= 0 <= pair.high for pair in verdict.tied)


def _list_followers(verdict: StudyVerdict) -> list[str]:
    """Return a sentence on arms that do not lead but have a significantly lower REG than the baseline; none without."""
    lower = [pair for pair in verdict.against_baseline if pair.significant and pair.value < 0]
    followers = [pair for pair in lower if pair.one not in verdict.leaders]
    # Without a significant leader, the headline names the others.
    if not followers or len(followers) == len(lower):
        return []
    arms, verb = join_arms([pair.one for pair in followers]), "has" if len(followers) == 1 else "have"
    return [
        f"{arms} also {verb} a significantly lower REG than {verdict.baseline}, by {_sizes(followers)} tokens."
    ]


def _largest(verdict: StudyVerdict) -> list[str]:
    """Return a sentence on how far the only leader is ahead of the next arm, or on the two leaders that differ most.

    There is no sentence for two leaders, whose difference is in the headline, and if the next arm is the baseline.
    """
    if len(verdict.leaders) == 1 and verdict.baseline not in verdict.arms[:2]:
        (pair,) = (pair for pair in verdict.pairs if (pair.one, pair.two) == verdict.arms[:2])
        return [f"{pair.two} is next: {pair.one}'s REG is lower by {_gain(pair, verdict)}."]
    if len(verdict.leaders) < 3:
        return []
    pair = min(verdict.tied, key=lambda pair: pair.value)
    excludes_zero = pair.low is not None and pair.high is not None and not pair.low <= 0 <= pair.high
    end = f"; this is {_not_significant(verdict)}" if excludes_zero else ""
    return [f"{pair.one} and {pair.two} differ most, by {_gain(pair, verdict)}{end}."]


def _equivalent(verdict: StudyVerdict) -> list[str]:
    """Return a sentence on the pairs of leaders that are equivalent within a margin; no sentence without such a pair.

    The first `MOST_NAMED` pairs are named, and all others are counted.
    """
    pairs = [pair for pair in verdict.same if pair.one in verdict.leaders and pair.two in verdict.leaders]
    clauses = [
        f"{pair.one} and {pair.two} are the same within {format_margin(pair)}" for pair in pairs[:MOST_NAMED]
    ]
    more = (
        f"; so are {len(pairs) - MOST_NAMED} more pairs, each within its own margin"
        if len(pairs) > MOST_NAMED
        else ""
    )
    return [f"{'; '.join(clauses)}{more}."] if clauses else []


def _overlap(verdict: StudyVerdict) -> list[str]:
    """Return a sentence on two leaders that often write the same text; no sentence below a share of `ALIKE_SHARE`."""
    common = verdict.tied[0].common if len(verdict.tied) == 1 else None
    if common is None or not common.same >= ALIKE_SHARE * common.compared > 0:
        return []
    return [f"{join_arms(verdict.leaders)} wrote the same text in {equal(verdict.tied[0])}."]


def _evidence(verdict: StudyVerdict) -> str:
    """Return a sentence on the number of seeds and questions behind the verdict."""
    if verdict.trained_once:
        return f"This rests on one seed and {_questions(verdict)}: another seed may differ."
    return f"This rests on {verdict.seeds} seeds and {_questions(verdict)}."


def _questions(verdict: StudyVerdict) -> str:
    """Return the number of questions with its noun."""
    return plural(verdict.questions, "question")


def format_margin(pair: PairDifference) -> str:
    """Return the margin within which a pair is equivalent, in tokens, rounded up to one digit after the point."""
    return f"{formats.number(math.ceil(10 * (pair.same_within or 0.0)) / 10)} tokens"


def equal(pair: PairDifference) -> str:
    """Return how many responses of a pair are equal: `545 of 576 responses`; empty if no responses were compared."""
    return "" if pair.common is None else f"{pair.common.same:,} of {pair.common.compared:,} responses"


def _gain(pair: PairDifference, verdict: StudyVerdict) -> str:
    """Return by how much the REG of a pair's first arm is lower: `19.8 tokens (95% CI 17.5 to 22.2)`."""
    interval_text = _interval(pair, verdict)
    return f"{formats.number(0.0 - pair.value)} tokens{f' ({interval_text})' if interval_text else ''}"


def _interval(pair: PairDifference, verdict: StudyVerdict) -> str:
    """Return the interval of how much lower the first arm's REG is: `95% CI −0.3 to 2.0`; empty without an interval."""
    if pair.low is None or pair.high is None:
        return ""
    low, high = (formats.number(0.0 - end) for end in (pair.high, pair.low))
    return f"{100 * verdict.confidence:g}% CI {low} to {high}"


def join_arms(arms: Sequence[str]) -> str:
    """Return names of arms as a list in a sentence: `a`, `a and b`, `a, b, c and 3 more`."""
    more = [f"{len(arms) - MOST_NAMED} more"] if len(arms) > MOST_NAMED else []
    return join_words([*arms[:MOST_NAMED], *more])
