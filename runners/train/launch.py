"""Start, watch and end the processes that train a stage with this one.

On Ray they are actors, which may be on other machines; elsewhere plain processes of this one.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from reodsl.diagnostics import Problem, first_line
from reodsl.graph.job import Job
from runners.engine.protocol import cancellable
from runners.machine.placement import bundle_strategy, on_ray, shared_devices, trainer_bundle
from runners.machine.process import Child, ProcessDied, explain_death, python_path
from runners.machine.rendezvous import SharedFile, this_machine
from runners.train.follower import FollowerJob, explain_end, follow, function, ignore_progress
from runners.train.ranks import COMPUTE_TIMEOUT, join_ranks

_END_SECONDS, _WORD_SECONDS, _POLL_SECONDS = 20.0, 5.0, 1.0
"""Seconds that followers have to end after this process has."""


def train_together(job: Job, body: str) -> None:
    """Call `body` (`module:function`, of a job and ranks) in `job.resources.trainers` processes; this process is rank 0.

    Raises what the body raises here, or why another process ended: its Problem, and ProcessDied for anything else.
    """
    world = job.resources.trainers
    # All machines of a cluster see the store, and only this user enters the folder.
    job.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="meeting-", dir=job.work, ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "file"
        parts = [
            FollowerJob(
                replace(job, progress=ignore_progress), body, rank, world, file, 0 if on_ray() else rank
            )
            for rank in range(world)
        ]
        peers = Actors(parts) if on_ray() else Processes(parts)
        shared = shared_devices(job.resources, peers.devices)
        job = replace(job, resources=replace(job.resources, devices=shared))
        patience = 0.0
        try:
            joining = join_ranks(0, world, peers.store, parts[0].device, peers.host, job.resources.parts)
            with watch_others(peers), joining as ranks:
                function(body)(job, ranks)
            patience = _END_SECONDS
        except Exception as caught:
            # What broke here may be no more than what another process left behind.
            mine = isinstance(caught, Problem) and not isinstance(caught, ProcessDied)
            end = None if mine else _await_end(peers)
            if end is None:
                raise
            raise end from caught
        finally:
            peers.stop(patience)


@contextmanager
def watch_others(peers: Actors | Processes) -> Iterator[None]:
    """Let this process's engine, and its collectives on GPUs, stop when another process ends.

    Collectives between processors stop by themselves.
    """
    over, lost = threading.Event(), threading.Event()

    def notice() -> None:
        if lost.is_set():
            raise explain_death("a process that trains with this one", "it is gone")

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            if peers.ended():
                lost.set()
                # What the others said is read first; a collective that gloo ends needs no help.
                is_over = over.wait(_WORD_SECONDS)
                if not is_over and dist.is_initialized() and "nccl" in dist.get_backend_config():
                    dist.distributed_c10d._abort_process_group()
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        with cancellable(notice):
            yield
    finally:
        over.set()
        thread.join()


def _await_end(peers: Actors | Processes) -> Problem | None:
    """Return why another process ended, after a few seconds for reports; a Problem comes before a death that followed."""
    until = time.monotonic() + _WORD_SECONDS
    while time.monotonic() < until and not peers.ended():
        time.sleep(0.05)
    time.sleep(0.5)
    ends = peers.ended()
    return next((end for end in ends if not isinstance(end, ProcessDied)), ends[0] if ends else None)


def cluster_address() -> str:
    """Return the address by which other nodes of Ray's cluster reach this node."""
    import ray

    return str(ray.util.get_node_ip_address())


