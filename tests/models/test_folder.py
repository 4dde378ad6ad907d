"""Model folders: what is saved loads as it was, and each broken folder is one clear problem."""

from __future__ import annotations

import json
import os
import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPTJConfig

from reodsl.diagnostics import Problem
from runners.models.folder import build, load, load_generation, load_model, load_outline, save
from runners.models.tensors import read_state
from runners.models.tokenizer import word_tokenizer

SIZES = {
    "layers": 2,
    "hidden": 16,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "intermediate": 24,
    "context": 64,
}


POSITIONS = "max_position_embeddings"


def small(family: str = "qwen3", tied: bool = True, seed: int = 0) -> tuple[Any, Any]:
    tokenizer = word_tokenizer(["a", "b", "c"])
    return build(len(tokenizer), seed, eos=1, pad=0, family=family, tied=tied, **SIZES), tokenizer


@pytest.fixture
def of_positions(tmp_path: Path) -> Path:
    """A model that computes a table of its positions, and keeps none of it in its file."""
    sizes = {"n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 8, "n_positions": 64, "rotary_dim": 4}
    model = AutoModelForCausalLM.from_config(GPTJConfig(**sizes))
    save(model, word_tokenizer(["a", "b"]), tmp_path / "positions")
    return tmp_path / "positions"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model, tokenizer = small()
    save(model, tokenizer, tmp_path / "model")
    return tmp_path / "model"


def same(one: Any, other: Any) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(states[0][k], states[1][k]) for k in states[0]
    )


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_model_loads_as_it_was(tmp_path: Path, family: str, tied: bool) -> None:
    model, tokenizer = small(family, tied)
    place = tmp_path / "deep" / "model"
    save(model, tokenizer, place)
    assert [path.name for path in place.parent.iterdir()] == ["model"]
    loaded = load(place)
    assert same(loaded.model, model)
    assert not loaded.model.training
    assert loaded.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert same(AutoModelForCausalLM.from_pretrained(place), model)
    assert AutoTokenizer.from_pretrained(place).eos_token_id == 1
    state = read_state(place)
    assert all(torch.equal(state[name], model.state_dict()[name]) for name in state)


def test_an_older_folder_is_replaced_whole(folder: Path) -> None:
    (folder / "stale.txt").write_text("old")
    model, tokenizer = small(seed=4)
    save(model, tokenizer, folder)
    assert same(load_model(folder), model)
    assert not (folder / "stale.txt").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_failed_save_leaves_the_older_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = small(seed=4)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(model), "save_pretrained", full)
    with pytest.raises(OSError, match="No space left"):
        save(model, tokenizer, folder)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    assert same(load_model(folder), small()[0])


def test_a_place_that_cannot_be_written(tmp_path: Path, refusal: Callable[..., None]) -> None:
    (tmp_path / "file").write_text("")
    model, tokenizer = small()
    with pytest.raises(Problem) as caught:
        save(model, tokenizer, tmp_path / "file" / "model")
    refusal("models/E0811.txt", caught.value)


def test_shards_load_too(folder: Path) -> None:
    model, _ = small()
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="4KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert same(load_model(folder), model)


