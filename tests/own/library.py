"""A stand-in of the library `verifiers`, with the part of its interface that is read, and environments for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

LIBRARY = """
import pydantic

class Generic:
    kinds = ()
    def __class_getitem__(cls, kinds):
        return type(cls.__name__, (cls,), {"kinds": kinds if isinstance(kinds, tuple) else (kinds,)})

class State(pydantic.BaseModel): pass

class Taskset(Generic):
    bounded = True
    def __init__(self, config): self.config = config
    def __iter__(self): return iter(self.load())
    @classmethod
    def toolsets(cls, config): return []
    @classmethod
    def task_type(cls): return cls.kinds[0] if cls.kinds else cls.kind

class Env: pass

class TasksetConfig:
    def __init__(self, id): self.id, self.task = id, None

class TaskData:
    answer, system_prompt = "", None
    def __init__(self, **facts): vars(self).update(facts)
    @classmethod
    def model_validate(cls, facts): return cls(**facts)
    def model_dump(self, mode, exclude_unset): return dict(vars(self))
    @property
    def prompt_text(self): return self.prompt if isinstance(self.prompt, str) else " ".join(m.content for m in self.prompt)

class Task(Generic):
    NEEDS_CONTAINER = False
    def __init__(self, data, config): self.data, self.config = data, config
    @classmethod
    def data_type(cls): return cls.kinds[0] if cls.kinds else TaskData
    @classmethod
    def toolsets(cls, config): return []
    def plugged_judges(self): return []
    def hooks(self, name): return [getattr(self, k) for k in dir(self) if hasattr(getattr(type(self), k, None), name)]

class ToolsetConfig:
    url = None

class Toolset(Generic):
    TOOL_PREFIX = ""
    def __init__(self, config):
        self.config, self._state_cls = config, next((k for k in self.kinds if issubclass(k, State)), State)
        self._inert_state = self._state_cls()
    @property
    def state(self): return self._inert_state
    @property
    def server_name(self): return "" if self.TOOL_PREFIX is None else self.TOOL_PREFIX or type(self).__name__.lower()
    async def setup(self): pass
    async def setup_task(self, task): pass

class Message:
    def __init__(self, content, **facts):
        self.content = content
        vars(self).update(facts)

class UserMessage(Message): role = "user"
class AssistantMessage(Message): role = "assistant"
class ToolMessage(Message): role = "tool"

class ToolCall:
    def __init__(self, **facts): vars(self).update(facts)

class MessageNode:
    def __init__(self, message, parent, sampled): self.message, self.parent, self.sampled = message, parent, sampled

class TraceTask:
    def __init__(self, type, data): self.type, self.data = type, data

class Trace:
    @classmethod
    def model_construct(cls, **facts):
        made = cls()
        vars(made).update(facts)
        return made
    @property
    def last_reply(self): return [n for n in self.nodes if n.sampled][-1].message.content
    @property
    def tool_messages(self): return [n.message for n in self.nodes if n.message.role == "tool"]

def reward(function=None, weight=1.0):
    def mark(function):
        function.reward, function._vf_weight = True, weight
        return function
    return mark if function is None else mark(function)

def tool(function):
    function.tool = True
    return function

def stop(function):
    function.stop = True
    return function
"""
HERE = importlib.util.find_spec("verifiers") is not None


def install(site: Path, text: str, library: bool) -> None:
    """The environment as an installed package, and the library's stand-in beside it."""
    (site / "sums_env-1.5.dist-info").mkdir(parents=True)
    (site / "sums_env-1.5.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sums-env\nVersion: 1.5\nRequires-Dist: verifiers>=0.4\n"
    )
    (site / "sums_env-1.5.dist-info" / "top_level.txt").write_text("sums_env\n")
    (site / "sums_env.py").write_text(text)
    if library:
        inside = site / "verifiers" / "v1" / "utils"
        inside.mkdir(parents=True)
        (site / "verifiers" / "__init__.py").write_text("")
        (site / "verifiers" / "v1" / "__init__.py").write_text(LIBRARY)
        (inside / "__init__.py").write_text("")
        (inside / "generic.py").write_text("def concrete_type(kind, base, origin): return None\n")
        (site / "verifiers" / "v1" / "state.py").write_text(
            "from verifiers.v1 import State\n"
            "def state_cls(kind): return next((k for k in kind.kinds if issubclass(k, State)), State)\n"
        )
