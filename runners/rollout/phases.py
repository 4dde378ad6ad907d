"""Responses in two phases, thinking and solution, with separate limits: an inserted text ends thinking at its limit.

Source: Xu et al. 2025, Scalable Chain of Thoughts via Elastic Reasoning (arXiv 2505.05315): separate budgets.

The inserted text is stored separately from the tokens that the model sampled. Limits, lengths and log-probabilities do not
count it, but the model reads it.
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
    """The limits of thinking and solution in tokens, and the text that ends thinking at its limit.

    Thinking is everything up to and including the first closing mark, or nothing if the prompt ends in that mark. If a
    response ends without the mark, all of it is thinking.
    """

    thinking: int
    solution: int
    ending: tuple[int, ...]
    marks: Thinking
    tokenizer: Any

    @staticmethod
    def of(rule: training.Sampling, model: Model, tokenizer: Any, *, is_uncut: bool = False) -> Phases | None:
        """Return the phases of a method's sampling; None if it has a single phase.

        Args:
            rule: The settings of sampling.
            model: The model's declaration, with its marks.
            tokenizer: The model's tokenizer.
            is_uncut: Whether thinking has no limit of its own because responses are cut later (`draw_cut`).

        Raises:
            Problem: E0815, if the tokenizer cannot write the text that ends thinking.
        """
        if rule.solution is None:
            return None
        marks = marks_of(model)
        ending = rule.ending or marks.close
        require_written(tokenizer, ending, "the text that ends thinking")
        tokens = continuation_tokens(tokenizer, ending)
        thinking = rule.max_tokens if is_uncut else rule.max_tokens - rule.solution
        return Phases(thinking, rule.solution, tokens, marks, tokenizer)

    def thought(self, prompt: Sequence[int], response: Generation) -> int | None:
        """Return the number of sampled tokens of a response that are thinking; None if thinking has not ended.

        If thinking was ended by an inserted text, these are the tokens before the text. If a response stopped within the
        limit without a closing mark, they are all tokens.
        """
        if response.inserted:
            return response.inserted[0].after
        tokens = response.tokens[: self.thinking]
        end = tokens_of_thinking(self.marks, self.tokenizer, prompt, tokens)
        finished = response.finish == "stop" and len(tokens) == len(response.tokens)
        return len(tokens) if end is None and finished else end

    def go_on(self, prompt: Sequence[int], response: Generation) -> tuple[Generation, int]:
        """Prepare a response for its next continuation, within the limits of thinking and solution.

        If thinking has reached its limit, the ending text is inserted there, and later tokens are dropped. If the
        solution is longer than its limit, it is cut.

        Args:
            prompt: Token ids of the prompt.
            response: The response so far.

        Returns:
            The response, and the largest number of tokens to add; 0 if the response is complete.
        """
        thinking = self.thought(prompt, response)
        if thinking is None and len(response.tokens) >= self.thinking:
            response = response.truncate(self.thinking).with_inserted(Insertion(self.thinking, self.ending))
            thinking = self.thinking
        limit = self.thinking if thinking is None else thinking + self.solution
        response = response.truncate(limit)
        return response, 0 if response.finish == "stop" else limit - len(response.tokens)


def count_thinking(marks: Thinking, tokenizer: Any, prompt: Sequence[int], response: Generation) -> int:
    """Return how many sampled tokens of a response are thinking; all tokens if thinking is never closed.

    If thinking was ended by an inserted text, these are the tokens before the text.

    Args:
        marks: The marks of thinking.
        tokenizer: The tokenizer.
        prompt: Token ids of the prompt; the result is 0 if it ends in the closing mark.
        response: The response.
    """
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
    group_size: int,
) -> list[Generation]:
    """Sample uncut responses, and continue each of them from a cut at each share of its length.

    A cut is after at least one token. The text that ends thinking is inserted there, and the model writes a solution.

    Args:
        engine: The engine.
        requests: Requests, question by question; a question has `group_size` requests.
        sampling: The sampling of responses.
        phases: The phases, with the text that ends thinking.
        shares: The shares of a response at which it is cut, 0 to 1.
        group_size: The number of responses to a question: (1 + number of shares) times the number of uncut responses.

    Returns:
        A response to each request. For each question, uncut responses come first, then all cut at the first share, and
        so on.

    Source: Han et al. 2025, Your Models Have Thought Enough (arXiv 2509.23392).
    """
    num_uncut = group_size // (1 + len(shares))
    uncut = engine.generate([r for i, r in enumerate(requests) if i % group_size < num_uncut], sampling)
    responses: list[Generation] = []
    for start in range(0, len(uncut), num_uncut):
        originals = uncut[start : start + num_uncut]
        cuts = [r.truncate(max(1, int(share * len(r.tokens)))) for share in shares for r in originals]
        responses += originals
        responses += [
            cut.as_unfinished().with_inserted(Insertion(len(cut.tokens), phases.ending)) for cut in cuts
        ]
    tokens_left = {
        i: min(phases.solution, sampling.max_tokens - len(responses[i].tokens))
        for i in range(len(requests))
        if i % group_size >= num_uncut
    }
    active = [i for i, left in tokens_left.items() if left > 0]
    continued = [requests[i].after(responses[i], tokens_left[i]) for i in active]
    for i, suffix in zip(active, engine.generate(continued, sampling) if continued else (), strict=True):
        responses[i] = responses[i].then(suffix)
    return responses


def draw_phases(
    engine: Engine, requests: Sequence[Request], sampling: TokenSampling, phases: Phases
) -> list[Generation]:
    """Sample a response to each request, within the limits of thinking and solution.

    Args:
        engine: The engine.
        requests: The requests.
        sampling: The sampling of responses.
        phases: The limits, and the text that ends thinking at its limit.
    """
    responses = [EMPTY] * len(requests)
    active = list(range(len(requests)))
    while active:
        tokens_left = {}
        for i in active:
            responses[i], tokens_left[i] = phases.go_on(requests[i].prompt, responses[i])
        active = [i for i, left in tokens_left.items() if left]
        continued = [requests[i].after(responses[i], tokens_left[i]) for i in active]
        for i, suffix in zip(active, engine.generate(continued, sampling) if continued else (), strict=True):
            responses[i] = responses[i].then(suffix)
    return responses


def force(
    engine: Engine,
    requests: Sequence[Request],
    responses: Sequence[Generation],
    cuts: Sequence[Sequence[int]],
    forcing: Sequence[int],
    sampling: TokenSampling,
) -> list[list[ForcedTokens]]:
    """Force answers as `Engine.force` does, for responses that may have an inserted text at the end of thinking.

    Cuts count only tokens that the model sampled. A cut later than the inserted text includes the text in its prefix. At
    the cut where the text was inserted, the prefix excludes the text, and the forcing text takes its place.

    Args:
        engine: The engine.
        requests: The requests.
        responses: The responses to the requests.
        cuts: The cuts of each response.
        forcing: Token ids of the forcing text.
        sampling: The sampling of forced answers.

    Returns:
        For each response, its forced answers, one for each cut; empty tokens for a cut at or beyond its end.
    """
    if not any(response.inserted for response in responses):
        return engine.force(requests, responses, cuts, forcing, sampling)
    prefixes: list[Request] = []
    spans: list[Generation] = []
    span_cuts: list[list[int]] = []
    owners: list[tuple[int, int]] = []
    for index, (request, response, row) in enumerate(zip(requests, responses, cuts, strict=True)):
        for start, cut_range, prefix in _spans(response):
            inside = [cut - start for cut in row if cut in cut_range]
            if inside:
                tokens = response.tokens[start : cut_range.stop]
                owners.append((index, start))
                prefixes.append(
                    Request((*request.prompt, *prefix), request.seed, request.num_sampled + start)
                )
                spans.append(Generation(tokens, NO_NUMBERS, NO_NUMBERS, "stop", response.weight_versions))
                span_cuts.append(inside)
    forced = engine.force(prefixes, spans, span_cuts, forcing, sampling) if prefixes else []
    answers = {
        (index, start + answer.cut): answer.tokens
        for (index, start), span in zip(owners, forced, strict=True)
        for answer in span
    }
    return [
        [ForcedTokens(cut, answers.get((index, cut), ())) for cut in row] for index, row in enumerate(cuts)
    ]


def _spans(response: Generation) -> Iterator[tuple[int, range, tuple[int, ...]]]:
    """Divide the cuts of a response into ranges, in each of which the same inserted texts come before a cut.

    `force` lets the engine force the cuts of one range together, as cuts of a response that begins after a prefix.

    Yields:
        The number of sampled tokens in the prefix; the range of cuts; and the token ids of the prefix, with the inserted
        texts that come before the cuts.
    """
    ends = [*(inserted.after for inserted in response.inserted), len(response.tokens)]
    yield 0, range(ends[0]), ()
    for inserted, end in zip(response.inserted, ends[1:], strict=True):
        start, prefix = inserted.after, response.sequence(inserted.after)
        yield start, range(start, min(start + 1, end)), prefix
        yield start, range(start + 1, end), (*prefix, *inserted.tokens)
