"""Give servers the tools that compile kernels."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

_COMPILE_SECONDS = 300.0
"""Seconds that a compiler may take."""


def toolkit(python: Path) -> dict[str, str]:
    """Return the environment variables that make servers use the CUDA toolkit among SGLang's Python packages.

    Servers compile kernels when they start. The node's toolkit is not used, because its compiler, headers and runtime
    may have other versions. SGLang links against a folder `lib64`, which the packages lack: it is created here, or by
    `make sglang` if servers may not write. `PATH` finds `ninja` in the folder of the Python.

    Args:
        python: The Python that has SGLang.

    Returns:
        Values by name; empty if the packages have no toolkit.
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
    variables = dict.fromkeys(("CUDA_HOME", "CUDA_PATH"), str(homes[-1]))
    variables["PATH"] = os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath)))
    return variables


def link_kernel(home: Path, source: Path, *options: str) -> str:
    """Compile a CUDA source for an H100, and link it as SGLang does, to test a toolkit.

    Args:
        home: The folder of the CUDA toolkit.
        source: The `.cu` file; the object file and the library are written to its folder.
        *options: Further options of `nvcc`.

    Returns:
        The compiler's message of a failure, or "" on success.
    """
    object_file, library = source.with_suffix(".o"), source.with_suffix(".so")
    compile_ = [str(home / "bin" / "nvcc"), "-std=c++20", "-Xcompiler", "-fPIC", "--expt-relaxed-constexpr"]
    compile_ += ["-gencode=arch=compute_90a,code=sm_90a", *options, "-c", str(source), "-o", str(object_file)]
    link = [os.environ.get("CXX", "c++"), "-shared", str(object_file), f"-L{home / 'lib64'}", "-lcudart"]
    for command in (compile_, [*link, "-o", str(library)]):
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as caught:
            return str(caught)
        if run.returncode:
            lines = run.stderr.strip().splitlines()
            return next(
                (line for line in lines if "error" in line or "cannot" in line), lines[-1] if lines else ""
            )
    return ""
