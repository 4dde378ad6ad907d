"""The devices that tests run on: `device` gives each in turn, and `plain_cpu` lets the CPU compute as the others do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from tests.devices.module import NAME
from tests.devices.simulated import install, simulated

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu", NAME)
if NAME in DEVICES:
    # Now, since the engine of backward passes counts devices at the first of them. PyTorch has one kind of accelerator
    # in a process, and takes an extension's for it, so that there is no second one beside CUDA.
    install()


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The CPU, and CUDA; the simulated device where there is none."""
    with simulated() if request.param == NAME else nullcontext():
        yield request.param


@pytest.fixture(params=DEVICES[1:])
def other(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every device but the CPU."""
    with simulated() if request.param == NAME else nullcontext():
        yield request.param


@pytest.fixture
def plain_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU without what is done for it alone: oneDNN's products, padded sequences, blocks for its caches."""
    from runners.engine.embedded import branches
    from runners.train import update

    monkeypatch.setattr(update, "packs", lambda model, device: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(branches, "_CPU_SCORES", branches._CUDA_SCORES)
