"""Bare prefixes: a response's tokens in; the budgets at which the answer it holds by itself changes out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from runners.answers import box_ends
from runners.verify import final_answer


def bare_answers(tokens: Sequence[int], text: Callable[[Sequence[int]], str]) -> list[tuple[int, str]]:
    """`(tokens, answer)` at every prefix whose answer differs from that of the prefix one token shorter, in order.

    An answer is what `final_answer` finds with nothing forced; before the first pair there is none. `text` gives the
    text of a prefix; it can only change its answer where a box closes.
    """
    found: list[tuple[int, str]] = []
    last = ""
    for end in box_ends(text(tokens)):
        place = bisect_left(range(len(tokens) + 1), end, key=lambda k: len(text(tokens[:k])))
        answer = final_answer(text(tokens[:place]))
        if answer != last:
            # Boxes that close within one token leave its last answer.
            found = [pair for pair in found if pair[0] != place]
            found.append((place, answer))
            last = answer
    return found
