"""Rewards and selections over a question's responses, and the responses as both see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Annotated, Literal

from pydantic import Field

from reodsl.ir import expression
from reodsl.ir.base import IR, walk
from reodsl.ir.expression import (
    TRACK,
    Aggregate,
    Constant,
    Expression,
    ForcedAnswer,
    PriorSplit,
    PythonTerm,
    StepStatistic,
    TokenRun,
    Variable,
    Weight,
    WeightRule,
)


class FixedSplits(IR):
    """Splits at places that many responses share.

    Where they are `reached`, a response has those below its end, and its end.
    """

    later = frozenset({"reached"})
    reached: bool = False


class Budgets(FixedSplits):
    """Token budgets below `l_max`, increasing; the splits are these and `l_max` itself."""

    kind: Literal["budgets"] = "budgets"
    budgets: tuple[int, ...]
    l_max: int


class OracleBudgets(FixedSplits):
    """Greedy budgets on a frontier of the study (its name), found when that frontier is."""

    kind: Literal["oracle"] = "oracle"
    frontier: str
    n: int
    l_max: int
    step: int = 1


class QuestionBudgets(FixedSplits):
    """A budget for each question, from the training rollouts of other arms (their names), then `l_max`.

    `unsolved`: the budget of a question that none of them solves; one that none of them met has `l_max` alone, unless
    unsolved ones are dropped.
    """

    kind: Literal["question"] = "question"
    rollouts: tuple[str, ...]
    l_max: int
    unsolved: Literal["formula", "l_max", "drop"] = "formula"


class Steps(IR):
    """Reasoning steps: a step opens at a chunk that starts with a keyword, `min_chunks` after the last opening."""

    kind: Literal["steps"] = "steps"
    separator: str
    keywords: tuple[str, ...]
    min_chunks: int = 1
    l_max: int


class Exits(IR):
    """`n` places of each response that are drawn from all before its end, or all of them where it has fewer, and its end."""

    kind: Literal["exits"] = "exits"
    n: int
    l_max: int


Split = Annotated[Budgets | OracleBudgets | QuestionBudgets | Steps | Exits, Field(discriminator="kind")]


class DenseReward(IR):
    """A reward at each split; `var` is the split's place in tokens inside `value`."""

    split: Split
    var: str
    value: Expression


class NamedValue(IR):
    """A named intermediate, evaluated in order, once a response. `written` is its name in the spec."""

    presentation = later = frozenset({"written"})
    name: str
    value: Expression
    written: str = ""


class Track(IR):
    """A number that moves with training: found before each step from what came before it, or from the monitor set.

    A reward reads it as the name `track.NAME`, and so do later tracks. `step` is the number of steps that are done. One with
    a `start` reads the step before: its own name is its value there, `metric.NAME` a metric's, and `start` its value at the
    first.
    """

    later = frozenset({"start"})
    name: str
    value: Expression
    start: Expression | None = None


class Metric(IR):
    """A number that is logged and not learnt from: its mean over a step's responses is the column `metric_NAME`."""

    name: str
    value: Expression


class Measure(IR):
    """A number of an evaluated arm, from means over its responses and perhaps over the baseline's responses.

    `lets` are seen by `value`. `unit` is for people. It lies from `low` to `high`, as far as the language can tell.
    """

    presentation = frozenset({"name", "unit"})
    later = frozenset({"low", "high"})
    name: str
    lets: tuple[NamedValue, ...] = ()
    value: Expression
    unit: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def compares(self) -> bool:
        """Return whether the measure compares an arm with the baseline: it reads the baseline's responses."""
        return any(isinstance(node, StepStatistic) and node.over == "base" for node in walk(self))


Earner = Literal["response", "prefix", "thinking", "solution"]
"""The tokens that earn a part."""


class Part(IR):
    """A term of a reward that is a sum, normalised by itself and then multiplied by `weight`.

    A weight that is no number is of a track or of the group: the same for all responses of a question.
    A part `on` the `response` is earned by all of its tokens, the prefix's included where that is trained; one on the
    `prefix` by the prefix's tokens alone, or by the response's first token where it was given no prefix. One on the
    `thinking` or the `solution` is earned by the response's own tokens of that phase.
    """

    value: Expression
    weight: float | Expression = 1.0
    on: Earner = "response"


@dataclass(frozen=True, slots=True)
class RewardCuts:
    """The cuts at which a reward needs forced answers."""

    fixed: frozenset[int] = frozenset()
    """Constant cuts, in tokens."""
    splits: bool = False
    """True if the reward forces answers at its splits."""
    computed: bool = False
    """True if cuts are computed from responses."""

    @property
    def any(self) -> bool:
        """Return whether the reward needs a forced answer at all."""
        return bool(self.fixed) or self.splits or self.computed


