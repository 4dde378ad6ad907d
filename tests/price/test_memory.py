"""Peaks of devices that train and generate in turn, or only one of both, against sums by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.ir.cluster import Cluster, Hardware
from reodsl.ir.training import Lora, MovingAverage
from reodsl.price import price
from reodsl.price.history import Facts
from reodsl.price.machine import Devices, devices_of
from reodsl.price.memory import (
    ALL_WEIGHTS,
    Recipe,
    Sizes,
    cache_tokens,
    engine_bytes,
    from_config,
    kept_bytes,
    optimizer_bytes,
    state_bytes,
    trainer_bytes,
)
from reodsl.price.show import refusals
from reodsl.price.tasks import price_task
from tests.graph import studies as make

GIB = 2**30
GPU = Hardware(flops=1e12, bandwidth=1e10, interconnect=1e10)
SIZES = Sizes(
    parameters=4 * GIB,
    products=4 * GIB,
    layers=32,
    hidden=2048,
    attention=4096,
    kv=1024,
    intermediate=8192,
    vocabulary=32768,
)
"""4.3G parameters: 8 GiB in bfloat16, 16 GiB in float32, and 128 KiB of keys and values a token."""


def cluster(gpus: int, memory: float = 80, **changes: Any) -> Cluster:
    return Cluster(
        name="lab", nodes=1, gpus_per_node=gpus, gpu="X1", memory_gib=memory, hardware=GPU, **changes
    )


def devices(gpus: int, **changes: Any) -> Devices:
    found = devices_of(cluster(gpus, **changes))
    assert found is not None
    return found


QWEN3 = {"num_key_value_heads": 8, "head_dim": 128, "num_attention_heads": 32, "vocab_size": 151936}
CONFIGS: dict[str, dict[str, Any]] = {
    "1.5B": {
        "model_type": "qwen2",
        "hidden_size": 1536,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "intermediate_size": 8960,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    },
    "4B": QWEN3
    | {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "intermediate_size": 9728,
        "tie_word_embeddings": True,
    },
    "7B": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
    },
    "8B": QWEN3
    | {
        "model_type": "qwen3",
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "intermediate_size": 12288,
        "tie_word_embeddings": False,
    },
}
"""Of DeepSeek-R1-Distill-Qwen-1.5B and 7B, Qwen3-4B and Qwen3-8B."""
TOKENS = 33_792
"""The longest sequence of the paper's runs: a prompt of 1K and a response of 32K."""
FOUND = {"1.5B": (12.2, 9.1), "4B": (22.5, 15.4), "7B": (35.1, 21.8), "8B": (37.7, 23.8)}
"""GiB on each of 8 and of 128 GPUs at the peak of a step with one packed row of `TOKENS`: without a GPU, on tensors without
numbers, with everything counted that is there at once (`tests/train/test_peak.py` counts again on 128; on 8 the state alone
is more)."""


RECIPES = {"lora": Recipe(adapters=66_060_288), "host": Recipe(on_host=True)}
"""`lora { rank = 32 }`, of 4B, and `optim { on = host }`."""
ALONE = {"lora": 29.1, "host": 44.7}
"""GiB at the peak of such a step of 4B on one GPU, counted in the same way."""


def planned(name: str, gpus: int, recipe: Recipe = ALL_WEIGHTS) -> float:
    """GiB that the plan has for it."""
    sizes = from_config(CONFIGS[name])
    assert sizes is not None
    return trainer_bytes(sizes, replace(devices(gpus), microbatch=TOKENS), TOKENS, recipe) / GIB


@pytest.mark.parametrize("name", CONFIGS)
def test_a_plan_has_the_peak_that_was_counted(name: str) -> None:
    for gpus, peak in zip((8, 128), FOUND[name], strict=True):
        assert planned(name, gpus) == pytest.approx(peak, rel=0.1)


def test_one_gpu_of_80_gb_trains_4b_with_either_line() -> None:
    sizes = from_config(CONFIGS["4B"])
    assert sizes is not None
    # By hand: rank 32, and both ends of seven matrices in each of 36 layers.
    ends = (2560 + 4096) + 2 * (2560 + 1024) + (4096 + 2560) + 3 * (2560 + 9728)
    assert sizes.adapters(32, "all") == 36 * 32 * ends == RECIPES["lora"].adapters
    assert sizes.adapters(32, "attention") + sizes.adapters(32, "mlp") == sizes.adapters(32, "all")
    for line, recipe in RECIPES.items():
        assert planned("4B", 1, recipe) == pytest.approx(ALONE[line], rel=0.1)
        assert ALONE[line] < 60
    assert planned("4B", 1) > 74


