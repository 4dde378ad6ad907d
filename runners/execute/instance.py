"""Start Ray on this machine or join a cluster, and list its nodes."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, Problem, first_line, problem
from runners.execute.perform import ENVIRONMENT
from runners.execute.placement import RayNode
from runners.machine.placement import nccl_settings
from runners.machine.scratch import Scratch

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}
_OBJECT_STORE_BYTES = 80 * 1024 * 1024
# What Ray names a resource of nodes whose GPUs it knows, followed by their kind.
_KIND = "accelerator_type:"


def import_ray() -> Any:
    """Return Ray, which writes no messages. Raises E0962 if it is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as caught:
        raise problem(
            "E0962",
            f"Ray cannot be imported: {caught}",
            help="install it with `pip install 'reodsl[run]'`; `reodsl run SPEC --local` runs without it",
        ) from caught
    return ray


def start_ray(address: str | None) -> ExitStack:
    """Start Ray on this machine, quietly, small and for this process alone, or join it at `address`.

    Closing what it returns leaves Ray again, unless this process had joined before. Raises E0962.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ExitStack()
    if address:
        answers(address)
    _hush()
    before = signal.getsignal(signal.SIGTERM)
    with ExitStack() as stack:
        try:
            runtime_env = {"env_vars": ENVIRONMENT | nccl_settings(os.environ)}
            options = {"address": address, "runtime_env": runtime_env} if address else _starting(stack)
            stack.callback(ray.shutdown)
            with root_folder():
                ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
            if not address and not is_private():
                raise RuntimeError(f"Ray {ray.__version__} does not keep to {LOOPBACK} and a token")
        except Exception as caught:
            raise _no_ray(first_line(caught), address, heard=True) from caught
        finally:
            # Ray takes the signal for itself; what stops a run cleanly is ours. Off the main thread neither can.
            if before is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)
        return stack.pop_all()


def _hush() -> None:
    """Keep Ray from printing that a node died on standard output, where a command's answer is: the run says so."""
    from ray._private import worker

    worker.print_to_stdstream = lambda data, ignore_prefix: None


def _starting(stack: ExitStack) -> dict[str, Any]:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    return {
        "address": "local",
        "include_dashboard": False,
        "num_cpus": len(os.sched_getaffinity(0)),
        "object_store_memory": _OBJECT_STORE_BYTES,
        "_temp_dir": str(stack.enter_context(private_ray_folder())),
    }


def answers(address: str) -> None:
    """Check that something listens at HOST:PORT, since Ray would wait for minutes; raise E0962 otherwise."""
    target = address
    if address == "auto":
        import_ray()
        from ray._private.services import canonicalize_bootstrap_address

        # At RAY_ADDRESS, or of any cluster on this node, which may be another run's own.
        try:
            target = str(canonicalize_bootstrap_address("auto"))
        except (ConnectionError, ValueError) as caught:
            raise _no_ray(first_line(caught), address) from caught
    host, colon, port = target.removeprefix("ray://").rpartition(":")
    if not colon:
        raise problem(
            "E0962",
            f"`{address}` is not an address of a Ray cluster",
            help="write HOST:PORT, as in `--address 10.0.0.7:6379`, or `--address auto` for the cluster of this node",
        )
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError, OverflowError) as caught:
        raise _no_ray(str(caught), address) from caught


def report_unanswered(address: str) -> tuple[Diagnostic, ...]:
    """Return the errors that `answers` raises."""
    try:
        answers(address)
    except Problem as caught:
        return caught.diagnostics
    return ()


def _no_ray(words: str, address: str | None, heard: bool = False) -> Problem:
    """Return E0962; `heard` means that something listens at the address, which Ray still cannot join."""
    if address is None:
        alone = "`reodsl run SPEC --local` runs the tasks in one process, one after another, without Ray"
        return problem("E0962", f"Ray does not start: {words}", help=alone)
    if not heard:
        start = "start one there with `ray start --head`, or leave out `--address`, which takes this machine"
        return problem("E0962", f"no Ray cluster answers at {address}: {words}", help=start)
    if os.environ.get("RAY_AUTH_MODE") == "token":
        hint = "see that RAY_AUTH_TOKEN (or the file RAY_AUTH_TOKEN_PATH) holds the cluster's own token"
    else:
        hint = "a cluster that wants a token is joined with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN set"
    return problem(
        "E0962",
        f"what listens at {address} does not let this process join as a Ray cluster does: {words}",
        help=f"{hint}; else it is another program, or Ray of another version",
    )


def ended_processes() -> str:
    """Return the names of Ray processes that this process started and that have ended; empty if all run."""
    from ray._private import worker

    node: Any = worker._global_node
    names = {"gcs_server", "raylet"}
    return (
        " and ".join(name for name, _ in node.dead_processes() if name in names) if node is not None else ""
    )


def nodes() -> tuple[RayNode, ...]:
    """Return all live nodes of the joined Ray cluster, with their total cores and GPUs."""
    return tuple(
        RayNode(
            str(node.get("NodeManagerHostname") or node["NodeID"]),
            node["Resources"].get("CPU", 0.0),
            node["Resources"].get("GPU", 0.0),
            next((name.removeprefix(_KIND) for name in node["Resources"] if name.startswith(_KIND)), ""),
        )
        for node in import_ray().nodes()
        if node["Alive"]
    )


def nodes_at(address: str) -> tuple[RayNode, ...]:
    """Return the nodes of the Ray cluster at an address, which is left again. Raises E0962."""
    with start_ray(address):
        return nodes()


LOOPBACK = "127.0.0.1"


@contextmanager
def private_ray_folder() -> Iterator[Path]:
    """Let Ray that this process starts meanwhile listen on the loopback and want a token that only its children have.

    Gives a folder for Ray's sockets and logs. Ray must have been imported, and must have ended when this does. Raises
    AttributeError for a Ray that has no tokens.
    """
    scratch = Scratch()
    # Ray makes its own folder one that everybody may write to; what holds is the folder around it.
    ray_folder = scratch.folder / "ray"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_AUTH_TOKEN_PATH": None}
    try:
        with _environment(token), _one_machine():
            yield ray_folder
    finally:
        scratch.remove()


def is_private() -> bool:
    """Return whether Ray, as this process has started it, is on the loopback and wants a token."""
    import ray

    host = str(ray.get_runtime_context().gcs_address).rpartition(":")[0]
    raylet = _raylet()
    return host == LOOPBACK and bool(raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN)


@contextmanager
def root_folder() -> Iterator[None]:
    """Enter the root folder meanwhile: Ray's workers import from the folder in which Ray was started or joined."""
    before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set these variables, which Ray reads again now and afterwards."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    raylet = _raylet()
    # In this order: a thread of Ray's that still ends would look for a token with the old setting.
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def _raylet() -> Any:
    """Return the part of Ray that is C++, which has no types."""
    from ray import _raylet

    return _raylet


@contextmanager
def _one_machine() -> Iterator[None]:
    """Make Ray take the loopback for its address, as on a system that makes no clusters."""
    from ray._private import ray_constants

    constants: Any = ray_constants
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
