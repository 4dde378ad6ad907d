"""Approvals: Python and addresses that a spec names are used only where this user allowed them, one private file each."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, error
from reodsl.store.code import FunctionCode, parts

ADDRESS = "REODSL_SGLANG_ADDRESS"
"""The environment variable with addresses of servers that run already, separated by commas."""


@dataclass(frozen=True, slots=True)
class Destination:
    """An address, its model, the variable with its key, if it has one, and its use: `judge`, `served` or `weights`."""

    model: str
    address: str
    key: str | None
    kind: str = "judge"


def destinations(payloads: Iterable[Any]) -> tuple[Destination, ...]:
    """Return the judges and the served models that payloads name, each once."""
    judges = (
        Destination(str(part.get("model")), part["address"], part.get("key"), part["kind"])
        for payload in payloads
        for _, part in parts(payload)
        if part.get("kind") in ("judge", "served") and isinstance(part.get("address"), str)
    )
    return tuple(dict.fromkeys(judges))


def list_addresses() -> list[str]:
    """Return the addresses of servers that run already and that the environment names."""
    return [each.strip().rstrip("/") for each in os.environ.get(ADDRESS, "").split(",") if each.strip()]


def overwritten(engines: Iterable[str]) -> tuple[Destination, ...]:
    """Return the running servers that a run gives its weights, if it samples with SGLang and the environment names any."""
    addresses = list_addresses() if "sglang" in engines else ()
    return tuple(Destination("", address, None, "weights") for address in dict.fromkeys(addresses))


def keyless(judges: Iterable[Destination]) -> Iterator[Diagnostic]:
    """Report E0747 or E0833 for each variable of a key that is not set in this process."""
    for each in judges:
        if each.key and not os.environ.get(each.key, "").strip():
            yield error(
                "E0747" if each.kind == "judge" else "E0833",
                f"the {'judge' if each.kind == 'judge' else 'served model'} `{each.model}` cannot be asked: "
                f"`${each.key}` is not set",
                where=each.address,
                help=f"set it before the run: `export {each.key}=…`",
            )


def report_unapproved(
    codes: Iterable[FunctionCode], judges: Iterable[Destination] = ()
) -> Iterator[Diagnostic]:
    """Report E0746 for code and E0749 for addresses that are new to this machine: which, and what to type."""
    code = list({each.checksum: each for each in codes if not is_allowed(each)}.values())
    if code:
        yield error(
            "E0746",
            f"the spec runs Python that is new to this machine: {', '.join(f'`{each.file}`' for each in code)}",
            where=str(code[0].path),
            notes=[
                f"{each.path}{f', with {each.others} more of its package,' if each.others else ''} has the content "
                f"sha256:{each.checksum}"
                for each in code
            ],
            help=f"read {'it' if len(code) == 1 else 'them'}, and give the same command with --allow-python: it asks once"
            " for each content",
        )
    new = [each for each in judges if not is_allowed(each)]
    taken = ", ".join(f"`{each.address}`" for each in new if each.kind == "weights")
    if taken:
        yield error(
            "E0749",
            f"the run replaces the weights of servers that are new to this machine: {taken}",
            where=f"${ADDRESS}",
            notes=["whoever else asks one of them gets answers of this run's model from then on"],
            help=f"unset ${ADDRESS}, and the run starts its own; if nobody else uses them, `reodsl run` takes "
            "them with --allow-weights: it asks once for each address",
        )
    asked = [each for each in new if each.kind != "weights"]
    if asked:
        noun = "judge" if all(each.kind == "judge" for each in asked) else "server"
        option = "--allow-judge" if noun == "judge" else "--allow-served"
        addresses = ", ".join(f"`{each}`" for each in dict.fromkeys(each.address for each in asked))
        yield error(
            "E0749",
            f"the spec sends questions and answers to a {noun} that is new to this machine: {addresses}",
            where=asked[0].address,
            notes=[
                f"`{each.model}` is asked there, "
                + (f"with the key in ${each.key}" if each.key else "without a key")
                for each in asked
            ],
            help=f"if they may go there, give the same command with {option}: it asks once for each address and key",
        )


def consent_folder(kind: str) -> Path:
    """Return the folder of approvals of a kind: `$XDG_STATE_HOME/reodsl/KIND/`."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "reodsl" / kind


def _place(item: FunctionCode | Destination) -> Path:
    """Return the file of an approval: of code by its content, of an address by itself and the variable of its key."""
    if isinstance(item, FunctionCode):
        return consent_folder("python") / item.checksum
    use = "\0weights" if item.kind == "weights" else ""
    name = f"{item.address}\0{item.key or ''}{use}"
    return consent_folder("judges") / hashlib.sha256(name.encode()).hexdigest()


def is_allowed(item: FunctionCode | Destination) -> bool:
    """Return whether this user allowed it on this machine; files of other users count for nothing."""
    try:
        status = os.stat(_place(item), follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()


def allow(item: FunctionCode | Destination) -> None:
    """Store an approval, with a line for people; if that cannot be written, it holds for the run at hand alone."""
    place = _place(item)
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{item.path if isinstance(item, FunctionCode) else item.address}\n")
