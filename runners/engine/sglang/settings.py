"""Settings of SGLang's servers, and the Python that has SGLang."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.graph.job import Determinism
from reodsl.price.machine import USABLE
from runners.machine.placement import nccl_settings

VARIABLE = "REODSL_SGLANG_PYTHON"

REMEDY = f"run `make sglang` in a checkout, or name a Python that has it in {VARIABLE}; without it: `engine = embedded`"


def candidates() -> Iterator[Path]:
    """Yield Pythons that may have SGLang, in order: the environment's, this Python, and that of `make sglang`."""
    named = os.environ.get(VARIABLE)
    if named:
        # Compilers that a server calls have working folders of their own.
        yield Path(named).absolute()
        return
    if importlib.util.find_spec("sglang") is not None:
        yield Path(sys.executable)
    # Not the working folder's: what lies there is data, and whoever made it does not choose what runs.
    yield Path(__file__).resolve().parents[3] / ".venv-sglang" / "bin" / "python"


def find_interpreter() -> Path | None:
    """Return the first candidate that is a Python with SGLang."""
    return next((path for path in candidates() if _has(path, "sglang")), None)


def interpreter() -> Path:
    """Return the result of `find_interpreter`. Raises E0820 if no Python has SGLang."""
    python = find_interpreter()
    if python is None:
        raise Problem(_absent())
    return python


def missing() -> Diagnostic | None:
    """Return E0820 if no Python can start servers."""
    return None if find_interpreter() is not None else _absent()


def _absent() -> Diagnostic:
    return error(
        "E0820",
        "SGLang is not installed here",
        notes=(f"looked for: {', '.join(str(path) for path in candidates())}",),
        help=REMEDY,
    )


def saves_memory(python: Path) -> bool:
    """Return whether servers of this Python can give back memory of GPUs while they run."""
    return _has(python, "torch_memory_saver")


def _has(python: Path, package: str) -> bool:
    if not python.is_file():
        return False
    if python == Path(sys.executable):
        return importlib.util.find_spec(package) is not None
    return any(python.parent.parent.glob(f"lib/python3*/site-packages/{package}"))


LAUNCHER = Path(__file__).with_name("launch.py").resolve()
KEY = "REODSL_SGLANG_KEY"
"""The environment variable in which a server's key travels: command lines can be read by everyone on a machine."""

EXPANDABLE = re.compile(r"(expandable_segments\s*:\s*)True")
"""A setting of torch's allocator that users know from its messages of memory that ran out."""
CHANNELS = 8
"""NCCL's channels in exact servers of several GPUs, of which SGLang holds the number: it decides the order of sums."""
MARGIN_TOKENS = 8
"""Tokens of context that SGLang keeps for itself."""
_MIN_FRACTION = 0.01
"""A share that is certainly too small, so that the server refuses it."""
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
    """True if the server can give back the devices' memory for that time."""
    determinism: Determinism = "exact"
    """The cluster's."""
    caches: str = "auto"
    """`fp8` for keys and values of one byte a number, which a server on a CPU lacks."""

    @property
    def on_cpu(self) -> bool:
        """Return whether the server runs without a GPU."""
        return not self.device.startswith("cuda")

    @property
    def at_once(self) -> int:
        """Requests that are sent to a server before the first of them has ended."""
        return 2 * _CPU_REQUESTS if self.on_cpu else 512

    def arguments(self, host: str, port: int) -> list[str]:
        """Return the server's command line after the launcher's name. The prefix cache is on by default."""
        options = {
            "model-path": str(self.model),
            "host": host,
            "port": str(port),
            "context-length": str(self.context + MARGIN_TOKENS),
            "tp-size": str(self.tensor_parallel),
            "random-seed": str(self.seed),
            "log-level-http": "warning",
            "weight-version": "0",
            # Of what is free as it starts. On a CPU the caches' tokens bound them; this has to leave room for whatever else
            # takes memory while the server loads.
            "mem-fraction-static": f"{self.memory_fraction:g}",
            # The list that goes with a token's probability is cut to one by the launcher; this only lets requests pass.
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
            # The one that draws by seed; kernels are those that SGLang takes for itself.
            options["sampling-backend"] = "pytorch"
        # Answers that are forced out of a response go before prompts that have not begun; nothing that runs is stopped.
        flags += ["enable-priority-scheduling", "disable-priority-preemption"]
        if self.memory_saver:
            flags.append("enable-memory-saver")
        if self.on_cpu:
            # Else it takes a whole core for as long as nothing is asked of it, which trainer and verifiers need.
            flags.append("sleep-on-idle")
        return [word for name, value in options.items() for word in (f"--{name}", value)] + [
            f"--{flag}" for flag in flags
        ]

    @property
    def cache_tokens(self) -> int:
        """Tokens whose keys and values a server on a CPU holds: at least two sequences."""
        return max(2 * (self.context + MARGIN_TOKENS), min(_CPU_CACHE_BYTES // self.token_bytes, 1 << 17))

    def environment(self, base: Mapping[str, str], key: str) -> dict[str, str]:
        """Return the server's environment: `base` without this project's modules, quiet, offline, one thread on a CPU."""
        environment = {
            name: value for name, value in base.items() if name not in ("PYTHONPATH", "PYTHONHOME")
        }
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            # A memory saver ends where such segments are: it could not give them back.
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
                # SGLang wants a NUMA node for each part, or cores; where its kernels are missing it binds nothing to them.
                cores = sorted(os.sched_getaffinity(0))
                parts = (str(cores[rank % len(cores)]) for rank in range(self.tensor_parallel))
                environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(parts)
        return environment


def colocated_fraction(free: float, total: float, trainer_bytes: float) -> float:
    """Return the share of a GPU's free memory for a server that shares the GPU with a trainer.

    Server and trainer together then hold `USABLE` of the GPU; the rest is for the engine's computations.

    Args:
        free: Free bytes of the device now.
        total: Bytes of the device.
        trainer_bytes: Bytes that the trainer will hold on it later, while the server generates.

    Returns:
        A share of `free`.
    """
    return max(_MIN_FRACTION, (USABLE * total - (total - free) - trainer_bytes) / free)


def patience() -> float:
    """Return the seconds until a server has to be healthy: `REODSL_SGLANG_PATIENCE`, or 900. Raises E0821.

    Returns:
        Seconds.
    """
    text = os.environ.get("REODSL_SGLANG_PATIENCE", "900")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise problem(
            "E0821",
            f"`{text}` is not how long a server may take to get healthy",
            where="REODSL_SGLANG_PATIENCE",
            help="give a number of seconds above 0, as in REODSL_SGLANG_PATIENCE=1800, or unset it",
        )
    return seconds
