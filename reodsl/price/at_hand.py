"""Sizes of models whose weights are on this machine: from a spec's sources to the counts in their `config.json`."""

from __future__ import annotations

import json
from pathlib import Path

from reodsl.ir import Spec
from reodsl.ir.model import Folder, Hub
from reodsl.ir.training import FromModel
from reodsl.price.sizes import Sizes, from_config, sizes_of
from reodsl.store.external import LARGEST_CONFIG, hub_snapshot
from reodsl.store.plain import read_plain


def sizes_at_hand(spec: Spec, folder: Path) -> dict[str, Sizes]:
    """By model name, those that the spec does not describe and a folder or the hub's cache does.

    Relative paths start at `folder`. Reads one small file a model.
    """
    sizes_by_model = {}
    for arm in spec.study.arms:
        start = arm.checkpoint
        model = start.model if isinstance(start, FromModel) else start.experiment.model
        if model.name in sizes_by_model or sizes_of(model) is not None:
            continue
        match model.source:
            case Folder(path=path):
                place: Path | None = folder / path
            case Hub(repo=repo, revision=revision):
                place = hub_snapshot("models", repo, revision)
            case _:
                place = None
        sizes = _read(place / "config.json") if place is not None else None
        if sizes is not None:
            sizes_by_model[model.name] = sizes
    return sizes_by_model


def _read(path: Path) -> Sizes | None:
    try:
        config = json.loads(read_plain(path, LARGEST_CONFIG))
    except (OSError, ValueError, RecursionError):
        return None
    return from_config(config) if isinstance(config, dict) else None
