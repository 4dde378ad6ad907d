"""The runner of `model` tasks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from reodsl.diagnostics import problem, refuse
from reodsl.graph.job import Job
from reodsl.ir.model import Architecture, Folder, Hub, Model, ServedModel
from reodsl.store.external import MODEL_TEXTS, hub_snapshot
from runners.data.draws import derive_seed
from runners.models.bounds import check_architecture
from runners.models.folder import (
    LoadedModel,
    build,
    drop_code,
    load_config,
    load_generation,
    load_tokenizer,
    require_fit,
    save,
)
from runners.models.tensors import weight_files
from runners.models.tokenizer import make_word_tokenizer, require_bounded_steps, require_written


def model(job: Job) -> None:
    """Write `checkpoint/` of a `model` task: new random weights, or the files of a folder or of a hub's cache.

    For a model that is served at an address, only its tokenizer is written.

    Raises:
        Problem: E0803 or E0850, if files are missing; E0803 or E0808, if they are no usable model; E0815, if the
            tokenizer cannot write the marks of thinking.
    """
    declared: Model = job.task.work["model"]
    source, target = declared.source, job.out / "checkpoint"
    match source:
        case Architecture():
            refuse(check_architecture(source, job.task.id))
            loaded = make_fresh(source, declared.context, job.task.work["seed"])
            save(loaded.model, loaded.tokenizer, target)
        case Folder():
            copy_model(job.folder / source.path, target)
        case Hub():
            copy_model(snapshot_of(source, job.task.id), target)
        case ServedModel(tokenizer=Folder(path=path)):
            copy_tokenizer(job.folder / path, target)
        case ServedModel(tokenizer=Hub() as tokenizer):
            copy_tokenizer(snapshot_of(tokenizer, job.task.id), target)
    require_marks(declared, load_tokenizer(target))


def snapshot_of(source: Hub, where: str) -> Path:
    """Return the folder of a hub's model in the local cache.

    Args:
        source: The model on the hub.
        where: The place to name in the message.

    Raises:
        Problem: E0850, if the model is not in the cache.
    """
    snapshot = hub_snapshot("models", source.repo, source.revision)
    if snapshot is None:
        raise problem(
            "E0850",
            f"the files of `{source.repo}` are not on this machine",
            where=where,
            help=f"download them on a machine with a network: `hf download {source.repo}`",
        )
    return snapshot


def require_marks(declared: Model, tokenizer: Any) -> None:
    """Check that the tokenizer can write the marks of thinking that the model declares; raise E0815 if not.

    Marks that the model does not declare are not checked.
    """
    marks = {"think.open": declared.think_open, "think.close": declared.think_close}
    for name, mark in marks.items():
        if mark:
            require_written(tokenizer, mark, f"the model's `{name}`")


def make_fresh(source: Architecture, context: int, seed: int) -> LoadedModel:
    """Build a model of the given sizes with random weights, and its word-level tokenizer.

    Args:
        source: The sizes and the words of the tokenizer.
        context: The longest sequence in tokens.
        seed: The run's seed, from which the weights are drawn.
    """
    tokenizer = make_word_tokenizer(source.tokenizer)
    built = build(
        len(tokenizer),
        derive_seed(seed, "weights") >> 1,
        eos=tokenizer.eos_token_id,
        pad=tokenizer.pad_token_id,
        family=source.family,
        layers=source.layers,
        hidden=source.hidden,
        heads=source.heads,
        kv_heads=source.kv_heads,
        head_dim=source.head_dim,
        intermediate=source.intermediate,
        context=context,
        tied=source.tie_embeddings,
        rope_theta=source.rope_theta,
    )
    return LoadedModel(built, tokenizer)


def copy_model(source: Path, target: Path) -> None:
    """Check a model folder, and copy its weights, settings and tokenizer, but no other files.

    Args:
        source: The model folder.
        target: The folder to write, which must not exist.

    Raises:
        Problem: E0801, E0803 or E0812, if the model cannot be used.
    """
    config = load_config(source)
    copy_tokenizer(source, target)
    require_fit(source, config)
    for path in weight_files(source):
        if path.is_file():
            shutil.copyfile(path, target / path.name)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Check and copy the tokenizer and the settings of a model folder, without weights.

    Settings of `config.json` that run code or choose files are left out of the copy.

    Args:
        source: The model folder.
        target: The folder to write, which must not exist.

    Raises:
        Problem: E0801, E0803 or E0812, if the tokenizer cannot be used.
    """
    require_bounded_steps(source)
    load_tokenizer(source)
    load_generation(source)
    target.mkdir()
    for path in (path for pattern in MODEL_TEXTS for path in sorted(source.glob(pattern))):
        if path.is_file():
            shutil.copyfile(path, target / path.name)
    config = target / "config.json"
    settings = json.loads(config.read_text("utf-8")) if config.is_file() else {}
    safe = drop_code(settings)
    if safe != settings:
        config.write_text(json.dumps(safe, indent=2) + "\n", "utf-8")
