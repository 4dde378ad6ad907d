"""Survey this machine: the packages and devices that runs need, each with its version or how to get it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from reodsl.plan.registry import MachinePart
from reodsl.store.external import package_version
from runners.engine.sglang.settings import REMEDY, find_interpreter, saves_memory
from runners.execute.check import CUDA_BUILD, shown_gpus
from runners.sandbox import lacking, landlock_version

_IMPORT_SECONDS = 120.0
"""Seconds that an import may take on a cold disk."""
_INSTALL = "pip install 'reodsl[run]'"
_PACKAGES = ("transformers", "safetensors", "polars", "math-verify")
# A program that prints as JSON: version of torch, version of CUDA, [name, bytes of memory] of each GPU, words for the
# library that multiplies matrices on the processor, and advice if it cannot be used.
_TORCH = """
import json, torch
from reodsl.diagnostics import Problem
from runners.models.products import describe_products
here = torch.cuda.is_available()
found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if here else []
try:
    clause, help = describe_products(), None
except Problem as caught:
    clause, help = caught.diagnostics[0].message, caught.diagnostics[0].help
devices = [[one.name, one.total_memory] for one in found]
print(json.dumps([torch.__version__, torch.version.cuda, devices, clause, help]))
"""
_SGLANG = (
    "import json; from importlib.metadata import version as v; print(json.dumps([v('sglang'), v('torch')]))"
)


def survey() -> tuple[MachinePart, ...]:
    """Return the parts of this machine that runs need or can use: torch and GPUs, packages, Ray, sandbox and SGLang.

    Each part has its version, or says how to get it.

    Another process imports torch, so that a torch which crashes or hangs is reported too.
    """
    packages = (_find_package(name) for name in _PACKAGES)
    return (_find_torch(), *packages, _find_ray(), _find_sandbox(), _find_sglang(), *_find_saver())


def _find_sandbox() -> MachinePart:
    """Return the part `sandbox`: `ok` if Landlock and seccomp, which confine code, work on this machine, else `missing`."""
    missing = lacking()
    if missing is None:
        return MachinePart("sandbox", "ok", f"Landlock {landlock_version()} and seccomp", needed=False)
    return MachinePart(
        "sandbox",
        "missing",
        f"{missing}; a package's scorers are refused",
        "Linux 5.13 or newer with Landlock, or `--without-sandbox`, which runs the scorers unconfined",
        needed=False,
    )


def _find_torch() -> MachinePart:
    """Return the part `torch`: its version and the GPUs that torch can use, or why torch does not work.

    Torch is `missing` if it is not installed, and `broken` if it cannot be imported or cannot use this machine's GPUs.
    Without a GPU it is `ok`, except if the library that multiplies matrices on the processor cannot be used.
    """
    if importlib.util.find_spec("torch") is None:
        return MachinePart("torch", "missing", "not installed", _INSTALL)
    reply = _run_code(Path(sys.executable), _TORCH)
    if isinstance(reply, str):
        return MachinePart("torch", "broken", f"cannot be imported: {reply}", f"install it again: {_INSTALL}")
    version, cuda, devices, clause, help = reply
    if devices:
        names = {f"{name}, {memory / 2**30:.0f} GiB" for name, memory in devices}
        return MachinePart("torch", "ok", f"{version}, {len(devices)} x {' and '.join(sorted(names))}")
    gpu_count = shown_gpus()
    if not gpu_count:
        state: Literal["ok", "broken"] = "ok" if help is None else "broken"
        return MachinePart("torch", state, f"{version}, on the processor, as there is no GPU; {clause}", help)
    reason = "it was built without CUDA" if cuda is None else f"it was built for CUDA {cuda}"
    device = "the GPU" if gpu_count == 1 else f"any of the {gpu_count} GPUs"
    return MachinePart("torch", "broken", f"{version} cannot use {device} here: {reason}", CUDA_BUILD)


def _find_package(name: str) -> MachinePart:
    """Return the part for a package: `ok` with its version, or `missing`."""
    if importlib.util.find_spec(name.replace("-", "_")) is None:
        return MachinePart(name, "missing", "not installed", _INSTALL)
    return MachinePart(name, "ok", package_version(name) or "of unknown version")


def _find_ray() -> MachinePart:
    """Return the part `ray`: `ok` with its version and the address in RAY_ADDRESS, if it is set, or `missing`."""
    ray, address = _find_package("ray"), os.environ.get("RAY_ADDRESS")
    if ray.state == "missing":
        return replace(ray, says="not installed; `--local` runs without it")
    return replace(ray, says=f"{ray.says}, RAY_ADDRESS is {address}") if address else ray


def _find_sglang() -> MachinePart:
    """Return the part `sglang`: its version, its torch's version and its folder; `missing` or `broken` otherwise.

    SGLang may be installed beside reodsl, or in a Python of its own.
    """
    python = find_interpreter()
    if python is None:
        return MachinePart(
            "sglang", "missing", "not installed; the embedded engine generates instead", REMEDY, needed=False
        )
    reply = _run_code(python, _SGLANG)
    if isinstance(reply, str):
        return MachinePart("sglang", "broken", f"{python} does not run: {reply}", "make sglang", needed=False)
    location = "beside reodsl" if python == Path(sys.executable) else f"in {python.parent.parent}"
    return MachinePart("sglang", "ok", f"{reply[0]} with torch {reply[1]}, {location}", needed=False)


def _find_saver() -> tuple[MachinePart, ...]:
    """Return the part `torch_memory_saver`: `ok` if the package is installed beside SGLang, else `missing`.

    With this package, SGLang's servers free their GPU memory while a training on the same GPUs runs.

    Returns:
        A single part; empty without SGLang or without a GPU.
    """
    python = find_interpreter()
    if python is None or not shown_gpus():
        return ()
    name = "torch_memory_saver"
    if saves_memory(python):
        return (MachinePart(name, "ok", "servers free their memory while training runs", needed=False),)
    return (
        MachinePart(
            name,
            "missing",
            "not installed beside SGLang; colocated servers keep half of a GPU while training runs",
            f"{python} -P -m pip install {name}, or `make sglang PROFILE=cuda`",
            needed=False,
        ),
    )


def _run_code(python: Path, code: str) -> Any:
    """Run a program in a process of another Python, and return the JSON value on the last line that the program prints.

    Args:
        python: Path of the Python.
        code: The program.

    Returns:
        The value, which is no text; if the program fails or prints no JSON, the reason as text.
    """
    try:
        process = subprocess.run(
            [str(python), "-P", "-c", code],
            capture_output=True,
            text=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as caught:
        return str(caught)[:200]
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        return lines[-1][:200] if lines else f"exit code {process.returncode}"
    try:
        return json.loads(process.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return "it printed no JSON"
