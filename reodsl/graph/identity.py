"""Identity: from a task to what its result depends on, and which files of an input it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reodsl.graph.task import VERSIONS, Kind, Task
from reodsl.ir import digest

# Settings that a runner needs and no result depends on.
_INCIDENTAL: Mapping[Kind, tuple[tuple[str, ...], ...]] = {
    "data": (("data", "questions"),),
    "train": (
        ("stage", "save_every"),
        ("stage", "expected_length"),
        ("stage", "microbatch"),
        ("stage", "checkpointing"),
        ("stage", "optim", "on"),
        ("stage", "method", "mismatch_limit"),
    ),
    "evaluate": (("suite", "expected_length"),),
    # Names of arms: whose content they are is an input.
    "frontier": (("frontier", "of"),),
    "budgets": (("split", "rollouts"),),
    "score": (("score", "relative_to"),),
    "measure": (("relative_to",),),
    "report": (("spec", "path"), ("spec", "folder"), ("spec", "sources"), ("spec", "origins")),
}

_EVALUATED = ("samples.parquet", "forced.parquet", "curves.json")
# What a kind reads of the artifact in a role; everything, where a role is not listed.
_READS: Mapping[tuple[Kind, str], tuple[str, ...]] = {
    ("train", "start"): ("checkpoint/", "optimizer/"),
    ("train", "data"): ("questions.parquet",),
    ("train", "reference"): ("samples.parquet",),
    ("train", "teacher"): ("checkpoint/",),
    ("train", "budgets"): ("budgets.json",),
    ("sample", "start"): ("checkpoint/",),
    ("sample", "data"): ("questions.parquet",),
    ("select", "pool"): ("samples.parquet",),
    ("select", "data"): ("questions.parquet",),
    ("evaluate", "start"): ("checkpoint/",),
    ("evaluate", "data"): ("questions.parquet",),
    ("results", "data"): ("questions.parquet",),
    ("budgets", "frontier"): ("frontier.json",),
    ("budgets", "data"): ("questions.parquet",),
    ("budgets", "arm"): ("rollouts.parquet",),
    ("score", "frontier"): ("frontier.json", "winners.parquet"),
    **dict.fromkeys((("measure", "arm"), ("measure", "relative_to")), _EVALUATED),
    ("report", "select"): ("select.json",),
}

ARMS = "arm"
"""The roles of several arms, `arm:NAME`: what is made of them does not depend on what they are called."""

# How long something took says nothing of what came of it, and differs each time.
_TIMES = frozenset({"timings.parquet"})


def identity(task: Task) -> dict[str, Any]:
    """Return the payload without settings that cannot change the result."""
    payload = task.payload
    for path in _INCIDENTAL.get(task.kind, ()):
        payload = _without(payload, path)
    return payload


def reads(kind: Kind, role: str) -> tuple[str, ...]:
    """Return the files (or folders, ending in `/`) that `kind` reads of the artifact in `role`; empty means all."""
    return _READS.get((kind, role.split(":")[0]), ())


def part_digest(files: Mapping[str, str], parts: tuple[str, ...]) -> str:
    """Return the digest of an artifact's content, `{path: sha256}`, as far as `parts` select it.

    A result that was made anew with the same bytes in the parts that a reader uses changes nothing for that reader.
    """
    return digest({path: checksum for path, checksum in files.items() if _counts(path, parts)})


def _counts(path: str, parts: tuple[str, ...]) -> bool:
    chosen = not parts or any(path == part or (part[-1] == "/" and path.startswith(part)) for part in parts)
    return chosen and path not in _TIMES


def material(task: Task, payload: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that a result's key is the digest of. `inputs` maps roles to content digests.

    Those of arms are together in `arms`, in an order that no name makes.
    """
    named = {role: content for role, content in inputs.items() if role.partition(":")[0] != ARMS}
    arms = sorted(content for role, content in inputs.items() if role not in named)
    return {
        "kind": task.kind,
        "version": VERSIONS[task.kind],
        "payload": dict(payload),
        "inputs": {**named, "arms": arms} if arms else named,
    }


def _without(tree: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    head, *rest = path
    if head not in tree:
        return tree
    if not rest:
        return {key: value for key, value in tree.items() if key != head}
    return tree | {head: _without(tree[head], tuple(rest))}


@dataclass(frozen=True, slots=True, order=True)
class Role:
    """A role of the report's inputs in parts: `evaluate:vanilla@1` is evaluate, vanilla, no index, seed 1."""

    kind: str
    name: str = ""
    index: int | None = None
    seed: int | None = None


def parse_role(text: str) -> Role:
    """Parse `train:reo_exp:0@1` as a `Role`; a name may hold anything but `:` and `@`."""
    head, _, seed = text.partition("@")
    kind, *rest = head.split(":")
    index = int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else None
    return Role(kind, rest[0] if rest else "", index, int(seed) if seed.lstrip("-").isdigit() else None)
