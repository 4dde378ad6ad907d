"""Probe the nodes of a run: check what runs need, such as drivers and disks, on all nodes of a Ray cluster at once."""

from __future__ import annotations

import math
import os
import re
import secrets
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

from reodsl import __version__
from reodsl.diagnostics import Diagnostic, error, first_line, group, listed, warning
from reodsl.plan.registry import MachinePart
from runners.engine.sglang.settings import REMEDY, find_interpreter, link_kernel, toolkit
from runners.execute.instance import import_ray, start_ray

ANSWER_SECONDS = 50.0
"""Seconds that nodes have to answer, and again to form a group; with joining Ray less than two minutes in all."""
_PROBE_SECONDS = 40.0
"""Seconds for all probes of a node, and for any step of forming a group."""
_DRIVER, _GLIBC, _GCC = 580, (2, 34), 11
"""Oldest versions that suffice of NVIDIA's driver, of glibc and of gcc."""
_SLOW_BYTES_PER_SECOND = 50e6
"""Speed of a disk, or of a connection of two nodes, below which GPUs wait for checkpoints or new weights."""
_FILE_BYTES, _SUMMANDS = 64 << 20, 4 << 20
"""Bytes of a file for measuring, and float32 numbers of a tensor for measuring."""
_CLOCK_SECONDS = 5.0
"""Difference of two clocks that the time of an answer cannot explain."""


_MOST_LISTED = 4
"""Nodes or GPUs that a message names; it counts further ones."""


class ProbeFailed(Exception):
    """A failure of a probe: what the node lacks, as a sentence."""


def ask_command(*command: str) -> str:
    """Run a command, and return its output.

    Raises:
        ProbeFailed: the command does not exist, fails, or does not end in `_PROBE_SECONDS`.
    """
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True)
    except FileNotFoundError as caught:
        raise ProbeFailed(f"there is no `{command[0]}`") from caught
    except (OSError, subprocess.SubprocessError) as caught:
        lines = (getattr(caught, "stderr", None) or "").strip().splitlines()
        raise ProbeFailed(lines[-1] if lines else first_line(caught)) from caught
    return run.stdout.strip()


@dataclass(frozen=True, slots=True)
class Site:
    """The node on which probes run: its files, programs and Pythons. Tests replace the fields."""

    mark: Path | None = None
    """File that the command has put into the store's folder, which the node should see; None without a store."""
    root: Path = Path("/")
    """Folder of the system's files."""
    ask: Callable[..., str] = ask_command
    """Function that runs a command and returns its output."""
    libc: str = field(default_factory=lambda: str(os.confstr("CS_GNU_LIBC_VERSION")))
    """Name and version of the C library."""
    include: Path = field(default_factory=lambda: Path(sysconfig.get_path("include")))
    """Folder of this Python's headers."""
    python: Path | None = field(default_factory=find_interpreter)
    """Python that has SGLang, or None."""

    @property
    def has(self) -> frozenset[str]:
        """Return the features of this node on which probes depend: `gpus`, `store` and `toolkit` (of CUDA)."""
        features = {
            "gpus": any(self.root.glob("dev/nvidia[0-9]*")),
            "store": self.mark is not None,
            "toolkit": self.python is not None and bool(toolkit(self.python)),
        }
        return frozenset(name for name, present in features.items() if present)


def _probe_driver(site: Site) -> str:
    """Return the version of NVIDIA's kernel driver; ProbeFailed if it is missing, of unknown version or too old."""
    try:
        text = (site.root / "proc/driver/nvidia/version").read_text("utf-8", "replace")
    except OSError:
        raise ProbeFailed("the kernel has loaded no driver") from None
    match = re.search(r"\b(\d{3,})(\.\d+)+\b", text)
    if match is None or int(match[1]) < _DRIVER:
        raise ProbeFailed(
            f"{match[0] if match else 'of unknown version'}, and CUDA 13 needs {_DRIVER} or newer"
        )
    return match[0]


