"""Let the processes of a group find each other through a shared file that only their user can read."""

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
"""Variable with the network interface of gloo; if it is unset, gloo uses the interface of the machine's host name."""


class SharedFile(Store):
    """The store of a process group in a file, by which processes exchange values.

    Unlike torch's stores at network ports, it answers only processes that can read the file. Torch's own store in a file
    locks the file every 10 ms while it waits. On NFS, 128 waiting processes would then never let the awaited process
    write. So this store waits longer after each attempt. Keep a reference to this object as long as the group exists:
    the group itself keeps only the C++ part of the object.
    """

    timeout: timedelta
    """Longest wait for a value, a property of torch's class that its types lack."""

    def __init__(self, file: Path, world: int, patience: timedelta) -> None:
        """Open the store.

        Args:
            file: Shared file, which is created if it is missing.
            world: Number of processes.
            patience: Longest wait for a value.
        """
        super().__init__()
        self.set_timeout(patience)
        # Torch would wait for a missing file, and block the other threads of this process meanwhile.
        file.touch(0o600)
        self._file = FileStore(str(file), world)

    def set(self, key: str, value: str) -> None:
        """Set the value of a key for all processes."""
        self._file.set(key, value)

    def get(self, key: str) -> bytes:
        """Wait until a process has set a key, and return its value; TimeoutError if no process does in time."""
        self.wait([key])
        return self._file.get(key)

    def add(self, key: str, value: int) -> int:
        """Add `value` to the number of a key, which begins at 0, and return the sum."""
        return self._file.add(key, value)

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys have values."""
        return self._file.check(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have values, at most for `timeout`, or by default the store's longest wait.

        Raises:
            TimeoutError: a key has no value in time.
        """
        patience = (timeout or self.timeout).total_seconds()
        deadline, pause = time.monotonic() + patience, 0.01
        while not self.check(list(keys)):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"not all of {', '.join(keys)} were set within {patience:g} seconds")
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def clone(self) -> SharedFile:
        """Return this store itself: threads can share it, since each call opens the file anew."""
        return self


def interface(host: str | None) -> str | None:
    """Return the name of this machine's network interface with an address.

    Args:
        host: The address; None for the loopback interface.

    Returns:
        The name, or None if this machine has no such interface.
    """
    if host is None:
        return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    interfaces = psutil.net_if_addrs().items()
    return next(
        (name for name, addresses in interfaces if host in [address.address for address in addresses]), None
    )


@contextmanager
def gloo_at(host: str | None) -> Iterator[None]:
    """Let gloo's new process groups in the `with` block listen at the network interface of an address.

    Nothing is changed if the environment already names an interface, or if no interface has the address.

    Args:
        host: Address of this machine; None for the loopback interface.
    """
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
    """Return a name of this machine, which is equal for exactly the processes that share a loopback interface.

    It consists of the id of the system's boot and of the network namespace. If the system has no such ids, it is the host
    name.
    """
    try:
        return (
            f"{Path('/proc/sys/kernel/random/boot_id').read_text('ascii')}{os.readlink('/proc/self/ns/net')}"
        )
    except OSError:
        return socket.gethostname()
