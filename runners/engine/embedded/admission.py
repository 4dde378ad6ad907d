"""Choose which waiting requests start next: groups of equal prompts that fit the free rows and memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from runners.engine.protocol import Request

# A prompt and the requests that have it.
Group = tuple[tuple[int, ...], list[int]]


def groups_of(requests: Sequence[Request]) -> deque[Group]:
    """Requests by equal prompt, in rising order of the prompt's length: neighbours waste little padding."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for index, request in enumerate(requests):
        by_prompt.setdefault(request.prompt, []).append(index)
    return deque(sorted(by_prompt.items(), key=lambda item: len(item[0])))


def take(waiting: deque[Group], rows: int, tokens: int, max_tokens: int, alone: bool) -> list[Group]:
    """Takes the groups of the next cohort from `waiting`: at most `rows` rows and `tokens` tokens of cache.

    Every row has the columns of the longest prompt and `max_tokens` more. A group stays whole, so that its prompt
    is read once, unless it fits nowhere: `alone`, when nothing runs, splits it, and starts one row at least.
    """
    taken: list[Group] = []
    count = 0
    while waiting:
        prompt, members = waiting[0]
        # Prompts come in rising order of length: this one would set the columns of the whole cohort.
        room = min(rows, tokens // (len(prompt) + max_tokens)) - count
        if alone and not taken:
            room = max(room, 1)
            if room < len(members):
                waiting[0] = (prompt, members[room:])
                return [(prompt, members[:room])]
        if room < len(members):
            break
        taken.append(waiting.popleft())
        count += len(members)
    return taken