def _probe_glibc(site: Site) -> str:
    """Return the name and version of the C library; ProbeFailed if it is older than SGLang needs."""
    numbers = tuple(map(int, re.findall(r"\d+", site.libc)))
    if numbers < _GLIBC:
        raise ProbeFailed(f"{site.libc}, and SGLang is built for {'.'.join(map(str, _GLIBC))}")
    return site.libc


def _probe_compiler(site: Site) -> str:
    """Return the version of gcc; ProbeFailed if gcc or c++ is missing or too old."""
    versions = [site.ask(name, "-dumpfullversion", "-dumpversion") for name in ("gcc", "c++")]
    outdated = [
        version for version in versions if not version[:1].isdigit() or int(version.split(".")[0]) < _GCC
    ]
    if outdated:
        raise ProbeFailed(f"gcc {outdated[0]}, and C++20 needs {_GCC}")
    return f"gcc {versions[0]}"


def _probe_header(site: Site) -> str:
    """Return the folder with `Python.h` of this Python; ProbeFailed if this Python or SGLang's Python has no headers."""
    folders = [site.include]
    if site.python is not None:
        code = "import sysconfig; print(sysconfig.get_path('include'))"
        folders.append(Path(site.ask(str(site.python), "-P", "-c", code)))
    for folder in folders:
        if not (folder / "Python.h").is_file():
            raise ProbeFailed(f"it is missing in {folder}")
    return str(folders[0])


def _probe_sglang(site: Site) -> str:
    """Return the path of the Python that has SGLang; ProbeFailed if there is none."""
    if site.python is None:
        raise ProbeFailed("not installed")
    return str(site.python)


def _probe_gpus(site: Site) -> str:
    """Return the kinds of the node's GPUs with their memory.

    Raises:
        ProbeFailed: nvidia-smi lists no GPU, the GPUs are of different kinds, or more than 10% of a GPU's memory is used.
    """
    query = ("nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits")
    rows = [line.rsplit(",", 2) for line in site.ask(*query).splitlines()]
    kinds = [f"{name.strip()}, {float(total) / 1024:.0f} GiB" for name, total, _ in rows]
    summary = " and ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
    busy_gpus = [i for i, (_, total, used) in enumerate(rows) if float(used) > 0.1 * float(total)]
    if len(set(kinds)) != 1:
        raise ProbeFailed(f"{summary}, and all wait for the slowest" if kinds else "nvidia-smi lists no GPU")
    if busy_gpus:
        names = listed(list(map(str, busy_gpus)), _MOST_LISTED)
        raise ProbeFailed(f"{summary}, and other programs use memory of GPU {names}")
    return summary


def _probe_store(site: Site) -> str:
    """Return the free space of the store's disk in words, after writing a small file as a test.

    Raises:
        ProbeFailed: the node does not see the file `site.mark` in the store's folder, or cannot write to the folder.
    """
    assert site.mark is not None
    if not site.mark.is_file():
        raise ProbeFailed(f"{site.mark.parent} does not exist")
    _measure_disk(site.mark.parent, 1 << 20)
    free = os.statvfs(site.mark.parent)
    return f"seen, {free.f_bavail * free.f_frsize / 1e9:.0f} GB free"


def _probe_disk(site: Site) -> str:
    """Return the speeds of writing to and reading from the store's disk; ProbeFailed if either is too low.

    The limit is `_SLOW_BYTES_PER_SECOND`.
    """
    assert site.mark is not None
    write, read = _measure_disk(site.mark.parent, _FILE_BYTES)
    speeds = f"writes {write / 1e6:,.0f} MB/s, reads {read / 1e6:,.0f} MB/s"
    if min(write, read) < _SLOW_BYTES_PER_SECOND:
        raise ProbeFailed(speeds)
    return speeds


