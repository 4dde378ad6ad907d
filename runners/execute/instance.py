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
# Prefix of a resource of Ray's nodes, before the kind of their GPUs.
_KIND = "accelerator_type:"


def import_ray() -> Any:
    """Return the module Ray, set up to write no messages.

    Raises:
        Problem: E0962 if Ray is not installed.
    """
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
    """Start a private Ray instance on this machine, or join a cluster.

    Args:
        address: Address of a Ray cluster, or None to start an instance.

    Returns:
        A context that leaves the cluster or ends the instance when it is closed. If this process has joined Ray already,
        Ray stays as it is, and closing the context does nothing.

    Raises:
        Problem: E0962 if Ray does not start, or the cluster cannot be joined.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ExitStack()
    if address:
        answers(address)
    _silence_ray()
    handler = signal.getsignal(signal.SIGTERM)
    with ExitStack() as stack:
        try:
            runtime_env = {"env_vars": ENVIRONMENT | nccl_settings(os.environ)}
            options = {"address": address, "runtime_env": runtime_env} if address else _local_options(stack)
            stack.callback(ray.shutdown)
            with root_folder():
                ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
            if not address and not is_private():
                raise RuntimeError(f"Ray {ray.__version__} is not private to {LOOPBACK} and a token")
        except Exception as caught:
            raise _refuse_ray(first_line(caught), address, is_listening=True) from caught
        finally:
            # Ray replaces the handler of SIGTERM, which stops a run cleanly. Only the main thread can set handlers.
            if handler is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)
        return stack.pop_all()


def _silence_ray() -> None:
    """Keep Ray from printing messages on lost nodes to stdout, which is reserved for the output of the command.

    The run itself reports lost nodes.
    """
    from ray._private import worker

    worker.print_to_stdstream = lambda data, ignore_prefix: None


def _local_options(stack: ExitStack) -> dict[str, Any]:
    """Return the arguments of `ray.init` for a private instance on this machine.

    Args:
        stack: Context that removes the instance's folder and environment variables when it is closed.
    """
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
    """Check that a program listens at the address of a Ray cluster.

    Without this check, joining a cluster that does not exist would fail only after minutes.

    Args:
        address: `HOST:PORT`, or `auto` for the cluster of this node.

    Raises:
        Problem: E0962 for a wrong address, or if no program listens there.
    """
    target = address
    if address == "auto":
        import_ray()
        from ray._private.services import canonicalize_bootstrap_address

        # The cluster at RAY_ADDRESS, or any cluster on this node, which may belong to another run.
        try:
            target = str(canonicalize_bootstrap_address("auto"))
        except (ConnectionError, ValueError) as caught:
            raise _refuse_ray(first_line(caught), address) from caught
    host, separator, port = target.removeprefix("ray://").rpartition(":")
    if not separator:
        raise problem(
            "E0962",
            f"`{address}` is not an address of a Ray cluster",
            help="write HOST:PORT, as in `--address 10.0.0.7:6379`, or `--address auto` for the cluster of this node",
        )
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError, OverflowError) as caught:
        raise _refuse_ray(str(caught), address) from caught


def report_unanswered(address: str) -> tuple[Diagnostic, ...]:
    """Return the diagnostics that `answers` raises for an address; empty if a program listens there."""
    try:
        answers(address)
    except Problem as caught:
        return caught.diagnostics
    return ()


def _refuse_ray(reason: str, address: str | None, is_listening: bool = False) -> Problem:
    """Return E0962 for a Ray instance or cluster that cannot be used.

    Args:
        reason: Message of the failure.
        address: Address of the cluster, or None if an instance did not start on this machine.
        is_listening: Whether a program listens at the address, so that only joining the cluster failed.
    """
    if address is None:
        advice = "`reodsl run SPEC --local` runs the tasks in one process, one after another, without Ray"
        return problem("E0962", f"Ray does not start: {reason}", help=advice)
    if not is_listening:
        start = "start a cluster there with `ray start --head`, or leave out `--address` to use this machine"
        return problem("E0962", f"no Ray cluster answers at {address}: {reason}", help=start)
    hint = (
        "check that RAY_AUTH_TOKEN (or the file RAY_AUTH_TOKEN_PATH) has the cluster's token"
        if os.environ.get("RAY_AUTH_MODE") == "token"
        else "if the cluster needs a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
    )
    return problem(
        "E0962",
        f"the program that listens at {address} does not let this process join a Ray cluster: {reason}",
        help=f"{hint}; otherwise it is another program, or Ray of another version",
    )


def ended_processes() -> str:
    """Return the names of Ray's processes that have ended, `gcs_server` or `raylet`, joined by `and`.

    Only processes that this process started count. The text is empty if they run, or if this process started none.
    """
    from ray._private import worker

    node: Any = worker._global_node
    names = {"gcs_server", "raylet"}
    return (
        " and ".join(name for name, _ in node.dead_processes() if name in names) if node is not None else ""
    )


def nodes() -> tuple[RayNode, ...]:
    """Return all live nodes of the Ray cluster that this process has joined, with their total cores and GPUs."""
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
    """Join the Ray cluster at an address, return its live nodes, and leave it.

    Raises:
        Problem: E0962 if the cluster cannot be joined.
    """
    with start_ray(address):
        return nodes()


LOOPBACK = "127.0.0.1"


@contextmanager
def private_ray_folder() -> Iterator[Path]:
    """Make Ray private that this process starts in the `with` block, and yield a folder for its sockets and logs.

    Ray listens on the loopback address, and needs a token that only this process and its children have. Ray must be
    imported before the block, and must end inside the block.

    Raises:
        AttributeError: this version of Ray has no tokens.
    """
    scratch = Scratch()
    # Everybody may write to the folder that Ray itself makes; only the folder around it is protected.
    ray_folder = scratch.folder / "ray"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_AUTH_TOKEN_PATH": None}
    try:
        with _environment(token), _on_loopback():
            yield ray_folder
    finally:
        scratch.remove()


def is_private() -> bool:
    """Return whether the Ray instance of this process listens on the loopback address, and needs a token."""
    import ray

    host = str(ray.get_runtime_context().gcs_address).rpartition(":")[0]
    raylet = _raylet()
    return host == LOOPBACK and bool(raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN)


@contextmanager
def root_folder() -> Iterator[None]:
    """Change to the root folder in a `with` block, since Ray's workers import from the folder where Ray was started."""
    former_folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(former_folder)
        os.close(former_folder)


@contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables in a `with` block, and restore their former values at its end.

    Ray reads its configuration again after both changes.

    Args:
        values: Values by name; None removes a variable.
    """
    former_values = {name: os.environ.get(name) for name in values}
    try:
        _set_environment(values)
        yield
    finally:
        _set_environment(former_values)


def _set_environment(values: Mapping[str, str | None]) -> None:
    """Set environment variables, and make Ray read its configuration again; a value of None removes the variable."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    raylet = _raylet()
    # The configuration comes first: a thread of Ray that still runs would otherwise look for a token by the old one.
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def _raylet() -> Any:
    """Return Ray's module of C++ functions, which has no types."""
    from ray import _raylet

    return _raylet


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Make Ray listen on the loopback address in the `with` block, by its constant for systems without clusters."""
    from ray._private import ray_constants

    constants: Any = ray_constants
    former_value = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = former_value
