"""The memory of a training GPU at its peak, counted on tensors without numbers, against what a plan says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from runners.train import logprobs
from runners.train.attention import Sequences, pack
from runners.train.forward import keep_little
from runners.train.ranks import Ranks
from runners.train.sharding import shard
from tests.price.test_memory import CONFIGS, FOUND, GIB, TOKENS, planned

CPU = torch.device("cpu")


@pytest.fixture
def world() -> Iterator[int]:
    """A group of 128 processes of which this one alone is there."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=128)
    yield 128
    dist.destroy_process_group()


def counted(name: str, world: int) -> float:
    """GiB at the peak of a step on one packed row, with activations computed again and AdamW."""
    mesh = init_device_mesh("cpu", (world,))
    config = dict(CONFIGS[name])
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(config.pop("model_type"), **config), dtype=torch.float32
        ).eval()
        keep_little(model)
        pack(model)
        scorer = shard(model, Ranks(0, world, mesh), torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters())
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        ids = torch.zeros(1, TOKENS, dtype=torch.int64)
        where = Sequences(ids, torch.tensor([0, TOKENS], dtype=torch.int32), (TOKENS,))
        tracker = FSDPMemTracker(scorer, optimizer)
        tracker.track_inputs((ids,))
        with tracker:
            found = scorer(ids, ids[0], ids[0], 1.0, sequences=where)
            (found * found).sum().backward()
            optimizer.step()
    return float(tracker.get_tracker_snapshot("peak")[CPU]["Total"]) / GIB


@pytest.mark.heavy
@pytest.mark.parametrize("name", CONFIGS)
def test_the_peak_of_real_configurations_is_what_a_plan_says(
    name: str, world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", logprobs.GPU_CHUNK_ELEMENTS)
    peak = counted(name, world)
    assert peak == pytest.approx(FOUND[name][1], rel=0.05)
    assert planned(name, world) == pytest.approx(peak, rel=0.1)
