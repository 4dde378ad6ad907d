"""Generate responses of several turns: a turn of the model, what the tools that it calls say, the next turn, to the end.

The tokens of a response are the model's own: limits, lengths and log-probabilities count nothing else. What tools say is
inserted beside them. A turn goes on the response's stream of draws, so that nothing depends on what runs together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reodsl.diagnostics import problem
from reodsl.graph.job import Resources
from reodsl.ir.data import Grading, Tools
from reodsl.ir.model import Model, Prompt
from runners.answers import response_text
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
from runners.models.template import FailedTemplate, render_template
from runners.own.function import OwnFunction, open_function
from runners.prompts import tools_of
from runners.untrusted import Undecodable, decoded

MOST_CALLS = 16
"""Calls of one turn that are made; what comes after them is not."""
LONGEST_CALL = 2**20
"""Bytes of a call that are read."""
_THOUGHT = "</think>"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
Call = dict[str, Any]
"""`{"name", "arguments"}`, or `{"error"}` for what is none."""


def calls_of(text: str) -> list[Call]:
    """Return the calls in a turn, in order; those in its thinking are none."""
    _, _, reply = text.rpartition(_THOUGHT)
    return [_call(each) for each in _CALL.findall(reply)[:MOST_CALLS]]


def _call(text: str) -> Call:
    try:
        call = decoded(text, LONGEST_CALL)
        name, arguments = call["name"], call.get("arguments", {})
        if isinstance(arguments, str):
            arguments = decoded(arguments, LONGEST_CALL)
    except (Undecodable, TypeError, KeyError, AttributeError):
        return {"error": "the call is no JSON object with `name` and `arguments`"}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return {"error": "the call needs a text as its `name` and an object as its `arguments`"}
    return {"name": name, "arguments": arguments}


_MARK = "reodsl"
_PROBE: list[Call] = [{"name": "probe", "arguments": {"x": 1}}]


@dataclass(frozen=True)
class Replies:
    """The form in which a model reads tools' replies: its chat template, or the `reply` of a raw prompt.

    A turn's replies have at most `longest` tokens together, without what the template puts around them.
    """

    prompt: Prompt
    tokenizer: Any
    stop_ids: tuple[int, ...]
    longest: int

    def tokens(self, calls: Sequence[Call], replies: Sequence[str]) -> tuple[int, ...]:
        """Return the tokens between a turn with these calls and the beginning of the model's next turn."""
        said = self._bounded([self._harmless(reply) for reply in replies])
        if self.prompt.kind == "raw":
            text = self.prompt.reply.replace("{reply}", "\n".join(said))
        else:
            text = self._rendered(calls, said)[1]
        return tuple(int(each) for each in self.tokenizer.encode(text, add_special_tokens=False))

    def require_calls(self) -> None:
        """Raise E0812 where the chat template ends no turn, and E0831 where it writes calls that are not read."""
        if self.prompt.kind == "raw":
            return
        written = self._rendered(_PROBE, ["7"])[0]
        if calls_of(written) != _PROBE:
            raise problem(
                "E0831",
                "the model's chat template writes calls of tools in a form that is not read here",
                notes=[f"a call in it: {' '.join(written.split())[:120] or 'nothing'}"],
                help='take a model whose calls are <tool_call>{"name": …, "arguments": …}</tool_call>, as Qwen\'s are',
            )

    def _rendered(self, calls: Sequence[Call], replies: Sequence[str]) -> tuple[str, str]:
        """Return a turn of calls after its text, and what follows its end."""
        named = [{"name": each.get("name", "none"), "arguments": each.get("arguments", {})} for each in calls]
        wanted = [
            {"id": f"call{place}", "type": "function", "function": each} for place, each in enumerate(named)
        ]
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": _MARK, "tool_calls": wanted},
        ]
        for place, (each, reply) in enumerate(zip(named, replies, strict=True)):
            turns.append(
                {"role": "tool", "tool_call_id": f"call{place}", "name": each["name"], "content": reply}
            )
        try:
            text = render_template(self.tokenizer, turns)
        except FailedTemplate as fault:
            raise problem(
                "E0812",
                f"the model's chat template cannot render what a tool says: {fault}",
                help="take a model that was made for tools",
            ) from fault
        _, _, rest = text.partition(_MARK)
        ends = [
            (place, place + len(mark))
            for mark in (self.tokenizer.decode([each]) for each in self.stop_ids)
            if mark and (place := rest.find(mark)) >= 0
        ]
        if not ends:
            raise problem(
                "E0812",
                "the model's chat template ends a turn by no token that ends responses",
                notes=[f"after a turn it writes: {' '.join(rest.split())[:80]}"],
                help="list the token that ends a turn as `eos_token_id` of generation_config.json",
            )
        first, after = min(ends)
        return rest[:first], rest[after:]

    def _harmless(self, text: str) -> str:
        """Return the text without what the tokenizer would read as a mark, so that no tool begins or ends a turn."""
        text = text.encode("utf-8", "replace").decode("utf-8")
        marks = {*self.tokenizer.all_special_tokens, *getattr(self.tokenizer, "get_added_vocab", dict)()}
        for mark in sorted(marks, key=lambda each: (-len(each), each)):
            if len(mark) > 1 and mark in text:
                text = text.replace(mark, f"{mark[0]} {mark[1:]}")
        return text

    def _bounded(self, replies: Sequence[str]) -> list[str]:
        room, bounded = self.longest, []
        for reply in replies:
            # A token stands for one character at least.
            ids = self.tokenizer.encode(reply[: 64 * self.longest], add_special_tokens=False)
            bounded.append(
                reply if len(ids) <= room and len(reply) <= 64 * self.longest else self._cut(ids, room)
            )
            room -= min(len(ids), room)
        return bounded

    def _cut(self, ids: Sequence[int], room: int) -> str:
        return f"{self.tokenizer.decode(list(ids[:room]))} …"


