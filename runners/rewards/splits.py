"""Split responses: a rule's places in tokens, the last one the response's end or `l_max`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reodsl.diagnostics import Problem, problem
from reodsl.ir.reward import Budgets, OracleBudgets, QuestionBudgets, Split, Steps
from runners.offsets import Decode, Offsets


def budget_places(split: Split, chosen: Mapping[str, object] | None) -> tuple[int, ...] | None:
    """Return L_1 … L_{N+1} where all questions share them, else None. `chosen` is `budgets.json` of a `budgets` task."""
    if isinstance(split, Budgets):
        return (*split.budgets, split.l_max)
    if isinstance(split, OracleBudgets):
        budgets = (chosen or {}).get("budgets")
        if not isinstance(budgets, list):
            raise _no_budgets("`budgets`, a list of tokens")
        return (*(int(budget) for budget in budgets), split.l_max)
    return None


def question_places(
    split: QuestionBudgets, chosen: Mapping[str, object] | None, asked: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """Return `(L^x, l_max)` by id of each question `asked` with a budget. `chosen` is `budgets.json` of a `budgets` task.

    Of a question that no rollout tells of, the whole response alone counts; it has none where unsolved ones are dropped.
    """
    questions = (chosen or {}).get("questions")
    if not isinstance(questions, dict):
        raise _no_budgets("`questions`, a budget by question id")
    unmet = None if split.unsolved == "drop" else split.l_max
    budgets = {name: questions.get(name, unmet) for name in asked}
    return {name: (int(budget), split.l_max) for name, budget in budgets.items() if budget is not None}


def step_places(split: Steps, tokens: Sequence[int], decode: Decode) -> tuple[int, ...]:
    """Return the ends of a response's reasoning steps in tokens, the last its own end.

    The text is cut at `separator` into chunks; a chunk that starts with a keyword opens a new step, at least
    `min_chunks` chunks after the last opening. A step ends before the token that holds the next opening's first
    character.
    """
    offsets = Offsets(tokens, decode)
    places: list[int] = []
    for opening in _openings(split, offsets.text):
        place = offsets.reaching(opening + 1) - 1
        if place > (places[-1] if places else 0):
            places.append(place)
    if not places or places[-1] < len(tokens):
        places.append(len(tokens))
    return tuple(min(place, split.l_max) for place in places)


def _openings(split: Steps, text: str) -> list[int]:
    """Return character offsets at which a step after the first opens."""
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


def _no_budgets(what: str) -> Problem:
    return problem(
        "E0925",
        "the training's budgets are missing or of another form",
        where="budgets.json",
        notes=[f"expected {what}"],
        help="run the study that estimates them (its frontier, or the rollouts of other arms), or give explicit budgets",
    )
