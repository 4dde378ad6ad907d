"""A miniature that trains in a second: a one-layer model, short chains of sums, and jobs on both."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from reodsl.graph.job import Job, Progress, Resources
from reodsl.graph.task import Kind, Task
from reodsl.ir.base import IR
from reodsl.ir.data import Data, TaskData
from reodsl.ir.model import Architecture, Forcing, Model, Prompt, WordTokenizer
from reodsl.ir.task import FoldTask, FoldTraces, TraceStyle
from reodsl.ir.training import Optimizer, Sft, Stage
from runners.data.load import data as prepare_data
from runners.models.prepare import model as prepare_model
from runners.train.run import train
from tests.devices.fixture import device as device
from tests.devices.fixture import other as other
from tests.devices.fixture import plain_cpu as plain_cpu
from tests.worked import work_of

TASK = FoldTask(
    modulus=3,
    values=("0", "1", "2"),
    operations=("+1", "+2", "-1"),
    labels=("a", "b", "c", "d"),
    question="<q> {start} {steps} ? <think>",
    step="{label} {op}",
    length=(2, 4),
)
TRACES = FoldTraces(
    styles=(TraceStyle(name="medium", template="{label} {value} {op} {next}", weight=1.0),),
    open="hmm .",
    close="so {value} .",
    again="",
    answer="</think> answer \\boxed{ {value} }",
)
WORDS = (*"0123", "+1", "+2", "-1", *"abcd", "<q>", "?", "hmm", ".", "so", "answer", "\\boxed{", "}")
MODEL = Model(
    name="mini",
    source=Architecture(
        family="qwen3",
        hidden=32,
        layers=1,
        heads=2,
        kv_heads=1,
        head_dim=16,
        intermediate=48,
        tokenizer=WordTokenizer(words=WORDS, eos="<eos>", pad="<pad>"),
    ),
    context=96,
    prompt=Prompt(template="{question}"),
    think_open="<think>",
    think_close="</think>",
)
FORCING = Forcing(text="</think> answer \\boxed{", answer_tokens=1)


ONE = Resources()


def dump(value: IR) -> dict[str, Any]:
    return value.model_dump(mode="json")


class Stopped(Exception):
    """Stands for the end of a process in the middle of its work."""


@dataclass
class Bench:
    """A folder of artifacts by name, and the tasks that make them."""

    root: Path

    def run(
        self,
        kind: Kind,
        runner: Callable[[Job], None],
        payload: dict[str, Any],
        inputs: dict[str, str],
        name: str,
        stop_at: int | None = None,
        resources: Resources = ONE,
        on_progress: Callable[[Progress], None] = lambda told: None,
    ) -> Path:
        """Runs one task; with `stop_at` it ends with `Stopped` once that many units are reported."""
        out, work = self.root / name, self.root / f"{name}.work"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        work.mkdir(exist_ok=True)

        def progress(told: Progress) -> None:
            on_progress(told)
            if told.done == stop_at:
                raise Stopped

        task = Task(name, kind, work_of(payload), {}, arm=name)
        given = {role: self.root / own for role, own in inputs.items()}
        runner(Job(task, given, out, work, self.root, progress, resources))
        return out

    def train(
        self, stage: IR, name: str, *, start: str, data: str, index: int = 0, seed: int = 1, **more: Any
    ) -> Path:
        payload = {"stage": dump(stage), "model": dump(MODEL), "seed": seed, "index": index}
        options = {key: more.pop(key) for key in ("stop_at", "resources", "on_progress") if key in more}
        return self.run("train", train, payload, {"start": start, "data": data, **more}, name, **options)


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Artifacts `init` (fresh weights), `traces`, `questions`, and `base`, which solves some of the questions."""
    with one_thread():
        made = Bench(tmp_path_factory.mktemp("bench"))
        made.run("model", prepare_model, {"model": dump(MODEL), "seed": 1}, {}, "init")
        for name, traces, count in (("traces", TRACES, 64), ("questions", None, 40)):
            source = TaskData(task=TASK, count=count, seed=2, traces=traces)
            declared = Data(name=name, sources=(source,), verifier="exact")
            made.run("data", prepare_data, {"data": dump(declared)}, {}, name)
        optim = Optimizer(algorithm="muon", lr=1e-2, decay="linear")
        method = Sft(batch=8, max_tokens=60)
        unnamed = Data(name="", sources=(), verifier="exact")
        stage = Stage(name="sft", method=method, data=unnamed, optim=optim, steps=60)
        made.train(stage, "base", start="init", data="traces")
        yield made
