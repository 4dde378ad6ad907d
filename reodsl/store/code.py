"""Read the user's Python that a spec names: its bytes and their checksum. Nothing here imports it.

`FILE.py:FUNCTION` is a plain file in the spec's folder or below it. `MODULE:FUNCTION` is what an installed package offers as
an entry point of the group `reodsl.python`; what counts is all Python of that package, and its version.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, Problem, problem
from reodsl.ir.data import Python
from reodsl.ir.expression import OWN_OPS
from reodsl.ir.names import OWN_CODE
from reodsl.store.plain import read_plain

GROUP = "reodsl.python"
LIBRARY = "verifiers"
"""The library whose environments can be named without an entry point, as `MODULE:verifiers`."""
_REQUIRED = re.compile(rf"{LIBRARY}(?![A-Za-z0-9._-])")
LARGEST_CODE = 1 << 20
"""Bytes of a Python file that a spec names."""
MOST_FILES, LARGEST_PACKAGE = 2000, 1 << 25
"""Python files of a package that a spec names, and their bytes together."""


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """The code of a function. `name` is its spelling in the spec, `module` the package's module or empty for a file.

    `checksum` is the SHA-256 of `source`, with the version of the package if it is of one. `beside` is that of the
    package's other Python files, and `others` their number.
    """

    name: str
    path: Path
    source: bytes
    module: str = ""
    version: str = ""
    beside: str = ""
    others: int = 0

    @property
    def file(self) -> str:
        """Return the file or the module as the spec spells it."""
        return self.name.rpartition(":")[0]

    @property
    def function(self) -> str:
        """Return the function's name."""
        return self.name.rpartition(":")[2]

    @property
    def root(self) -> Path | None:
        """Return the folder of the module's package; None for a file, and for a module that is no package."""
        depth = self.module.count(".") + (self.path.name == "__init__.py")
        return self.path.parents[depth - 1] if self.module and depth else None

    @property
    def checksum(self) -> str:
        """Return the SHA-256 of the content."""
        digest = hashlib.sha256(self.source)
        if self.module:
            # A module that is alone has the checksum that it always had.
            words = [self.module, self.version, *([self.beside] if self.beside else [])]
            digest.update(f"\0{' '.join(words)}".encode())
        return digest.hexdigest()


def is_code(part: Mapping[str, Any]) -> bool:
    """Return whether a part of a payload names a function: a setting's value, or a term of a reward."""
    called = part.get("kind") == "python" or part.get("op") in OWN_OPS
    return called and isinstance(part.get("function"), str)


