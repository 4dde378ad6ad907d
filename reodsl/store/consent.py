"""Python and addresses that a spec names: reading the code, and this user's approvals, each a private file.

The code is read and never imported here. `FILE.py:FUNCTION` is a function in a plain file in the spec's folder or below.
`MODULE:FUNCTION` is a function that an installed package offers as an entry point of the group `reodsl.python`; all Python
files of the package and its version make up its content.
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
"""The setting whose function runs in the trainer's process, outside the sandbox, because it needs gradients."""
_CHECKSUM = re.compile("[0-9a-f]{64}")
"""A SHA-256 in hexadecimal."""
LARGEST_CODE = 1 << 20
"""Largest size in bytes of a Python file that a spec names."""
MOST_FILES, LARGEST_PACKAGE = 2000, 1 << 25
"""Largest number of Python files in a package that a spec names, and their largest total size in bytes."""


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
    """Return whether an object of a payload names a Python function of the user or of a package.

    Such an object is the value of a setting (`kind` is `python`), or a term of a reward (`op` is one of `OWN_OPS`).
    """
    is_function = value.get("kind") == "python" or value.get("op") in OWN_OPS
    return is_function and isinstance(value.get("function"), str)


def parts(payload: Any, setting: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every mapping in a payload, outer mappings first, as (name of the setting whose value it is, mapping).

    The entries of a list belong to the setting of the list. Two kinds of mappings belong to the setting of the mapping
    around them: the verifier in a verifier `chance`, and a user's function in an entry `own`.

    Args:
        payload: A payload or a value in it.
        setting: Name of the setting that has the payload; empty for a whole payload.
    """
    if isinstance(payload, Mapping):
        yield setting, payload
        for name, value in payload.items():
            # Verifiers in a verifier `chance` belong to the setting `verifier`, and the function of a loss to `loss`.
            yield from parts(value, setting if payload.get("kind") == "chance" or name == "own" else name)
    elif isinstance(payload, (list, tuple)):
        for value in payload:
            yield from parts(value, setting)


def read_all(
    payloads: Iterable[Any], folder: Path
) -> tuple[list[tuple[str, FunctionCode]], list[Diagnostic]]:
    """Read all Python code that payloads name, without repetition.

    Args:
        payloads: Payloads of tasks.
        folder: The spec's folder, where relative paths start.

    Returns:
        (for each use of code, the name of its setting, such as `verifier`, and the code; E0743 for each code that cannot
        be read). A term of a reward has the setting `reward`.
    """
    codes: list[tuple[str, FunctionCode]] = []
    diagnostics: list[Diagnostic] = []
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
            diagnostics += caught.diagnostics
    return codes, diagnostics


def read_code(name: str, folder: Path) -> FunctionCode:
    """Read the code of a function that a spec names.

    Args:
        name: `FILE.py:FUNCTION` or `MODULE:FUNCTION`.
        folder: The spec's folder, where relative paths start.

    Raises:
        Problem: E0743 if the code cannot be read.
    """
    file, _, _ = name.rpartition(":")
    if not OWN_CODE.holds(name):
        raise _refuse_code(name, "its name has not the form FILE.py:FUNCTION", f"write {OWN_CODE.words}")
    return _read_file_code(name, folder, file) if file.endswith(".py") else _read_package_code(name, file)


def _read_file_code(name: str, folder: Path, file: str) -> FunctionCode:
    """Read the code of a function from a plain file in the spec's folder or below.

    Args:
        name: Name of the function as the spec spells it, `FILE.py:FUNCTION`.
        folder: The spec's folder.
        file: The file in `name`, relative to the folder.

    Raises:
        Problem: E0743 if the file is missing, outside the folder, too large or unreadable.
    """
    path = folder / file
    if not path.resolve().is_relative_to(folder.resolve()):
        raise _refuse_code(
            str(path),
            "the path leads out of the spec's folder",
            "copy the file beside the spec; do not link it",
        )
    try:
        source = read_plain(path, LARGEST_CODE)
        return FunctionCode(name, path, source, hashlib.sha256(source).hexdigest())
    except FileNotFoundError:
        raise _refuse_code(
            str(path),
            "the file does not exist",
            f"put `{file}` beside the spec, or write its path relative to the spec's folder",
        ) from None
    except OSError as failure:
        raise _refuse_code(
            str(path),
            f"the file cannot be read: {failure.strerror}",
            "put a plain file of at most 1 MiB there, which you may read",
        ) from None


def _read_package_code(name: str, module: str) -> FunctionCode:
    """Read the code of a function that an installed package offers as an entry point, without importing it.

    Args:
        name: `MODULE:FUNCTION`.
        module: The module in `name`.

    Raises:
        Problem: E0743 if no package offers it, or its files cannot be read.
    """
    entry_points = {
        entry_point.value.replace(" ", ""): entry_point for entry_point in metadata.entry_points(group=GROUP)
    }
    entry = entry_points.get(name)
    if entry is None:
        names = ", ".join(f"`{entry_point}`" for entry_point in sorted(entry_points))
        raise _refuse_code(
            name,
            f"no installed package offers it in the group `{GROUP}`",
            f"packages here offer {names}"
            if names
            else f"install a package that offers it, or write FILE.py:{name.rpartition(':')[2]}",
        )
    path, package = _find_module(module), module.partition(".")[0]
    if path is None:
        raise _refuse_code(name, f"the module `{module}` has no file", "reinstall the package")
    version = entry.dist.version if entry.dist is not None else ""
    files = _list_python(package)
    try:
        source = read_plain(path, LARGEST_CODE)
        size = sum(stat_plain(file).st_size for _, file in files[:MOST_FILES])
        if len(files) > MOST_FILES or size > LARGEST_PACKAGE:
            raise _refuse_code(
                name,
                f"`{package}` has {len(files):,} Python files; a package may have {MOST_FILES:,} with "
                f"{LARGEST_PACKAGE >> 20} MiB together",
                "put the function into a small package: all its Python files count as the function's content",
            )
        digest = hashlib.sha256(source + f"\0{module} {version}".encode())
        for relative, file in files:
            content = read_plain(file, LARGEST_PACKAGE)
            digest.update(f"\0{relative} {len(content)}\0".encode() + content)
    except OSError as failure:
        raise _refuse_code(
            str(failure.filename or path),
            f"the file cannot be read: {failure.strerror}",
            "reinstall the package",
        ) from None
    return FunctionCode(name, path, source, digest.hexdigest(), module, max(0, len(files) - 1))


def _list_python(package: str) -> list[tuple[str, Path]]:
    """Return (path relative to the package, path) of each Python file in a package, sorted.

    The list is empty if `package` names a module that is a single file.
    """
    spec = importlib.util.find_spec(package)
    folders = [Path(name) for name in (spec.submodule_search_locations if spec is not None else None) or ()]
    return sorted(
        (file.relative_to(folder).as_posix(), file)
        for folder in folders
        for place, _, names in os.walk(folder)
        for file in (Path(place) / name for name in names if name.endswith(".py"))
    )


def _find_module(module: str) -> Path | None:
    """Return the file of a module; None if the module is not found or has no file.

    Neither the module nor the packages around it are imported.
    """
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
        for depth, _ in enumerate(rest, 1):
            search_path = spec.submodule_search_locations if spec is not None else None
            if search_path is None:
                return None
            name = ".".join([top, *rest[:depth]])
            spec = importlib.machinery.PathFinder.find_spec(name, list(search_path))
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.has_location else None


def content_of(payload: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return an object that names a function for the computation of keys, with the code's checksum instead of its file.

    So a key changes with the code and not with the name of the file. Settings that do not change results, such as limits
    of time, are left out. Code that cannot be read has the text `None` as checksum.

    Args:
        payload: The object of a payload.
        folder: The spec's folder, where relative paths start.
    """
    name = str(payload["function"])
    try:
        checksum = read_code(name, folder).checksum
    except Problem:
        checksum = "None"
    content = {setting: value for setting, value in payload.items() if setting not in Python.incidental}
    if content.get("op") == OWN_OPS[1] and content["batch"] == Python.model_fields["batch"].default:
        content = {"op": OWN_OPS[0], "of": content["of"]}
    return {**content, "function": f"{checksum}.py:{name.rpartition(':')[2]}"}


def _refuse_code(where: str, why: str, help: str) -> Problem:
    """Return E0743 for Python code that cannot be used.

    Args:
        where: File of the code, or the function's name in the spec.
        why: The reason.
        help: Advice to the user.
    """
    return problem("E0743", f"Python that the spec names cannot be used: {why}", where=where, help=help)


@dataclass(frozen=True, slots=True)
class Destination:
    """A server that a run sends questions and answers to."""

    model: str
    """Name of the served model."""
    address: str
    """Address of the server."""
    key: str | None
    """Name of the environment variable with the key of the server; None without a key."""


def destinations(payloads: Iterable[Any]) -> tuple[Destination, ...]:
    """Return the servers of the served models that payloads of tasks name, without repetition."""
    models = (
        Destination(str(value.get("model")), value["address"], value.get("key"))
        for payload in payloads
        for _, value in parts(payload)
        if value.get("kind") == "served" and isinstance(value.get("address"), str)
    )
    return tuple(dict.fromkeys(models))


def keyless(models: Iterable[Destination]) -> Iterator[Diagnostic]:
    """Yield E0833 for each served model whose key is in an environment variable that is not set in this process."""
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
    """Yield E0746 for Python code and E0749 for servers that this user has not approved on this machine.

    All code shares one diagnostic, and all servers share another.

    Args:
        codes: Code that the spec runs.
        models: Served models that the spec uses.
    """
    new_code = list({(code.checksum, code.free): code for code in codes if not is_allowed(code)}.values())
    if new_code:
        yield error(
            "E0746",
            f"the spec runs Python that is new to this machine: {', '.join({f'`{code.file}`': 0 for code in new_code})}",
            where=str(new_code[0].path),
            notes=[
                f"{code.path}{f', with {code.more_files} more of its package,' * bool(code.more_files)} has the content "
                f"sha256:{code.checksum}"
                + (f"; before, it had sha256:{_read_shown(code)}" if is_changed(code) else "")
                + ("; it is a loss, and runs unconfined: it may do what you may" if code.free else "")
                for code in new_code
            ],
            help=f"read {'them' if len({code.path for code in new_code}) > 1 else 'it'}, and give the same command with "
            "--allow-python: each content needs approval once",
        )
    new_models = [model for model in models if not is_allowed(model)]
    if new_models:
        addresses = ", ".join(dict.fromkeys(f"`{model.address}`" for model in new_models))
        yield error(
            "E0749",
            f"the spec sends questions and answers to a server that is new to this machine: {addresses}",
            where=new_models[0].address,
            notes=[
                f"`{model.model}` is served there, "
                + (f"with the key in ${model.key}" if model.key else "without a key")
                for model in new_models
            ],
            help="if they may be sent, give the same command with --allow-served: each address and key needs approval once",
        )


def name_allowed(codes: Iterable[FunctionCode]) -> list[str]:
    """Return a line for each file or module of code, which a command shows to the user before or after an approval.

    A line has the name in the spec and the checksum. A loss, which runs outside the sandbox, is marked `unconfined`.
    """
    free = {code.file for code in codes if code.free}
    return [
        f"{file}  sha256:{checksum}{'  a loss, unconfined' if file in free else ''}"
        for file, checksum in {code.file: code.checksum for code in codes}.items()
    ]


def note_shown(code: FunctionCode) -> None:
    """Store the checksum of code that was shown to the user, as `--allow-python` approves no other content of the file."""
    path = _shown_file(code)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, code.checksum.encode())


