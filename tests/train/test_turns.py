"""A trainer and an engine in turn on one device: which of them holds what, when, and how much more a trainer will hold."""

import weakref

import pytest
import torch
from safetensors.torch import load_file
from torch._C._distributed_c10d import HashStore
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from reodsl.graph.job import Resources
from reodsl.ir.training import Optimizer
from runners.engine.embedded import EmbeddedEngine
from runners.engine.protocol import SharedWeights
from runners.engine.sglang.weights import require_shapes
from runners.models.folder import load, save
from runners.models.tensors import tensor_shapes
from runners.models.tokenizer import word_tokenizer
from runners.train import ppo_stage
from runners.train.crew import Crew
from runners.train.optimizers import build_optimizers, moments_to_come
from runners.train.ranks import ALONE, join_ranks
from runners.train.sharding import shard, to_local
from runners.train.update import Learner
from tests.train.models import small_model
from tests.train.test_train import ppo

TWO_STEPS = [
    ("generate", True, True),
    ("force", True, True),
    ("release", True, True),
    ("update", False, True),
    ("load", False, True),
]


def test_neither_holds_what_it_needs_while_the_other_works(bench, monkeypatch):
    """In each step: (what happens, whether the engine has weights before it, whether gradients are gone)."""
    found = []
    learners, engines = [], []

    def spy(owner, name, word):
        plain = getattr(owner, name)

        def spied(*given, **named):
            if word == "update":
                learners[:] = [given[0]]
            elif word != "open":
                engines[:] = [given[0]]
            if learners or word == "update":
                gone = all(p.grad is None for p in learners[0].model.parameters())
                found.append((word, engines[0]._loaded is not None, gone))
            return plain(*given, **named)

        monkeypatch.setattr(owner, name, spied)

    for name, word in (("generate",) * 2, ("force",) * 2, ("release",) * 2, ("load_weights", "load")):
        spy(EmbeddedEngine, name, word)
    spy(ppo_stage, "update", "update")
    bench.train(ppo(steps=2), "turns", start="base", data="questions")
    # The first learner is known from its first update on. Nobody needs weights after the last step, and closing the engine
    # releases it once more.
    assert found == [*TWO_STEPS[3:], *TWO_STEPS[:4], ("release", False, False)]


@pytest.mark.parametrize(("apart", "told"), [(False, True), (True, False)])
def test_an_engine_is_told_what_training_will_take_of_its_devices_unless_it_has_its_own(
    bench, monkeypatch, apart, told
):
    found = []

    def opened(*given):
        found.append(given[4])
        raise KeyboardInterrupt

    monkeypatch.setattr(ppo_stage, "open_engine", opened)
    with pytest.raises(KeyboardInterrupt):
        bench.train(
            ppo(), f"told_{apart}", start="base", data="questions", resources=Resources(disaggregated=apart)
        )
    model = load(bench.root / "base" / "checkpoint").model
    assert found == [8 * sum(p.numel() for p in model.parameters()) if told else None]


@pytest.mark.parametrize(("algorithm", "each"), [("adamw", 8), ("muon", None)])
def test_moments_to_come_are_those_that_a_step_makes(algorithm, each):
    model = small_model()
    optimizers = build_optimizers(model, Optimizer(algorithm=algorithm, lr=1e-3))
    expected = moments_to_come(optimizers)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    for optimizer in optimizers:
        optimizer.step()
    made = [
        value
        for optimizer in optimizers
        for fields in optimizer.state.values()
        for value in fields.values()
        if torch.is_tensor(value) and value.ndim
    ]
    assert expected == sum(value.numel() * value.element_size() for value in made) > 0
    if each is not None:
        assert expected == each * sum(p.numel() for p in model.parameters())
    assert moments_to_come(optimizers) == 0


def test_a_sharded_learner_also_counts_the_copy_that_goes_to_an_engine(tmp_path):
    model = small_model()
    count = sum(p.numel() for p in model.parameters())
    alone = Learner.of(model, build_optimizers(model, Optimizer(algorithm="adamw", lr=1e-3)), 0.0)
    assert alone.bytes_still_needed == 8 * count
    with join_ranks(0, 1, HashStore(), torch.device("cpu")) as ranks:
        other = small_model()
        scorer = shard(other, ranks, torch.bfloat16)
        optimizers = build_optimizers(other, Optimizer(algorithm="adamw", lr=1e-3))
        learner = Learner.of(other, optimizers, 0.0, ranks, scorer)
        assert sum(to_local(p).numel() for p in other.parameters()) == count
        assert learner.bytes_still_needed == 8 * count + 2 * count
        for p in other.parameters():
            p.grad = torch.zeros_like(p)
        copy = learner.weights()
        assert {value.dtype for value in copy.values()} == {torch.bfloat16}
        assert all(p.grad is None for p in other.parameters())


def test_a_learner_alone_hands_its_shards_to_an_engine_one_after_another():
    """What `growth` leaves free is for buckets on their way: a copy of all beside rollouts would take far more."""
    with join_ranks(0, 1, HashStore(), torch.device("cpu")) as ranks:
        model = small_model()
        learner = Learner.of(model, (), 0.0, ranks, shard(model, ranks, torch.bfloat16))
        want = {name: value.clone() for name, value in learner.weights().items()}
        shared = Crew(learner).weights()
        assert isinstance(shared, SharedWeights)
        handed, held, alive = {}, [], []

        def take(pieces, rank, gather, version):
            assert (rank, gather("alone"), version) == (0, ["alone"], 7)
            for name, tensor in pieces:
                held.append(weakref.ref(tensor))
                alive.append(sum(each() is not None for each in held))
                handed[name] = tensor.clone()

        shared.run_on_all(take, 7)
        assert max(alive) <= 2
        assert all(torch.equal(want[name], tensor) for name, tensor in handed.items())
        # The embedded engine in this process takes them all.
        whole = shared.assemble(None)
        assert all(torch.equal(want[name], whole[name]) for name in want)
    assert isinstance(Crew(Learner.of(small_model(), (), 0.0)).weights(), dict)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_mixtures_experts_reach_servers_by_their_names_in_files(tmp_path, sharded):
    """transformers holds all experts of a layer in one tensor, which servers do not know."""
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    sizes = {"vocab_size": 23, "intermediate_size": 16, "moe_intermediate_size": 8, "head_dim": 8}
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(num_experts=3, **sizes, **shape))
    save(model, word_tokenizer(("a", "b")), tmp_path)
    wanted = {
        name: value.to(torch.bfloat16)
        for name, value in load_file(next(tmp_path.glob("*.safetensors"))).items()
    }
    assert "model.layers.0.mlp.experts.2.gate_proj.weight" in wanted
    given = {}

    def take(pieces, rank, gather):
        given.update((name, tensor.clone()) for name, tensor in pieces)

    with join_ranks(0, 1, HashStore(), torch.device("cpu")) as ranks:
        scorer = shard(model, ranks, torch.bfloat16) if sharded else None
        weights = Crew(Learner.of(model, (), 0.0, ranks if sharded else ALONE, scorer)).weights()
        if isinstance(weights, SharedWeights):
            require_shapes(weights, tensor_shapes(tmp_path))
            weights.run_on_all(take)
            assert weights.assemble("cpu").keys() == dict(weights.pieces()).keys() == given.keys()
        else:
            given = {name: value.to(torch.bfloat16) for name, value in weights.items()}
    assert given.keys() == wanted.keys()
    assert all(torch.equal(given[name], wanted[name]) for name in wanted)
