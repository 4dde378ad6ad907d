"""A rehearsal: a spec at a small size, what it cannot show, and which phases of a run on a cluster it reached.

The notes that the processes of a rehearsal write, and its rollouts, say which phases were reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reodsl.diagnostics.model import join_words
from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.training import Ppo
from reodsl.rehearse.shrink import Size, StandIn, StandIns, list_unshown, shrink

__all__ = ["Phase", "Size", "StandIn", "StandIns", "list_reached", "list_unshown", "shrink"]


_NAMED = 8
"""Largest number of groups of processes that are named for a task."""
Notes = Sequence[Mapping[str, Any]]
"""Facts that processes noted, by name; `did` is the kind of the note."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a run on a cluster."""

    name: str
    """Name of the phase."""
    reached: bool | None
    """True if it was reached; None if the spec has no such phase."""
    words: tuple[str, ...]
    """Evidence or reason, in lines."""


def list_reached(small: Spec, notes: Notes, versions: Sequence[int], lag: float) -> tuple[Phase, ...]:
    """Return which phases a rehearsal on a cluster reached: placement, update of weights, and lag.

    Args:
        small: Spec of the rehearsal.
        notes: Notes of its processes.
        versions: Steps after which the weights that sampled responses were taken; 0 for the first weights.
        lag: Largest number of steps by which these weights were older than the trained weights.
    """
    lags = [method.lag for method in values_of(small.study, Ppo)]
    return (
        _check_placement(notes),
        _check_weights(versions) if lags else Phase("weights", None, ("no stage of the spec is PPO",)),
        _check_lag(lag) if any(lags) else Phase("lag", None, ("no stage has a lag",)),
    )


def _check_placement(notes: Notes) -> Phase:
    """Return the phase `placement`, which is reached if any task had a GPU.

    Its lines name the tasks with the roles of their processes, their GPUs and nodes. Tasks with the same roles, GPUs and
    nodes share a line.

    Args:
        notes: Notes of a rehearsal; only notes of the kind `placed` are read.
    """
    layouts: dict[str, list[str]] = {}
    for note in notes:
        if note["did"] == "placed":
            counts = Counter((bundle["role"], bundle["gpus"], bundle["node"]) for bundle in note["places"])
            parts = [
                f"{count} {role}{'s' if count > 1 else ''} of {gpus:g} GPU{'s' if gpus != 1 else ''} on {node}"
                for (role, gpus, node), count in counts.items()
                if gpus
            ]
            layout = ", ".join(parts[:_NAMED] + [f"{len(parts) - _NAMED} more"] * (len(parts) > _NAMED))
            layouts.setdefault(layout, []).append(note["task"])
    lines = []
    for layout, tasks in layouts.items():
        names = tuple(dict.fromkeys(tasks))
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        if layout:
            lines.append(f"{names[0]}{others}: {layout}")
    return Phase("placement", bool(lines), tuple(lines) or ("no task had a GPU",))


def _check_weights(versions: Sequence[int]) -> Phase:
    """Return the phase `weights`, which is reached if responses were sampled with weights that had already been trained.

    Args:
        versions: Steps after which the weights that sampled responses were taken; 0 for the untrained weights.
    """
    newer = sorted({version for version in versions if version})
    if not newer:
        return Phase("weights", False, ("no response was sampled by new weights",))
    steps = f"step{'s' if len(newer) > 1 else ''} {join_words(map(str, newer))}"
    return Phase("weights", True, (f"responses were sampled by the weights of {steps}",))


def _check_lag(lag: float) -> Phase:
    """Return the phase `lag`, which is reached if a step trained on responses that older weights had sampled.

    Args:
        lag: Largest number of steps by which sampling weights were older than the trained weights.
    """
    if lag < 1:
        return Phase("lag", False, ("no step learnt from responses of older weights",))
    steps = "a step" if lag == 1 else f"up to {lag:g} steps"
    return Phase("lag", True, (f"responses were sampled by weights {steps} older than the trained weights",))
