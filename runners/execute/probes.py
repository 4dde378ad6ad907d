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
from runners.engine.sglang.kernels import link_kernel, toolkit
from runners.engine.sglang.settings import REMEDY, find_interpreter
from runners.execute.instance import import_ray, start_ray

PATIENCE = 50.0
"""Seconds that nodes have to answer, and again to meet: both and joining Ray take less than two minutes."""
_LOOK = 40.0
"""Seconds of all rows of a node, and of any step of a meeting."""
_DRIVER, _GLIBC, _GCC = 580, (2, 34), 11
"""The oldest that do."""
_SLOW = 50e6
"""Bytes per second of a disk, or from node to node, with which checkpoints or new weights would keep GPUs waiting."""
_WRITTEN, _ADDED = 64 << 20, 4 << 20
"""Bytes of a file, and float32 numbers of a sum."""
_CLOCK = 5.0
"""Seconds between two clocks that are more than the answer's way."""


_NAMED = 4
"""Nodes or GPUs that a row names; it counts the rest."""


class Unfit(Exception):
    """A node's lack, in words."""


def ask_command(*command: str) -> str:
    """Return what a command prints. Raises Unfit where it cannot be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LOOK, check=True)
    except FileNotFoundError as caught:
        raise Unfit(f"there is no `{command[0]}`") from caught
    except (OSError, subprocess.SubprocessError) as caught:
        said = (getattr(caught, "stderr", None) or "").strip().splitlines()
        raise Unfit(said[-1] if said else first_line(caught)) from caught
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Site:
    """A node as probes see it: its files below `root`, its commands, its C library, and SGLang's Python there.

    `mark` is a file that whoever asks has put into the folder of the store, which the node should see.
    """

    mark: Path | None = None
    root: Path = Path("/")
    ask: Callable[..., str] = ask_command
    libc: str = field(default_factory=lambda: str(os.confstr("CS_GNU_LIBC_VERSION")))
    include: Path = field(default_factory=lambda: Path(sysconfig.get_path("include")))
    python: Path | None = field(default_factory=find_interpreter)

    @property
    def has(self) -> frozenset[str]:
        """Return what there is of the things that a row may be about."""
        there = {
            "gpus": any(self.root.glob("dev/nvidia[0-9]*")),
            "store": self.mark is not None,
            "toolkit": self.python is not None and bool(toolkit(self.python)),
        }
        return frozenset(name for name, given in there.items() if given)


def _look_at_driver(site: Site) -> str:
    try:
        text = (site.root / "proc/driver/nvidia/version").read_text("utf-8", "replace")
    except OSError:
        raise Unfit("the kernel has none loaded") from None
    found = re.search(r"\b(\d{3,})(\.\d+)+\b", text)
    if found is None or int(found[1]) < _DRIVER:
        raise Unfit(
            f"{found[0] if found else 'of unknown version'}, and {_DRIVER} is the first that runs CUDA 13"
        )
    return found[0]


def _look_at_glibc(site: Site) -> str:
    numbers = tuple(map(int, re.findall(r"\d+", site.libc)))
    if numbers < _GLIBC:
        raise Unfit(f"{site.libc}, and SGLang is built for {'.'.join(map(str, _GLIBC))}")
    return site.libc


def _look_at_compiler(site: Site) -> str:
    versions = [site.ask(name, "-dumpfullversion", "-dumpversion") for name in ("gcc", "c++")]
    old = [version for version in versions if not version[:1].isdigit() or int(version.split(".")[0]) < _GCC]
    if old:
        raise Unfit(f"gcc {old[0]}, and C++20 needs {_GCC}")
    return f"gcc {versions[0]}"


def _look_at_header(site: Site) -> str:
    places = [site.include]
    if site.python is not None:
        printed = "import sysconfig; print(sysconfig.get_path('include'))"
        places.append(Path(site.ask(str(site.python), "-P", "-c", printed)))
    for place in places:
        if not (place / "Python.h").is_file():
            raise Unfit(f"there is none in {place}")
    return str(places[0])


def _look_at_sglang(site: Site) -> str:
    if site.python is None:
        raise Unfit("not installed")
    return str(site.python)


def _look_at_gpus(site: Site) -> str:
    query = ("nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits")
    rows = [line.rsplit(",", 2) for line in site.ask(*query).splitlines()]
    kinds = [f"{name.strip()}, {float(whole) / 1024:.0f} GiB" for name, whole, _ in rows]
    found = " and ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
    used = [number for number, (_, whole, taken) in enumerate(rows) if float(taken) > 0.1 * float(whole)]
    if len(set(kinds)) != 1:
        raise Unfit(f"{found}, and all wait for the slowest" if kinds else "nvidia-smi lists none")
    if used:
        raise Unfit(f"{found}, and others hold memory of {listed(list(map(str, used)), _NAMED)}")
    return found


def _look_at_store(site: Site) -> str:
    assert site.mark is not None
    if not site.mark.is_file():
        raise Unfit(f"{site.mark.parent} is not there")
    _write(site.mark.parent, 1 << 20)
    free = os.statvfs(site.mark.parent)
    return f"seen, {free.f_bavail * free.f_frsize / 1e9:.0f} GB free"


def _look_at_disk(site: Site) -> str:
    assert site.mark is not None
    write, read = _write(site.mark.parent, _WRITTEN)
    words = f"writes {write / 1e6:,.0f} MB/s, reads {read / 1e6:,.0f} MB/s"
    if min(write, read) < _SLOW:
        raise Unfit(words)
    return words


def _write(folder: Path, size: int) -> tuple[float, float]:
    """Write and read a file of `size` bytes; return bytes per second of both. Raises Unfit where the disk refuses."""
    data = secrets.token_bytes(1 << 20)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            began = time.perf_counter()
            for _ in range(size >> 20):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
            written = time.perf_counter()
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            while file.read(1 << 20):
                pass
            return size / (written - began), size / (time.perf_counter() - written)
    except OSError as caught:
        raise Unfit(f"{folder}: {caught.strerror}") from caught


def _look_at_build(site: Site) -> str:
    assert site.python is not None
    home = Path(toolkit(site.python)["CUDA_HOME"])
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cu"
        source.write_text(_KERNEL, "utf-8")
        fault = link_kernel(home, source)
    if fault:
        raise Unfit(fault)
    return f"a kernel compiles and links with {home}"


def _look_at_hand_over(site: Site) -> str:
    code = "import sys; from runners.execute.probes import hand_over; print(hand_over(*sys.argv[1:]))"
    # Neither process may keep memory of the GPU, which this one would.
    return site.ask(sys.executable, "-P", "-c", code, "cuda", str(site.python or sys.executable))


def hand_over(device: str, python: str) -> str:
    """Let a process of another Python read a tensor as servers read weights, and return its sum in words.

    Raises Unfit where it reads something else or nothing.
    """
    import torch

    from runners.engine.sglang.weights import buckets, packed_tensors

    (bucket,) = buckets([("ones", torch.ones(_ADDED, device=device))])
    given = packed_tensors(bucket)
    done = subprocess.run(
        [python, "-P", "-c", _READ], input=given, capture_output=True, text=True, timeout=_LOOK
    )
    if done.returncode or float(done.stdout) != _ADDED:
        raise Unfit(f"a server would read {done.stdout.strip() or done.stderr.strip().splitlines()[-1]}")
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
    """A row: `look` returns what there is or raises Unfit, and `help` says what to do then.

    It is about nodes that have all of `about`. What is `alike` is the same on all nodes that have it. Without what is not
    `needed` a run is slow, or fails where others are in its way.
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
    """Return the rows of a node that have these names and are about it; one that does not end in time says so."""
    has = site.has
    rows = [row for row in PROBES if row.name in names and row.about <= has]
    late = f"not done after {_LOOK:g} seconds"
    found = {row.name: MachinePart(row.name, "broken", late, row.help, row.needed) for row in rows}
    # A disk that hangs keeps its thread for ever, and nobody waits for it.
    looks = [Thread(target=_look, args=(row, site, found), daemon=True) for row in rows]
    until = time.monotonic() + _LOOK
    for look in looks:
        look.start()
        # Alone, where its share of the time is enough: a disk is not measured beside a compiler.
        look.join(_LOOK / len(looks))
    for look in looks:
        look.join(max(0.0, until - time.monotonic()))
    return tuple(found.values())


