"""Read GGUF files with the package `gguf`: settings and tensors. Every length is checked against the file first."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGUFValueType
from gguf.gguf_reader import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

from reodsl.diagnostics import Problem, first_line, problem

_MOST_PIECES = 4_000_000
"""Lengths, numbers and texts of a header: a vocabulary of 256K tokens with its merges has about two million."""


class Gguf:
    """An open GGUF file: `metadata` by key, `tensors` by name."""

    def __init__(self, path: Path) -> None:
        """Read everything but the tensors' numbers. Raises E0851 for another kind of file or of tensors."""
        self.path = path
        try:
            with np.errstate(over="raise"):
                reader = _Reader(path)
            self.metadata = {name: field.contents() for name, field in reader.fields.items()}
        # The reader raises whatever the bytes lead it into, and the bytes may be anyone's.
        except Exception as fault:
            raise self._broken(first_line(fault)) from fault
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, rows first. Raises E0851 if the file does not have it."""
        if name not in self.tensors:
            raise self._broken(f"it has no tensor `{name}`")
        # The file names the fastest dimension first.
        return tuple(reversed(self.tensors[name].shape.tolist()))

    def read(self, name: str) -> NDArray[np.float32]:
        """Return a tensor's numbers, shape as `shape`. Raises E0851 if the file does not have it or stores it otherwise."""
        shape, tensor = self.shape(name), self.tensors[name]
        try:
            return np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32).reshape(shape)
        except NotImplementedError as fault:
            kind = tensor.tensor_type.name
            raise self._broken(f"the tensor `{name}` is stored as {kind}, which is not read") from fault

    def _broken(self, why: str) -> Problem:
        return problem(
            "E0851",
            f"the GGUF file cannot be read: {why}",
            where=str(self.path),
            help="copy or install it again; weights as safetensors are read from a `folder(…)`",
        )


class _Reader(GGUFReader):
    """The package's reader within bounds: by itself it goes on past the end of a file as long as a forged length says."""

    def __init__(self, path: Path) -> None:
        self._pieces = 0
        self._in_list = False
        super().__init__(path)
        if self.byte_order != "I":
            raise ValueError("its numbers have their bytes in the other order")
        for tensor in self.tensors:
            # The product of the sizes overflows without an error.
            if prod(tensor.shape.tolist()) != tensor.n_elements or tensor.n_elements < 1:
                raise ValueError(f"the tensor `{tensor.name:.80}` has a size that no tensor has")

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        """Return a setting's parts. Raises ValueError for a list of lists, whose parts are copied at each depth."""
        outside, self._in_list = self._in_list, int(raw_type) == GGUFValueType.ARRAY
        if outside and self._in_list:
            raise ValueError("a setting is a list of lists")
        parts = super()._get_field_parts(orig_offs, raw_type)
        self._in_list = outside
        return parts

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> NDArray[Any]:
        """Return `count` numbers at a place of the file. Raises ValueError if the file ends before."""
        self._pieces += 1
        if self._pieces > _MOST_PIECES:
            raise ValueError(f"its header has more than {_MOST_PIECES:,} parts")
        end = int(offset) + np.dtype(dtype).itemsize * int(count)
        if end > len(self.data):
            raise ValueError(f"it claims a byte {end:,} and has {len(self.data):,}")
        return super()._get(offset, dtype, count, override_order)
