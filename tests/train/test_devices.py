"""Training on another device: the CPU's numbers, to the bit where its kernels run; interrupted and carried on."""

from __future__ import annotations

import json

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from reodsl.graph.job import Resources
from reodsl.ir.data import Python
from reodsl.ir.training import Loss
from reodsl.store.consent import read_code
from runners.machine.memory import explain_oom
from runners.train import ppo_stage as module
from runners.train.batch import GPU_TOKENS, token_bound
from runners.train.follower import FollowerJob
from runners.train.gather import batch_of, score
from runners.train.metrics import peak_flops
from runners.train.optimizers import build_optimizers
from runners.train.own_loss import UserLoss
from runners.train.ppo import update
from runners.train.ranks import ALONE, join_ranks
from runners.train.run import _choose_precision
from runners.train.stages import sft_step
from runners.train.update import Learner
from tests.devices.module import NAME
from tests.devices.simulated import simulated, waits
from tests.train import shared_steps
from tests.train.conftest import Stopped
from tests.train.models import small_model
from tests.train.test_sharded import NEAR, NEAR_MUON, job
from tests.train.test_train import ppo, same, sft
from tests.train.test_update import experience, method

pytestmark = pytest.mark.slow


def taken(case, ranks, device, monkeypatch, precision=torch.float32):
    """The rows of some steps, and the weights after them."""
    build, shard = shared_steps.build_optimizers, shared_steps.shard
    with monkeypatch.context() as patched:
        if ranks.mesh is None:
            patched.setattr(
                shared_steps, "build_optimizers", lambda model, rule: build(model.to(device), rule)
            )
        patched.setattr(shared_steps, "shard", lambda model, ranks, _: shard(model, ranks, precision))
        learner, rows = shared_steps.take_steps(case, ranks)
    assert learner.device.type == device
    return rows, {name: value.cpu() for name, value in learner.weights().items()}


def require_equal(found, want, device, near):
    """To the bit on the simulated device; CUDA's kernels add in another order."""
    (rows, weights), (wanted_rows, wanted) = found, want
    if device == NAME:
        near = 0.0
        assert rows == wanted_rows
    assert all(float((value - wanted[name]).abs().max()) <= near for name, value in weights.items())


@pytest.mark.usefixtures("plain_cpu")
@pytest.mark.parametrize("case", ["sft", "muon", "simpo", "ppo", "checkpointed"])
def test_steps_there_are_those_of_the_cpu(case, monkeypatch, other):
    want = taken(case, ALONE, "cpu", monkeypatch)
    # A tenth of one step: where a gradient is next to nothing, Adam makes much of its last bits.
    near = 2 * NEAR_MUON if case == "muon" else 20 * NEAR
    require_equal(taken(case, ALONE, other, monkeypatch), want, other, near)


@pytest.mark.usefixtures("plain_cpu")
@pytest.mark.parametrize(
    "case",
    [
        "checkpointed",
        *(
            pytest.param(case, marks=pytest.mark.heavy)
            for case in ("sft", "muon", "simpo", "ppo", "ppo_held")
        ),
    ],
)
def test_sharded_steps_there_in_bfloat16_are_those_of_the_cpu(case, tmp_path, monkeypatch, other):
    found = []
    for device in ("cpu", other):
        with join_ranks(0, 1, HashStore(), torch.device(device, 0)) as ranks:
            found.append(taken(case, ranks, device, monkeypatch, torch.bfloat16))
    # Three steps of 1e-3, of which a gradient near nothing may take each in either direction.
    require_equal(found[1], found[0], other, 6e-3)


@pytest.mark.usefixtures("plain_cpu")
@pytest.mark.parametrize(
    ("kind", "precision"),
    [("sft", "float32"), ("ppo", "float32"), pytest.param("ppo", "auto", marks=pytest.mark.heavy)],
)
def test_a_stage_there_is_that_of_the_cpu_and_goes_on_after_an_interruption(
    bench, kind, precision, monkeypatch, other
):
    stage, data = (ppo(steps=3), "questions") if kind == "ppo" else (sft(3, "adamw"), "traces")
    stage = stage.model_copy(update={"precision": precision, "microbatch": 256, "save_every": 1})
    here = stage
    if precision == "auto":
        here = stage.model_copy(update={"precision": "bfloat16", "checkpointing": "on"})
        monkeypatch.setattr("runners.train.run._is_sharded", lambda *_: True)
    name = f"device_{kind}_{precision}"
    whole = bench.train(here, name, start="base", data=data)
    there = {"start": "base", "data": data, "resources": Resources(device=other)}
    with pytest.raises(Stopped):
        bench.train(stage, f"{name}_{other}", stop_at=2, **there)
    found = bench.train(stage, f"{name}_{other}", **there)
    if other == NAME:
        same(whole, found)
    else:
        assert json.loads((found / "train.json").read_text())["steps"] == stage.steps


