"""Render chat templates, which are programs of whoever made the model, in a process with bounds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Problem, problem
from runners.models.bounded import Beyond, Bounded

SECONDS = 10
MEMORY_MIB = 1 << 10
LARGEST = 1 << 20
_TURNS = [[("user", "What is 1 + 1?")], [("system", "Be brief."), ("user", "What is 1 + 1?" * 50)]]


class FailedTemplate(Exception):
    """A template that raised something, and its words."""


def render_template(
    tokenizer: Any, turns: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()
) -> str:
    """Return a conversation up to where the model's turn begins, by the tokenizer's chat template.

    Raises Failed where the template does, and E0819 where it goes beyond its bounds.
    """
    try:
        template = tokenizer.get_chat_template(tools=list(tools) or None)
    except ValueError as fault:
        raise FailedTemplate(str(fault)) from None
    values = {"messages": list(turns), "tools": list(tools) or None, "documents": None}
    return _render(_process(SECONDS), template, values | tokenizer.special_tokens_map, None)


def require_ending(templates: Any, folder: Path) -> None:
    """Refuse a model's chat templates (a text, several by name, or none) that do not end soon, or fill memory: E0819.

    Other errors are reported where it is used.
    """
    texts = list(templates.values()) if isinstance(templates, dict) else [templates] if templates else []
    with closing(Bounded(SECONDS, MEMORY_MIB)) as process:
        for text, turns in product(texts, _TURNS):
            messages = [{"role": role, "content": content} for role, content in turns]
            values = {"messages": messages, "tools": None, "bos_token": "<s>", "eos_token": "</s>"}
            with suppress(FailedTemplate):
                _render(process, text, values, folder)


@cache
def _process(seconds: float) -> Bounded:
    """Return this process's own rendering process, which ends with it."""
    return Bounded(seconds, MEMORY_MIB)


def _render(process: Bounded, template: str, values: dict[str, Any], folder: Path | None) -> str:
    if len(template) > LARGEST:
        raise _refusal(
            f"has {len(template):,} characters, and at most {LARGEST:,} are read", template, folder
        )
    try:
        said = process.ask({"template": template, "values": {"add_generation_prompt": True, **values}})
    except Beyond as why:
        raise _refusal(str(why), template, folder) from None
    if "raised" in said:
        raise FailedTemplate(said["raised"])
    return str(said["text"])


def _refusal(why: str, template: str, folder: Path | None) -> Problem:
    return problem(
        "E0819",
        f"the model's chat template {why}",
        where=str(folder) if folder else None,
        notes=[f"it begins: {' '.join(template.split())[:60]}"],
        help="take `chat_template` out of the tokenizer's files, and write `prompt { kind = raw, template = … }`",
    )
