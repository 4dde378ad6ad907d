"""Python and addresses that a spec names: the code that is read, and this user's approvals, one private file each.

Nothing here imports that Python. `FILE.py:FUNCTION` is a plain file in the spec's folder or below it. `MODULE:FUNCTION` is
what an installed package offers as an entry point of the group `reodsl.python`; what counts is all Python of that package
together, and its version.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, Problem, error, problem
from reodsl.ir.data import Python
from reodsl.ir.expression import OWN_OPS
from reodsl.ir.names import OWN_CODE
from reodsl.store.files import read_plain, stat_plain, state_folder, write_atomic

GROUP = "reodsl.python"
LOSS = "loss"
"""The setting whose function runs where training does, because it needs gradients."""
_CHECKSUM = re.compile("[0-9a-f]{64}")
LARGEST_CODE = 1 << 20
"""Bytes of a Python file that a spec names."""
MOST_FILES, LARGEST_PACKAGE = 2000, 1 << 25
"""Python files of a package that a spec names, and their bytes together."""


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """The code of a function. `name` is its spelling in the spec, `module` the package's module or empty for a file.

    `checksum` is the SHA-256 of `source`, or of a whole package, which has so many `others` of Python files. What is `free`
    runs in the trainer's process, unconfined.
    """

    name: str
    path: Path
    source: bytes
    checksum: str
    module: str = ""
    others: int = 0
    free: bool = False

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


def is_code(part: Mapping[str, Any]) -> bool:
    """Return whether a part of a payload names a function: a setting's value, or a term of a reward."""
    called = part.get("kind") == "python" or part.get("op") in OWN_OPS
    return called and isinstance(part.get("function"), str)