def cuts_below(cuts: Iterable[int], length: float) -> tuple[int, ...]:
    """Return the cuts of a response that are shorter than the response.

    At a longer cut the complete response is graded, so that no answer is forced.

    Args:
        cuts: The cuts, in tokens.
        length: The length of the response, in tokens.
    """
    return tuple(cut for cut in cuts if cut < length)


def reached_places(ends: Iterable[int], length: int) -> tuple[int, ...]:
    """Return the places, in tokens, at which a response is rewarded: the ends of splits before its end, and its end.

    Args:
        ends: The ends of the splits, in tokens.
        length: The length of the response, in tokens.
    """
    return (*cuts_below(ends, length), length)


class Reward(IR):
    """A number for each response (`outcome`) or split (`dense`), or a sum of `parts`; all may read `lets` and `tracks`.

    `metrics` are logged beside it. `split` is where one without a `dense` value looks at responses, for statistics over
    `splits`.
    """

    presentation = frozenset({"name"})
    later = frozenset({"tracks", "metrics", "split"})
    name: str  # its name
    lets: tuple[NamedValue, ...] = ()  # named intermediates
    outcome: Expression | None = None  # a number for each response
    dense: DenseReward | None = None  # a number at each split
    parts: tuple[Part, ...] = ()  # terms with normalisations of their own
    tracks: tuple[Track, ...] = ()  # numbers that move with training
    metrics: tuple[Metric, ...] = ()  # numbers that are logged
    split: Split | None = None  # splits of statistics, without `dense`

    @property
    def splits(self) -> Split | None:
        """Return the splits of the `dense` value, or those of statistics over splits; None without splits."""
        return self.dense.split if self.dense is not None else self.split

    @property
    def values(self) -> tuple[Expression, ...]:
        """Return the expressions that make up the reward, and then those weights of parts that are expressions."""
        optional = (self.outcome, self.dense.value if self.dense is not None else None)
        terms = (term.value for term in self.parts)
        weights = (term.weight for term in self.parts if not isinstance(term.weight, float))
        return (*(value for value in optional if value is not None), *terms, *weights)

    @property
    def terms(self) -> tuple[PythonTerm, ...]:
        """Return one call for each of the user's functions that the reward calls.

        All calls of a function have the same limits.
        """
        return tuple({node.function: node for node in walk(self) if isinstance(node, PythonTerm)}.values())

    @property
    def functions(self) -> tuple[str, ...]:
        """Return the distinct functions of the user that the reward calls, as `FILE.py:FUNCTION`."""
        return tuple(term.function for term in self.terms)

    @property
    def tokens(self) -> tuple[TokenRun, ...]:
        """Return the distinct statistics over tokens that the reward reads, each for the response `y`."""
        return tuple(dict.fromkeys(node.of_any for node in walk(self) if isinstance(node, TokenRun)))

    @property
    def window(self) -> int:
        """Return the largest number of earlier steps that a track reads; 0 if no track reads earlier steps."""
        return max((item.window for item in self._step_statistics if item.over == "steps"), default=0)

    @property
    def monitors(self) -> bool:
        """Return whether a track reads the monitor set."""
        return any(statistic.over == "monitor" for statistic in self._step_statistics)

    @property
    def remembers(self) -> bool:
        """Return whether the reward reads responses to the same question in earlier steps."""
        return any(isinstance(node, Aggregate) and node.over == "history" for node in walk(self))

    @property
    def _step_statistics(self) -> list[StepStatistic]:
        """Return the statistics of tracks over earlier steps or the monitor set."""
        return [node for track in self.tracks for node in walk(track) if isinstance(node, StepStatistic)]

    @property
    def weight_rule(self) -> WeightRule | None:
        """Return the rule for the weights of the splits, such as `trapezoid`.

        The result is None without a rule, for several rules, and if weights depend on the splits that a response
        reaches.
        """
        if isinstance(self.splits, FixedSplits) and self.splits.reached:
            return None
        rules = {node.rule for node in walk(self) if isinstance(node, Weight)}
        return rules.pop() if len(rules) == 1 else None

    @property
    def forced(self) -> RewardCuts:
        """Return the cuts at which the reward needs forced answers, which each step must generate.

        Constant cuts are whole tokens, rounded down. Training computes cuts that depend on responses
        (`runners.rewards.vectorise`).
        """
        expressions = (
            *(let.value for let in self.lets),
            *self.values,
            *(metric.value for metric in self.metrics),
        )
        cuts = [
            node.cut
            for value in expressions
            for node in expression.walk(value)
            if isinstance(node, ForcedAnswer)
        ]
        lets = {let.name for let in self.lets} | {f"{TRACK}{track.name}" for track in self.tracks}
        at_splits = [
            self.splits is not None
            and (isinstance(cut, PriorSplit) or (isinstance(cut, Variable) and cut.name not in lets))
            for cut in cuts
        ]
        fixed = frozenset(max(0, floor(cut.value)) for cut in cuts if isinstance(cut, Constant))
        is_known = [
            at_split or isinstance(cut, Constant) for cut, at_split in zip(cuts, at_splits, strict=True)
        ]
        return RewardCuts(fixed, any(at_splits), not all(is_known))


