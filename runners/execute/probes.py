"""Probe the nodes of a run: a row for each thing that they need, asked of every node of a Ray cluster at once."""

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
from reodsl.diagnostics import Diagnostic, error, first_line, listed, warning
from reodsl.plan.registry import MachinePart
from runners.engine.sglang.settings import REMEDY, find_interpreter, link_kernel, toolkit
from runners.execute.instance import import_ray, start_ray

ANSWER_SECONDS = 50.0
"""Seconds that nodes have to answer, and again to meet: both and joining Ray take less than two minutes."""
_PROBE_SECONDS = 40.0
"""Seconds of all rows of a node, and of any step of a meeting."""
_DRIVER, _GLIBC, _GCC = 580, (2, 34), 11
"""The oldest that do."""
_SLOW_BYTES_PER_SECOND = 50e6
"""Bytes per second of a disk, or from node to node, with which checkpoints or new weights would keep GPUs waiting."""
_FILE_BYTES, _SUMMANDS = 64 << 20, 4 << 20
"""Bytes of a file, and float32 numbers of a sum."""
_CLOCK_SECONDS = 5.0
"""Seconds between two clocks that are more than the answer's way."""


_MOST_LISTED = 4
"""Nodes or GPUs that a row names; it counts the rest."""


class ProbeFailed(Exception):
    """A lack of a node, as a sentence."""


def ask_command(*command: str) -> str:
    """Return the standard output of a command. Raises ProbeFailed if it cannot be run or fails."""
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
    """A node as probes see it: files below `root`, commands, C library, and the Python of SGLang.

    `mark` is a file that the asking process has put into the store's folder, and that the node should see.
    """

    mark: Path | None = None
    root: Path = Path("/")
    ask: Callable[..., str] = ask_command
    libc: str = field(default_factory=lambda: str(os.confstr("CS_GNU_LIBC_VERSION")))
    include: Path = field(default_factory=lambda: Path(sysconfig.get_path("include")))
    python: Path | None = field(default_factory=find_interpreter)

    @property
    def has(self) -> frozenset[str]:
        """Return the features of this node that rows may require."""
        features = {
            "gpus": any(self.root.glob("dev/nvidia[0-9]*")),
            "store": self.mark is not None,
            "toolkit": self.python is not None and bool(toolkit(self.python)),
        }
        return frozenset(name for name, present in features.items() if present)


def _look_at_driver(site: Site) -> str:
    """Return the version of NVIDIA's kernel driver. Raises ProbeFailed if it is missing or too old."""
    try:
        text = (site.root / "proc/driver/nvidia/version").read_text("utf-8", "replace")
    except OSError:
        raise ProbeFailed("the kernel has none loaded") from None
    match = re.search(r"\b(\d{3,})(\.\d+)+\b", text)
    if match is None or int(match[1]) < _DRIVER:
        raise ProbeFailed(
            f"{match[0] if match else 'of unknown version'}, and {_DRIVER} is the first that runs CUDA 13"
        )
    return match[0]


def _look_at_glibc(site: Site) -> str:
    numbers = tuple(map(int, re.findall(r"\d+", site.libc)))
    if numbers < _GLIBC:
        raise ProbeFailed(f"{site.libc}, and SGLang is built for {'.'.join(map(str, _GLIBC))}")
    return site.libc


def _look_at_compiler(site: Site) -> str:
    versions = [site.ask(name, "-dumpfullversion", "-dumpversion") for name in ("gcc", "c++")]
    old = [version for version in versions if not version[:1].isdigit() or int(version.split(".")[0]) < _GCC]
    if old:
        raise ProbeFailed(f"gcc {old[0]}, and C++20 needs {_GCC}")
    return f"gcc {versions[0]}"


def _look_at_header(site: Site) -> str:
    folders = [site.include]
    if site.python is not None:
        printed = "import sysconfig; print(sysconfig.get_path('include'))"
        folders.append(Path(site.ask(str(site.python), "-P", "-c", printed)))
    for folder in folders:
        if not (folder / "Python.h").is_file():
            raise ProbeFailed(f"there is none in {folder}")
    return str(folders[0])


