"""Models whose words are numbers and calls of a tool that says the next ones: conversations without a tokenizer's file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from reodsl.ir.model import Prompt
from runners.conversations import Replies, Talk
from runners.engine.protocol import TokenSampling
from tests.engine.engine_reference import STOP

CALLING = 22
"""Tokens from here on are calls of a tool, with themselves as its argument."""
SAMPLING = TokenSampling(24, temperature=1.3, stop_ids=(STOP, 2, 3, 4, 5))


class Words:
    """A tokenizer whose words are numbers, and calls."""

    all_special_tokens = ()

    def decode(self, ids: Sequence[int], **_: object) -> str:
        call = '<tool_call>{"name": "next", "arguments": {"n": %d}}</tool_call>'
        return " ".join(call % each if each >= CALLING else str(each) for each in ids)

    def encode(self, text: str, **_: object) -> list[int]:
        return [int(each) for each in text.split()]


class Next:
    """A tool that says the next numbers, and ends a conversation where it is asked about the last token."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def reply(self, rows: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        self.rows += rows
        return [self.answer(row) for row in rows]

    @staticmethod
    def answer(row: dict[str, Any]) -> dict[str, Any] | None:
        numbers = [call["arguments"]["n"] for call in row["calls"]]
        if 39 in numbers:
            return None
        count = (row["state"] or 0) + 1
        return {"replies": [f"{n % 20 + 2} {10 + count}" for n in numbers], "state": count}


def talk(**changes: Any) -> Talk:
    """At most four turns and 500 tokens, unless something else is said."""
    words = Words()
    return replace(
        Talk(Next(), Replies(Prompt(reply="7 {reply} 8"), words, SAMPLING.stop_ids, 64), 4, 500), **changes
    )
