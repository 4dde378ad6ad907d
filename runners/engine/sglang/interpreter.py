"""Find the Python that has SGLang, and what its servers need of this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from reodsl.diagnostics import Diagnostic, Problem, error
from reodsl.store.consent import ADDRESS

VARIABLE = "REODSL_SGLANG_PYTHON"

_COMPILES = 300.0
"""Seconds that a compiler may take."""
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


def toolkit(python: Path) -> dict[str, str]:
    """Return the variables that show this Python's servers the CUDA toolkit of its packages; nothing if they bring none.

    A toolkit of the node's does not count: compilers, headers and runtime of different versions do not go together, and
    servers compile kernels as they start. SGLang links in `lib64`, which the packages lack; `make sglang` makes it where
    servers may not write.
    """
    homes = sorted(python.parent.parent.glob("lib/python3*/site-packages/nvidia/cu*"))
    homes = [home for home in homes if (home / "bin" / "nvcc").is_file()]
    if not homes:
        return {}
    link = homes[-1] / "lib64" / "libcudart.so"
    for library in homes[-1].glob("lib/libcudart.so.*"):
        with contextlib.suppress(OSError):
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(f"../lib/{library.name}")
    return dict.fromkeys(("CUDA_HOME", "CUDA_PATH"), str(homes[-1]))


def link_kernel(home: Path, source: Path, *options: str) -> str:
    """Compile a CUDA source with the toolkit at `home` for an H100 and link it as SGLang does, beside the source.

    Return why that failed, in the compiler's words; nothing where it did not.
    """
    made, library = source.with_suffix(".o"), source.with_suffix(".so")
    compile_ = [str(home / "bin" / "nvcc"), "-std=c++20", "-Xcompiler", "-fPIC", "--expt-relaxed-constexpr"]
    compile_ += ["-gencode=arch=compute_90a,code=sm_90a", *options, "-c", str(source), "-o", str(made)]
    link = [os.environ.get("CXX", "c++"), "-shared", str(made), f"-L{home / 'lib64'}", "-lcudart"]
    for command in (compile_, [*link, "-o", str(library)]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILES, check=False)
        except (OSError, subprocess.TimeoutExpired) as caught:
            return str(caught)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            return next(
                (line for line in said if "error" in line or "cannot" in line), said[-1] if said else ""
            )
    return ""


def _has(python: Path, package: str) -> bool:
    if not python.is_file():
        return False
    if python == Path(sys.executable):
        return importlib.util.find_spec(package) is not None
    return any(python.parent.parent.glob(f"lib/python3*/site-packages/{package}"))
