"""Model folders that hold no model: found before anything starts, and nothing in them is ever executed."""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reodsl.store.store import Store
from runners.models import template
from tests.bad_input.commands import FROM_FOLDER, Place, permissions_count, refused


class Bomb:
    """Unpickled, it leaves a mark."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("unpickled",)


def weights_of(folder: Path) -> Path:
    (found,) = folder.glob("*.safetensors")
    return found


def without_weights(folder: Path) -> None:
    weights_of(folder).unlink()


def pickled(folder: Path) -> None:
    without_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": Bomb()}))


def pickled_beside(folder: Path) -> None:
    """A pickle and Python files beside good weights."""
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": Bomb()}))
    (folder / "modeling_own.py").write_text("import os\nos.mkdir('imported')\n")


def renamed_pickle(folder: Path) -> None:
    weights_of(folder).write_bytes(pickle.dumps({"w": Bomb()}))


def cut(folder: Path) -> None:
    path = weights_of(folder)
    path.write_bytes(path.read_bytes()[:-64])


def giant_header(folder: Path) -> None:
    weights_of(folder).write_bytes(struct.pack("<Q", 1 << 62) + b"{}")


def own_code(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_own.Own"}
    config["model_type"] = "own"
    path.write_text(json.dumps(config))
    (folder / "modeling_own.py").write_text("import os\nos.mkdir('imported')\nclass Own: pass\n")


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def bad_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def other_shapes(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hidden_size": 32}))


def index_out(folder: Path) -> None:
    """An index whose shards lie outside the folder."""
    path = weights_of(folder)
    shutil.copy(path, folder.parent / "outside.safetensors")
    path.rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {"model.embed_tokens.weight": "../outside.safetensors"}})
    )


def config_with(**changes: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return spoil


def tokenizer_of(**model: Any) -> Callable[[Path], None]:
    """A tokenizer.json without added tokens, of this model."""

    def spoil(folder: Path) -> None:
        path = folder / "tokenizer.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "added_tokens": [], "model": model}))

    return spoil


def doubling(folder: Path) -> None:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    path = folder / "tokenizer.json"
    steps = {"type": "Sequence", "normalizers": [step] * 36}
    path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": steps}))


def numeric_template(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": 5}))


def nested_index(folder: Path) -> None:
    weights_of(folder).rename(folder / "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": ' + "[" * 100_000)


def nested_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"a": ' + "[" * 100_000)


def endless_template(folder: Path) -> None:
    loop = "{% for i in range(99999) %}"
    (folder / "chat_template.jinja").write_text(loop * 4 + "{% endfor %}" * 4)


def pipe_for_weights(folder: Path) -> None:
    weights_of(folder).unlink()
    os.mkfifo(folder / "model.safetensors")


def linked(name: str) -> Callable[[Path], None]:
    """A folder in which one file, or a folder of templates, is a link to what lies beside it."""

    def spoil(folder: Path) -> None:
        secret = folder.parent / "secret"
        secret.mkdir()
        (secret / "credentials").write_text('{"key": "SECRET"}')
        whole = not name.endswith((".json", ".jinja", ".txt", ".safetensors"))
        place = folder / name
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(secret if whole else secret / "credentials")

    return spoil


LINKS = (
    "chat_template.jinja", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "config.json",
    "special_tokens_map.json", "merges.txt", "model.safetensors", "additional_chat_templates",
    "additional_chat_templates/tools.jinja",
)  # fmt: skip
QWEN = {"model_type": "qwen3", "num_hidden_layers": 100_000_000}
FOLDERS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "nothing": (lambda folder: shutil.rmtree(folder), "E0803", "there is no model folder here"),
    "empty": (lambda folder: [path.unlink() for path in folder.iterdir()] and None, "E0803", "no weights"),
    "no weights": (without_weights, "E0803", "no *.safetensors file"),
    "a pickle": (pickled, "E0803", "`pytorch_model.bin`"),
    "no settings": (no_config, "E0803", "config.json"),
    "no tokenizer": (no_tokenizer, "E0803", "tokenizer.json"),
    "a file": (lambda folder: (shutil.rmtree(folder), folder.write_text(""))[0], "E0803", ""),
    "a pickle named safetensors": (renamed_pickle, "E0803", "copy or download it again"),
    "cut weights": (cut, "E0803", "cut short"),
    "a giant header": (giant_header, "E0803", "header too large"),
    "code of its own": (own_code, "E0801", "code of its own"),
    "settings that are no JSON": (bad_config, "E0803", "config.json cannot be read"),
    "other shapes": (other_shapes, "E0803", "the config says 57×32"),
    "a billion labels": (config_with(num_labels=10**9), "E0803", "`num_labels` is 1e+09"),
    "layers by another name": (config_with(model_type="gpt2", n_layer=10**8), "E0803", "`n_layer` is 1e+08"),
    "layers inside": (config_with(text_config=QWEN), "E0803", "`text_config.num_hidden_layers` is 1e+08"),
    "a vocabulary of a trillion": (config_with(vocab_size=10**12), "E0803", "`vocab_size` is 1e+12"),
    "nested settings": (config_with(a=[[[[[[[[[[1]]]]]]]]]]), "E0803", "more than 8 levels deep"),
    "a config of brackets": (nested_config, "E0803", "nested too deeply"),
    "a count in quotes": (
        config_with(num_hidden_layers="2"),
        "E0803",
        "'num_hidden_layers' expected int, got str",
    ),
    "half a count": (
        config_with(num_hidden_layers=2.0),
        "E0803",
        "'num_hidden_layers' expected int, got float",
    ),
    "an id that is a word": (config_with(eos_token_id="x"), "E0803", "'eos_token_id' with value 'x'"),
    "layers of no kind": (config_with(layer_types=["x"]), "E0803", "`layer_types` entries must be in"),
    "a type that is a function": (config_with(dtype="load"), "E0803", "`dtype` is `load`"),
    "a number of 4,001 digits": (
        config_with(hidden_size=10**4000),
        "E0803",
        "`hidden_size` is a number of 4,001 digits",
    ),
    "an index of brackets": (nested_index, "E0803", "index.json` cannot be read: it is nested too deeply"),
    "a template that is a number": (numeric_template, "E0803", "`chat_template` is 5"),
    "pieces without the unknown": (
        tokenizer_of(
            type="WordPiece",
            vocab={"a": 0},
            unk_token="[UNK]",
            continuing_subword_prefix="##",
            max_input_chars_per_word=100,
        ),
        "E0803",
        "[UNK]",
    ),
    "words without the unknown": (
        tokenizer_of(type="WordLevel", vocab={"a": 0}, unk_token="<unk>"),
        "E0803",
        "[UNK]",
    ),
    "36 doublings": (doubling, "E0803", "6.87e+10 times as long"),
    "quantized weights": (
        config_with(quantization_config={"quant_method": "awq"}),
        "E0803",
        "quantized (awq)",
    ),
    "a pipe for weights": (pipe_for_weights, "E0803", "it is a pipe"),
    "shards outside": (index_out, "E0803", "names `../outside.safetensors`"),
}
_KINDS = ("quantized weights", "a billion labels", "shards outside", "other shapes")
SHOWN = dict(zip(_KINDS, ("quantized", "bounds", "unread", "unfit"), strict=True))
"""Refusals in words of our own alone, by their golden files."""


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_that_holds_no_model(
    place: Place, checkpoint: Path, kind: str, refusal: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template, "RENDER_SECONDS", 2)
    spoil, code, words = FOLDERS[kind]
    folder = place.folder / "weights"
    shutil.copytree(checkpoint, folder)
    spoil(folder)
    place.write(FROM_FOLDER)
    told = place.run()
    # What a tokenizer cannot do is seen where it is used, which no file is to blame for alone.
    refused(told, code, "mite.model" if "the unknown" in kind else "weights", words)
    if kind in SHOWN:
        refusal(f"models/E0803-{SHOWN[kind]}.txt", told.err)
    assert not (place.folder / "unpickled").exists()
    assert not (place.folder / "imported").exists()
    store = place.folder / ".reodsl"
    if store.exists():
        assert {(Store(store).material(key) or {})["kind"] for key in Store(store)} <= {"data"}
        assert not any((store / "tmp").iterdir())


@pytest.mark.parametrize("name", LINKS)
def test_a_file_that_is_a_link_out_of_the_folder_is_no_part_of_the_model(
    place: Place, checkpoint: Path, name: str, refusal: Callable[..., None]
) -> None:
    folder = place.folder / "weights"
    shutil.copytree(checkpoint, folder)
    linked(name)(folder)
    place.write(FROM_FOLDER)
    told = place.run()
    refused(told, "E0803", f"weights/{name}", "a link that leads out of the folder", "/secret")
    if name == "chat_template.jinja":
        refusal("models/E0803-link.txt", told.err, (str(place.folder), "HERE"))
    assert "SECRET" not in told.err
    assert not (place.folder / ".reodsl").exists()
    for command in ("plan", "rehearse", "doctor"):
        told = place.call(command, "tiny.reo")
        assert told.code == 1
        assert "a link that leads out of the folder" in told.err + told.out


def test_links_inside_the_folder_and_a_copy_without_links_train(place: Place, checkpoint: Path) -> None:
    """The advice of E0803 is tried, on a folder whose weights lie on another disk."""
    folder = place.folder / "weights"
    shutil.copytree(checkpoint, place.folder / "disk")
    (place.folder / "disk" / "tokenizer.json").rename(place.folder / "disk" / "words.json")
    (place.folder / "disk" / "tokenizer.json").symlink_to("words.json")
    folder.mkdir()
    for path in (place.folder / "disk").iterdir():
        (folder / path.name).symlink_to(path)
    place.write(FROM_FOLDER)
    told = place.run("--amend", "tiny.steps=1")
    refused(told, "E0803", "weights/")
    (advice,) = re.findall("`(cp -rL .*?)`", told.err)
    subprocess.run(shlex.split(advice), check=True, cwd=place.folder)
    for whole in ("weights-whole", "disk"):
        folder.rename(place.folder / f"before-{whole}")
        folder.symlink_to(place.folder / whole)
        told = place.run("--amend", "tiny.steps=1")
        assert told.code == 0, told.err


def test_a_folder_that_may_not_be_read(place: Place, checkpoint: Path) -> None:
    folder = place.folder / "weights"
    shutil.copytree(checkpoint, folder)
    weights_of(folder).chmod(0)
    place.write(FROM_FOLDER)
    with permissions_count():
        told = place.run()
    refused(told, "E0803", "weights/model.safetensors", "Permission denied", "chmod -R u+rX weights")
    assert not (place.folder / ".reodsl").exists()


@pytest.mark.slow
def test_a_template_without_end_ends_the_run_that_renders_it(
    place: Place, checkpoint: Path, refusal: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template, "RENDER_SECONDS", 2)
    folder = place.folder / "weights"
    shutil.copytree(checkpoint, folder)
    endless_template(folder)
    place.write(FROM_FOLDER.replace('folder("weights")', 'folder("weights")\n  prompt { kind = chat }'))
    told = place.run()
    assert told.code == 1
    assert set(told.findings()) == {"E0812"}, told.err
    refusal("models/E0812-endless.txt", told.err, ("within 2 seconds", "within 10 seconds"))


def test_what_lies_beside_good_weights_stays_behind(place: Place, checkpoint: Path) -> None:
    folder = place.folder / "weights"
    shutil.copytree(checkpoint, folder)
    pickled_beside(folder)
    place.write(FROM_FOLDER)
    told = place.run("--amend", "tiny.steps=1")
    assert told.code == 0, told.err
    names = {path.name for path in (place.folder / ".reodsl" / "objects").rglob("*")}
    assert not [name for name in names if name.endswith((".bin", ".py", ".pt", ".pkl"))]
    assert not (place.folder / "unpickled").exists()
    assert not (place.folder / "imported").exists()
