"""Let processes find each other through a file that all of them see, and no one else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
from torch._C._distributed_c10d import FileStore, Store

LOOPBACK = "127.0.0.1"
GLOO = "GLOO_SOCKET_IFNAME"
"""The variable that says at which interface gloo listens. By itself it takes that of the machine's name."""


class SharedFile(Store):
    """The values of `world` processes in a file. Torch's stores at ports answer everybody.

    Torch's own store in a file locks it to read every 10 ms. On NFS the locks of 128 waiting processes keep out the
    process that they wait for, so these ask less and less often. A group keeps only torch's half of a store: keep this
    object as long as the group.
    """

    timeout: timedelta
    """The longest wait for a value: a property of torch's, which its types lack."""

    def __init__(self, file: Path, world: int, patience: timedelta) -> None:
        super().__init__()
        self.set_timeout(patience)
        # Torch would wait for a file that nobody has made yet, and hold this process's other threads meanwhile.
        file.touch(0o600)
        self._file = FileStore(str(file), world)

    def set(self, key: str, value: str) -> None:
        """Set a value."""
        self._file.set(key, value)

    def get(self, key: str) -> bytes:
        """Return a value, as soon as a process has set it. Raises TimeoutError."""
        self.wait([key])
        return self._file.get(key)

    def add(self, key: str, value: int) -> int:
        """Add to a number, which begins at 0, and return it."""
        return self._file.add(key, value)

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys have values."""
        return self._file.check(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have values. Raises TimeoutError."""
        patience = (timeout or self.timeout).total_seconds()
        until, pause = time.monotonic() + patience, 0.01
        while not self.check(list(keys)):
            if time.monotonic() >= until:
                raise TimeoutError(f"nobody has set all of {', '.join(keys)} for {patience:g} seconds")
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def clone(self) -> SharedFile:
        """Return this store: each of its calls opens the file anew."""
        return self


def interface(host: str | None) -> str | None:
    """Return the network interface of the address `host`, or the loopback if it is None.

    Returns None if this machine has no such interface.
    """
    if host is None:
        # What stays on this machine is not to be reached from others.
        return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    every = psutil.net_if_addrs().items()
    return next(
        (name for name, addresses in every if host in [address.address for address in addresses]), None
    )


@contextmanager
def gloo_at(host: str | None) -> Iterator[None]:
    """Let groups that begin in this block listen at the interface of `host`, unless the user's environment names another."""
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
