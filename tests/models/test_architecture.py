"""Models from a description: the same weights each time, the sizes asked for, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reodsl.diagnostics import Problem
from runners.models.architecture import architecture_of, build

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
    return build(architecture_of({**MINIATURE, **changes}), 78, seed, eos=1, pad=0)


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


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"family": "gpt2"}, "qwen3, llama"),
        ({"heads": 7}, "7 heads"),
        ({"head_dim": 15}, "even"),
        ({"layers": 0}, "`layers` is 0"),
        ({"hidden": 12.5}, "`hidden` is 12.5"),
        ({"hidden": True}, "`hidden` is True"),
        ({"rope_theta": -1.0}, "`rope_theta`"),
        ({"depth": 3}, "no `depth`"),
    ],
)
def test_what_makes_no_model_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(Problem) as caught:
        architecture_of({**MINIATURE, **changes})
    found = caught.value.diagnostics[0]
    assert found.code == "E0808"
    assert told in f"{found.message} {found.help}"


def test_a_missing_size_is_named() -> None:
    with pytest.raises(Problem, match="`heads`"):
        architecture_of({name: value for name, value in MINIATURE.items() if name != "heads"})
