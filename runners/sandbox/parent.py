"""What a confined process hears of the one that started it."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

_POLL_SECONDS = 10.0


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