def rewrite_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def no_folder(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch exploded",)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))


def truncated(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def empty_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def noise(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 8)


def missing_tensor(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def other_width(folder: Path) -> None:
    rewrite_config(folder, hidden_size=32)


def other_inner_width(folder: Path) -> None:
    rewrite_config(folder, intermediate_size=40)


def endless_layers(folder: Path) -> None:
    rewrite_config(folder, num_hidden_layers=10**9, layer_types=None)


def more_layers(folder: Path) -> None:
    rewrite_config(folder, num_hidden_layers=900, layer_types=None)


def deep_json(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


def config_is_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def config_is_a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def unknown_architecture(folder: Path) -> None:
    rewrite_config(folder, model_type="sorcery")


def own_code(folder: Path) -> None:
    (folder / "evil.py").write_text("open('exploded', 'w').close()\n")
    rewrite_config(
        folder, model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}
    )


def broken_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def escaping_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": "../../secret.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def shard_gone(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def broken_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("[]")


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (no_folder, "E0803", "there is no model folder here"),
        (no_weights, "E0803", "`model.safetensors` is missing"),
        (no_config, "E0803", "has no config.json"),
        (no_tokenizer, "E0803", "has no tokenizer.json"),
        (shard_gone, "E0803", "which is missing"),
        (pickled, "E0803", "the weights are a pickle"),
        (truncated, "E0803", "the weights cannot be read"),
        (empty_weights, "E0803", "the weights cannot be read"),
        (noise, "E0803", "the weights cannot be read"),
        (config_is_no_json, "E0803", "it is not JSON"),
        (config_is_a_list, "E0803", "it is not a JSON object"),
        (broken_tokenizer, "E0803", "the tokenizer cannot be read"),
        (escaping_index, "E0803", "not a safetensors file of this folder"),
        (broken_index, "E0803", "index.json` cannot be read"),
        (missing_tensor, "E0803", "have no tensor"),
        (other_width, "E0803", "is 8×16, and the config says 8×32"),
        (other_inner_width, "E0803", "is 24×16, and the config says 40×16"),
        (endless_layers, "E0803", "out of bounds: `num_hidden_layers`"),
        (more_layers, "E0803", "says 900 layers"),
        (deep_json, "E0803", "nested too deeply"),
        (unknown_architecture, "E0801", "architecture is unknown"),
        (own_code, "E0801", "runs code of its own"),
    ],
)
def test_a_broken_folder_is_one_clear_problem(
    folder: Path, damage: Any, code: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(folder)
    monkeypatch.chdir(folder.parent)
    with pytest.raises(Problem) as caught:
        load(folder)
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert words in found.message
    assert found.where is not None
    assert str(folder) in found.where
    assert "\n" not in found.message
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[1]", ""),
        ('{"eos_token_id": [true]}', "`eos_token_id` is True"),
        ('{"eos_token_id": "<eos>"}', "`eos_token_id` is '<eos>'"),
        ('{"pad_token_id": 1000000000000000000000}', "`pad_token_id` is 1000"),
        ('{"watermarking_config": {"x": 1}}', "'x'"),
    ],
)
def test_settings_of_sampling_that_cannot_be_read_are_named(folder: Path, text: str, words: str) -> None:
    (folder / "generation_config.json").write_text(text)
    for read in (load_generation, load_outline):
        with pytest.raises(Problem) as caught:
            read(folder)
        (refusal,) = caught.value.diagnostics
        assert (refusal.code, refusal.where) == ("E0803", str(folder))
        assert refusal.message.startswith("generation_config.json cannot be read: ")
        assert words in refusal.message


def test_settings_of_sampling_that_contradict_each_other_hinder_no_save(folder: Path, tmp_path: Path) -> None:
    """Models are published with a temperature and without `do_sample`, which transformers reads and does not write."""
    settings = {"temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2], "pad_token_id": 0}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    loaded = load(folder)
    save(loaded.model, loaded.tokenizer, tmp_path / "again")
    again = json.loads((tmp_path / "again" / "generation_config.json").read_text())
    assert (again["eos_token_id"], again["pad_token_id"]) == ([1, 2], 0)
    assert "temperature" not in again
    whole = {**settings, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(whole))
    loaded = load(folder)
    save(loaded.model, loaded.tokenizer, tmp_path / "again")
    assert json.loads((tmp_path / "again" / "generation_config.json").read_text()).items() >= whole.items()


@pytest.mark.parametrize(
    "changes", [{POSITIONS: 10**9}, {POSITIONS: 10**15}, {POSITIONS: 1 << 22, "rotary_dim": 1 << 22}]
)
def test_tables_that_would_fill_the_machine_are_never_computed(
    of_positions: Path, changes: dict[str, int], refusal: Callable[..., None]
) -> None:
    load_model(of_positions)
    place = of_positions / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | changes))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (load_model, load_outline):
        with pytest.raises(Problem) as caught:
            read(of_positions)
        assert "config.json is out of bounds: it makes tables of " in caught.value.diagnostics[0].message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    if changes == {POSITIONS: 10**9}:
        refusal("models/E0803-tables.txt", caught.value)
