"""Sizes that no model has, refused before a model is built from them and before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from reodsl.ir.model import Architecture, WordTokenizer
from runners.models.bounds import check_architecture
from runners.models.folder import build

WORDS = WordTokenizer(words=("a", "<eos>", "<pad>"), eos="<eos>", pad="<pad>")
SIZES = {"hidden": 16, "layers": 1, "heads": 4, "kv_heads": 2, "head_dim": 6, "intermediate": 24}


def source(**changes: int) -> Architecture:
    return Architecture(family="qwen3", tokenizer=WORDS, **{**SIZES, **changes})


@pytest.mark.parametrize("changes", [{}, {"heads": 2}, {"kv_heads": 1}, {"kv_heads": 4}, {"head_dim": 2}])
def test_what_is_let_through_runs(changes: dict[str, int]) -> None:
    import torch

    assert check_architecture(source(**changes), "m.model") is None
    sizes: dict[str, Any] = {**SIZES, **changes}
    model = build(5, 0, eos=0, pad=1, family="qwen3", context=8, **sizes)
    assert model(input_ids=torch.tensor([[1, 2, 3]])).logits.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"kv_heads": 3}, "4 heads cannot share 3"), ({"heads": 1}, "1 heads"), ({"head_dim": 5}, "is 5")],
)
def test_what_no_model_has_is_named(changes: dict[str, int], words: str) -> None:
    found = check_architecture(source(**changes), "m.model")
    assert found is not None
    assert (found.code, found.where) == ("E0808", "m.model")
    assert words in found.message
    assert found.help
