"""reodsl: reinforcement-learning experiments on reasoning efficiency, from short spec files."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    # `import reodsl` stays light: the door opens when it is first used.
    if name == "load":
        from reodsl.door import load

        return load
    raise AttributeError(f"module 'reodsl' has no attribute {name!r}")