@dataclass(frozen=True, slots=True)
class EarlierTurn:
    """A turn that another one follows: its text, the calls in it, what was said to each, and what tools then remember."""

    text: str
    calls: tuple[Call, ...]
    replies: tuple[str, ...]
    state: Any = None

    @property
    def row(self) -> dict[str, Any]:
        """The same as own code is given it."""
        row = {"text": self.text, "calls": list(self.calls), "replies": list(self.replies)}
        return row if self.state is None else {**row, "state": self.state}


@dataclass(frozen=True, slots=True)
class Talk:
    """The tools of a data set's questions, and how far a conversation goes.

    It has at most `turns` turns of the model, and `context` tokens with its prompt and with what tools say.
    """

    function: OwnFunction
    replies: Replies
    turns: int
    context: int


@dataclass(slots=True)
class _Open:
    """A response that is being made."""

    request: Request
    facts: Mapping[str, Any]
    talk: Talk | None
    response: Generation = NOTHING
    turns: tuple[EarlierTurn, ...] = ()

    @property
    def state(self) -> Any:
        """Return what the tools remember."""
        return self.turns[-1].state if self.turns else None

    def next(self, sampling: TokenSampling) -> Request:
        """Return the request for the next turn."""
        if self.talk is None:
            return self.request
        after = self.request.after(self.response)
        return replace(after, most=max(1, self.room(sampling, len(after.prompt))))

    def room(self, sampling: TokenSampling, length: int) -> int:
        """Return how many tokens may follow a sequence of some length."""
        assert self.talk is not None
        return min(sampling.max_tokens - len(self.response.tokens), self.talk.context - length)

    def last(self, tokenizer: Any, stop_ids: Sequence[int]) -> str:
        """Return the text of the last turn."""
        return turn_text(self.response, tokenizer, stop_ids)


def converse(
    engine: Engine,
    requests: Sequence[Request],
    sampling: TokenSampling,
    talks: Sequence[Talk | None],
    metas: Sequence[str],
) -> tuple[list[Generation], list[tuple[EarlierTurn, ...]]]:
    """Return a response for each request, and the turns before its last one. `metas` are the metadata of its question.

    Without a talk a response is one turn. Raises what the engine and the tools' process raise.
    """
    every = [
        _Open(request, json.loads(meta) if talk is not None and meta else {}, talk)
        for request, talk, meta in zip(requests, talks, metas, strict=True)
    ]
    active = every
    while active:
        more = engine.generate([one.next(sampling) for one in active], sampling)
        for one, response in zip(active, more, strict=True):
            one.response = one.response.then(response)
        active = _answered([one for one in active if one.talk is not None], sampling)
    return [one.response for one in every], [one.turns for one in every]


def _answered(done: Sequence[_Open], sampling: TokenSampling) -> list[_Open]:
    """Return the open conversations, with the tools' replies after their last turn."""
    calling: dict[int, list[tuple[_Open, str, list[Call]]]] = {}
    for one in done:
        assert one.talk is not None
        if one.response.finish != "stop" or len(one.turns) + 1 >= one.talk.turns:
            continue
        text = one.last(one.talk.replies.tokenizer, sampling.stop_ids)
        calls = calls_of(text)
        if calls:
            calling.setdefault(id(one.talk), []).append((one, text, calls))
    going = []
    for group in calling.values():
        talk = group[0][0].talk
        assert talk is not None
        rows = [
            {
                "meta": one.facts,
                "turns": [turn.row for turn in one.turns],
                "text": text,
                "calls": calls,
                "state": one.state,
            }
            for one, text, calls in group
        ]
        for (one, text, calls), said in zip(group, talk.function.reply(rows), strict=True):
            if said is None:
                continue
            inserted = Inserted(len(one.response.tokens), talk.replies.tokens(calls, said["replies"]))
            length = len(one.request.prompt) + len(one.response.sequence()) + len(inserted.tokens)
            if one.room(sampling, length) < 1:
                # It would have gone on, and there is no room for it.
                one.response = one.response.unfinished()
                continue
            one.response = one.response.with_inserted(inserted)
            one.turns += (EarlierTurn(text, tuple(calls), tuple(said["replies"]), said["state"]),)
            going.append(one)
    return going


