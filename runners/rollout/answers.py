"""Read the answers of responses: whole, cut without forcing, or forced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from reodsl.ir.data import AnswerReader, Grading, LastBox
from reodsl.ir.model import THINK_CLOSE, THINK_OPEN, Forcing, Model
from runners.grade import Thinking, answer_changes, forced_answer, opens_box, read_answer
from runners.rewards.offsets import Decode, Offsets

BOXED: tuple[AnswerReader, ...] = (LastBox(),)
MARK_TOKENS = 64
"""Tokens at the end of a prompt in which a mark that closes the thinking is looked for."""


def response_text(tokenizer: Any, tokens: Sequence[int], stop_ids: Sequence[int]) -> str:
    """Return the text of a response without its stop token; special tokens inside (thinking marks) stay."""
    ids = tokens[:-1] if tokens and tokens[-1] in stop_ids else tokens
    return str(tokenizer.decode(list(ids), skip_special_tokens=False))


def thinking_of(model: Model, grading: Grading) -> Thinking | None:
    """Return the marks of a model's thinking, or None where answers are read in it too."""
    return None if grading.thinking == "read" else marks_of(model)


def marks_of(model: Model) -> Thinking:
    """Return the marks of a model's thinking: those of its declaration, or the usual marks."""
    return Thinking(model.think_open or THINK_OPEN, model.think_close or THINK_CLOSE)


def thinking_after(thinking: Thinking, tokenizer: Any, before: Sequence[int]) -> Thinking:
    """Return `thinking` for the text after the tokens `before`: it is over if `before` ends in its closing mark."""
    end = str(tokenizer.decode(list(before[-MARK_TOKENS:]), skip_special_tokens=False))
    return replace(thinking, over=end.rstrip().endswith(thinking.close.rstrip()))


def tokens_of_thinking(
    thinking: Thinking, tokenizer: Any, before: Sequence[int], tokens: Sequence[int]
) -> int | None:
    """Return how many tokens a response has up to the end of its first closing mark; None without a mark.

    It is 0 if the tokens `before` the response end in the mark.
    """
    if thinking_after(thinking, tokenizer, before).over:
        return 0
    offsets = Offsets(tokens, lambda some: str(tokenizer.decode(list(some), skip_special_tokens=False)))
    position = offsets.text.find(thinking.close)
    return None if position < 0 else offsets.holding(position + len(thinking.close))


def answer_after_forcing(forcing: Forcing, continuation: str, readers: Sequence[AnswerReader] = BOXED) -> str:
    """Return the answer in what a model wrote after the forcing text.

    In a box that the text opens, the answer ends where the box closes, however answers are read elsewhere. Otherwise it
    is read from the text and the continuation together, and must end in the continuation; if nothing is found, it is
    everything that comes before `close`.
    """
    if opens_box(forcing.text):
        return forced_answer(continuation)
    answer = read_answer(readers, forcing.text + continuation, len(forcing.text))
    if answer or not forcing.close:
        return answer
    if forcing.close.isspace():
        # White space before an answer does not end it.
        continuation = continuation.lstrip()
    return continuation.split(forcing.close, 1)[0].strip()


def bare_answers(
    tokens: Sequence[int],
    decode: Decode,
    text: str | None = None,
    readers: Sequence[AnswerReader] = BOXED,
    thinking: Thinking | None = None,
) -> list[tuple[int, str]]:
    """Return (tokens, answer) at every prefix whose answer differs from that of the prefix with one token less, in order.

    Args:
        tokens: The response.
        decode: Returns the text of a prefix.
        text: The text of all tokens, if it is known.
        readers: How answers are read.
        thinking: Marks between which no answer is read.

    Returns:
        The tokens of each prefix and its answer, which is what `answer_changes` finds without forcing. Before the first
            pair
        there is no answer.
    """
    changes: list[tuple[int, str]] = []
    offsets = Offsets(tokens, decode, text)
    for end, answer in answer_changes(readers, offsets.text, thinking):
        tokens_read = offsets.holding(end)
        # Answers that end within one token leave the last of them.
        while changes and changes[-1][0] == tokens_read:
            changes.pop()
        if answer != (changes[-1][1] if changes else ""):
            changes.append((tokens_read, answer))
    return changes


def find_answer(tokens: Sequence[int], decode: Decode, answer: str) -> tuple[int, int, str] | None:
    """Return where an answer's text occurs last in a response; None if it does not occur.

    Returns:
        The tokens before the text, the tokens up to its end, and the text that its first token has before it.
    """
    offsets = Offsets(tokens, decode)
    start = offsets.text.rfind(answer)
    if start < 0:
        return None
    count = offsets.reaching(start + 1) - 1
    return count, offsets.holding(start + len(answer)), offsets.text[len(offsets.prefix(count)) : start]
