"""Environments of `verifiers` that installed packages offer: their tasks as questions, their rewards as numbers.

A package's module exports a `Taskset`, as that library has it. What is asked and answered in one turn is taken: the task's
prompt, and the weighted sum of its rewards for one response. Everything else is refused by name: tools, containers, models
as judges, rewards that wait for something. Nothing here starts an event loop, which needs what a confined process lacks.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from importlib import import_module
from itertools import islice
from random import Random
from typing import Any

FUNCTION = "verifiers"
"""What a spec writes for a function: `python("my_environment:verifiers")`."""
MOST_TASKS = 1_000_000
_THOUGHT = "</think>"
_KEY = "verifiers"


class Unsuited(Exception):
    """An environment, or a task of it, that does not fit."""


class Environment:
    """The taskset that a module exports, in one turn."""

    def __init__(self, module: str) -> None:
        """Raises ImportError, and Unsuited for a module without a taskset, or with an environment of its own."""
        self._library: Any = import_module("verifiers.v1")
        library = self._library
        exported = import_module(module)
        values = [getattr(exported, name, None) for name in getattr(exported, "__all__", ())]
        kinds = [value for value in values if isinstance(value, type)]
        tasksets = [
            kind for kind in kinds if issubclass(kind, library.Taskset) and kind is not library.Taskset
        ]
        if len(tasksets) != 1:
            raise Unsuited(f"`{module}` exports {len(tasksets)} tasksets in its `__all__`, and not one")
        if any(issubclass(kind, library.Env) for kind in kinds):
            raise Unsuited(f"`{module}` has an environment of its own, for several turns or agents")
        find = import_module("verifiers.v1.utils.generic").concrete_type
        config = find(tasksets[0], library.TasksetConfig, origin=library.Taskset) or library.TasksetConfig
        self._taskset: Any = tasksets[0](config(id=module))
        if self._taskset.toolsets(self._taskset.config):
            raise Unsuited("its tasks use tools, which take several turns")

    def questions(self, rows: list[dict[str, Any]]) -> list[dict[str, str]]:
        """The questions of draws, in order: the tasks in an order that the seed gives, and around again."""
        bounded = bool(self._taskset.bounded)
        last = max(int(row["draw"]) for row in rows)
        tasks = list(islice(self._taskset, MOST_TASKS if bounded else last + 1))
        if not tasks:
            raise Unsuited("it has no tasks")
        order = list(range(len(tasks)))
        if bounded:
            Random(str(rows[0]["seed"])).shuffle(order)
        return [self._question(tasks[order[int(row["draw"]) % len(order)]]) for row in rows]

    def _question(self, task: Any) -> dict[str, str]:
        _require_single(task)
        data = task.data
        if not isinstance(data.prompt, str):
            roles = {str(getattr(message, "role", "")) for message in data.prompt or ()}
            if not roles or roles - {"system", "user"}:
                raise Unsuited("one of its tasks has no prompt, or one of several turns")
        text = "\n\n".join(part for part in (data.system_prompt, data.prompt_text) if part)
        if not text.strip():
            raise Unsuited("one of its tasks asks nothing")
        answer = getattr(data, "answer", "")
        plain = isinstance(answer, (str, int, float))
        meta = json.dumps({_KEY: data.model_dump(mode="json", exclude_unset=True)})
        return {"question": text, "answer": str(answer) if plain else "", "meta": meta, "trace": ""}

    def score(self, row: Mapping[str, Any]) -> float:
        """What the task gives a response: its rewards, each by its weight."""
        kind = type(self._taskset).task_type()
        facts = row["meta"].get(_KEY) if isinstance(row["meta"], dict) else None
        if not isinstance(facts, dict):
            raise Unsuited("the question is none of its tasks: draw the questions from it too")
        task = kind(kind.data_type().model_validate(facts), self._taskset.config.task)
        trace = self._trace(task, str(row["text"]))
        total = 0.0
        for reward in _rewards(task):
            asked = inspect.signature(reward).parameters
            given = {name: value for name, value in (("task", task.data), ("trace", trace)) if name in asked}
            value = _settled(reward(**given))
            parts = value.values() if isinstance(value, Mapping) else (value,)
            total += getattr(reward, "_vf_weight", 1.0) * sum(map(float, parts))
        return total

    def _trace(self, task: Any, text: str) -> Any:
        """A rollout of one turn. Thinking is no part of what was replied."""
        library = self._library
        _, _, reply = text.rpartition(_THOUGHT)
        said = library.AssistantMessage(content=reply.strip())
        messages = [library.UserMessage(content=task.data.prompt_text), said]
        nodes = [
            library.MessageNode(message=message, parent=place - 1 if place else None, sampled=message is said)
            for place, message in enumerate(messages)
        ]
        described = library.TraceTask(type=type(task).__name__, data=task.data)
        return library.Trace.model_construct(task=described, nodes=nodes, is_completed=True, ok=True)


def _require_single(task: Any) -> None:
    """Raise Unsuited for a task of several turns, or one that needs a machine of its own."""
    if task.NEEDS_CONTAINER:
        raise Unsuited("its tasks need a container")
    if task.toolsets(task.config):
        raise Unsuited("its tasks use tools, which take several turns")
    if task.plugged_judges():
        raise Unsuited("its tasks are judged by a model, which takes a network")


def _rewards(task: Any) -> list[Any]:
    """The functions that a task's reward is made of."""
    rewards = list(task.hooks("reward"))
    for reward in rewards:
        runtime = inspect.signature(reward).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            raise Unsuited(
                f"its reward `{reward.__name__}` needs a runtime, which takes a machine of its own"
            )
    if not rewards:
        raise Unsuited("its tasks have no reward")
    return rewards


def _settled(value: Any) -> Any:
    """The result of a function, or of a coroutine that lets others run at most."""
    if not inspect.iscoroutine(value):
        return value
    try:
        while value.send(None) is None:
            pass
    except StopIteration as done:
        return done.value
    value.close()
    raise Unsuited("one of its rewards waits for something outside its process")
