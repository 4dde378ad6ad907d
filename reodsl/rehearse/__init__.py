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
    """A phase of a run on a cluster."""

    name: str
    """Name of the phase."""
    reached: bool | None
    """True if it was reached; None if the spec has no such phase."""
    words: tuple[str, ...]
    """Evidence or reason, in lines."""


def list_reached(small: Spec, notes: Notes, versions: Sequence[int], lag: float) -> tuple[Phase, ...]:
    """Return the phases of a rehearsal on a cluster.

    Args:
        small: spec of the rehearsal.
        notes: notes of its processes.
        versions: steps whose weights sampled responses.
        lag: largest lag of these weights, in steps.
    """
    methods = values_of(small.study, Ppo)
    return (
        _placement(notes),
        _weights(versions) if methods else Phase("weights", None, ("no stage of the spec is PPO",)),
        _lag(lag) if any(method.lag for method in methods) else Phase("lag", None, ("no stage has a lag",)),
    )


def _placement(notes: Notes) -> Phase:
    """Return the phase of placement: the nodes and processes on which tasks ran."""
    layouts: dict[str, list[str]] = {}
    for note in notes:
        if note["did"] == "placed":
            counts = Counter((bundle["role"], bundle["gpus"], bundle["node"]) for bundle in note["places"])
            parts = [
                f"{count} {role}{'s' if count > 1 else ''} of {gpus:g} GPU{'s' if gpus != 1 else ''} on {node}"
                for (role, gpus, node), count in counts.items()
                if gpus
            ]
            words = ", ".join(parts[:_NAMED] + [f"{len(parts) - _NAMED} more"] * (len(parts) > _NAMED))
            layouts.setdefault(words, []).append(note["task"])
    lines = []
    for words, tasks in layouts.items():
        several = tuple(dict.fromkeys(tasks))
        more = f" and {len(several) - 1} more" if len(several) > 1 else ""
        if words:
            lines.append(f"{several[0]}{more}: {words}")
    return Phase("placement", bool(lines), tuple(lines) or ("no task had a GPU",))


def _weights(versions: Sequence[int]) -> Phase:
    newer = sorted({version for version in versions if version})
    if not newer:
        return Phase("weights", False, ("no response was sampled by new weights",))
    return Phase("weights", True, (f"responses were sampled by the weights of {_steps(newer)}",))


def _steps(numbers: Sequence[int]) -> str:
    *before, last = map(str, numbers)
    return f"steps {', '.join(before)} and {last}" if before else f"step {last}"


def _lag(lag: float) -> Phase:
    if lag < 1:
        return Phase("lag", False, ("no step learnt from older responses",))
    steps = "a step" if lag == 1 else f"up to {lag:g} steps"
    return Phase("lag", True, (f"responses were {steps} older than the weights that learnt from them",))