def _measure_disk(folder: Path, size: int) -> tuple[float, float]:
    """Write a file and read it, and return (bytes written per second, bytes read per second).

    Args:
        folder: Folder on the disk.
        size: Bytes of the file.

    Raises:
        ProbeFailed: the disk refuses.
    """
    data = secrets.token_bytes(1 << 20)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            start = time.perf_counter()
            for _ in range(size >> 20):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
            middle = time.perf_counter()
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            while file.read(1 << 20):
                pass
            return size / (middle - start), size / (time.perf_counter() - middle)
    except OSError as caught:
        raise ProbeFailed(f"{folder}: {caught.strerror}") from caught


def _probe_build(site: Site) -> str:
    """Compile and link a CUDA kernel with the toolkit of SGLang's Python, and return a sentence on success.

    Raises:
        ProbeFailed: compiling or linking fails.
    """
    assert site.python is not None
    home = Path(toolkit(site.python)["CUDA_HOME"])
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cu"
        source.write_text(_KERNEL, "utf-8")
        fault = link_kernel(home, source)
    if fault:
        raise ProbeFailed(fault)
    return f"a kernel compiles and links with {home}"


def _probe_hand_over(site: Site) -> str:
    """Check that SGLang's Python can read a tensor which this Python has on the GPU, and return a sentence on success.

    Trainers hand new weights over to SGLang's servers in this way.

    Raises:
        ProbeFailed: the tensor cannot be read.
    """
    code = "import sys; from runners.execute.probes import hand_over; print(hand_over(*sys.argv[1:]))"
    # Other processes do it, since this process would keep memory of the GPU.
    return site.ask(sys.executable, "-P", "-c", code, "cuda", str(site.python or sys.executable))


def hand_over(device: str, python: str) -> str:
    """Check that a process of another Python can read a tensor of this process, as SGLang's servers read new weights.

    Args:
        device: Device of the tensor, such as `cuda`.
        python: Path of the other Python.

    Returns:
        A sentence with the size of the tensor.

    Raises:
        ProbeFailed: the process reads other numbers, or fails.
    """
    import torch

    from runners.engine.sglang.weights import buckets, packed_tensors

    (bucket,) = buckets([("ones", torch.ones(_SUMMANDS, device=device))])
    message = packed_tensors(bucket)
    run = subprocess.run(
        [python, "-P", "-c", _READ], input=message, capture_output=True, text=True, timeout=_PROBE_SECONDS
    )
    if run.returncode or float(run.stdout) != _SUMMANDS:
        raise ProbeFailed(f"a server would read {run.stdout.strip() or run.stderr.strip().splitlines()[-1]}")
    return f"{bucket.flat.nbytes >> 20} MiB of {bucket.flat.device} are read by another process"


_READ = """
import base64, pickle, sys, torch
from torch.multiprocessing import reductions

rebuild, number_of = reductions.rebuild_cuda_tensor, {}
for number in range(torch.cuda.device_count()):
    number_of[str(torch.cuda.get_device_properties(number).uuid)] = number
reductions.rebuild_cuda_tensor = lambda *given: rebuild(*given[:6], number_of[given[6]], *given[7:])
((_, tensor),) = pickle.loads(base64.b64decode(sys.stdin.read()))
print(float(tensor.sum()))
"""
"""A program that reads a pickled tensor whose GPU is named by its UUID, as SGLang's servers do, and prints its sum."""
_KERNEL = """#include <cuda/std/cstdint>
__global__ void fill(cuda::std::uint32_t* x) { x[threadIdx.x] = blockIdx.x; }
void call(cuda::std::uint32_t* x) { fill<<<1, 32>>>(x); }
"""
_SAME = "install the same version on every node"


@dataclass(frozen=True, slots=True)
class Probe:
    """A check of a node."""

    name: str
    """Name of what is checked."""
    look: Callable[[Site], str]
    """Function that returns what it found in words, or raises ProbeFailed."""
    help: str
    """Remedy for a failure."""
    about: frozenset[str] = frozenset({"gpus"})
    """Features of a node; only nodes that have all of these are checked."""
    alike: bool = False
    """True if all nodes should have the same."""
    needed: bool = True
    """False if a run without it is only slow, or fails only because of other programs."""


