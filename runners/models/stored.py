"""Read tensors in safetensors files by name, shape and rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open


class Stored:
    """Open files whose headers alone have been read.

    A name that is in several of them is one tensor, cut by rows in the order of the files; a number is in each the same.
    `facts` are those that the first file's header has.
    """

    facts: dict[str, Any]

    def __init__(self, paths: Sequence[Path]) -> None:
        """Open the files. Raises SafetensorError, OSError or ValueError for one that cannot be read."""
        self._parts: dict[str, list[Any]] = {}
        for number, path in enumerate(paths):
            file = safe_open(path, framework="pt")
            for name in file.keys():  # noqa: SIM118
                self._parts.setdefault(name, []).append(file.get_slice(name))
            if number == 0:
                self.facts = json.loads((file.metadata() or {}).get("facts", "{}"))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all tensors, in the order of the files."""
        return tuple(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the whole tensor."""
        shapes = [tuple(part.get_shape()) for part in self._parts[name]]
        return (sum(shape[0] for shape in shapes), *shapes[0][1:]) if shapes[0] else ()

    def rows(self, name: str, first: int, last: int) -> torch.Tensor:
        """Return rows `first` up to `last` of a tensor; a number whole. They may lie in the file: copy to keep them."""
        parts = self._parts[name]
        if not parts[0].get_shape():
            return parts[0][...]
        pieces, start = [], 0
        for part in parts:
            count = part.get_shape()[0]
            if start < last and first < start + count:
                pieces.append(part[max(first - start, 0) : min(last - start, count)])
            start += count
        if not pieces:
            return parts[0][:0]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
