"""Fused kernels: what liger-kernel is asked for, what is left of its changes, and the functions that are compiled."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers.models.qwen3 import modeling_qwen3

from runners.train import attention, logprobs
from runners.train.attention import apply_liger, can_compile, compile_kernel
from tests.train.models import small_model

CUDA = torch.device("cuda")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in that changes of a module what liger-kernel 0.8 does, and what it was asked for."""
    calls: list[dict[str, Any]] = []

    def apply(model: Any, **wanted: Any) -> None:
        calls.append(wanted)
        modeling_qwen3.apply_rotary_pos_emb = lambda q, k, *others: ("fused", q, k)
        modeling_qwen3.Qwen3RMSNorm = modeling_qwen3.Qwen3MLP = object
        model.model.norm.forward = lambda x: x

    package, module = ModuleType("liger_kernel"), ModuleType("liger_kernel.transformers")
    module._apply_liger_kernel_to_instance = apply  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "liger_kernel", package)
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", module)
    monkeypatch.setattr(attention.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(attention, "can_compile", lambda device: device.type == "cuda")
    for name in ("apply_rotary_pos_emb", "Qwen3RMSNorm", "Qwen3MLP"):
        monkeypatch.setattr(modeling_qwen3, name, getattr(modeling_qwen3, name))
    return calls


def test_a_model_on_cuda_is_given_fused_layers_and_others_stay_as_they_are(
    asked: list[dict[str, Any]],
) -> None:
    ids = torch.tensor([[3, 4, 5]])
    want = small_model()(input_ids=ids).logits
    model = small_model()
    assert apply_liger(model, CUDA)
    (wanted,) = asked
    assert {name for name, own in wanted.items() if own} == {"rope", "rms_norm", "swiglu"}
    # The loss is this project's own.
    assert {name for name, own in wanted.items() if not own} == {
        "cross_entropy",
        "fused_linear_cross_entropy",
    }
    assert "forward" in vars(model.model.norm)
    # Models that come later, and tensors of a processor, are not liger-kernel's.
    torch.testing.assert_close(small_model()(input_ids=ids).logits, want)

    class Elsewhere:
        device = CUDA

    assert modeling_qwen3.apply_rotary_pos_emb(Elsewhere(), 1)[0] == "fused"


def test_nothing_is_fused_on_a_processor(asked: list[dict[str, Any]]) -> None:
    before = modeling_qwen3.apply_rotary_pos_emb
    assert not apply_liger(small_model(), torch.device("cpu"))
    assert asked == []
    assert modeling_qwen3.apply_rotary_pos_emb is before


def test_a_function_is_compiled_for_cuda_alone() -> None:
    assert not can_compile(torch.device("cpu"))
    assert compile_kernel(logprobs._pick, torch.device("cpu")) is logprobs._pick


@pytest.mark.slow
def test_what_is_compiled_has_no_breaks_and_gives_the_same() -> None:
    """Traced as for CUDA, as one graph for any number of rows, and run without kernels of its own."""
    draw = torch.Generator().manual_seed(3)
    logits = torch.randn(5, 11, generator=draw)
    targets = torch.randint(0, 11, (5,), generator=draw)
    grad = torch.randn(5, generator=draw)

    def traced(function: Any) -> Any:
        return torch.compile(function, dynamic=True, fullgraph=True, backend="aot_eager")

    for rows in (5, 3):
        own = logits[:rows], targets[:rows]
        logp, norm = traced(logprobs._pick)(*own)
        want = own[0].log_softmax(-1)
        torch.testing.assert_close(logp, want.gather(1, own[1][:, None]).squeeze(1))
        slopes = traced(logprobs._slopes)(own[0], norm, own[1], grad[:rows], torch.bfloat16)
        onehot = torch.nn.functional.one_hot(own[1], 11)
        exact = (onehot - want.exp()) * grad[:rows, None]
        torch.testing.assert_close(slopes, exact.bfloat16(), atol=1e-6, rtol=1e-2)


@pytest.mark.parametrize(
    ("device", "major", "taken"),
    [("cuda", 9, True), ("cuda", 10, True), ("cuda", 8, False), ("cpu", 9, False)],
)
@pytest.mark.parametrize("installed", [True, False])
def test_flash_attention_4_is_taken_on_the_gpus_that_it_runs_on(
    device: str, major: int, taken: bool, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    active: list[str] = []

    def activate(name: str) -> None:
        if not installed:
            raise ModuleNotFoundError("flash_attn")
        active.append(name)

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))
    monkeypatch.setattr(attention, "activate_flash_attention_impl", activate)
    attention.activate_flash.cache_clear()
    attention.activate_flash(torch.device(device))
    attention.activate_flash(torch.device(device))
    assert active == ["FA4"] * (taken and installed)
    attention.activate_flash.cache_clear()


def test_the_kernels_of_the_list_compile_for_hopper_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and back, as torch calls them."""
    target = {"FLASH_ATTENTION_ARCH": "sm_90", "CUTE_DSL_ARCH": "sm_90a", "FLASH_ATTENTION_NUM_SMS": "132"}
    for name, value in target.items():
        monkeypatch.setenv(name, value)
    pytest.importorskip("flash_attn.cute")
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.nn.attention import _fa4

    monkeypatch.setattr(_fa4, "_FA4_MODULE_PATH", "flash_attn.cute.interface")
    with FakeTensorMode():
        query, key, value = (
            torch.empty(128, heads, 128, dtype=torch.bfloat16, device=CUDA) for heads in (8, 2, 2)
        )
        starts = torch.empty(4, dtype=torch.int32, device=CUDA)
        places = (starts, starts, 70, 70, 0.1, True, -1, 0)
        out, sums = _fa4._fa4_run_forward(query, key, value, *places, None)
        grads = _fa4._fa4_run_backward(out, query, key, value, out, sums, starts, starts, 0.1, True, -1, 0)
    assert [each.shape for each in (out, *grads)] == [query.shape, query.shape, key.shape, value.shape]
