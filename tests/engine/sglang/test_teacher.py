"""A teacher on a server: its numbers against the model's own, at the end of servers, and stages taught by one."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from reodsl.graph.job import Resources
from reodsl.ir.training import Loss
from reodsl.ir.wording import Wording
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Server
from runners.train.batch import TrainBatch
from runners.train.teacher import LEAST_REST, ServedTeacher
from runners.train.update import Learner
from tests.engine.engine_reference import VOCAB
from tests.train.conftest import bench as bench
from tests.train.test_lag import lagging
from tests.train.test_train import ppo

pytestmark = pytest.mark.sglang


def make_batch() -> TrainBatch:
    """Rows of several lengths: one without a trained token, one with a gap, and each with other words for the teacher."""
    draw = torch.Generator().manual_seed(3)

    def some(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(5, VOCAB, (count,), generator=draw).tolist())

    prompts = [some(count) for count in (3, 1, 6, 4)]
    responses = [some(count) for count in (9, 30, 0, 12)]
    return TrainBatch.of(prompts, responses, [[], [(4, 7)], [], []], [some(count) for count in (5, 2, 1, 9)])


@pytest.fixture
def teacher(engine: SGLangEngine, folder: Any) -> ServedTeacher:
    return ServedTeacher(engine, folder, VOCAB, in_turn=True)


def test_a_server_tells_what_the_model_thinks(teacher: ServedTeacher, served_model: Any) -> None:
    """A server whose weights were given back and read again; the trainers' pass over the same rows is the reference."""
    batch = make_batch()
    learner = Learner.of(served_model, (), 0.0)
    torch.testing.assert_close(teacher.read(batch), learner.score(batch.asked_rows(), 1.0), rtol=0, atol=2e-5)
    count = 4
    found, rows = teacher.compare(batch, count), batch.asked_rows()
    ids, logprobs = learner.likeliest(rows, count, VOCAB, 1.0)
    assert len(ids) == int(batch.trained.sum()) == 44
    assert torch.equal(found.likeliest, ids)
    torch.testing.assert_close(found.likelihoods[:, :count], logprobs[:, :count], rtol=0, atol=2e-5)
    # What is left of 1 has few digits left where the likeliest are nearly all.
    torch.testing.assert_close(found.likelihoods[:, count].exp(), logprobs[:, count].exp(), rtol=0, atol=2e-6)
    assert float(found.likelihoods[:, count].min()) >= np.log(LEAST_REST) - 1e-6


def test_more_likeliest_tokens_than_there_are_is_all_but_one(teacher: ServedTeacher) -> None:
    found = teacher.compare(make_batch(), 10 * VOCAB)
    assert found.likeliest.shape == (44, VOCAB - 1)
    assert found.likelihoods.shape == (44, VOCAB)


def test_a_server_that_dies_is_asked_again(teacher: ServedTeacher, server: Server) -> None:
    """Between two readings, and while it reads."""
    batch, still = make_batch(), replace(teacher, in_turn=False)
    # Whoever read before may have left it at rest.
    still.engine.load_weights(still.folder, 0)
    whole = still.read(batch)
    assert server.process is not None
    os.killpg(server.process.pid, signal.SIGKILL)
    torch.testing.assert_close(still.read(batch), whole, rtol=0, atol=2e-5)
    torch.testing.assert_close(teacher.read(batch), whole, rtol=0, atol=2e-5)


@pytest.mark.heavy
@pytest.mark.usefixtures("python")
@pytest.mark.parametrize(
    ("form", "apart"), [(Loss(estimator="k3"), False), (Loss(estimator="reverse", top_k=3), True)]
)
def test_a_stage_is_taught_as_by_the_trainers(bench: Any, form: Loss, apart: bool) -> None:
    """By servers that take turns with the engine, and by some that stay beside it and read while the trainer learns."""
    changes = {"kl": 0.5, "loss": form, "teacher_wording": Wording(name="w", question="{question} hmm")}
    outs = []
    for place in ("trainers", "servers"):
        plain = lagging(steps=3) if apart else ppo(steps=3)
        method = plain.method.model_copy(update=changes | {"teacher_on": place})
        outs.append(
            bench.train(
                plain.model_copy(update={"method": method}),
                f"{place}_{form.estimator}",
                start="base",
                data="questions",
                teacher="init",
                resources=Resources(engine="sglang", apart=apart),
            )
        )
    one, other = (pl.read_parquet(out / "metrics.parquet") for out in outs)
    for name in ("kl", "loss"):
        assert one[name].to_list() == pytest.approx(other[name].to_list(), rel=2e-3)
    assert "seconds_teach" in pl.read_parquet(outs[1] / "timings.parquet").columns
