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
    """Expected cost of one task.

    `generated` are tokens of responses; `forced` those of forcing texts and forced answers, `read_again` those of
    prefixes read once more for them; `requests` to a model behind an address send `sent` tokens; `trained` are tokens
    with a gradient, once for every pass; `verified` are answers checked, and `checked_within` the seconds that a batch
    of them takes at most. `seconds` is by term, on all of `gpus` devices at once. `memory` is the peak of one device by
    role, `disk` what the store keeps, both in bytes. `steps` are training steps, each with `draws` draws of its batch's
    questions. `devices` is the name of what it runs on, `capacity` the memory of one of them in bytes, None if it is not
    known. `unpriced` is why there is no price. With `beside` rollouts and training run at the same time but for the
    `sync` seconds in which engines get weights, which `training` includes. A training's weights are spread
    over its cluster or each of its nodes (`sharding`). `basis` is what corrected the formula: the task's last result, or
    its rehearsal.
    """

    generated: float = 0.0
    forced: float = 0.0
    read_again: float = 0.0
    requests: float = 0.0
    sent: float = 0.0
    trained: float = 0.0
    verified: float = 0.0
    checked_within: float = 0.0
    seconds: Mapping[Term, float] = field(default_factory=dict)
    gpus: int = 0
    memory: Mapping[str, float] = field(default_factory=dict)
    disk: float = 0.0
    steps: int = 0
    draws: float = 1.0
    devices: str = ""
    capacity: float | None = None
    unpriced: str | None = None
    beside: bool = False
    sync: float = 0.0
    sharding: str = ""
    basis: Literal["formula", "result", "rehearsal"] = "formula"

    @property
    def overlapped_seconds(self) -> float:
        """Return the seconds in which rollouts and training both run: the shorter half of every step but one."""
        if not self.beside:
            return 0.0
        rollouts = sum(self.seconds.get(term, 0.0) for term in ROLLOUTS)
        training = max(0.0, self.seconds.get("training", 0.0) - self.sync)
        return min(rollouts, training) * (1 - 1 / self.steps)

    @property
    def total_seconds(self) -> float:
        """Return the seconds from its start to its end."""
        return sum(self.seconds.values()) - self.overlapped_seconds

    @property
    def gpu_hours(self) -> float:
        """Return the hours of all its devices together."""
        return self.gpus * self.total_seconds / SECONDS_PER_HOUR

    def hours_of(self, term: Term) -> float:
        """Return the device hours of one term."""
        return self.gpus * self.seconds.get(term, 0.0) / SECONDS_PER_HOUR

    @property
    def step_hours(self) -> dict[Term, float]:
        """Return the device hours of one training step by term; empty for a task without steps. Terms may overlap."""
        if not self.steps:
            return {}
        return {term: self.hours_of(term) / self.steps for term in TERMS[1:]}

    @property
    def hours_a_step(self) -> float:
        """Return the device hours of one training step from its start to its end; 0 for a task without steps."""
        return (self.gpu_hours - self.hours_of("start")) / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of every task of a spec, by task id. `unit` is what is paid, `limit` (hours) the most that may be.

    `devices` is the name of the study's, on which tasks run that have none for themselves.

    `room` is how many devices there are to share: the GPUs of the
    widest task, or cores of this machine.
    """

    tasks: Mapping[str, Price]
    unit: Literal["gpu_hours", "seconds"]
    devices: str
    limit: float | None
    room: int

    @property
    def mixed(self) -> bool:
        """Return whether tasks run on unlike devices."""
        return len({price.devices for price in self.tasks.values() if price.devices}) > 1

    @property
    def expected(self) -> dict[str, float]:
        """Return the seconds by which a run on this machine chooses its next task; empty on a cluster.

        A cluster counts tasks instead: if devices differ, starting the longest first leaves gaps that cost more.
        """
        if self.unit != "seconds":
            return {}
        return {name: price.total_seconds for name, price in self.tasks.items()}

    def hours(self, ids: Iterable[str]) -> float:
        """Return the device hours of some tasks together."""
        return sum(self.tasks[name].gpu_hours for name in ids)

    def count(self, basis: str) -> int:
        """Return how many tasks are priced on a basis."""
        return sum(price.basis == basis for price in self.tasks.values())

    def unpriced(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return those of some tasks that have no price."""
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
    """Return one price as JSON data: tokens, calls and bytes as whole numbers."""
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
    return {key: round(getattr(price, name)) for key, name in _COUNTS.items()}


def _space_json(price: Price) -> dict[str, Any]:
    peaks = {role: round(size) for role, size in price.memory.items()}
    return {"peak_memory_bytes": peaks, "disk_bytes": round(price.disk)}


def add_prices(prices: Iterable[Price]) -> Price:
    """Add several prices: sums, and the highest peak of each role's memory."""
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
    """Return the totals of a plan as JSON data: device hours now and at most, the limit, tokens, peaks and disk."""
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
