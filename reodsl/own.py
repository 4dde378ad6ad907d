"""Type hints for the file of a user's function: its arguments and its result; `reodsl explain own_code` has examples.

    from reodsl.own import Answer

    def check(answer: Answer) -> bool:
        return answer.text.strip() == answer.reference

The name of the parameter says how it is called: `answer` is one at a time, `answers` a list of them. It imports nothing of
this project, because the processes that run own code wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Response:
    """A response to reward: `def score(response: Response) -> float`, or `responses: list[Response]` for a list of rewards.

    An `Answer` has the same question, references and metadata.
    """

    question: str  # the question's text
    text: str  # the response's text
    answer: str  # the answer that was read from the response
    correct: bool  # the verifier's verdict
    tokens: int  # the response's length
    reference: str  # the first reference answer
    references: Sequence[str] = ()  # all reference answers
    meta: Mapping[str, Any] = field(default_factory=dict)  # further columns of the question


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a task generates: `def make(random: Random) -> Question`, with a new `Random` for each question.

    `meta` holds further values for verifiers and rewards (numbers as `x.NAME`); `trace` is a worked solution
    for SFT.
    """

    question: str
    answer: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to judge: `def check(answer: Answer) -> bool`, or `def check(answers: list[Answer]) -> list[bool]`.

    `text` is the answer that the data's `answer` setting found in the response, empty if it found none.
    `reference` is the first of the reference answers `references`; `meta` holds the further columns of the
    question.
    """

    question: str
    text: str
    reference: str
    references: Sequence[str] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """The responses to a question: `def advantage(group: Group) -> list`, or `groups: list[Group]` for a list of lists.

    The function returns for each response its advantage, or a list with an advantage for each section. A
    section of a response ends at a split of the reward. `rewards` has the rewards of each response, one for
    each section (a single one without splits). `sections` has the number of tokens of each section, 0 for a
    section that a response lacks. `lengths` has the number of tokens of each response, and `correct` the
    verifier's verdicts.
    """

    rewards: Sequence[Sequence[float]]
    sections: Sequence[Sequence[int]]
    lengths: Sequence[int]
    correct: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The trained tokens of several responses in sequence: `def loss(tokens: Tokens) -> Tensor`, a loss for each token.

    All tensors are torch's, on the trainer's device, without padding, and of shape [tokens] and type float32
    unless stated otherwise. `logprobs`, `entropies` and `divergences` have a gradient. Log-probabilities are
    of the tokens, at the temperature of the rollouts.
    """

    logprobs: Any  # log-probabilities under the policy now
    old: Any  # log-probabilities that ratios divide by
    rollout: Any  # log-probabilities under the engine
    advantages: Any  # advantages of the tokens
    drawn: Any  # booleans: false for a token that a wording put before the response
    lengths: Any  # integers [responses]: the number of tokens of each response
    responses: Any  # integers [tokens]: the index of each token's response
    low: float  # lower bound of the spec's `clip`
    high: float  # upper bound of the spec's `clip`
    kl: float = 0.0  # the spec's weight `kl`
    entropy: float = 0.0  # the spec's weight `entropy`
    reference: Any = None  # log-probabilities under the reference model or teacher; None if `kl` is 0
    entropies: Any = None  # the policy's entropies; None if `entropy` is 0
    divergences: Any = None  # divergences in nats; None unless `kl` compares full distributions
