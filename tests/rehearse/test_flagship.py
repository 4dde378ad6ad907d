"""The paper's experiments, rehearsed: the whole graph, on data rows in their published form."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoConfig

from runners.models.double import make_up_model
from tests.called import call
from tests.specs.test_published_data import PUBLISHED

SPECS = Path(__file__).resolve().parents[2] / "specs"
QWEN3_4B = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "eos_token_id": 258,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "max_position_embeddings": 40960,
    "max_window_layers": 36,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}
"""The published config.json of Qwen3-4B, but for a vocabulary of bytes."""
DRAWN = ("paper/deepseek_1_5b", "paper/deepseek_7b", "paper/evaluate", "paper/frontier_models", "paper/l1")
DRAWN += ("paper/more_baselines", "paper/qwen3_4b", "paper/qwen3_8b", "paper/z1", "quickstart")


@pytest.fixture
def place(tmp_path: Path, undrawn: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the flagship spec and the published data beside it; a hub's cache that is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    shutil.copy(SPECS / "qwen3_4b_reo_exp.reo", tmp_path / "spec.reo")
    for each in PUBLISHED.values():
        file = tmp_path / "data" / each.repo / each.file
        file.parent.mkdir(parents=True)
        each.write(file, each.rows)
    return tmp_path


def cached_model(hub: Path) -> None:
    """Qwen3-4B's config and a tokenizer in the cache, without weights."""
    snapshot = hub / "models--Qwen--Qwen3-4B" / "snapshots" / "0a1b"
    snapshot.mkdir(parents=True)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text("0a1b")
    _, tokenizer = make_up_model(("<think>", "</think>"), 40960)
    tokenizer.save_pretrained(snapshot)
    config = {**QWEN3_4B, "vocab_size": len(tokenizer)}
    (snapshot / "config.json").write_text(json.dumps(config))
    assert AutoConfig.from_pretrained(snapshot).num_hidden_layers == 36


@pytest.mark.slow
def test_the_flagship_rehearses_on_published_rows(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached_model(place / "hub")
    code = call("rehearse", "spec.reo", "--quiet")
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "12 of 12 tasks done" in out
    assert "with the model's tokenizer and chat template" in out
    assert "made-up" not in out
    # It leaves nothing behind: the runs' store is not begun.
    assert not list(place.glob(".reodsl*"))


def test_what_fails_is_told_at_its_line_and_nothing_stays(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column that the data lack, in the file that is here."""
    file = place / "data" / PUBLISHED["amc23_questions"].repo / PUBLISHED["amc23_questions"].file
    PUBLISHED["aime25_questions"].write(file.with_name("test.jsonl"), [{"Frage": "1 + 1", "answer": "2"}])
    file.unlink()
    assert call("rehearse", "spec.reo", "--quiet") == 1
    assert "E0701" in capsys.readouterr().err
    assert not list(place.glob(".reodsl*"))


@pytest.mark.heavy
@pytest.mark.parametrize("name", DRAWN)
def test_every_spec_of_the_paper_rehearses(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "spec.reo").write_text((SPECS / f"{name}.reo").read_text())
    for other in (SPECS / name).parent.glob("*.reo"):
        shutil.copy(other, place / other.name)
    code = call("rehearse", "spec.reo", "--quiet")
    assert code == 0, capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.sglang
def test_the_flagship_rehearses_on_a_real_server(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached_model(place / "hub")
    code = call("rehearse", "spec.reo", "--quiet", "--engine", "sglang")
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "generated in its place" not in out


@pytest.mark.heavy
def test_a_rehearsal_with_the_real_model_calibrates_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The quickstart has no cluster, so its own model runs here; a first plan is by assumption, a second by that."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(SPECS / "quickstart.reo", tmp_path / "spec.reo")
    assert call("plan", "spec.reo") == 2
    assert "the first run measures this machine" in capsys.readouterr().out
    assert call("rehearse", "spec.reo", "--real", "--tokens", "32", "--quiet") == 0
    assert "`reodsl plan` now uses the measured times" in capsys.readouterr().out
    assert call("plan", "spec.reo") == 2
    out = capsys.readouterr().out
    assert "by a rehearsed result" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--real", "--engine", "sglang"), "--real uses the spec's engine"),
        (("--address", "local", "--engine", "sglang"), "--address uses the spec's engine"),
        (("--real", "--address", "local"), "--real needs GPUs"),
        (("--address", "local"), "E0971"),
    ],
)
def test_options_that_exclude_each_other(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("rehearse", str(SPECS / "quickstart.reo"), *options) == 1
    assert words in capsys.readouterr().err
