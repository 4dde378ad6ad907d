"""What a task used: its own peak of memory, not that of one before it, and the model of its device."""

from __future__ import annotations

import gc
import platform
import sys
import weakref
from pathlib import Path

import pytest

from reodsl.price.machine import processor
from runners.execute import perform
from runners.machine import clock
from tests.execute.bench import Bench
from tests.graph import studies as make

MIB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are set back through /proc")
def test_a_peak_is_measured_from_its_mark_on() -> None:
    assert clock.mark_peak()
    before = clock.peak_memory("cpu")
    held = bytearray(b"x") * (192 * MIB)
    high = clock.peak_memory("cpu")
    assert before is not None
    assert high is not None
    assert high - before > 150 * MIB
    del held
    kept = clock.peak_memory("cpu")
    # The system counts pages in lots.
    assert kept is not None
    assert kept > high - MIB
    assert clock.mark_peak()
    after = clock.peak_memory("cpu")
    assert after is not None
    assert after < high - 150 * MIB


def test_without_a_way_to_set_a_peak_back_there_is_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(clock, "_CLEAR_PEAK", tmp_path / "none" / "clear_refs")
    assert not clock.mark_peak()
    key = bench.run(make.four()).keys["vanilla.train.s1"]
    manifest = bench.store.get(key)
    assert manifest is not None
    assert manifest.provenance["peak_memory"] is None


def test_what_is_not_there_is_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clock, "_STATUS", tmp_path / "status")
    assert clock.peak_memory("cpu") is None
    (tmp_path / "status").write_text("Name: python\nVmHWM:\t  2048 kB\n")
    assert clock.peak_memory("cpu") == 2 * MIB


class _Gpu:
    """What is asked of `torch.cuda`."""

    def __init__(self) -> None:
        self.peak = 7 * MIB

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def get_device_name(self) -> str:
        return "NVIDIA H800"

    def max_memory_allocated(self) -> int:
        return self.peak

    def reset_peak_memory_stats(self) -> None:
        self.peak = 0


def test_a_gpu_tells_its_name_and_what_tensors_had(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = type("Torch", (), {"cuda": _Gpu()})()
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert perform.device_model("cuda") == "NVIDIA H800"
    assert clock.peak_memory("cuda") == 7 * MIB
    clock.mark_peak()
    assert clock.peak_memory("cuda") == 0
    monkeypatch.delitem(sys.modules, "torch")
    assert (perform.device_model("cuda"), clock.peak_memory("cuda")) == ("", None)


def test_a_gpu_has_nothing_of_a_task_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """FSDP2's models refer to themselves: one stays until Python collects it."""

    class Ring:
        def __init__(self) -> None:
            self.myself = self

    class Cuda(_Gpu):
        def empty_cache(self) -> None:
            freed.append(model() is None)

    freed = list[bool]()
    monkeypatch.setitem(sys.modules, "torch", type("Torch", (), {"cuda": Cuda()})())
    gc.disable()
    model = weakref.ref(Ring())
    assert model() is not None
    perform.give_back_freed()
    gc.enable()
    assert freed == [True]


def test_a_result_says_what_it_was_made_on(bench: Bench) -> None:
    manifest = bench.store.get(bench.run(make.four()).keys["vanilla.train.s1"])
    assert manifest is not None
    assert manifest.provenance["device_model"] == processor()
    assert [manifest.provenance[name] for name in ("trainers", "engines", "tensor_parallel")] == [1, 1, 1]
    if sys.platform == "linux":
        assert manifest.provenance["peak_memory"] > MIB


def test_a_processor_is_named_by_its_model(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nmodel\t\t: 6\nmodel name\t: Fast Chip @ 3 GHz\n\nmodel name\t: Other\n")
    assert processor(told) == "Fast Chip @ 3 GHz"
    (tmp_path / "bare").write_text("CPU implementer : 0x41\n")
    assert processor(tmp_path / "bare") == processor(tmp_path / "none") == platform.machine()
