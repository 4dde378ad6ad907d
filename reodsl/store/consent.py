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
    """The code of a function that a spec names."""

    name: str
    """Name as the spec spells it, `FILE.py:FUNCTION` or `MODULE:FUNCTION`."""
    path: Path
    """File of the function."""
    source: bytes
    """Bytes of the file."""
    checksum: str
    """SHA-256 of `source`, or of a package's Python files and its version."""
    module: str = ""
    """Module of a package; empty for a file."""
    more_files: int = 0
    """Number of other Python files in the package."""
    free: bool = False
    """True if it runs unconfined, in the process of the trainer."""

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
        """Return the folder of the module's package; None for a file, or a module outside a package."""
        depth = self.module.count(".") + (self.path.name == "__init__.py")
        return self.path.parents[depth - 1] if self.module and depth else None


def is_code(value: Mapping[str, Any]) -> bool:
    """Return whether a value of a payload names a function: a setting's value, or a term of a reward."""
    is_function = value.get("kind") == "python" or value.get("op") in OWN_OPS
    return is_function and isinstance(value.get("function"), str)


def parts(payload: Any, setting: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every object of a payload, outer objects first, with the setting that holds it."""
    if isinstance(payload, Mapping):
        yield setting, payload
        for name, value in payload.items():
            # The parts of a verifier by chance are verifiers as well, and an own loss is what holds it.
            yield from parts(value, setting if payload.get("kind") == "chance" or name == "own" else name)
    elif isinstance(payload, (list, tuple)):
        for value in payload:
            yield from parts(value, setting)


def read_all(
    payloads: Iterable[Any], folder: Path
) -> tuple[list[tuple[str, FunctionCode]], list[Diagnostic]]:
    """Return the code that payloads name, each once with its setting, and the diagnostics of unreadable code."""
    codes: list[tuple[str, FunctionCode]] = []
    wrong: list[Diagnostic] = []
    uses = (
        ("reward" if "op" in value else setting, value["function"])
        for payload in payloads
        for setting, value in parts(payload)
        if is_code(value)
    )
    for setting, name in dict.fromkeys(uses):
        try:
            codes.append((setting, replace(read_code(name, folder), free=setting == LOSS)))
        except Problem as caught:
            wrong += caught.diagnostics
    return codes, wrong


def read_code(name: str, folder: Path) -> FunctionCode:
    """Return the code of a function; relative paths start at `folder`.

    Raises:
        Problem: E0743 if it cannot be read.
    """
    file, _, _ = name.rpartition(":")
    if not OWN_CODE.holds(name):
        raise _unusable(name, "it is not FILE.py:FUNCTION", f"write {OWN_CODE.words}")
    if file.endswith(".py"):
        return _read_file_code(name, folder, file)
    return _read_package_code(name, file)


def _read_file_code(name: str, folder: Path, file: str) -> FunctionCode:
    """Return the code of a function in a plain file inside the spec's folder."""
    path = folder / file
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
            f"put `{file}` beside the spec, or write the path that it has from there",
        ) from None
    except OSError as failure:
        raise _unusable(
            str(path),
            f"it cannot be read: {failure.strerror}",
            "put a plain file there that you may read, of at most 1 MiB",
        ) from None


