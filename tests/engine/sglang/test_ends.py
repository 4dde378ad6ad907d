"""What is left behind: nothing of servers that end late, of engines without a place, nor where one end fails."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.engine.requests import Limits
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.hosts import Given
from runners.engine.sglang.interpreter import ADDRESS
from runners.engine.sglang.server import Address, Server
from runners.engine.sglang.settings import Settings
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(make_model("qwen3-gqa-tied"), word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_server_that_the_system_is_slow_to_end_is_left_to_it(
    model: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(Settings(model, 64, 64), Path(sys.executable), tmp_path / "log")
    monkeypatch.setattr("runners.engine.sglang.server.LAUNCHER", tmp_path / "sleep.py")
    (tmp_path / "sleep.py").write_text("import time; time.sleep(600)")
    server._launch(Address("http://127.0.0.1:1", "key"), 1)
    process = server.process
    assert process is not None
    assert len(list(place.iterdir())) == 1

    def slow(timeout: float) -> int:
        raise subprocess.TimeoutExpired("sglang", timeout)

    with monkeypatch.context() as late:
        late.setattr(process, "wait", slow)
        server.stop()
    assert not server.alive
    assert process.stdin is not None
    assert process.stdin.closed
    assert not list(place.iterdir())
    assert process.wait() == -9


def test_an_engine_without_a_place_leaves_none(
    model: Path, place: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    monkeypatch.setenv(ADDRESS, "http://127.0.0.1:1")
    with pytest.raises(Problem) as caught:
        open_engine(model, Resources(engine="sglang"), 64)
    refusal("engine/E0828.txt", caught.value)
    assert not list(place.iterdir())
    monkeypatch.setattr(Given, "start", lambda host: host.address)
    engine = open_engine(model, Resources(engine="sglang"), 64)
    (own,) = place.iterdir()
    (own / "sglang-0.log").touch()
    engine.close()
    assert not list(place.iterdir())


def test_the_log_that_a_problem_names_stays(
    model: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails.py").write_text("raise SystemExit('no such luck')")
    monkeypatch.setattr("runners.engine.sglang.server.LAUNCHER", tmp_path / "fails.py")
    monkeypatch.setattr("runners.engine.sglang.hosts.interpreter", lambda: Path(sys.executable))
    with pytest.raises(Problem) as caught:
        open_engine(model, Resources(engine="sglang"), 64)
    (found,) = caught.value.diagnostics
    assert found.code == "E0821"
    assert found.where is not None
    assert Path(str(found.where)).read_text() == "no such luck\n"


def test_a_host_that_cannot_be_ended_keeps_no_other_one(model: Path, tmp_path: Path) -> None:
    ended: list[int] = []

    class Stuck(Given):
        def __init__(self, number: int) -> None:
            self.number = number

        def start(self) -> Address:
            return Address("http://127.0.0.1:1", "")

        def stop(self) -> None:
            ended.append(self.number)
            raise OSError("stuck")

    settings = Settings(model, 64, 64)
    engine = SGLangEngine([Stuck(0), Stuck(1)], settings, Limits(64, VOCAB), tmp_path / "aside")
    with pytest.raises(OSError, match="stuck"):
        engine.close()
    assert sorted(ended) == [0, 1]
    assert engine._loop._loop.is_closed()