def _look_at_sglang(site: Site) -> str:
    if site.python is None:
        raise ProbeFailed("not installed")
    return str(site.python)


def _look_at_gpus(site: Site) -> str:
    """Return the kinds and memory of the GPUs. Raises ProbeFailed if kinds differ or another program holds memory."""
    query = ("nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits")
    rows = [line.rsplit(",", 2) for line in site.ask(*query).splitlines()]
    kinds = [f"{name.strip()}, {float(total) / 1024:.0f} GiB" for name, total, _ in rows]
    summary = " and ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
    busy = [i for i, (_, total, used) in enumerate(rows) if float(used) > 0.1 * float(total)]
    if len(set(kinds)) != 1:
        raise ProbeFailed(f"{summary}, and all wait for the slowest" if kinds else "nvidia-smi lists none")
    if busy:
        raise ProbeFailed(
            f"{summary}, and others hold memory of {listed(list(map(str, busy)), _MOST_LISTED)}"
        )
    return summary


def _look_at_store(site: Site) -> str:
    assert site.mark is not None
    if not site.mark.is_file():
        raise ProbeFailed(f"{site.mark.parent} is not there")
    _write(site.mark.parent, 1 << 20)
    free = os.statvfs(site.mark.parent)
    return f"seen, {free.f_bavail * free.f_frsize / 1e9:.0f} GB free"


def _look_at_disk(site: Site) -> str:
    assert site.mark is not None
    write, read = _write(site.mark.parent, _FILE_BYTES)
    words = f"writes {write / 1e6:,.0f} MB/s, reads {read / 1e6:,.0f} MB/s"
    if min(write, read) < _SLOW_BYTES_PER_SECOND:
        raise ProbeFailed(words)
    return words


def _write(folder: Path, size: int) -> tuple[float, float]:
    """Write and read a file of `size` bytes; return the bytes per second of both. Raises ProbeFailed if the disk refuses."""
    data = secrets.token_bytes(1 << 20)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            began = time.perf_counter()
            for _ in range(size >> 20):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
            middle = time.perf_counter()
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            while file.read(1 << 20):
                pass
            return size / (middle - began), size / (time.perf_counter() - middle)
    except OSError as caught:
        raise ProbeFailed(f"{folder}: {caught.strerror}") from caught


def _look_at_build(site: Site) -> str:
    assert site.python is not None
    home = Path(toolkit(site.python)["CUDA_HOME"])
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cu"
        source.write_text(_KERNEL, "utf-8")
        fault = link_kernel(home, source)
    if fault:
        raise ProbeFailed(fault)
    return f"a kernel compiles and links with {home}"


def _look_at_hand_over(site: Site) -> str:
    code = "import sys; from runners.execute.probes import hand_over; print(hand_over(*sys.argv[1:]))"
    # Neither process may keep memory of the GPU, which this one would.
    return site.ask(sys.executable, "-P", "-c", code, "cuda", str(site.python or sys.executable))


