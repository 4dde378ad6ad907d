"""Adapters: their gradients by hand from the merged model's, passes, engines' weights, the start, and whole stages."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import HashStore

from reodsl.diagnostics import Problem
from reodsl.ir.training import Lora, Optimizer
from runners.models.folder import load_model
from runners.models.tensors import TensorFiles
from runners.train.adapters import LoraLinear, adapt, is_adapter, merge_state, remove_adapters
from runners.train.checkpoint import TrainingState, load_state, load_trained_model, save_state
from runners.train.optimizers import build_optimizers
from runners.train.ranks import ALONE, join_ranks
from runners.train.sharding import Scorer, shard
from runners.train.stages import sft_step
from runners.train.update import Learner
from tests.train.conftest import Stopped
from tests.train.models import small_model
from tests.train.shared_steps import TRACES
from tests.train.test_train import OUTCOME, ppo, same, sft

RULE = Optimizer(algorithm="adamw", lr=1e-2)
IDS = torch.tensor([[3, 4, 9, 12, 5, 7], [8, 2, 2, 11, 4, 0]])


def adapted(layers="all", rank=3, alpha=6.0, noise=0.1, **changes):
    """A small model whose adapters count: B is not 0."""
    model = small_model(**changes)
    adapt(model, Lora(rank=rank, alpha=alpha, layers=layers), 7)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("lora_B"):
                parameter.copy_(noise * torch.randn(parameter.shape, generator=draw))
    return model


def merged(model):
    """A plain model with the sums for weights, all of which it trains."""
    state = {name: value.clone() for name, value in merge_state(model).items()}
    plain = copy.deepcopy(model)
    remove_adapters(plain)
    plain.load_state_dict(state)
    return plain.requires_grad_(True)


def test_peft_says_the_same_of_forward_and_merge():
    peft = pytest.importorskip("peft")
    ours, theirs = adapted(), small_model()
    names = {
        name.rpartition(".")[2] for name, module in ours.named_modules() if isinstance(module, LoraLinear)
    }
    assert len(names) == 7
    config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=sorted(names), lora_dropout=0.0)
    theirs = peft.inject_adapter_in_model(config, theirs).eval()
    for name, module in ours.named_modules():
        if isinstance(module, LoraLinear):
            other = theirs.get_submodule(name)
            with torch.no_grad():
                other.lora_A["default"].weight.copy_(module.lora_A)
                other.lora_B["default"].weight.copy_(module.lora_B)
            assert torch.allclose(
                other.get_delta_weight("default"), module.scale * (module.lora_B @ module.lora_A), atol=1e-7
            )
    assert torch.allclose(ours(IDS).logits, theirs(IDS).logits, atol=1e-5)


@pytest.mark.parametrize("layers", ["all", "attention", "mlp"])
def test_gradients_are_the_merged_models_led_back_by_hand(layers):
    """With W + s B A for W: dA = s B' dW and dB = s dW A', and nothing else has any."""
    model = adapted(layers)
    plain = merged(model)
    at = torch.tensor([1, 3, 8])
    seen = torch.randn(3, 32, generator=torch.Generator().manual_seed(2))
    outputs = []
    for each in (model, plain):
        hidden = Scorer(each)(IDS, at, None)
        (hidden * seen).sum().backward()
        outputs.append(hidden)
    assert torch.allclose(*outputs, atol=1e-5)
    count = 0
    for name, module in model.named_modules():
        if isinstance(module, LoraLinear):
            whole = plain.get_submodule(name).weight.grad
            a, b = module.scale * module.lora_B.T @ whole, module.scale * whole @ module.lora_A.T
            assert torch.allclose(module.lora_A.grad, a, rtol=1e-4, atol=1e-5 * float(a.detach().abs().max()))
            assert torch.allclose(module.lora_B.grad, b, rtol=1e-4, atol=1e-5 * float(b.detach().abs().max()))
            count += 1
    assert count == 2 * {"all": 7, "attention": 4, "mlp": 3}[layers]
    assert all((parameter.grad is None) != is_adapter(name) for name, parameter in model.named_parameters())


def test_a_model_begins_as_it_was_and_its_adapters_are_drawn_from_the_seed():
    plain, model = small_model(), adapted(noise=0.0)
    assert torch.equal(plain(IDS).logits, model(IDS).logits)
    for module in model.modules():
        if isinstance(module, LoraLinear):
            bound = 1 / math.sqrt(module.in_features)
            assert 0.8 * bound < float(module.lora_A.detach().abs().max()) <= bound
    twice = [dict(adapt(small_model(), Lora(rank=2), seed)) for seed in (5, 5, 6)]
    name = "model.layers.1.mlp.up_proj.lora_A"
    assert torch.equal(twice[0][name], twice[1][name])
    assert not torch.equal(twice[0][name], twice[2][name])


def learner_of(model, scorer=None, **more):
    optimizers = build_optimizers(model, RULE)
    return Learner.of(model, optimizers, 1.0, scorer=scorer, microbatch=40, **more)


def test_steps_change_adapters_alone_and_engines_get_the_sums():
    learner = learner_of(adapted())
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    sft_step(learner, TRACES, 0)
    for name, value in learner.model.state_dict().items():
        assert torch.equal(value, before[name]) != is_adapter(name), name
    given = learner.weights()
    assert given.keys() == small_model().state_dict().keys()
    plain = small_model()
    plain.load_state_dict(given)
    assert torch.allclose(plain(IDS).logits, learner.model(IDS).logits, atol=1e-5)


def test_sharded_and_packed_adapters_are_those_of_one_process():
    learner = learner_of(adapted())
    row = sft_step(learner, TRACES, 0)
    want = {name: value.clone() for name, value in learner.weights().items()}
    with join_ranks(0, 1, HashStore(), torch.device("cpu")) as ranks:
        model = adapted()
        scorer = shard(model, ranks, torch.float32)
        spread = learner_of(model, scorer, ranks=ranks, packed=True)
        assert spread.passes == 2
        found = sft_step(spread, TRACES, 0)
        assert found["grad_norm"] == pytest.approx(row["grad_norm"], rel=1e-4)
        given = spread.weights()
    assert given.keys() == want.keys()
    assert max(float((given[name] - want[name]).abs().max()) for name in want) < 1e-3


def test_each_process_places_its_rows_and_goes_on_from_them(bench, tmp_path):
    """The base is read from its files and adapters are drawn; of both, training leaves the adapters alone."""
    folder, lora = bench.root / "base" / "checkpoint", Lora(rank=2)
    cpu = torch.device("cpu")
    alone, _ = load_trained_model(folder, cpu, torch.float32, ALONE, lora, 9)
    with join_ranks(0, 1, HashStore(), cpu) as ranks:
        model, scorer = load_trained_model(folder, cpu, torch.float32, ranks, lora, 9)
        named = dict(alone.named_parameters())
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter.full_tensor(), named[name])
            assert parameter.requires_grad == is_adapter(name)
        learner = learner_of(model, scorer, ranks=ranks)
        sft_step(learner, TRACES, 0)
        save_state(tmp_path, model, learner.optimizers, TrainingState([{}], [{}]), ranks)
        want = learner.weights()
        again, scorer = load_trained_model(folder, cpu, torch.float32, ranks, lora, 9)
        other = learner_of(again, scorer, ranks=ranks)
        assert load_state(tmp_path, again, other.optimizers, ranks).steps == 1
        found = other.weights()
        (stored,) = tmp_path.glob("shards-*/*.safetensors")
        names = {name for name in TensorFiles([stored]).names if name.startswith("model/")}
        assert names
        assert all(is_adapter(name) for name in names)
    assert all(torch.equal(found[name], want[name]) for name in want)


def test_a_layer_without_such_a_matrix_is_told_of(refusal):
    model = small_model()
    model.model.layers[1].mlp.up_proj = nn.Identity()
    with pytest.raises(Problem, match=r"no matrix `mlp\.up_proj`") as caught:
        adapt(model, Lora(rank=2), 0)
    (found,) = caught.value.diagnostics
    assert (found.code, found.help) == ("E0940", "write `lora { layers = attention }`")
    refusal("train/E0940.txt", caught.value, task="tiny.train.s1")
    adapt(small_model(), Lora(rank=2, layers="attention"), 0)


@pytest.mark.parametrize("kind", [pytest.param("ppo", marks=pytest.mark.heavy), "sft"])
def test_an_interrupted_stage_of_adapters_ends_with_the_same_bytes(bench, kind):
    """With a divergence from the start for PPO, whose first step has none: the reference has no adapters."""
    if kind == "ppo":
        stage, data = ppo(OUTCOME, steps=3), "questions"
        stage = stage.model_copy(update={"method": stage.method.model_copy(update={"kl": 0.5})})
    else:
        stage, data = sft(3, "adamw"), "traces"
    stage = stage.model_copy(update={"lora": Lora(rank=4), "save_every": 1})
    whole = bench.train(stage, f"adapters_{kind}_whole", start="base", data=data)
    with pytest.raises(Stopped):
        bench.train(stage, f"adapters_{kind}", start="base", data=data, stop_at=2)
    same(whole, bench.train(stage, f"adapters_{kind}", start="base", data=data))
    base, trained = (load_model(folder / "checkpoint") for folder in (bench.root / "base", whole))
    moved = {
        name.rpartition(".")[0]
        for name, value in trained.state_dict().items()
        if not torch.equal(value, base.state_dict()[name])
    }
    assert moved
    assert all(name.endswith("_proj") for name in moved)
    if kind == "sft":
        # Its moments are of adapters that are gone.
        after = sft(1, "adamw")
        for number, each in enumerate((after, after.model_copy(update={"lora": Lora(rank=4)}))):
            done = bench.train(each, f"after_{number}", start="adapters_sft", data=data, index=1)
            assert json.loads((done / "train.json").read_text())["optimizer_carried_over"] is False
