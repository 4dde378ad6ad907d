"""Training sharded over several processes against training in one: weights, tables, death of a process, and resumption."""

from __future__ import annotations

import json
import os
import signal

import polars as pl
import psutil
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from reodsl.diagnostics import Problem
from reodsl.graph.job import Job, Resources
from reodsl.graph.task import Task
from reodsl.ir.training import Loss, Optimizer, Sampling, Simpo, Stage
from runners.machine.process import ProcessDied
from runners.train.launch import train_together
from runners.train.ranks import ALONE
from tests.train import shared_steps
from tests.train.conftest import MODEL, Stopped
from tests.train.test_tracks import REWARD
from tests.train.test_train import NO_DATA, ppo, same, sft

pytestmark = pytest.mark.slow

TWO, COPIES = Resources(trainers=2), Resources(trainers=4, parts=2)
NEAR, NEAR_MUON = 5e-6, 5e-4
"""How far weights may be apart after three steps of 1e-3 each. Sums are taken in another order, which are
last bits; Muon's iteration makes more of them."""


METHODS = {
    "ppo": {"reward": REWARD, "kl": "reward.warm", "entropy": "reward.answered"},  # each read at the step
    "phases": {"rollout": Sampling(max_tokens=14, solution=5), "loss": Loss(ending_tokens="policy")},
}


def furthest(ours, theirs):
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def job(folder, resources=TWO):
    return Job(
        Task("steps", "train", {"model": MODEL}, {}), {}, folder, folder, folder, lambda told: None, resources
    )


def test_two_processes_take_the_steps_of_one_and_an_error_elsewhere_is_told_here(tmp_path):
    """In one start of a second process, which imports for seconds."""
    with pytest.raises(ProcessDied) as caught:
        train_together(job(tmp_path), "tests.train.shared_steps:body_and_fail")
    (told,) = caught.value.diagnostics
    assert told.message.endswith(
        "process 1 of 2 that train together ended: ArithmeticError: no number comes of this"
    )
    assert any("in fail" in line for line in told.notes)
    assert followers() == []
    as_one_alone(tmp_path)


@pytest.mark.heavy
def test_two_copies_in_two_parts_each_take_the_steps_of_one(tmp_path):
    """Norms that are clipped, moments and metrics count each weight once."""
    with pytest.raises(ProcessDied):
        train_together(job(tmp_path, COPIES), "tests.train.shared_steps:body_and_fail")
    as_one_alone(tmp_path)


def as_one_alone(tmp_path):
    """The steps of all cases are those of this process alone."""
    for case in shared_steps.CASES:
        learner, rows = shared_steps.take_steps(case, ALONE)
        two = load_file(tmp_path / f"{case}.safetensors")
        start = shared_steps.small_model(tied=case != "muon").state_dict()
        assert furthest(two, start) > 1e-4, case
        assert furthest(two, learner.weights()) < (NEAR_MUON if case == "muon" else NEAR), case
        for row, other in zip(json.loads((tmp_path / f"{case}.json").read_text()), rows, strict=True):
            assert row == pytest.approx(other, rel=1e-3, abs=1e-5), case


@pytest.mark.heavy
def test_memory_that_runs_out_in_one_of_several_processes_is_told_as_in_one_alone(tmp_path):
    with pytest.raises(Problem) as caught:
        train_together(job(tmp_path), "tests.train.shared_steps:full")
    (told,) = caught.value.diagnostics
    assert (told.code, told.message) == ("E0937", "memory ran out on a micro-batch")
    assert told.help == "write `microbatch = 21 tokens` or less, which is 40 now"
    assert followers() == []


def followers():
    """Processes that train beside this one."""
    return [
        child.pid
        for child in psutil.Process().children()
        if "runners.train.follower" in " ".join(child.cmdline())
    ]


