"""Configs of models that train are within the bounds, and templates of theirs end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reodsl.diagnostics import Problem
from runners.models.bounds import require_bounded
from runners.models.template import require_ending

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
QWEN = """{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- endfor %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + message.content + '<|im_end|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant' }}{%- endif %}"""
DOUBLING = (
    "{% set ns = namespace(x='a' * 1000) %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_of_a_model_that_trains_is_within_the_bounds(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    assert require_bounded(tmp_path) == CONFIGS[name]


def test_templates_that_end_are_taken(tmp_path: Path) -> None:
    require_ending(None, tmp_path)
    require_ending({"chat": QWEN, "tools": "{{ raise_exception('no') }}", "broken": "{% for"}, tmp_path)


@pytest.mark.parametrize(("text", "words"), [(DOUBLING, "MiB"), ("x" * ((1 << 20) + 1), "1,048,577 char")])
def test_templates_that_fill_memory_are_not(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Problem, match=words):
        require_ending(text, tmp_path)
