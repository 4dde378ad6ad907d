"""Models that several processes share, read and resumed in parts: the same numbers as whole ones, in a part of the room."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from reodsl.diagnostics import Problem
from reodsl.graph.job import Job, Resources
from reodsl.graph.task import Task
from runners.models.folder import load_model, load_outline, save
from runners.models.tokenizer import word_tokenizer
from runners.train.launch import train_together
from tests.train.models import small_model


def job(folder: Path) -> Job:
    (folder / "out").mkdir()
    resources = Resources(trainers=2)
    return Job(
        Task("places", "train", {}, {}), {}, folder / "out", folder, folder, lambda told: None, resources
    )


def written(folder: Path, model, **settings) -> Path:
    """A model's folder, whose weights are stored in bfloat16 as a hub's are."""
    for name, value in settings.items():
        setattr(model.config, name, value)
    save(model.to(torch.bfloat16), word_tokenizer(("a", "b")), folder)
    return folder


@pytest.mark.heavy
def test_each_process_reads_its_own_rows_to_the_same_bits(tmp_path):
    """Tied and not, sizes that two divide and that they do not, longer positions, and names that are not the model's.

    A process needs room for its rows, and for one tensor at a time before that; reading whole takes all at once.
    """
    written(tmp_path / "model-tied", small_model(vocab=301))
    written(tmp_path / "model-untied", small_model("llama", tied=False, vocab=300))
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
    written(tmp_path / "model-yarn", small_model(), rope_parameters=yarn)
    both = written(tmp_path / "model-both", small_model())
    tensors = load_file(both / "model.safetensors")
    again = {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}
    save_file(tensors | again, both / "model.safetensors", {"format": "pt"})
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    mixture = Qwen3MoeConfig(
        vocab_size=23, intermediate_size=16, moe_intermediate_size=8, num_experts=4, head_dim=8, **shape
    )
    written(tmp_path / "model-mixture", Qwen3MoeForCausalLM(mixture))
    written(tmp_path / "model-wide", small_model(vocab=3000, tied=False))
    train_together(job(tmp_path), "tests.train.shared_places:place_all")
    found = json.loads((tmp_path / "out" / "found.json").read_text())
    assert len(found) == 6
    for name, told in found.items():
        assert [one["apart"] for one in told] == [[], []], name
        assert {one["tied"] for one in told} == {name not in ("model-untied", "model-mixture", "model-wide")}
        # What a stage leaves is what it found, the config and the generation config among it.
        save(load_model(tmp_path / name), word_tokenizer(("a", "b")), tmp_path / "plain" / name)
        for path in (tmp_path / "plain" / name).iterdir():
            assert (tmp_path / "out" / name / path.name).read_bytes() == path.read_bytes(), path
    whole = sum(one["own"] for one in found["model-wide"])
    for one in found["model-wide"]:
        assert one["most"] <= one["own"] + 20_000
        assert one["plain"] > 1.3 * whole, "a count that reading whole passes shows nothing"


@pytest.mark.heavy
def test_no_process_ever_holds_the_whole_optimizer(tmp_path):
    """Taken on are this process's rows of moments, whether two processes left them or one."""
    written(tmp_path / "model-wide", small_model(vocab=3000, tied=False))
    train_together(job(tmp_path), "tests.train.shared_places:resume")
    found = json.loads((tmp_path / "out" / "found.json").read_text())
    for told in found.values():
        for one in told:
            # Two moments for each weight; the weights are there already.
            assert one["most"] <= 2 * one["own"] + 20_000


def test_a_folder_that_does_not_fit_is_told_of_without_its_weights(tmp_path):
    folder = written(tmp_path / "model", small_model())
    assert {p.device.type for p in load_outline(folder).parameters()} == {"meta"}
    (folder / "generation_config.json").write_text("[]")
    with pytest.raises(Problem) as caught:
        load_outline(folder)
    assert caught.value.diagnostics[0].message.startswith("generation_config.json cannot be read")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(5)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(Problem, match="the config says 32"):
        load_outline(folder)
