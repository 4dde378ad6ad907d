"""Small doubles of models, whatever their size."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, Qwen3Config

from reodsl.diagnostics import Problem
from runners.models.double import double_of, narrow_config
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_a_double_has_two_layers(layers: int) -> None:
    small = narrow_config(Qwen3Config(num_hidden_layers=layers, vocab_size=64))
    assert len(AutoModelForCausalLM.from_config(small).model.layers) == len(small.layer_types) == 2


def test_settings_of_sampling_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(("1", "+"))
    small = narrow_config(Qwen3Config(num_hidden_layers=1, vocab_size=len(tokenizer)))
    save(AutoModelForCausalLM.from_config(small), tokenizer, tmp_path / "whole")
    (tmp_path / "whole" / "generation_config.json").write_text("[" * 100_000)
    with pytest.raises(Problem, match="generation_config") as caught:
        double_of(tmp_path / "whole", tmp_path / "double", 1)
    assert caught.value.diagnostics[0].code == "E0803"