STORE = frozenset({"store"})
"""Names of the probes for every run on several nodes."""
SERVERS = frozenset({"driver", "glibc", "compiler", "Python.h", "sglang", "gpus"})
"""Names of the quick probes for SGLang's servers on GPUs, which a run does before it reserves GPUs."""
_KINDS = "end other programs that use them, or take nodes with GPUs of one kind"
PROBES = (
    Probe("driver", _probe_driver, f"install NVIDIA's driver {_DRIVER} or newer", alike=True),
    Probe("glibc", _probe_glibc, "take a newer system: Ubuntu 22.04, Debian 12 and RHEL 9 have it"),
    Probe("compiler", _probe_compiler, f"install gcc and g++ {_GCC} or newer, as by: apt install g++"),
    Probe("Python.h", _probe_header, "install this Python's headers, as by: apt install python3-dev"),
    Probe("sglang", _probe_sglang, REMEDY),
    Probe("gpus", _probe_gpus, _KINDS, alike=True, needed=False),
    Probe(
        "store", _probe_store, "put it on a file system with room that every node mounts: --store DIR", STORE
    ),
    Probe("disk", _probe_disk, "put the store on a faster file system: --store DIR", STORE, needed=False),
    Probe("hand-over", _probe_hand_over, "give the container shared memory: --shm-size 16g, --ipc host"),
    Probe("build", _probe_build, "install it again: make sglang PROFILE=cuda", frozenset({"toolkit"})),
)
EVERYTHING = frozenset(row.name for row in PROBES)


def probe(site: Site, names: frozenset[str]) -> tuple[MachinePart, ...]:
    """Run probes on this node, and return their findings; a probe that does not end in time counts as failed.

    Args:
        site: This node.
        names: Names of the probes; probes for features that the node lacks are left out.
    """
    features = site.has
    rows = [row for row in PROBES if row.name in names and row.about <= features]
    timeout_text = f"not done after {_PROBE_SECONDS:g} seconds"
    results = {row.name: MachinePart(row.name, "broken", timeout_text, row.help, row.needed) for row in rows}
    # A hanging disk would block its thread for ever, so threads are daemons, and are not waited for at exit.
    threads = [Thread(target=_run_probe, args=(row, site, results), daemon=True) for row in rows]
    deadline = time.monotonic() + _PROBE_SECONDS
    for thread in threads:
        thread.start()
        # One after another if time suffices, so that a disk is not measured while a compiler runs.
        thread.join(_PROBE_SECONDS / len(threads))
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(results.values())


def _run_probe(row: Probe, site: Site, results: dict[str, MachinePart]) -> None:
    """Run a probe on a node, and store what it finds.

    Args:
        row: The probe.
        site: The node.
        results: Findings by the name of the probe; the probe's finding or failure is added.
    """
    try:
        results[row.name] = MachinePart(row.name, "ok", row.look(site), needed=row.needed)
    except Exception as lack:  # Any failure of a probe must leave the other findings.
        results[row.name] = MachinePart(row.name, "broken", first_line(lack), row.help, row.needed)


NodeParts = Mapping[str, Sequence[MachinePart]]
"""The findings of probes on each node, by the node's name."""


def ask_nodes(mark: Path | None, names: frozenset[str]) -> NodeParts:
    """Run probes on every node of the Ray cluster that this process has joined, and return their findings.

    A node that does not answer in time, or has another version of reodsl, has a single finding that says so.

    Args:
        mark: File in the store's folder that nodes should see, or None.
        names: Names of the probes.
    """
    ray = import_ray()
    remote = ray.remote(max_retries=0, num_cpus=0)(_make_remote_probe(__version__, mark, names))
    pending = {
        remote.options(scheduling_strategy=target).remote(): name for name, target in _list_targets().items()
    }
    results: dict[str, tuple[MachinePart, ...]] = {}
    deadline = time.monotonic() + ANSWER_SECONDS
    while pending:
        finished, _ = ray.wait(list(pending), timeout=max(0.0, deadline - time.monotonic()))
        now = time.time()
        if not finished:
            message = f"no answer within {ANSWER_SECONDS:g} seconds"
            silent = MachinePart("ray", "broken", message, "see Ray's log on this node")
            return results | dict.fromkeys(pending.values(), (silent,))
        (ref,) = finished
        results[pending.pop(ref)] = _read_answer(ray, ref, now)
    return results


