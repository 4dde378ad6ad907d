"""Let a response think and then answer, each within its own tokens: thinking that reaches its limit is ended by a text.

Source: Xu et al. 2025, Scalable Chain of Thoughts via Elastic Reasoning (arXiv 2505.05315): separate budgets.

The inserted ending is kept beside the model's own tokens: limits, lengths and log-probabilities do not count it, and
training reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reodsl.ir import training
from reodsl.ir.model import Model
from runners.engine.protocol import (
    EMPTY,
    NO_NUMBERS,
    Engine,
    ForcedTokens,
    Generation,
    Insertion,
    Request,
    TokenSampling,
)
from runners.grade import Thinking
from runners.models.tokenizer import require_written
from runners.rollout.answers import marks_of, tokens_of_thinking
from runners.rollout.prompts import continuation_tokens


@dataclass(frozen=True, slots=True)
class Phases:
    """The tokens that thinking may have, those of the solution after it, and the text that ends thinking at its limit.

    Thinking is everything up to the first closing mark, which is its last token, or nothing if the prompt ends in that
    mark. A response that ends before the mark is thinking alone.
    """

    thinking: int
    solution: int
    ending: tuple[int, ...]
    marks: Thinking
    tokenizer: Any

    @staticmethod
    def of(rule: training.Sampling, model: Model, tokenizer: Any, *, uncut: bool = False) -> Phases | None:
        """Return the phases of a sampling rule, if it has any. Raises E0815 if the tokenizer lacks words of the ending.

        If responses are `uncut`, nothing ends their thinking, and the solution is what follows a cut.
        """
        if rule.solution is None:
            return None
        marks = marks_of(model)
        ending = rule.ending or marks.close
        require_written(tokenizer, ending, "the text that ends thinking")
        tokens = continuation_tokens(tokenizer, ending)
        thinking = rule.max_tokens if uncut else rule.max_tokens - rule.solution
        return Phases(thinking, rule.solution, tokens, marks, tokenizer)

    def thought(self, prompt: Sequence[int], response: Generation) -> int | None:
        """Return how many tokens of a response are thinking; None while the thinking goes on."""
        if response.inserted:
            return response.inserted[0].after
        tokens = response.tokens[: self.thinking]
        end = tokens_of_thinking(self.marks, self.tokenizer, prompt, tokens)
        finished = response.finish == "stop" and len(tokens) == len(response.tokens)
        return len(tokens) if end is None and finished else end

    def go_on(self, prompt: Sequence[int], response: Generation) -> tuple[Generation, int]:
        """Return a response as it continues, and how many tokens it may get: 0 at its end.

        Its thinking is ended if it has used its tokens, and its solution is cut at its limit.
        """
        thought = self.thought(prompt, response)
        if thought is None and len(response.tokens) >= self.thinking:
            response = response.truncate(self.thinking).with_inserted(Insertion(self.thinking, self.ending))
            thought = self.thinking
        most = self.thinking if thought is None else thought + self.solution
        response = response.truncate(most)
        return response, 0 if response.finish == "stop" else most - len(response.tokens)


def count_thinking(marks: Thinking, tokenizer: Any, prompt: Sequence[int], response: Generation) -> int:
    """Return how many tokens of a response are thinking: all if nothing ends it."""
    if response.inserted:
        return response.inserted[0].after
    end = tokens_of_thinking(marks, tokenizer, prompt, response.tokens)
    return len(response.tokens) if end is None else end


def draw_cut(
    engine: Engine,
    requests: Sequence[Request],
    sampling: TokenSampling,
    phases: Phases,
    shares: Sequence[float],
    group: int,
) -> list[Generation]:
    """Return responses to requests, `group` to a question: uncut responses, and each of them cut at each share.

    All uncut responses of a question are cut at the first share, then at the next. A cut is after at least a token, and
    the ending is always inserted there. The continuation has the solution's tokens, as far as a response may have any.

    Args:
        engine: The engine.
        requests: Requests, question by question.
        sampling: The sampling of responses.
        phases: The phases, with the ending.
        shares: The shares of a response at which it is cut, 0 to 1.
        group: Responses to a question, (1 + shares) times the uncut ones.

    Returns:
        A response to each request.

    Source: Han et al. 2025, Your Models Have Thought Enough (arXiv 2509.23392).
    """
    count = group // (1 + len(shares))
    uncut = engine.generate([r for i, r in enumerate(requests) if i % group < count], sampling)
    responses: list[Generation] = []
    for start in range(0, len(uncut), count):
        first = uncut[start : start + count]
        cuts = [r.truncate(max(1, int(share * len(r.tokens)))) for share in shares for r in first]
        responses += first
        responses += [
            cut.as_unfinished().with_inserted(Insertion(len(cut.tokens), phases.ending)) for cut in cuts
        ]
    rooms = {
        i: min(phases.solution, sampling.max_tokens - len(responses[i].tokens))
        for i in range(len(requests))
        if i % group >= count
    }
    going = [i for i, room in rooms.items() if room > 0]
    continued = [requests[i].after(responses[i], rooms[i]) for i in going]
    for i, more in zip(going, engine.generate(continued, sampling) if continued else (), strict=True):
        responses[i] = responses[i].then(more)
    return responses


def draw_phases(
    engine: Engine, requests: Sequence[Request], sampling: TokenSampling, phases: Phases
) -> list[Generation]:
    """Return a response to each request, whose thinking and solution each keep to their tokens."""
    responses = [EMPTY] * len(requests)
    going = list(range(len(requests)))
    while going:
        rooms = {}
        for i in going:
            responses[i], rooms[i] = phases.go_on(requests[i].prompt, responses[i])
        going = [i for i, room in rooms.items() if room]
        continued = [requests[i].after(responses[i], rooms[i]) for i in going]
        for i, more in zip(going, engine.generate(continued, sampling) if continued else (), strict=True):
            responses[i] = responses[i].then(more)
    return responses


def force(
    engine: Engine,
    requests: Sequence[Request],
    responses: Sequence[Generation],
    cuts: Sequence[Sequence[int]],
    forcing: Sequence[int],
    sampling: TokenSampling,
) -> list[list[ForcedTokens]]:
    """Force answers as `Engine.force` does. Cuts count a response's own tokens; answers follow the inserted ending.

    At the cut where thinking was ended, the answer is forced in place of the ending.
    """
    if not any(response.inserted for response in responses):
        return engine.force(requests, responses, cuts, forcing, sampling)
    leads: list[Request] = []
    spans: list[Generation] = []
    wishes: list[list[int]] = []
    owners: list[tuple[int, int]] = []
    for index, (request, response, row) in enumerate(zip(requests, responses, cuts, strict=True)):
        for start, places, before in _spans(response):
            inside = [cut - start for cut in row if cut in places]
            if inside:
                tokens = response.tokens[start : places.stop]
                owners.append((index, start))
                leads.append(Request((*request.prompt, *before), request.seed, request.num_sampled + start))
                spans.append(Generation(tokens, NO_NUMBERS, NO_NUMBERS, "stop", response.weight_versions))
                wishes.append(inside)
    forced = engine.force(leads, spans, wishes, forcing, sampling) if leads else []
    answers = {
        (index, start + answer.cut): answer.tokens
        for (index, start), span in zip(owners, forced, strict=True)
        for answer in span
    }
    return [
        [ForcedTokens(cut, answers.get((index, cut), ())) for cut in row] for index, row in enumerate(cuts)
    ]


def _spans(response: Generation) -> Iterator[tuple[int, range, tuple[int, ...]]]:
    """Yield spans of a response's cuts: the start of each, its cuts, and all tokens before it."""
    ends = [*(inserted.after for inserted in response.inserted), len(response.tokens)]
    yield 0, range(ends[0]), ()
    for inserted, end in zip(response.inserted, ends[1:], strict=True):
        first, before = inserted.after, response.sequence(inserted.after)
        yield first, range(first, min(first + 1, end)), before
        yield first, range(first + 1, end), (*before, *inserted.tokens)
