"""Optimizers: learning rates by hand, which parameters Muon takes, and states that go on to the bit."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from reodsl.ir.training import AdamGroup, Optimizer
from runners.train import optimizers as module
from runners.train.optimizers import (
    HostOptimizer,
    build_optimizers,
    full_optimizer_state,
    load_optimizer_state,
    moments_to_come,
    optimizer_state,
    set_learning_rate,
)
from tests.train.models import small_model


class Products(TorchDispatchMode):
    """Counts products of matrices."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in ("mm", "addmm", "bmm", "baddbmm")
        return func(*args, **(kwargs or {}))


def settings(**changes):
    return Optimizer.model_validate({"algorithm": "adamw", "lr": 0.1} | changes)


def test_learning_rate_curve():
    curve = settings(warmup_steps=4, decay="linear", decay_from=0.5)
    factors = [curve.rate_factor(step, 10) for step in range(10)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    assert settings().rate_factor(0, 10) == 1
    assert [settings(decay="linear").rate_factor(s, 4) for s in range(4)] == [1, 0.75, 0.5, 0.25]


def test_a_share_of_warm_up_is_of_the_steps_that_are_taken():
    curve = settings(warmup_share=0.29)
    assert [curve.rate_factor(step, 100) for step in (0, 28, 29)] == pytest.approx([1 / 29, 1, 1])
    assert curve.rate_factor(27, 100) < 1
    # Rounded down, so that the paper's 0.1% is none of 999 steps.
    assert settings(warmup_share=0.001).rate_factor(0, 999) == 1
    assert settings(warmup_share=0.001).rate_factor(0, 2000) == 0.5


def test_muon_takes_the_matrices_of_the_layers_and_adamw_the_rest():
    for tied in (True, False):
        model = small_model(tied=tied)
        rest = AdamGroup(lr=0.03, betas=(0.8, 0.9), eps=1e-8)
        muon, adamw = build_optimizers(model, settings(algorithm="muon", rest=rest))
        names = {id(p): name for name, p in model.named_parameters()}
        matrices = {names[id(p)] for group in muon.param_groups for p in group["params"]}
        others = {names[id(p)] for group in adamw.param_groups for p in group["params"]}
        assert matrices | others == set(names.values())
        assert not matrices & others
        assert all("proj" in name for name in matrices)
        assert {"model.embed_tokens.weight", "model.norm.weight"} <= others
        set_learning_rate([muon, adamw], 0.5)
        assert muon.param_groups[0]["lr"] == 0.05
        assert adamw.param_groups[0]["lr"] == 0.015


@pytest.mark.parametrize("algorithm", ["adam", "adamw", "muon"])
def test_a_step_of_adam_is_one_kernel(algorithm):
    model = small_model()
    assert build_optimizers(model, settings(algorithm=algorithm))[-1].defaults["fused"]


FAR = {"betas": (0.7, 0.95), "eps": 0.02, "weight_decay": 0.3}
"""Settings that all differ, and matter within three steps."""


@pytest.mark.parametrize(
    ("algorithm", "rest"),
    [
        ("adam", None),
        ("adamw", None),
        ("muon", AdamGroup(lr=0.03, betas=(0.8, 0.9), eps=0.05, weight_decay=0.2)),
        ("muon", None),
    ],
)
def test_every_setting_reaches_the_optimizer(algorithm, rest, monkeypatch):
    """Three steps as torch's optimizers take them, each with the numbers that its parameters are to have."""
    # torch's Muon, but for the products in bfloat16 that a processor emulates.
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)
    rule = settings(algorithm=algorithm, rest=rest, **FAR)
    ours, theirs = small_model(), small_model()
    parameters = list(theirs.parameters())
    if algorithm == "muon":
        matrices = [p for name, p in theirs.named_parameters() if "proj" in name]
        others = [p for name, p in theirs.named_parameters() if "proj" not in name]
        small = {"lr": 0.1, **FAR} if rest is None else rest.model_dump()
        steps = [
            torch.optim.Muon(matrices, lr=0.1, momentum=0.7, weight_decay=0.3),
            torch.optim.AdamW(
                others, **{name: small[name] for name in ("lr", "betas", "eps", "weight_decay")}
            ),
        ]
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[algorithm]
        steps = [kind(parameters, lr=0.1, **FAR)]
    steps += build_optimizers(ours, rule)
    for number in range(3):
        for model in (ours, theirs):
            draw = torch.Generator().manual_seed(number)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=draw)
        for optimizer in steps:
            optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["adam", "adamw", "muon"])
