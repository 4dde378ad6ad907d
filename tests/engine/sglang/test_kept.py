"""Servers that tasks use one after another: shared where they may be, and ended with the run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from reodsl.graph.job import Resources
from reodsl.graph.task import Task
from runners.engine.sglang.hosts import (
    CachedServer,
    ServerCache,
    end_servers,
    hosts,
    keep_servers,
    kept_servers,
)
from runners.engine.sglang.settings import Settings
from runners.execute import Local
from runners.execute.perform import Order, Outcome
from runners.machine.process import last_lines
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model

PYTHON = Path(sys.executable)
SERVED = Resources(engine="sglang")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in the server's place."""
    monkeypatch.setattr("runners.engine.sglang.server.LAUNCHER", Path(__file__).with_name("stand_in.py"))
    monkeypatch.setattr("runners.engine.sglang.hosts.interpreter", lambda: PYTHON)


@pytest.fixture
def keeping() -> Iterator[ServerCache]:
    made = ServerCache()
    yield made
    made.end()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    tokenizer = word_tokenizer([f"w{i}" for i in range(5, VOCAB)])
    save(make_model("qwen3-gqa-tied"), tokenizer, tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    return Settings(tmp_path / "one", context=100, token_bytes=64)


def of(keeping: ServerCache, settings: Settings, log: Path) -> CachedServer:
    found = keeping.hosts(settings, PYTHON, [(log, None)])
    assert found is not None
    (host,) = found
    return host


def pid(host: CachedServer) -> int:
    assert host.process is not None
    return host.process.pid


def test_tasks_that_train_in_turn_with_a_server_share_it_with_those_that_only_ask(
    keeping: ServerCache, settings: Settings, tmp_path: Path
) -> None:
    first = of(keeping, replace(settings, shares_device=True), tmp_path / "log")
    address = first.start()
    first.stop()
    second = of(keeping, settings, tmp_path / "log")
    assert second.start() == address
    # One that can give memory back was started otherwise.
    second.stop()
    third = of(keeping, replace(settings, shares_device=True, memory_saver=True), tmp_path / "log")
    assert third.start() != address


def test_a_kept_server_is_ended_where_its_state_is_not_known_or_its_room_is_wanted(
    keeping: ServerCache, settings: Settings, tmp_path: Path
) -> None:
    host = of(keeping, settings, tmp_path / "log")
    before = host.start()
    host.kill()
    assert not host.alive
    assert host.start() != before
    keeping.make_room()
    assert host.alive, "a task has it"
    host.stop()
    assert host.alive
    keeping.make_room()
    assert not host.alive


def test_a_task_goes_on_with_the_server_of_the_one_before_and_brings_its_own_weights(
    keeping: ServerCache, settings: Settings, tmp_path: Path
) -> None:
    first = of(keeping, settings, tmp_path / "a" / "log")
    address = first.start()
    assert address.version == "0.0.1"
    assert option(first, "context-length") == 128 + 8, "room for what other tasks may need"
    before = pid(first)
    first.stop()
    first.stop()
    shutil.rmtree(tmp_path / "a")
    second = of(keeping, replace(settings, model=tmp_path / "two", context=128), tmp_path / "b" / "log")
    assert second.start() == address
    assert pid(second) == before
    # It still writes to the log that was removed with the first task's folder.
    assert address.log is not None
    (*_, last) = last_lines(address.log)
    assert last.startswith("/update_weights_from_disk")
    assert str(tmp_path / "two") in last
    second.stop()
    assert psutil.pid_exists(before)
    keeping.end()
    assert not second.alive


def option(host: CachedServer, name: str) -> int:
    words = psutil.Process(pid(host)).cmdline()
    return int(words[words.index(f"--{name}") + 1])


@pytest.mark.parametrize("change", ["context", "config", "device settings"])
def test_a_task_that_needs_another_server_gets_one_and_the_old_one_ends(
    keeping: ServerCache, settings: Settings, tmp_path: Path, change: str
) -> None:
    first = of(keeping, settings, tmp_path / "log")
    first.start()
    first.stop()
    old = psutil.Process(pid(first))
    other = replace(settings, model=tmp_path / "two")
    if change == "context":
        other = replace(other, context=129)
    elif change == "config":
        config = json.loads((tmp_path / "two" / "config.json").read_text())
        (tmp_path / "two" / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    else:
        other = replace(other, memory_fraction=0.5)
    second = of(keeping, other, tmp_path / "log")
    assert not old.is_running()
    second.start()
    assert second.alive


def test_where_a_config_comes_from_changes_nothing(
    keeping: ServerCache, settings: Settings, tmp_path: Path
) -> None:
    first = of(keeping, settings, tmp_path / "log")
    first.start()
    first.stop()
    config = json.loads((tmp_path / "two" / "config.json").read_text())
    (tmp_path / "two" / "config.json").write_text(json.dumps(config | {"transformers_version": "0.1"}))
    second = of(keeping, replace(settings, model=tmp_path / "two"), tmp_path / "log")
    assert second is first


@pytest.mark.parametrize("why", ["dead", "busy"])
def test_a_kept_server_that_cannot_go_on_is_replaced_and_its_last_words_stay(
    keeping: ServerCache, settings: Settings, tmp_path: Path, why: str
) -> None:
    first = of(keeping, settings, tmp_path / "a")
    first.start()
    before = pid(first)
    first.stop()
    if why == "dead":
        os.killpg(before, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(before)] if psutil.pid_exists(before) else [], timeout=10)
    else:
        (tmp_path / "one" / "busy").touch()
    (tmp_path / "a").unlink()
    second = of(keeping, settings, tmp_path / "b")
    second.start()
    assert second.alive
    assert pid(second) != before


def test_servers_that_a_task_has_are_no_other_ones(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.engine.sglang.hosts._cache", None)

    def one() -> object:
        (found,) = hosts(settings, SERVED, tmp_path)
        return found

    assert not isinstance(one(), CachedServer)
    keep_servers()
    assert isinstance(one(), CachedServer)
    # The next task: the one before is over, whatever it did.
    keep_servers()
    lent = one()
    assert isinstance(lent, CachedServer)
    assert not isinstance(one(), CachedServer)
    lent.stop()
    again = one()
    assert isinstance(again, CachedServer)
    assert again is lent
    again.start()
    end_servers()
    assert not again.alive
    assert not isinstance(one(), CachedServer)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_run_ends_the_servers_that_it_kept(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    served: list[CachedServer] = []

    def serving(order: Order, _: object) -> Outcome:
        if order.resources.engine == "embedded":
            return Outcome("done")
        (host,) = hosts(settings, order.resources, tmp_path)
        assert isinstance(host, CachedServer)
        served.append(host)
        host.start()
        if interrupted and len(served) == 2:
            raise KeyboardInterrupt
        host.stop()
        return Outcome("done")

    monkeypatch.setattr("runners.execute.perform_order", serving)
    backend = Local(lambda event: None)
    try:
        for resources in (SERVED, Resources(), SERVED):
            backend.submit(
                Order(Task("t", "evaluate", {}, {}), "", "", {}, {}, tmp_path, tmp_path, resources)
            )
            backend.wait(0.0)
    except KeyboardInterrupt:
        assert interrupted
    assert pid(served[0]) == pid(served[1])
    assert served[0].alive
    backend.stop()
    backend.stop()
    assert not served[0].alive
    assert kept_servers() is None


def test_memory_of_gpus_is_given_back_to_a_task_that_asks_no_server(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.execute.perform_order", lambda *_: Outcome("done"))
    backend = Local(lambda event: None)

    def run(resources: Resources) -> None:
        backend.submit(Order(Task("t", "train", {}, {}), "", "", {}, {}, tmp_path, tmp_path, resources))
        backend.wait(0.0)

    run(SERVED)
    (host,) = hosts(settings, SERVED, tmp_path)
    host.start()
    host.stop()
    run(Resources())
    assert host.alive
    run(Resources(device="cuda"))
    assert not host.alive
