"""The rollout protocol: the small interface of every engine.

Every engine (the embedded torch one, SGLang) implements `Engine`; callers know nothing else about them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import torch

from reodsl.diagnostics import problem


@dataclass(frozen=True, slots=True)
class TokenSampling:
    """The sampling of tokens. `temperature` 0 is greedy; `top_p` 1 and `top_k` -1 do not truncate the distribution.

    Temperature comes first, then top-k, then top-p on the rest; the remaining tokens are renormalised. In falling order
    of probability, tokens remain until their sum reaches `top_p`, the first always. Generation stops after the first of
    `stop_ids` or after `max_tokens` tokens. Without `logprobs` responses carry no log-probabilities, and servers answer
    several times cheaper.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_ids: tuple[int, ...] = ()
    logprobs: bool = True

    @property
    def plain(self) -> bool:
        """Return whether tokens are sampled from the model's own distribution (temperature 1, no truncation)."""
        return self.temperature == 1.0 and self.top_p >= 1.0 and self.top_k <= 0


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt as token ids, and the 64-bit seed of its stream of draws.

    Requests with equal prompts in one call share one prefill. The uniform behind token t is a function of `(seed, t)`
    alone, so a response does not depend on its batch. `num_sampled` tokens of the prompt are the response's own, from
    earlier calls: the next token has that index in it. `max_tokens` is a limit of this request below that of its call.
    """

    prompt: tuple[int, ...]
    seed: int
    num_sampled: int = 0
    max_tokens: int | None = None

    def limit(self, sampling: TokenSampling) -> int:
        """Return the most tokens of the response: the smaller of the call's and the request's limit."""
        return sampling.max_tokens if self.max_tokens is None else min(self.max_tokens, sampling.max_tokens)

    def after(self, response: Generation, max_tokens: int | None = None) -> Request:
        """Return the request that continues a response to this request.

        Its prompt is this prompt and the response, insertions included. Its first token is sampled with the random
        number that follows those of the response's tokens.

        Args:
            response: The response so far.
            max_tokens: The most tokens of the continuation; None for the limit of the call.
        """
        prompt = (*self.prompt, *response.sequence())
        return Request(prompt, self.seed, self.num_sampled + len(response.tokens), max_tokens)

    def limit_sampling(self, sampling: TokenSampling) -> TokenSampling:
        """Return `sampling` with the request's limit of tokens instead of the call's, if the request has a lower limit."""
        return sampling if self.max_tokens is None else replace(sampling, max_tokens=self.limit(sampling))


@dataclass(frozen=True, slots=True)
class Insertion:
    """Tokens that the model did not sample: they end its thinking after the first `after` tokens of a response."""

    after: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    """The result of a request.

    `tokens` include the stop token if there was one (`finish == "stop"`). `logprobs[t]` is the log-probability of
    `tokens[t]` under the model's own softmax (temperature 1, no truncation): what a trainer recomputes.
    `sampling_logprobs[t]` is that under the distribution that the token was sampled from (tempered, truncated,
    renormalised; 0 if greedy): what importance weights divide by. The two are the same array if `TokenSampling.plain`,
    and empty without `TokenSampling.logprobs`. A step has tens of millions of these numbers, so they are no Python
    objects. `weight_versions` are the versions of the weights in the order of tokens: several if new weights came
    meanwhile. `inserted` is what ended its thinking; no engine inserts anything, and insertions do not count as the
    response's tokens.
    """

    tokens: tuple[int, ...]
    logprobs: array[float]
    sampling_logprobs: array[float]
    finish: Literal["stop", "length"]
    weight_versions: tuple[int, ...]
    inserted: tuple[Insertion, ...] = ()

    def sequence(self, count: int | None = None) -> tuple[int, ...]:
        """Return the sampled tokens with the inserted tokens between them.

        Args:
            count: The number of sampled tokens to return, with the insertions that come before the last of these
                tokens: an insertion directly after token `count` is left out. None for the full sequence, which
                includes an insertion at the end.
        """
        end = len(self.tokens) if count is None else count
        if not self.inserted:
            return self.tokens[:end]
        parts: list[int] = []
        start = 0
        for insertion in self.inserted:
            if insertion.after < end or (insertion.after == end and count is None):
                parts += (*self.tokens[start : insertion.after], *insertion.tokens)
                start = insertion.after
        return (*parts, *self.tokens[start:end])

    def gaps(self, lead: int = 0) -> list[tuple[int, int]]:
        """Return the positions of the inserted tokens in a longer sequence that contains the response.

        Args:
            lead: The number of tokens before the response in the longer sequence, e.g. of the prompt.

        Returns:
            For each insertion, the index of its first token in the longer sequence and its number of tokens.
        """
        gaps, offset = [], lead
        for insertion in self.inserted:
            gaps.append((offset + insertion.after, len(insertion.tokens)))
            offset += len(insertion.tokens)
        return gaps

    def then(self, continuation: Generation) -> Generation:
        """Return this response joined with its continuation.

        Each token keeps its log-probabilities. `finish` is the continuation's. The insertions are those of this
        response: a continuation has none, because engines insert nothing. If log-probabilities and sampling
        log-probabilities are the same array in both parts, they are the same array in the result.
        """
        logprobs = self.logprobs + continuation.logprobs
        shares_array = (
            self.sampling_logprobs is self.logprobs
            and continuation.sampling_logprobs is continuation.logprobs
        )
        return Generation(
            self.tokens + continuation.tokens,
            logprobs,
            logprobs if shares_array else self.sampling_logprobs + continuation.sampling_logprobs,
            continuation.finish,
            tuple(dict.fromkeys(self.weight_versions + continuation.weight_versions)),
            self.inserted,
        )

    def count_own(self, count: int) -> int:
        """Return how many of the first `count` tokens of `sequence()` the model sampled; the others were inserted."""
        for insertion in self.inserted:
            count -= min(len(insertion.tokens), max(0, count - insertion.after))
        return count

    def truncate(self, count: int) -> Generation:
        """Return a response of the first `count` sampled tokens, with `finish` "length"; insertions stay as they are.

        A response with at most `count` sampled tokens is returned unchanged.
        """
        if len(self.tokens) <= count:
            return self
        logprobs = self.logprobs[:count]
        sampling = logprobs if self.sampling_logprobs is self.logprobs else self.sampling_logprobs[:count]
        tokens = self.tokens[:count]
        return replace(self, tokens=tokens, logprobs=logprobs, sampling_logprobs=sampling, finish="length")

    def with_inserted(self, inserted: Insertion) -> Generation:
        """Return the response with one more insertion, after all earlier insertions."""
        return replace(self, inserted=(*self.inserted, inserted))

    def as_unfinished(self) -> Generation:
        """Return the response with `finish` "length", as if a limit of tokens had cut it."""
        return replace(self, finish="length")


NO_NUMBERS = array("d")
"""The log-probabilities of a response that was not asked for any."""
EMPTY = Generation((), NO_NUMBERS, NO_NUMBERS, "length", ())
"""A response without tokens."""


@dataclass(frozen=True, slots=True)
class ForcedTokens:
    """The answer tokens that follow `prompt + response[:cut] + forcing`; stop token included, if any.

    Empty if `cut` is not inside the response: then the response is graded as it is.
    """

    cut: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ForcingPlan:
    """The next call of `force`: `cuts(i, response)` of request i's response, the forcing text and its sampling.

    A guess: an engine may use it to answer while other responses still run, and nothing depends on it.
    """

    cuts: Callable[[int, Generation], Sequence[int]]
    forcing: tuple[int, ...]
    sampling: TokenSampling


OnResponse = Callable[[int, Generation, Mapping[int, tuple[int, ...]]], None]
"""Receives the response to request i, with the answers by cut that a `ForcingPlan` asked for, while others still run."""


@dataclass(frozen=True, slots=True)
class SharedWeights:
    """Weights that several processes train together. They do not change until an engine gets the next weights.

    `pieces` has to be read to its end, because the other processes wait meanwhile.
    """

    world: int
    """The number of processes, each with a device of its own."""
    shapes: Mapping[str, tuple[int, ...]]
    """The shapes of all full tensors by name."""
    assemble: Callable[[str | None], Mapping[str, torch.Tensor]]
    """Returns all full tensors in this process, on a device, or for None on its own."""
    pieces: Callable[[], Iterator[tuple[str, torch.Tensor]]]
    """Yields all full tensors here, each gathered when it is asked for."""
    run_on_all: Callable[..., object]
    """`run_on_all(call, *arguments)` calls a module's function in every process, as `call(pieces, rank, gather,
    *arguments)`. `pieces` yields the name and the full tensor of each weight on the process's own device; all processes
    have to read as many. `gather` gives every process the values of all, by rank. What a call raises ends its process.
    """


Weights = Mapping[str, torch.Tensor] | Path | SharedWeights
"""New weights of an engine: tensors by their `transformers` names, a folder, or the shards of several processes."""


class Engine(Protocol):
    """A model that answers prompts, for a single thread at a time."""

    def generate(
        self,
        requests: Sequence[Request],
        sampling: TokenSampling,
        plan: ForcingPlan | None = None,
        on_response: OnResponse | None = None,
    ) -> list[Generation]:
        """Return a response for each request, in the order of the requests.

        Args:
            requests: The prompts with their seeds.
            sampling: How tokens are sampled.
            plan: The answers that the next `force` will ask for, which the engine may already compute.
            on_response: Called at most once for a request, when its response ends. The engine may call it from another
                thread, or never. An exception that `on_response` raises ends `generate`.
        """

    def force(
        self,
        requests: Sequence[Request],
        responses: Sequence[Generation],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: TokenSampling,
    ) -> list[list[ForcedTokens]]:
        """Return the answers that the model gives after cuts of its responses and the forcing text.

        Forcing is cheapest on the responses of the last `generate`, since the engine may still hold their cache, and
        correct on any responses. The seed of a forced answer depends only on the request's seed and the cut
        (`runners.data.draws.forced_seed`).

        Args:
            requests: The requests of the responses.
            responses: The responses to cut, without insertions.
            cuts: For each response, after how many tokens to cut it; a cut at 0 forces the answer before any token.
            forcing: The tokens of the forcing text.
            sampling: How the tokens of answers are sampled.

        Returns:
            For each response, the answer of each cut, in the order of the cuts.
        """

    def load_weights(self, state: Weights, version: int) -> None:
        """Replace the weights of the engine.

        Args:
            state: The new weights.
            version: The number of the new weights, which responses have in `weight_versions`.
        """

    def release(self) -> None:
        """Drop the weights and caches, so that a trainer on the same devices can use their memory.

        The next call has to be `load_weights`.
        """

    def close(self) -> None:
        """Free the memory and end the processes of the engine; no other call may follow."""


_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


def check_cancelled() -> None:
    """Call the function that `cancellable` has set, if any, which raises an exception to cancel the engine's work.

    Engines call this between two steps of a long call.
    """
    check = _CHECK.get()
    if check is not None:
        check()


@contextmanager
def cancellable(check: Callable[[], None]) -> Iterator[None]:
    """Let `check` cancel an engine's work inside a `with` block.

    Args:
        check: A quick function that engines call again and again through `check_cancelled`. An exception that it raises
            ends the engine's call.
    """
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest sequence that a model reads, and the size of its vocabulary, both in tokens."""

    context: int
    vocab: int

    def check(self, requests: Sequence[Request], sampling: TokenSampling) -> None:
        """Check that prompts can be answered: they have tokens, all in the vocabulary, and fit into the context.

        A prompt has to fit together with the longest response that its request allows.

        Args:
            requests: The prompts, each with an optional limit of tokens.
            sampling: The sampling, with the limit of tokens of a response.

        Raises:
            Problem: E0807 for the first request that fails the check.
        """
        for request in requests:
            self._check([request], sampling, request.limit(sampling))

    def check_forced(
        self,
        requests: Sequence[Request],
        responses: Sequence[Generation],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: TokenSampling,
    ) -> None:
        """Check that answers can be forced: no cut is negative, the tokens are in the vocabulary, and they fit.

        Prompt, response up to the cut, forcing text and answer have to fit into the context. A cut at or past a
        response's end has no forced answer, so it needs no such check.

        Args:
            requests: The requests of the responses.
            responses: The responses to cut.
            cuts: For each response, after how many of its tokens an answer is forced.
            forcing: The tokens of the forcing text.
            sampling: The sampling of answers, with their limit of tokens.

        Raises:
            Problem: E0807 for the first cut, token or answer that fails the check.
        """
        if min((cut for row in cuts for cut in row), default=0) < 0:
            raise problem(
                "E0807",
                "a response cannot be cut before its first token",
                help="force answers at 0 tokens or more",
            )
        for request, response, row in zip(requests, responses, cuts, strict=True):
            inside = [cut for cut in row if cut < len(response.tokens)]
            if inside:
                self._check([request], sampling, max(inside) + len(forcing) + sampling.max_tokens)
        self._check_tokens(forcing)

    def _check(self, requests: Sequence[Request], sampling: TokenSampling, extra: int) -> None:
        """Check that prompts are not empty, have known tokens, and fit into the context with `extra` more tokens.

        Args:
            requests: The prompts.
            sampling: The sampling, whose `max_tokens` has to be 1 or more.
            extra: The number of tokens after a prompt that have to fit into the context too.

        Raises:
            Problem: E0807.
        """
        if sampling.max_tokens < 1:
            raise problem(
                "E0807",
                f"a response needs at least one token, and `max_tokens` is {sampling.max_tokens}",
                help="set `max_tokens` to 1 or more",
            )
        for request in requests:
            if not request.prompt:
                raise problem("E0807", "a prompt has no tokens", help="give every prompt at least one token")
            if len(request.prompt) + extra > self.context:
                raise problem(
                    "E0807",
                    f"a prompt of {len(request.prompt)} tokens and {extra} tokens after it are more than the model's "
                    f"context of {self.context} tokens",
                    help="lower the longest response, or leave out longer prompts",
                )
            self._check_tokens(request.prompt)

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        """Check that all token ids are in the vocabulary, and raise E0807 for the first id outside the vocabulary."""
        if tokens and not (min(tokens) >= 0 and max(tokens) < self.vocab):
            bad = next(token for token in tokens if not 0 <= token < self.vocab)
            raise problem(
                "E0807",
                f"token {bad} is outside the model's vocabulary of {self.vocab}",
                help="the tokenizer belongs to another model",
            )
