"""reodsl: reinforcement-learning experiments on reasoning efficiency, from short spec files.

From a notebook or a script, `load` opens a spec:

    study = reodsl.load("specs/quickstart.reo", n=7)
    run = study.run(local=True)
    run.table("main")

The command `reodsl` does the rest: `reodsl --help`.
"""

from __future__ import annotations

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != __file__.rpartition("/reodsl/")[0]:
    # `python -m reodsl`: the working folder is data, and nothing more is imported from it.
    del sys.path[0]

# `typing` takes longer to import than all else here, and an interrupt meanwhile would show a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from reodsl.door import load as load

__version__ = "0.9.0"
__all__ = ["__version__", "load"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Return `load`, which is imported at its first use."""
        # `import reodsl` stays light: the door opens when it is first used.
        if name == "load":
            from reodsl.door import load

            return load
        raise AttributeError(f"module 'reodsl' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
