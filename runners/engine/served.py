"""The rollout engine of a model behind an address: token ids over OpenAI's interface of completions.

Nothing is known of the server but what it replies, which is untrusted. It never gets weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from reodsl.diagnostics import Problem, problem
from reodsl.ir.model import ServedModel
from reodsl.store.manifest import INEXACT, record
from runners.data.draws import derive, forced_seed
from runners.engine.protocol import (
    NO_NUMBERS,
    ForcedTokens,
    ForcingPlan,
    Generation,
    Limits,
    OnResponse,
    Request,
    TokenSampling,
    Weights,
)
from runners.engine.remote import MAX_REPLY_BYTES, Loop, RefusedReply, Remote, read_key
from runners.sandbox.untrusted import Undecodable, decoded

RETOKENISED = "retokenised"
"""The server replied texts, which this program's tokenizer turned into tokens."""
ASKED_AS_TEXT = "asked_as_text"
"""The server took prompts only as texts, and tokenized them itself."""
CUT_AGAIN = "cut_again"
"""The text of the server had more tokens than were requested, and was cut."""
UNREPEATABLE = "unrepeatable"
"""The server gave two different answers to the same greedy request."""
PROBE_TOKENS = 16
"""The number of tokens that the first requests ask for, which find out what the server can do."""
_BYTES_PER_TOKEN = 128
"""Bytes of a reply for each of its tokens: the token's text, and its number twice."""
_SEED_MASK = (1 << 31) - 1
"""Seeds lose their higher bits: some servers take no more."""
_MAX_LOSS = 0.02
"""The largest relative difference, over all responses, of the server's count of tokens and the count of its texts'."""
_MAX_DIFFERENCE = 0.1
"""The largest relative difference of the two counts for a single response, besides `_SLACK_TOKENS`."""
_SLACK_TOKENS = 4
"""Tokens by which a server may tokenize a text differently, at a cut and before the forcing text."""

_MAX_PROMPT_TOKENS = 1 << 40
"""The largest plausible number of tokens of a prompt."""
_KEEPS_MARKS = (
    "start it so that texts keep their marks (`skip_special_tokens`), or take a server that replies token ids"
)
_OWN_TOKENIZER = "name the tokenizer of the model that it serves, or take a server that replies token ids"

