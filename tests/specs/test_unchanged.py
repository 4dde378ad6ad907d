"""Every shipped spec keeps its meaning: its findings, its canonical JSON and the identity of each of its tasks.

A change of the compiler's insides must leave this golden file as it is; `--update-goldens` accepts another meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import VERSIONS, identity
from reodsl.ir import digest
from reodsl.language import compile_file
from reodsl.language.program import load
from reodsl.language.values import DeclaredExperiment, DeclaredStudy

ROOT = Path(__file__).parents[2]
SPECS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("specs", "stdlib", "tests/specs", "tests/resume", "tests/syntax/specs")
    for path in ROOT.joinpath(folder).rglob("*.reo")
)


def test_every_shipped_spec_keeps_its_meaning(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    meanings = {name: _meaning(each) for path in SPECS for name, each in _compiled(path).items()}
    assert sum("tasks" in meaning for meaning in meanings.values()) > 50
    lines = (f"{json.dumps(name)}: {json.dumps(meaning)}" for name, meaning in meanings.items())
    golden("specs/unchanged.json", "{\n" + ",\n".join(lines) + "\n}\n")


@cache
def _compiled(path: str) -> dict[str, Any]:
    """Return by its name what each study of a file compiles to, or each experiment of a file without studies."""
    program = load(path, {}, {})
    targets = (
        program.list_type(DeclaredStudy, "study")
        or program.list_type(DeclaredExperiment, "experiment")
        or [None]
    )
    return {f"{path} {target or ''}".rstrip(): compile_file(path, target=target) for target in targets}


def _meaning(compiled: Any) -> dict[str, Any]:
    """Return short digests of what a spec compiles to; of its findings alone where it has nothing to run."""
    meaning: dict[str, Any] = {}
    if compiled.diagnostics:
        texts = [(d.message, d.help, [label.text for label in d.labels]) for d in compiled.diagnostics]
        meaning = {"codes": " ".join(d.code for d in compiled.diagnostics), "texts": _short(texts)}
    if compiled.spec is None:
        return meaning
    tasks: dict[str, list[str]] = {}
    for task in lower(compiled.spec).tasks:
        identities = [task.id, VERSIONS[task.kind], identity(task), task.inputs]
        tasks.setdefault(task.kind, []).append(digest(identities))
    return meaning | {
        "spec": _short(compiled.spec),
        "tasks": {kind: f"{len(each)} {_short(each)}" for kind, each in tasks.items()},
    }


def _short(value: Any) -> str:
    return digest(value)[:8]