def parts(payload: Any, setting: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every object in a payload, outer ones first, with the setting that holds it."""
    if isinstance(payload, Mapping):
        yield setting, payload
        for name, each in payload.items():
            # The parts of a verifier by chance are verifiers as well, and an own loss is what holds it.
            yield from parts(each, setting if payload.get("kind") == "chance" or name == "own" else name)
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
            codes.append((setting, replace(read_code(name, folder), free=setting == LOSS)))
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
        source = read_plain(path, LARGEST_CODE)
        return FunctionCode(name, path, source, hashlib.sha256(source).hexdigest())
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
    if entry is None:
        there = ", ".join(f"`{each}`" for each in sorted(offered))
        raise _unusable(
            name,
            f"no installed package offers it in the group `{GROUP}`",
            f"packages here offer {there}"
            if there
            else f"install the package that does, or write FILE.py:{name.rpartition(':')[2]}",
        )
    path, package = _module_file(module), module.partition(".")[0]
    if path is None:
        raise _unusable(name, f"the module `{module}` has no file", "install the package anew")
    version = entry.dist.version if entry.dist is not None else ""
    files = _list_python(package)
    try:
        source = read_plain(path, LARGEST_CODE)
        size = sum(stat_plain(file).st_size for _, file in files[:MOST_FILES])
        if len(files) > MOST_FILES or size > LARGEST_PACKAGE:
            raise _unusable(
                name,
                f"`{package}` has {len(files):,} Python files, and may have {MOST_FILES:,} with "
                f"{LARGEST_PACKAGE >> 20} MiB together",
                "put what the spec needs into a package of its own: all of it counts as the function's content",
            )
        digest = hashlib.sha256(source + f"\0{module} {version}".encode())
        for relative, file in files:
            content = read_plain(file, LARGEST_PACKAGE)
            digest.update(f"\0{relative} {len(content)}\0".encode() + content)
    except OSError as failure:
        raise _unusable(
            str(failure.filename or path),
            f"it cannot be read: {failure.strerror}",
            "install the package anew",
        ) from None
    return FunctionCode(name, path, source, digest.hexdigest(), module, max(0, len(files) - 1))


def _list_python(package: str) -> list[tuple[str, Path]]:
    """Return a package's Python files by their names in it; none of a module that is no package."""
    spec = importlib.util.find_spec(package)
    folders = [Path(each) for each in (spec.submodule_search_locations if spec is not None else None) or ()]
    return sorted(
        (file.relative_to(folder).as_posix(), file)
        for folder in folders
        for place, _, names in os.walk(folder)
        for file in (Path(place) / each for each in names if each.endswith(".py"))
    )


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


@dataclass(frozen=True, slots=True)
class Destination:
    """An address, its model, and the variable with its key, if it has one."""

    model: str
    address: str
    key: str | None


def destinations(payloads: Iterable[Any]) -> tuple[Destination, ...]:
    """Return the served models that payloads name, each once."""
    models = (
        Destination(str(part.get("model")), part["address"], part.get("key"))
        for payload in payloads
        for _, part in parts(payload)
        if part.get("kind") == "served" and isinstance(part.get("address"), str)
    )
    return tuple(dict.fromkeys(models))


def keyless(models: Iterable[Destination]) -> Iterator[Diagnostic]:
    """Report E0833 for each variable of a key that is not set in this process."""
    for each in models:
        if each.key and not os.environ.get(each.key, "").strip():
            yield error(
                "E0833",
                f"the served model `{each.model}` cannot be asked: `${each.key}` is not set",
                where=each.address,
                help=f"set it before the run: `export {each.key}=…`",
            )


def report_unapproved(
    codes: Iterable[FunctionCode], models: Iterable[Destination] = ()
) -> Iterator[Diagnostic]:
    """Report E0746 for code and E0749 for addresses that are new to this machine: which, and what to type."""
    code = list({(each.checksum, each.free): each for each in codes if not is_allowed(each)}.values())
    if code:
        yield error(
            "E0746",
            f"the spec runs Python that is new to this machine: {', '.join({f'`{each.file}`': 0 for each in code})}",
            where=str(code[0].path),
            notes=[
                f"{each.path}{f', with {each.others} more of its package,' if each.others else ''} has the content "
                f"sha256:{each.checksum}"
                + (f"; before, it had sha256:{_shown(each)}" if is_changed(each) else "")
                + ("; it is a loss, and runs unconfined: it may do what you may" if each.free else "")
                for each in code
            ],
            help=f"read {'them' if len({each.path for each in code}) > 1 else 'it'}, and give the same command with "
            "--allow-python: it asks once for each content",
        )
    new = [each for each in models if not is_allowed(each)]
    if new:
        addresses = ", ".join(f"`{each}`" for each in dict.fromkeys(each.address for each in new))
        yield error(
            "E0749",
            f"the spec sends questions and answers to a server that is new to this machine: {addresses}",
            where=new[0].address,
            notes=[
                f"`{each.model}` is asked there, "
                + (f"with the key in ${each.key}" if each.key else "without a key")
                for each in new
            ],
            help="if they may go there, give the same command with --allow-served: it asks once for each address and key",
        )


def name_allowed(codes: Iterable[FunctionCode]) -> list[str]:
    """Return a line for each file or module that may run: its spelling in the spec, its checksum, and whether it is free."""
    free = {code.file for code in codes if code.free}
    return [
        f"{file}  sha256:{checksum}{'  a loss, unconfined' if file in free else ''}"
        for file, checksum in {code.file: code.checksum for code in codes}.items()
    ]


def note_shown(code: FunctionCode) -> None:
    """Remember the content whose checksum a refusal or a run named, so that leave is given for that content alone."""
    place = _shown_place(code)
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(place, code.checksum.encode())


def is_changed(code: FunctionCode) -> bool:
    """Return whether new code is other than what a refusal or a run last named of its file."""
    return not is_allowed(code) and _shown(code) not in ("", code.checksum)


def _shown(code: FunctionCode) -> str:
    """Return the checksum that was last named of a file, or nothing."""
    try:
        text = read_plain(_shown_place(code), 1 << 10).decode("ascii", "replace")
    except OSError:
        return ""
    return text if _CHECKSUM.fullmatch(text) else ""


def _shown_place(code: FunctionCode) -> Path:
    return consent_folder("shown") / hashlib.sha256(os.path.realpath(code.path).encode()).hexdigest()


def consent_folder(kind: str) -> Path:
    """Return the folder of approvals of a kind: `$XDG_STATE_HOME/reodsl/KIND/`."""
    return state_folder() / kind


def _place(item: FunctionCode | Destination) -> Path:
    """Return the file of an approval: of code by its content, of an address by itself and the variable of its key."""
    if isinstance(item, FunctionCode):
        # Who allowed a file in its sandbox has not allowed it without.
        return consent_folder("python") / f"{item.checksum}{'.free' if item.free else ''}"
    name = f"{item.address}\0{item.key or ''}"
    return consent_folder("addresses") / hashlib.sha256(name.encode()).hexdigest()


def is_allowed(item: FunctionCode | Destination) -> bool:
    """Return whether this user allowed it on this machine; files of other users count for nothing."""
    try:
        status = os.stat(_place(item), follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()


def allow(item: FunctionCode | Destination) -> None:
    """Store an approval, with a line for people; if that cannot be written, it holds for the run at hand alone."""
    place = _place(item)
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{item.path if isinstance(item, FunctionCode) else item.address}\n")
