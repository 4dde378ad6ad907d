"""What servers compile as they start, from the installed packages and without a GPU."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runners.engine.sglang.settings import link_kernel, toolkit

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