def turn_text(response: Generation, tokenizer: Any, stop_ids: Sequence[int]) -> str:
    """Return the text of a response's last turn, which is all of one without others."""
    if response.inserted and response.inserted[-1].turn:
        return response_text(tokenizer, response.tokens[response.inserted[-1].after :], stop_ids)
    return response_text(tokenizer, response.sequence(), stop_ids)


def turns_before(turns: Sequence[EarlierTurn], response: Generation, cut: int | None = None) -> str:
    """Return the turns that were over before a response's token `cut`, or before its last turn, as JSON; empty for none."""
    over = len(turns) if cut is None else sum(each.after <= cut for each in response.inserted)
    return json.dumps([turn.row for turn in turns[:over]]) if over else ""


def force(
    engine: Engine,
    requests: Sequence[Request],
    responses: Sequence[Generation],
    cuts: Sequence[Sequence[int]],
    forcing: Sequence[int],
    sampling: TokenSampling,
) -> list[list[ForcedTokens]]:
    """Force answers as `Engine.force` does. Cuts count a response's own tokens; answers follow what was inserted."""
    if not any(response.inserted for response in responses):
        return engine.force(requests, responses, cuts, forcing, sampling)
    owners: list[tuple[int, int]] = []
    parts: list[tuple[Request, Generation, list[int]]] = []
    for index, (request, response, wanted) in enumerate(zip(requests, responses, cuts, strict=True)):
        for start, places, before in _spans(response):
            inside = [cut for cut in wanted if cut in places]
            if inside:
                owners.append((index, start))
                lead = Request((*request.prompt, *before), request.seed, request.drawn + start)
                turn = Generation(
                    response.tokens[start : places.stop],
                    NO_NUMBERS,
                    NO_NUMBERS,
                    "stop",
                    response.weight_versions,
                )
                parts.append((lead, turn, [cut - start for cut in inside]))
    answers: dict[tuple[int, int], ForcedTokens] = {}
    if parts:
        leads, turns, wishes = zip(*parts, strict=True)
        forced = engine.force(leads, turns, wishes, forcing, sampling)
        for (index, start), of_turn in zip(owners, forced, strict=True):
            for one in of_turn:
                answers[index, start + one.cut] = ForcedTokens(start + one.cut, one.tokens)
    return [
        [answers.get((index, cut), ForcedTokens(cut, ())) for cut in wanted]
        for index, wanted in enumerate(cuts)
    ]


def _spans(response: Generation) -> Iterator[tuple[int, range, tuple[int, ...]]]:
    """Yield spans of a response's cuts: where each begins, the cuts, and all that is read before it begins.

    Where thinking was ended, an answer is forced in the place of its end.
    """
    ends = [*(each.after for each in response.inserted), len(response.tokens)]
    yield 0, range(ends[0]), ()
    for each, end in zip(response.inserted, ends[1:], strict=True):
        first, before = each.after, response.sequence(each.after)
        if not each.turn:
            yield each.after, range(first, min(first + 1, end)), before
            first, before = first + 1, (*before, *each.tokens)
        yield each.after, range(first, end), before


def require_tools(grading: Grading, metas: Iterable[str]) -> None:
    """Raise E0750 where a question offers tools, by its metadata, and its data lets no response call them."""
    if grading.tools is not None:
        return
    offered = next((tools for tools in map(tools_of, metas) if tools), None)
    if offered is not None:
        names = [str(each.get("function", {}).get("name", "?")) for each in offered]
        raise problem(
            "E0750",
            f"the questions offer tools that no response may call: {', '.join(names[:8])}",
            help='let responses have several turns: `tools = tools(python("MODULE:verifiers"))` in the data',
        )


def open_talk(
    tools: Tools,
    model: Model,
    tokenizer: Any,
    stop_ids: tuple[int, ...],
    context: int,
    folder: Path,
    resources: Resources,
) -> Talk:
    """Return the tools that a spec in `folder` names. `context` is the most tokens of a conversation, prompt and all.

    Raises E0743 and E0746 for code that cannot be used, E0812 and E0831 for a chat template that does not carry calls.
    """
    replies = Replies(model.prompt, tokenizer, stop_ids, tools.reply)
    replies.require_calls()
    return Talk(open_function(tools.code, "tools", folder, resources), replies, tools.turns, context)
