"""Where a response is split: from a split rule to each response's places in tokens, the last one its end or `l_max`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from reodsl.diagnostics import Problem, problem
from reodsl.ir.reward import Budgets, OracleBudgets, QuestionBudgets, Split, Steps

Decode = Callable[[Sequence[int]], str]


def budget_places(split: Split, found: Mapping[str, object] | None) -> tuple[int, ...] | None:
    """L_1 … L_{N+1} where all questions share them, else None. `found` is `budgets.json` of a `budgets` task."""
    if isinstance(split, Budgets):
        return (*split.budgets, split.l_max)
    if isinstance(split, OracleBudgets):
        budgets = (found or {}).get("budgets")
        if not isinstance(budgets, list):
            raise _no_budgets("`budgets`, a list of tokens")
        return (*(int(budget) for budget in budgets), split.l_max)
    return None


def question_places(split: QuestionBudgets, found: Mapping[str, object] | None) -> dict[str, tuple[int, int]]:
    """`(L^x, l_max)` by question id; dropped questions are left out. `found` is `budgets.json` of a `budgets` task."""
    questions = (found or {}).get("questions")
    if not isinstance(questions, dict):
        raise _no_budgets("`questions`, a budget by question id")
    return {str(name): (int(own), split.l_max) for name, own in questions.items() if own is not None}


def step_places(split: Steps, tokens: Sequence[int], decode: Decode) -> tuple[int, ...]:
    """The ends of a response's reasoning steps in tokens, the last its own end.

    The text is cut at `separator` into chunks; a chunk that starts with a keyword opens a new step, at least
    `min_chunks` chunks after the last opening. A step ends before the token that holds the next opening's first
    character.
    """
    text = decode(tokens)
    openings = _openings(split, text)
    end_of = _token_ends(tokens, decode, len(text)) if openings else None
    places: list[int] = []
    for opening in openings:
        assert end_of is not None
        place = bisect_right(range(len(tokens)), opening, key=end_of)
        if place > (places[-1] if places else 0):
            places.append(place)
    if not places or places[-1] < len(tokens):
        places.append(len(tokens))
    return tuple(min(place, split.l_max) for place in places)


def _openings(split: Steps, text: str) -> list[int]:
    """Character offsets at which a step after the first opens."""
    openings: list[int] = []
    offset, since = 0, 0
    for number, chunk in enumerate(text.split(split.separator)):
        lead = len(chunk) - len(chunk.lstrip())
        if number and since >= split.min_chunks and chunk.lstrip().startswith(split.keywords):
            openings.append(offset + lead)
            since = 0
        since += 1
        offset += len(chunk) + len(split.separator)
    return openings


def _token_ends(tokens: Sequence[int], decode: Decode, characters: int) -> Callable[[int], int]:
    """A function from a token's position to the characters of the text up to and with it.

    A token's characters are those it adds to the token before it, found once a pair. Where their sum misses
    the text (a character spread over three tokens), each question is answered by decoding the prefix.
    """
    widths: dict[tuple[int, ...], int] = {}
    ends: list[int] = []
    for position in range(len(tokens)):
        pair = tuple(tokens[max(0, position - 1) : position + 1])
        if pair not in widths:
            widths[pair] = len(decode(pair)) - (len(decode(pair[:1])) if len(pair) == 2 else 0)
        ends.append((ends[-1] if ends else 0) + widths[pair])
    if ends and ends[-1] == characters:
        return ends.__getitem__
    return lambda position: len(decode(tokens[: position + 1]))


def _no_budgets(what: str) -> Problem:
    return problem(
        "E0925",
        "the training's budgets are missing or of another form",
        where="budgets.json",
        notes=[f"expected {what}"],
        help="run the study that estimates them (its frontier, or the rollouts of other arms), or give explicit budgets",
    )