def parts(payload: Any, setting: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every object in a payload, outer ones first, with the setting that holds it."""
    if isinstance(payload, Mapping):
        yield setting, payload
        for name, each in payload.items():
            # The parts of a verifier by chance are verifiers as well.
            yield from parts(each, setting if payload.get("kind") == "chance" else name)
    elif isinstance(payload, (list, tuple)):
        for each in payload:
            yield from parts(each, setting)


def read_all(
    payloads: Iterable[Any], folder: Path
) -> tuple[list[tuple[str, FunctionCode]], list[Diagnostic]]:
    """Read the code that payloads name, each once with the setting that names it; report code that cannot be read."""
    codes: list[tuple[str, FunctionCode]] = []
    wrong: list[Diagnostic] = []
    uses = (
        ("reward" if "op" in part else setting, part["function"])
        for payload in payloads
        for setting, part in parts(payload)
        if is_code(part)
    )
    for setting, name in dict.fromkeys(uses):
        try:
            codes.append((setting, read_code(name, folder)))
        except Problem as caught:
            wrong += caught.diagnostics
    return codes, wrong


def read_code(name: str, folder: Path) -> FunctionCode:
    """Read the code of a function; relative paths start at `folder`. Raises E0743."""
    place, _, _ = name.rpartition(":")
    if not OWN_CODE.holds(name):
        raise _unusable(name, "it is not FILE.py:FUNCTION", f"write {OWN_CODE.words}")
    if place.endswith(".py"):
        return _read_file_code(name, folder, place)
    return _read_package_code(name, place)


def _read_file_code(name: str, folder: Path, place: str) -> FunctionCode:
    path = folder / place
    if not path.resolve().is_relative_to(folder.resolve()):
        raise _unusable(
            str(path), "it leads out of the spec's folder", "put the file itself beside the spec, and no link"
        )
    try:
        return FunctionCode(name, path, read_plain(path, LARGEST_CODE))
    except FileNotFoundError:
        raise _unusable(
            str(path),
            "there is no such file",
            f"put `{place}` beside the spec, or write the path that it has from there",
        ) from None
    except OSError as failure:
        raise _unusable(
            str(path),
            f"it cannot be read: {failure.strerror}",
            "put a plain file there that you may read, of at most 1 MiB",
        ) from None


def _read_package_code(name: str, module: str) -> FunctionCode:
    offered = {each.value.replace(" ", ""): each for each in metadata.entry_points(group=GROUP)}
    entry = offered.get(name)
    environment = _environment(module) if entry is None and name.endswith(f":{LIBRARY}") else None
    if entry is None and environment is None:
        there = ", ".join(f"`{each}`" for each in sorted(offered))
        raise _unusable(
            name,
            f"no installed package offers it in the group `{GROUP}`",
            f"packages here offer {there}"
            if there
            else f"install the package that does, or write FILE.py:{name.rpartition(':')[2]}",
        )
    path = _module_file(module)
    try:
        source = read_plain(path, LARGEST_CODE) if path is not None else None
    except OSError:
        source = None
    if path is None or source is None:
        raise _unusable(
            name, f"the module `{module}` has no file that can be read", "install the package anew"
        )
    dist = environment if entry is None else entry.dist
    beside, others = _others(name, module.partition(".")[0], path)
    return FunctionCode(name, path, source, module, dist.version if dist is not None else "", beside, others)


def _others(name: str, package: str, path: Path) -> tuple[str, int]:
    """Return the checksum and the number of a package's Python files except the one at `path`; empty without any.

    An editable package keeps its version as it changes. Raises E0743 for more files, or larger ones, than are read.
    """
    spec = importlib.util.find_spec(package)
    folders = [Path(each) for each in (spec.submodule_search_locations if spec is not None else None) or ()]
    files = sorted(
        (file.relative_to(folder).as_posix(), file)
        for folder in folders
        for place, _, names in os.walk(folder)
        for file in (Path(place) / each for each in names if each.endswith(".py"))
        if file != path
    )
    if not files:
        return "", 0
    size, digest = 0, hashlib.sha256()
    for relative, file in files if len(files) <= MOST_FILES else ():
        try:
            content = read_plain(file, LARGEST_PACKAGE)
        except OSError as failure:
            raise _unusable(
                str(file), f"it cannot be read: {failure.strerror}", "install the package anew"
            ) from None
        size += len(content)
        if size > LARGEST_PACKAGE:
            break
        digest.update(f"{relative} {len(content)}\0".encode() + content)
    if len(files) > MOST_FILES or size > LARGEST_PACKAGE:
        raise _unusable(
            name,
            f"`{package}` has {len(files):,} more Python files, and may have {MOST_FILES:,} with "
            f"{LARGEST_PACKAGE >> 20} MiB together",
            "put what the spec needs into a package of its own: all of it counts as the function's content",
        )
    return digest.hexdigest(), len(files)


def _environment(module: str) -> metadata.Distribution | None:
    """Return the package of a module if it is an environment of `verifiers`: of that name, requiring the library."""
    try:
        package = metadata.distribution(module.partition(".")[0])
    except (metadata.PackageNotFoundError, ValueError):
        return None
    return package if any(_REQUIRED.match(each) for each in package.requires or ()) else None


def _module_file(module: str) -> Path | None:
    """Return the file of a module, without importing it or the packages it is in."""
    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
        for depth, _ in enumerate(rest, 1):
            inside = spec.submodule_search_locations if spec is not None else None
            if inside is None:
                return None
            name = ".".join([first, *rest[:depth]])
            spec = importlib.machinery.PathFinder.find_spec(name, list(inside))
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.has_location else None


def content_of(payload: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the part of a function that results depend on: its content instead of its file, and none of its limits."""
    name = str(payload["function"])
    try:
        checksum = read_code(name, folder).checksum
    except Problem:
        checksum = "None"
    kept = {setting: each for setting, each in payload.items() if setting not in Python.incidental}
    if kept.get("op") == OWN_OPS[1] and kept["batch"] == Python.model_fields["batch"].default:
        kept = {"op": OWN_OPS[0], "of": kept["of"]}
    return {**kept, "function": f"{checksum}.py:{name.rpartition(':')[2]}"}


def _unusable(where: str, why: str, help: str) -> Problem:
    return problem("E0743", f"Python that the spec names cannot be used: {why}", where=where, help=help)
