"""Find the Python that has SGLang, and what its servers need of this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from reodsl.diagnostics import Diagnostic, Problem, error

VARIABLE = "REODSL_SGLANG_PYTHON"
ADDRESS = "REODSL_SGLANG_ADDRESS"
"""The environment variable with addresses of servers that run already, separated by commas."""


_SYSTEM_CUDA = Path("/usr/local/cuda")
REMEDY = f"run `make sglang`, or name a Python that has it in {VARIABLE}; without it: `engine = embedded`"


def candidates() -> Iterator[Path]:
    """Yield where to look, in order: what the environment names, this Python, and what `make sglang` made."""
    named = os.environ.get(VARIABLE)
    if named:
        yield Path(named)
        return
    if importlib.util.find_spec("sglang") is not None:
        yield Path(sys.executable)
    # Not the working folder's: what lies there is data, and whoever made it does not choose what runs.
    yield Path(__file__).resolve().parents[3] / ".venv-sglang" / "bin" / "python"


def find_interpreter() -> Path | None:
    """Return the first of the candidates that is a Python with SGLang beside it."""
    return next((path for path in candidates() if _has(path, "sglang")), None)


def interpreter() -> Path:
    """Return the result of `find_interpreter`. Raises E0820 if there is none."""
    python = find_interpreter()
    if python is None:
        raise Problem(_absent())
    return python


def missing() -> Diagnostic | None:
    """Report E0820 if servers have to be started from here and there is nothing to start them with."""
    if os.environ.get(ADDRESS) or find_interpreter() is not None:
        return None
    return _absent()


def _absent() -> Diagnostic:
    return error(
        "E0820",
        "SGLang is not installed here",
        notes=(f"looked for: {', '.join(str(path) for path in candidates())}",),
        help=REMEDY,
    )


def saves_memory(python: Path) -> bool:
    """Return whether servers of this Python can give their memory on GPUs back while they run."""
    return _has(python, "torch_memory_saver")


def toolkit(python: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that shows this Python's servers the CUDA compiler of its packages; nothing if they find one.

    SGLang imports DeepGEMM, which ends the server where it finds no compiler: in CUDA_HOME, CUDA_PATH, on the PATH or below
    /usr/local/cuda. A node may have a driver alone, and the pinned packages bring a compiler along.
    """
    there = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    if there or shutil.which("nvcc", path=environment.get("PATH")) or _SYSTEM_CUDA.exists():
        return {}
    compilers = sorted(python.parent.parent.glob("lib/python3*/site-packages/nvidia/cu*/bin/nvcc"))
    return {"CUDA_HOME": str(compilers[-1].parent.parent)} if compilers else {}


def _has(python: Path, package: str) -> bool:
    if not python.is_file():
        return False
    if python == Path(sys.executable):
        return importlib.util.find_spec(package) is not None
    return any(python.parent.parent.glob(f"lib/python3*/site-packages/{package}"))