@pytest.mark.usefixtures("plain_cpu")
def test_an_optimizer_is_carried_over_there(bench):
    stage = sft(2, "adamw").model_copy(update={"microbatch": 256, "precision": "float32"})
    found = []
    for device in ("cpu", NAME):
        with simulated():
            options = {"data": "traces", "resources": Resources(device=device)}
            bench.train(stage, f"first_{device}", start="base", **options)
            found.append(bench.train(stage, f"second_{device}", start=f"first_{device}", index=1, **options))
    same(*found)


@pytest.mark.usefixtures("plain_cpu")
def test_a_step_on_the_host_of_a_device_is_that_of_the_cpu(bench):
    """Interrupted there and carried on, and then carried over to the next stage; whatever the device, no key changes."""
    here = sft(3, "adamw").model_copy(update={"microbatch": 256, "precision": "float32"})
    hosted = here.model_copy(update={"optim": here.optim.model_copy(update={"on": "host"}), "save_every": 1})
    found = []
    for device, stage in (("cpu", here), (NAME, hosted)):
        with simulated():
            options = {"data": "traces", "resources": Resources(device=device)}
            if device == NAME:
                with pytest.raises(Stopped):
                    bench.train(stage, f"hosted_{device}", start="base", stop_at=2, **options)
            bench.train(stage, f"hosted_{device}", start="base", **options)
            found.append(bench.train(stage, f"after_{device}", start=f"hosted_{device}", index=1, **options))
    same(*found)


@pytest.mark.parametrize("form", ["sequence", "own", "shares"])
def test_a_step_waits_for_the_device_once_whatever_its_micro_batches(form):
    shape = {"own": Python(function="topr.py:loss")} if form == "own" else {"ratio": "sequence"}
    shape |= {"mode_tokens": form} if form == "shares" else {}
    rule = method(epochs=1, minibatches=1, loss=Loss(**shape))
    own = UserLoss(read_code("topr.py:loss", shared_steps.MINIATURE), rule) if form == "own" else None
    batch = batch_of(score(experience(small_model()), rule), rule.loss)
    for bound in (40, 400):
        with simulated():
            model = small_model().to(NAME)
            learner = Learner.of(model, build_optimizers(model, shared_steps.ADAM), 0.5, microbatch=bound)
            waits.clear()
            sft_step(learner, shared_steps.TRACES, 0)
            update(learner, batch, rule, 5, 0, user_loss=own)
            # PPO also reads the gaps to the engine, of which those of given tokens are left out, and its metrics.
            masked = {"index": 1, "nonzero": 1} if form == "shares" else {}
            assert +waits == {"copy to the CPU": 1 + 3, **masked}


def test_the_engine_is_opened_on_the_tasks_device(bench, monkeypatch):
    opened = []
    open_engine = module.open_engine

    def watched(*args):
        opened.append(open_engine(*args))
        return opened[-1]

    monkeypatch.setattr(module, "open_engine", watched)
    stage = ppo(steps=1).model_copy(update={"precision": "float32"})
    devices = []
    for device in ("cpu", NAME):
        stop = {"stop_at": 1, "resources": Resources(device=device)}
        with simulated(), pytest.raises(Stopped):
            bench.train(stage, f"opened_{device}", start="base", data="questions", **stop)
        devices.append(opened[-1]._settings.device)
    assert devices == ["cpu", NAME]


def test_what_a_gpu_is_given(tmp_path):
    for device, precision in (("cpu", torch.float32), (NAME, torch.bfloat16), ("cuda", torch.bfloat16)):
        assert _choose_precision(sft(), job(tmp_path, Resources(device=device))) == precision
    assert token_bound(torch.device("cuda")) == GPU_TOKENS
    with simulated():
        assert peak_flops(torch.device(NAME)) is None
        check_parts(tmp_path)


def check_parts(tmp_path):
    """Each process has its own device of the machine."""
    parts = [
        FollowerJob(job(tmp_path, Resources(device=device)), "", 1, 2, "", 1)
        for device in ("cpu", NAME, "cuda")
    ]
    assert [str(part.device) for part in parts] == ["cpu", f"{NAME}:1", "cuda:1"]


def test_memory_that_runs_out_there_is_told_with_the_devices_numbers():
    with (
        simulated(),
        pytest.raises(Exception, match="memory ran out on a micro-batch") as caught,
        explain_oom(torch.device(NAME), lambda: ("on a micro-batch", [], "")),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    assert "the device has 8 GiB, of which 4 GiB are free" in caught.value.diagnostics[0].notes