def hand_over(device: str, python: str) -> str:
    """Let a process of another Python read a tensor as servers read weights, and return the tensor's bytes in words.

    Raises:
        ProbeFailed: the process reads another sum or nothing.
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
"""Reads a tensor whose GPU is named by what it is, as servers do."""
_KERNEL = """#include <cuda/std/cstdint>
__global__ void fill(cuda::std::uint32_t* x) { x[threadIdx.x] = blockIdx.x; }
void call(cuda::std::uint32_t* x) { fill<<<1, 32>>>(x); }
"""
_SAME = "install the same version on every node"


@dataclass(frozen=True, slots=True)
class Probe:
    """A row of the table: `look` returns the finding or raises ProbeFailed, and `help` is the remedy.

    The row concerns nodes that have every feature of `about`. A finding that is `alike` is the same on all these nodes. If
    a row is not `needed`, a run without the finding is slow, or fails only if other programs are in its way.
    """

    name: str
    look: Callable[[Site], str]
    help: str
    about: frozenset[str] = frozenset({"gpus"})
    alike: bool = False
    needed: bool = True


STORE = frozenset({"store"})
"""The row that every run on several nodes asks for."""
SERVERS = frozenset({"driver", "glibc", "compiler", "Python.h", "sglang", "gpus"})
"""Rows that servers on GPUs need: quick ones, which a run looks at before it takes GPUs."""
_KINDS = "end what else uses them, or take nodes with GPUs of one kind"
PROBES = (
    Probe("driver", _look_at_driver, f"install NVIDIA's driver {_DRIVER} or newer", alike=True),
    Probe("glibc", _look_at_glibc, "take a newer system: Ubuntu 22.04, Debian 12 and RHEL 9 have it"),
    Probe("compiler", _look_at_compiler, f"install gcc and g++ {_GCC} or newer, as by: apt install g++"),
    Probe("Python.h", _look_at_header, "install this Python's headers, as by: apt install python3-dev"),
    Probe("sglang", _look_at_sglang, REMEDY),
    Probe("gpus", _look_at_gpus, _KINDS, alike=True, needed=False),
    Probe(
        "store",
        _look_at_store,
        "put it on a file system with room that every node mounts: --store DIR",
        STORE,
    ),
    Probe("disk", _look_at_disk, "put the store on a faster file system: --store DIR", STORE, needed=False),
    Probe("hand-over", _look_at_hand_over, "give the container shared memory: --shm-size 16g, --ipc host"),
    Probe("build", _look_at_build, "install it again: make sglang PROFILE=cuda", frozenset({"toolkit"})),
)
EVERYTHING = frozenset(row.name for row in PROBES)


def probe(site: Site, names: frozenset[str]) -> tuple[MachinePart, ...]:
    """Return a node's results for the named rows that concern the node; a row that is not done in time says so."""
    has = site.has
    rows = [row for row in PROBES if row.name in names and row.about <= has]
    late = f"not done after {_PROBE_SECONDS:g} seconds"
    results = {row.name: MachinePart(row.name, "broken", late, row.help, row.needed) for row in rows}
    # A disk that hangs keeps its thread for ever, and nobody waits for it.
    looks = [Thread(target=_look, args=(row, site, results), daemon=True) for row in rows]
    until = time.monotonic() + _PROBE_SECONDS
    for look in looks:
        look.start()
        # Alone, where its share of the time is enough: a disk is not measured beside a compiler.
        look.join(_PROBE_SECONDS / len(looks))
    for look in looks:
        look.join(max(0.0, until - time.monotonic()))
    return tuple(results.values())


def _look(row: Probe, site: Site, results: dict[str, MachinePart]) -> None:
    try:
        results[row.name] = MachinePart(row.name, "ok", row.look(site), needed=row.needed)
    except Exception as lack:  # Whatever it is, the other rows are worth having.
        results[row.name] = MachinePart(row.name, "broken", first_line(lack), row.help, row.needed)


NodeParts = Mapping[str, Sequence[MachinePart]]
"""The rows of each node, by its name."""


def ask_nodes(mark: Path | None, names: frozenset[str]) -> NodeParts:
    """Return the rows of every node of the Ray cluster that this process has joined.

    A node that does not answer in time, or has another reodsl, has one row that says so.
    """
    ray = import_ray()
    look = ray.remote(max_retries=0, num_cpus=0)(_make_question(__version__, mark, names))
    flying = {
        look.options(scheduling_strategy=strategy).remote(): name for name, strategy in _places().items()
    }
    results: dict[str, tuple[MachinePart, ...]] = {}
    until = time.monotonic() + ANSWER_SECONDS
    while flying:
        finished, _ = ray.wait(list(flying), timeout=max(0.0, until - time.monotonic()))
        now = time.time()
        if not finished:
            words = f"no answer within {ANSWER_SECONDS:g} seconds"
            silent = MachinePart("ray", "broken", words, "see Ray's log on this node")
            return results | dict.fromkeys(flying.values(), (silent,))
        (ref,) = finished
        results[flying.pop(ref)] = _hear(ray, ref, now)
    return results


