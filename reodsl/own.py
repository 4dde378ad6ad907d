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
    """A response to reward: `def score(response: Response) -> float`, or of `responses: list[Response]` a list.

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
    """A question that a task draws: `def make(random: Random) -> Question`, of an own `Random` for each.

    `meta` is what verifiers, rewards (`x.NAME`, its numbers) and others may know of it; `trace` a worked solution, for SFT.
    """

    question: str
    answer: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to judge: `def check(answer: Answer) -> bool`, or `def check(answers: list[Answer]) -> list[bool]`.

    `text` is what was read of the response, by the data's `answer` setting, and empty where nothing was. `reference` is
    the question's answer in the data, the first of `references` where there are several; `meta` is what else the data has
    of the question.
    """

    question: str
    text: str
    reference: str
    references: Sequence[str] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """A question's responses, for `def advantage(group: Group) -> list`, or of `groups: list[Group]` a list of lists.

    The result has for each response its advantage, or a list with one for each section. `rewards` has those of each response
    at its splits, which end its sections: one for an outcome. `sections` has how many tokens each section has, and 0 where a
    response lacks it. `lengths` are all tokens of a response, and `correct` is what the verifier said.
    """

    rewards: Sequence[Sequence[float]]
    sections: Sequence[Sequence[int]]
    lengths: Sequence[int]
    correct: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The trained tokens of whole responses, one after another, for `def loss(tokens: Tokens) -> Tensor`: [tokens] as well.

    All tensors are torch's, on the trainer's device, without padding, and float32 of the shape [tokens] where nothing else
    is said. Those with a gradient are `logprobs`, `entropies` and `divergences`. Log-probabilities are of the tokens, at the
    temperature of the rollouts.
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
