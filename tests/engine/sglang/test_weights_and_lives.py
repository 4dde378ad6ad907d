"""New weights by each way, servers that are killed, and processes that must not stay behind, with a real server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from reodsl.diagnostics import Problem
from reodsl.store.manifest import DETERMINISM, WEIGHTS, count_lost, read_record
from runners.engine.protocol import Ahead, Generation, Request, TokenSampling
from runners.engine.sglang import control, weights
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Server
from runners.scratch import sweep
from tests.engine.engine_reference import STOP, engine_of, make_model, make_requests

pytestmark = pytest.mark.sglang

GREEDY = TokenSampling(24, temperature=0.0, stop_ids=(STOP,))
WHOLE = TokenSampling(60)
ANSWER = TokenSampling(4, temperature=0.0, stop_ids=(STOP,))


def greedy(engine: Any) -> list[tuple[int, ...]]:
    return [r.tokens for r in engine.generate(make_requests(6, 1, seed=1), GREEDY)]


@pytest.mark.parametrize("way", ["tensor", "broadcast", "disk"])
def test_weights_arrive_by_each_way(
    engine: SGLangEngine, served_model: Any, way: weights.Way, tmp_path: Path
) -> None:
    other = make_model("qwen3-gqa-tied", seed=5 + len(way))
    wanted, before = greedy(engine_of(other)), greedy(engine_of(served_model))
    assert wanted != before
    model = engine.settings.model
    weights.update(way, other.state_dict(), engine.fleet.servers, 1, 41, tmp_path, model)
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


def test_weights_take_the_next_way_where_one_fails(
    engine: SGLangEngine,
    server: Server,
    served_model: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no shared memory here")

    monkeypatch.setattr(engine.fleet, "way", None)
    monkeypatch.setattr(weights, "_from_tensor", broken)
    monkeypatch.setattr(weights, "send", broken)
    engine.load_weights(served_model.state_dict(), 4)
    assert engine.fleet.way == "disk"
    assert engine.generate(make_requests(1, 1), GREEDY)[0].weight_versions == (4,)
    assert "weights do not go by tensor (RuntimeError: no shared memory here)" in caplog.text
    assert "[reodsl] weights do not go by broadcast" in server.log.read_text()
    assert "by disk, not tensor" in read_record(server.log.parent)[WEIGHTS]
    monkeypatch.setattr(weights, "_laid_down", broken)
    with pytest.raises(Problem) as caught:
        engine.load_weights(served_model.state_dict(), 5)
    assert caught.value.diagnostics[0].code == "E0826"
    monkeypatch.undo()
    engine.fleet.way = None
    engine.load_weights(served_model.state_dict(), 6)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_killed_in_the_middle_loses_nothing(
    engine: SGLangEngine,
    server: Server,
    served_model: Any,
    monkeypatch: pytest.MonkeyPatch,
    blow: signal.Signals,
) -> None:
    """Killed, or frozen: then nothing but its silence tells."""
    for name, value in {"_SILENCE": 5.0, "_ASKED": 2, "_ANSWER": 10.0, "_PAUSE": 0.0}.items():
        monkeypatch.setattr(control, name, value)
    other = make_model("qwen3-gqa-tied", seed=9)
    engine.load_weights(other.state_dict(), 7)
    requests = make_requests(20, 4, seed=2)
    ahead = Ahead(lambda _, response: (0, 27), (11, 3), ANSWER)
    wanted = engine.generate(requests, WHOLE, ahead)
    cuts = [[0, 27]] * len(requests)
    answers = engine.force(requests, wanted, cuts, (11, 3), ANSWER)
    assert server.process is not None
    killed, before = server.process.pid, len(server.log.read_text())
    lost = count_lost(server.log.parent)

    took: list[int] = []

    def deadly(index: int, response: Generation) -> tuple[int, ...]:
        """The cuts of the others; the tenth response that ends takes the server with it."""
        took.append(index)
        if len(took) == 10:
            os.killpg(killed, blow)
        return (0, 27)

    found = engine.generate(requests, WHOLE, replace(ahead, cuts=deadly))
    assert server.process.pid != killed
    assert not psutil.pid_exists(killed)
    assert len(took) >= len(requests)
    assert [r.tokens for r in found] == [r.tokens for r in wanted]
    assert {r.weight_versions for r in found} == {(7,)}
    assert engine.force(requests, found, cuts, (11, 3), ANSWER) == answers
    told = server.log.read_text()[before:]
    assert "started again after it was lost" in told
    assert count_lost(server.log.parent) > lost
    assert ("it is silent, and does not say that it works" in told) == (blow == signal.SIGSTOP)
    engine.load_weights(served_model.state_dict(), 8)


@pytest.mark.heavy
@pytest.mark.parametrize("way", ["tensor", "broadcast"])
def test_a_server_that_freezes_as_weights_come_gives_way_to_one_that_has_them(
    engine: SGLangEngine, server: Server, served_model: Any, monkeypatch: pytest.MonkeyPatch, way: weights.Way
) -> None:
    for name, value in {"_SILENCE": 5.0, "_ASKED": 2, "_ANSWER": 10.0, "_PAUSE": 0.0}.items():
        monkeypatch.setattr(control, name, value)
    other = make_model("qwen3-gqa-tied", seed=9)
    assert server.process is not None
    frozen, before = server.process.pid, len(server.log.read_text())
    monkeypatch.setattr(engine.fleet, "way", way)
    os.killpg(frozen, signal.SIGSTOP)
    engine.load_weights(other.state_dict(), 9)
    assert engine.fleet.way == way
    assert server.process.pid != frozen
    assert not psutil.pid_exists(frozen)
    assert greedy(engine) == greedy(engine_of(other))
    assert engine.generate(make_requests(1, 1), GREEDY)[0].weight_versions == (9,)
    assert "a server that was sent weights is ended" in server.log.read_text()[before:]
    engine.load_weights(served_model.state_dict(), 10)


@pytest.mark.heavy
def test_a_server_that_dies_in_the_middle_of_a_broadcast_gives_way_to_one_that_has_all(
    engine: SGLangEngine, server: Server, served_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed with some of the buckets taken: the next one is sent all of them, by the same way."""
    other = make_model("qwen3-gqa-tied", seed=13)
    assert server.process is not None
    killed, sent = server.process.pid, [0]
    real = weights._Own.send

    def send(self: Any, tensor: Any) -> None:
        sent[0] += 1
        if sent[0] == 2:
            os.kill(killed, signal.SIGKILL)
        real(self, tensor)

    monkeypatch.setattr(weights, "SIZE", 16_000)
    monkeypatch.setattr(weights._Own, "send", send)
    monkeypatch.setattr(engine.fleet, "way", "broadcast")
    engine.load_weights(other.state_dict(), 31)
    assert (engine.fleet.way, server.process.pid != killed) == ("broadcast", True)
    assert sent[0] > 4
    assert greedy(engine) == greedy(engine_of(other))
    assert engine.generate(make_requests(1, 1), GREEDY)[0].weight_versions == (31,)
    engine.load_weights(served_model.state_dict(), 32)


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


def test_weights_of_another_shape_are_refused_before_they_are_sent(
    engine: SGLangEngine, served_model: Any
) -> None:
    whole = served_model.state_dict()
    cut = {name: tensor[..., :-1] for name, tensor in whole.items()}
    for state in (cut, {name: whole[name] for name in list(whole)[1:]}):
        with pytest.raises(Problem) as caught:
            engine.load_weights(state, 9)
        assert caught.value.diagnostics[0].code == "E0806"
    assert greedy(engine) == greedy(engine_of(served_model))
