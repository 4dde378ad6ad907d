"""Environments of `verifiers` that installed packages offer: their tasks as questions, their rewards as numbers.

A package's module exports a `Taskset`, as that library has it: the task's prompt, the tools that a model may call, and the
weighted sum of its rewards for what came of it. Everything else is refused by name: containers, models as judges, rewards
that wait for something. Nothing here starts an event loop, which needs what a confined process lacks.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from random import Random
from typing import Any, cast

FUNCTION = "verifiers"
"""The function that a spec names: `python("my_environment:verifiers")`."""
LOADED_LATE = "verifiers.v1.utils.loaders"
"""The module that the library loads when a task is first asked about its functions."""
MOST_TASKS = 1_000_000
MOST_SAID = 2**16
"""Characters of what a tool says that are kept."""
_MOST_WORDS = 500
_THOUGHT = "</think>"
_CALLS = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)
_KEY = "verifiers"


class Unsuited(Exception):
    """An environment, or a task of it, that does not fit."""


class Environment:
    """The taskset that a module exports, in one turn."""

    def __init__(self, module: str) -> None:
        """Raise ImportError, and Unsuited for a module without a taskset, or with an environment of its own."""
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

    def questions(self, rows: list[dict[str, Any]]) -> list[dict[str, str]]:
        """Return the questions of draws, in order: the tasks in an order that the seed gives, and around again."""
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
        _require_light(task)
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
        facts: dict[str, Any] = {_KEY: data.model_dump(mode="json", exclude_unset=True)}
        tools = [_described(name, tool) for name, tool in self._tools(task, None).items()]
        meta = json.dumps(facts | ({"tools": tools} if tools else {}))
        return {"question": text, "answer": str(answer) if plain else "", "meta": meta, "trace": ""}

    def score(self, row: Mapping[str, Any]) -> float:
        """Return the task's score of a response: its rewards, each by its weight."""
        task = self._task(row)
        trace = self._trace(task, row)
        total = 0.0
        for reward in _rewards(task):
            value = _settled(reward(**_asked(reward, task, trace)))
            parts = value.values() if isinstance(value, Mapping) else (value,)
            total += getattr(reward, "_vf_weight", 1.0) * sum(map(float, parts))
        return total

    def reply(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the tools' replies to a turn, and what they remember; None if the task ends the conversation.

        A tool that raises, or is called in another way than it is declared, says so to the model.
        """
        task = self._task(row)
        state = row["state"] if isinstance(row["state"], dict) else None
        trace = self._trace(task, row)
        if any(_settled(stop(**_asked(stop, task, trace))) for stop in task.hooks("stop")):
            return None
        tools, said = self._tools(task, state), []
        for call in row["calls"]:
            tool = tools.get(call.get("name"))
            # Sets of tools remember together.
            if tool is not None and state is not None:
                tool.owner._inert_state = _part_of(tool.owner._state_cls, state)
            said.append(_called(tool, call, tools))
            if tool is not None:
                state = {**(state or {}), **tool.owner.state.model_dump(mode="json")}
        return {"replies": said, "state": state}

    def _task(self, row: Mapping[str, Any]) -> Any:
        """Return the task that a question is."""
        kind = type(self._taskset).task_type()
        facts = row["meta"].get(_KEY) if isinstance(row["meta"], dict) else None
        if not isinstance(facts, dict):
            raise Unsuited("the question is none of its tasks: draw the questions from it too")
        return kind(kind.data_type().model_validate(facts), self._taskset.config.task)

    def _tools(self, task: Any, state: dict[str, Any] | None) -> dict[str, _Tool]:
        """Return the tools of a task by the names that a model calls them by, each set of them with what is remembered."""
        tools: dict[str, _Tool] = {}
        for lasting, toolsets in (
            (True, self._taskset.toolsets(self._taskset.config)),
            (False, task.toolsets(task.config)),
        ):
            for owner in toolsets:
                if getattr(owner.config, "url", None):
                    raise Unsuited("its tools are served elsewhere, which takes a network")
                if state is not None:
                    owner._inert_state = _part_of(owner._state_cls, state)
                _settled(owner.setup())
                if not lasting:
                    _settled(owner.setup_task(task.data))
                prefix = f"{owner.server_name}_" if owner.server_name else ""
                for function in _marked(owner, "tool"):
                    name = f"{prefix}{getattr(function, 'tool_name', None) or function.__name__}"
                    if name in tools:
                        raise Unsuited(f"two of its tools are called `{name}`")
                    tools[name] = _Tool(function, owner)
        return tools

    def _trace(self, task: Any, row: Mapping[str, Any]) -> Any:
        """Return a rollout: the earlier turns with the tools' replies, and the last turn, each without its thinking."""
        library = self._library
        messages = [library.UserMessage(content=task.data.prompt_text)]
        sampled = [False]
        turns = [*row.get("turns", ()), {"text": row["text"], "calls": row.get("calls", ()), "replies": ()}]
        for number, turn in enumerate(turns):
            _, _, text = str(turn["text"]).rpartition(_THOUGHT)
            if "tools" in row["meta"]:
                text = _CALLS.sub("", text)
            calls = {f"call{number}_{place}": call for place, call in enumerate(turn["calls"])}
            asked = [
                library.ToolCall(id=key, name=call["name"], arguments=json.dumps(call["arguments"]))
                for key, call in calls.items()
                if "name" in call
            ]
            said = {"tool_calls": asked} if asked else {}
            messages.append(library.AssistantMessage(content=text.strip(), **said))
            sampled.append(True)
            for key, reply in zip(calls, turn["replies"], strict=False):
                messages.append(
                    library.ToolMessage(tool_call_id=key, content=reply, name=calls[key].get("name"))
                )
                sampled.append(False)
        nodes = [
            library.MessageNode(message=message, parent=place - 1 if place else None, sampled=sampled[place])
            for place, message in enumerate(messages)
        ]
        facts: dict[str, Any] = {
            "task": library.TraceTask(type=type(task).__name__, data=task.data),
            "nodes": nodes,
            "is_completed": True,
            "ok": True,
        }
        state = turns[-2].get("state") if len(turns) > 1 else None
        kind = import_module("verifiers.v1.state").state_cls(type(task))
        facts["state"] = _part_of(kind, state or {})
        return library.Trace.model_construct(**facts)


@dataclass(frozen=True, slots=True)
class _Tool:
    """A tool, and the set that it belongs to."""

    function: Callable[..., Any]
    owner: Any


def _part_of(kind: Any, state: dict[str, Any]) -> Any:
    """Return a state of a kind, of what is remembered as far as it is its own."""
    return kind.model_validate({name: state[name] for name in kind.model_fields if name in state})


def _marked(owner: Any, mark: str) -> list[Callable[..., Any]]:
    """Return the methods that a decorator marks, by name."""
    names = sorted(name for name in dir(type(owner)) if hasattr(getattr(type(owner), name, None), mark))
    return [getattr(owner, name) for name in names]


def _described(name: str, tool: _Tool) -> dict[str, Any]:
    """Return a tool as chat templates are told of it."""
    # Only environments with tools take the time to load it.
    from pydantic import TypeAdapter

    said = (tool.function.__doc__ or "").strip()
    adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", tool.function))
    parameters = adapter.json_schema()
    return {"type": "function", "function": {"name": name, "description": said, "parameters": parameters}}


def _called(tool: _Tool | None, call: Mapping[str, Any], known: Iterable[str]) -> str:
    """Return a tool's reply to a call; `known` are the names of all."""
    from pydantic import validate_call

    if "error" in call:
        return f"Error: {call['error']}"
    if tool is None:
        return f"Error: there is no tool {call['name'][:80]}; there are {', '.join(sorted(known))}"
    try:
        said = _text_of(_settled(validate_call(tool.function)(**call["arguments"])))
    except Unsuited:
        raise
    except (Exception, RecursionError, MemoryError) as failure:
        return f"Error: {str(failure)[:_MOST_WORDS] or type(failure).__name__}"
    return said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]} …"


def _text_of(value: Any) -> str:
    """Return a tool's result as a text."""
    if isinstance(value, str):
        return value
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json())
    return json.dumps(value, default=str, ensure_ascii=False)


def _asked(function: Callable[..., Any], task: Any, trace: Any) -> dict[str, Any]:
    """Return the arguments of a task's function, by the names of its parameters."""
    given = {"task": task.data, "trace": trace}
    return {name: given[name] for name in inspect.signature(function).parameters if name in given}


def _require_light(task: Any) -> None:
    """Raise Unsuited for a task that needs a machine of its own, or a network."""
    if task.NEEDS_CONTAINER:
        raise Unsuited("its tasks need a container")
    if task.plugged_judges():
        raise Unsuited("its tasks are judged by a model, which takes a network")


def _rewards(task: Any) -> list[Any]:
    """Return the functions that a task's reward is made of."""
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
    """Return the result of a function, or of a coroutine that lets others run at most."""
    if not inspect.iscoroutine(value):
        return value
    try:
        while value.send(None) is None:
            pass
    except StopIteration as done:
        return done.value
    value.close()
    raise Unsuited("one of its functions waits for something outside its process")
