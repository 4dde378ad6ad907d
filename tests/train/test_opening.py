"""How a stage of rollouts begins and what it shares: engines that start slowly or fail, and what is counted together."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from reodsl.diagnostics import Problem, problem
from reodsl.graph.job import Job, Resources
from reodsl.graph.task import Task
from runners.train import ppo_stage
from runners.train.follower import FollowerJob, ignore_progress
from runners.train.launch import Processes
from runners.train.ranks import Ranks
from runners.train.run import _load_reference
from runners.train.stages import StageRunner
from runners.train.update import Learner
from tests.train.conftest import MODEL
from tests.train.models import small_model
from tests.train.test_train import ppo


class Deaf:
    """An engine that takes no weights."""

    def __init__(self, said):
        self.said = said

    def load_weights(self, state, version):
        raise problem("E0824", "new weights do not reach the server")

    def close(self):
        self.said.append("close")


def test_all_processes_wait_for_the_engine_before_any_collective_and_it_is_closed_when_it_fails(
    bench, monkeypatch
):
    """A collective gives up after minutes, and a server may take longer than that to start."""
    said = []

    def opened(*_):
        said.append("open")
        return Deaf(said)

    weights = Learner.weights
    monkeypatch.setattr(ppo_stage, "open_engine", opened)
    monkeypatch.setattr(Ranks, "barrier", lambda _: said.append("wait"))
    monkeypatch.setattr(Learner, "weights", lambda own: (said.append("weights"), weights(own))[1])
    with pytest.raises(Problem, match="do not reach"):
        bench.train(ppo(), "deaf", start="base", data="questions")
    assert said == ["open", "wait", "weights", "close"]
    said.clear()
    monkeypatch.setattr(ppo_stage.Crew, "serve", lambda _: said.append("weights"))
    ppo_stage.PpoFollower(SimpleNamespace(learner=SimpleNamespace(ranks=Ranks()), reference=None), None)
    assert said == ["wait", "weights"]


def test_nothing_is_opened_where_the_work_folder_cannot_be_made(bench, monkeypatch):
    """Nobody would close the engine: a server would stay on its GPUs."""
    (bench.root / "full.work").write_text("a file where a folder belongs")
    monkeypatch.setattr(ppo_stage, "open_engine", lambda *_: pytest.fail("an engine was opened"))
    with pytest.raises(OSError, match="full"):
        bench.train(ppo(), "full", start="base", data="questions")


def test_all_is_closed_where_one_cannot_be():
    said = []

    def fails():
        said.append("engine")
        raise RuntimeError("the server is gone")

    steps = StageRunner()
    steps.opened.callback(lambda: said.append("verifier"))
    steps.opened.callback(fails)
    with pytest.raises(RuntimeError, match="is gone"), steps:
        pass
    assert sorted(said) == ["engine", "verifier"]


def test_what_a_frozen_model_runs_is_counted_with_the_trained_ones_and_forgotten_with_it(bench):
    learner = Learner.of(small_model(), (), 0.0)
    start = {"start": bench.root / "base"}
    frozen = _load_reference(
        ppo(),
        Job(
            Task("t", "train", {"model": MODEL, "seed": 1, "index": 0}, {}),
            start,
            *[bench.root] * 3,
            ignore_progress,
            Resources(),
        ),
        learner,
    )
    frozen.throughput.add([3], 1, False)
    assert learner.throughput.runs == [(3, 1, False)]
    assert learner.throughput.empty(1.0, None, 1, None) == {}
    assert frozen.throughput.runs == []


def body(job, ranks):
    """Nothing to do."""


@pytest.mark.heavy
def test_a_process_that_is_through_ends_in_order(tmp_path):
    job = Job(Task("t", "train", {}, {}), {}, *[tmp_path] * 3, ignore_progress, Resources(trainers=1))
    # One that meets itself alone, beside this one, which never comes.
    part = FollowerJob(job, "tests.train.test_opening:body", 0, 1, tmp_path / "meeting", 0)
    others = Processes([part, part])
    assert others._running[0].child.wait(60) == 0
    others.stop(0.0)
    assert others.ended() == []
