"""Several servers: how many are started, when, and on which GPUs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from reodsl.graph.job import Resources
from runners.engine.protocol import Limits
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.hosts import devices_here, hosts
from runners.engine.sglang.server import Address, Server, ServerHandle
from runners.engine.sglang.settings import Settings
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model


def test_each_server_has_a_log_and_gpus_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.engine.sglang.hosts.interpreter", lambda: Path(sys.executable))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    settings = Settings(tmp_path, 64, 64, device="cuda", tensor_parallel=2)
    asked = Resources(device="cuda", engine="sglang", engines=2, tensor_parallel=2)
    made = [host for host in hosts(settings, asked, tmp_path) if isinstance(host, Server)]
    assert [(host.log.name, host.devices) for host in made] == [
        ("sglang-0.log", "4,5"),
        ("sglang-1.log", "6,7"),
    ]


@pytest.mark.parametrize(
    ("asked", "seen", "wanted"),
    [
        (Resources(engines=3), "0,1", [None, None, None]),
        (Resources(device="cuda", engines=4), "0,1,2", ["0", "1", "2"]),
        (Resources(device="cuda", engines=2, trainers=1, disaggregated=True), "3,5,7", ["5", "7"]),
        (Resources(device="cuda", engines=2, tensor_parallel=2), "1", [None]),
        (Resources(device="cuda", engines=2, devices=("6", "2")), "0,1", ["6", "2"]),
        (Resources(device="cuda", engines=2), "", ["0", "1"]),
    ],
    ids=["no GPUs", "too few", "behind the trainers", "none whole", "the trainers'", "all that there are"],
)
def test_servers_are_as_many_as_there_are_gpus_for(
    asked: Resources, seen: str, wanted: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert devices_here(asked) == wanted


def test_all_servers_come_up_at_the_same_time(tmp_path: Path) -> None:
    done: list[str] = []

    class Noted(ServerHandle):
        def __init__(self, number: int) -> None:
            self.number = number

        def begin(self) -> None:
            done.append(f"begin {self.number}")

        def start(self) -> Address:
            done.append(f"start {self.number}")
            return Address("http://127.0.0.1:1", "")

    save(make_model("qwen3-gqa-tied"), word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), tmp_path)
    settings = Settings(tmp_path, 64, 64)
    SGLangEngine([Noted(0), Noted(1)], settings, Limits(64, VOCAB), tmp_path / "aside").close()
    assert done == ["begin 0", "begin 1", "start 0", "start 1"]
