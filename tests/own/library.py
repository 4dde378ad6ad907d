"""An installed package that offers functions of its own to specs."""

from __future__ import annotations

from pathlib import Path


def install(site: Path, text: str) -> None:
    """Install `text` as the module of a package that offers `sums:check` and `sums:make`."""
    facts = site / "sums-1.5.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: sums\nVersion: 1.5\n")
    (facts / "entry_points.txt").write_text("[reodsl.python]\ncheck = sums:check\nmake = sums:make\n")
    (site / "sums.py").write_text(text)
