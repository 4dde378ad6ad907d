"""New weights by each way, servers that are killed, and processes that must not stay behind, with a real server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Resources
from reodsl.store.manifest import DETERMINISM, read_record
from runners.engine.open import open_engine
from runners.engine.protocol import ForcingPlan, Generation, Request, TokenSampling
from runners.engine.sglang import weights
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Server
from runners.machine.process import ProcessDied
from runners.machine.scratch import sweep
from tests.engine.engine_reference import STOP, engine_of, make_model, make_requests

pytestmark = pytest.mark.sglang

GREEDY = TokenSampling(24, temperature=0.0, stop_ids=(STOP,))
WHOLE = TokenSampling(60)
ANSWER = TokenSampling(4, temperature=0.0, stop_ids=(STOP,))


def greedy(engine: Any) -> list[tuple[int, ...]]:
    return [r.tokens for r in engine.generate(make_requests(6, 1, seed=1), GREEDY)]


@pytest.mark.parametrize("way", ["tensor", "broadcast"])
def test_weights_arrive_by_each_way(
    engine: SGLangEngine, served_model: Any, way: str, tmp_path: Path
) -> None:
    other = make_model("qwen3-gqa-tied", seed=5 + len(way))
    wanted, before = greedy(engine_of(other)), greedy(engine_of(served_model))
    assert wanted != before
    model, servers = engine.settings.model, engine.fleet.servers
    pieces = weights.iter_untied(other.state_dict())
    if way == "tensor":
        weights.hand_over(pieces, 0, lambda one: [one], dict(enumerate(servers)), 1, 41)
    else:
        weights.broadcast(pieces, servers, 1, 41, tmp_path)
    assert greedy(engine) == wanted
    (response,) = engine.generate(make_requests(1, 1), GREEDY)
    assert response.weight_versions == (41,)
    assert list(tmp_path.iterdir()) == []
    assert all(not tensor.is_shared() for tensor in other.state_dict().values())
    engine.load_weights(served_model.state_dict(), 2)
    assert greedy(engine) == before
    engine.load_weights(model, 3)
    assert greedy(engine) == before
    assert engine.generate(make_requests(1, 1), GREEDY)[0].weight_versions == (3,)


@pytest.mark.heavy
@pytest.mark.parametrize("when", ["responses", "weights"])
def test_a_server_that_is_killed_ends_what_waits_for_it(
    python: Path, folder: Path, tmp_path: Path, when: str
) -> None:
    """As it answers, or with some of the buckets taken; nothing of its family stays."""
    engine = open_engine(folder, Resources(engine="sglang"), 160, tmp_path)
    assert isinstance(engine, SGLangEngine)
    (host,) = engine.fleet.hosts
    assert isinstance(host, Server)
    assert host.process is not None
    killed = host.process.pid

    def deadly(index: int, response: Generation) -> tuple[int, ...]:
        os.killpg(killed, signal.SIGKILL)
        return ()

    def pieces() -> Iterator[tuple[str, Any]]:
        for number, piece in enumerate(make_model("qwen3-gqa-tied", seed=13).state_dict().items()):
            if number == 8:
                os.killpg(killed, signal.SIGKILL)
            yield piece

    requests, ahead = make_requests(20, 4, seed=2), ForcingPlan(deadly, (11, 3), ANSWER)
    servers = dict(enumerate(engine.fleet.servers))
    calls = {
        "responses": partial(engine.generate, requests, WHOLE, ahead),
        "weights": partial(weights.hand_over, pieces(), 0, lambda one: [one], servers, 1, 9, 16_000),
    }
    with pytest.raises(ProcessDied) as caught:
        calls[when]()
    assert caught.value.diagnostics[0].where == str(host.log)
    engine.close()
    assert not psutil.pid_exists(killed)


def test_requests_need_the_key_and_come_from_this_machine_alone(engine: SGLangEngine, server: Server) -> None:
    import httpx

    address = engine.fleet.servers[0]
    assert address.url.startswith("http://127.0.0.1:")
    assert httpx.post(f"{address.url}/generate", json={"input_ids": [5]}).status_code == 401
    assert server.process is not None
    told = subprocess.run(
        ["ps", "-o", "args=", "-p", str(server.process.pid)], capture_output=True, text=True
    )
    assert address.key not in told.stdout
    assert server.log.stat().st_mode & 0o077 == 0


def test_the_version_that_answers_is_noted_beside_the_logs(
    engine: SGLangEngine, server: Server, python: Path
) -> None:
    code = "from importlib.metadata import version; print(version('sglang'))"
    told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    noted = read_record(server.log.parent)
    # Which tests ran before decides whether a way of weights is noted too.
    assert (noted["sglang"], noted[DETERMINISM]) == ([told.stdout.strip()], ["exact"])


def test_impossible_requests_are_refused_before_they_are_sent(engine: SGLangEngine) -> None:
    for request, sampling in [
        (Request((), 1), GREEDY),
        (Request((5, 4000), 1), GREEDY),
        (Request((5,) * 150, 1), GREEDY),
    ]:
        with pytest.raises(Problem) as caught:
            engine.generate([request], sampling)
        assert caught.value.diagnostics[0].code == "E0807"


@pytest.mark.heavy
@pytest.mark.parametrize("when", ["starting", "serving"])
def test_servers_do_not_outlive_who_started_them(
    python: Path, folder: Path, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from reodsl.graph.job import Resources; from runners.engine.open import open_engine\n"
        "engine = open_engine(Path(sys.argv[1]), Resources(engine='sglang'), 100, Path(sys.argv[2]))\n"
        "print('serving', flush=True); time.sleep(600)\n"
    )
    # A longer name would not be taken for sockets.
    aside = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setenv("TMPDIR", aside)
    owner = psutil.Popen(
        [sys.executable, "-c", code, str(folder), str(tmp_path / "logs")], stdout=subprocess.PIPE, text=True
    )
    if when == "serving":
        assert owner.stdout.readline() == "serving\n"
    family: list[psutil.Process] = []
    # The launcher, what tracks its shared memory, and the first process that computes.
    while len(family) < 3:
        assert owner.poll() is None
        family = owner.children(recursive=True)
        time.sleep(0.01)
    owner.kill()
    owner.wait()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    monkeypatch.setattr(tempfile, "tempdir", aside)
    assert len(list(Path(aside).glob("reodsl-*"))) == 1
    sweep()
    assert not list(Path(aside).glob("reodsl-*"))
    shutil.rmtree(aside)