def _look(row: Probe, site: Site, found: dict[str, MachinePart]) -> None:
    try:
        found[row.name] = MachinePart(row.name, "ok", row.look(site), needed=row.needed)
    except Exception as lack:  # Whatever it is, the other rows are worth having.
        found[row.name] = MachinePart(row.name, "broken", first_line(lack), row.help, row.needed)


Found = Mapping[str, Sequence[MachinePart]]
"""The rows of each node, by its name."""


def ask_nodes(mark: Path | None, names: frozenset[str]) -> Found:
    """Return the rows of every node of the Ray cluster that this process has joined.

    A node that does not answer in time, or has another reodsl, has one row that says so.
    """
    ray = import_ray()
    look = ray.remote(max_retries=0, num_cpus=0)(_make_question(__version__, mark, names))
    flying = {look.options(scheduling_strategy=at).remote(): name for name, at in _places().items()}
    found: dict[str, tuple[MachinePart, ...]] = {}
    until = time.monotonic() + PATIENCE
    while flying:
        ended, _ = ray.wait(list(flying), timeout=max(0.0, until - time.monotonic()))
        now = time.time()
        if not ended:
            words = f"no answer within {PATIENCE:g} seconds"
            silent = MachinePart("ray", "broken", words, "see Ray's log on this node")
            return found | dict.fromkeys(flying.values(), (silent,))
        (ref,) = ended
        found[flying.pop(ref)] = _hear(ray, ref, now)
    return found


