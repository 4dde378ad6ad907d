"""The memory of a training GPU at its peak, counted on tensors without numbers, against what a plan says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from reodsl.ir.training import Lora
from runners.train import logprobs
from runners.train.adapters import adapt
from runners.train.attention import PackedSequences, pack
from runners.train.ranks import Ranks
from runners.train.sharding import enable_activation_checkpointing, shard
from tests.price.test_memory import ALONE, CONFIGS, FOUND, GIB, RECIPES, TOKENS, planned

CPU = torch.device("cpu")


@contextmanager
def group(world: int) -> Iterator[int]:
    """A group of processes of which this one alone is there."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        yield world
    finally:
        dist.destroy_process_group()


@pytest.fixture
def world() -> Iterator[int]:
    with group(128) as world:
        yield world


def counted(name: str, world: int, lora: Lora | None = None, on_host: bool = False) -> float:
    """GiB at the peak of a step on one packed row, with activations computed again and AdamW, or without its moments."""
    mesh = init_device_mesh("cpu", (world,))
    config = dict(CONFIGS[name])
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(config.pop("model_type"), **config), dtype=torch.float32
        ).eval()
        enable_activation_checkpointing(model)
        pack(model)
        if lora is not None:
            adapt(model, lora, 0)
        scorer = shard(model, Ranks(0, world, mesh), torch.bfloat16)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained)
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        if not on_host:
            optimizer.step()
        ids = torch.zeros(1, TOKENS, dtype=torch.int64)
        where = PackedSequences(ids, torch.tensor([0, TOKENS], dtype=torch.int32), (TOKENS,))
        tracker = FSDPMemTracker(scorer, optimizer)
        tracker.track_inputs((ids,))
        with tracker:
            found = scorer(ids, ids[0], ids[0], 1.0, sequences=where)
            (found * found).sum().backward()
            if not on_host:
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


@pytest.mark.heavy
@pytest.mark.parametrize("line", ALONE)
def test_4b_on_one_gpu_takes_what_a_plan_says(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", logprobs.GPU_CHUNK_ELEMENTS)
    recipe = RECIPES[line]
    with group(1) as world:
        peak = counted("4B", world, Lora(rank=32) if recipe.adapters else None, recipe.on_host)
    assert peak == pytest.approx(ALONE[line], rel=0.05)
    assert planned("4B", world, recipe) == pytest.approx(peak, rel=0.1)
