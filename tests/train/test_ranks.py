"""Where processes that train together listen: on the loopback where they share it, else where others reach them."""

from __future__ import annotations

import psutil
import pytest

from runners.train.ranks import interface


def test_processes_of_one_machine_listen_on_its_loopback() -> None:
    name = interface(None)
    assert name is not None
    assert "127.0.0.1" in [one.address for one in psutil.net_if_addrs()[name]]


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_processes_of_several_machines_listen_at_their_cluster_address(host: str) -> None:
    """None of this machine's interfaces has an address of TEST-NET."""
    name = interface(host)
    found = None if name is None else host in [one.address for one in psutil.net_if_addrs()[name]]
    assert found == (True if host == "127.0.0.1" else None)