def _hear(ray: Any, ref: Any, now: float) -> tuple[MachinePart, ...]:
    """Return the rows that a node has answered with at `now`."""
    try:
        version, rows, clock = ray.get(ref)
    except ray.exceptions.RayError as caught:
        return (MachinePart("reodsl", "broken", first_line(caught), _SAME),)
    if version != __version__:
        there = f"is {version}" if version else "is not installed"
        return (MachinePart("reodsl", "broken", f"{there}, and this command is of {__version__}", _SAME),)
    off = clock - now
    fine = abs(off) < _CLOCK
    words = "as here" if fine else f"{abs(off):,.0f} seconds {'ahead' if off > 0 else 'behind'}"
    help = None if fine else "let all nodes take the time of one server, as chrony does"
    return (MachinePart("clock", "ok" if fine else "broken", words, help, needed=False), *rows)


def _make_question(version: str, mark: Path | None, names: frozenset[str]) -> Callable[[], tuple[Any, ...]]:
    def look() -> tuple[Any, ...]:
        # A function within a function travels whole, so it runs also where this file is another or missing.
        try:
            from reodsl import __version__ as there
        except ImportError:
            there = ""
        if there != version:
            return there, (), 0.0
        from runners.execute.probes import Site, probe

        rows = probe(Site(mark), names)
        return there, rows, time.time()

    return look


