"""Weights that two processes train together, handed to engines by both or put together by the first."""

from __future__ import annotations

import pytest
import torch

from runners.train.launch import train_together
from tests.train.models import small_model
from tests.train.test_sharded import job


@pytest.mark.heavy
def test_every_process_has_every_tensor_and_the_first_has_them_together(tmp_path):
    train_together(job(tmp_path), "tests.train.shared_spread:body")
    state = small_model(tied=True).state_dict()
    whole = torch.load(tmp_path / "whole.pt")
    assert whole.keys() == state.keys()
    assert all(torch.equal(whole[name], state[name]) for name in state)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}-10000.pt")
        # A tied matrix comes once.
        assert list(found["pieces"]) == [name for name in state if name != "lm_head.weight"]
        assert all(torch.equal(found["pieces"][name], state[name]) for name in found["pieces"])
        assert found["all"] == ["rank 0", "rank 1"]
        assert len(torch.load(tmp_path / f"{rank}-2.pt")["pieces"]) == 2
