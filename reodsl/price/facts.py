"""Facts that a spec cannot know by itself: lengths of responses, prompts and traces, and numbers of questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PROMPT = 150.0
"""Tokens of a question in its prompt, where it is not generated: about what competition mathematics has."""
SHARE_OF_LONGEST = 1 / 3
"""Of the longest response that a mean one has, where nobody says: Qwen3-4B's 11.9K of 32K tokens, in the main table."""
SHARE_OF_TRACE = 1 / 2
"""Of the longest sequence that a mean trace has, where nobody says."""
CHARACTERS_PER_TOKEN = 3
"""Of a forcing text in a subword vocabulary: mathematical notation has short tokens."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known or assumed of one task, in tokens; `trained_share` is the share of a batch's tokens that get a gradient.

    `questions` are those of the task's data, all benchmarks together. `equal` is the share of drawn questions that give no
    gradient, `draws` how many draws a step took for its batch. None: not known.
    """

    length: float | None = None
    prompt: float | None = None
    questions: int | None = None
    trained_share: float = 1.0
    steps: int | None = None
    equal: float | None = None
    draws: float | None = None


def questions_in(data: Mapping[str, Any]) -> int | None:
    """How many questions a data payload's sources hold: generated ones are counted, others as far as it is declared."""
    declared = data.get("questions")
    if declared is not None:
        return int(declared)
    counts = [source.get("count") for source in data["sources"]]
    return sum(counts) if counts and None not in counts else None


def prompt_tokens(data: Mapping[str, Any], longest: float) -> float:
    """Mean tokens of a prompt: those of a generated task's template, or `PROMPT`; never past `longest`."""
    tasks = [source["task"] for source in data["sources"] if source["kind"] == "generated"]
    tasks = [task for task in tasks if "length" in task]
    if not tasks:
        return min(PROMPT, longest)
    means = []
    for task in tasks:
        low, high = task["length"]
        step = len(task["step"].split())
        means.append(len(task["question"].split()) - 1 + step * (low + high) / 2)
    return float(min(sum(means) / len(means), longest))


def text_tokens(text: str, words: bool) -> float:
    """About how many tokens a forcing text has: its words in a word-level vocabulary, else a third of its letters."""
    return float(len(text.split()) if words else max(1, len(text) // CHARACTERS_PER_TOKEN))