def _hear(ray: Any, ref: Any, now: float) -> tuple[MachinePart, ...]:
    """Return the rows of a node's answer, which arrived at time `now`."""
    try:
        version, rows, clock = ray.get(ref)
    except ray.exceptions.RayError as caught:
        return (MachinePart("reodsl", "broken", first_line(caught), _SAME),)
    if version != __version__:
        state = f"is {version}" if version else "is not installed"
        return (MachinePart("reodsl", "broken", f"{state}, and this command is of {__version__}", _SAME),)
    off = clock - now
    fine = abs(off) < _CLOCK_SECONDS
    words = "as here" if fine else f"{abs(off):,.0f} seconds {'ahead' if off > 0 else 'behind'}"
    help = None if fine else "let all nodes take the time of one server, as chrony does"
    return (MachinePart("clock", "ok" if fine else "broken", words, help, needed=False), *rows)


def _make_question(version: str, mark: Path | None, names: frozenset[str]) -> Callable[[], tuple[Any, ...]]:
    """Return the function that Ray sends to a node: it gives the node's version, rows and clock."""

    def look() -> tuple[Any, ...]:
        # A function within a function travels whole, so it runs also where this file is another or missing.
        try:
            from reodsl import __version__ as installed
        except ImportError:
            installed = ""
        if installed != version:
            return installed, (), 0.0
        from runners.execute.probes import Site, probe

        rows = probe(Site(mark), names)
        return installed, rows, time.time()

    return look


def _places() -> dict[str, Any]:
    """Return a scheduling strategy for each node by the node's name; equal names get a prefix of their Ray id."""
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
    """Return a row for each property that should be the same on all nodes and differs."""
    rows = []
    for row in PROBES:
        nodes_of: dict[str, list[str]] = {}
        for node, parts in parts_of.items():
            for part in parts:
                if row.alike and part.name == row.name and part.state == "ok":
                    nodes_of.setdefault(part.says, []).append(node)
        if len(nodes_of) > 1:
            words = "; ".join(f"{says} on {listed(nodes, _MOST_LISTED)}" for says, nodes in nodes_of.items())
            rows.append(MachinePart(row.name, "broken", words, "take nodes that have the same", needed=False))
    return tuple(rows)


def diagnose(parts_of: NodeParts) -> list[Diagnostic]:
    """Return E0977 for what nodes lack, with their names, and W0977 for lacks that only slow a run."""
    lacks: dict[MachinePart, list[str]] = {}
    for node, parts in parts_of.items():
        for part in parts:
            if part.state != "ok":
                lacks.setdefault(part, []).append(node)
    findings = [
        (part, f"{part.name} of {listed(nodes, _MOST_LISTED)}: {part.says}") for part, nodes in lacks.items()
    ]
    findings += [(row, f"{row.name}: {row.says}") for row in compare(parts_of)]
    return [
        warning("W0977", words, help=part.help) if not part.needed else error("E0977", words, help=part.help)
        for part, words in findings
    ]


def ask_at(address: str | None) -> NodeParts:
    """Return what servers need of this machine, or of every node of the Ray cluster at `address`. Raises E0962."""
    if not address:
        return {"this machine": probe(Site(), SERVERS)}
    with start_ray(address):
        return ask_nodes(None, SERVERS)


def probe_nodes(store: Path, address: str | None) -> NodeParts:
    """Return the rows of every node of the Ray cluster at `address`, or of this machine, and of all nodes together.

    Raises E0962.
    """
    folder_above = store.resolve()
    while not folder_above.is_dir():
        folder_above = folder_above.parent
    with start_ray(address), tempfile.TemporaryDirectory(prefix=".reodsl-probe-", dir=folder_above) as folder:
        mark = Path(folder) / "mark"
        mark.touch()
        results = dict(ask_nodes(mark, EVERYTHING))
        return results | {"all nodes": (*compare(results), *_meet(results, Path(folder)))}


