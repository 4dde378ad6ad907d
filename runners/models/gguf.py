"""Read GGUF files: metadata and tensors. Every length is checked against the file first.

The layout is that of the GGUF specification, version 2 and 3, little-endian: a header, key-value pairs, one record a tensor,
then the tensors' data from a multiple of the alignment on. Offsets and shapes of the file are not trusted.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reodsl.diagnostics import Problem, problem
from runners.models.blocks import BLOCKS, Block

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32
_MOST_TENSORS, _MOST_PAIRS, _MOST_DIMENSIONS = 100_000, 10_000, 4


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor of a file: its shape with rows first, how it is stored, and where its bytes begin."""

    shape: tuple[int, ...]
    block: Block
    start: int
    size: int


class Gguf:
    """An open GGUF file: `metadata` by key, `tensors` by name; `read` gives a tensor's numbers."""

    def __init__(self, path: Path) -> None:
        """Read everything but the tensors' data. Raises E0851 for another kind of file or of tensors."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as fault:
            raise self._broken(f"it cannot be opened: {fault}") from fault
        self._at = 0
        try:
            self.metadata, self.tensors = self._header()
        except (struct.error, UnicodeDecodeError, IndexError, OverflowError) as fault:
            raise self._broken("it ends too early or holds no text where text belongs") from fault

    def read(self, name: str) -> NDArray[np.float32]:
        """A tensor's numbers in float32, shape as stored with rows first. Raises E0851 where there is none."""
        stored = self.tensors.get(name)
        if stored is None:
            raise self._broken(f"it has no tensor `{name}`")
        raw = np.frombuffer(self._bytes, dtype=np.uint8, count=stored.size, offset=stored.start)
        return stored.block.decode(raw).reshape(stored.shape)

    def _header(self) -> tuple[Mapping[str, Any], Mapping[str, Stored]]:
        if self._bytes[:4] != b"GGUF":
            raise self._broken("it does not begin with the mark of a GGUF file")
        self._at = 4
        version = self._scalar("<I")
        if version not in (2, 3):
            raise self._broken(f"it is of version {version}, and 2 and 3 are read")
        count, pairs = self._scalar("<Q"), self._scalar("<Q")
        if count > _MOST_TENSORS or pairs > _MOST_PAIRS:
            raise self._broken(f"it claims {count} tensors and {pairs} settings")
        metadata = {}
        for _ in range(pairs):
            key = self._text()
            metadata[key] = self._value(self._scalar("<I"))
        records = [self._record() for _ in range(count)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
            raise self._broken(f"its alignment is {alignment!r:.40}")
        begin = -(-self._at // alignment) * alignment
        return metadata, {
            name: self._placed(name, shape, kind, begin + offset) for name, shape, kind, offset in records
        }

    def _record(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._text()
        dimensions = self._scalar("<I")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise self._broken(f"the tensor `{name:.80}` has {dimensions} dimensions")
        sizes = tuple(self._scalar("<Q") for _ in range(dimensions))
        # The file names the fastest dimension first.
        return name, sizes[::-1], self._scalar("<I"), self._scalar("<Q")

    def _placed(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> Stored:
        block = BLOCKS.get(kind)
        if block is None:
            known = ", ".join(each.name for each in BLOCKS.values())
            raise self._broken(f"the tensor `{name:.80}` is stored as type {kind}, and {known} are read")
        numbers = 1
        for size in shape:
            numbers *= size
        if shape[-1] % block.numbers:
            raise self._broken(f"the rows of `{name:.80}` are no whole blocks of {block.name}")
        size = numbers // block.numbers * block.bytes
        if numbers < 1 or start + size > len(self._bytes):
            raise self._broken(f"the tensor `{name:.80}` does not lie inside the file")
        return Stored(shape, block, start, size)

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            inner, count = self._scalar("<I"), self._scalar("<Q")
            if count > len(self._bytes) - self._at:
                raise self._broken(f"a list claims {count} values")
            if inner in _SCALARS:
                shape = f"<{count}{_SCALARS[inner][1]}"
                values = struct.unpack_from(shape, self._bytes, self._at)
                self._at += struct.calcsize(shape)
                return values
            if inner == _STRING:
                return tuple(self._text() for _ in range(count))
        elif kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        raise self._broken(f"a setting is of type {kind}")

    def _scalar(self, shape: str) -> Any:
        (value,) = struct.unpack_from(shape, self._bytes, self._at)
        self._at += struct.calcsize(shape)
        return value

    def _text(self) -> str:
        size = self._scalar("<Q")
        if size > len(self._bytes) - self._at:
            raise self._broken(f"a text claims {size} bytes")
        text = self._bytes[self._at : self._at + size]
        self._at += size
        return text.decode("utf-8")

    def _broken(self, why: str) -> Problem:
        return problem(
            "E0851",
            f"the GGUF file cannot be read: {why}",
            where=str(self.path),
            help="copy or install it again; weights as safetensors are read from a `folder(…)`",
        )
