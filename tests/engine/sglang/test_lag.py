"""Rollouts beside training, from real servers: responses that go on, and a stage that is interrupted."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from reodsl.graph.job import Progress, Resources
from reodsl.ir.training import Stage
from runners.engine.protocol import Request, TokenSampling
from runners.engine.sglang.engine import SGLangEngine
from tests.engine.engine_reference import STOP, make_requests
from tests.train.conftest import Bench, Stopped
from tests.train.conftest import bench as bench
from tests.train.test_lag import lagging

pytestmark = pytest.mark.sglang
APART = Resources(engine="sglang", disaggregated=True)


def test_a_response_goes_on_where_it_was_cut(engine: SGLangEngine) -> None:
    """In two calls, the second of which has what the first gave behind its prompts, as in one."""
    sampling = TokenSampling(24, stop_ids=(STOP,))
    requests = make_requests(6, 2, seed=2)
    whole = engine.generate(requests, sampling)
    begun = engine.generate(requests, replace(sampling, max_tokens=7))
    cut = [i for i, one in enumerate(begun) if one.finish == "length"]
    assert cut
    later = [
        Request(requests[i].prompt + begun[i].tokens, requests[i].seed, len(begun[i].tokens)) for i in cut
    ]
    rest = engine.generate(later, replace(sampling, max_tokens=17))
    for i, one in zip(cut, rest, strict=True):
        assert begun[i].tokens + one.tokens == whole[i].tokens
        assert begun[i].logprobs + one.logprobs == pytest.approx(whole[i].logprobs, abs=1e-4)


def killed_at(root: Path, stage: Stage, step: int) -> None:
    """Begins a stage, and is killed as it reports a step: the server is at work on the next one."""
    torch.set_num_threads(1)

    def die(told: Progress) -> None:
        if told.done == step:
            os.kill(os.getpid(), signal.SIGKILL)

    given = {"start": "base", "data": "questions", "resources": APART, "on_progress": die}
    Bench(root).train(stage, "served", **given)  # type: ignore[arg-type]


@pytest.mark.heavy
@pytest.mark.usefixtures("python")
def test_a_stage_beside_a_server_goes_on_to_the_same_rollouts(bench) -> None:  # type: ignore[no-untyped-def]
    """Stopped in order, and then killed with its rollouts under way."""
    stage = lagging(steps=4, save_every=1)
    whole: Path = bench.train(stage, "served_whole", start="base", data="questions", resources=APART)
    versions = pl.read_parquet(whole / "rollouts.parquet")["weight_versions"].list.max()
    assert versions.max() >= 1
    with pytest.raises(Stopped):
        bench.train(stage, "served", start="base", data="questions", resources=APART, stop_at=2)
    child = get_context("spawn").Process(target=killed_at, args=(bench.root, stage, 3))
    child.start()
    child.join(300)
    assert child.exitcode == -signal.SIGKILL
    again: Path = bench.train(stage, "served", start="base", data="questions", resources=APART)
    # Here a log-probability's last bits depend on what else the server computes, and ratios divide by them.
    assert (whole / "rollouts.parquet").read_bytes() == (again / "rollouts.parquet").read_bytes()
    weights = [load_file(out / "checkpoint" / "model.safetensors") for out in (whole, again)]
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, atol=1e-4, rtol=0)
