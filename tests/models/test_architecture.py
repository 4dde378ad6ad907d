"""Models from a description: the same weights each time, and the sizes asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runners.models.folder import build

MINIATURE: dict[str, Any] = {
    "family": "qwen3",
    "layers": 2,
    "hidden": 128,
    "heads": 8,
    "kv_heads": 4,
    "head_dim": 16,
    "intermediate": 320,
    "context": 512,
}


def made(seed: int = 0, **changes: Any) -> Any:
    return build(78, seed, eos=1, pad=0, **{**MINIATURE, **changes})


def test_the_miniature_has_its_number_of_parameters() -> None:
    assert sum(tensor.numel() for tensor in made().parameters()) == 354_752


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_equal_seeds_give_equal_weights_and_leave_the_stream_alone(family: str) -> None:
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    one = made(family=family).state_dict()
    assert torch.equal(torch.rand(3), want)
    two = made(family=family).state_dict()
    other = made(seed=1, family=family).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_settings_reach_the_config() -> None:
    config = made(tied=False, rope_theta=5e5, norm_eps=1e-5, init_std=0.1).config
    assert not config.tie_word_embeddings
    assert config.rope_parameters["rope_theta"] == 5e5
    assert (config.rms_norm_eps, config.initializer_range) == (1e-5, 0.1)
    assert (config.eos_token_id, config.pad_token_id, config.vocab_size) == (1, 0, 78)
    assert (config.max_position_embeddings, config.num_key_value_heads) == (512, 4)
