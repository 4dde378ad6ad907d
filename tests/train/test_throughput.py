"""Tokens a second and MFU against FLOPs counted by hand."""

from __future__ import annotations

import pytest
import torch

from reodsl.price.memory import from_config
from runners.train import metrics
from runners.train.metrics import ThroughputCounter, peak_flops
from tests.train.models import small_model


def test_flops_by_hand():
    """A forward pass is 2 FLOPs a weight and token, and 4 a layer, width and pair of a token with one before it."""
    sizes = from_config(small_model().config.to_dict())
    assert sizes is not None
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48
    products = 2 * layer + 23 * 32
    tally = ThroughputCounter()
    tally.add([10, 20], 3, True)
    tally.add([10], 1, False)
    flops = sum(
        passes * (2 * products * n + 4 * 2 * 32 * n * n / 2) for n, passes in ((10, 3), (20, 3), (10, 1))
    )
    found = tally.empty(2.0, sizes, 4, 1e6)
    assert found == {"train_tokens_per_second": 15.0, "mfu": pytest.approx(flops / (2.0 * 4 * 1e6))}
    assert tally.empty(2.0, sizes, 4, 1e6) == {}
    # Under adapters a backward pass costs one pass; a reference model may cost as much as training, and is not trained.
    tally.add([10, 20], 2, True)
    tally.add([40], 3, False)
    assert tally.empty(2.0, sizes, 4, None) == {"train_tokens_per_second": 15.0}


def test_a_peak_is_that_of_the_devices_name(monkeypatch):
    assert peak_flops(torch.device("cpu")) is None
    for name, peak in (("NVIDIA H200", 989.4e12), ("NVIDIA A100-SXM4-80GB", 312e12), ("NVIDIA T4", None)):
        monkeypatch.setattr(metrics.torch.cuda, "get_device_name", lambda device, name=name: name)
        assert peak_flops(torch.device("cuda", 0)) == peak