Value = TypeVar("Value")
Encode = Callable[[str], Sequence[int]]
"""Return the tokens of a text that a model wrote, with nothing added."""
Decode = Callable[[Sequence[int]], str]
"""Return the text of tokens, with their marks."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """The tokens with which a server continues a prompt.

    `count` is their number as the server counts them. `is_finished` is true if the response has ended with them.
    """

    tokens: tuple[int, ...]
    count: int
    is_finished: bool


class _TakesNoTokens(Exception):
    """The error of a server that refuses the first prompt, which was sent as token ids."""


class ServedEngine:
    """A model behind an address, asked for many responses at a time. See `Engine`; responses have no log-probabilities."""

    def __init__(
        self,
        source: ServedModel,
        encode: Encode,
        decode: Decode,
        limits: Limits,
        scratch_dir: Path,
        reads_alike: Callable[[Sequence[int]], bool],
    ) -> None:
        """Prepare an engine for a server, without a request.

        Args:
            source: The server's address, the name of its model, and the limits of requests.
            encode: Returns the tokens of a text.
            decode: Returns the text of tokens.
            limits: The context and the vocabulary of the model.
            scratch_dir: The folder in which the engine records what the server cannot do exactly.
            reads_alike: Returns whether the text of a prompt's tokens tokenizes to the same control tokens.

        Raises:
            Problem: E0833 if the environment variable of the server's key is not set.
        """
        self._source, self._encode, self._decode, self._limits = source, encode, decode, limits
        self._reads_alike = reads_alike
        self._scratch_dir, self._sends_text = scratch_dir, False
        try:
            self._remote = Remote(source, read_key(source.key))
        except RefusedReply as refused:
            raise self._cannot_ask(refused) from None
        self._loop = Loop()
        self._probed = False
        # By request and length of its response, the answers by cut that `generate` forced for its plan.
        self._planned: dict[tuple[Request, int], dict[int, tuple[int, ...]]] = {}

    def generate(
        self,
        requests: Sequence[Request],
        sampling: TokenSampling,
        plan: ForcingPlan | None = None,
        on_response: OnResponse | None = None,
    ) -> list[Generation]:
        """Return the server's response to each request.

        The numbers of tokens by the server's count and in its replies are compared over all responses. They differ if
        texts lack their control tokens, or if the tokenizer belongs to another model.

        Args:
            requests: The prompts with their seeds.
            sampling: How tokens are sampled.
            plan: The answers to force as soon as a response ends, while the server has the response in its cache.
            on_response: Called when a response and its planned answers are complete, from the loop's thread.

        Raises:
            Problem: E0833 if the server refuses requests, E0834 if its replies do not fit the requests, E0807.
        """
        self._limits.check(requests, sampling)
        self._planned = {}
        self._loop.run(self._probe(requests))
        for request in requests:
            self._require_alike(request.prompt, "a question", ", or remove control tokens from the questions")

        async def respond(i: int) -> tuple[Generation, int]:
            """Return the response to request i and the server's count of its tokens; first force the planned answers."""
            request = requests[i]
            seed = derive(request.seed, request.num_sampled) if request.num_sampled else request.seed
            completion = await self._complete(request.prompt, request.limit_sampling(sampling), seed)
            finish: Literal["stop", "length"] = "stop" if completion.is_finished else "length"
            response = Generation(completion.tokens, NO_NUMBERS, NO_NUMBERS, finish, (0,))
            answers: dict[int, tuple[int, ...]] = {}
            if plan is not None:
                for cut in dict.fromkeys(plan.cuts(i, response)):
                    answers[cut] = await self._force(request, response, cut, plan.forcing, plan.sampling)
                self._planned[request, len(response.tokens)] = answers
            if on_response is not None:
                on_response(i, response, answers)
            return response, completion.count

        pairs = self._ask_all(respond, len(requests))
        received, counted = (sum(row) for row in zip(*((len(r.tokens), n) for r, n in pairs), strict=True))
        if received < counted * (1 - _MAX_LOSS):
            raise self._misread("its texts have", received, counted, _KEEPS_MARKS)
        # Stop tokens are always among the received tokens, and only some servers count them.
        ends = sum(response.finish == "stop" for response, _ in pairs)
        if received - 2 * ends > counted * (1 + _MAX_LOSS) + _SLACK_TOKENS:
            raise self._misread("its texts have", received, counted, _OWN_TOKENIZER)
        return [response for response, _ in pairs]

    def force(
        self,
        requests: Sequence[Request],
        responses: Sequence[Generation],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: TokenSampling,
    ) -> list[list[ForcedTokens]]:
        """Return the answers after cuts of responses; answers that `generate` has forced are not requested again.

        Args:
            requests: The requests of the responses.
            responses: The responses to cut.
            cuts: For each response, after how many of its tokens an answer is forced.
            forcing: The tokens of the forcing text.
            sampling: How the tokens of answers are sampled.

        Returns:
            For each response, the answer of each cut, in the order of the cuts.

        Raises:
            Problem: E0833 if the server refuses requests, E0834 if its replies do not fit the requests, E0807.
        """
        self._limits.check_forced(requests, responses, cuts, forcing, sampling)
        self._loop.run(self._probe(requests))

        async def answer(i: int) -> list[ForcedTokens]:
            """Return the forced answers of response i, in the order of its cuts."""
            request, response = requests[i], responses[i]
            answers = self._planned.get((request, len(response.tokens)), {})
            return [
                ForcedTokens(
                    cut,
                    answers[cut]
                    if cut in answers
                    else await self._force(request, response, cut, forcing, sampling),
                )
                for cut in cuts[i]
            ]

        return self._ask_all(answer, len(requests))

    def load_weights(self, state: Weights, version: int) -> None:
        """Raise TypeError: the weights of a model behind an address cannot be replaced, and the compiler forbids it."""
        raise TypeError("a served model cannot load weights")

    def release(self) -> None:
        """Do nothing, because the engine holds no weights or caches in this process."""

    def close(self) -> None:
        """Close the server's connections."""
        self._loop.run(self._remote.close())
        self._loop.close()

    async def _force(
        self,
        request: Request,
        response: Generation,
        cut: int,
        forcing: Sequence[int],
        sampling: TokenSampling,
    ) -> tuple[int, ...]:
        """Return the tokens of the answer after a cut of a response and the forcing text.

        Args:
            request: The request of the response.
            response: The response.
            cut: The number of the response's tokens before the forcing text; at or past the response's end, the answer is
                empty.
            forcing: The tokens of the forcing text.
            sampling: How the answer's tokens are sampled.
        """
        if cut >= len(response.tokens):
            return ()
        prompt = (*request.prompt, *response.tokens[:cut], *forcing)
        self._require_alike(prompt, "a response", "")
        result = await self._complete(prompt, sampling, forced_seed(request.seed, request.num_sampled + cut))
        return result.tokens

    def _require_alike(self, prompt: Sequence[int], source: str, remedy: str) -> None:
        """Check that the text of a prompt has the same control tokens as the prompt, if the server reads only texts.

        Words of a question or response may look like a control token, and the server would read them as one.

        Args:
            prompt: The tokens of the prompt.
            source: The part of the prompt that may have words like a control token, for the message: "a question".
            remedy: A further remedy, which ends the help of the message.

        Raises:
            Problem: E0834 if the control tokens differ.
        """
        if self._sends_text and not self._reads_alike(prompt):
            raise self._unsound(
                f"it reads only texts, and would take words of {source} for a control token",
                f"take a server that reads token ids, as vLLM and SGLang do{remedy}",
            )

    def _ask_all(self, ask: Callable[[int], Coroutine[Any, Any, Value]], count: int) -> list[Value]:
        """Return the results of `ask(0)`, …, `ask(count - 1)`, of which at most `source.at_once` run at a time.

        The first exception cancels all other requests.

        Args:
            ask: Returns the result for the request with an index.
            count: The number of requests.
        """
        slots = asyncio.Semaphore(self._source.at_once)

        async def ask_one(i: int) -> Value:
            async with slots:
                return await ask(i)

        async def ask_all() -> list[Value]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask_one(i)) for i in range(count)]
            return [task.result() for task in tasks]

        return self._loop.run(ask_all())

    async def _probe(self, requests: Sequence[Request]) -> None:
        """Find out what the server can do, before the first generation; later calls do nothing.

        The probe compares the server's model and context with the spec's. It sends a prompt as token ids, and as text
        if the server refuses them. It sends a greedy request twice, to see whether the answers are equal. What the
        server cannot do exactly is recorded in `scratch_dir`.

        Args:
            requests: The requests of the generation, whose first prompt is sent.

        Raises:
            Problem: E0833 if the server refuses requests, E0834 if it is unsuitable.
        """
        if self._probed or not requests:
            return
        models, name = await self._remote.models(), self._source.model
        if models and name not in models:
            names = self._remote.shown(", ".join(f"`{model}`" for model in list(models)[:4]))
            words = f"it has no model `{name}`, only {names}"
            raise self._cannot_ask(RefusedReply(words, "write the model's name as the server has it"))
        context = models.get(name, {}).get("max_model_len")
        if type(context) is int and 0 < context < self._limits.context:
            raise self._unsound(
                f"its context is {context:,} tokens, and the suite's longest sequence may have {self._limits.context:,}",
                f"start it with a context of {self._limits.context:,} tokens, or shorten the suite's `max_tokens`",
            )
        prompt = requests[0].prompt
        probe_tokens = min(PROBE_TOKENS, self._limits.context - len(prompt))
        greedy = TokenSampling(probe_tokens, 0.0, stop_ids=(), logprobs=False)
        try:
            first = await self._complete(prompt, greedy, 0)
        except _TakesNoTokens:
            self._sends_text = True
            record(self._scratch_dir, INEXACT, ASKED_AS_TEXT)
            first = await self._complete(prompt, greedy, 0)
        second = await self._complete(prompt, greedy, 0)
        if first.tokens != second.tokens:
            record(self._scratch_dir, INEXACT, UNREPEATABLE)
        self._probed = True

    async def _complete(self, prompt: Sequence[int], sampling: TokenSampling, seed: int) -> Continuation:
        """Ask the server for the continuation of a prompt, and retry after failures that may be temporary.

        Args:
            prompt: The tokens of the prompt.
            sampling: How the continuation is sampled.
            seed: The seed of the continuation, whose lowest 31 bits are sent.

        Raises:
            _TakesNoTokens: The server refused the first prompt, which was sent as token ids.
            Problem: E0833 if the server refuses the request, E0834 if its reply does not fit the request.
        """
        request: dict[str, Any] = {
            "model": self._source.model,
            "prompt": self._decode(prompt) if self._sends_text else list(prompt),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": min(sampling.top_p, 1.0),
            "seed": seed & _SEED_MASK,
            "stop_token_ids": list(sampling.stop_ids),
            "skip_special_tokens": False,
            "return_token_ids": True,
        }
        request |= {"top_k": sampling.top_k} if sampling.top_k > 0 else {}
        request |= {"add_special_tokens": False} if self._sends_text else {}
        largest = MAX_REPLY_BYTES + _BYTES_PER_TOKEN * (len(prompt) + sampling.max_tokens)
        try:
            body = await self._remote.post(request, largest)
        except RefusedReply as refused:
            if refused.blames_request and not (self._probed or self._sends_text):
                raise _TakesNoTokens from None
            if refused.blames_request and not self._probed:
                refused.help = (
                    "take a server whose completions accept prompts, best as token ids, as vLLM and SGLang do"
                )
            raise self._cannot_ask(refused) from None
        return self._read(body, largest, prompt, sampling)

    def _read(
        self, body: bytes, largest: int, prompt: Sequence[int], sampling: TokenSampling
    ) -> Continuation:
        """Return the continuation that a server's reply contains.

        The reply is untrusted: types, counts of tokens, and token ids are checked against the request. If the reply has
        a text but no token ids, this program's tokenizer encodes the text. Tokens after a stop token are cut off.

        Counts of the server may include the stop token or not, and both are accepted. Numbers of tokens by the
        tokenizer may differ by a small `slack`, because the server may tokenize a text differently.

        Args:
            body: The bytes of the reply.
            largest: The most bytes that the reply may have.
            prompt: The tokens of the prompt that was sent.
            sampling: The sampling that was sent.

        Raises:
            Problem: E0834 if the reply is not a completion of this request.
        """
        try:
            reply = decoded(body, largest)
            choice, usage = reply["choices"][0], reply["usage"]
            finish, text, ids = choice["finish_reason"], choice["text"], choice.get("token_ids")
            read, counted = usage["prompt_tokens"], usage["completion_tokens"]
            if not (
                finish in ("stop", "length")
                and isinstance(text, str)
                and type(read) is type(counted) is int
                and 0 < counted <= sampling.max_tokens
                and 0 <= read <= _MAX_PROMPT_TOKENS
            ):
                raise TypeError
        except (Undecodable, LookupError, TypeError, AttributeError):
            raise self._unsound(
                f"its reply is not a completion with counts of tokens: {self._remote.shown(body)}",
                "write the address of an OpenAI-compatible completions API, which ends in `/v1`",
            ) from None
        slack = _MAX_LOSS * len(prompt) + _SLACK_TOKENS if self._sends_text and self._probed else 0
        if abs(read - len(prompt)) > slack:
            raise self._unsound(
                f"it read {read:,} tokens, and {len(prompt):,} were sent",
                "start it so that it adds nothing to prompts, such as a token of their beginning",
            )
        stopped = finish == "stop"
        if not stopped and counted < sampling.max_tokens:
            raise self._unsound(
                f"it cut a response at {counted:,} tokens, although it may have {sampling.max_tokens:,}",
                "start it with a context for the longest sequence, or shorten the suite's `max_tokens`",
            )
        if ids is None:
            record(self._scratch_dir, INEXACT, RETOKENISED)
            ids = self._tokens_of(text, sampling.stop_ids)
            slack = _MAX_DIFFERENCE * counted + _SLACK_TOKENS
            if len(ids) < counted - stopped - slack:
                raise self._misread("one of its texts has", len(ids), counted, _KEEPS_MARKS)
            if len(ids) > counted + slack:
                raise self._misread("one of its texts has", len(ids), counted, _OWN_TOKENIZER)
            return Continuation(self._end(ids, stopped, sampling), counted - stopped, stopped)
        if not isinstance(ids, list) or not all(
            type(token) is int and 0 <= token < self._limits.vocab for token in ids
        ):
            raise self._unsound(
                f"it replies token ids outside the tokenizer's vocabulary of {self._limits.vocab:,}",
                "name the tokenizer of the model that it serves",
            )
        if len(ids) not in (counted, counted - stopped):
            raise self._unsound(
                f"it sends {len(ids):,} tokens, and counts {counted:,}",
                "take a server that replies all token ids that it generates, as vLLM and SGLang do",
            )
        last = next((i for i, token in enumerate(ids) if token in sampling.stop_ids), None)
        if last is not None:
            # Some servers ignore `stop_token_ids` and go on.
            ids, stopped = ids[: last + 1], True
        elif len(ids) < counted:
            ids = self._end(ids, stopped, sampling)
        return Continuation(tuple(ids), len(ids), stopped)

    def _end(self, ids: list[int], stopped: bool, sampling: TokenSampling) -> tuple[int, ...]:
        """Return at most `max_tokens` of a response's tokens.

        If the response ended at a stop token, and the server has omitted this token, it is appended.

        Args:
            ids: The response's tokens as the server or the tokenizer has them.
            stopped: Whether the response ended at a stop token.
            sampling: The limit of tokens and the stop tokens, of which the first is appended.
        """
        stop = sampling.stop_ids[:1] if stopped and not set(ids[-1:]) & set(sampling.stop_ids) else ()
        most = sampling.max_tokens - len(stop)
        if len(ids) > most:
            record(self._scratch_dir, INEXACT, CUT_AGAIN)
        return (*ids[:most], *stop)

    def _tokens_of(self, text: str, stop_ids: Sequence[int]) -> list[int]:
        """Return the tokens of a server's text.

        Args:
            text: The text of a completion.
            stop_ids: The stop tokens. If the text ends with the mark of a stop token, the mark becomes this token.

        Raises:
            Problem: E0834 if the tokenizer has no tokens for the text.
        """
        # JSON may contain unpaired surrogates, which have no UTF-8.
        text = text.encode("utf-8", "replace").decode("utf-8")
        marks = {token: self._decode([token]) for token in stop_ids}
        last = [token for token, mark in marks.items() if mark and text.endswith(mark)][:1]
        try:
            return [*self._encode(text.removesuffix(marks[last[0]]) if last else text), *last]
        except Problem as fault:
            if fault.diagnostics[0].code != "E0815":
                raise
            # `from None`, because the original message quotes the text, which may contain the key.
            words = f"the tokenizer cannot encode its text: {self._remote.shown(text)}"
            raise self._unsound(words, _OWN_TOKENIZER) from None

    def _misread(self, subject: str, received: int, counted: int, help: str) -> Problem:
        """Return E0834 for texts whose number of tokens differs from the server's count.

        Args:
            subject: The beginning of the message, such as "its texts have".
            received: The number of tokens by the tokenizer of this program.
            counted: The number of tokens by the server.
            help: The remedy.
        """
        return self._unsound(
            f"{subject} {received:,} tokens by the tokenizer, and it counts {counted:,}", help
        )

    def _cannot_ask(self, refused: RefusedReply) -> Problem:
        """Return E0833, a server that refuses requests, with the reason and remedy of `refused`."""
        message = f"the served model `{self._source.model}` cannot be asked: {refused.words}"
        return problem("E0833", message, where=self._source.address, help=refused.help)

    def _unsound(self, words: str, help: str) -> Problem:
        """Return E0834, a server whose replies cannot be evaluated; `words` are the reason."""
        message = f"the served model `{self._source.model}` cannot be evaluated: {words}"
        return problem("E0834", message, where=self._source.address, help=help)
