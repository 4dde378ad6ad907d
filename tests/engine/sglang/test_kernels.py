"""What servers compile as they start, from the installed packages and without a GPU, and what is compiled beforehand."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runners.engine.sglang import kernels
from runners.engine.sglang.kernels import link_kernel, toolkit

pytestmark = pytest.mark.sglang

SGLANG = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <elementwise/add_constant.cuh>
namespace sglang { TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_constant, add_constant<1>); }
"""
DEEP_GEMM = "#include <deep_gemm/common/utils.cuh>\n"
CALLS = "__global__ void nothing() {}\nvoid call() { nothing<<<1, 1>>>(); }\n"


def test_kernels_compile_and_link_with_what_the_packages_bring(python: Path, tmp_path: Path) -> None:
    (packages,) = python.parent.parent.glob("lib/python3*/site-packages")
    given = toolkit(python)
    # SGLang calls it by its name alone.
    assert shutil.which("ninja", path=given["PATH"]) == str(python.parent / "ninja")
    home = Path(given["CUDA_HOME"])
    jit = packages / "sglang" / "kernels" / "jit"
    folders = [packages / "tvm_ffi" / "include", packages / "tvm_ffi" / "3rdparty" / "dlpack" / "include"]
    folders += [jit / "include", jit / "csrc", packages / "deep_gemm" / "include"]
    options = ["-DSGL_CUDA_ARCH=900", *(f"-I{folder}" for folder in folders)]
    for name, text in {"sglang": SGLANG, "deep_gemm": DEEP_GEMM}.items():
        (tmp_path / f"{name}.cu").write_text(text)
    with ThreadPoolExecutor(2) as threads:
        both = threads.map(lambda path: link_kernel(home, path, *options), sorted(tmp_path.glob("*.cu")))
        assert list(both) == ["", ""]


def test_a_toolkit_that_is_not_whole_is_told_in_the_compilers_words(python: Path, tmp_path: Path) -> None:
    whole, bare = Path(toolkit(python)["CUDA_HOME"]), tmp_path / "cuda"
    bare.mkdir()
    for part in whole.iterdir():
        if part.name != "lib64":
            (bare / part.name).symlink_to(part)
    (tmp_path / "calls.cu").write_text(CALLS)
    assert "cannot find -lcudart" in link_kernel(bare, tmp_path / "calls.cu")
    shutil.copytree(whole / "lib64", bare / "lib64", symlinks=True)
    assert link_kernel(bare, tmp_path / "calls.cu") == ""
    (tmp_path / "calls.cu").write_text("#include <not/there.h>\n")
    assert "not/there.h" in link_kernel(bare, tmp_path / "calls.cu")
    assert "nvcc" in link_kernel(tmp_path, tmp_path / "calls.cu")


READY = """
import os, runpy, sys, torch
operators = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
"""What SGLang lacks beside a torch for processors."""
LISTED = """
kernels = runpy.run_path(sys.argv[1])
kernels["tell_hopper"]()
*_, last = wanted = kernels["list_kernels"]()
os.environ["SGLANG_CRASH_ON_JIT_COMPILE"] = "1"
for each in wanted:
    try:
        each()
    except RuntimeError as fault:
        print(fault)
del os.environ["SGLANG_CRASH_ON_JIT_COMPILE"]
last()
"""
LOOKED_UP = """
from sglang.kernels.jit.utils import override_jit_cuda_arch
from sglang.kernels.ops.kvcache.kvcache import can_use_store_cache
with override_jit_cuda_arch(*map(int, sys.argv[1].split("."))):
    print(can_use_store_cache(2048), can_use_store_cache(1024))
"""


def test_a_server_on_a_hopper_finds_what_was_compiled_without_one(python: Path, tmp_path: Path) -> None:
    """SGLang is told of the GPU by its own means, may not compile, and asks as the memory of keys and values does."""
    given = toolkit(python)
    given |= {"SGLANG_JIT_CACHE_DIR": str(tmp_path), "LD_LIBRARY_PATH": f"{given['CUDA_HOME']}/lib"}

    def say(code: str, *words: str, **more: str) -> list[str]:
        command = [str(python), "-P", "-c", READY + code, *words]
        done = subprocess.run(command, env={**os.environ, **given, **more}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    refused = say(LISTED, str(kernels.__file__))
    assert len({line for line in refused if f"no usable cached build under {tmp_path}/sm90a/" in line}) == 8
    (kept,) = tmp_path.glob("sm90a/*/*/*/*.so")
    assert "kvcache_2048_2048" in kept.name
    found = [say(LOOKED_UP, capability, SGLANG_CRASH_ON_JIT_COMPILE="1") for capability in ("9.0", "10.0")]
    assert found == [["True False"], ["False False"]]
