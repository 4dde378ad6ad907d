"""Let a response think and then answer, each within tokens of its own: where it has thought for long enough, it is told so.

Source: Xu et al. 2025, Scalable Chain of Thoughts via Elastic Reasoning (arXiv 2505.05315): separate budgets.

What ends the thinking by force stands beside the model's own tokens: limits, lengths and
log-probabilities do not count it, and training reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reodsl.ir import training
from reodsl.ir.model import Model
from runners.engine.protocol import (
    NO_NUMBERS,
    NOTHING,
    Engine,
    ForcedTokens,
    Generation,
    Inserted,
    Request,
    TokenSampling,
)
from runners.grade import Thinking
from runners.models.tokenizer import require_written
from runners.rollout.answers import marks_of, tokens_of_thinking
from runners.rollout.prompts import continuation_tokens


@dataclass(frozen=True, slots=True)
class Phases:
    """The tokens that thinking may have, those of the solution after it, and what ends thinking that has no more.

    Thinking is all up to the first closing mark, which is its last token, or nothing where the prompt ends in that mark.
    A response that ends before is thinking alone.
    """

    thinking: int
    solution: int
    ending: tuple[int, ...]
    marks: Thinking
    tokenizer: Any

    @staticmethod
    def of(rule: training.Sampling, model: Model, tokenizer: Any, *, whole: bool = False) -> Phases | None:
        """Return the phases of a sampling rule, if it has any. Raises E0815 where the tokenizer lacks the ending's words.

        Where responses are `whole`, nothing ends their thinking, and the solution is what follows a cut.
        """
        if rule.solution is None:
            return None
        marks = marks_of(model)
        ending = rule.ending or marks.close
        require_written(tokenizer, ending, "the text that ends thinking")
        tokens = continuation_tokens(tokenizer, ending)
        thinking = rule.max_tokens if whole else rule.max_tokens - rule.solution
        return Phases(thinking, rule.solution, tokens, marks, tokenizer)

    def thought(self, prompt: Sequence[int], response: Generation) -> int | None:
        """Return how many of its tokens are a response's thinking; None while that goes on."""
        if response.inserted:
            return response.inserted[0].after
        tokens = response.tokens[: self.thinking]
        found = tokens_of_thinking(self.marks, self.tokenizer, prompt, tokens)
        ended = response.finish == "stop" and len(tokens) == len(response.tokens)
        return len(tokens) if found is None and ended else found

    def go_on(self, prompt: Sequence[int], response: Generation) -> tuple[Generation, int]:
        """Return a response as it goes on, and how many tokens it may get: 0 for one at its end.

        Its thinking is ended where it has used its tokens, and it is cut where its solution has more than its own.
        """
        thought = self.thought(prompt, response)
        if thought is None and len(response.tokens) >= self.thinking:
            response = response.first(self.thinking).with_inserted(Inserted(self.thinking, self.ending))
            thought = self.thinking
        most = self.thinking if thought is None else thought + self.solution
        response = response.first(most)
        return response, 0 if response.finish == "stop" else most - len(response.tokens)


def count_thinking(marks: Thinking, tokenizer: Any, prompt: Sequence[int], response: Generation) -> int:
    """Return how many of its tokens are a response's thinking: all where nothing ends it."""
    if response.inserted:
        return response.inserted[0].after
    found = tokens_of_thinking(marks, tokenizer, prompt, response.tokens)
    return len(response.tokens) if found is None else found