def is_changed(code: FunctionCode) -> bool:
    """Return whether code is not approved and differs from the content of its file that was last shown to the user.

    The result is False if no content of the file was shown before.
    """
    return not is_allowed(code) and _read_shown(code) not in ("", code.checksum)


def _read_shown(code: FunctionCode) -> str:
    """Return the checksum of the content of a file that was last shown to the user; empty if none was shown."""
    try:
        text = read_plain(_shown_file(code), 1 << 10).decode("ascii", "replace")
    except OSError:
        return ""
    return text if _CHECKSUM.fullmatch(text) else ""


def _shown_file(code: FunctionCode) -> Path:
    """Return the path of the file with the checksum that `note_shown` stores for the code's file."""
    return consent_folder("shown") / hashlib.sha256(os.path.realpath(code.path).encode()).hexdigest()


def consent_folder(kind: str) -> Path:
    """Return the folder of approvals of a kind, `python`, `addresses` or `shown`, below `$XDG_STATE_HOME/reodsl/`."""
    return state_folder() / kind


def _approval_file(item: FunctionCode | Destination) -> Path:
    """Return the path of the file that approves code, or an address with its key.

    The name of the file is the code's checksum, or a hash of the address and the name of the key's variable.
    """
    if isinstance(item, FunctionCode):
        # Code that was allowed in the sandbox is not allowed to run unconfined.
        return consent_folder("python") / f"{item.checksum}{'.free' if item.free else ''}"
    name = f"{item.address}\0{item.key or ''}"
    return consent_folder("addresses") / hashlib.sha256(name.encode()).hexdigest()


def is_allowed(item: FunctionCode | Destination) -> bool:
    """Return whether this user approved the code or address on this machine; files of other users do not count."""
    try:
        status = os.stat(_approval_file(item), follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()


def allow(item: FunctionCode | Destination) -> None:
    """Store this user's approval of code or an address; if it cannot be written, it is valid for this run only."""
    path = _approval_file(item)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{item.path if isinstance(item, FunctionCode) else item.address}\n")
