"""Load modules: the parsed file behind an import, inside the spec's folder or the standard library."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from reodsl.diagnostics.model import Diagnostic, Label, Problem, Span, error
from reodsl.language.bounds import IMPORT_STEPS, MOST_ERRORS, LimitReached, WorkLimit
from reodsl.language.suggest import list_names, suggest
from reodsl.syntax import parse, tree
from reodsl.syntax.parser import ParseResult
from reodsl.syntax.scanner import MOST_TOKENS, clip_text
from reodsl.syntax.source import MAX_BYTES, Source, read_source, source_from_bytes

PACKAGE = Path(__file__).resolve().parent.parent
LIBRARY = PACKAGE / "stdlib" if (PACKAGE / "stdlib").is_dir() else PACKAGE.parent / "stdlib"
"""The folder of the standard library: inside the package in a wheel, beside it in a checkout."""
STD = "std"
MOST_FILES = 256
DEEPEST_IMPORT = 64


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """A parsed file with its declarations, params and imports by name."""

    key: str
    """The identity: the resolved path, or `std:NAME` for the library."""
    path: str
    """The path that messages show."""
    module: tree.Module
    std: bool
    """True if it is of the library."""
    items: dict[str, tree.ModuleItem]
    """Declarations and params by name; the first one if a name occurs twice."""
    imports: dict[str, Import]
    """The imported names, by their names in this file."""

    def studies(self) -> Iterator[tuple[tree.Decl, list[tree.Decl]]]:
        """Yield the file's studies, each with its arms and frontiers as they are written, before sweeps are expanded."""
        for item in self.items.values():
            if not isinstance(item, tree.Decl) or item.kind.name != "study":
                continue
            members: list[tree.Decl] = []
            for child in item.block.items if item.block is not None else ():
                swept = isinstance(child, tree.NamedBlock) and child.name.name == "arms"
                inside = child.block.items if isinstance(child, tree.NamedBlock) and swept else (child,)
                members += (nested for nested in inside if isinstance(nested, tree.Decl))
            yield item, members


@dataclass(frozen=True, slots=True)
class Import:
    """A name that a file imports from another file."""

    module: str | None
    """The key of the module; None if it could not be loaded."""
    name: str
    """The name in that module."""
    node: tree.ImportName
    """The name in the syntax tree."""
    source: str
    """The module as the clause writes it."""


@lru_cache(maxsize=64)
def parse_cached(source: Source) -> ParseResult:
    """Return the parse of a text, from a cache of the last 64 texts: an editor asks for the same at every key press."""
    return parse(source)


