"""What of a config is taken: the settings that its architecture reads, and nothing that chooses code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING

from reodsl.ir.model import Folder
from runners.models.folder import drop_code, load, load_config
from tests.models.test_prepare import SOURCE, make

CHOOSING: dict[str, Any] = {
    "attn_implementation": "evil-org/kernel",
    "_attn_implementation": "evil-org/kernel",
    "_attn_implementation_internal": "evil-org/kernel",
    "experts_implementation": "evil-org/kernel",
    "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"},
    "trust_remote_code": True,
    "return_dict": False,
    "output_hidden_states": True,
    "name_or_path": "../other",
    "transformers_weights": "../other.safetensors",
    "configuration_files": ["config.99.json"],
    "to_dict": 1,
    "get_text_config": 1,
    "attribute_map": {"hidden_size": "vocab_size"},
    "base_model_tp_plan": 5,
}


def test_settings_that_choose_code_are_no_part_of_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in this process, and not in the checkpoint, which servers read too."""
    made = make(tmp_path, "made", SOURCE)
    before = load(made).model
    place = made / "config.json"
    plain = json.loads(place.read_text())
    (made / "evil.py").write_text("open('exploded', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    place.write_text(
        json.dumps(plain | {name: CHOOSING[name] for name in ("attn_implementation", "auto_map")})
    )
    copied = make(tmp_path, "copied", Folder(path=str(made)))
    assert json.loads((copied / "config.json").read_text()) == plain
    (copied / "config.json").write_text(json.dumps(plain | CHOOSING))
    config = load_config(copied)
    unsaid = {"_name_or_path": "", "transformers_version": ""}
    assert config.to_dict() | unsaid == before.config.to_dict() | unsaid
    assert config.return_dict
    again = load(copied).model
    assert again.config._attn_implementation == before.config._attn_implementation
    ids = torch.arange(8)[None]
    assert torch.equal(again(ids).logits, before(ids).logits)
    assert not Path("exploded").exists()


def test_a_config_without_such_settings_is_copied_byte_for_byte(tmp_path: Path) -> None:
    made = make(tmp_path, "made", SOURCE)
    place = made / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"unheard_of": 1}, indent=7))
    copied = make(tmp_path, "copied", Folder(path=str(made)))
    assert (copied / "config.json").read_bytes() == place.read_bytes()


def test_configs_inside_a_config_are_taken_alike() -> None:
    inside = {"model_type": "gemma3_text", "hidden_size": 8, "attn_implementation": "evil", "unheard_of": 1}
    config = {"model_type": "gemma3", "text_config": inside, "auto_map": {}}
    kept = {"model_type": "gemma3_text", "hidden_size": 8, "unheard_of": 1}
    assert drop_code(config) == {"model_type": "gemma3", "text_config": kept}
    layers = {"0": {"head_dim": 4, "attn_implementation": "evil"}}
    found = drop_code({"model_type": "gemma4_text", "per_layer_config": layers})
    assert found["per_layer_config"] == {"0": {"head_dim": 4}}


@pytest.mark.parametrize(
    "family", ["llama", "qwen2", "qwen3", "qwen3_moe", "mistral", "phi3", "gemma2", "gemma3_text", "olmo2",
               "glm4", "granite", "deepseek_v3", "gpt2", "nemotron_h", "smollm3", "falcon_h1", "gpt_oss"],
)  # fmt: skip
def test_all_that_an_architecture_writes_is_taken(family: str) -> None:
    kind = CONFIG_MAPPING[family]
    written = json.loads(kind().to_json_string(use_diff=False))
    for name in CHOOSING:
        written.pop(name, None)
    assert {*written} - {*drop_code(written)} <= {"_name_or_path", "output_attentions"}
    assert {"model_type", "hidden_size", "vocab_size"} - {*kind().attribute_map} <= {*drop_code(written)}
