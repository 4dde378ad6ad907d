"""Out of memory: a real one in a process with little of it, and what is said of rows, single sequences and optimizers."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.price.memory import Recipe, from_config
from runners.machine.memory import describe_memory, explain_oom, explain_training, is_out_of_memory
from runners.train import run
from runners.train.batch import TrainBatch
from runners.train.update import Learner
from tests.train.models import small_model
from tests.train.test_train import sft

CPU = torch.device("cpu")
OUT = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def told(rows, length, fault=OUT):
    """What a pass over some rows says where it runs out of memory, with 64 tokens at once."""
    learner = Learner.of(small_model(), (), 0.0, microbatch=64)
    batch = TrainBatch.of([[3]] * rows, [[4] * length] * rows)
    (part,) = learner.microbatches(batch, 1, learner.assign_rows(batch))
    with pytest.raises(Problem) as caught, learner.explain_oom(part):
        raise fault
    (found,) = caught.value.diagnostics
    assert found.code == "E0937"
    return found


def test_rows_that_are_too_many_are_halved(refusal):
    found = told(4, 15)
    refusal(
        "train/E0937.txt",
        Problem(found),
        (describe_memory(CPU), "the machine has SO MUCH"),
        task="tiny.train.s1",
    )
    assert found.message == "memory ran out on a micro-batch of 4 rows, 60 tokens"
    assert found.help == "write `microbatch = 30 tokens` or less, which is 64 now"
    assert "Tried to allocate 2.00 GiB" in found.notes[0]
    assert "the machine has" in found.notes[1]
    # 60 tokens x 2 layers x (4 x 32 + 2 x 32 + 2 x 16 + 3 x 48) numbers of 4 bytes, and 8 bytes a token and word.
    assert f"{(60 * 2 * 368 * 4 + 8 * 60 * 23) / 2**20:.3g} MiB in float32" in found.notes[2]


def test_a_single_sequence_and_the_optimizer_have_their_own_advice():
    assert "checkpointing = on" in (told(1, 64, MemoryError()).help or "")
    with (
        pytest.raises(Problem, match="in the optimizer's step"),
        Learner.of(small_model(), (), 0.0).explain_oom(),
    ):
        raise OUT


def test_weights_that_do_not_fit_are_told_of(bench, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(run, "load_trained_model", full)
    with pytest.raises(Problem, match="memory ran out while weights were put on the device"):
        bench.train(sft(), "unplaced", start="base", data="traces")


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "could not create a memory object",
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory",
        "NCCL error: unhandled cuda error: Cuda failure 2 'out of memory'",
    ],
)
def test_what_libraries_say_of_memory_is_known(words: str) -> None:
    assert is_out_of_memory(RuntimeError(words))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="shapes"), explain_oom(CPU, lambda: ("", [], "")):
        raise RuntimeError("shapes do not fit")


CODE = """
import resource, torch
from reodsl.diagnostics import Problem
from runners.train.stages import Trace
from runners.train.stages import sft_step
from runners.train.optimizers import build_optimizers
from runners.train.update import Learner
from reodsl.ir.training import Optimizer
from tests.train.models import small_model
torch.set_num_threads(1)
model = small_model()
learner = Learner.of(model, build_optimizers(model, Optimizer(algorithm="adamw", lr=1e-3)), 1.0, microbatch=2**20)
traces = [Trace((3,), (4,) * 2000)] * 200
sft_step(learner, [Trace((3,), (4, 5))], 0)
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 2**28, held + 2**28))
try:
    sft_step(learner, traces, 1)
except Problem as caught:
    print(caught.diagnostics[0].code, caught.diagnostics[0].message)
"""


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
def test_memory_that_is_really_out_is_told_of():
    assert resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("E0937 memory ran out on a micro-batch of 200 rows, 400000 tokens")


def test_what_makes_the_state_smaller_is_named_unless_it_is_there():
    sizes, gpu, end = (
        from_config(small_model().config.to_dict()),
        torch.device("cuda"),
        "take a smaller model",
    )
    for recipe, lines in (
        (Recipe(), "write `lora { rank = 32 }`, `optim { on = host }`, "),
        (Recipe(on_host=True), "write `lora { rank = 32 }`, "),
        (Recipe(adapters=100), ""),
    ):
        told = explain_training(sizes, gpu, "", recipe)[2]
        assert told == f"{lines}take more GPUs in `cluster`, or {end}"
    assert "host" not in explain_training(sizes, CPU, "")[2]
