"""Saved plans: a plan with the command that made it as a file, and what has moved since when it is to be run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reodsl.diagnostics import misread, problem
from reodsl.ir.study import Study
from reodsl.plan.render import to_json
from reodsl.plan.verdict import Plan
from reodsl.price import Prices
from reodsl.store.files import write_atomic

FORMAT = "reodsl plan 1"
LARGEST = 1 << 28


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The request of a plan: the spec's file and the store as paths, and the changes and target of the command line."""

    spec: str
    store: str
    sets: tuple[str, ...]
    amends: tuple[str, ...]
    target: str | None


@dataclass(frozen=True, slots=True)
class Saved:
    """A plan that was saved: what was asked, the study as it was compiled, and each task's verdict and key."""

    request: PlanRequest
    digest: str
    study: Study
    tasks: Mapping[str, tuple[str, str | None]]


def save_plan(path: Path, plan: Plan, prices: Prices, request: PlanRequest) -> None:
    """Write the plan: its JSON form, and what is needed to run it. Paths start at the file's folder."""
    folder = path.resolve().parent
    data = {
        "format": FORMAT,
        "request": {
            "spec": os.path.relpath(Path(request.spec).resolve(), folder),
            "store": os.path.relpath(Path(request.store).resolve(), folder),
            "set": list(request.sets),
            "amend": list(request.amends),
            "target": request.target,
        },
        **to_json(plan, prices),
        "compiled": plan.spec.study.model_dump(mode="json"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, (json.dumps(data, indent=1) + "\n").encode())


def is_plan(path: Path) -> bool:
    """Return whether a file to be run holds JSON rather than a spec. A pipe does not, and is left unread."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(64).lstrip().startswith(b"{")
    except OSError:
        return False


def load_plan(path: Path) -> Saved:
    """Load a saved plan. Raises E0967 for any other file."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("the file is too large")
        data = json.loads(path.read_bytes())
        if data.get("format") != FORMAT:
            has = f"its `format` is {data['format']!r}" if "format" in data else "it has no `format`"
            raise ValueError(f"{has}, where a plan's is {FORMAT!r}")
        asked = data["request"]
        folder = path.resolve().parent
        request = PlanRequest(
            spec=os.path.relpath(folder / str(asked["spec"])),
            store=os.path.relpath(folder / str(asked["store"])),
            sets=tuple(map(str, asked["set"])),
            amends=tuple(map(str, asked["amend"])),
            target=None if asked["target"] is None else str(asked["target"]),
        )
        tasks = {str(task["id"]): (str(task["verdict"]), task["key"]) for task in data["tasks"]}
        return Saved(request, str(data["spec"]), Study.model_validate(data["compiled"]), tasks)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise problem(
            "E0967",
            "this is not a plan that can be run",
            where=str(path),
            notes=(misread(error),),
            help="make one with: reodsl plan SPEC --out FILE",
        ) from None


def list_moved(saved: Saved, plan: Plan) -> tuple[str, ...]:
    """List the tasks of a saved plan that moved: results that are gone, and tasks that would now make another result.

    Work that has been done since is not moved: an interrupted run of the plan goes on.
    """
    changes = []
    for item in plan.items:
        verdict, key = saved.tasks.get(item.task.id, ("", None))
        if not verdict:
            changes.append(f"{item.task.id} is new")
        elif verdict == "reuse" and item.verdict != "reuse":
            changes.append(f"{item.task.id}: reuse -> {item.verdict}, {item.reason}")
        elif key is not None and item.key is not None and key != item.key:
            changes.append(f"{item.task.id} would give another result: {item.reason}")
    there = {item.task.id for item in plan.items}
    changes += [f"{name} is gone" for name in saved.tasks if name not in there]
    return tuple(changes)
