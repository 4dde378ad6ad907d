"""Survey this machine: each package and device that runs need, with its version or how to get it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from reodsl.plan.registry import MachinePart
from runners.engine.sglang.settings import REMEDY, find_interpreter, saves_memory
from runners.execute.check import CUDA_BUILD, shown_gpus
from runners.sandbox import lacking, landlock_version

_IMPORT_SECONDS = 120.0
"""Seconds that an import may take on a cold disk."""
_INSTALL = "pip install 'reodsl[run]'"
_PACKAGES = ("transformers", "safetensors", "polars", "math-verify")
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
    """Report torch with its device, the packages of every run, Ray, and SGLang: here, in its environment or at an address.

    torch is imported by another process, so that one which crashes or hangs is a finding like any other.
    """
    packages = (_package(name) for name in _PACKAGES)
    return (_torch(), *packages, _ray(), _sandbox(), _sglang(), *_memory_saver())


def _sandbox() -> MachinePart:
    """Report whether Landlock and seccomp can confine code on this machine."""
    missing = lacking()
    if missing is None:
        return MachinePart("sandbox", "ok", f"Landlock {landlock_version()} and seccomp", needed=False)
    return MachinePart(
        "sandbox",
        "missing",
        f"{missing}; a package's scorers are refused",
        "Linux 5.13 or newer with Landlock; `--without-sandbox` runs them all the same",
        needed=False,
    )


def _torch() -> MachinePart:
    """Report torch's version and the GPUs that it can use."""
    if importlib.util.find_spec("torch") is None:
        return MachinePart("torch", "missing", "not installed", _INSTALL)
    answer = _ask(Path(sys.executable), _TORCH)
    if isinstance(answer, str):
        return MachinePart(
            "torch", "broken", f"cannot be imported: {answer}", f"install it again: {_INSTALL}"
        )
    version, cuda, devices, clause, help = answer
    if devices:
        names = {f"{name}, {memory / 2**30:.0f} GiB" for name, memory in devices}
        return MachinePart("torch", "ok", f"{version}, {len(devices)} x {' and '.join(sorted(names))}")
    gpu_count = shown_gpus()
    if not gpu_count:
        state: Literal["ok", "broken"] = "ok" if help is None else "broken"
        return MachinePart("torch", state, f"{version}, on the processor: there is no GPU; {clause}", help)
    why = "it was built without CUDA" if cuda is None else f"it was built for CUDA {cuda}"
    device = "the GPU" if gpu_count == 1 else f"any of the {gpu_count} GPUs"
    return MachinePart("torch", "broken", f"{version} cannot use {device} here: {why}", CUDA_BUILD)


def _package(name: str) -> MachinePart:
    if importlib.util.find_spec(name.replace("-", "_")) is None:
        return MachinePart(name, "missing", "not installed", _INSTALL)
    return MachinePart(name, "ok", _version(name))


def _ray() -> MachinePart:
    if importlib.util.find_spec("ray") is None:
        return MachinePart("ray", "missing", "not installed; `--local` runs without it", _INSTALL)
    address = os.environ.get("RAY_ADDRESS")
    return MachinePart("ray", "ok", _version("ray") + (f", RAY_ADDRESS is {address}" if address else ""))


def _sglang() -> MachinePart:
    """Report the versions of SGLang and its torch, and where they are installed."""
    python = find_interpreter()
    if python is None:
        return MachinePart(
            "sglang", "missing", "not installed; the embedded engine generates instead", REMEDY, needed=False
        )
    answer = _ask(python, _SGLANG)
    if isinstance(answer, str):
        return MachinePart(
            "sglang", "broken", f"{python} does not run: {answer}", "make sglang", needed=False
        )
    location = "beside reodsl" if python == Path(sys.executable) else f"in {python.parent.parent}"
    return MachinePart("sglang", "ok", f"{answer[0]} with torch {answer[1]}, {location}", needed=False)


def _memory_saver() -> tuple[MachinePart, ...]:
    """Report the package by which servers free GPU memory during training, if SGLang and a GPU are here."""
    python = find_interpreter()
    if python is None or not shown_gpus():
        return ()
    name = "torch_memory_saver"
    if saves_memory(python):
        return (MachinePart(name, "ok", "servers give their memory back while training runs", needed=False),)
    return (
        MachinePart(
            name,
            "missing",
            "not installed beside SGLang; colocated servers keep half of a GPU while training runs",
            f"{python} -P -m pip install {name}, or `make sglang PROFILE=cuda`",
            needed=False,
        ),
    )


def _ask(python: Path, code: str) -> Any:
    """Return the JSON that `code` prints in its process; on failure, the last line of its error as text."""
    try:
        run = subprocess.run(
            [str(python), "-P", "-c", code],
            capture_output=True,
            text=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as caught:
        return str(caught)[:200]
    if run.returncode:
        words = run.stderr.strip().splitlines()
        return words[-1][:200] if words else f"exit code {run.returncode}"
    try:
        return json.loads(run.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return "it printed something else than was asked for"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "of unknown version"