def draw_cut(
    engine: Engine,
    requests: Sequence[Request],
    sampling: TokenSampling,
    phases: Phases,
    shares: Sequence[float],
    group: int,
) -> list[Generation]:
    """Return a response to each request, of which `group` are to a question: whole ones, and each of them cut at each share.

    Source: Han et al. 2025, Your Models Have Thought Enough (arXiv 2509.23392). All whole ones of a question are cut at the
    first share, then at the next. A cut is after a token at least, and the ending is read there in any case. What comes
    next has the solution's tokens, as far as a response may have any.
    """
    count = group // (1 + len(shares))
    whole = engine.generate([each for at, each in enumerate(requests) if at % group < count], sampling)
    responses: list[Generation] = []
    for start in range(0, len(whole), count):
        first = whole[start : start + count]
        cuts = [each.first(max(1, int(share * len(each.tokens)))) for share in shares for each in first]
        responses += first
        responses += [
            cut.unfinished().with_inserted(Inserted(len(cut.tokens), phases.ending)) for cut in cuts
        ]
    rooms = {
        at: min(phases.solution, sampling.max_tokens - len(responses[at].tokens))
        for at in range(len(requests))
        if at % group >= count
    }
    going = [at for at, room in rooms.items() if room > 0]
    asked = [requests[at].after(responses[at], rooms[at]) for at in going]
    for at, more in zip(going, engine.generate(asked, sampling) if asked else (), strict=True):
        responses[at] = responses[at].then(more)
    return responses


def draw_phases(
    engine: Engine, requests: Sequence[Request], sampling: TokenSampling, phases: Phases
) -> list[Generation]:
    """Return a response to each request, whose thinking and solution keep to their tokens."""
    responses = [NOTHING] * len(requests)
    going = list(range(len(requests)))
    while going:
        rooms = {}
        for at in going:
            responses[at], rooms[at] = phases.go_on(requests[at].prompt, responses[at])
        going = [at for at, room in rooms.items() if room]
        asked = [requests[at].after(responses[at], rooms[at]) for at in going]
        for at, more in zip(going, engine.generate(asked, sampling) if asked else (), strict=True):
            responses[at] = responses[at].then(more)
    return responses


def force(
    engine: Engine,
    requests: Sequence[Request],
    responses: Sequence[Generation],
    cuts: Sequence[Sequence[int]],
    forcing: Sequence[int],
    sampling: TokenSampling,
) -> list[list[ForcedTokens]]:
    """Force answers as `Engine.force` does. Cuts count a response's own tokens; answers follow what ended its thinking.

    At a cut where thinking was ended, the answer is forced in the place of what ended it.
    """
    if not any(response.inserted for response in responses):
        return engine.force(requests, responses, cuts, forcing, sampling)
    leads: list[Request] = []
    spans: list[Generation] = []
    wishes: list[list[int]] = []
    owners: list[tuple[int, int]] = []
    for index, (request, response, wanted) in enumerate(zip(requests, responses, cuts, strict=True)):
        for start, places, before in _spans(response):
            inside = [cut - start for cut in wanted if cut in places]
            if inside:
                tokens = response.tokens[start : places.stop]
                owners.append((index, start))
                leads.append(Request((*request.prompt, *before), request.seed, request.drawn + start))
                spans.append(Generation(tokens, NO_NUMBERS, NO_NUMBERS, "stop", response.weight_versions))
                wishes.append(inside)
    forced = engine.force(leads, spans, wishes, forcing, sampling) if leads else []
    answers = {
        (index, start + answer.cut): answer.tokens
        for (index, start), span in zip(owners, forced, strict=True)
        for answer in span
    }
    return [
        [ForcedTokens(cut, answers.get((index, cut), ())) for cut in wanted]
        for index, wanted in enumerate(cuts)
    ]


def _spans(response: Generation) -> Iterator[tuple[int, range, tuple[int, ...]]]:
    """Yield spans of a response's cuts: where each begins, the cuts, and all that is read before it begins."""
    ends = [*(inserted.after for inserted in response.inserted), len(response.tokens)]
    yield 0, range(ends[0]), ()
    for inserted, end in zip(response.inserted, ends[1:], strict=True):
        first, before = inserted.after, response.sequence(inserted.after)
        yield first, range(first, min(first + 1, end)), before
        yield first, range(first + 1, end), (*before, *inserted.tokens)
