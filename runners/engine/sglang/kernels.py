"""Give servers what they compile kernels with, and compile beforehand what a server of a dense model starts with.

The latter where this file is a script, run by the Python that has SGLang: kernels are kept beside that Python, where its
servers find them. SGLang knows them by sources, flags, compilers, packages and the kind of GPU. Where there is no GPU torch
is told of one, and all else is what SGLang does there.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

_COMPILES = 300.0
"""Seconds that a compiler may take."""


def toolkit(python: Path) -> dict[str, str]:
    """Return the variables that show this Python's servers the CUDA toolkit of its packages; nothing if they bring none.

    A toolkit of the node's does not count: compilers, headers and runtime of different versions do not go together, and
    servers compile kernels as they start. SGLang links in `lib64`, which the packages lack; `make sglang` makes it where
    servers may not write. It calls `ninja`, which lies beside its Python. Kernels are kept where `make kernels` put some, if
    servers may add to them.
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
    found = dict.fromkeys(("CUDA_HOME", "CUDA_PATH"), str(homes[-1]))
    found["PATH"] = os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath)))
    if os.access(kept := python.parent.parent / "kernels", os.W_OK):
        found["SGLANG_JIT_CACHE_DIR"] = os.environ.get("SGLANG_JIT_CACHE_DIR", str(kept))
    return found


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


def tell_hopper() -> None:
    """Let torch say that this machine has a Hopper. SGLang asks as it is imported, so that has to come later."""
    import torch

    told = {
        "is_available": True,
        "current_device": 0,
        "get_device_capability": (9, 0),
        "get_device_name": "H100",
    }
    for name, answer in told.items():
        setattr(torch.cuda, name, lambda *_, answer=answer: answer)


def list_kernels() -> list[Callable[[], object]]:
    """Return what compiles and loads a kernel, for each that a server of a dense model in bfloat16 loads on any GPU."""
    import torch
    from sglang.kernels.ops.activation.activation import activation_module
    from sglang.kernels.ops.attention.clamp_position import _jit_clamp_position_module
    from sglang.kernels.ops.attention.rope import _jit_fused_rope_module
    from sglang.kernels.ops.kvcache.kvcache import _jit_kvcache_module
    from sglang.kernels.ops.layernorm.norm import _jit_qknorm_module

    number = torch.bfloat16
    return [
        partial(activation_module, number),
        partial(_jit_clamp_position_module, torch.int64),
        # Heads have 128 numbers in Qwen3, and in Qwen2 of 1.5B and more.
        partial(_jit_fused_rope_module, True, 128, number, number),
        partial(_jit_qknorm_module, 128, number),
        # The bytes of a token's keys: a GPU has 1, 2, 4 or 8 heads of them, be it all of a model or a part.
        *(partial(_jit_kvcache_module, size, size, 0) for size in (256, 512, 1024, 2048)),
    ]


def main() -> None:
    """Compile what is not kept yet, for the GPU of this machine or for a Hopper where it has none, and say so."""
    import torch

    if torch.version.cuda is None:
        raise SystemExit(f"torch of {sys.prefix} is built for processors: run `make sglang PROFILE=cuda`")
    folder = Path(sys.prefix, "kernels")
    folder.mkdir(exist_ok=True)
    os.environ |= toolkit(Path(sys.executable))
    if not torch.cuda.is_available():
        tell_hopper()
    from sglang.kernels.jit.utils import parallel_compile

    # SGLang's folders: the kind of GPU, the kernel, and two keys.
    before, wanted = set(folder.glob("*/*/*/*/*.so")), list_kernels()
    parallel_compile(wanted, os.cpu_count())
    new = len(set(folder.glob("*/*/*/*/*.so")) - before)
    print(f"{folder}: {len(before)} kernels were kept, and {new} of {len(wanted)} were compiled now")


if __name__ == "__main__":
    main()
