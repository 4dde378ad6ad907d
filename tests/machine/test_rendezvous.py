"""How processes find each other: 128 of them through one file, and at no port; and where their groups listen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from runners.machine.rendezvous import GLOO, SharedFile, gloo_at, interface, this_machine
from tests.listening import heard


def test_ranks_meet_in_a_file_and_listen_nowhere(tmp_path: Path) -> None:
    """Everybody waits for what the first one and the next one have said."""
    ranks, before = 3, heard(psutil.Process())

    def say_and_hear(rank: int) -> list[bytes]:
        store = SharedFile(tmp_path / "file", ranks, timedelta(seconds=60))
        store.set(f"rank {rank}", str(rank))
        return [store.get(f"rank {other}") for other in (0, (rank + 1) % ranks)]

    with ThreadPoolExecutor(ranks) as threads:
        told = list(threads.map(say_and_hear, range(ranks)))
    assert told == [[b"0", str((rank + 1) % ranks).encode()] for rank in range(ranks)]
    assert heard(psutil.Process()) == before
    counted = SharedFile(tmp_path / "file", ranks, timedelta(seconds=1))
    assert (counted.add("n", 2), counted.add("n", 3), counted.check(["n"])) == (2, 5, True)


_GROUPS = """
import os, sys, time
from datetime import timedelta
from pathlib import Path
import torch, torch.distributed as dist
from runners.machine.rendezvous import SharedFile, gloo_at
ranks, file = int(sys.argv[1]), Path(sys.argv[2])
children = []
for rank in range(ranks):
    children.append(os.fork())
    if not children[-1]:
        with gloo_at(None):
            store = SharedFile(file, ranks, timedelta(minutes=5))
            dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
            one = torch.ones(1)
            dist.all_reduce(one, group=dist.new_group(backend="gloo"))
            dist.destroy_process_group()
        del store
        os._exit(int(one.item() != ranks))
assert not any(os.waitpid(child, 0)[1] for child in children)
"""


@pytest.mark.heavy
def test_128_processes_meet_in_a_file(tmp_path: Path) -> None:
    started = time.monotonic()
    subprocess.run([sys.executable, "-P", "-c", _GROUPS, "128", tmp_path / "file"], check=True, timeout=300)
    assert time.monotonic() - started < 120
    assert not (tmp_path / "file").exists()


def test_who_does_not_come_is_not_waited_for_without_end(tmp_path: Path) -> None:
    store = SharedFile(tmp_path / "file", 2, timedelta(milliseconds=50))
    with pytest.raises(TimeoutError, match="were set within"):
        store.get("nobody")


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
