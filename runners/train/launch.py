"""Start, watch and end the followers: the processes of rank 1 and higher that train a stage together with this process.

On Ray the followers are actors, which may run on other machines; else they are child processes.
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
"""Seconds that followers get to end by themselves after this process; to report a failure; and between two polls."""


def train_together(job: Job, body: str) -> None:
    """Call a training function in `job.resources.trainers` processes; this process is rank 0.

    The other ranks are followers: Ray actors if this process runs on Ray, else child processes. If this process fails
    with an exception that is not a Problem, and a follower has failed, the follower's failure is raised.

    Args:
        job: The job of the stage.
        body: The name of the training function as `module:function`; it takes a job and the ranks.

    Raises:
        Exception: The function's own exception in this process; or the Problem of another process if it failed first.
        ProcessDied: Another process ended without a Problem.
    """
    world = job.resources.trainers
    # The folder is on a disk that all machines of a cluster share, and only this user may enter it.
    job.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="meeting-", dir=job.work, ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "file"
        jobs = [
            FollowerJob(
                replace(job, progress=ignore_progress), body, rank, world, file, 0 if on_ray() else rank
            )
            for rank in range(world)
        ]
        peers = Actors(jobs) if on_ray() else Processes(jobs)
        shared = shared_devices(job.resources, peers.devices)
        job = replace(job, resources=replace(job.resources, devices=shared))
        patience = 0.0
        try:
            joining = join_ranks(0, world, peers.store, jobs[0].device, peers.host, job.resources.parts)
            with watch_others(peers), joining as ranks:
                function(body)(job, ranks)
            patience = _END_SECONDS
        except Exception as caught:
            # A failure here may be the mere consequence of a follower's failure.
            is_own_failure = isinstance(caught, Problem) and not isinstance(caught, ProcessDied)
            peer_failure = None if is_own_failure else _await_end(peers)
            if peer_failure is None:
                raise
            raise peer_failure from caught
        finally:
            peers.stop(patience)


@contextmanager
def watch_others(peers: Actors | Processes) -> Iterator[None]:
    """Interrupt this process inside a `with` block if a follower fails.

    Waits for the engine then raise ProcessDied. Collectives on GPUs (nccl) are aborted after a few seconds. Collectives
    on CPUs (gloo) fail by themselves.

    Args:
        peers: The followers.
    """
    finished, peer_ended = threading.Event(), threading.Event()

    def raise_if_peer_ended() -> None:
        """Raise ProcessDied if a follower has failed."""
        if peer_ended.is_set():
            raise explain_death("a process that trains together with this process", "it exited")

    def watch() -> None:
        """Poll the followers until the block ends or a follower has failed, and then interrupt this process."""
        while not finished.wait(_POLL_SECONDS):
            if peers.ended():
                peer_ended.set()
                # Leave time for the followers' reports; gloo ends a broken collective by itself, nccl does not.
                is_over = finished.wait(_WORD_SECONDS)
                if not is_over and dist.is_initialized() and "nccl" in dist.get_backend_config():
                    dist.distributed_c10d._abort_process_group()
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        with cancellable(raise_if_peer_ended):
            yield
    finally:
        finished.set()
        thread.join()


def _await_end(peers: Actors | Processes) -> Problem | None:
    """Wait a few seconds for failures of followers, and return the failure that best explains the end of the training.

    Returns:
        The first Problem that is not a ProcessDied; else the first ProcessDied, because the death of a process is often
        the consequence of another failure. None if no follower has failed.
    """
    deadline = time.monotonic() + _WORD_SECONDS
    while time.monotonic() < deadline and not peers.ended():
        time.sleep(0.05)
    time.sleep(0.5)
    found = peers.ended()
    return next((end for end in found if not isinstance(end, ProcessDied)), found[0] if found else None)


def cluster_address() -> str:
    """Return the address by which other nodes of Ray's cluster reach this node."""
    import ray

    return str(ray.util.get_node_ip_address())


