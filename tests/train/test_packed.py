"""Packed sequences: the log-probabilities, gradients and steps of padded ones, for every kind of model that packs."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.attention import varlen
from transformers import AutoConfig, AutoModelForCausalLM

from reodsl.graph.job import Resources
from runners.train import attention, update
from runners.train.attention import MODELS, PackedSequences, pack, packs
from runners.train.batch import TrainBatch, make_packed, make_padded
from runners.train.launch import train_together
from runners.train.ranks import ALONE
from runners.train.sharding import enable_activation_checkpointing
from runners.train.stages import batch_loss
from runners.train.update import Learner, optimizer_step
from tests.train.models import small_model
from tests.train.shared_steps import TRACES, descend, take_steps
from tests.train.test_sharded import NEAR, furthest, job

CPU = torch.device("cpu")
BATCH = TrainBatch.of([trace.prompt for trace in TRACES], [trace.tokens for trace in TRACES])
SHAPE = {
    "vocab_size": 32, "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "max_position_embeddings": 64, "sliding_window": None, "pad_token_id": 0,
}  # fmt: skip


def model_of(kind: str, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(SHAPE | changes))).eval()


def gradients(model: torch.nn.Module, bound: int, packing: bool) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss of one step on `BATCH` and the gradient that it goes down."""
    own = copy.deepcopy(model)
    learner = Learner.of(
        own, [torch.optim.SGD(own.parameters(), lr=1.0)], 0.0, microbatch=bound, packed=packing
    )
    loss = optimizer_step(learner, BATCH, batch_loss, 1.0, "here").loss
    before = dict(model.named_parameters())
    return loss, {name: before[name].detach() - p.detach() for name, p in own.named_parameters()}


def require_alike(
    one: tuple[float, dict[str, torch.Tensor]], other: tuple[float, dict[str, torch.Tensor]]
) -> None:
    assert one[0] == pytest.approx(other[0], rel=1e-5)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], atol=2e-5, rtol=1e-4)
    assert max(float(gradient.abs().max()) for gradient in one[1].values()) > 0.1


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_packed_gradients_are_the_padded_ones(kind: str) -> None:
    model = model_of(kind)
    require_alike(gradients(model, 64, packing=True), gradients(model, 1, packing=False))


@pytest.mark.parametrize("window", [1, 5])
def test_a_window_ends_where_its_sequence_does(window: int) -> None:
    model = model_of("mistral", sliding_window=window)
    require_alike(gradients(model, 64, packing=True), gradients(model, 1, packing=False))
    plain = gradients(model_of("mistral"), 64, packing=True)
    assert plain[0] != pytest.approx(gradients(model, 64, packing=True)[0], rel=1e-4)


def test_packed_steps_compute_activations_again_alike() -> None:
    model = small_model()
    again = copy.deepcopy(model)
    enable_activation_checkpointing(again)
    require_alike(gradients(again, 64, packing=True), gradients(model, 64, packing=False))


def test_a_sequence_does_not_see_the_one_before_it() -> None:
    """The same sequence behind two others, one after the other: the same log-probabilities to the bit."""
    model = small_model()
    learner = Learner.of(model, (), 0.0, microbatch=1000, packed=True)
    found = []
    for first in ((5, 6, 7), (9, 9, 2)):
        batch = TrainBatch.of([(3,), (4,)], [first, (8, 7, 6, 5)])
        found.append(learner.score(batch, 1.0)[3:])
    assert torch.equal(*found)


def test_packed_inputs_say_where_each_sequence_is() -> None:
    batch = TrainBatch.of([(5, 6), (1,)], [(7, 8, 9), (2, 3)])
    rows = torch.tensor([1, 0])
    inputs = make_packed(batch.select(rows), CPU)
    assert inputs.ids.tolist() == [[1, 2, 5, 6, 7, 8]]
    assert inputs.positions.tolist() == [0, 1, 3, 4, 5]
    assert inputs.targets.tolist() == [2, 3, 7, 8, 9]
    assert inputs.sequences is not None
    assert inputs.sequences.positions.tolist() == [[0, 1, 0, 1, 2, 3]]
    assert inputs.sequences.starts.tolist() == [0, 2, 6]
    assert inputs.sequences.starts.dtype == torch.int32
    assert inputs.sequences.lengths == (2, 4)
    assert make_padded(batch.select(rows), CPU).ids.numel() == 8


