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
"""The server gave texts, whose tokens are those of the tokenizer here."""
ASKED_AS_TEXT = "asked_as_text"
"""The server took prompts only as texts, and made its own tokens of them."""
CUT_AGAIN = "cut_again"
"""The server gave a text with more tokens than it counted and was asked for, without its end."""
UNREPEATABLE = "unrepeatable"
"""The server gave two answers to a greedy request."""
PROBE_TOKENS = 16
"""Tokens that the first requests ask for, which find out what the server can do."""
_BYTES_PER_TOKEN = 128
"""Bytes of a reply for each of its tokens: the token's text, and its number twice."""
_SEED_MASK = (1 << 31) - 1
"""Seeds lose their higher bits: some servers take no more."""
_MAX_LOSS = 0.02
"""The share by which a server's tokens and those of its texts, tokenised again, may differ over all responses."""
_MAX_DIFFERENCE = 0.1
"""The same share for a single response, besides `_SLACK_TOKENS`."""
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
    """The tokens that follow a prompt, their `count` by the server, and whether the text ends with them (`is_finished`)."""

    tokens: tuple[int, ...]
    count: int
    is_finished: bool


class _TakesNoTokens(Exception):
    """A refusal of the first prompt of token ids."""


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
        """Raise E0833 if the server's key is not set. What the server cannot do is noted in `scratch_dir`.

        `reads_alike` says whether the text of tokens has no control tokens but theirs.
        """
        self._source, self._encode, self._decode, self._limits = source, encode, decode, limits
        self._reads_alike = reads_alike
        self._scratch_dir, self._texts = scratch_dir, False
        try:
            self._remote = Remote(source, read_key(source.key))
        except RefusedReply as refused:
            raise self._cannot_ask(refused) from None
        self._loop = Loop()
        self._probed = False
        self._made: dict[tuple[Request, int], dict[int, tuple[int, ...]]] = {}

    def generate(
        self,
        requests: Sequence[Request],
        sampling: TokenSampling,
        plan: ForcingPlan | None = None,
        on_response: OnResponse | None = None,
    ) -> list[Generation]:
        """Return responses as `Engine.generate`; answers are forced when a response ends, from the server's cache.

        Raises E0833 if the server cannot be asked, and E0834 if its reply is not what was asked for.
        """
        self._limits.check(requests, sampling)
        self._made = {}
        self._loop.run(self._probe(requests))
        for request in requests:
            self._require_alike(request.prompt, "a question", ", or take such words out of the questions")

        async def respond(i: int) -> tuple[Generation, int]:
            request = requests[i]
            seed = derive(request.seed, request.num_sampled) if request.num_sampled else request.seed
            completion = await self._complete(request.prompt, request.limit_sampling(sampling), seed)
            finish: Literal["stop", "length"] = "stop" if completion.is_finished else "length"
            response = Generation(completion.tokens, NO_NUMBERS, NO_NUMBERS, finish, (0,))
            answers: dict[int, tuple[int, ...]] = {}
            if plan is not None:
                for cut in dict.fromkeys(plan.cuts(i, response)):
                    answers[cut] = await self._force(request, response, cut, plan.forcing, plan.sampling)
                self._made[request, len(response.tokens)] = answers
            if on_response is not None:
                on_response(i, response, answers)
            return response, completion.count

        pairs = self._ask_all(respond, len(requests))
        has, counted = (sum(row) for row in zip(*((len(r.tokens), n) for r, n in pairs), strict=True))
        if has < counted * (1 - _MAX_LOSS):
            raise self._misread("its texts have", has, counted, _KEEPS_MARKS)
        # Here each end is counted, there it may be.
        ends = sum(response.finish == "stop" for response, _ in pairs)
        if has - 2 * ends > counted * (1 + _MAX_LOSS) + _SLACK_TOKENS:
            raise self._misread("its texts have", has, counted, _OWN_TOKENIZER)
        return [response for response, _ in pairs]

    def force(
        self,
        requests: Sequence[Request],
        responses: Sequence[Generation],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: TokenSampling,
    ) -> list[list[ForcedTokens]]:
        """Return answers as `Engine.force`; those that `generate` forced are not asked for again. Raises as `generate`."""
        self._limits.check_forced(requests, responses, cuts, forcing, sampling)
        self._loop.run(self._probe(requests))

        async def answer(i: int) -> list[ForcedTokens]:
            request, response = requests[i], responses[i]
            answers = self._made.get((request, len(response.tokens)), {})
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
        """Raise TypeError: nobody trains a model behind an address (E0311)."""
        raise TypeError("a served model is given no weights")

    def release(self) -> None:
        """Do nothing: the server has no memory of ours."""

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
        """Return the answer forced at a cut; nothing past the response's end."""
        if cut >= len(response.tokens):
            return ()
        prompt = (*request.prompt, *response.tokens[:cut], *forcing)
        self._require_alike(prompt, "a response", "")
        result = await self._complete(prompt, sampling, forced_seed(request.seed, request.num_sampled + cut))
        return result.tokens

    def _require_alike(self, prompt: Sequence[int], where: str, more: str) -> None:
        """Check that a server of texts finds only a prompt's own control tokens in its text. Raises E0834."""
        if self._texts and not self._reads_alike(prompt):
            raise self._unsound(
                f"it reads texts alone, and would take words of {where} for a control token",
                f"take a server that reads token ids, as vLLM's and SGLang's do{more}",
            )

    def _ask_all(self, ask: Callable[[int], Coroutine[Any, Any, Value]], count: int) -> list[Value]:
        """Return the result of `ask` for each number below `count`, some at a time. A failure cancels the rest."""
        turns = asyncio.Semaphore(self._source.at_once)

        async def ask_one(i: int) -> Value:
            async with turns:
                return await ask(i)

        async def ask_all() -> list[Value]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask_one(i)) for i in range(count)]
            return [task.result() for task in tasks]

        return self._loop.run(ask_all())

    async def _probe(self, requests: Sequence[Request]) -> None:
        """Find out before the first request whether the server is suitable. Raises E0833, E0834."""
        if self._probed or not requests:
            return
        models, name = await self._remote.models(), self._source.model
        if models and name not in models:
            names = self._remote.shown(", ".join(f"`{model}`" for model in list(models)[:4]))
            words = f"it has no model `{name}`, and has {names}"
            raise self._cannot_ask(RefusedReply(words, "write the model's name as the server has it"))
        most = models.get(name, {}).get("max_model_len")
        if type(most) is int and 0 < most < self._limits.context:
            raise self._unsound(
                f"it reads {most:,} tokens at most, and the longest sequence here may have {self._limits.context:,}",
                f"start it with a longest sequence of {self._limits.context:,} tokens, or shorten the suite's `max_tokens`",
            )
        prompt = requests[0].prompt
        room = min(PROBE_TOKENS, self._limits.context - len(prompt))
        greedy = TokenSampling(room, 0.0, stop_ids=(), logprobs=False)
        try:
            first = await self._complete(prompt, greedy, 0)
        except _TakesNoTokens:
            self._texts = True
            record(self._scratch_dir, INEXACT, ASKED_AS_TEXT)
            first = await self._complete(prompt, greedy, 0)
        second = await self._complete(prompt, greedy, 0)
        if first.tokens != second.tokens:
            record(self._scratch_dir, INEXACT, UNREPEATABLE)
        self._probed = True

    async def _complete(self, prompt: Sequence[int], sampling: TokenSampling, seed: int) -> Continuation:
        """Return the continuation of a prompt, and try again after failures that may pass. Raises E0833, E0834."""
        request: dict[str, Any] = {
            "model": self._source.model,
            "prompt": self._decode(prompt) if self._texts else list(prompt),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": min(sampling.top_p, 1.0),
            "seed": seed & _SEED_MASK,
            "stop_token_ids": list(sampling.stop_ids),
            "skip_special_tokens": False,
            "return_token_ids": True,
        }
        request |= {"top_k": sampling.top_k} if sampling.top_k > 0 else {}
        request |= {"add_special_tokens": False} if self._texts else {}
        largest = MAX_REPLY_BYTES + _BYTES_PER_TOKEN * (len(prompt) + sampling.max_tokens)
        try:
            body = await self._remote.post(request, largest)
        except RefusedReply as refused:
            if refused.request and not (self._probed or self._texts):
                raise _TakesNoTokens from None
            if refused.request and not self._probed:
                refused.help = (
                    "take a server whose completions read prompts, best of token ids, as vLLM's and SGLang's"
                )
            raise self._cannot_ask(refused) from None
        return self._read(body, largest, prompt, sampling)

    def _read(
        self, body: bytes, largest: int, prompt: Sequence[int], sampling: TokenSampling
    ) -> Continuation:
        """Return the completion in a reply. Raises E0834 for anything else."""
        try:
            reply = decoded(body, largest)
            choice, usage = reply["choices"][0], reply["usage"]
            finish, text, ids = choice["finish_reason"], choice["text"], choice.get("token_ids")
            read, counted = usage["prompt_tokens"], usage["completion_tokens"]
            if finish not in ("stop", "length") or not isinstance(text, str):
                raise TypeError
            if not (type(read) is type(counted) is int and 0 < counted <= sampling.max_tokens):
                raise TypeError
            if not 0 <= read <= _MAX_PROMPT_TOKENS:
                raise TypeError
        except (Undecodable, LookupError, TypeError, AttributeError):
            raise self._unsound(
                f"it sends no completion with its counts of tokens: {self._remote.shown(body)}",
                "give the address of OpenAI's interface of completions, which ends in `/v1`",
            ) from None
        slack = _MAX_LOSS * len(prompt) + _SLACK_TOKENS if self._texts and self._probed else 0
        if abs(read - len(prompt)) > slack:
            raise self._unsound(
                f"it read {read:,} tokens where {len(prompt):,} were sent",
                "start it so that it adds nothing to prompts, such as a mark of their beginning",
            )
        stopped = finish == "stop"
        if not stopped and counted < sampling.max_tokens:
            raise self._unsound(
                f"it cut a response at {counted:,} tokens, where {sampling.max_tokens:,} were asked for",
                "start it with room for the whole sequence, or shorten the suite's `max_tokens`",
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
                f"it replies tokens that are none of the {self._limits.vocab:,} of the tokenizer",
                "name the tokenizer of the model that it serves",
            )
        if len(ids) not in (counted, counted - stopped):
            raise self._unsound(
                f"it sends {len(ids):,} tokens, and counts {counted:,}",
                "take a server that replies all token ids that it makes, as vLLM's and SGLang's do",
            )
        last = next((i for i, token in enumerate(ids) if token in sampling.stop_ids), None)
        if last is not None:
            # Not every server stops at the tokens that it is told.
            ids, stopped = ids[: last + 1], True
        elif len(ids) < counted:
            ids = self._end(ids, stopped, sampling)
        return Continuation(tuple(ids), len(ids), stopped)

    def _end(self, ids: list[int], stopped: bool, sampling: TokenSampling) -> tuple[int, ...]:
        """Return tokens with the stop token that a server omits."""
        stop = sampling.stop_ids[:1] if stopped and not set(ids[-1:]) & set(sampling.stop_ids) else ()
        room = sampling.max_tokens - len(stop)
        if len(ids) > room:
            record(self._scratch_dir, INEXACT, CUT_AGAIN)
        return (*ids[:room], *stop)

    def _tokens_of(self, text: str, stop_ids: Sequence[int]) -> list[int]:
        """Return the tokens of a server's text. Raises E0834 for a text that the tokenizer does not know."""
        # JSON may hold halves of characters.
        text = text.encode("utf-8", "replace").decode("utf-8")
        marks = {token: self._decode([token]) for token in stop_ids}
        last = [token for token, mark in marks.items() if mark and text.endswith(mark)][:1]
        try:
            return [*self._encode(text.removesuffix(marks[last[0]]) if last else text), *last]
        except Problem as fault:
            if fault.diagnostics[0].code != "E0815":
                raise
            # Any of its words may be the key.
            words = f"the tokenizer has no tokens for all of its text: {self._remote.shown(text)}"
            raise self._unsound(words, _OWN_TOKENIZER) from None

    def _misread(self, noun: str, has: int, counted: int, help: str) -> Problem:
        return self._unsound(f"{noun} {has:,} tokens by the tokenizer here, and it counts {counted:,}", help)

    def _cannot_ask(self, refused: RefusedReply) -> Problem:
        message = f"the served model `{self._source.model}` cannot be asked: {refused.words}"
        return problem("E0833", message, where=self._source.address, help=refused.help)

    def _unsound(self, words: str, help: str) -> Problem:
        message = f"the served model `{self._source.model}` cannot be evaluated: {words}"
        return problem("E0834", message, where=self._source.address, help=help)