@dataclass(frozen=True, slots=True)
class RewardedResponse:
    """A response. `forced[L]` and `bare[L]` are verdicts at cuts below `length`, in tokens.

    `features` are numbers by name. `tokens[node][L]` is a statistic over tokens (`Tokens.of_any`) cut at L tokens, or at the
    response's end.
    """

    length: int
    correct: bool
    forced: Mapping[int, bool] = field(default_factory=dict)
    bare: Mapping[int, bool] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)
    tokens: Mapping[TokenRun, Mapping[int, float]] = field(default_factory=dict)

    def forced_at(self, cut: int) -> bool:
        """Return whether the answer that is forced after `cut` tokens is right.

        For a response of at most `cut` tokens, this is whether the response itself is right.
        """
        return self.correct if cut >= self.length else self.forced[cut]

    def bare_at(self, cut: int) -> bool:
        """Return whether the first `cut` tokens contain the right answer, without a forced answer."""
        return self.correct if cut >= self.length else self.bare[cut]


@dataclass(frozen=True, slots=True)
class ResponseGroup:
    """A question's responses in a step, the reference model's samples of the question, and the tracks' values by name.

    `history` are the question's responses in earlier steps, the latest last. If a reward is tried by hand, `tracks` are
    given, with `step`, the number of finished steps. `batch` are the groups of all questions of the step, this group
    among them; an empty `batch` means that there is no other group.
    """

    question: str
    rollouts: tuple[RewardedResponse, ...]
    reference: tuple[RewardedResponse, ...] = ()
    tracks: Mapping[str, float] = field(default_factory=dict)
    batch: tuple[ResponseGroup, ...] = ()
    history: tuple[RewardedResponse, ...] = ()


@dataclass(frozen=True, slots=True)
class TriedResponse:
    """A response's numbers in a trial of a reward."""

    lets: tuple[float, ...]  # values of lets
    rewards: tuple[float, ...]  # at each split, or of each part, or a single number
    places: tuple[int, ...]  # ends of splits, in tokens
    advantages: tuple[float, ...]  # of each section, or of prefix, thinking and rest with parts
    tokens: tuple[int, ...]  # tokens of each section
    metrics: tuple[float, ...] = ()  # values of metrics
    tracks: tuple[float, ...] = ()  # values of tracks, equal for all responses
    weights: tuple[float, ...] = ()  # weights of parts


class Choice(IR):
    """The response with the least or the greatest `key` among the responses that meet `where`; the first among equals.

    With `each` it is all of them, and `key` has no effect.
    """

    fn: Literal["argmin", "argmax", "each"]
    var: str
    key: Expression
    where: Expression | None = None


class Pick(IR):
    """A trace or pair of a question, or a trace of `each` response: `trace`, or `preferred` and then `rejected`.

    A later choice sees the earlier one by its name, and `where` and `margin` see both. Nothing is picked where a choice
    finds nothing, where both are one response, or where `where` does not hold. `margin` says how much is picked by it.
    """

    later = frozenset({"margin"})
    trace: Choice | None = None
    preferred: Choice | None = None
    rejected: Choice | None = None
    where: Expression | None = None
    margin: Expression | None = None


class Selection(IR):
    """Picks from every question's `group` of responses; or no picks and `keep`, a condition on the questions to select.

    `lets` are evaluated once a question. Of all picks, over all questions, the share `drop` with the lowest margins is
    omitted.
    """

    presentation = frozenset({"name"})
    later = frozenset({"drop", "keep"})
    name: str
    lets: tuple[NamedValue, ...] = ()
    picks: tuple[Pick, ...]
    drop: float = 0.0
    keep: Expression | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the names of the responses in a pick: ("trace",) or ("preferred", "rejected").

        The result is empty for a selection of questions.
        """
        if self.keep is not None:
            return ()
        return ("preferred", "rejected") if self.picks[0].trace is None else ("trace",)

    @property
    def gives(self) -> str:
        """Return the data that the selection gives for training: `questions`, `traces` or `pairs`."""
        return {0: "questions", 1: "traces", 2: "pairs"}[len(self.roles)]

    def most(self, responses: int) -> int:
        """Return the largest number of picks (traces or pairs) from a question with `responses` responses."""
        takes_all_of = [pick.trace is not None and pick.trace.fn == "each" for pick in self.picks]
        return sum(responses if takes_all else 1 for takes_all in takes_all_of)
