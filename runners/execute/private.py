"""Start Ray for one run alone: on the loopback, with its own token, in a folder that only this user enters."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runners.scratch import Scratch

LOOPBACK = "127.0.0.1"


@contextmanager
def private_place() -> Iterator[Path]:
    """Let Ray that this process starts meanwhile listen on the loopback and want a token that only its children have.

    Gives a folder for Ray's sockets and logs. Ray must have been imported, and must have ended when this does. Raises
    AttributeError for a Ray that has no tokens.
    """
    scratch = Scratch()
    # Ray makes its own folder one that everybody may write to; what holds is the folder around it.
    place = scratch.folder / "ray"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_AUTH_TOKEN_PATH": None}
    try:
        with _environment(token), _one_machine():
            yield place
    finally:
        scratch.remove()


def is_private() -> bool:
    """Return whether Ray, as this process has started it, is on the loopback and wants a token."""
    import ray

    host = str(ray.get_runtime_context().gcs_address).rpartition(":")[0]
    raylet = _raylet()
    return host == LOOPBACK and bool(raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN)


@contextmanager
def folder_of_nobody() -> Iterator[None]:
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