def _places() -> dict[str, Any]:
    """Return where to run on each node, by its name; nodes of one name have their number in Ray besides."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in import_ray().nodes() if node["Alive"]]
    names = [str(node.get("NodeManagerHostname") or node["NodeID"]) for node in alive]
    return {
        name if names.count(name) == 1 else f"{name} {node['NodeID'][:6]}": NodeAffinitySchedulingStrategy(
            node_id=node["NodeID"], soft=False
        )
        for name, node in zip(names, alive, strict=True)
    }


def compare(found: Found) -> tuple[MachinePart, ...]:
    """Return a row for each thing that is not the same on all nodes that have it, and should be."""
    rows = []
    for each in PROBES:
        there: dict[str, list[str]] = {}
        for node, parts in found.items():
            for part in parts:
                if each.alike and part.name == each.name and part.state == "ok":
                    there.setdefault(part.says, []).append(node)
        if len(there) > 1:
            words = "; ".join(f"{says} on {listed(nodes, _NAMED)}" for says, nodes in there.items())
            rows.append(
                MachinePart(each.name, "broken", words, "take nodes that have the same", needed=False)
            )
    return tuple(rows)


def diagnose(found: Found) -> list[Diagnostic]:
    """Return E0977 for what nodes lack, with their names, and W0977 for what a run can do without."""
    lacks: dict[MachinePart, list[str]] = {}
    for node, parts in found.items():
        for part in parts:
            if part.state != "ok":
                lacks.setdefault(part, []).append(node)
    told = [(part, f"{part.name} of {listed(nodes, _NAMED)}: {part.says}") for part, nodes in lacks.items()]
    told += [(row, f"{row.name}: {row.says}") for row in compare(found)]
    return [
        warning("W0977", words, help=part.help) if not part.needed else error("E0977", words, help=part.help)
        for part, words in told
    ]


def ask_at(address: str | None) -> Found:
    """Return what servers need of this machine, or of every node of the Ray cluster at `address`. Raises E0962."""
    if not address:
        return {"this machine": probe(Site(), SERVERS)}
    with start_ray(address):
        return ask_nodes(None, SERVERS)


def probe_nodes(store: Path, address: str | None) -> Found:
    """Return the rows of every node of the Ray cluster at `address`, or of this machine, and of all nodes together.

    Raises E0962.
    """
    place = store.resolve()
    while not place.is_dir():
        place = place.parent
    with start_ray(address), tempfile.TemporaryDirectory(prefix=".reodsl-probe-", dir=place) as folder:
        mark = Path(folder) / "mark"
        mark.touch()
        found = dict(ask_nodes(mark, EVERYTHING))
        return found | {"all nodes": (*compare(found), *_meet(found, Path(folder)))}


def _meet(found: Found, folder: Path) -> tuple[MachinePart, ...]:
    """Return the row of a group as trainers make it: of two processes of a node, each with a GPU if nodes have any.

    Of several nodes there is also the row of the slowest way from one to the next.
    """
    ray = import_ray()
    help = "let nodes reach each other at all ports, and name the interface: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME"
    seen = {
        name
        for name, parts in found.items()
        if any(part.name == "store" and part.state == "ok" for part in parts)
    }
    devices = {node["NodeID"]: int(node["Resources"].get("GPU", 0)) for node in ray.nodes()}
    places = {name: at for name, at in _places().items() if name in seen}
    with_gpus = {name: at for name, at in places.items() if devices[at.node_id]}
    seats = [at for at in (with_gpus or places).values() for _ in range(min(2, devices[at.node_id] or 2))]
    if not seats:
        return (MachinePart("group", "broken", "no node sees the store, in which processes meet", help),)
    following = [
        next((other for other in range(rank + 1 - len(seats), rank) if seats[other] is not at), None)
        for rank, at in enumerate(seats)
    ]
    join = ray.remote(max_retries=0, num_cpus=0, num_gpus=1 if with_gpus else 0)(add_up)
    file, many = folder / "group", len(places) > 1
    refs = [
        join.options(scheduling_strategy=at).remote(rank, len(seats), file, bool(with_gpus), many, other)
        for rank, (at, other) in enumerate(zip(seats, following, strict=True))
    ]
    try:
        speed, way = map(min, zip(*ray.get(refs, timeout=PATIENCE), strict=True))
    except ray.exceptions.RayError as caught:
        for ref in refs:
            ray.cancel(ref, force=True)
        fault = first_line(getattr(caught, "cause", None) or caught)
        return (MachinePart("group", "broken", f"{len(seats)} processes do not meet: {fault}", help),)
    group = MachinePart("group", "ok", f"{len(seats)} processes add up tensors at {speed / 1e9:.2g} GB/s")
    words = f"{way / 1e9:.2g} GB/s from node to node by one connection"
    slow = way < _SLOW
    network = MachinePart("network", "broken" if slow else "ok", words, help if slow else None, needed=False)
    return (group,) if math.isinf(way) else (group, network)


def add_up(
    rank: int, world: int, file: Path, on_gpus: bool, many: bool, other: int | None
) -> tuple[float, float]:
    """Join a group as trainers do, add a tensor with all, and send bytes to the process of rank `other`.

    Return the bytes per second of both. Raises Unfit where the sum is wrong or another process cannot be reached.
    """
    import torch
    from torch import distributed as dist

    from runners.machine.rendezvous import LOOPBACK, SharedFile
    from runners.train.launch import cluster_address
    from runners.train.ranks import joined

    device = torch.device("cuda", 0) if on_gpus else torch.device("cpu")
    store = SharedFile(file, world, timedelta(seconds=PATIENCE))
    host = cluster_address() if many else None
    with (
        joined(rank, world, store, device, host) as ranks,
        socket.create_server((host or LOOPBACK, 0)) as own,
    ):
        # Servers are asked at a port of their node.
        Thread(target=_drain, args=(own,), daemon=True).start()
        addresses = ranks.gather(own.getsockname())
        for address in addresses:
            try:
                _send(address, 1)
            except OSError as caught:
                raise Unfit(f"{host} does not reach {address[0]}: {caught}") from caught
        ranks.wait()
        way = math.inf if other is None else _send(addresses[other], _WRITTEN)
        for _ in range(2):
            tensor = torch.ones(_ADDED * (16 if on_gpus else 1), device=device)
            ranks.wait()
            began = time.perf_counter()
            dist.all_reduce(tensor)
            total = float(tensor[-1])
        if total != world:
            raise Unfit(f"the sum of {world} ones is {total:g}")
        speed = tensor.nbytes / (time.perf_counter() - began)
        # Nobody's port is closed while another sends to it.
        ranks.wait()
        own.shutdown(socket.SHUT_RDWR)
        return speed, way


def _drain(own: socket.socket) -> None:
    """Read what others send until the port is closed, and answer each once it has sent all."""
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
    with socket.create_connection(address, timeout=_LOOK) as line:
        for _ in range(-(-size // len(data))):
            line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        line.recv(1)
    return size / (time.perf_counter() - began)