class Actors:
    """The followers as Ray actors, each with the cores and the GPU of one rank.

    `devices` has the devices that Ray gave each rank, including this process. `store` is torch's key-value store in a
    shared file, by which all ranks find each other. `host` is the address at which followers reach this process; None if
    all ranks are on one machine.
    """

    def __init__(self, jobs: list[FollowerJob]) -> None:
        """Start the followers, i.e. all ranks except rank 0, in their bundles of the task's placement group.

        Without a placement group, Ray starts them on any free node. The call returns when all followers have loaded
        their packages and have been called to train.

        Args:
            jobs: The jobs of all ranks, in the order of ranks.

        Raises:
            ProcessDied: E0938, if a follower ends before it could begin.
        """
        import ray

        self._ray = ray
        actor_class = ray.remote(max_restarts=0, max_task_retries=0)(_Actor)
        self._actors: dict[int, Any] = {}
        first, *peers = jobs
        self._world = first.world
        for peer in peers:
            resources = peer.job.resources
            gpus, cores = (1, 1) if resources.reserves_gpus else (0, resources.threads)
            strategy = bundle_strategy(trainer_bundle(resources, peer.rank))
            options = actor_class.options(num_cpus=cores, num_gpus=gpus, scheduling_strategy=strategy)
            self._actors[peer.rank] = options.remote()
        self._parts: dict[int, Any] = {}
        ready = [self._ready(peer) for peer in peers]
        self.devices: dict[int, list[Any]] = {0: ray.get_gpu_ids()}
        self.devices |= {rank: devices for rank, (devices, _) in zip(self._actors, ready, strict=True)}
        self.store: Store = SharedFile(first.meeting, first.world, COMPUTE_TIMEOUT)
        multinode = not {machine for _, machine in ready} <= {this_machine()}
        self.host: str | None = cluster_address() if multinode else None
        self._parts |= {peer.rank: self._actors[peer.rank].follow.remote(peer, multinode) for peer in peers}

    def _ready(self, peer: FollowerJob) -> tuple[list[object], str]:
        """Wait until a rank has loaded its packages, and return its device numbers and its machine.

        If the rank died before, end all followers and raise its failure.
        """
        try:
            reply: tuple[list[object], str] = self._ray.get(self._actors[peer.rank].ready.remote())
        except self._ray.exceptions.RayError as caught:
            self.stop(0.0)
            raise explain_end(peer.rank, peer.world, first_line(caught)) from caught
        return reply

    def ended(self) -> list[Problem]:
        """Return the failures of the ranks that have failed so far."""
        refs = list(self._parts.values())
        finished = self._ray.wait(refs, num_returns=len(refs), timeout=0)[0] if refs else ()
        failures: list[Problem | None] = []
        for rank, ref in self._parts.items():
            if ref in finished:
                try:
                    failures.append(self._ray.get(ref))
                except self._ray.exceptions.RayError as caught:
                    failures.append(explain_end(rank, self._world, first_line(caught)))
        return [end for end in failures if end is not None]

    def stop(self, patience: float) -> None:
        """Wait up to `patience` seconds for the followers to finish, then kill them."""
        refs = list(self._parts.values())
        if refs and patience:
            self._ray.wait(refs, num_returns=len(refs), timeout=patience)
        for actor in self._actors.values():
            self._ray.kill(actor)


class _Actor:
    """A follower in a Ray actor."""

    def ready(self) -> tuple[list[object], str]:
        """Return this rank's device numbers on its node, and the name of its machine.

        An actor replies only when its packages are loaded, so a reply also means that the rank can begin.
        """
        import ray

        return list(ray.get_gpu_ids()), this_machine()

    def follow(self, work: FollowerJob, multinode: bool) -> Problem | None:
        """Run the job to its end, and return the diagnostic of a failure, or None.

        Args:
            work: The job, and the rank of this process.
            multinode: Whether the ranks are on several machines, so that this machine's address is needed.
        """
        return follow(work, cluster_address() if multinode else None)


class Processes:
    """The followers as processes of this machine, with the same attributes as `Actors`."""

    def __init__(self, jobs: list[FollowerJob]) -> None:
        """Start the followers, i.e. all ranks except rank 0, and wait until each has loaded its packages.

        Args:
            jobs: The jobs of all ranks, in the order of ranks.

        Raises:
            ProcessDied: A follower ended while it loaded its packages.
        """
        self.devices: dict[int, list[object]] = {}
        self.store: Store = SharedFile(jobs[0].meeting, jobs[0].world, COMPUTE_TIMEOUT)
        self.host: str | None = None
        self._running = [_Process(work) for work in jobs[1:]]
        for process in self._running:
            process.begin()
            if process.end is not None:
                self.stop(0.0)
                raise process.end

    def ended(self) -> list[Problem]:
        """Return the failures of the ranks that have failed so far."""
        return [process.end for process in self._running if process.end is not None]

    def stop(self, patience: float) -> None:
        """Wait up to `patience` seconds in total for the followers to finish, then kill them."""
        deadline = time.monotonic() + patience
        for process in self._running:
            process.stop(max(0.0, deadline - time.monotonic()))


class _Process:
    """The process of a follower, as its parent sees it."""

    def __init__(self, work: FollowerJob) -> None:
        """Start the process, and send it its job.

        `end` becomes the diagnostic of a failure; it is None while the process runs, and if it finished its job.
        """
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
        self._job, self._reports = work, os.fdopen(reads, "rb")
        self._listening: threading.Thread | None = None
        assert self.child.stdin is not None
        # If the process has ended already, `_read_report` notices that it sends no report.
        with suppress(BrokenPipeError):
            pickle.dump(work, self.child.stdin)
            self.child.stdin.flush()

    def begin(self) -> None:
        """Wait until the process has loaded its packages, then read its final report in a thread."""
        self._read_report()
        self._listening = threading.Thread(target=self._read_report, daemon=True)
        self._listening.start()

    def stop(self, patience: float) -> None:
        """Wait up to `patience` seconds for the process to end, then kill it, and wait for its last report."""
        self.child.end(patience)
        if self._listening is not None:
            self._listening.join()
        self._reports.close()

    def _read_report(self) -> None:
        """Wait for the next report of the process, and store it in `end`: a Problem, or None for success.

        If the process exits without a report, `end` becomes a ProcessDied; a failure that is stored already stays.
        """
        size = self._reports.read(8)
        report = self._reports.read(int.from_bytes(size, "big")) if len(size) == 8 else b""
        if report:
            self.end = pickle.loads(report)
        elif self.end is None:
            self.end = explain_end(self._job.rank, self._job.world, _describe_exit(self.child.wait()))


def _describe_exit(code: int) -> str:
    """Return an exit status in words; a negative code is the number of the signal that killed the process."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