def _read_answer(ray: Any, ref: Any, arrival: float) -> tuple[MachinePart, ...]:
    """Return the findings in a node's answer, after a finding on the node's clock.

    If the probe ended in an error, or the node has another version of reodsl, a single finding says so.

    Args:
        ray: The module Ray.
        ref: Ray's reference to the answer.
        arrival: Time at which the answer arrived, in seconds since the epoch.
    """
    try:
        version, rows, clock = ray.get(ref)
    except ray.exceptions.RayError as caught:
        return (MachinePart("reodsl", "broken", first_line(caught), _SAME),)
    if version != __version__:
        state = f"is {version}" if version else "is not installed"
        return (MachinePart("reodsl", "broken", f"{state}, and this command has {__version__}", _SAME),)
    delta = clock - arrival
    is_close = abs(delta) < _CLOCK_SECONDS
    text = "as here" if is_close else f"{abs(delta):,.0f} seconds {'ahead' if delta > 0 else 'behind'}"
    help = None if is_close else "synchronise the clocks of all nodes, for example with chrony"
    return (MachinePart("clock", "ok" if is_close else "broken", text, help, needed=False), *rows)


def _make_remote_probe(
    version: str, mark: Path | None, names: frozenset[str]
) -> Callable[[], tuple[Any, ...]]:
    """Return the function that Ray runs on a node to probe it.

    Args:
        version: Version of reodsl of this process.
        mark: File in the store's folder that the node should see, or None.
        names: Names of the probes.

    Returns:
        A function that returns (the node's version of reodsl, its findings, its time in seconds since the epoch). If the
        node has another version, there are no findings and the time is 0; if it has no reodsl, the version is empty.
    """

    def look() -> tuple[Any, ...]:
        """Return (version of reodsl, findings, time) of the node on which this function runs."""
        # Ray pickles a nested function completely, so that it runs on nodes where this file differs or is missing.
        try:
            from reodsl import __version__ as installed
        except ImportError:
            installed = ""
        if installed != version:
            return installed, (), 0.0
        from runners.execute.probes import Site, probe

        return installed, probe(Site(mark), names), time.time()

    return look


