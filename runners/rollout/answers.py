"""Read the answers of complete responses, of their prefixes, and of texts after a forcing text."""

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
"""The number of last tokens of a prompt in which the closing mark of thinking is searched for."""


def response_text(tokenizer: Any, tokens: Sequence[int], stop_ids: Sequence[int]) -> str:
    """Return the text of a response without a final stop token; other special tokens stay in the text.

    Args:
        tokenizer: The tokenizer.
        tokens: Token ids of the response.
        stop_ids: Token ids that end a response.
    """
    ids = tokens[:-1] if tokens and tokens[-1] in stop_ids else tokens
    return str(tokenizer.decode(list(ids), skip_special_tokens=False))


def thinking_of(model: Model, grading: Grading) -> Thinking | None:
    """Return the marks between which no answer is read; None if answers in thinking count too."""
    return None if grading.thinking == "read" else marks_of(model)


def marks_of(model: Model) -> Thinking:
    """Return the marks of a model's thinking, as it declares them, else the usual `<think>` and `</think>`."""
    return Thinking(model.think_open or THINK_OPEN, model.think_close or THINK_CLOSE)


def thinking_after(thinking: Thinking, tokenizer: Any, before: Sequence[int]) -> Thinking:
    """Return the marks for reading a response, with `over` set if the thinking is already closed before it.

    Args:
        thinking: The marks of thinking.
        tokenizer: The tokenizer.
        before: The token ids before the response; thinking is over if they end in the closing mark.
    """
    end = str(tokenizer.decode(list(before[-MARK_TOKENS:]), skip_special_tokens=False))
    return replace(thinking, over=end.rstrip().endswith(thinking.close.rstrip()))


def tokens_of_thinking(
    thinking: Thinking, tokenizer: Any, before: Sequence[int], tokens: Sequence[int]
) -> int | None:
    """Return the number of tokens of a response up to the end of its first closing mark; None without a mark.

    Args:
        thinking: The marks of thinking.
        tokenizer: The tokenizer.
        before: The token ids before the response; the result is 0 if they end in the closing mark.
        tokens: The token ids of the response.
    """
    if thinking_after(thinking, tokenizer, before).over:
        return 0
    offsets = Offsets(tokens, lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)))
    position = offsets.text.find(thinking.close)
    return None if position < 0 else offsets.holding(position + len(thinking.close))


def answer_after_forcing(forcing: Forcing, continuation: str, readers: Sequence[AnswerReader] = BOXED) -> str:
    """Return the answer in the text that a model wrote after the forcing text; empty if there is none.

    If the forcing text opens a box, the answer is the content of the box. Otherwise the readers search the forcing text
    and its continuation for an answer that ends in the continuation. If they find none and the forcing has a `close`,
    the answer is the continuation before `close`.

    Args:
        forcing: The forcing text, and the text `close` that ends an answer.
        continuation: The text that the model wrote.
        readers: The readers of answers, in order of preference.
    """
    if opens_box(forcing.text):
        return forced_answer(continuation)
    answer = read_answer(readers, forcing.text + continuation, len(forcing.text))
    if answer or not forcing.close:
        return answer
    if forcing.close.isspace():
        # White space before an answer is not its end.
        continuation = continuation.lstrip()
    return continuation.split(forcing.close, 1)[0].strip()


def bare_answers(
    tokens: Sequence[int],
    decode: Decode,
    text: str | None = None,
    readers: Sequence[AnswerReader] = BOXED,
    thinking: Thinking | None = None,
) -> list[tuple[int, str]]:
    """Return the answers that the prefixes of a response contain without forcing, at each length where they change.

    Args:
        tokens: The token ids of the response.
        decode: Returns the text of token ids.
        text: The text of all tokens, if known.
        readers: The readers of answers, in order of preference.
        thinking: The marks between which no answer is read, if any.

    Returns:
        Pairs of a prefix's number of tokens, increasing, and the answer of prefixes from this length up to the next
        pair's. Prefixes shorter than the first pair's have an empty answer.
    """
    changes: list[tuple[int, str]] = []
    offsets = Offsets(tokens, decode, text)
    for end, answer in answer_changes(readers, offsets.text, thinking):
        tokens_read = offsets.holding(end)
        # Of several answers that end within one token, keep the last.
        while changes and changes[-1][0] == tokens_read:
            changes.pop()
        if answer != (changes[-1][1] if changes else ""):
            changes.append((tokens_read, answer))
    return changes


def find_answer(tokens: Sequence[int], decode: Decode, answer: str) -> tuple[int, int, str] | None:
    """Locate the last occurrence of an answer's text in a response.

    Args:
        tokens: The token ids of the response.
        decode: Returns the text of token ids.
        answer: The text of the answer.

    Returns:
        The number of complete tokens before the answer; the number of tokens up to the answer's end; and the characters
        before the answer in the token with its first character. None if the answer does not occur.
    """
    offsets = Offsets(tokens, decode)
    start = offsets.text.rfind(answer)
    if start < 0:
        return None
    count = offsets.reaching(start + 1) - 1
    return (count, offsets.holding(start + len(answer)), offsets.text[len(offsets.prefix(count)) : start])
