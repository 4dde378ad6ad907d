"""Let a confined process hear of the one that started it, and answer it."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable, Iterator, Mapping

from runners.sandbox.confine import write_all
from runners.sandbox.kernel import KernelRefusal, lacking

_POLL_SECONDS = 10.0
LONGEST_WORDS = 500
Tell = Callable[[Mapping[str, object]], None]


def serve(prepare: Callable[[Tell], Callable[[], None]]) -> None:
    """Tell the parent whether `prepare` could load and confine what is needed, then run what it returns.

    stdout goes to stderr from here on, so that whatever prints is out of the way of what is told.
    """
    out = os.dup(1)
    os.dup2(2, 1)

    def tell(message: Mapping[str, object]) -> None:
        write_all(out, json.dumps(message).encode("ascii") + b"\n")

    try:
        answer = prepare(tell)
    except KernelRefusal as refused:
        tell({"ready": False, "lacking": refused.strerror})
    except Exception as failure:
        tell({"ready": False, "why": f"{type(failure).__name__}: {failure}"[:LONGEST_WORDS].rstrip(": ")})
    else:
        tell({"ready": True})
        answer()


def confinable(must: bool = True) -> bool:
    """Return whether this process can be confined. Raises Refused where it cannot be and `must`."""
    missing = lacking()
    if missing is not None and must:
        raise KernelRefusal(0, missing)
    return missing is None


def lines(parent: int) -> Iterator[bytes]:
    """Lines from stdin until it ends, or until the process `parent` is no longer this one's parent."""
    buffer = bytearray()
    while True:
        while (end := buffer.find(b"\n")) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            yield line
        if not select.select([0], [], [], _POLL_SECONDS)[0]:
            if os.getppid() != parent:
                return
            continue
        part = os.read(0, 2**16)
        if not part:
            return
        buffer += part