def _read_package_code(name: str, module: str) -> FunctionCode:
    """Return the code of a function that an installed package offers as an entry point."""
    offered = {
        entry_point.value.replace(" ", ""): entry_point for entry_point in metadata.entry_points(group=GROUP)
    }
    entry = offered.get(name)
    if entry is None:
        names = ", ".join(f"`{entry_point}`" for entry_point in sorted(offered))
        raise _unusable(
            name,
            f"no installed package offers it in the group `{GROUP}`",
            f"packages here offer {names}"
            if names
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
    """Return a package's Python files by their names in it; empty for a module outside a package."""
    spec = importlib.util.find_spec(package)
    folders = [Path(each) for each in (spec.submodule_search_locations if spec is not None else None) or ()]
    return sorted(
        (file.relative_to(folder).as_posix(), file)
        for folder in folders
        for place, _, names in os.walk(folder)
        for file in (Path(place) / each for each in names if each.endswith(".py"))
    )


def _module_file(module: str) -> Path | None:
    """Return the file of a module without importing it or its packages."""
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
    """Return what results depend on: a function's content instead of its file, without its limits."""
    name = str(payload["function"])
    try:
        checksum = read_code(name, folder).checksum
    except Problem:
        checksum = "None"
    content = {setting: value for setting, value in payload.items() if setting not in Python.incidental}
    if content.get("op") == OWN_OPS[1] and content["batch"] == Python.model_fields["batch"].default:
        content = {"op": OWN_OPS[0], "of": content["of"]}
    return {**content, "function": f"{checksum}.py:{name.rpartition(':')[2]}"}


def _unusable(where: str, why: str, help: str) -> Problem:
    return problem("E0743", f"Python that the spec names cannot be used: {why}", where=where, help=help)


@dataclass(frozen=True, slots=True)
class Destination:
    """The address of a served model, and the environment variable of its key, if any."""

    model: str
    address: str
    key: str | None


def destinations(payloads: Iterable[Any]) -> tuple[Destination, ...]:
    """Return the served models that payloads name, without repetition."""
    models = (
        Destination(str(value.get("model")), value["address"], value.get("key"))
        for payload in payloads
        for _, value in parts(payload)
        if value.get("kind") == "served" and isinstance(value.get("address"), str)
    )
    return tuple(dict.fromkeys(models))


def keyless(models: Iterable[Destination]) -> Iterator[Diagnostic]:
    """Report E0833 for each variable of a key that is not set in this process."""
    for model in models:
        if model.key and not os.environ.get(model.key, "").strip():
            yield error(
                "E0833",
                f"the served model `{model.model}` cannot be asked: `${model.key}` is not set",
                where=model.address,
                help=f"set it before the run: `export {model.key}=…`",
            )


def report_unapproved(
    codes: Iterable[FunctionCode], models: Iterable[Destination] = ()
) -> Iterator[Diagnostic]:
    """Report E0746 for code and E0749 for addresses that are new to this machine: which, and what to type."""
    code = list({(model.checksum, model.free): model for model in codes if not is_allowed(model)}.values())
    if code:
        yield error(
            "E0746",
            f"the spec runs Python that is new to this machine: {', '.join({f'`{model.file}`': 0 for model in code})}",
            where=str(code[0].path),
            notes=[
                f"{model.path}{f', with {model.more_files} more of its package,' * bool(model.more_files)} has the content "
                f"sha256:{model.checksum}"
                + (f"; before, it had sha256:{_shown(model)}" if is_changed(model) else "")
                + ("; it is a loss, and runs unconfined: it may do what you may" if model.free else "")
                for model in code
            ],
            help=f"read {'them' if len({model.path for model in code}) > 1 else 'it'}, and give the same command with "
            "--allow-python: it asks once for each content",
        )
    new = [model for model in models if not is_allowed(model)]
    if new:
        addresses = ", ".join(f"`{model}`" for model in dict.fromkeys(model.address for model in new))
        yield error(
            "E0749",
            f"the spec sends questions and answers to a server that is new to this machine: {addresses}",
            where=new[0].address,
            notes=[
                f"`{model.model}` is asked there, "
                + (f"with the key in ${model.key}" if model.key else "without a key")
                for model in new
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
    """Remember the checksum that a refusal or a run named, so that approval covers that content alone."""
    path = _shown_place(code)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, code.checksum.encode())


def is_changed(code: FunctionCode) -> bool:
    """Return whether code is new and differs from the version that was last named."""
    return not is_allowed(code) and _shown(code) not in ("", code.checksum)


def _shown(code: FunctionCode) -> str:
    """Return the checksum that was last named for a file, or an empty text."""
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
    """Return the file of an approval: for code by its content, for an address by itself and the variable of its key."""
    if isinstance(item, FunctionCode):
        # Who allowed a file in its sandbox has not allowed it without.
        return consent_folder("python") / f"{item.checksum}{'.free' if item.free else ''}"
    name = f"{item.address}\0{item.key or ''}"
    return consent_folder("addresses") / hashlib.sha256(name.encode()).hexdigest()


def is_allowed(item: FunctionCode | Destination) -> bool:
    """Return whether this user approved it on this machine; files of other users do not count."""
    try:
        status = os.stat(_place(item), follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()


def allow(item: FunctionCode | Destination) -> None:
    """Store an approval, with a line for people; if it cannot be written, it holds for this run alone."""
    path = _place(item)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{item.path if isinstance(item, FunctionCode) else item.address}\n")
