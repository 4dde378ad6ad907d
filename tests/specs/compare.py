"""Where two values of the IR differ, as JSON: a path and both values for each place."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any


def differences(
    one: Any, two: Any, left_out: Collection[str], path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Every place that differs, but those below a field in `left_out`."""
    if path.rsplit(".", 1)[-1] in left_out:
        return
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted({*one, *two}):
            yield from differences(one.get(key), two.get(key), left_out, f"{path}.{key}")
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for item, other in zip(one, two, strict=True):
            yield from differences(item, other, left_out, path)
    elif one != two:
        yield path, one, two
