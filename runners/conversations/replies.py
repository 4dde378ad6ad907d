"""Write what tools say as the tokens that stand between two turns of the model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reodsl.diagnostics import problem
from reodsl.ir.model import Prompt
from runners.models.template import FailedTemplate, render_template
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
