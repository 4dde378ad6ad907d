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
    """A way to draw tokens. `temperature` 0 is greedy; `top_p` 1 and `top_k` -1 leave the distribution whole.

    Temperature comes first, then top-k, then top-p on what is left; the kept tokens are renormalised.
    In falling order of probability, tokens are kept until their sum reaches `top_p`, the first always.
    Generation stops after the first of `stop_ids` or after `max_tokens` tokens. Without `logprobs` responses carry none,
    which servers answer several times cheaper.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_ids: tuple[int, ...] = ()
    logprobs: bool = True

    @property
    def whole(self) -> bool:
        """Return whether draws come from the model's own distribution (temperature 1, nothing cut off)."""
        return self.temperature == 1.0 and self.top_p >= 1.0 and self.top_k <= 0


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt as token ids, and the 64-bit seed of its stream of draws.

    Requests with equal prompts in one call share one prefill. The uniform behind token t is a function of
    `(seed, t)` alone, so a response does not depend on what else is in the batch. `drawn` tokens of the prompt are the
    response's own, from earlier calls: the next token is number `drawn` of it. `most` is a limit of this request below the
    `max_tokens` of its call.
    """

    prompt: tuple[int, ...]
    seed: int
    drawn: int = 0
    most: int | None = None

    def limit(self, sampling: TokenSampling) -> int:
        """Return how many tokens it may get."""
        return sampling.max_tokens if self.most is None else min(self.most, sampling.max_tokens)

    def after(self, response: Generation, most: int | None = None) -> Request:
        """Return the request for what follows a response to it, at most so many tokens."""
        prompt = (*self.prompt, *response.sequence())
        return Request(prompt, self.seed, self.drawn + len(response.tokens), most)

    def limited(self, sampling: TokenSampling) -> TokenSampling:
        """Return how its tokens are drawn, with its own limit."""
        return sampling if self.most is None else replace(sampling, max_tokens=self.limit(sampling))


@dataclass(frozen=True, slots=True)
class Inserted:
    """Tokens that are not the model's own: they end its thinking after the first `after` tokens of a response."""

    after: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    """The result of one request.

    `tokens` include the stop token when there was one (`finish == "stop"`). `logprobs[t]` is the log-probability
    of `tokens[t]` under the model's own softmax (temperature 1, nothing cut off): what a trainer recomputes.
    `behaviour[t]` is the one under the distribution that it was drawn from (tempered, truncated, renormalised;
    0 when greedy): what importance weights divide by. The two are the same array when `Sampling.whole`, and
    empty without `Sampling.logprobs`. A step has tens of millions of them, so none is a Python number.
    `weight_versions` are those of the weights that made it, in the order of its tokens: more than one where new weights
    came while it was made. `inserted` is what ended its thinking; no engine
    gives any, and none of it counts as the response's tokens.
    """

    tokens: tuple[int, ...]
    logprobs: array[float]
    behaviour: array[float]
    finish: Literal["stop", "length"]
    weight_versions: tuple[int, ...]
    inserted: tuple[Inserted, ...] = ()

    def sequence(self, count: int | None = None) -> tuple[int, ...]:
        """Return its first `count` tokens with what was inserted before the next one, or all of it.

        Thinking that is over after `count` tokens was not ended yet.
        """
        end = len(self.tokens) if count is None else count
        if not self.inserted:
            return self.tokens[:end]
        parts: list[int] = []
        place = 0
        for each in self.inserted:
            if each.after < end or (each.after == end and count is None):
                parts += (*self.tokens[place : each.after], *each.tokens)
                place = each.after
        return (*parts, *self.tokens[place:end])

    def gaps(self, lead: int = 0) -> list[tuple[int, int]]:
        """Return what was inserted into it, after a prefix of `lead` tokens, as places and counts."""
        gaps, before = [], lead
        for each in self.inserted:
            gaps.append((before + each.after, len(each.tokens)))
            before += len(each.tokens)
        return gaps

    def then(self, more: Generation) -> Generation:
        """Return the response with what came after it; each token keeps the log-probabilities that it was drawn with."""
        logprobs = self.logprobs + more.logprobs
        same = self.behaviour is self.logprobs and more.behaviour is more.logprobs
        return Generation(
            self.tokens + more.tokens,
            logprobs,
            logprobs if same else self.behaviour + more.behaviour,
            more.finish,
            tuple(dict.fromkeys(self.weight_versions + more.weight_versions)),
            self.inserted,
        )

    def own(self, count: int) -> int:
        """Return how many of the first `count` tokens of its sequence are its own."""
        for each in self.inserted:
            count -= min(len(each.tokens), max(0, count - each.after))
        return count

    def first(self, count: int) -> Generation:
        """Return its first `count` tokens, as a response that would have gone on; all of it where it has no more."""
        if len(self.tokens) <= count:
            return self
        logprobs = self.logprobs[:count]
        behaviour = logprobs if self.behaviour is self.logprobs else self.behaviour[:count]
        return replace(
            self, tokens=self.tokens[:count], logprobs=logprobs, behaviour=behaviour, finish="length"
        )

    def with_inserted(self, inserted: Inserted) -> Generation:
        """Return the response with something inserted at its end."""
        return replace(self, inserted=(*self.inserted, inserted))

    def unfinished(self) -> Generation:
        """Return the response as one that would have gone on."""
        return replace(self, finish="length")


NO_NUMBERS = array("d")
"""The log-probabilities of a response that was not asked for any."""
NOTHING = Generation((), NO_NUMBERS, NO_NUMBERS, "length", ())
"""A response of which no token is drawn yet."""


