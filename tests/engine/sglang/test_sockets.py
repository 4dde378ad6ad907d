"""Where a server and its processes listen: its port on the loopback, and where they meet at no port at all."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from runners.engine.sglang.control import ServerGroupClient
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Address, Server
from runners.engine.sglang.settings import Settings
from runners.engine.sglang.weights import _group
from runners.machine.process import last_lines
from runners.machine.rendezvous import GLOO, interface
from tests.listening import LOOPBACK, heard

CHOSEN = ("SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE", "NCCL_SOCKET_IFNAME", GLOO)


def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reach: str | None) -> dict[str, str]:
    """What a server is started with: the launcher is one that writes down its environment."""
    script, told = tmp_path / "tell.py", tmp_path / "told"
    script.write_text(
        f"import json, os, pathlib, time\n"
        f"pathlib.Path({str(told)!r} + '.new').write_text(json.dumps(dict(os.environ)))\n"
        f"os.rename({str(told)!r} + '.new', {str(told)!r})\n"
        f"time.sleep(600)\n"
    )
    monkeypatch.setattr("runners.engine.sglang.server.LAUNCHER", script)
    server = Server(Settings(tmp_path, 64, 64), Path(sys.executable), tmp_path / "log", reach=reach)
    server._launch(Address("http://127.0.0.1:9", "key"), 9)
    try:
        while not told.exists():
            assert server.alive, last_lines(server.log)
            time.sleep(0.02)
        environment: dict[str, str] = json.loads(told.read_text())
        folder = Path(urlsplit(environment[CHOSEN[0]]).path).parent
        assert urlsplit(environment[CHOSEN[0]]).scheme == "file"
        assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, os.getuid())
        return environment
    finally:
        server.stop()


def test_a_server_meets_its_processes_in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CHOSEN:
        monkeypatch.delenv(name, raising=False)
    loopback = interface(None)
    environment = given(tmp_path, monkeypatch, None)
    assert (environment[GLOO], environment["NCCL_SOCKET_IFNAME"]) == (loopback, f"={loopback}")


def test_where_other_machines_join_the_interface_is_the_clusters_or_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CHOSEN:
        monkeypatch.delenv(name, raising=False)
    environment = given(tmp_path, monkeypatch, "127.0.0.1")
    assert environment[GLOO] == interface("127.0.0.1")
    assert "NCCL_SOCKET_IFNAME" not in environment
    (tmp_path / "told").unlink()
    monkeypatch.setenv(GLOO, "eth7")
    assert given(tmp_path, monkeypatch, None)[GLOO] == "eth7"


@pytest.mark.sglang
def test_a_real_server_listens_on_the_loopback_alone_also_while_it_takes_weights(
    engine: SGLangEngine, server: Server, tmp_path: Path
) -> None:
    assert server.process is not None
    theirs, mine = psutil.Process(server.process.pid), psutil.Process()
    assert server.address is not None
    assert heard(theirs) <= LOOPBACK
    assert heard(theirs)
    with (
        ServerGroupClient([server.address]) as lines,
        _group(lines, 1, "gloo", "looked-at", tmp_path / "a [b]*?#%41:c"),
    ):
        assert heard(theirs) | heard(mine) <= LOOPBACK