class Actors:
    """The followers as Ray actors, each with the cores and the GPU of one rank.

    `devices` has the devices that Ray gave each rank, this process included. All ranks meet at `store`. `host` is the
    address at which followers reach this process; None if all ranks are on one machine.
    """

    def __init__(self, parts: list[FollowerJob]) -> None:
        """Start all ranks but rank 0, which is this process, in their bundles of the task's placement group.

        Without a placement group Ray places them on any free node.

        Raises E0938 if a follower ends before it could begin.
        """
        import ray

        self._ray = ray
        actor_class = ray.remote(max_restarts=0, max_task_retries=0)(_Actor)
        self._actors: dict[int, Any] = {}
        first, *peers = parts
        self._world = first.world
        for peer in peers:
            resources = peer.job.resources
            gpus, cores = (1, 1) if resources.reserves_gpus else (0, resources.threads)
            strategy = bundle_strategy(trainer_bundle(resources, peer.rank))
            options = actor_class.options(num_cpus=cores, num_gpus=gpus, scheduling_strategy=strategy)
            self._actors[peer.rank] = options.remote()
        self._parts: dict[int, Any] = {}
        ready = [self._ready(peer) for peer in peers]
        # The first rank is this process.
        self.devices: dict[int, list[Any]] = {0: ray.get_gpu_ids()}
        self.devices |= {rank: devices for rank, (devices, _) in zip(self._actors, ready, strict=True)}
        self.store: Store = SharedFile(first.meeting, first.world, COMPUTE_TIMEOUT)
        multinode = not {machine for _, machine in ready} <= {this_machine()}
        self.host: str | None = cluster_address() if multinode else None
        self._parts |= {peer.rank: self._actors[peer.rank].follow.remote(peer, multinode) for peer in peers}

    def _ready(self, peer: FollowerJob) -> tuple[list[object], str]:
        """Return the report of a rank that has loaded its packages; end all followers if the rank died before."""
        try:
            reply: tuple[list[object], str] = self._ray.get(self._actors[peer.rank].ready.remote())
        except self._ray.exceptions.RayError as caught:
            self.stop(0.0)
            raise explain_end(peer.rank, peer.world, first_line(caught)) from caught
        return reply

    def ended(self) -> list[Problem]:
        """Return why each rank failed that has ended."""
        refs = list(self._parts.values())
        finished = self._ray.wait(refs, num_returns=len(refs), timeout=0)[0] if refs else ()
        ends: list[Problem | None] = []
        for rank, ref in self._parts.items():
            if ref in finished:
                try:
                    ends.append(self._ray.get(ref))
                except self._ray.exceptions.RayError as caught:
                    ends.append(explain_end(rank, self._world, first_line(caught)))
        return [end for end in ends if end is not None]

    def stop(self, patience: float) -> None:
        """End the followers that still run after `patience` seconds."""
        refs = list(self._parts.values())
        if refs and patience:
            self._ray.wait(refs, num_returns=len(refs), timeout=patience)
        for actor in self._actors.values():
            self._ray.kill(actor)


class _Actor:
    """A follower in a Ray actor."""

    def ready(self) -> tuple[list[object], str]:
        """Return this rank's devices by their numbers on its node, and its machine, once packages are loaded."""
        import ray

        return list(ray.get_gpu_ids()), this_machine()

    def follow(self, work: FollowerJob, multinode: bool) -> Problem | None:
        """Run the job to its end; `multinode` says that some ranks are on other machines."""
        return follow(work, cluster_address() if multinode else None)


class Processes:
    """The followers as processes of this machine, with the same attributes as `Actors`."""

    def __init__(self, parts: list[FollowerJob]) -> None:
        """Start all ranks but rank 0, which is this process, and wait until each has loaded its packages.

        Raises ProcessDied if a follower does not get so far.
        """
        self.devices: dict[int, list[object]] = {}
        self.store: Store = SharedFile(parts[0].meeting, parts[0].world, COMPUTE_TIMEOUT)
        self.host: str | None = None
        self._running = [_Process(work) for work in parts[1:]]
        for process in self._running:
            process.begin()
            if process.end is not None:
                self.stop(0.0)
                raise process.end

    def ended(self) -> list[Problem]:
        """Return why each rank failed that has ended."""
        return [process.end for process in self._running if process.end is not None]

    def stop(self, patience: float) -> None:
        """End the followers that still run after `patience` seconds."""
        until = time.monotonic() + patience
        for process in self._running:
            process.stop(max(0.0, until - time.monotonic()))


class _Process:
    """The process of a follower, as its parent sees it."""

    def __init__(self, work: FollowerJob) -> None:
        reads, writes = os.pipe()
        self.child = Child(
            [sys.executable, "-P", "-m", "runners.train.follower", str(writes)],
            {**os.environ, "PYTHONPATH": python_path()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writes,),
        )
        os.close(writes)
        self.end: Problem | None = None
        self._part, self._reports = work, os.fdopen(reads, "rb")
        self._listening: threading.Thread | None = None
        assert self.child.stdin is not None
        # A process that has ended already is noticed by its silence.
        with suppress(BrokenPipeError):
            pickle.dump(work, self.child.stdin)
            self.child.stdin.flush()

    def begin(self) -> None:
        """Wait until the process has loaded its packages, and listen to it from then on."""
        self._hear()
        self._listening = threading.Thread(target=self._hear, daemon=True)
        self._listening.start()

    def stop(self, patience: float) -> None:
        """End the process, by force after `patience` seconds, and reap it."""
        self.child.end(patience)
        if self._listening is not None:
            self._listening.join()
        self._reports.close()

    def _hear(self) -> None:
        """Wait for the process's next report; an end without a report is an early end."""
        size = self._reports.read(8)
        report = self._reports.read(int.from_bytes(size, "big")) if len(size) == 8 else b""
        if report:
            self.end = pickle.loads(report)
        elif self.end is None:
            self.end = explain_end(self._part.rank, self._part.world, _status(self.child.wait()))


def _status(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