@dataclass(frozen=True, slots=True)
class ForcedTokens:
    """The answer tokens that follow `prompt + response[:cut] + forcing`; stop token included, if any.

    Empty when `cut` is no shorter than the response: there is nothing to cut, grade the response as it is.
    """

    cut: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ahead:
    """The next call of `force`: `cuts(i, response)` of request i's response, the forcing text and how to draw.

    A guess: an engine may use it to answer while other responses still run, and nothing depends on it.
    """

    cuts: Callable[[int, Generation], Sequence[int]]
    forcing: tuple[int, ...]
    sampling: TokenSampling


Ended = Callable[[int, Generation, Mapping[int, tuple[int, ...]]], None]
"""Hears that request i has its response, with the answers by cut that `Ahead` asked for, while others still run."""


@dataclass(frozen=True, slots=True)
class SharedWeights:
    """Weights that several processes train together. They stay as they are until an engine gets the next ones.

    `world` is how many processes there are, each with a device of its own, and `shapes` are those of all whole tensors by
    name. `whole(device)` returns all tensors in this process, on a device or for None its own. `pieces()` gives them here
    one by one, each when it is asked for, while the other processes wait: it has to be read to its end.

    `each(call, *arguments)` calls a module's function in every process, as `call(pieces, rank, gather, *arguments)`.
    `pieces` gives the name and the tensor of each weight, whole and on the process's own device. All processes have to
    ask for as many of them. `gather` gives every process the values of all, by rank. What a call raises ends its process.
    """

    world: int
    shapes: Mapping[str, tuple[int, ...]]
    whole: Callable[[str | None], Mapping[str, torch.Tensor]]
    pieces: Callable[[], Iterator[tuple[str, torch.Tensor]]]
    each: Callable[..., object]


Weights = Mapping[str, torch.Tensor] | Path | SharedWeights
"""New weights of an engine: tensors by their `transformers` names, a folder, or what processes hold together."""


class Engine(Protocol):
    """A model that answers prompts. One thread at a time."""

    def generate(
        self,
        requests: Sequence[Request],
        sampling: TokenSampling,
        ahead: Ahead | None = None,
        ended: Ended | None = None,
    ) -> list[Generation]:
        """Return one response for each request, in the order of the requests.

        `ended` may be called from another thread, for some of the requests or for none, once each. What it raises ends
        the call.
        """

    def force(
        self,
        requests: Sequence[Request],
        responses: Sequence[Generation],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: TokenSampling,
    ) -> list[list[ForcedTokens]]:
        """Return answers forced at each of `cuts[i]` tokens of response i, in the order given; cut 0 forces at once.

        Cheapest on the responses of the last `generate`, whose cache the engine may still hold; right on any.
        The stream of a forced answer depends on the request's seed and the cut, counted from the response's first token,
        alone (`streams.forced_seed`). Responses have nothing inserted here.
        """

    def load_weights(self, state: Weights, version: int) -> None:
        """Load new weights: tensors by their `transformers` names, or a folder that `transformers` wrote."""

    def release(self) -> None:
        """Give memory back, as far as possible, to a trainer on the same devices; weights have to be loaded next.

        What the last `generate` left for `force` is gone, and so are the present weights.
        """

    def close(self) -> None:
        """Give memory (and processes, if any) back; no other call may follow."""


_LOOK: ContextVar[Callable[[], None] | None] = ContextVar("look", default=None)


def look() -> None:
    """Call the caller's own look between two steps of an engine's work, in its thread; raise what that raises."""
    callers_look = _LOOK.get()
    if callers_look is not None:
        callers_look()


@contextmanager
def looking(callers_look: Callable[[], None]) -> Iterator[None]:
    """Let engines call `callers_look`, which has to be quick, until the block ends."""
    token = _LOOK.set(callers_look)
    try:
        yield
    finally:
        _LOOK.reset(token)


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest sequence a model reads, and how many tokens it knows."""

    context: int
    vocab: int

    def check(self, requests: Sequence[Request], sampling: TokenSampling) -> None:
        """Check requests. Raises E0807 for no tokens, unknown ones, or more than the context."""
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
        """Check that answers can be forced. Raises E0807."""
        if min((cut for wanted in cuts for cut in wanted), default=0) < 0:
            raise problem(
                "E0807",
                "a response cannot be cut before its first token",
                help="force answers at 0 tokens or more",
            )
        for request, response, wanted in zip(requests, responses, cuts, strict=True):
            inside = [cut for cut in wanted if cut < len(response.tokens)]
            if inside:
                self._check([request], sampling, max(inside) + len(forcing) + sampling.max_tokens)
        self._check_tokens(forcing)

    def _check(self, requests: Sequence[Request], sampling: TokenSampling, room: int) -> None:
        if sampling.max_tokens < 1:
            raise problem(
                "E0807",
                f"at least one token has to be asked for, not {sampling.max_tokens}",
                help="set `max_tokens` to 1 or more",
            )
        for request in requests:
            if not request.prompt:
                raise problem(
                    "E0807", "a prompt has no tokens", help="give it at least one token to go on from"
                )
            if len(request.prompt) + room > self.context:
                raise problem(
                    "E0807",
                    f"a prompt of {len(request.prompt)} tokens and {room} to come are more than the model's context "
                    f"of {self.context} tokens",
                    help="lower the longest response, or leave out longer prompts",
                )
            self._check_tokens(request.prompt)

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        if tokens and not (min(tokens) >= 0 and max(tokens) < self.vocab):
            bad = next(token for token in tokens if not 0 <= token < self.vocab)
            raise problem(
                "E0807",
                f"token {bad} is outside the model's vocabulary of {self.vocab}",
                help="the tokenizer belongs to another model",
            )
