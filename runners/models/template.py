"""Try a chat template in a process of its own, because it may never end.

Run as a script it renders the templates that stand on its standard input, for so many seconds of a processor, and nothing
else is imported.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

SECONDS = 10
MEMORY = 1 << 30
LARGEST = 1 << 20
_TURNS = [[("user", "What is 1 + 1?")], [("system", "Be brief."), ("user", "What is 1 + 1?" * 50)]]


def require_ending(templates: Any, folder: Path) -> None:
    """Refuse a model's chat templates (a text, several by name, or none) that do not end soon, or fill memory: E0819."""
    from reodsl.diagnostics import problem

    texts = list(templates.values()) if isinstance(templates, dict) else [templates] if templates else []
    for text in map(str, texts):
        why = _failure(text)
        if why is not None:
            raise problem(
                "E0819",
                f"the model's chat template {why}",
                where=str(folder),
                notes=[f"it begins: {' '.join(text.split())[:60]}"],
                help="take `chat_template` out of the tokenizer's files, and write `prompt { kind = raw, template = … }`",
            )


def _failure(text: str) -> str | None:
    if len(text) > LARGEST:
        return f"has {len(text):,} characters, and at most {LARGEST:,} are read"
    command = [sys.executable, "-I", __file__, str(SECONDS)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(text),
            capture_output=True,
            text=True,
            timeout=6 * SECONDS,
            check=False,
            env={},
        )
    except subprocess.TimeoutExpired:
        return f"does not end within {6 * SECONDS} seconds"
    if "MemoryError" in done.stderr:
        return f"needs more than {MEMORY >> 20:,} MiB of memory for a question of one line"
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"does not end within {SECONDS} seconds of a processor for a question of one line"
    # What else it ends with, it ends with where it is used, which tells of it.
    return f"ends its process by signal {-done.returncode}" if done.returncode < 0 else None


def _refuse(message: str) -> None:
    raise ValueError(message)


def _render(text: str) -> None:
    """Render a template as transformers does; what it says and whether it fails is no matter here."""
    from jinja2.exceptions import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: form
    for turns in _TURNS:
        messages = [{"role": role, "content": content} for role, content in turns]
        try:
            environment.from_string(text).render(
                messages=messages, add_generation_prompt=True, bos_token="<s>", eos_token="</s>", tools=None
            )
        except MemoryError:
            raise
        except (
            TemplateError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ):
            continue


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]),) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _render(json.loads(sys.stdin.read()))
