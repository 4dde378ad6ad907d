"""Out of memory: a real one in a process with little of it, and what is said of rows, single sequences and optimizers."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.price.memory import Recipe
from runners.machine.memory import exhausted, explain_training_oom, lines_that_save, there_is
from runners.train import run
from tests.train.models import small_model
from tests.train.test_train import sft

CONFIG = small_model().config
CPU = torch.device("cpu")


def told(ids, fault=None, bound=64, lengths=()):
    with pytest.raises(Problem) as caught, explain_training_oom(CONFIG, CPU, ids, bound, lengths=lengths):
        raise fault or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    (found,) = caught.value.diagnostics
    assert found.code == "E0937"
    return found


def test_rows_that_are_too_many_are_halved(refusal):
    found = told(torch.zeros((4, 16), dtype=torch.long))
    refusal(
        "train/E0937.txt", Problem(found), (there_is(CPU), "the machine has SO MUCH"), task="tiny.train.s1"
    )
    assert found.message == "memory ran out on a micro-batch of 4 x 16 tokens"
    assert found.help == "write `microbatch = 32 tokens` or less, which is 64 now"
    assert "Tried to allocate 2.00 GiB" in found.notes[0]
    assert "the machine has" in found.notes[1]
    # 64 tokens x 2 layers x (4 x 32 + 2 x 32 + 2 x 16 + 3 x 48) numbers of 4 bytes, and 8 bytes a token and word.
    assert f"{(64 * 2 * 368 * 4 + 8 * 64 * 23) / 2**20:.3g} MiB in float32" in found.notes[2]


def test_a_single_sequence_and_the_optimizer_have_their_own_advice():
    assert "checkpointing = on" in (told(torch.zeros((1, 64), dtype=torch.long)).help or "")
    assert "optimizer" in told(None, MemoryError()).message


def test_packed_sequences_are_told_of_by_their_number_and_the_longest_stays_whole():
    packed = torch.zeros((1, 60), dtype=torch.long)
    found = told(packed, lengths=(10, 10, 40))
    assert found.message == "memory ran out on a micro-batch of 3 packed sequences, 60 tokens"
    assert found.help == "write `microbatch = 41 tokens` or less, which is 64 now"
    assert (
        told(packed, lengths=(20, 20, 20)).help == "write `microbatch = 30 tokens` or less, which is 64 now"
    )
    assert "checkpointing = on" in (told(packed, lengths=(60,)).help or "")


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
    assert exhausted(RuntimeError(words))
    assert not exhausted(RuntimeError("shapes do not fit"))


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="shapes"), explain_training_oom(CONFIG, CPU, None, 64):
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
    assert done.stdout.startswith("E0937 memory ran out on a micro-batch of 200 x 2000 tokens")


def test_what_makes_the_state_smaller_is_named_unless_it_is_there():
    gpu = torch.device("cuda")
    assert lines_that_save(gpu, Recipe()) == ["`lora { rank = 32 }`", "`optim { on = host }`"]
    assert lines_that_save(gpu, Recipe(on_host=True)) == ["`lora { rank = 32 }`"]
    assert lines_that_save(gpu, Recipe(adapters=100)) == []
    assert "`lora { rank = 32 }`" in (told(None).help or "")
    assert "host" not in (told(None).help or "")
