"""Judges that a spec names: where questions and answers would be sent, and whether this user let them go there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reodsl.diagnostics import Diagnostic, error
from reodsl.store import consent

_KIND = "judges"


@dataclass(frozen=True, slots=True)
class Destination:
    """A judge's model, its address, and the environment variable with its key, if it has one."""

    model: str
    address: str
    key: str | None

    @property
    def name(self) -> str:
        """What it is remembered by: the address and the variable, whatever the model."""
        return hashlib.sha256(f"{self.address}\0{self.key or ''}".encode()).hexdigest()


def destinations(payloads: Iterable[Any]) -> tuple[Destination, ...]:
    """The judges that payloads name, each once."""
    return tuple(dict.fromkeys(each for payload in payloads for each in _within(payload)))


def unallowed(judges: Iterable[Destination]) -> Diagnostic | None:
    """E0749, where some of the judges are new to this machine: where they are, what key they get, and what to type."""
    new = [each for each in judges if not consent.is_allowed(_KIND, each.name)]
    if not new:
        return None
    addresses = ", ".join(f"`{each}`" for each in dict.fromkeys(each.address for each in new))
    return error(
        "E0749",
        f"the spec sends questions and answers to a judge that is new to this machine: {addresses}",
        where=new[0].address,
        notes=[
            f"`{each.model}` is asked there, "
            + (f"with the key in ${each.key}" if each.key else "without a key")
            for each in new
        ],
        help="if they may go there, give the same command with --allow-judge: it asks once for each address and key",
    )


def keyless(judges: Iterable[Destination]) -> Iterator[Diagnostic]:
    """E0747 for each variable of a key that is not set in this process."""
    for each in judges:
        if each.key and not os.environ.get(each.key, "").strip():
            yield error(
                "E0747",
                f"the judge `{each.model}` cannot be asked: `${each.key}` is not set",
                where=each.address,
                help=f"set it before the run: `export {each.key}=…`",
            )


def allow(judge: Destination) -> None:
    """Remember a judge as allowed, where that can be written; for the run at hand it counts in any case."""
    consent.allow(_KIND, judge.name, judge.address)


def _within(payload: Any) -> Iterator[Destination]:
    if isinstance(payload, Mapping):
        if payload.get("kind") == "judge" and isinstance(payload.get("address"), str):
            yield Destination(str(payload.get("model")), payload["address"], payload.get("key"))
        for each in payload.values():
            yield from _within(each)
    elif isinstance(payload, (list, tuple)):
        for each in payload:
            yield from _within(each)
