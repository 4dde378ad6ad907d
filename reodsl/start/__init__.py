"""Starting specs by method and model: sound texts that are ready to be changed."""

from __future__ import annotations

from pathlib import Path

from reodsl.start.write import JOBS, MODELS, cluster_job, starting_spec

_HERE = Path(__file__).resolve().parent
_SHIPPED = _HERE / "quickstart.reo"
# A wheel carries the spec inside the package; a checkout has it among the others.
QUICKSTART = _SHIPPED if _SHIPPED.exists() else _HERE.parents[1] / "specs" / "quickstart.reo"
"""The README's study."""

__all__ = ["JOBS", "MODELS", "QUICKSTART", "cluster_job", "starting_spec"]
