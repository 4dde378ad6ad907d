"""Every shipped spec keeps its meaning: its findings, its canonical JSON and the identity of each of its tasks.

A change of the compiler's insides must leave this golden file as it is; `--update-goldens` accepts another meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reodsl.diff.compare import compare
from reodsl.diff.render import to_text
from reodsl.graph.lower import lower
from reodsl.graph.task import VERSIONS, Task, identity
from reodsl.ir import Spec, digest
from reodsl.language import compile_file
from reodsl.language.program import load
from reodsl.language.values import DeclaredExperiment, DeclaredStudy
from reodsl.plan.places import explain, find_place, words

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


def test_every_setting_keeps_its_line_and_every_difference_its_words(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    specs = [each.spec for path in SPECS for each in _compiled(path).values() if each.spec is not None]
    lines = [f"{spec.study.name}: {json.dumps(_lines(spec))}" for spec in specs]
    told = {f"{one.study.name} {two.study.name}": _short(_told(one, two)) for one, two in pairwise(specs)}
    golden("specs/lines.txt", "\n".join([*lines, *(f"{pair}: {mark}" for pair, mark in told.items())]) + "\n")


def _lines(spec: Spec) -> dict[str, str]:
    """Return by kind of task how many lines gave its settings, and a digest of their text: lines may move."""
    found = dict[str, set[str]]()
    for task in lower(spec).tasks:
        for path in _leaves(task.payload) if task.kind != "report" else ():
            origin = find_place(task, path)
            if origin is not None:
                text = spec.sources[origin.path].split("\n")[origin.line - 1]
                found.setdefault(task.kind, set()).add(f"{origin.path} {text.strip()}")
    return {kind: f"{len(lines)} {_short(sorted(lines))}" for kind, lines in found.items()}


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the settings in a payload; what is inside a reward's expressions is one."""
    inner = value if isinstance(value, dict) and "op" not in value else {}
    if isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
        inner = {str(place): each for place, each in enumerate(value)}
    if not inner:
        yield path
    for name, each in inner.items():
        yield from _leaves(each, (*path, name))


def _told(one: Spec, two: Spec) -> list[str]:
    """Return what `diff` tells of two specs, and `why` of the second's tasks if they had been the first's."""
    left, right = lower(one), lower(two)
    told = [to_text(compare(one, two, left, right), ("one", "two"), everything=True)]
    before: dict[str, Task] = {task.kind: task for task in left.tasks}
    for task in right.tasks:
        if task.kind in before and task.kind != "report":
            was, now = ({"version": 1, "payload": identity(each)} for each in (before[task.kind], task))
            told += (words(change) for change in explain(task, was, now))
    return told


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
