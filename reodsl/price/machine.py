"""Machines as pricing models them: devices, rates and memory from a cluster's declaration.

For this machine: the cores, memory and free disk that the process may use.
"""

from __future__ import annotations

import math
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from reodsl.ir.cluster import Cluster, Hardware

GIB = 2**30
NODE_SECONDS = 60.0
"""Seconds until engines and trainers of a GPU task are ready; SGLang alone was measured at 29 to 105."""
HERE_SECONDS = 1.0
"""Seconds until a task on a laptop's processor is ready: loading a small model, and a share of imports."""
STEP_SECONDS = 1e-3
"""The least seconds of a decode step, however small the model."""
MOST_RUNNING = 256
"""The most requests that an engine decodes at once."""
USABLE = 0.85
"""Share of a GPU's memory for weights, caches and the state of training; engines compute in the remainder."""

PROCESSOR = Hardware(
    flops=100e9, bandwidth=10e9, interconnect=10e9, mfu_train=0.72, mfu_prefill=0.42, verifications=1400.0
)
"""Assumed rates of a laptop's core in float32: a matrix product's peak, and the shares of it that wide models reach."""
PROCESSOR_HALF = PROCESSOR.model_copy(update={"flops": 240e9})
"""The same with products in bfloat16: passes of a model of width 576 took 0.41 of the time in float32."""
SLOWDOWN: Mapping[str, float] = {"exact": 1.35, "seeded": 1.0}
"""Time of engines relative to ordinary kernels, by a cluster's `determinism`: batch-invariant kernels cost 25% to 45%, 34%
on average, by SGLang's own figures (LMSYS, "Towards deterministic inference in SGLang", 2025).
"""
LOCKSTEP = ((1, 1.0), (8, 0.97), (64, 0.95), (128, 0.93))
"""Numbers of ranks, and the share of time in which ranks do not wait for the slowest micro-batch. Tests in tests/train
check the assignment of rows against these shares, for exponential lengths.
"""
SYNC_RATE = 2.65e9
"""Bytes of weights a second from a trainer to all engines: verl publishes 5.5 to 6.0 s for 7B, 15.2 GB, by NCCL."""
HANDLE_RATE = 18.4e9
"""The same for engines that read weights from trainers on the same GPUs: SkyRL publishes 1.6 s for 14B, 29.5 GB, on 8
H100 (pull request 161).
"""
COMPILE_SECONDS = 116.0
"""Seconds by which the first server on a GPU takes longer than later servers, which find its kernels compiled: 224 s
against 108 s with the same questions (SGLang, issue 4773).
"""
SAMPLING_BYTES: Mapping[str, float] = {"greedy": 80.0, "whole": 186.0, "cut": 360.0}
"""Bytes per entry of the vocabulary that sampling a token moves, by way of sampling: counted reads and writes of SGLang's
sampler and of `engine/sglang/drawing.py`. Top-p and top-k (`cut`) also sort: four passes over numbers and indices.
"""
HOST_RATE: Mapping[str, float] = {"tokens": 0.1e-6, "logprobs": 0.3e-6, "batch": 0.18e-6}
"""Seconds per token of the process that sends requests to all engines, without (`tokens`) and with log-probabilities; tests
of the client check them. Engines wait for this process only if it takes longer than they do. All GPUs wait while it
gathers responses into a `batch`: 1.5 s for 22 million tokens (`python -m benchmarks gathering`).
"""
NARROW = 115.0
"""The width of a model at which a processor reaches half of its rates, since each layer has a fixed cost per token."""


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a task, all of which are paid for while the task runs."""

    name: str
    """Label of the cluster, or `this machine`."""
    model: str
    """Name of each device, as the cluster names its GPU or the machine its processor."""
    unit: Literal["gpu_hours", "seconds"]
    """Unit of the cost: GPU hours, or seconds on this machine."""
    gpus: int
    """Number of devices."""
    generating: int
    """Devices that generate."""
    training: int
    """Devices that train."""
    tensor_parallel: int
    """Devices of an engine."""
    hardware: Hardware
    """FLOP/s, bytes per second, and utilisation of a device."""
    memory: float | None
    """Bytes of a device; None if unknown."""
    width: int
    """Bytes of a weight in use."""
    start: float
    """Seconds before work begins."""
    microbatch: int
    """Tokens of a micro-batch."""
    recompute: bool
    """True if the backward pass computes activations again."""
    disaggregated: bool
    """True if engines and trainers have devices of their own."""
    resident_bytes: float = 0.0
    """Bytes that training keeps on a device while the engine on the same device generates."""
    narrow: float = 0.0
    """Width of a model that reaches half of the hardware's utilisation; 0 if the width does not matter."""
    slowdown: float = 1.0
    """Time of engines over the time that `hardware` gives, above 1 for deterministic engines."""
    small_caches: bool = False
    """True if engines keep keys and values in a byte each."""
    parts: int = 0
    """Devices that together hold a copy of the trained weights; 0 for all that train."""
    gpus_per_node: int = 1
    """Devices of a node."""

    @property
    def copies(self) -> int:
        """Return the number of copies of the trained weights."""
        return max(1, self.training // self.parts) if self.parts else 1

    @property
    def sharding(self) -> Literal["cluster", "node"]:
        """Return over which devices a copy of the trained weights is sharded: the whole cluster, or a node."""
        return "cluster" if self.copies == 1 else "node"

    @property
    def cache_width(self) -> int:
        """Return the bytes of a number in engines' caches of keys and values."""
        return 1 if self.small_caches else self.width

    @property
    def engines(self) -> int:
        """Return the number of rollout engines, each on `tensor_parallel` devices."""
        return max(1, self.generating // self.tensor_parallel)


def lockstep(ranks: int) -> float:
    """Return the share of time in which training devices work, rather than wait for the slowest device.

    Args:
        ranks: number of training devices.

    Returns:
        Share from `LOCKSTEP`, interpolated by the logarithm of the number, at least 0.5.
    """
    after = next((i for i, (count, _) in enumerate(LOCKSTEP) if count >= ranks), len(LOCKSTEP) - 1)
    (few, above), (many, below) = LOCKSTEP[max(1, after) - 1], LOCKSTEP[max(1, after)]
    fraction = math.log(ranks / few) / math.log(many / few)
    return max(0.5, above + fraction * (below - above))


def adapt_to_precision(devices: Devices, precision: str) -> Devices:
    """Return the devices with a processor's rates in bfloat16, if they are this machine's and the precision is bfloat16.

    Other devices are returned unchanged: GPUs have declared rates, and a processor's own rates are in float32.

    Args:
        devices: the devices.
        precision: the model's setting `precision`.
    """
    if precision != "bfloat16" or devices.unit != "seconds":
        return devices
    return replace(devices, hardware=PROCESSOR_HALF, width=2)


def adapt_to_width(devices: Devices, hidden: int) -> Devices:
    """Return the devices with the utilisation that a model of some width reaches; GPUs are returned unchanged.

    Args:
        devices: the devices.
        hidden: width of the model's residual stream.
    """
    if not devices.narrow:
        return devices
    share = 1 / (1 + (devices.narrow / hidden) ** 2)
    hardware = devices.hardware
    rates = {"mfu_train": share * hardware.mfu_train, "mfu_prefill": share * hardware.mfu_prefill}
    return replace(devices, hardware=hardware.model_copy(update=rates), narrow=0.0)


@cache
def processor(path: Path = Path("/proc/cpuinfo")) -> str:
    """Return the model name of this machine's processor, or its architecture if the file has no name.

    Args:
        path: file that Linux describes processors in.
    """
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
    except (OSError, ValueError):
        pass
    return platform.machine()


def generating_and_training(cluster: Cluster) -> tuple[int, int]:
    """Return the number of a cluster's GPUs that generate, and the number that train.

    In a colocated placement, and with a single GPU, all GPUs do both in turn, so both numbers are that of all GPUs.
    """
    gpus = gpus_of(cluster)
    if cluster.placement != "apart" or gpus == 1:
        return gpus, gpus
    generating = min(gpus - 1, max(1, round(gpus * cluster.rollout_share)))
    return generating, gpus - generating


def parts_of(cluster: Cluster) -> int:
    """Return the number of training GPUs over which one copy of the weights is sharded.

    With `sharding = node` a copy stays within a node, and each node may hold one. Otherwise one copy is sharded over
    all training GPUs.
    """
    training = generating_and_training(cluster)[1]
    return math.gcd(training, cluster.gpus_per_node) if cluster.sharding == "node" else training


def gpus_of(cluster: Cluster) -> int:
    """Return the number of all GPUs of a cluster."""
    return cluster.nodes * cluster.gpus_per_node


def label_cluster(cluster: Cluster | None) -> str:
    """Return a cluster's label, such as `16 x 8 H800`; without a cluster, `this machine`."""
    return "this machine" if cluster is None else f"{cluster.nodes} x {cluster.gpus_per_node} {cluster.gpu}"


def devices_of(cluster: Cluster | None) -> Devices | None:
    """Return the devices of a cluster, or this machine's processor if the cluster is None.

    Returns:
        None for a cluster whose `hardware` is not declared.
    """
    if cluster is None:
        return Devices(
            name=label_cluster(cluster),
            model=processor(),
            unit="seconds",
            gpus=1,
            generating=1,
            training=1,
            tensor_parallel=1,
            hardware=PROCESSOR,
            memory=None,
            width=4,
            start=HERE_SECONDS,
            microbatch=2048,
            recompute=False,
            disaggregated=False,
            narrow=NARROW,
        )
    if cluster.hardware is None:
        return None
    gpus = gpus_of(cluster)
    generating, training = generating_and_training(cluster)
    return Devices(
        name=label_cluster(cluster),
        model=cluster.gpu,
        unit="gpu_hours",
        gpus=gpus,
        generating=generating,
        training=training,
        tensor_parallel=cluster.tensor_parallel,
        hardware=cluster.hardware,
        memory=cluster.memory_gib * GIB,
        width=2,
        start=NODE_SECONDS,
        microbatch=49152,
        recompute=True,
        disaggregated=cluster.placement == "apart" and gpus > 1,
        slowdown=SLOWDOWN[cluster.determinism],
        parts=parts_of(cluster),
        gpus_per_node=cluster.gpus_per_node,
    )


_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class Measures:
    """Cores that the process may use, bytes of memory it may have, and bytes free on the disk of its results."""

    cores: int
    memory: int
    disk: int


def measure(folder: Path) -> Measures:
    """Return the cores, memory and free disk of this machine.

    Args:
        folder: folder of results, whose disk is measured; it may not exist yet.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    nearest = folder.resolve()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    return Measures(cores, _memory(), shutil.disk_usage(nearest).free)


def _memory() -> int:
    """Return the bytes of the machine's memory, or of the container's limit if that is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _LIMITS:
        try:
            total = min(total, int(Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return total
