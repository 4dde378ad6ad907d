"""Memory that a task leaves behind: torch's on a GPU too is given back, and only where a GPU is used."""

from __future__ import annotations

import pytest
import torch

from runners.execute.perform import give_back_freed


@pytest.mark.parametrize("used", [False, True])
def test_what_torch_keeps_of_a_gpu_is_given_back(used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: used)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given.append(True))
    give_back_freed()
    assert given == [True] * used
