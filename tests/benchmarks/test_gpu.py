"""The scripts that wait for a GPU, from start to end in their smallest form on every device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import carried, gpu, gpu_engine, gpu_forcing, gpu_train
from benchmarks.gpu import Found, Part, page, parts
from reodsl.language import compile_file
from reodsl.language.program import load
from reodsl.language.values import Record
from reodsl.price.machine import generating_and_training
from tests.engine.sglang.conftest import python as python

SPEC = Path("specs/quickstart.reo")


@pytest.mark.slow
def test_training_is_measured(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "lines.jsonl"
    size = ["--shapes", "tiny", "--tokens", "64", "--rows", "2", "--steps", "1"]
    gpu_train.main(["--device", device, *size, "--out", str(out)])
    (line,) = out.read_text().splitlines()
    assert json.loads(capsys.readouterr().out) == json.loads(line)
    found = json.loads(line)
    assert (found["shape"], found["precision"], found["tokens"]) == ("tiny", "bfloat16", 64)
    assert found["train_tokens_per_second"] > 0
    assert "error" not in found
    assert ("peak_gib" in found) == (device != "cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_forced_answers_are_measured(device: str, dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--shapes", "tiny", "--tokens", "24", "--responses", "3", "--budgets", "2", "6"]
    gpu_forcing.main(["--device", device, *size, "--dtype", dtype])
    found = json.loads(capsys.readouterr().out)
    assert found["dtype"] == dtype
    assert set(found["shares"]) == {"2", "6"}
    for share in found["shares"].values():
        assert min(share["reused"], share["read_once"], share["read_each"]) > 0
        # The same answers, whichever way the prefix was read, but for rounding.
        assert share["answers_equal"] == 1.0 or dtype == "bfloat16"


@pytest.mark.sglang
@pytest.mark.heavy
def test_forced_answers_of_a_server_are_measured(python: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--shapes", "tiny", "--tokens", "64", "--responses", "3", "--budgets", "2", "6"]
    gpu_forcing.main(["--device", "cpu", "--engine", "sglang", *size])
    line = json.loads(capsys.readouterr().out)
    assert (line["engine"], line["dtype"]) == ("sglang", "float32")
    for budgets, share in line["shares"].items():
        assert share["answers_equal"] == 1.0
        assert share["read_once"] > 0
        # Of each prefix the server has all but the text that forces the answer.
        assert 0 < share["read_again"] < 0.2, budgets
    part = parts(torch.device("cpu"), True, SPEC, Path("there"))["forcing on sglang"]
    assert part.command[-4:] == ("--engine", "sglang", "--responses", "3")
    assert "| tiny, sglang, float32 | 3 of 64 tokens |" in page("here", [Found(part, 0, (line,), "")])


@pytest.mark.slow
def test_another_process_reads_all_weights(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    if device == "sim":
        pytest.skip("a simulated device's memory is this process's alone")
    gpu_engine.main(["--device", device, "--engine", "receiver", "--shapes", "tiny", "--syncs", "2"])
    line = json.loads(capsys.readouterr().out)
    assert min(line["seconds_sync"], line["seconds_first_sync"]) > 0
    assert line["gib_lost"] < 0.1
    part = parts(torch.device(device), True, SPEC, Path("there"))["sync to another process"]
    assert "| tiny, receiver | handles |" in page("here", [Found(part, 0, (line,), "")])


def hardware_of(name: str) -> dict[str, float]:
    """What `std.clusters` says of a device, as the first of its clusters that names it."""
    program = load("stdlib/clusters.reo", {}, {})
    for record in program.list_type(Record, "cluster").values():
        if record.data("gpu") in name:
            return {key: record.data(f"hardware.{key}") for key in ("mfu_train", "mfu_attention")}
    return {}


def test_prices_take_what_was_measured() -> None:
    """A page of measurements overrides what `std.clusters` assumes: whoever commits one changes both."""
    written = Path("benchmarks/GPU.md")
    text = written.read_text("utf-8") if written.is_file() else ""
    found, device = gpu.read_hardware(text), text.partition("\n")[0]
    assert not found or hardware_of(device) == found
    assert all(0 < share < 1 for share in hardware_of("NVIDIA H100 80GB HBM3").values())


def test_shares_of_the_peak_are_those_behind_the_seconds() -> None:
    at_peak = [(1.0, 0.1), (1.0, 0.4), (2.0, 0.9), (0.5, 0.6)]
    lines = [
        {
            "at_peak": {"products": products, "attention": attention},
            "optimizer": "device",
            "seconds_a_step": products / 0.31 + attention / 0.24,
            **dict.fromkeys(("shape", "tokens"), 1),
            "attention": "FA4",
            "train_tokens_per_second": 1.0,
        }
        for products, attention in at_peak
    ]
    assert gpu.fit_hardware(lines) == {"mfu_train": 0.31, "mfu_attention": 0.24}
    part = parts(torch.device("cpu"), True, SPEC, Path("there"))["training tiny"]
    told = page("an H100", [Found(part, 0, tuple(lines), "")])
    assert gpu.read_hardware(told) == {"mfu_train": 0.31, "mfu_attention": 0.24}
    # Two lengths say nothing of what is left over, and the host's optimizer is no part of it.
    assert gpu.fit_hardware(lines[:2]) == {}
    assert gpu.fit_hardware([line | {"optimizer": "host"} for line in lines]) == {}


def test_passes_are_full_of_mixed_lengths() -> None:
    lengths = gpu_train.mixed_lengths(16384, 4, np.random.default_rng(1))
    assert len(set(lengths)) > 10
    assert max(lengths) < 16384
    assert 0 <= sum(lengths) - 4 * 16384 < 2


def test_a_sync_and_a_mismatch_are_measured(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--shapes", "tiny", "--tokens", "24", "--responses", "3", "--syncs", "2"]
    gpu_engine.main(["--device", device, "--engine", "embedded", *size])
    line = json.loads(capsys.readouterr().out)
    assert line["way"] == "same process"
    assert min(line["seconds_sync"], line["seconds_first_sync"]) > 0
    # On a processor the engine's numbers are the trainer's but for rounding.
    assert 1.0 <= line["mismatch_median"] < (1.001 if device == "cpu" else 1.5)
    part = parts(torch.device(device), True, SPEC, Path("there"))["sync, memory given back, mismatch"]
    assert part.command[2] == "benchmarks.gpu_engine"
    assert "| tiny, embedded | same process |" in page("here", [Found(part, 0, (line,), "")])


@pytest.mark.parametrize(("gpus", "placement"), [(1, "colocated"), (2, "apart")])
def test_parts_on_ray_are_specs_on_a_cluster_of_so_many_gpus(gpus: int, placement: str) -> None:
    amends = dict(word.split("=", 1) for word in gpu.on_ray(gpus, placement)[1::2])
    spec = compile_file("specs/smollm2_reo_exp.reo", amends=amends).spec
    assert spec is not None
    assert spec.study.cluster is not None
    given = spec.study.cluster
    assert (given.nodes, given.gpus_per_node, given.placement, spec.study.engine) == (
        1,
        gpus,
        placement,
        "sglang",
    )
    assert generating_and_training(given) == (1, 1)


def test_what_takes_more_gpus_than_there_are_is_listed_and_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(gpu, "parts", lambda *_: {"wide": Part("wide", ("no such program",), False, 2)})
    assert gpu.main(["--device", "cpu", "--out", str(tmp_path)]) == 0
    assert "- wide: takes 2 GPUs, and there is 1" in (tmp_path / "GPU.md").read_text()


def test_a_device_has_a_number() -> None:
    assert [str(gpu_train.numbered(text)) for text in ("cpu", "cuda", "cuda:1")] == [
        "cpu",
        "cuda:0",
        "cuda:1",
    ]


def test_budgets_are_spread_evenly() -> None:
    assert gpu_forcing._cuts(8192, 3) == [2048, 4096, 6144]


@pytest.mark.heavy
def test_parts_run_and_the_page_tells_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["training tiny", "sync to another process", "sync in one process, mismatch at 16K", "forcing"]
    wanted = ["--device", "cpu", "--tiny", "--only", *short, "--out", str(tmp_path)]
    assert gpu.main(wanted) == 0
    text = (tmp_path / "GPU.md").read_text()
    assert text.strip() == capsys.readouterr().out.strip()
    assert "- study: not begun" in text
    assert "| tiny, embedded, float32 | 3 of 64 tokens |" in text
    assert "| 32 |" in text
    assert "| tiny | 64 |" in text
    assert (
        text.index("## Training tiny") < text.index("## Sync to another process") < text.index("## Forcing")
    )


def test_every_part_of_the_real_form_names_the_device() -> None:
    found = parts(torch.device("cuda"), False, SPEC, Path("there"))
    assert list(found) == [
        *(
            "training qwen3-1.7b",
            "sync to another process",
            "training qwen3-4b",
            "tests of devices",
            "tests of train",
            "training qwen3-0.6b",
            "sync in one process, mismatch at 16K",
        ),
        *(
            "forcing",
            "tests of engine",
            "sync, memory given back, mismatch",
            "sync, mismatch with small caches",
            "forcing on sglang",
            "rehearsal",
        ),
        *("three colocated steps on ray", "three steps on two GPUs", "study"),
    ]
    assert found["tests of engine"].command[-3:] == ("tests/engine", "-k", "cuda")
    assert found["training qwen3-4b"].command[-4:] == ("--shapes", "qwen3-4b", "--on", "host")
    assert str(SPEC) in found["study"].command


def test_where_something_is_missing_a_smaller_thing_is_run_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = ("json", "no_such_package")
    less = Part(
        "rehearsal", ("no such program",), False, needs=gone, smaller=(sys.executable, "-c", "print('small')")
    )
    none = Part("servers", ("no such program",), False, needs=gone)
    monkeypatch.setattr(gpu, "parts", lambda *_: {"rehearsal": less, "servers": none})
    assert gpu.main(["--device", "cpu", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "GPU.md").read_text()
    assert "A smaller thing in its place, because no_such_package is not here." in text
    assert "`python -c print('small')`: small" in text
    assert "- servers: takes no_such_package, which is not here" in text


def test_packages_are_carried_and_laid_out_where_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "packages.tar.xz"
    assert carried.pack(archive, ["iniconfig", "pluggy", "no-such-package"]) < 1 << 20
    assert "no-such-package is not installed here" in capsys.readouterr().err
    monkeypatch.setattr(carried, "_is_installed", lambda name: name == "pluggy")
    assert carried.unpack(archive, tmp_path / "there") == ["iniconfig"]
    out = subprocess.run(
        [sys.executable, "-S", "-c", "import iniconfig; print(iniconfig.__file__)"],
        env={"PYTHONPATH": str(tmp_path / "there")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.startswith(str(tmp_path / "there"))
    monkeypatch.setattr(carried, "VERSION", "3.99")
    with pytest.raises(SystemExit, match=r"and this is 3\.99"):
        carried.unpack(archive, tmp_path)
    monkeypatch.setattr(carried, "MOST", 10)
    with pytest.raises(SystemExit, match="10 can be carried"):
        carried.pack(archive, ["iniconfig"])


def test_what_fails_is_told_and_the_rest_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Part("tests", (sys.executable, "-c", "print('two failed'); raise SystemExit(3)"), False)
    fine = Part("study", (sys.executable, "-c", "print('all done')"), False)
    monkeypatch.setattr(gpu, "parts", lambda *_: {"tests": broken, "study": fine})
    assert gpu.main(["--device", "cpu", "--out", str(tmp_path)]) == 1
    text = (tmp_path / "GPU.md").read_text()
    assert "Failed with exit status 3: two failed" in text
    assert "all done" in text


def test_what_is_done_is_not_done_again_and_what_was_cut_off_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second part takes all the time that there is, by a clock of the test's own; the third is not begun then."""
    stubs = {name: Part(name, ("python",), False) for name in ("first", "slow", "last")}
    begun: list[str] = []
    now = [0.0]

    def do(part: Part, seconds: float | None) -> Found:
        begun.append(part.name)
        needs = 90.0 if part.name == "slow" else 1.0
        cut = seconds is not None and needs > seconds
        now[0] += seconds if cut and seconds is not None else needs
        return Found(part, gpu.CUT if cut else 0, (), "done")

    monkeypatch.setattr(gpu, "parts", lambda *_: stubs)
    monkeypatch.setattr(gpu, "do", do)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: now[0])
    wanted = ["--device", "cpu", "--out", str(tmp_path)]
    assert gpu.main([*wanted, "--within", "1"]) == 1
    text = (tmp_path / "GPU.md").read_text()
    assert "- slow: cut off" in text
    assert "- last: not begun" in text
    assert "- first" not in text
    assert gpu.main(wanted) == 0
    assert begun == ["first", "slow", "slow", "last"]
    text = (tmp_path / "GPU.md").read_text()
    assert "cut off" not in text
    assert "no part measures it yet" in text
    assert gpu.main(wanted) == 0
    assert len(begun) == 4
    # On another commit all is measured anew.
    monkeypatch.setattr(gpu, "identity", lambda machine: {"machine": machine, "commit": "another"})
    assert gpu.main(wanted) == 0
    assert begun[4:] == ["first", "slow", "last"]


