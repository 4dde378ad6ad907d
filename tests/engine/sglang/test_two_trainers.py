"""Two processes that train one model, each with a real server beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from reodsl.graph.job import Job, Resources
from reodsl.graph.task import Task
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from runners.train.launch import train_together
from tests.train.models import small_model
from tests.train.shared_engines import GREEDY, REQUESTS


@pytest.mark.heavy
@pytest.mark.sglang
@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("apart", [False, True])
def test_servers_get_the_weights_of_both(apart: bool, tmp_path: Path) -> None:
    """Each trainer hands them to its own server, or the first one sends them as it gathers them."""
    save(small_model(seed=0), word_tokenizer([f"w{i}" for i in range(20)]), tmp_path / "model")
    resources = Resources(engine="sglang", trainers=2, engines=2, disaggregated=apart)
    job = Job(Task("t", "train", {}, {}), {}, *[tmp_path] * 3, lambda told: None, resources)
    train_together(job, "tests.train.shared_engines:body")
    found = json.loads((tmp_path / "found.json").read_text())
    model = small_model(seed=5)
    for request, tokens in zip(REQUESTS, found, strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*request.prompt, *tokens]])).logits[0]
        assert logits[len(request.prompt) - 1 : -1].argmax(-1).tolist() == tokens
    assert {len(tokens) for tokens in found} == {GREEDY.max_tokens}
