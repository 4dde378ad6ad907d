"""Configs of models that train are within the bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runners.models.bounds import require_bounded

pytestmark = pytest.mark.slow

ROPE = {"factor": 40, "original_max_position_embeddings": 4096}
CONFIGS: dict[str, dict[str, Any]] = {
    "a long context": {
        "max_position_embeddings": 10_485_760,
        "rope_theta": 500_000_000,
        "vocab_size": 262_144,
    },
    "the deepest and widest": {"num_hidden_layers": 126, "hidden_size": 53_248, "sliding_window": 1 << 40},
    "parts": {"text_config": {"num_hidden_layers": 61, "rope_scaling": ROPE}},
    "a list for each layer": {"layer_types": ["full_attention"] * 126, "initializer_range": 0.02},
    "an id past all": {"bos_token_id": 128_000, "eos_token_id": [128_001, 128_008], "pad_token_id": -1},
    "labels": {"num_labels": 2, "id2label": {"0": "A", "1": "B"}, "label2id": {"A": 0, "B": 1}},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_of_a_model_that_trains_is_within_the_bounds(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    assert require_bounded(tmp_path) == CONFIGS[name]
