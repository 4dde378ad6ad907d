"""Read a model folder's safetensors: shapes or a state dict. Pickles are refused unread."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open

from reodsl.diagnostics import Problem, misread, problem
from reodsl.store.files import read_plain
from runners.models.bounds import INCOMPLETE, RELOAD_REMEDY, explain_unread

T = TypeVar("T")
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_MAX_INDEX_BYTES = 1 << 26


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model folder.

    Raises E0803 if there are none, only pickles or other formats, or a broken index.
    """
    if not folder.is_dir():
        raise problem("E0803", "there is no model folder here", where=str(folder), help=INCOMPLETE)
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    if (folder / _INDEX).is_file():
        return _list_indexed(folder)
    other = explain_unread(folder)
    if other is not None:
        raise Problem(other)
    message = f"the model folder has no weights: `{_SINGLE}` is missing"
    raise problem("E0803", message, where=str(folder), help=INCOMPLETE)


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return each tensor's shape by its transformers name, from the files' headers. Raises E0803."""
    return _read_each(folder, lambda file, name: tuple(file.get_slice(name).get_shape()))


def read_state(folder: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of a folder, on CPU. Raises E0803.

    Returns:
        Tensors by their transformers names.
    """
    return _read_each(folder, lambda file, name: file.get_tensor(name))


def _read_each(folder: Path, read: Callable[[Any, str], T]) -> dict[str, T]:
    """Return what `read` returns for each tensor of a folder, by name. Raises E0803."""
    values: dict[str, T] = {}
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                values.update((name, read(file, name)) for name in file.keys())  # noqa: SIM118
        except (SafetensorError, OSError, ValueError) as fault:
            raise problem(
                "E0803",
                f"the weights cannot be read: {str(fault)[:200]}",
                where=str(path),
                help="the file was cut short or is not a safetensors file: copy or download it again",
            ) from fault
    return values


def _list_indexed(folder: Path) -> list[Path]:
    """Return the files that a folder's index names. Raises E0803 for a broken index."""
    try:
        names = set(json.loads(read_plain(folder / _INDEX, _MAX_INDEX_BYTES))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as fault:
        message = f"`{_INDEX}` cannot be read: {misread(fault)}"
        raise problem("E0803", message, where=str(folder), help=RELOAD_REMEDY) from fault
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            message = f"`{_INDEX}` names `{name}`, which is not a safetensors file of this folder"
            raise problem("E0803", message, where=str(folder), help=RELOAD_REMEDY)
        if not (folder / name).is_file():
            message = f"`{_INDEX}` names `{name}`, which is missing"
            raise problem("E0803", message, where=str(folder), help=INCOMPLETE)
    return [folder / name for name in sorted(names)]


class TensorFiles:
    """Open safetensors files, of which only the headers have been read.

    A name in several files is a single tensor, split by rows in the order of the files; a scalar is the same in each
    file. `facts` are those of the first file's header.
    """

    facts: dict[str, Any]

    def __init__(self, paths: Sequence[Path]) -> None:
        """Open the files. Raises SafetensorError, OSError or ValueError for a file that cannot be read."""
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
        """Return the shape of the full tensor."""
        shapes = [tuple(piece.get_shape()) for piece in self._parts[name]]
        return (sum(shape[0] for shape in shapes), *shapes[0][1:]) if shapes[0] else ()

    def rows(self, name: str, first: int, last: int) -> torch.Tensor:
        """Return rows of a tensor, which may be mapped from the file: copy to keep them.

        Args:
            name: The tensor's name.
            first: The first row.
            last: The row after the last.

        Returns:
            [last - first, ...], or the scalar.
        """
        parts = self._parts[name]
        if not parts[0].get_shape():
            return parts[0][...]
        pieces, start = [], 0
        for piece in parts:
            count = piece.get_shape()[0]
            if start < last and first < start + count:
                pieces.append(piece[max(first - start, 0) : min(last - start, count)])
            start += count
        if not pieces:
            return parts[0][:0]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
