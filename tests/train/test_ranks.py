"""Where processes that train together listen: on the loopback where they share it, else where others reach them."""

from __future__ import annotations

import psutil
import pytest
from torch._C._distributed_c10d import HashStore, Store

from runners.train import ranks
from runners.train.ranks import interface


def met(theirs: str) -> Store:
    """A store in which a second process has said what machine it is on."""
    store = HashStore()
    store.set("machine/1", theirs)
    return store


def test_processes_of_one_machine_listen_on_its_loopback() -> None:
    name = interface(met(ranks._machine()), 0, 2, "192.0.2.1")
    assert name is not None
    assert "127.0.0.1" in [one.address for one in psutil.net_if_addrs()[name]]


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1", None])
def test_processes_of_several_machines_listen_at_their_cluster_address(host: str | None) -> None:
    """None of this machine's interfaces has an address of TEST-NET."""
    name = interface(met("another"), 0, 2, host)
    found = None if name is None else host in [one.address for one in psutil.net_if_addrs()[name]]
    assert found == (True if host == "127.0.0.1" else None)
