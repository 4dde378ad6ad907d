"""Environments that look as if they had packages: a folder and names in, its Python, which cannot be run, out."""

from __future__ import annotations

from pathlib import Path


def python_with(folder: Path, *packages: str) -> Path:
    """The Python of an environment in `folder` that has empty packages of these names."""
    for package in packages:
        (folder / "lib" / "python3.11" / "site-packages" / package).mkdir(parents=True)
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    return python