def test_packed_sequences_are_dealt_without_padding_and_run_by_fused_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fused: list[torch.device] = []
    monkeypatch.setattr(update, "apply_liger", lambda model, device: fused.append(device))
    batch = TrainBatch.of([(5, 6), (1,)], [(7, 8, 9), (2,)])
    learners = {
        packing: Learner.of(small_model(), (), 0.0, microbatch=8, packed=packing) for packing in (True, False)
    }
    parts = {
        packing: learner.microbatches(batch, 1, learner.assign_rows(batch))
        for packing, learner in learners.items()
    }
    assert [len(parts[True]), len(parts[False])] == [1, 2], "5 and 2 tokens: 7, or two rows of 5"
    assert fused == [CPU]


def test_a_packed_micro_batch_without_rows_is_one_token_from_which_nothing_is_learnt() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    inputs = make_packed(BATCH.select(nothing), CPU)
    assert inputs.ids.shape == (1, 1)
    assert (len(inputs.positions), len(inputs.targets)) == (0, 0)
    model = small_model()
    learner = Learner.of(model, (), 0.0, packed=True)
    learner.logprobs(inputs, 1.0).sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_flash_attention_is_asked_for_the_window_and_the_heads_of_each_sequence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What CUDA's kernel is handed, held against `_row_attention`, which every other device runs."""
    sequences = PackedSequences(torch.zeros(1, 7), torch.tensor([0, 3, 7], dtype=torch.int32), (3, 4))
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, heads, 7, 8, generator=draw) for heads in (4, 2, 2))

    def kernel(q, k, v, starts, same, longest, other, *, scale, window_size, enable_gqa):  # type: ignore[no-untyped-def]
        """As torch documents `varlen_attn`, sequence by sequence and key by key."""
        assert (starts is same, longest, other, enable_gqa) == (True, 4, 4, True)
        left, right = window_size
        assert right == 0
        out = torch.empty_like(q)
        for first, end in zip(starts.tolist(), starts.tolist()[1:], strict=False):
            for at in range(first, end):
                begin = first if left < 0 else max(first, at - left)
                for head in range(q.shape[1]):
                    own = head * k.shape[1] // q.shape[1]
                    weights = torch.softmax(k[begin : at + 1, own] @ q[at, head] * scale, 0)
                    out[at, head] = weights @ v[begin : at + 1, own]
        return out

    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    for window in (None, 1, 2):
        found = attention._flash(q, k, v, 0.3, window, sequences)
        want, _ = attention.packed_attention(
            None, q, k, v, None, scaling=0.3, sliding_window=window, sequences=sequences
        )
        torch.testing.assert_close(found, want, atol=1e-6, rtol=1e-5)


def test_a_model_whose_attention_is_not_plain_stays_padded_and_all_do_on_a_processor() -> None:
    model = small_model()
    assert packs(model, torch.device("cuda"))
    assert not packs(model, CPU)
    model.config.model_type = "gpt_oss"
    assert not packs(model, torch.device("cuda"))
    before = small_model()
    pack(before)
    batch = before(input_ids=torch.tensor([[3, 4, 5]])).logits
    torch.testing.assert_close(batch, small_model()(input_ids=torch.tensor([[3, 4, 5]])).logits)


@pytest.mark.parametrize("case", ["sft", "simpo", "ppo", "ppo_tempered", "ppo_held", "checkpointed"])
def test_packed_steps_are_the_padded_ones(case: str) -> None:
    (padded_, rows), (packed_, others) = (take_steps(case, ALONE, packing) for packing in (False, True))
    assert furthest(padded_.weights(), packed_.weights()) < NEAR
    for row, other in zip(rows, others, strict=True):
        assert row == pytest.approx(other, rel=1e-3, abs=1e-5)


@pytest.mark.heavy
@pytest.mark.parametrize("count", [1, 4])
def test_the_gradient_is_one_packed_or_padded_on_one_process_or_four(count: int, tmp_path: Path) -> None:
    """Over gloo; four processes have unlike numbers of tokens, and fewer sequences than they could run at once."""
    want = descend(ALONE, packed=False).weights()
    train_together(job(tmp_path, Resources(trainers=count)), "tests.train.shared_steps:gradients")
    start = small_model().state_dict()
    assert furthest(want, start) > 0.01
    for name in ("padded", "packed"):
        assert furthest(load_file(tmp_path / f"{name}.safetensors"), want) < NEAR