@dataclass(slots=True)
class Modules:
    """The files of a compilation, with the errors of reading, parsing and importing them."""

    root: Path
    """The spec's folder, which imports cannot leave."""
    drafts: Mapping[str, str] = field(default_factory=dict)
    """Texts that replace files of the disk, by resolved path: what an editor has not saved."""
    diagnostics: list[Diagnostic] = field(default_factory=list)
    """Errors of reading, parsing and importing."""
    sources: dict[str, str] = field(default_factory=dict)
    """Texts by the path that messages show."""
    loaded: dict[str, ParsedFile | None] = field(default_factory=dict)
    """Files by key; None for a file that could not be read."""
    work_limit: WorkLimit = field(default_factory=WorkLimit)
    """The work of checking so far."""
    duplicates: set[tuple[str, str]] = field(default_factory=set)
    """The displayed path and name of each declaration that occurs twice."""
    _stack: list[tuple[str, str, Span]] = field(default_factory=list)
    """The files whose imports are being read: key, shown path, and the span of the import."""
    _bytes: int = MAX_BYTES
    """Bytes of text that the spec may still have."""
    _tokens: int = MOST_TOKENS
    """Tokens that the spec may still have."""
    _errors: int = 0
    """The count of errors among the diagnostics."""

    def main(self, path: Path) -> ParsedFile | None:
        """Return the parsed main file of the spec; None if it cannot be read.

        Imports are loaded until a limit is reached.
        """
        key = _identify(path)
        try:
            return self._read(path, str(path), key, std=Path(key).is_relative_to(LIBRARY))
        except LimitReached:
            return self.loaded.get(key)

    def library(self, name: str) -> ParsedFile | None:
        """Return a module of the standard library by its dotted name behind `std.`; None if it cannot be read."""
        path = LIBRARY.joinpath(*name.split("."))
        path = path.with_name(path.name + ".reo")
        return self._read(path, f"{STD}/{'/'.join(name.split('.'))}.reo", f"std:{name}", std=True)

    def parsed(self, path: str, text: str, key: str, *, std: bool = False) -> ParsedFile | None:
        """Return a file parsed from its text, with its names collected and its imports loaded.

        Args:
            path: The path that messages show.
            text: The text of the file.
            key: The identity of the file: its resolved path, or `std:NAME`.
            std: Whether the file belongs to the standard library; such a file may have any size.
        """
        self.sources[path] = text
        source, most = Source(path, text), MOST_TOKENS if std else self._tokens
        result = parse_cached(source)
        # A text with too many tokens is parsed again, for its error: the cache is for texts, whatever the limit.
        result = result if result.tokens <= most else parse(source, most)
        self._tokens -= 0 if std else min(result.tokens, self._tokens)
        self._report(*result.diagnostics)
        loaded = ParsedFile(key, path, result.module, std, {}, {})
        self.loaded[key] = loaded
        self._collect(loaded)
        return loaded

    def _read(self, path: Path, label: str, key: str, *, std: bool) -> ParsedFile | None:
        """Return a parsed file, which is read at the first call; None if it cannot be read, which is reported.

        Args:
            path: The file.
            label: The path that messages show.
            key: The identity of the file: its resolved path, or `std:NAME`.
            std: Whether the file belongs to the standard library.
        """
        if key in self.loaded:
            return self.loaded[key]
        self.loaded[key] = None
        try:
            draft = self.drafts.get(_identify(path)) if self.drafts else None
            source = read_source(path, label) if draft is None else source_from_bytes(draft.encode(), label)
        except Problem as caught:
            self._report(*caught.diagnostics)
            return None
        self._bytes -= 0 if std else len(source.text.encode())
        if self._bytes < 0:
            self._report(
                error(
                    "E0101",
                    f"a spec with its imports has at most {MAX_BYTES >> 10} KiB, and with this file it has more",
                    where=label,
                    help="import fewer files, and keep data in data files that the spec names",
                )
            )
            return None
        return self.parsed(label, source.text, key, std=std)

    def _report(self, *findings: Diagnostic) -> None:
        """Store findings.

        Raises:
            LimitReached: There are `MOST_ERRORS` errors.
        """
        self.diagnostics.extend(findings)
        self._errors += sum(finding.severity == "error" for finding in findings)
        if self._errors >= MOST_ERRORS:
            labels = findings[-1].labels
            self.work_limit.stop(labels[0].span if labels else None)

    def _collect(self, loaded: ParsedFile) -> None:
        """Store the declarations and imports of a file by name, and load the files that it imports.

        The first use of a name wins, and a second use is reported. Imported names are only checked against a
        file without errors, because a syntax error may have removed declarations.
        """
        first_spans: dict[str, Span] = {}
        for clause in loaded.module.imports:
            self.work_limit.charge(clause.module_span, IMPORT_STEPS * (1 + len(clause.names)))
            target = self._load_target(loaded, clause)
            is_sound = target is not None and not any(
                finding.severity == "error" and finding.labels and finding.labels[0].span.path == target.path
                for finding in self.diagnostics
            )
            for imported in clause.names:
                local_name = imported.alias or imported.name
                if self._is_first(local_name, first_spans):
                    key = target.key if target is not None else None
                    loaded.imports[local_name.name] = Import(key, imported.name.name, imported, clause.module)
                if target is not None and is_sound:
                    self._check_provided(target, imported, clause)
        for item in loaded.module.items:
            if self._is_first(item.name, first_spans):
                loaded.items[item.name.name] = item

    def _is_first(self, name: tree.Ident, first_spans: dict[str, Span]) -> bool:
        """Return whether this is the first use of a name in a file; report E0208 for a second one.

        Args:
            name: The name of a declaration or import.
            first_spans: The spans of the names so far; the new name is added.
        """
        first = first_spans.setdefault(name.name, name.span)
        if first is name.span:
            return True
        self.duplicates.add((name.span.path, name.name))
        self._report(describe_duplicate(name.name, name.span, first, "give one of them another name"))
        return False

    def _check_provided(self, target: ParsedFile, imported: tree.ImportName, clause: tree.Import) -> None:
        """Report E0204 for an imported name that the imported file does not declare.

        Args:
            target: The imported file.
            imported: The imported name.
            clause: The import.
        """
        name = imported.name.name
        if name not in target.items:
            self._report(
                error(
                    "E0204",
                    f"`{clause.module}` has no `{name}`",
                    imported.name.span,
                    "not in that file",
                    help=f"`{clause.module}` imports it from `{target.imports[name].source}`: import it from there"
                    if name in target.imports
                    else suggest(name, target.items, "it has"),
                )
            )

    def _load_target(self, importer: ParsedFile, clause: tree.Import) -> ParsedFile | None:
        """Return the parsed file that an import names; None after an error, which is reported.

        Errors are an unknown file, imports in a circle, too many files, and a file that cannot be read.

        Args:
            importer: The file with the import.
            clause: The import.
        """
        located = self._find_file(importer, clause)
        if located is None:
            return None
        path, label, key, std = located
        if any(key == open_key for open_key, _, _ in self._stack) or key == importer.key:
            self._report_cycle(importer, clause, key, label)
            return None
        if len(self.loaded) >= MOST_FILES or len(self._stack) >= DEEPEST_IMPORT:
            self._report(
                error(
                    "E0206",
                    f"a spec reads at most {MOST_FILES} files, {DEEPEST_IMPORT} deep",
                    clause.module_span,
                    help="import fewer files",
                )
            )
            return None
        self._stack.append((importer.key, importer.path, clause.module_span))
        try:
            return self._read(path, label, key, std=std)
        finally:
            self._stack.pop()

    def _report_cycle(self, importer: ParsedFile, clause: tree.Import, key: str, label: str) -> None:
        """Report E0206 for files that import each other.

        Args:
            importer: The file with the last import.
            clause: The last import, which closes the cycle.
            key: The identity of the imported file.
            label: The path of the imported file that messages show.
        """
        names = [path for _, path, _ in self._stack] + [importer.path, label]
        keys = [open_key for open_key, _, _ in self._stack] + [importer.key]
        start = keys.index(key) if key in keys else len(keys) - 1
        self._report(
            error(
                "E0206",
                "these files import each other",
                clause.module_span,
                "closes the cycle",
                notes=[" → ".join(names[start:])],
                help="move the declarations that both need into a third file",
            )
        )

    def _find_file(self, importer: ParsedFile, clause: tree.Import) -> tuple[Path, str, str, bool] | None:
        """Return the file that an import names; None after an error, which is reported.

        `std.a.b` is a module of the library. `.a.b` is a file in the folder of the importing file, and each
        further dot at the beginning goes up one folder. Files outside the spec's folder are refused.

        Returns:
            The path, the path that messages show, the identity of the file, and whether the file belongs to
            the standard library.
        """
        name = clause.module
        bare = name.lstrip(".")
        parts = bare.split(".") if bare else []
        if not name.startswith("."):
            if parts[0] == STD and len(parts) > 1:
                return self._find_library_file(parts[1:], clause)
            is_beside = not importer.std and self._is_beside(importer, parts)
            names = [f"std.{module}" for module in list_library()]
            self._report_unknown(
                clause,
                names,
                f"write `.{name}`: the dot is this folder" if is_beside else None,
            )
            return None
        if importer.std:
            self._report_escape(clause, "the standard library can import only `std.…`")
            return None
        folder = Path(importer.key).parent
        for _ in range(len(name) - len(bare) - 1):
            folder = folder.parent
        if not parts:
            self._report(
                error(
                    "E0204",
                    "an import names a file",
                    clause.module_span,
                    help="write `from .common import name`",
                )
            )
            return None
        path = folder.joinpath(*parts[:-1], parts[-1] + ".reo")
        # Links are resolved first, so that neither dots nor links lead out of the spec's folder.
        try:
            real_path = path.resolve()
            is_inside = real_path.is_relative_to(self.root) and folder.resolve().is_relative_to(self.root)
        except (OSError, RuntimeError, ValueError):
            is_inside, real_path = False, path
        if not is_inside:
            self._report_escape(
                clause, f"a spec imports only files in and below its folder {self.root.name or self.root}/"
            )
            return None
        if not real_path.is_file():
            siblings = (
                [f".{file.stem}" for file in sorted(folder.glob("*.reo"))[:100]] if folder.is_dir() else []
            )
            self._report_unknown(clause, siblings)
            return None
        parents = [".."] * (len(name) - len(bare) - 1)
        label = os.path.normpath(Path(importer.path).parent.joinpath(*parents, *parts)) + ".reo"
        return real_path, label, str(real_path), False

    def _find_library_file(self, parts: list[str], clause: tree.Import) -> tuple[Path, str, str, bool] | None:
        """Return the file of a module of the standard library; None after an error, which is reported.

        Returns:
            The path, the path that messages show, the identity of the file, and True (the file belongs to the
            library).
        """
        dotted = ".".join(parts)
        path = LIBRARY.joinpath(*parts[:-1], parts[-1] + ".reo")
        if not path.is_file():
            self._report_unknown(clause, [f"std.{module}" for module in list_library()])
            return None
        return path, f"{STD}/{'/'.join(parts)}.reo", f"std:{dotted}", True

    def _is_beside(self, importer: ParsedFile, parts: list[str]) -> bool:
        """Return whether the folder of the importing file has the file of a dotted name: `a/b.reo` for `a.b`.

        Args:
            importer: The importing file.
            parts: The words of the dotted name.
        """
        try:
            return Path(importer.key).parent.joinpath(*parts[:-1], parts[-1] + ".reo").is_file()
        except (OSError, ValueError):
            return False

    def _report_unknown(self, clause: tree.Import, names: list[str], advice: str | None = None) -> None:
        """Report E0204 for an import whose file does not exist.

        Args:
            clause: The import.
            names: The modules that exist, for the help.
            advice: The help, if the modules that exist do not matter.
        """
        self._report(
            error(
                "E0204",
                f"there is no module `{clip_text(clause.module)}`",
                clause.module_span,
                "not found",
                notes=[list_names(names)] if names else [],
                help=advice or suggest(clause.module, names)
                if names
                else "check the file's name; `.name` is a file beside this one",
            )
        )

    def _report_escape(self, clause: tree.Import, rule: str) -> None:
        """Report E0207 for an import of a file outside the spec's folder.

        Args:
            clause: The import.
            rule: The rule that the import breaks.
        """
        self._report(
            error(
                "E0207",
                f"`{clip_text(clause.module)}` is outside the spec's folder",
                clause.module_span,
                "outside",
                notes=[rule],
                help="copy the file into the spec's folder, or import from `std`",
            )
        )


@cache
def list_library() -> tuple[str, ...]:
    """Return the dotted names of the standard library's modules, without `std.`."""
    paths = sorted(LIBRARY.rglob("*.reo"))
    return tuple(".".join(path.relative_to(LIBRARY).with_suffix("").parts) for path in paths)


def _identify(path: Path) -> str:
    """Return the identity of a file: its resolved path, or the path as given if it cannot be resolved."""
    try:
        return str(path.resolve())
    except (OSError, RuntimeError, ValueError):
        return str(path)


def describe_duplicate(name: str, span: Span, first: Span | None, help: str) -> Diagnostic:
    """Return the error E0208 at the second use of a name.

    Args:
        name: The name.
        span: The second use.
        first: The first use; None if it is not known.
        help: What to write instead.
    """
    labels = [Label(first, "first here")] if first is not None else []
    return error("E0208", f"`{name}` occurs twice", span, "again here", labels=labels, help=help)
