"""Let processes find each other: through a file of this machine, or a port that the first one listens at."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil
from torch._C._distributed_c10d import FileStore, Store, TCPStore

LOOPBACK = "127.0.0.1"
GLOO = "GLOO_SOCKET_IFNAME"
"""The variable that says at which interface gloo listens. By itself it takes that of the machine's name."""


@dataclass(frozen=True, slots=True)
class Port:
    """The port at which the first process listens for others, for no longer than they train together."""

    host: str
    number: int


Meeting = Path | Port


def listen(host: str, patience: timedelta) -> tuple[TCPStore, Port]:
    """Return a store at a free port of the address `host`, and of no other; it ends with the value."""
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
    """Return the store of `world` processes that have this meeting in common."""
    if isinstance(meeting, Port):
        return TCPStore(
            meeting.host, meeting.number, is_master=False, wait_for_workers=False, timeout=patience
        )
    store = FileStore(str(meeting), world)
    store.set_timeout(patience)
    return store


def interface(host: str | None) -> str | None:
    """Return the network interface of the address `host`, and the loopback where it is None.

    None where this machine has no such interface.
    """
    if host is None:
        # What stays on this machine is not to be reached from others.
        return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    every = psutil.net_if_addrs().items()
    return next((name for name, addresses in every if host in [one.address for one in addresses]), None)


@contextmanager
def gloo_at(host: str | None) -> Iterator[None]:
    """Let the groups that are begun in this block listen at the interface of `host`, unless the user named another one."""
    name = interface(host)
    if name is None or GLOO in os.environ:
        yield
        return
    os.environ[GLOO] = name
    try:
        yield
    finally:
        del os.environ[GLOO]


def this_machine() -> str:
    """Name the loopback that processes share: a system since its start, and in it a network."""
    try:
        return (
            f"{Path('/proc/sys/kernel/random/boot_id').read_text('ascii')}{os.readlink('/proc/self/ns/net')}"
        )
    except OSError:
        return socket.gethostname()
