"""A real server on the checkpoint that processes which share a model have left."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reodsl.graph.job import Job, Resources
from reodsl.graph.task import Task
from runners.engine.open import open_engine
from runners.engine.protocol import Request, TokenSampling
from runners.models.folder import load_model, save
from runners.models.tokenizer import word_tokenizer
from runners.train.launch import train_together
from tests.train.models import small_model

GREEDY = TokenSampling(12, temperature=0.0)


@pytest.mark.sglang
@pytest.mark.parametrize("tied", [True, False])
def test_a_checkpoint_of_two_processes_is_served_as_transformers_reads_it(
    python: Path, tmp_path: Path, tied: bool
) -> None:
    """Its weights were read in rows, spread, put together and written; greedy tokens are those of `transformers`."""
    words = word_tokenizer([f"w{i}" for i in range(20)])
    save(small_model(tied=tied), words, tmp_path / "model-one")
    (tmp_path / "out").mkdir()
    job = Job(
        Task("t", "train", {}, {}),
        {},
        tmp_path / "out",
        *[tmp_path] * 2,
        lambda told: None,
        Resources(trainers=2),
    )
    train_together(job, "tests.train.shared_places:place_all")
    made = tmp_path / "out" / "model-one"
    # The server needs the words of its own vocabulary.
    words.save_pretrained(made)
    model = load_model(made)
    requests = [Request((2, 3, 5), 1), Request((7, 4), 2)]
    engine = open_engine(made, Resources(engine="sglang"), 40, tmp_path / "engine")
    try:
        found = engine.generate(requests, GREEDY)
    finally:
        engine.close()
    for request, response in zip(requests, found, strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*request.prompt, *response.tokens]])).logits[0]
        assert list(response.tokens) == logits[len(request.prompt) - 1 : -1].argmax(-1).tolist()