def test_what_a_recipe_leaves_out_of_the_state() -> None:
    one, parameters = devices(1), SIZES.parameters
    few = Recipe(adapters=GIB)
    assert state_bytes(SIZES, one) == 16 * parameters
    assert state_bytes(SIZES, one, Recipe(on_host=True)) == 8 * parameters
    assert state_bytes(SIZES, one, few) == 4 * parameters + 16 * GIB
    assert state_bytes(SIZES, one, replace(few, on_host=True)) == 4 * parameters + 8 * GIB
    # The start is the model without its adapters, and else another model.
    assert state_bytes(SIZES, one, replace(few, frozen=True)) == state_bytes(SIZES, one, few)
    assert state_bytes(SIZES, one, Recipe(frozen=True)) == 20 * parameters
    # A teacher has its own, beside adapters too.
    other = replace(SIZES, parameters=3 * GIB)
    assert state_bytes(SIZES, one, Recipe(frozen=True, teacher=other)) == 16 * parameters + 12 * GIB
    assert state_bytes(SIZES, one, replace(few, frozen=True, teacher=other)) == (4 + 16) * GIB + 4 * (
        parameters + 2 * GIB
    )
    # On a laptop the host's memory is the one that training has.
    here = devices_of(None)
    assert here is not None
    assert state_bytes(SIZES, here, Recipe(on_host=True)) == state_bytes(SIZES, here)
    assert optimizer_bytes(SIZES, "adamw", few) == 8 * GIB


@pytest.mark.parametrize("where", [None, "host"])
@pytest.mark.parametrize("lora", [None, Lora(rank=4, alpha=8.0, layers="mlp")])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_recipe_is_what_its_stage_says(where: str | None, lora: Lora | None, frozen: bool) -> None:
    stage = make.ppo(make.outcome())
    changes: dict[str, Any] = {"lora": lora}
    if where is not None:
        changes["optim"] = stage.optim.model_copy(update={"on": where})
    if frozen:
        changes["method"] = stage.method.model_copy(update={"kl": 0.1})
    stage = stage.model_copy(update=changes)
    found = Recipe.of(stage, SIZES)
    assert found.adapters == (None if lora is None else SIZES.adapters(4, "mlp"))
    assert found.on_host is (where == "host")
    assert found.frozen is frozen


def test_a_start_that_follows_has_weights_of_its_own() -> None:
    """Beside adapters too, where one that stays is the model without them."""
    one, stage = devices(1), make.ppo(make.outcome())
    found = {}
    for lora in (None, Lora(rank=4)):
        for average in (None, MovingAverage(every=1)):
            method = stage.method.model_copy(update={"kl": 0.1, "teacher_follows": average})
            recipe = Recipe.of(stage.model_copy(update={"lora": lora, "method": method}), SIZES)
            found[lora is not None, average is not None] = state_bytes(SIZES, one, recipe)
    assert found[False, True] == found[False, False] == 20 * SIZES.parameters
    assert found[True, True] == found[True, False] + 4 * SIZES.parameters


def test_between_updates_gradients_are_gone_and_weights_are_on_their_way() -> None:
    # 4 bytes of weights and 8 of moments, over 4 devices; a GiB on its way to the engine there.
    assert kept_bytes(SIZES, devices(4)) / GIB == pytest.approx(4 * 12 / 4 + 1)
    assert kept_bytes(SIZES, devices(4), Recipe(frozen=True)) / GIB == pytest.approx(4 * 16 / 4 + 1)
    # Engines apart: the first device has all of it, in 2 bytes.
    apart = replace(devices(4), disaggregated=True)
    assert kept_bytes(SIZES, apart) / GIB == pytest.approx(4 * 12 / 4 + 4 * 2)
    # On this machine engine and trainer are one process, and what it hands over are its own tensors.
    here = devices_of(None)
    assert here is not None
    assert kept_bytes(SIZES, here) / GIB == pytest.approx(4 * 12)


