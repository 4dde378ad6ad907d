"""Answers of responses as text: tokens in, the answer that is graded out, whole, cut bare, or forced."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from reodsl.ir.model import Forcing
from runners.offsets import Decode, Offsets
from runners.verify import final_answer, forced_answer

_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,64}\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
MOST_BOXES = 64
"""Boxes of one response after which bare answers are no longer followed."""


def response_text(tokenizer: Any, tokens: Sequence[int], stop_ids: Sequence[int]) -> str:
    """The text of a response without its stop token; special tokens inside (thinking marks) stay."""
    kept = tokens[:-1] if tokens and tokens[-1] in stop_ids else tokens
    return str(tokenizer.decode(list(kept), skip_special_tokens=False))


def opens_box(text: str) -> bool:
    r"""Whether a forcing text ends inside a `\boxed{`, so that the answer is what comes up to its closing."""
    found = list(_BOX.finditer(text))
    return bool(found) and "}" not in text[found[-1].end() :]


def answer_after_forcing(forcing: Forcing, continuation: str) -> str:
    """The answer in what a model wrote after the forcing text.

    Inside an open box it ends where the box closes. Otherwise it is the last boxed answer of the continuation or,
    where there is none, all that comes before `close`.
    """
    if opens_box(forcing.text):
        return forced_answer(continuation)
    boxed = final_answer(continuation)
    if boxed or not forcing.close:
        return boxed
    return continuation.split(forcing.close, 1)[0].strip()


def box_ends(text: str) -> list[int]:
    """Characters up to and with the closing of each boxed answer, rising: where the answer of a prefix can change."""
    openings = {opening.end() for opening in islice(_BOX.finditer(text), MOST_BOXES)}
    if not openings:
        return []
    ends: list[int] = []
    # What is open, and whether it is a box: one pass, whatever a response repeats.
    stack: list[bool] = []
    for mark in _BRACE.finditer(text, min(openings) - 1):
        if mark[0] == "{":
            stack.append(mark.end() in openings)
        elif mark[0] == "}" and stack and stack.pop():
            ends.append(mark.end())
    return ends


def bare_answers(tokens: Sequence[int], decode: Decode, text: str | None = None) -> list[tuple[int, str]]:
    """`(tokens, answer)` at every prefix whose answer differs from that of the prefix one token shorter, in order.

    An answer is what `final_answer` finds with nothing forced; before the first pair there is none. `decode` gives the
    text of a prefix, which can only change its answer where a box closes; `text` is that of all tokens, where it is known.
    """
    found: list[tuple[int, str]] = []
    last = ""
    offsets = Offsets(tokens, decode, text)
    for end in box_ends(offsets.text):
        place = offsets.reaching(end)
        answer = final_answer(offsets.prefix(place))
        if answer != last:
            # Boxes that close within one token leave its last answer.
            found = [pair for pair in found if pair[0] != place]
            found.append((place, answer))
            last = answer
    return found
