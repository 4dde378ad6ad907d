"""Settings of SGLang's servers, the Python that has SGLang, and the tools by which servers compile kernels."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.graph.job import Determinism
from reodsl.price.machine import USABLE
from runners.machine.placement import nccl_settings

VARIABLE = "REODSL_SGLANG_PYTHON"
_COMPILE_SECONDS = 300.0
"""Seconds that a compiler may take."""

REMEDY = f"run `make sglang` in a checkout, or name a Python that has it in {VARIABLE}; without it: `engine = embedded`"


def candidates() -> Iterator[Path]:
    """Yield the paths of Pythons that may have SGLang, best first. The files may be missing.

    The Python that `REODSL_SGLANG_PYTHON` names is the only candidate, if the variable is set. Otherwise the candidates
    are this process's Python, if it has SGLang, and then the Python that `make sglang` installs.
    """
    named = os.environ.get(VARIABLE)
    if named:
        # Absolute, because compilers that a server calls have other working folders.
        yield Path(named).absolute()
        return
    if importlib.util.find_spec("sglang") is not None:
        yield Path(sys.executable)
    # Never a Python in the working folder, which may contain data from strangers.
    yield Path(__file__).resolve().parents[3] / ".venv-sglang" / "bin" / "python"


def find_interpreter() -> Path | None:
    """Return the first candidate that is a Python with SGLang, or None."""
    return next((path for path in candidates() if _has_package(path, "sglang")), None)


def interpreter() -> Path:
    """Return the Python that starts servers.

    Raises:
        Problem: E0820 if no Python has SGLang.
    """
    python = find_interpreter()
    if python is None:
        raise Problem(_not_installed())
    return python


def missing() -> Diagnostic | None:
    """Return E0820 if no Python has SGLang, else None."""
    return None if find_interpreter() is not None else _not_installed()


def _not_installed() -> Diagnostic:
    """Return E0820, with the paths that were searched."""
    return error(
        "E0820",
        "SGLang is not installed here",
        notes=(f"looked for: {', '.join(str(path) for path in candidates())}",),
        help=REMEDY,
    )


def saves_memory(python: Path) -> bool:
    """Return whether a Python has the package `torch_memory_saver`, by which servers free GPU memory while they run."""
    return _has_package(python, "torch_memory_saver")


def _has_package(python: Path, package: str) -> bool:
    """Return whether a Python is a file and has an installed package, without running the Python."""
    if not python.is_file():
        return False
    if python == Path(sys.executable):
        return importlib.util.find_spec(package) is not None
    return any(python.parent.parent.glob(f"lib/python3*/site-packages/{package}"))


LAUNCHER = Path(__file__).with_name("launch.py").resolve()
KEY = "REODSL_SGLANG_KEY"
"""The environment variable that passes a server its key, because everyone on a machine can read command lines."""

EXPANDABLE = re.compile(r"(expandable_segments\s*:\s*)True")
"""The setting of torch's allocator for expandable segments, which torch recommends when memory runs out."""
CHANNELS = 8
"""The number of NCCL channels in exact servers of several GPUs, which fixes the order of their sums."""
MARGIN_TOKENS = 8
"""Tokens of context that SGLang reserves."""
_MIN_FRACTION = 0.01
"""A share of memory that is certainly too small, so that the server refuses it."""
_CPU_REQUESTS = 64
_CPU_CACHE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that all servers of an engine share."""

    model: Path
    """The folder of the model."""
    context: int
    """The most tokens of a sequence: prompt, response, forcing text and answer."""
    token_bytes: int
    """Bytes of a token's keys and values."""
    device: str = "cpu"
    """`cpu`, or a GPU."""
    tensor_parallel: int = 1
    """GPUs of each server."""
    memory_fraction: float = USABLE
    """The share of a GPU's free memory that a server takes when it starts."""
    seed: int = 0
    """The server's own seed; requests bring theirs."""
    patience: float = 900.0
    """Seconds that a server may take until it is healthy."""
    shares_device: bool = False
    """True if a trainer uses the same devices between rollouts."""
    memory_saver: bool = False
    """True if the server can free its GPU memory while the trainer works."""
    determinism: Determinism = "exact"
    """`exact` for kernels whose results do not depend on the batch, `seeded` for seeds with faster kernels."""
    caches: str = "auto"
    """`fp8` for keys and values of one byte per number, which a server on a CPU lacks."""

    @property
    def on_cpu(self) -> bool:
        """Return whether the server runs on a CPU."""
        return not self.device.startswith("cuda")

    @property
    def at_once(self) -> int:
        """Return the most requests that a server has at a time."""
        return 2 * _CPU_REQUESTS if self.on_cpu else 512

    def arguments(self, host: str, port: int) -> list[str]:
        """Return the options of SGLang's command line for a server that listens at `host` and `port`.

        SGLang's prefix cache is on by default.
        """
        options = {
            "model-path": str(self.model),
            "host": host,
            "port": str(port),
            "context-length": str(self.context + MARGIN_TOKENS),
            "tp-size": str(self.tensor_parallel),
            "random-seed": str(self.seed),
            "log-level-http": "warning",
            "weight-version": "0",
            # A share of the free memory at the start. On a CPU `max-total-tokens` bounds the caches instead.
            "mem-fraction-static": f"{self.memory_fraction:g}",
            # The launcher cuts the list of a token's mask to one; a smaller bound would only refuse requests.
            "sampling-mask-max-tokens": str(1 << 30),
        }
        if self.on_cpu:
            options |= {
                "device": "cpu",
                "dtype": "float32",
                "attention-backend": "torch_native",
                "max-running-requests": str(_CPU_REQUESTS),
                "max-total-tokens": str(self.cache_tokens),
            }
        else:
            options |= {"dtype": "bfloat16"}
            if self.caches == "fp8":
                options["kv-cache-dtype"] = "fp8_e4m3"
        flags = ["skip-tokenizer-init", "skip-server-warmup"]
        if self.determinism == "exact":
            flags.append("enable-deterministic-inference")
        else:
            # The only backend that samples by seeds.
            options["sampling-backend"] = "pytorch"
        # Forced answers start before prompts that wait, and interrupt no request that runs.
        flags += ["enable-priority-scheduling", "disable-priority-preemption"]
        if self.memory_saver:
            flags.append("enable-memory-saver")
        if self.on_cpu:
            # Otherwise an idle server occupies a core, which trainer and verifiers need.
            flags.append("sleep-on-idle")
        return [word for name, value in options.items() for word in (f"--{name}", value)] + [
            f"--{flag}" for flag in flags
        ]

    @property
    def cache_tokens(self) -> int:
        """Return how many tokens of keys and values a server on a CPU caches.

        They fill `_CPU_CACHE_BYTES`, but are at most 131072 tokens, and at least those of two sequences.
        """
        return max(2 * (self.context + MARGIN_TOKENS), min(_CPU_CACHE_BYTES // self.token_bytes, 1 << 17))

    def environment(self, base: Mapping[str, str], key: str) -> dict[str, str]:
        """Return the environment variables of the server's process.

        The variables keep the server offline, and hide this process's `PYTHONPATH`, so that the server imports its own
        packages. On a CPU each process of the server uses one thread and sees no GPU. With a memory saver, expandable
        segments of torch's allocator are turned off.

        Args:
            base: This process's environment variables.
            key: The key that requests to the server need.
        """
        environment = {
            name: value for name, value in base.items() if name not in ("PYTHONPATH", "PYTHONHOME")
        }
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            # A memory saver cannot free expandable segments, and ends the server.
            if self.memory_saver and name in environment:
                environment[name] = EXPANDABLE.sub(r"\1False", environment[name])
        environment |= {
            KEY: key,
            "HF_HUB_OFFLINE": "1",
            "REODSL_SGLANG_DETERMINISM": self.determinism,
            "SGLANG_DETERMINISTIC_NCCL_NCHANNELS": str(CHANNELS),
            "TOKENIZERS_PARALLELISM": "false",
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1",
            **nccl_settings(base),
        }
        if self.on_cpu:
            environment |= {
                "SGLANG_USE_CPU_ENGINE": "1",
                "OMP_NUM_THREADS": "1",
                "TORCHDYNAMO_DISABLE": "1",
                "CUDA_VISIBLE_DEVICES": "",
            }
            if self.tensor_parallel > 1:
                # By default SGLang needs a NUMA node for each process.
                cores = sorted(os.sched_getaffinity(0))
                bound = (str(cores[rank % len(cores)]) for rank in range(self.tensor_parallel))
                environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(bound)
        return environment


def colocated_fraction(free: float, total: float, trainer_bytes: float) -> float:
    """Return the share of a GPU's free memory for a server that shares the GPU with a trainer.

    Server, trainer, and the memory that is in use now then fill the share `USABLE` of the GPU. If nothing is left for
    the server, the result is the tiny share `_MIN_FRACTION`, with which the server refuses to start.

    Args:
        free: The bytes that are free on the device now.
        total: All bytes of the device.
        trainer_bytes: Bytes that the trainer will keep while the server generates, and has not allocated yet.

    Returns:
        A share of `free`.
    """
    return max(_MIN_FRACTION, (USABLE * total - (total - free) - trainer_bytes) / free)


def patience() -> float:
    """Return the seconds after which a server has to be healthy: `REODSL_SGLANG_PATIENCE`, or 900.

    Raises:
        Problem: E0821 if the variable is not a positive number.
    """
    text = os.environ.get("REODSL_SGLANG_PATIENCE", "900")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise problem(
            "E0821",
            f"`{text}` is not a number of seconds until a server must be healthy",
            where="REODSL_SGLANG_PATIENCE",
            help="write a number above 0, as in REODSL_SGLANG_PATIENCE=1800, or unset it",
        )
    return seconds


def toolkit(python: Path) -> dict[str, str]:
    """Return the environment variables that make servers use the CUDA toolkit among SGLang's Python packages.

    Servers compile kernels when they start. They do not use the machine's own toolkit, whose compiler, headers and
    runtime may have other versions. SGLang links against a folder `lib64`, which the packages lack. This function
    creates the folder; if it may not write there, `make sglang` has to have created it. `PATH` begins with the folder
    of the Python, which contains `ninja`.

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
