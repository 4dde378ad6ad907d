"""The group that weights are broadcast in: where it meets, and what becomes of it when a server does not take part."""

from __future__ import annotations

import psutil

from runners.engine.sglang.broadcast import _meeting
from runners.engine.sglang.server import Address


def test_where_servers_and_trainer_meet_is_not_reached_from_elsewhere() -> None:
    store, host, port = _meeting(Address("http://127.0.0.1:9", ""))
    heard = [
        each.laddr.ip
        for each in psutil.Process().net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    ]
    assert (host, heard) == ("127.0.0.1", ["127.0.0.1"])
    store.set("a", "b")
    assert store.get("a") == b"b"
