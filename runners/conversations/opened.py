"""Make the tools of a data set ready for a task."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reodsl.diagnostics import problem
from reodsl.graph.job import Resources
from reodsl.ir.data import Grading, Tools
from reodsl.ir.model import Model
from runners.conversations.converse import Talk
from runners.conversations.replies import Replies
from runners.own.function import open_function
from runners.prompts import tools_of


def require_tools(grading: Grading, metas: Iterable[str]) -> None:
    """Raise E0750 where a question offers tools, by its metadata, and its data lets no response call them."""
    if grading.tools is not None:
        return
    offered = next((tools for tools in map(tools_of, metas) if tools), None)
    if offered is not None:
        names = [str(each.get("function", {}).get("name", "?")) for each in offered]
        raise problem(
            "E0750",
            f"the questions offer tools that no response may call: {', '.join(names[:8])}",
            help='let responses have several turns: `tools = tools(python("MODULE:verifiers"))` in the data',
        )


def open_talk(
    tools: Tools,
    model: Model,
    tokenizer: Any,
    stop_ids: tuple[int, ...],
    context: int,
    folder: Path,
    resources: Resources,
) -> Talk:
    """Return the tools that a spec in `folder` names. `context` is the most tokens of a conversation, prompt and all.

    Raises E0743 and E0746 for code that cannot be used, E0812 and E0831 for a chat template that does not carry calls.
    """
    replies = Replies(model.prompt, tokenizer, stop_ids, tools.reply)
    replies.require_calls()
    return Talk(open_function(tools.code, "tools", folder, resources), replies, tools.turns, context)
