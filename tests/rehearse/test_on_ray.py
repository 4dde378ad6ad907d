"""`rehearse --real` on Ray, with GPUs that are only said to be there: the command of `make gpu`, and a model over two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import torch

from benchmarks import gpu
from tests.called import call
from tests.engine.sglang.conftest import python as python
from tests.engine.sglang.test_miniature import SPEC
from tests.rehearse.declared import declared_gpus, registry

pytestmark = pytest.mark.heavy


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a cluster with two GPUs that nobody has; the spec lies in this folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("reodsl.run.load_registry", registry)
    (tmp_path / "spec.reo").write_text(SPEC)
    with declared_gpus() as found:
        yield found


def rehearse(address: str, **changes: str) -> int:
    """The command of a part of `make gpu`, with other amends in the place of its own, and shorter."""
    every = gpu.parts(torch.device("cpu"), False, Path("spec.reo"), Path("out"))
    command = every["three colocated steps on ray"].command
    words = [word for word in command[command.index("rehearse") :] if "=" not in word and word != "--amend"]
    amends = dict(word.split("=", 1) for word in gpu.on_ray(1, "colocated")[1::2])
    for name, value in {**amends, **changes}.items():
        words += ["--amend", f"{name}={value}"]
    return call(*words, "--address", address, "--out", "shown")


def steps() -> int:
    """Those that the experiment took."""
    (table,) = Path("shown").rglob("training.parquet")
    return pl.read_parquet(table).filter(pl.col("arm") == "small").height


def test_three_steps_of_one_process(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rehearse(address, engine="embedded") == 0, capsys.readouterr().err
    assert steps() == gpu.STEPS == 3
    assert "`reodsl plan` now uses the measured times" in capsys.readouterr().out


@pytest.mark.sglang
@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("wide", [1, 2])
def test_three_colocated_steps_with_a_server(
    address: str, wide: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server beside one trainer, and one whose model is spread over both devices beside two."""
    sizes = f"gpus_per_node = {wide}, tensor_parallel = {wide}"
    cluster = f"{gpu.CLUSTER} {{ {sizes}, placement = colocated }}"
    assert rehearse(address, cluster=cluster) == 0, capsys.readouterr().err
    assert steps() == 3