def cut_while_saving(work):
    """What a process leaves that dies as it saves: a file cut in half, one that is whole, and no index that names them."""
    kept = work / json.loads((work / "shards.json").read_text())["folder"]
    newer = work / "shards-00000003"
    assert newer != kept
    newer.mkdir(exist_ok=True)
    data = (kept / "0-of-2.safetensors").read_bytes()
    (newer / ".0-of-2.safetensors.1").write_bytes(data[: len(data) // 2])
    (newer / "1-of-2.safetensors").write_bytes((kept / "1-of-2.safetensors").read_bytes())
    (work / ".shards.json.1.abcd").write_bytes(b'{"folder": "shards-0000')


@pytest.mark.heavy
def test_a_stage_of_copies_goes_on_to_the_same_bytes(bench):
    """One copy is saved, by its two processes."""
    stage = sft(steps=4, algorithm="adamw", save_every=1)
    whole = bench.train(stage, "copies", start="base", data="traces", resources=COPIES)
    with pytest.raises(Stopped):
        bench.train(stage, "copies_cut", start="base", data="traces", resources=COPIES, stop_at=3)
    index = json.loads((bench.root / "copies_cut.work" / "shards.json").read_text())
    files = sorted(each.name for each in (bench.root / "copies_cut.work" / index["folder"]).iterdir())
    assert files == ["0-of-2.safetensors", "1-of-2.safetensors"]
    same(whole, bench.train(stage, "copies_cut", start="base", data="traces", resources=COPIES))


@pytest.mark.heavy
def test_a_killed_process_is_told_of_and_the_stage_goes_on_to_the_same_bytes(bench, refusal):
    """And what comes of it loads in `transformers`, with the logits that one process ends with."""
    stage = sft(steps=4, algorithm="adamw", save_every=1)
    whole = bench.train(stage, "two_whole", start="base", data="traces", resources=TWO)

    def kill(told):
        if told.done == 2:
            (pid,) = followers()
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(Problem) as caught:
        bench.train(stage, "two", start="base", data="traces", resources=TWO, on_progress=kill)
    refusal("train/E0938.txt", caught.value, task="two")
    assert followers() == []
    cut_while_saving(bench.root / "two.work")
    same(whole, bench.train(stage, "two", start="base", data="traces", resources=TWO))
    one = bench.train(stage, "one", start="base", data="traces")
    ids = torch.arange(2, 12)[None]
    two, one = (
        AutoModelForCausalLM.from_pretrained(folder / "checkpoint", dtype=torch.float32)
        for folder in (whole, one)
    )
    with torch.no_grad():
        torch.testing.assert_close(two(ids).logits, one(ids).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.heavy
def test_what_two_processes_left_one_takes_on(bench):
    """Saved by some, finished by one, then the other way round; near what one process makes of it alone."""
    stage = sft(steps=4, algorithm="adamw", save_every=2)
    alone = bench.train(stage, "alone", start="base", data="traces")
    for first, then in ((COPIES, Resources()), (TWO, COPIES), (TWO, Resources()), (Resources(), TWO)):
        name = f"{first.trainers}_then_{then.trainers}"
        with pytest.raises(Stopped):
            bench.train(stage, name, start="base", data="traces", resources=first, stop_at=3)
        out = bench.train(stage, name, start="base", data="traces", resources=then)
        assert pl.read_parquet(out / "metrics.parquet").height == 4
        ours = load_file(out / "checkpoint" / "model.safetensors")
        assert furthest(ours, load_file(alone / "checkpoint" / "model.safetensors")) < 2e-5
    ours, theirs = (load_file(folder / "optimizer" / "state.safetensors") for folder in (out, alone))
    assert furthest(ours, theirs) < 1e-4


@pytest.mark.parametrize("checkpointing", ["auto", "on"])
def test_bfloat16_passes_over_float32_weights(bench, checkpointing):
    """One process: weights and moments stay float32, and the losses are those of float32 within bfloat16's eight bits.

    It shards its model where activations are computed again, as on a GPU. At a tenth of the usual learning rate: at that
    one, two steps make 5% of a difference of 1%.
    """
    stage = sft(steps=3, algorithm="adamw")
    stage = stage.model_copy(update={"optim": stage.optim.model_copy(update={"lr": 1e-3})})
    halved = stage.model_copy(update={"precision": "bfloat16", "checkpointing": checkpointing})
    rough = bench.train(halved, f"rough_{checkpointing}", start="base", data="traces")
    fine = bench.train(stage, f"fine_{checkpointing}", start="base", data="traces")
    for part in ("checkpoint/model.safetensors", "optimizer/state.safetensors"):
        state = load_file(rough / part)
        assert {value.dtype for value in state.values()} == {torch.float32}
    weight = load_file(rough / "checkpoint" / "model.safetensors")["model.embed_tokens.weight"]
    assert not torch.equal(weight, weight.bfloat16().float())
    losses = [pl.read_parquet(out / "metrics.parquet")["loss"].to_list() for out in (rough, fine)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    assert losses[0] != losses[1]


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["ppo", "phases", "simpo", "muon"])
def test_whole_stages_on_two_processes_and_their_resumption(bench, kind):
    if kind == "simpo":
        rows = pl.read_parquet(bench.root / "traces" / "questions.parquet")
        worse = rows["trace"] + pl.Series([" hmm hmm"] * rows.height)
        (bench.root / "two_pairs").mkdir()
        rows.with_columns(preferred="trace", rejected=worse).write_parquet(
            bench.root / "two_pairs" / "questions.parquet"
        )
        method = Simpo(batch=5, max_tokens=90, beta=2.0, gamma=0.5)
        optim = Optimizer(algorithm="adamw", lr=1e-3)
        stage, data = Stage(name="p", method=method, data=NO_DATA, optim=optim, steps=6), "two_pairs"
    else:
        stage, data = (ppo(steps=6), "questions") if kind != "muon" else (sft(steps=6), "traces")
    if kind in METHODS:
        stage = stage.model_copy(update={"method": stage.method.model_copy(update=METHODS[kind])})
    saved = stage.model_copy(update={"save_every": 1})
    one = bench.train(stage, f"{kind}_one", start="base", data=data)
    two = bench.train(stage, f"{kind}_two", start="base", data=data, resources=TWO)
    ours, theirs = (load_file(out / "checkpoint" / "model.safetensors") for out in (one, two))
    assert furthest(ours, theirs) < (0.02 if kind == "muon" else 1e-4)
    if kind == "phases":
        assert pl.read_parquet(two / "rollouts.parquet")["thinking_ended"].any()
    with pytest.raises(Stopped):
        bench.train(saved, f"{kind}_again", start="base", data=data, resources=TWO, stop_at=4)
    same(two, bench.train(saved, f"{kind}_again", start="base", data=data, resources=TWO))
