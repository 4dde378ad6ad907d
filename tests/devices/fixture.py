"""The devices that tests run on: `device` gives each in turn, and `plain_cpu` lets the CPU compute as the others do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.devices.module import NAME
from tests.devices.simulated import install, simulated

# The engine that runs backward passes counts devices at the first of them.
install()
DEVICES = ("cpu", NAME, "cuda") if torch.cuda.is_available() else ("cpu", NAME)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The CPU, the simulated device, and CUDA where there is one."""
    if request.param != NAME:
        yield request.param
        return
    with simulated():
        yield NAME


@pytest.fixture
def plain_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU without what is done for it alone: oneDNN's products, the lean forward pass, blocks for its caches."""
    from runners.engine.embedded import branches

    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(branches, "_CPU_SCORES", branches._CUDA_SCORES)