def _meet(parts_of: NodeParts, folder: Path) -> tuple[MachinePart, ...]:
    """Return the row of a group as trainers make it: of two processes of a node, each with a GPU if nodes have any.

    Of several nodes there is also the row of the slowest way from one to the next.
    """
    ray = import_ray()
    help = "let nodes reach each other at all ports, and name the interface: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME"
    seen = {
        name
        for name, parts in parts_of.items()
        if any(part.name == "store" and part.state == "ok" for part in parts)
    }
    devices = {node["NodeID"]: int(node["Resources"].get("GPU", 0)) for node in ray.nodes()}
    places = {name: seat for name, seat in _places().items() if name in seen}
    with_gpus = {name: seat for name, seat in places.items() if devices[seat.node_id]}
    seats = [
        seat for seat in (with_gpus or places).values() for _ in range(min(2, devices[seat.node_id] or 2))
    ]
    if not seats:
        return (MachinePart("group", "broken", "no node sees the store, in which processes meet", help),)
    following = [
        next((other for other in range(rank + 1 - len(seats), rank) if seats[other] is not seat), None)
        for rank, seat in enumerate(seats)
    ]
    join = ray.remote(max_retries=0, num_cpus=0, num_gpus=1 if with_gpus else 0)(add_up)
    file, many = folder / "group", len(places) > 1
    refs = [
        join.options(scheduling_strategy=seat).remote(rank, len(seats), file, bool(with_gpus), many, other)
        for rank, (seat, other) in enumerate(zip(seats, following, strict=True))
    ]
    try:
        speed, way = map(min, zip(*ray.get(refs, timeout=ANSWER_SECONDS), strict=True))
    except ray.exceptions.RayError as caught:
        for ref in refs:
            ray.cancel(ref, force=True)
        fault = first_line(getattr(caught, "cause", None) or caught)
        return (MachinePart("group", "broken", f"{len(seats)} processes do not meet: {fault}", help),)
    group = MachinePart("group", "ok", f"{len(seats)} processes add up tensors at {speed / 1e9:.2g} GB/s")
    words = f"{way / 1e9:.2g} GB/s from node to node by one connection"
    slow = way < _SLOW_BYTES_PER_SECOND
    network = MachinePart("network", "broken" if slow else "ok", words, help if slow else None, needed=False)
    return (group,) if math.isinf(way) else (group, network)


def add_up(
    rank: int, world: int, file: Path, on_gpus: bool, many: bool, other: int | None
) -> tuple[float, float]:
    """Join a group as trainers do, add a tensor over all ranks, and send bytes to the process of rank `other`.

    Args:
        rank: this process's rank.
        world: number of processes.
        file: shared file by which the processes find each other.
        on_gpus: whether the tensor is on a GPU.
        many: whether the processes are on several nodes.
        other: rank of the process that receives bytes; None sends nothing.

    Returns:
        Bytes per second of the addition and of the connection, whose speed is infinite if nothing is sent.

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
    host = cluster_address() if many else None
    with (
        join_ranks(rank, world, store, device, host) as ranks,
        socket.create_server((host or LOOPBACK, 0)) as own,
    ):
        # Servers are asked at a port of their node.
        Thread(target=_drain, args=(own,), daemon=True).start()
        addresses = ranks.all_gather_objects(own.getsockname())
        for address in addresses:
            try:
                _send(address, 1)
            except OSError as caught:
                raise ProbeFailed(f"{host} does not reach {address[0]}: {caught}") from caught
        ranks.barrier()
        way = math.inf if other is None else _send(addresses[other], _FILE_BYTES)
        for _ in range(2):
            tensor = torch.ones(_SUMMANDS * (16 if on_gpus else 1), device=device)
            ranks.barrier()
            began = time.perf_counter()
            dist.all_reduce(tensor)
            total = float(tensor[-1])
        if total != world:
            raise ProbeFailed(f"the sum of {world} ones is {total:g}")
        speed = tensor.nbytes / (time.perf_counter() - began)
        # Nobody's port is closed while another sends to it.
        ranks.barrier()
        own.shutdown(socket.SHUT_RDWR)
        return speed, way


def _drain(own: socket.socket) -> None:
    """Read what other processes send until the port is closed, and answer each sender at its end."""
    with suppress(OSError):
        while True:
            line, _ = own.accept()
            with line, suppress(OSError):
                while line.recv(1 << 20):
                    pass
                line.sendall(b".")


def _send(address: tuple[str, int], size: int) -> float:
    """Return at how many bytes a second `size` bytes reach an address. Raises OSError."""
    data = memoryview(bytes(min(size, 1 << 20)))
    began = time.perf_counter()
    with socket.create_connection(address, timeout=_PROBE_SECONDS) as line:
        for _ in range(-(-size // len(data))):
            line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        line.recv(1)
    return size / (time.perf_counter() - began)