def _list_targets() -> dict[str, Any]:
    """Return for each live node's name the strategy by which Ray schedules a task on the node.

    Nodes with equal names get the start of their id in Ray after their name.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in import_ray().nodes() if node["Alive"]]
    names = [str(node.get("NodeManagerHostname") or node["NodeID"]) for node in alive]
    return {
        name if names.count(name) == 1 else f"{name} {node['NodeID'][:6]}": NodeAffinitySchedulingStrategy(
            node_id=node["NodeID"], soft=False
        )
        for name, node in zip(names, alive, strict=True)
    }


def compare(parts_of: NodeParts) -> tuple[MachinePart, ...]:
    """Return a failed finding for each property that should be the same on all nodes, but differs.

    These are the probes with `alike`, such as the driver. Nodes whose own probe failed do not count.
    """
    rows = []
    for row in PROBES:
        nodes_of = group(
            (part.says, node)
            for node, parts in parts_of.items()
            for part in parts
            if row.alike and part.name == row.name and part.state == "ok"
        )
        if len(nodes_of) > 1:
            text = "; ".join(f"{says} on {listed(nodes, _MOST_LISTED)}" for says, nodes in nodes_of.items())
            rows.append(MachinePart(row.name, "broken", text, "take nodes with the same", needed=False))
    return tuple(rows)


def diagnose(parts_of: NodeParts) -> list[Diagnostic]:
    """Return the failed findings of all nodes as diagnostics, and the differences between nodes that `compare` finds.

    Equal findings share a diagnostic, which names their nodes. It is the error E0977 if runs need what the probe checked
    (`needed`), else the warning W0977.
    """
    lacks = group((part, node) for node, parts in parts_of.items() for part in parts if part.state != "ok")
    findings = [
        (part, f"{part.name} of {listed(nodes, _MOST_LISTED)}: {part.says}") for part, nodes in lacks.items()
    ]
    findings += [(row, f"{row.name}: {row.says}") for row in compare(parts_of)]
    return [
        warning("W0977", text, help=part.help) if not part.needed else error("E0977", text, help=part.help)
        for part, text in findings
    ]


def ask_at(address: str | None) -> NodeParts:
    """Run the probes for SGLang's servers on this machine, or on every node of the Ray cluster at an address.

    Raises:
        Problem: E0962 if the cluster cannot be joined.
    """
    if not address:
        return {"this machine": probe(Site(), SERVERS)}
    with start_ray(address):
        return ask_nodes(None, SERVERS)


def probe_nodes(store: Path, address: str | None) -> NodeParts:
    """Run all probes on every node of a Ray cluster, and check that the nodes can form a group.

    Args:
        store: Folder of the store, which need not exist.
        address: Address of a Ray cluster, or None for a new Ray on this machine.

    Returns:
        Findings by node. The entry `all nodes` has the differences between nodes, and the findings on the group.

    Raises:
        Problem: E0962 if Ray does not start, or the cluster cannot be joined.
    """
    folder_above = store.resolve()
    while not folder_above.is_dir():
        folder_above = folder_above.parent
    with start_ray(address), tempfile.TemporaryDirectory(prefix=".reodsl-probe-", dir=folder_above) as folder:
        mark = Path(folder) / "mark"
        mark.touch()
        results = dict(ask_nodes(mark, EVERYTHING))
        return results | {"all nodes": (*compare(results), *_probe_group(results, Path(folder)))}


def _probe_group(parts_of: NodeParts, folder: Path) -> tuple[MachinePart, ...]:
    """Let processes of all nodes form a group as trainers do, and return findings on the group and on the network.

    If any node has GPUs, only nodes with GPUs take part, and each process has a GPU. A node with a single GPU has one
    process, and any other node has two. With several nodes, a second finding, `network`, has the speed of the slowest
    connection between two nodes: each process measures one to its peer, the next process (cyclically) on another node.
    The speed is infinite if no process has a peer.

    Args:
        parts_of: Findings by node; nodes that do not see the store are left out.
        folder: Folder on the store's disk, in which processes find each other.
    """
    ray = import_ray()
    help = "let nodes reach each other at all ports, and name the interface: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME"
    with_store = {
        name
        for name, parts in parts_of.items()
        if any(part.name == "store" and part.state == "ok" for part in parts)
    }
    devices = {node["NodeID"]: int(node["Resources"].get("GPU", 0)) for node in ray.nodes()}
    by_node = {name: target for name, target in _list_targets().items() if name in with_store}
    with_gpus = {name: target for name, target in by_node.items() if devices[target.node_id]}
    targets = [
        node for node in (with_gpus or by_node).values() for _ in range(min(2, devices[node.node_id] or 2))
    ]
    if not targets:
        return (MachinePart("group", "broken", "no node sees the store, by which processes connect", help),)
    peers = [
        next((peer for peer in range(rank + 1 - len(targets), rank) if targets[peer] is not target), None)
        for rank, target in enumerate(targets)
    ]
    join = ray.remote(max_retries=0, num_cpus=0, num_gpus=1 if with_gpus else 0)(add_up)
    shared = len(targets), folder / "group", bool(with_gpus), len(by_node) > 1
    refs = [
        join.options(scheduling_strategy=target).remote(rank, *shared, peer)
        for rank, (target, peer) in enumerate(zip(targets, peers, strict=True))
    ]
    try:
        speed, connection_speed = map(min, zip(*ray.get(refs, timeout=ANSWER_SECONDS), strict=True))
    except ray.exceptions.RayError as caught:
        for ref in refs:
            ray.cancel(ref, force=True)
        fault = first_line(getattr(caught, "cause", None) or caught)
        return (MachinePart("group", "broken", f"{len(targets)} processes form no group: {fault}", help),)
    group = MachinePart("group", "ok", f"{len(targets)} processes add up tensors at {speed / 1e9:.2g} GB/s")
    text = f"{connection_speed / 1e9:.2g} GB/s from node to node by one connection"
    slow = connection_speed < _SLOW_BYTES_PER_SECOND
    network = MachinePart("network", "broken" if slow else "ok", text, help if slow else None, needed=False)
    return (group,) if math.isinf(connection_speed) else (group, network)


def add_up(
    rank: int, world: int, file: Path, on_gpus: bool, spans_nodes: bool, peer: int | None
) -> tuple[float, float]:
    """Join a group of processes as trainers do, add up tensors over all ranks, and measure the speeds of the network.

    Every process first connects to every other, as trainers send requests to servers on all nodes.

    Args:
        rank: This process's rank.
        world: Number of processes.
        file: Shared file by which the processes find each other.
        on_gpus: Whether the tensor is on a GPU.
        spans_nodes: Whether the processes are on several nodes.
        peer: Rank of the process that receives bytes; None sends nothing.

    Returns:
        (bytes of the tensor per second of the second addition; bytes per second of the connection to `peer`, which is
        infinite if `peer` is None).

    Raises:
        ProbeFailed: the sum is wrong, or another process cannot be reached.
    """
    import torch
    from torch import distributed as dist

    from runners.machine.rendezvous import LOOPBACK, SharedFile
    from runners.train.launch import cluster_address
    from runners.train.ranks import join_ranks

    device = torch.device("cuda", 0) if on_gpus else torch.device("cpu")
    store = SharedFile(file, world, timedelta(seconds=ANSWER_SECONDS))
    host = cluster_address() if spans_nodes else None
    with (
        join_ranks(rank, world, store, device, host) as ranks,
        socket.create_server((host or LOOPBACK, 0)) as listener,
    ):
        # In a run, trainers send requests to servers at ports of their nodes, so that ports must be reachable.
        Thread(target=_receive, args=(listener,), daemon=True).start()
        addresses = ranks.all_gather_objects(listener.getsockname())
        for address in addresses:
            try:
                _send(address, 1)
            except OSError as caught:
                raise ProbeFailed(f"{host} does not reach {address[0]}: {caught}") from caught
        ranks.barrier()
        connection_speed = math.inf if peer is None else _send(addresses[peer], _FILE_BYTES)
        for _ in range(2):
            tensor = torch.ones(_SUMMANDS * (16 if on_gpus else 1), device=device)
            ranks.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            total = float(tensor[-1])
        if total != world:
            raise ProbeFailed(f"the sum of {world} ones is {total:g}")
        speed = tensor.nbytes / (time.perf_counter() - start)
        # All processes have sent their bytes before any port is closed.
        ranks.barrier()
        listener.shutdown(socket.SHUT_RDWR)
        return speed, connection_speed


def _receive(listener: socket.socket) -> None:
    """Accept connections until the port is closed; read all bytes of each sender, and then answer with a single byte."""
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                while connection.recv(1 << 20):
                    pass
                connection.sendall(b".")


def _send(address: tuple[str, int], size: int) -> float:
    """Send bytes to an address, wait for its answer, and return the speed in bytes per second.

    Args:
        address: Host and port.
        size: Number of bytes.

    Raises:
        OSError: the address cannot be reached.
    """
    data = memoryview(bytes(min(size, 1 << 20)))
    start = time.perf_counter()
    with socket.create_connection(address, timeout=_PROBE_SECONDS) as connection:
        for _ in range(-(-size // len(data))):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    return size / (time.perf_counter() - start)
