"""Rewards and selections over a question's responses, and the responses as both see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Annotated, Literal

from pydantic import Field

from reodsl.ir.base import IR, values_of, walk
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
    """Splits that are the same for many responses.

    If `reached`, a response has only the splits before its end, and its end.
    """

    later = frozenset({"reached"})
    reached: bool = False


class Budgets(FixedSplits):
    """Increasing token budgets below `l_max`; the splits are the budgets and `l_max`."""

    kind: Literal["budgets"] = "budgets"
    budgets: tuple[int, ...]
    l_max: int


class OracleBudgets(FixedSplits):
    """Budgets that a greedy search finds on a frontier of the study, once the frontier is known."""

    kind: Literal["oracle"] = "oracle"
    frontier: str
    n: int
    l_max: int
    step: int = 1


class QuestionBudgets(FixedSplits):
    """A budget for each question, estimated from training rollouts of other arms, and then `l_max`.

    `unsolved` says which budget a question gets that no arm solves. A question without rollouts has only `l_max`, unless
    unsolved questions are dropped.
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
    """`n` random places before the end of each response, or all places of a shorter response, and the end."""

    kind: Literal["exits"] = "exits"
    n: int
    l_max: int


Split = Annotated[Budgets | OracleBudgets | QuestionBudgets | Steps | Exits, Field(discriminator="kind")]


class DenseReward(IR):
    """A reward at each split; in `value`, the name `var` is the split, in tokens."""

    split: Split
    var: str
    value: Expression


class NamedValue(IR):
    """A named intermediate value, evaluated once per response, in order. `written` is its name in the spec."""

    presentation = later = frozenset({"written"})
    name: str
    value: Expression
    written: str = ""


class Track(IR):
    """A number that changes with training: computed before each step from earlier steps or the monitor set.

    The reward and later tracks read it as `track.NAME`. `step` is the number of finished steps. A track with a `start` may
    read the previous step: its own name is its previous value, `metric.NAME` is the mean of a metric, and `start` is its
    value at the first step.
    """

    later = frozenset({"start"})
    name: str
    value: Expression
    start: Expression | None = None


class Metric(IR):
    """A number that is only logged: its mean over a step's responses is the column `metric_NAME`."""

    name: str
    value: Expression


class Measure(IR):
    """A number of an evaluated arm, made of means over the arm's responses and perhaps over the baseline's.

    `value` may read the `lets`. `unit` is for people. The number is from `low` to `high`, as far as the language can tell.
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
    """A term of a reward that is a sum: `value` is normalised separately and then multiplied by `weight`.

    A weight that is an expression reads tracks or the group, so that it is the same for all responses to a question.
    `on` says which tokens earn the part: all tokens of the `response`, with a trained prefix; only the tokens of the
    `prefix`, or the first token of a response without a prefix; or the tokens of a phase, `thinking` or `solution`.
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

    At a longer cut the complete response is graded, and no answer is forced.

    Args:
        cuts: The cuts, in tokens.
        length: The length of the response, in tokens.
    """
    return tuple(cut for cut in cuts if cut < length)


def reached_places(ends: Iterable[int], length: int) -> tuple[int, ...]:
    """Return the positions, in tokens, at which a response is rewarded.

    Splits divide a response into sections. The positions are the ends of all sections that are shorter than the
    response, and then the end of the response itself.

    Args:
        ends: The ends of the sections, in tokens from the beginning of the response.
        length: The length of the response, in tokens.
    """
    return (*cuts_below(ends, length), length)


class Reward(IR):
    """A number for each response (`outcome`) or split (`dense`), or a sum of `parts`; all may read `lets` and `tracks`.

    `metrics` are only logged. `split` has the splits of a reward without a `dense` value, for statistics over `splits`.
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
        """Return the splits of the reward: the positions, in tokens, at which a response is divided.

        These are the splits of its `dense` value, or else of its statistics over splits; None if it has neither.
        """
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
        """Return the rule for the weights of the splits of a `dense` value, such as `trapezoid`.

        Splits are the positions, in tokens, at which a response is divided. The result is None if there is no rule,
        if there are several rules, and if the splits depend on the response (`reached`), since then no weights can
        be shown before a run.
        """
        if isinstance(self.splits, FixedSplits) and self.splits.reached:
            return None
        rules = {node.rule for node in walk(self) if isinstance(node, Weight)}
        return rules.pop() if len(rules) == 1 else None

    @property
    def forced(self) -> RewardCuts:
        """Return the cuts at which the reward needs forced answers, which each step must generate.

        Returns:
            The constant cuts as whole tokens, rounded down; whether there are cuts at splits, the positions at which
            a response is divided; and whether there are other cuts, which training computes from the responses
            (`runners.rewards.vectorise`).
        """
        cuts = [node.cut for node in values_of(self, ForcedAnswer)]
        lets = {let.name for let in self.lets} | {f"{TRACK}{track.name}" for track in self.tracks}
        at_splits = [
            cut
            for cut in cuts
            if isinstance(cut, PriorSplit) or (isinstance(cut, Variable) and cut.name not in lets)
        ] * (self.splits is not None)
        constants = [max(0, floor(cut.value)) for cut in cuts if isinstance(cut, Constant)]
        return RewardCuts(frozenset(constants), bool(at_splits), len(cuts) > len(at_splits) + len(constants))


@dataclass(frozen=True, slots=True)
class RewardedResponse:
    """A response with the numbers that a reward reads.

    `length` is in tokens. `forced[L]` is the verdict on the answer forced after L tokens, and `bare[L]` the verdict on the
    first L tokens alone, for cuts L below `length`. `features` are numbers by name. `tokens[node][L]` is the value of a
    statistic over tokens (`TokenRun.of_any`), cut at L tokens or at the response's end.
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
    """A question's responses in a step (`rollouts`), with what a reward reads besides.

    `reference` are the reference model's responses to the question, and `history` the responses in earlier steps, the
    latest last. `tracks` are the values of tracks by name; if a reward is tried by hand, with `step`, the number of
    finished steps. `batch` has the groups of all questions of the step, this group among them; it may be empty if this is
    the only group.
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
    """A rule that picks a `trace`, or a pair of a `preferred` and a `rejected` response, from a question's responses.

    `rejected` may read the preferred response by its name, and `where` and `margin` may read all chosen responses. Nothing
    is picked if a choice finds no response, if both choices are the same response, or if `where` does not hold. Picks
    with the lowest `margin` are dropped first.
    """

    later = frozenset({"margin"})
    trace: Choice | None = None
    preferred: Choice | None = None
    rejected: Choice | None = None
    where: Expression | None = None
    margin: Expression | None = None


class Selection(IR):
    """Picks from the responses to each question (`group`); or no picks and `keep`, a condition that selects questions.

    `lets` are evaluated once per question. Of all picks of all questions, the share `drop` with the lowest margins is left
    out.
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
