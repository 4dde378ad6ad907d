"""Opening an engine: a checkpoint folder and this machine's resources in, a rollout engine with its weights out."""

from __future__ import annotations

from pathlib import Path

from reodsl.diagnostics import problem
from reodsl.graph.job import Resources
from runners.engine.protocol import Engine
from runners.models.folder import load_config


def open_engine(folder: Path, resources: Resources) -> Engine:
    """The rollout engine that `resources` names, with a checkpoint's weights."""
    if resources.engine != "embedded":
        raise problem(
            "E0813",
            f"there is no rollout engine `{resources.engine}` here",
            help="the engine that comes with reodsl is `embedded`",
        )
    from runners.engine.embedded import EmbeddedEngine, EmbeddedSettings

    return EmbeddedEngine(load_config(folder), folder, settings=EmbeddedSettings(device=resources.device))