def test_a_part_past_its_time_is_ended() -> None:
    part = Part("slow", (sys.executable, "-c", "import time; time.sleep(600)"), False)
    assert gpu.do(part, 0.1).code == gpu.CUT


def test_a_part_that_there_is_not_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(["--device", "cpu", "--only", "trainnig", "--out", str(tmp_path)])
    assert "no part is called trainnig" in capsys.readouterr().err


def test_memory_that_ran_out_is_a_line_of_the_table() -> None:
    part = parts(torch.device("cuda"), False, SPEC, Path("there"))["training qwen3-4b"]
    lines = (
        {"shape": "qwen3-4b", "tokens": 16384, "error": "memory ran out in the optimizer's step"},
        {"shape": "qwen3-0.6b", "attention": "FA4", "tokens": 16384, "mfu": 0.123}
        | {"train_tokens_per_second": 31250.4, "seconds_a_step": 2.0},
    )  # fmt: skip
    text = page("NVIDIA H100", [Found(part, 0, lines, "")])
    assert "# Measured on NVIDIA H100" in text
    assert "| qwen3-4b | 16384 | memory ran out in the optimizer's step |" in text
    assert "| qwen3-0.6b, FA4 | 16384 | 31,250 | 12.3 | 11.1 | 2.00 |" in text


