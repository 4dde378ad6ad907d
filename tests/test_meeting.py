"""How processes find each other: 128 of them at one port, and at no other address; two through a file."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from torch._C._distributed_c10d import Store

from runners.meeting import GLOO, Meeting, Port, gloo_at, interface, listen, meet, this_machine

PATIENCE = timedelta(seconds=60)


def exchanged(own: Store, place: Meeting, world: int) -> None:
    """Everybody waits for what the first one and the next one have said."""

    def says_and_hears(rank: int) -> list[bytes]:
        store = own if rank == 0 else meet(place, world, PATIENCE)
        store.set(f"rank {rank}", str(rank))
        return [store.get(f"rank {other}") for other in (0, (rank + 1) % world)]

    with ThreadPoolExecutor(world) as threads:
        heard = list(threads.map(says_and_hears, range(world)))
    assert heard == [[b"0", str((rank + 1) % world).encode()] for rank in range(world)]


@pytest.mark.parametrize("ranks", [3, pytest.param(128, marks=pytest.mark.heavy)])
def test_ranks_meet_at_one_port(ranks: int) -> None:
    """Where no name server answers, torch asks one for five seconds now and then."""
    store, port = listen("127.0.0.1", PATIENCE)
    exchanged(store, port, ranks)


def test_two_ranks_meet_through_a_file(tmp_path: Path) -> None:
    exchanged(meet(tmp_path / "file", 2, PATIENCE), tmp_path / "file", 2)


def test_a_port_listens_at_its_own_address_alone_and_as_long_as_its_store_is_there() -> None:
    store, port = listen("127.0.0.1", PATIENCE)

    def heard() -> set[str]:
        every = psutil.Process().net_connections("tcp")
        return {
            one.laddr.ip
            for one in every
            if one.status == psutil.CONN_LISTEN and one.laddr.port == port.number
        }

    assert heard() == {"127.0.0.1"}
    del store
    assert heard() == set()


def test_nobody_at_a_port_is_told_and_not_waited_for_without_end() -> None:
    store, port = listen("127.0.0.1", PATIENCE)
    del store
    with pytest.raises(RuntimeError):
        meet(Port(port.host, port.number), 2, timedelta(milliseconds=300))


def test_a_machine_is_known_by_its_start_and_its_network(monkeypatch: pytest.MonkeyPatch) -> None:
    assert this_machine() == this_machine()
    here = this_machine()
    monkeypatch.setattr(os, "readlink", lambda path: "net:[1]")
    assert this_machine() != here


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


def test_groups_listen_where_they_are_begun_or_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(GLOO, raising=False)
    with gloo_at(None):
        assert os.environ[GLOO] == interface(None)
    assert GLOO not in os.environ
    with gloo_at("192.0.2.1"):
        assert GLOO not in os.environ
    monkeypatch.setenv(GLOO, "eth7")
    with gloo_at(None):
        assert os.environ[GLOO] == "eth7"
    assert os.environ[GLOO] == "eth7"
