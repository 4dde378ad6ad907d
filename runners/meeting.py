"""Let processes find each other: through a file of this machine, or a port that the first one listens at."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from torch._C._distributed_c10d import FileStore, Store, TCPStore


@dataclass(frozen=True, slots=True)
class Port:
    """Where the first process listens for those on other machines, and for no longer than they train together."""

    host: str
    number: int


Meeting = Path | Port


def listen(host: str, patience: timedelta) -> tuple[TCPStore, Port]:
    """A store at a free port of the address `host`, and of no other; it ends with the value."""
    # By itself a store would listen at every address.
    listening = socket.create_server((host, 0))
    number = listening.getsockname()[1]
    store = TCPStore(
        host,
        number,
        is_master=True,
        wait_for_workers=False,
        timeout=patience,
        master_listen_fd=listening.detach(),
    )
    return store, Port(host, number)


def meet(meeting: Meeting, world: int, patience: timedelta) -> Store:
    """The store of `world` processes that have this meeting in common."""
    if isinstance(meeting, Port):
        return TCPStore(
            meeting.host, meeting.number, is_master=False, wait_for_workers=False, timeout=patience
        )
    store = FileStore(str(meeting), world)
    store.set_timeout(patience)
    return store


def this_machine() -> str:
    """What processes have in common that share a loopback: a system since its start, and in it a network."""
    try:
        return (
            f"{Path('/proc/sys/kernel/random/boot_id').read_text('ascii')}{os.readlink('/proc/self/ns/net')}"
        )
    except OSError:
        return socket.gethostname()
