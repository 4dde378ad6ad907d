"""What is left behind: nothing of servers that end late, of engines without a place, nor where one end fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.engine.protocol import Limits
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Address, Server, ServerHandle, free_port, port_taken
from runners.engine.sglang.settings import KEY, LAUNCHER, Settings
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(make_model("qwen3-gqa-tied"), word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go: a short path, since sockets lie there."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


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
    model: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(ServerHandle):
        def start(self) -> Address:
            raise ConnectionError

    class Starts(ServerHandle):
        def start(self) -> Address:
            return Address("http://127.0.0.1:1", "")

    monkeypatch.setattr("runners.engine.sglang.hosts.hosts", lambda *_: [Fails()])
    with pytest.raises(ConnectionError):
        open_engine(model, Resources(engine="sglang"), 64)
    assert not list(place.iterdir())
    monkeypatch.setattr("runners.engine.sglang.hosts.hosts", lambda *_: [Starts()])
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

    class Stuck(ServerHandle):
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


def launched(port: int, fakes: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-P",
            str(LAUNCHER),
            "--model-path",
            "m",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(fakes), KEY: "k"},
    )


def test_a_port_that_is_taken_is_found_before_anything_is_imported(taken_port: int, tmp_path: Path) -> None:
    """The import alone takes as long as a whole small run. By then log-probabilities are the model's own."""
    (tmp_path / "sglang.py").write_text(
        "import os; print(os.environ['SGLANG_RETURN_ORIGINAL_LOGPROB'])\nraise SystemExit(7)"
    )
    done = launched(taken_port, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (tmp_path / "log").write_text(done.stderr)
    assert port_taken(tmp_path / "log")
    done = launched(free_port("127.0.0.1"), tmp_path)
    assert (done.returncode, done.stdout) == (7, "1\n")


def test_a_server_whose_port_is_taken_starts_on_another(
    model: Path, tmp_path: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.engine.sglang.server.LAUNCHER", Path(__file__).with_name("stand_in.py"))
    server = Server(Settings(model, 64, 64), Path(sys.executable), tmp_path / "log")
    server.begin(taken_port)
    address = server.start()
    try:
        assert server.alive
        assert not address.url.endswith(f":{taken_port}")
    finally:
        server.stop()
