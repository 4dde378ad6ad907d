"""A price as a value: tokens, calls, seconds by term, memory by role and disk of one task, and sums of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Term = Literal["start", "generation", "forcing", "verification", "training"]
ROLLOUTS: tuple[Term, ...] = ("generation", "forcing", "verification")
TERMS: tuple[Term, ...] = ("start", "generation", "forcing", "verification", "training")
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Price:
    """The expected cost of a task."""

    generated: float = 0.0
    """Tokens of responses."""
    forced: float = 0.0
    """Tokens of forcing texts and forced answers."""
    read_again: float = 0.0
    """Tokens of prefixes that engines read again for forced answers."""
    requests: float = 0.0
    """Requests to a served model."""
    sent: float = 0.0
    """Tokens in these requests."""
    trained: float = 0.0
    """Tokens with a gradient, counted for every pass."""
    verified: float = 0.0
    """Answers checked."""
    checked_within: float = 0.0
    """Most seconds in which a batch of answers is checked."""
    seconds: Mapping[Term, float] = field(default_factory=dict)
    """Seconds by term, on all of `gpus` devices at once."""
    gpus: int = 0
    """Number of devices."""
    memory: Mapping[str, float] = field(default_factory=dict)
    """Peak bytes of a device, by role."""
    disk: float = 0.0
    """Bytes in the store."""
    steps: int = 0
    """Training steps."""
    draws: float = 1.0
    """Draws of a batch's questions in a step."""
    devices: str = ""
    """Name of the devices."""
    capacity: float | None = None
    """Bytes of a device; None if unknown."""
    unpriced: str | None = None
    """Reason why there is no price."""
    overlaps: bool = False
    """True if rollouts and training run at the same time, except for `sync`."""
    sync: float = 0.0
    """Seconds in which engines get weights, included in `training`."""
    sharding: str = ""
    """Devices over which a copy of the weights is sharded: `cluster` or `node`."""
    basis: Literal["formula", "result", "rehearsal"] = "formula"
    """Basis of the times: the formula, or its correction by the last result or rehearsal."""

    @property
    def overlapped_seconds(self) -> float:
        """Return the seconds in which rollouts and training run at the same time; 0 if they take turns.

        In every step but one, the shorter of the two runs during the longer.

        Returns:
            Seconds of the task.
        """
        if not self.overlaps:
            return 0.0
        rollouts = sum(self.seconds.get(term, 0.0) for term in ROLLOUTS)
        training = max(0.0, self.seconds.get("training", 0.0) - self.sync)
        return min(rollouts, training) * (1 - 1 / self.steps)

    @property
    def total_seconds(self) -> float:
        """Return the seconds from the task's start to its end.

        Returns:
            Seconds.
        """
        return sum(self.seconds.values()) - self.overlapped_seconds

    @property
    def gpu_hours(self) -> float:
        """Return the hours of all devices of the task together.

        Returns:
            Device hours.
        """
        return self.gpus * self.total_seconds / SECONDS_PER_HOUR

    def hours_of(self, term: Term) -> float:
        """Return the device hours of a term.

        Args:
            term: term of `seconds`.
        """
        return self.gpus * self.seconds.get(term, 0.0) / SECONDS_PER_HOUR

    @property
    def step_hours(self) -> dict[Term, float]:
        """Return the device hours of a training step by term; terms may overlap.

        Returns:
            Hours by term; empty for a task without steps.
        """
        return {} if not self.steps else {term: self.hours_of(term) / self.steps for term in TERMS[1:]}

    @property
    def hours_a_step(self) -> float:
        """Return the device hours of a training step from its start to its end.

        Returns:
            Device hours; 0 for a task without steps.
        """
        return (self.gpu_hours - self.hours_of("start")) / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of all tasks of a spec."""

    tasks: Mapping[str, Price]
    """Price by task."""
    unit: Literal["gpu_hours", "seconds"]
    """Unit of the cost."""
    devices: str
    """Name of the study's devices."""
    limit: float | None
    """Most device hours that may be spent; None without a limit."""
    room: int
    """Number of devices that tasks share: GPUs of the largest task, or cores of this machine."""

    @property
    def mixed(self) -> bool:
        """Return whether tasks run on devices of different names."""
        return len({price.devices for price in self.tasks.values() if price.devices}) > 1

    @property
    def expected(self) -> dict[str, float]:
        """Return the expected seconds of tasks on this machine; a run starts the longest task first.

        It is empty on a cluster, where tasks need different numbers of GPUs and this order would leave costly gaps.

        Returns:
            Seconds by task.
        """
        if self.unit != "seconds":
            return {}
        return {name: price.total_seconds for name, price in self.tasks.items()}

    def hours(self, ids: Iterable[str]) -> float:
        """Return the device hours of several tasks.

        Args:
            ids: names of tasks.
        """
        return sum(self.tasks[name].gpu_hours for name in ids)

    def count(self, basis: str) -> int:
        """Return the number of tasks whose price has the given basis.

        Args:
            basis: `formula`, `result` or `rehearsal`.
        """
        return sum(price.basis == basis for price in self.tasks.values())

    def unpriced(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return the tasks of `ids` that have no price."""
        return tuple(name for name in ids if self.tasks[name].unpriced is not None)


_COUNTS = {
    "generated_tokens": "generated",
    "forced_tokens": "forced",
    "prefix_tokens_read_again": "read_again",
    "requests": "requests",
    "sent_tokens": "sent",
    "trained_tokens": "trained",
    "verifications": "verified",
}
"""Keys of whole numbers in JSON data, and the field of each."""


def to_json(price: Price) -> dict[str, Any]:
    """Return a price as JSON data, with tokens, calls and bytes as whole numbers."""
    return _counts_json(price) | {
        "verified_within_seconds": price.checked_within,
        "seconds": {term: price.seconds[term] for term in TERMS if term in price.seconds},
        "overlapped_seconds": price.overlapped_seconds,
        "total_seconds": price.total_seconds,
        "devices": price.devices,
        "gpus": price.gpus,
        "gpu_hours": price.gpu_hours,
        "steps": price.steps,
        "draws_per_step": price.draws,
        "gpu_hours_per_step": price.step_hours,
        "sharding": price.sharding or None,
        "basis": price.basis,
        **_space_json(price),
        "unpriced": price.unpriced,
    }


def _counts_json(price: Price) -> dict[str, Any]:
    """Return the whole-number amounts of a price, by their keys in JSON data."""
    return {key: round(getattr(price, name)) for key, name in _COUNTS.items()}


def _space_json(price: Price) -> dict[str, Any]:
    """Return the memory by role and the disk of a price in whole bytes, by their keys in JSON data."""
    peaks = {role: round(size) for role, size in price.memory.items()}
    return {"peak_memory_bytes": peaks, "disk_bytes": round(price.disk)}


def add_prices(prices: Iterable[Price]) -> Price:
    """Return the sum of prices; memory is the highest peak of each role, `trainer` or `engine`.

    Amounts without a meaning for several tasks, such as devices and draws, keep their defaults.
    """
    parts = tuple(prices)
    sums: dict[str, Any] = {
        name: sum(getattr(price, name) for price in parts) for name in (*_COUNTS.values(), "disk", "steps")
    }
    roles = dict.fromkeys(role for price in parts for role in price.memory)
    return Price(
        **sums,
        seconds={term: sum(price.seconds.get(term, 0.0) for price in parts) for term in TERMS},
        memory={role: max(price.memory.get(role, 0.0) for price in parts) for role in roles},
    )


def totals_json(prices: Prices, now: tuple[str, ...], later: tuple[str, ...]) -> dict[str, Any]:
    """Return the totals of a plan as JSON data: device hours, the limit, tokens, peaks and disk.

    Args:
        prices: prices of all tasks.
        now: ids of tasks that have to run.
        later: ids of tasks that may have to run.
    """
    names = (*now, *later)
    everything = add_prices(prices.tasks[name] for name in names)
    return {
        "unit": prices.unit,
        "devices": prices.devices,
        "measured": {basis: prices.count(basis) for basis in ("result", "rehearsal")},
        "limit": prices.limit,
        "hours_now": prices.hours(now),
        "hours_at_most": prices.hours(names),
        **_counts_json(everything),
        "seconds": dict(everything.seconds),
        **_space_json(everything),
        "unpriced": list(prices.unpriced(names)),
    }
