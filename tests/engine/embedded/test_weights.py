"""New weights, and what the engine refuses."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MistralConfig

from reodsl.diagnostics import Problem
from runners.engine.embedded import EmbeddedEngine
from runners.engine.protocol import Generation, Request, TokenSampling
from tests.engine.engine_reference import CONFIGS, engine_of, make_model, make_requests

SAMPLED = TokenSampling(30, stop_ids=(1, 5))


def code(caught: pytest.ExceptionInfo[Problem]) -> str:
    return caught.value.diagnostics[0].code


def test_new_weights_act_at_once_and_carry_their_version(one_model: Any, tmp_path: Path) -> None:
    requests = make_requests(4, 2)
    other = make_model("qwen3-gqa-tied", seed=1)
    engine = engine_of(one_model)
    before = engine.generate(requests, SAMPLED)
    engine.load_weights(other.state_dict(), 7)
    after = engine.generate(requests, SAMPLED)
    assert [response.tokens for response in after] != [response.tokens for response in before]
    assert {response.weight_versions for response in before} == {(0,)}
    assert {response.weight_versions for response in after} == {(7,)}
    one_model.save_pretrained(tmp_path)
    engine.load_weights(tmp_path, 8)
    assert [r.tokens for r in engine.generate(requests, SAMPLED)] == [r.tokens for r in before]


def test_memory_is_given_back_until_the_next_weights(one_model: Any) -> None:
    """Neither the caches kept for forcing nor the old weights outlive `release`."""
    engine = engine_of(one_model)
    requests = make_requests(4, 2)
    before = engine.generate(requests, SAMPLED)
    held = [weakref.ref(row.cohort.cache.keys) for row in engine._cached.values()]
    held.append(weakref.ref(engine._decoder.weights.embedding))
    assert len(held) > 1
    assert all(each() is not None for each in held)
    engine.release()
    gc.collect()
    assert [each() for each in held] == [None] * len(held)
    engine.load_weights(one_model.state_dict(), 1)
    assert [r.tokens for r in engine.generate(requests, SAMPLED)] == [r.tokens for r in before]


def test_the_engine_keeps_its_own_copy() -> None:
    model = make_model("qwen3-mha-untied")
    requests = make_requests(3, 2)
    engine = engine_of(model, linear="torch")
    before = engine.generate(requests, SAMPLED)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(0.5)
    assert engine.generate(requests, SAMPLED) == before


def test_a_tensor_that_is_missing_or_of_another_size_is_named(one_model: Any) -> None:
    engine = engine_of(one_model)
    before = engine.generate(make_requests(2, 2), SAMPLED)
    state = dict(one_model.state_dict())
    name = "model.layers.1.self_attn.k_proj.weight"
    for bad in ({k: v for k, v in state.items() if k != name}, {**state, name: torch.zeros(3, 5)}):
        with pytest.raises(Problem, match=r"layers\.1\.self_attn\.k_proj\.weight") as caught:
            engine.load_weights(bad, 1)
        assert code(caught) == "E0803"
    assert engine.generate(make_requests(2, 2), SAMPLED) == before


def test_another_architecture_is_refused(one_model: Any) -> None:
    with pytest.raises(Problem, match="mistral") as caught:
        EmbeddedEngine(MistralConfig(), {})
    assert code(caught) == "E0801"
    assert "qwen3 and llama" in str(caught.value.diagnostics[0].help)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_act", "gelu"),
        ("layer_types", ["full_attention", "sliding_attention", "full_attention"]),
        ("rope_parameters", {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
    ],
)
def test_a_variant_with_other_arithmetic_is_refused(field: str, value: Any) -> None:
    config = CONFIGS["qwen3-gqa-tied"]()
    setattr(config, field, value)
    with pytest.raises(Problem) as caught:
        EmbeddedEngine(config, {})
    assert code(caught) == "E0801"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_reported(
    one_model: Any, bad: float, refusal: Callable[..., None]
) -> None:
    state = {name: tensor.clone() for name, tensor in one_model.state_dict().items()}
    state["model.layers.2.mlp.down_proj.weight"][0, 0] = bad
    engine = EmbeddedEngine(one_model.config, state)
    requests = make_requests(2, 2)
    for sampling in (TokenSampling(4), TokenSampling(4, temperature=0.0), TokenSampling(4, top_p=0.5)):
        with pytest.raises(Problem, match="not finite") as caught:
            engine.generate(requests, sampling)
        refusal("engine/E0802.txt", caught.value, task="base.eval")
    responses = [Generation((2, 3, 4), (0.0,) * 3, (0.0,) * 3, "length", (0,)) for _ in requests]
    with pytest.raises(Problem, match="not finite") as caught:
        engine.force(requests, responses, [[1]] * 4, (2,), TokenSampling(1, temperature=0.0))
    assert code(caught) == "E0802"


@pytest.mark.parametrize(
    ("request_", "sampling"),
    [
        (Request((), 1), TokenSampling(4)),
        (Request((3, 40), 1), TokenSampling(4)),
        (Request((3, -1), 1), TokenSampling(4)),
        (Request((3,), 1), TokenSampling(0)),
        (Request((3,) * 500, 1), TokenSampling(13)),
    ],
    ids=["no prompt", "past the vocabulary", "negative", "no tokens", "past the context"],
)
def test_impossible_requests_are_refused(one_model: Any, request_: Request, sampling: TokenSampling) -> None:
    with pytest.raises(Problem) as caught:
        engine_of(one_model).generate([request_], sampling)
    assert code(caught) == "E0807"


def test_the_context_can_be_used_to_its_end(one_model: Any) -> None:
    assert len(engine_of(one_model).generate([Request((3,) * 500, 1)], TokenSampling(12))[0].tokens) == 12


def test_a_cut_before_the_start_is_refused(one_model: Any) -> None:
    engine = engine_of(one_model)
    responses = engine.generate([Request((3, 4), 1)], TokenSampling(4))
    with pytest.raises(Problem) as caught:
        engine.force([Request((3, 4), 1)], responses, [[-1]], (2,), TokenSampling(1))
    assert code(caught) == "E0807"
