"""The engine on another device: the CPU's numbers, to the bit where its kernels run; one wait a step; what suits a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.diagnostics.render import render
from runners.engine.embedded import EmbeddedSettings
from runners.engine.embedded import engine as module
from runners.engine.protocol import Generation, TokenSampling
from tests.devices.module import MEMORY, NAME
from tests.devices.simulated import simulated, waits
from tests.engine.engine_reference import STOP, engine_of, make_requests

pytestmark = pytest.mark.slow

SAMPLED = TokenSampling(14, stop_ids=(STOP, 5))
WAYS = {
    "sampled": SAMPLED,
    "greedy": replace(SAMPLED, temperature=0.0),
    "tempered and cut": replace(SAMPLED, temperature=0.7, top_p=0.9, top_k=7),
}
REQUESTS = make_requests(4, 3, seed=2, lengths=(2, 9))
CUTS = [[0, 1, 4, 9, 13, 300][number % 3 :] for number in range(len(REQUESTS))]


def work(model: Any, sampling: TokenSampling, device: str) -> tuple[Any, ...]:
    """Responses of cohorts that overlap, answers forced from the kept caches, from none, and without a text."""
    engine = engine_of(model, device=device, rows=5)
    responses = engine.generate(REQUESTS, sampling)
    fresh = engine_of(model, device=device, prefill_tokens=64)
    answers = replace(sampling, max_tokens=4)
    return (
        responses,
        engine.force(REQUESTS, responses, CUTS, (11, 3, 8), answers),
        fresh.force(REQUESTS, responses, CUTS, (11, 3, 8), answers),
        fresh.force(REQUESTS, responses, CUTS, (), replace(answers, max_tokens=1)),
    )


def same(found: Any, want: Any, device: str) -> bool:
    """Whether all is equal; on CUDA, whose kernels add in another order, log-probabilities may differ in the last bits."""
    if device == NAME:
        return bool(found == want)
    if isinstance(want, Generation):
        return found.tokens == want.tokens and found.logprobs == pytest.approx(want.logprobs, abs=1e-4)
    if isinstance(want, list | tuple):
        return len(found) == len(want) and all(same(*pair, device) for pair in zip(found, want, strict=True))
    return bool(found == want)


@pytest.mark.usefixtures("plain_cpu")
@pytest.mark.parametrize("way", WAYS)
def test_another_device_gives_the_same_numbers(one_model: Any, way: str, other: str) -> None:
    want = work(one_model, WAYS[way], "cpu")
    assert same(work(one_model, WAYS[way], other), want, other)


@pytest.mark.usefixtures("plain_cpu")
def test_every_shape_runs_there(model: Any, other: str) -> None:
    requests = make_requests(2, 2)
    want = engine_of(model).generate(requests, replace(SAMPLED, max_tokens=6))
    found = engine_of(model, device=other).generate(requests, replace(SAMPLED, max_tokens=6))
    assert same(found, want, other)


def test_the_device_is_waited_for_once_a_step(one_model: Any) -> None:
    with simulated():
        engine = engine_of(one_model, device=NAME)
        waits.clear()
        responses = engine.generate(REQUESTS, SAMPLED)
        steps = max(len(response.tokens) for response in responses)
        assert +waits == {"copy to the CPU": steps}
        waits.clear()
        engine.force(REQUESTS, responses, CUTS, (11, 3, 8), TokenSampling(3))
        assert +waits == {"copy to the CPU": 3}


def test_caches_on_a_gpu_go_by_its_free_memory() -> None:
    assert EmbeddedSettings.on("cpu") == EmbeddedSettings()
    with simulated():
        assert EmbeddedSettings.on(NAME) == EmbeddedSettings(device=NAME, cache_bytes=MEMORY // 2 // 3)


def test_memory_that_runs_out_is_told_with_numbers(
    one_model: Any, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity"
        )

    with simulated():
        engine = engine_of(one_model, device=NAME, cache_bytes=1 << 30)
        responses = engine.generate(REQUESTS, SAMPLED)
        monkeypatch.setattr(module, "generate", full)
        monkeypatch.setattr(module, "force", full)
        with pytest.raises(Problem) as caught:
            engine.generate(REQUESTS, SAMPLED)
        golden("engine/E0937-memory.txt", render(caught.value.diagnostics, {}))
        with pytest.raises(Problem, match="memory ran out while forcing 60 answers"):
            engine.force(REQUESTS, responses, CUTS, (11,), SAMPLED)