def test_a_part_that_was_cut_off_shows_what_it_had_by_then() -> None:
    part = parts(torch.device("cuda"), False, SPEC, Path("there"))["training qwen3-1.7b"]
    line = {"shape": "qwen3-1.7b", "attention": "FA4", "tokens": 16384, "mfu": 0.3, "optimizer": "device"}
    line |= {"train_tokens_per_second": 30000.0, "seconds_a_step": 2.0}
    text = page(
        "NVIDIA H100", [Found(part, gpu.CUT, (line,), ""), Found(part, gpu.CUT, (), "")], {part.name: part}
    )
    assert text.count("## Training qwen3-1.7b") == 1
    assert "It was cut off, and these are the figures that it had." in text
    assert "| qwen3-1.7b, FA4 | 16384 | 30,000 | 30.0 |" in text
    assert "- training qwen3-1.7b: cut off" in text


def test_a_model_that_was_measured_is_gone_before_the_next_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of 4B do not fit on a GPU beside each other; FSDP2's refer to themselves."""
    told = list[str]()
    monkeypatch.setattr(gpu_train, "measure", lambda *given: told.append(given[2]) or {})
    monkeypatch.setattr(gpu_train, "give_back_freed", lambda: told.append("gone"))
    gpu_train.main(["--device", "cpu", "--shapes", "tiny", "--tokens", "64", "128"])
    assert told == [64, "gone", 128, "gone"]
    assert capsys.readouterr().out == "{}\n{}\n"


def test_another_process_that_ends_is_no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_engine, "_READER", "input()")
    with pytest.raises(RuntimeError, match="the other process reads nan"):
        gpu_engine.hand_over("tiny", torch.device("cpu"), 1)


def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--out", str(tmp_path)]) == 1
    assert "torch sees no GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
