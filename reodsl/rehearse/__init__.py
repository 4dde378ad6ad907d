"""A dress rehearsal: a spec made small, and what it cannot show.

Which parts of a run on a cluster it has reached is said by what its processes have noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.training import Ppo
from reodsl.rehearse.shrink import Size, StandIn, StandIns, list_unshown, shrink

__all__ = ["Phase", "Size", "StandIn", "StandIns", "list_reached", "list_unshown", "shrink"]


_NAMED = 8
"""Places of a task that are named."""
Notes = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run, whether it was reached (None: there is none to reach, or none was to be), and how or why not."""

    name: str
    reached: bool | None
    words: tuple[str, ...]


def list_reached(small: Spec, notes: Notes, lag: float, declared: bool) -> tuple[Phase, ...]:
    """Return the phases of a rehearsal on a cluster.

    `lag` is the most steps by which responses that a step learnt from were older than its weights. `declared`: the cluster
    was made for the rehearsal, so that a node could be lost.
    """
    methods = values_of(small.study, Ppo)
    served = bool(methods) and small.study.engine == "sglang"
    without = "no stage of the spec is PPO" if not methods else "the spec's engine is embedded in its trainer"
    return (
        _placement(notes),
        _weights(notes) if served else Phase("weights", None, (without,)),
        _lag(lag) if any(each.lag for each in methods) else Phase("lag", None, ("no stage has a lag",)),
        _server(notes) if served else Phase("a server lost", None, (without,)),
        _node(notes)
        if declared
        else Phase("a node lost", None, ("only nodes that `--address local` declares are ended",)),
    )


def _placement(notes: Notes) -> Phase:
    layouts: dict[str, list[str]] = {}
    for each in notes:
        if each["did"] == "placed":
            counted = Counter((place["role"], place["gpus"], place["node"]) for place in each["places"])
            parts = [
                f"{count} {role}{'s' if count > 1 else ''} of {gpus:g} GPU{'s' if gpus != 1 else ''} on {node}"
                for (role, gpus, node), count in counted.items()
                if gpus
            ]
            words = ", ".join(parts[:_NAMED] + [f"{len(parts) - _NAMED} more"] * (len(parts) > _NAMED))
            layouts.setdefault(words, []).append(each["task"])
    lines = []
    for words, tasks in layouts.items():
        several = tuple(dict.fromkeys(tasks))
        more = f" and {len(several) - 1} more" if len(several) > 1 else ""
        if words:
            lines.append(f"{several[0]}{more}: {words}")
    return Phase("placement", bool(lines), tuple(lines) or ("no task had a GPU",))


def _weights(notes: Notes) -> Phase:
    ways: dict[str, list[Mapping[str, Any]]] = {}
    for each in notes:
        if each["did"] == "weights":
            ways.setdefault(each["way"], []).append(each)
    lines = [
        f"the weights of {_steps(sorted({each['version'] for each in got}))} reached"
        f" {len({each['by'] for each in got})} servers by {way}"
        for way, got in ways.items()
    ]
    return Phase("weights", bool(lines), tuple(lines) or ("no server got new weights",))


def _steps(numbers: Sequence[int]) -> str:
    *before, last = map(str, numbers)
    return f"steps {', '.join(before)} and {last}" if before else f"step {last}"


def _lag(lag: float) -> Phase:
    if lag < 1:
        return Phase("lag", False, ("no step learnt from older responses",))
    steps = "a step" if lag == 1 else f"up to {lag:g} steps"
    return Phase("lag", True, (f"responses were {steps} older than the weights that learnt from them",))


def _server(notes: Notes) -> Phase:
    lost = next((each for each in notes if each["did"] == "lost"), None)
    if lost is None:
        return Phase("a server lost", False, ("no server was asked with new weights",))
    begun = {each["by"] for each in notes if each["did"] == "began" and each["at"] > lost["at"]}
    again = any(
        each["did"] == "weights" and each["by"] in begun and each["version"] == lost["version"]
        for each in notes
    )
    words = f"one ended as it was asked with the weights of step {lost['version']}, and "
    return Phase(
        "a server lost",
        again,
        (words + ("another one began and got them" if again else "none got them in its place"),),
    )


def _node(notes: Notes) -> Phase:
    lost = next((each for each in notes if each["did"] == "node lost"), None)
    if lost is None:
        return Phase("a node lost", False, ("no training with a GPU got to its last step",))
    later = [each for each in notes if each["at"] > lost["at"]]
    waited = any(each["did"] == "node back" for each in later)
    steps = [each["done"] for each in later if each["did"] == "step" and each["task"] == lost["task"]]
    words = f"{lost['node']} went away from {lost['task']}, "
    if not waited or not steps:
        return Phase("a node lost", False, (words + "which did not go on",))
    return Phase("a node lost", True, (words + f"which waited for another and went on at step {steps[0]}",))
