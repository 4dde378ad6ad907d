"""Give the memory of servers back while a trainer uses their devices, and take it again.

A server that was started with a memory saver unmaps its keys, values and weights, and maps other memory at the same
addresses later; one without it, as on a CPU, keeps its memory and only forgets what it had cached. What is mapped again
has no content: weights are taken first, then sent, and caches last, when nothing else needs the room any more.
"""

from __future__ import annotations

from runners.engine.sglang.control import Lines
from runners.engine.sglang.server import Address

_IDLE = 60.0
"""Seconds until a server has put away what it has answered."""


def release(address: Address) -> None:
    """Lets a server finish, take nothing new, and give back its weights, keys and values. Raises `Refused`, `Lost`.

    A server that is told to give memory back while its scheduler still holds an answered request ends; it says of a
    flush when that is over.
    """
    with Lines([address]) as lines:
        lines.ask("/pause_generation", {"mode": "abort"})
        lines.ask(f"/flush_cache?timeout={_IDLE:g}", {})
        lines.ask("/release_memory_occupation", {"tags": ["kv_cache", "weights"]})


def take_weights(address: Address) -> None:
    """Room for weights, which have to be sent next. Raises `Refused`, `Lost`."""
    with Lines([address]) as lines:
        lines.ask("/resume_memory_occupation", {"tags": ["weights"]})


def take_caches(address: Address) -> None:
    """Room for keys and values, and requests are answered again. Raises `Refused`, `Lost`."""
    with Lines([address]) as lines:
        lines.ask("/resume_memory_occupation", {"tags": ["kv_cache"]})
        lines.ask("/continue_generation", {})
