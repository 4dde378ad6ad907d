"""At which addresses processes listen, as the system says."""

from __future__ import annotations

from contextlib import suppress

import psutil

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def heard(process: psutil.Process) -> set[str]:
    """The addresses at which a process and all that it started listen over TCP, or wait for UDP."""
    addresses = set()
    with suppress(psutil.NoSuchProcess):
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                for one in each.net_connections("inet"):
                    if one.status == psutil.CONN_LISTEN or (one.status == psutil.CONN_NONE and not one.raddr):
                        addresses.add(one.laddr.ip)
    return addresses