def test_caches_fill_what_weights_and_training_leave() -> None:
    alone = devices(4)
    # 85% of 80 GiB, less 8 of weights, at 128 KiB a token.
    assert cache_tokens(SIZES, alone) == pytest.approx((68 - 8) * 2**13)
    beside = replace(alone, resident_bytes=kept_bytes(SIZES, alone))
    assert cache_tokens(SIZES, beside) == pytest.approx((68 - 8 - 13) * 2**13)
    # Two devices an engine: half of the weights on each, both for its caches.
    wide = replace(devices(4, tensor_parallel=2), resident_bytes=20.0 * GIB)
    assert cache_tokens(SIZES, wide) == pytest.approx(2 * (68 - 4 - 20) * 2**13)
    # The embedded engine on a processor: 3 GiB in bfloat16 at 128 KiB a token, 1 GiB in float32 at 256.
    assert cache_tokens(SIZES, replace(alone, memory=None)) == 3 * 2**13
    assert cache_tokens(SIZES, replace(alone, memory=None, width=4)) == 2**12
    # However much is to be held, the whole peak stays within 85%.
    for each in (alone, beside, wide):
        assert engine_bytes(SIZES, each, 1e9) / GIB == pytest.approx(68)
    assert engine_bytes(SIZES, beside, 2**13) / GIB == pytest.approx(8 + 1 + 13)


def test_a_trainers_peak_is_its_update_or_what_it_keeps_whichever_is_more() -> None:
    # 128 devices: 0.5 GiB of state, and little beside it, where a copy of the weights takes 8 GiB.
    many = replace(devices(128), microbatch=64, disaggregated=True)
    layer = (4 * GIB - 32768 * 2048) / 32
    inside = 8 * 2048 + 5.2 * 4096 + 1.6 * 1024 + 6 * 8192
    logits = 8 * 64 * 32768
    # Of so few tokens the logits are more than a layer's inside, and there is one of both at a time.
    assert logits > 64 * inside * 2
    # The output matrix, which is the embedding too, and its gradient; two layers, and one's gradient in float32.
    gathered = 2 * 32768 * 2048 * 2 + 2 * layer * 2 + layer * 4
    update = 16 * 4 * GIB / 128 + gathered + 64 * 32 * 2048 * 2 + logits
    long = replace(many, microbatch=64 * 1024)
    assert trainer_bytes(SIZES, long, 64) == pytest.approx(
        16 * 4 * GIB / 128 + gathered + 64 * 1024 * (32 * 2048 + inside) * 2
    )
    assert trainer_bytes(SIZES, many, 64) == pytest.approx(update)
    assert trainer_bytes(SIZES, many, 64, feeds=True) / GIB == pytest.approx(4 * 12 / 128 + 8)
    few = replace(devices(2), microbatch=64)
    assert trainer_bytes(SIZES, few, 64, feeds=True) == trainer_bytes(SIZES, few, 64)
    assert trainer_bytes(SIZES, few, 64) / GIB > 32


def peaks(engine: str = "sglang", where: Cluster | None = None) -> dict[str, float]:
    stage = make.ppo(make.outcome())
    payload = {"stage": stage.model_dump(mode="json"), "engine": engine}
    found = devices_of(where)
    assert found is not None
    return dict(price_task("train", payload, SIZES, Facts(), found, True).memory)


def test_in_turn_an_engine_stands_beside_what_training_keeps_and_apart_it_is_alone() -> None:
    together, apart = peaks(where=cluster(4)), peaks(where=cluster(4, placement="apart", rollout_share=0.5))
    caches = together["engine"] - (8 + 13) * GIB
    assert 0 < caches < 0.1 * GIB
    # Apart there are half as many engines, with twice the responses each; and only two devices train.
    assert apart["engine"] - 8 * GIB == pytest.approx(2 * caches)
    assert apart["trainer"] > 4 * 16 / 2 * GIB > together["trainer"] > 4 * 16 / 4 * GIB


def test_a_server_on_a_processor_keeps_its_memory_while_training_runs() -> None:
    embedded, served = peaks("embedded"), peaks("sglang")
    assert served["engine"] == embedded["engine"]
    caches = embedded["engine"] - (48 + 16) * GIB - (384 + 896) * 2**20
    assert served["trainer"] - embedded["trainer"] == pytest.approx(16 * GIB + caches)


def refused(memory: float) -> list[str]:
    stage = make.ppo(make.outcome())
    spec: Spec = make.spec(make.arm("it", make.trained("it", stage, start=make.downloaded())))
    spec = spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": cluster(1, memory)})})
    prices = price(lower(spec), spec, sizes={"given": SIZES})
    return [each.message for each in refusals(prices, ["it.train.s1"], spec)]


def test_a_device_is_too_small_for_the_larger_of_its_phases_and_not_for_their_sum() -> None:
    """One device: 64 GiB and 15 besides while it trains, 48 + 1 + 8 and caches while it generates."""
    (told,) = refused(75)
    assert told.startswith("the trainer of it.train.s1 needs 79")
    assert refused(83) == []
