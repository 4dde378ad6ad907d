"""Read the safetensors files of a model folder: their shapes, all tensors, or rows of tensors. Pickles are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open

from reodsl.diagnostics import misread, problem, refuse
from reodsl.store.files import read_plain
from runners.models.bounds import INCOMPLETE, RELOAD_REMEDY, explain_unread

T = TypeVar("T")
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_MAX_INDEX_BYTES = 1 << 26


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model folder.

    Raises:
        Problem: E0803, if the folder has none, only pickles or other formats, or a broken index.
    """
    if not folder.is_dir():
        raise problem("E0803", "there is no model folder here", where=str(folder), help=INCOMPLETE)
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    if (folder / _INDEX).is_file():
        return _list_indexed(folder)
    refuse(explain_unread(folder))
    message = f"the model folder has no weights: `{_SINGLE}` is missing"
    raise problem("E0803", message, where=str(folder), help=INCOMPLETE)


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor in a model folder by its name, from the headers of the files.

    Raises:
        Problem: E0803, if a file cannot be read.
    """
    return _read_each(folder, lambda file, name: tuple(file.get_slice(name).get_shape()))


def read_state(folder: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of a model folder by name, on the CPU.

    Raises:
        Problem: E0803, if a file cannot be read.
    """
    return _read_each(folder, lambda file, name: file.get_tensor(name))


def _read_each(folder: Path, read: Callable[[Any, str], T]) -> dict[str, T]:
    """Call a function for each tensor of a model folder, and return its results by name.

    Args:
        folder: The model folder.
        read: The function; it takes an open safetensors file and a tensor's name.

    Raises:
        Problem: E0803, if a file cannot be read.
    """
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
    """Return the files that a folder's index of several safetensors files names, sorted.

    Raises:
        Problem: E0803, if the index is broken or a file is missing.
    """
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
    """Opened safetensors files, of which only the headers have been read.

    A name that occurs in several files is one tensor, split by rows in the order of the files; a scalar is the same in
    each file. `facts` are the JSON facts of the first file's header, as `save_tensors` writes them.
    """

    facts: dict[str, Any]

    def __init__(self, paths: Sequence[Path]) -> None:
        """Open the files.

        Raises:
            Exception: SafetensorError, OSError or ValueError, if a file cannot be read.
        """
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
        """Return the shape of the full tensor of this name; () for a scalar."""
        shapes = [tuple(part.get_shape()) for part in self._parts[name]]
        return (sum(shape[0] for shape in shapes), *shapes[0][1:]) if shapes[0] else ()

    def rows(self, name: str, first: int, last: int) -> torch.Tensor:
        """Return rows of a tensor, read from the files that have them.

        The result may be memory-mapped from a file: copy rows that are kept or changed.

        Args:
            name: The tensor's name.
            first: The first row.
            last: The row after the last.

        Returns:
            [last - first, ...]; or the scalar, for a tensor without dimensions.
        """
        slices = self._parts[name]
        if not slices[0].get_shape():
            return slices[0][...]
        pieces, start = [], 0
        for part in slices:
            count = part.get_shape()[0]
            if start < last and first < start + count:
                pieces.append(part[max(first - start, 0) : min(last - start, count)])
            start += count
        if not pieces:
            return slices[0][:0]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