def test_an_optimizer_goes_on_from_its_state_to_the_bit(algorithm):
    def step(model, optimizers, seed):
        draw = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        for optimizer in optimizers:
            optimizer.step()

    first, second = small_model(), small_model()
    rule = settings(algorithm=algorithm, weight_decay=0.01)
    one, other = build_optimizers(first, rule), build_optimizers(second, rule)
    step(first, one, 1)
    second.load_state_dict(first.state_dict())
    load_optimizer_state(second, other, optimizer_state(first, one))
    step(first, one, 2)
    step(second, other, 2)
    for p, q in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(("algorithm", "of_matrices"), [("adam", 2), ("adamw", 2), ("muon", 1)])
def test_moments_to_come_are_one_or_two_numbers_of_four_bytes_a_weight(algorithm, of_matrices):
    model = small_model()
    optimizers = build_optimizers(model, settings(algorithm=algorithm))
    counts = {"matrices": 0, "others": 0}
    for name, p in model.named_parameters():
        counts["matrices" if "proj" in name else "others"] += p.numel()
    wanted = 4 * (of_matrices * counts["matrices"] + 2 * counts["others"])
    assert moments_to_come(optimizers) == wanted
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    for optimizer in optimizers:
        optimizer.step()
    assert moments_to_come(optimizers) == 0
    whole = dict(full_optimizer_state(model, optimizers))
    state = optimizer_state(model, optimizers)
    assert whole.keys() == state.keys()
    assert all(torch.equal(whole[name], state[name]) for name in state)


def test_a_state_that_was_loaded_on_the_host_stays_as_it_was():
    model = small_model()
    numbers = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, "fused": True}

    def stepped(state=None):
        optimizer = HostOptimizer(list(model.parameters()), dict(numbers), torch.optim.AdamW)
        if state is not None:
            load_optimizer_state(model, [optimizer], state)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
        return optimizer_state(model, [optimizer])

    state = {name: value.clone() for name, value in stepped().items()}
    before = {name: value.clone() for name, value in state.items()}
    stepped(state)
    assert all(torch.equal(state[name], before[name]) for name in before)


@pytest.mark.parametrize("algorithm", ["adam", "adamw"])
def test_a_step_on_the_host_has_the_same_bytes(algorithm):
    """Weights and moments after steps at several rates, also where the host's optimizer goes on from a state."""
    rule = settings(algorithm=algorithm, weight_decay=0.1, on="host")

    def taken(build, stop=False):
        model = small_model()
        optimizers = build(model)
        for number in range(4):
            if stop and number == 2:
                state = {name: value.clone() for name, value in optimizer_state(model, optimizers).items()}
                optimizers = build(model)
                load_optimizer_state(model, optimizers, state)
            draw = torch.Generator().manual_seed(number)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=draw)
            set_learning_rate(optimizers, 1 / (1 + number))
            for optimizer in optimizers:
                optimizer.step()
        return dict(model.named_parameters()), optimizer_state(model, optimizers)

    def away(model):
        (plain,) = build_optimizers(model, rule)
        assert type(plain) is not HostOptimizer
        (group,) = plain.param_groups
        numbers = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay", "fused", "full_lr")}
        full = numbers.pop("full_lr")
        optimizer = HostOptimizer(list(model.parameters()), numbers, type(plain))
        optimizer.param_groups[0]["full_lr"] = full
        assert moments_to_come([optimizer]) == 0 < moments_to_come([plain])
        return [optimizer]

    want = taken(lambda model: build_optimizers(model, rule))
    for found in (taken(away), taken(away, stop=True)):
        for values, wanted in zip(found, want, strict=True):
            assert values.keys() == wanted.keys()
            assert all(torch.equal(values[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("elements", [1, 32 * 48 * 2, 1 << 24])
def test_muon_takes_matrices_of_one_shape_together_on_a_device(elements, monkeypatch, other):
    """As on the CPU up to rounding; one by one, two by two, and all of a shape; in products that layers do not multiply."""
    monkeypatch.setattr(module, "MUON_ELEMENTS", elements)
    models = []
    for device in ("cpu", other):
        model = small_model().to(device)
        muon, _ = build_optimizers(model, settings(algorithm="muon", weight_decay=0.3))
        draw = torch.Generator().manual_seed(0)
        for _ in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=draw).to(device)
            with Products() as products:
                muon.step()
        models.append(model)
    shapes = [tuple(p.shape) for group in muon.param_groups for p in group["params"]]
    batches = {each: -(-shapes.count(each) // max(1, elements // math.prod(each))) for each in shapes}
    assert products.count == 15 * sum(batches.values())
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q.cpu(), rtol=2e-2 if other == "cuda" else 1e-4, atol=1e-6)
