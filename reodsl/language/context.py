"""Hold what one evaluation shares: modules, findings, values that are known, and the stack."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar, Unpack

from reodsl.diagnostics.model import Details, Diagnostic, Label, Span, error
from reodsl.language.bounds import MOST_ERRORS
from reodsl.language.modules import Modules, ParsedFile
from reodsl.language.suggest import nearest
from reodsl.language.values import Override, Owner, Scope, Value
from reodsl.syntax import tree
from reodsl.syntax.parser import find_item

T = TypeVar("T")
U = TypeVar("U")
DEEPEST = 60
MOST_PLACES = 4
"""Places at which a missing name is shown."""
_NAMED = re.compile("`([^`]+)`")
_IMPORT = re.compile(r"import (?:it|them): `from (\S+) import ([\w, ]+)`")
VALUES = frozenset({"E0301", "E0302", "E0303"})
AT_ONE_PLACE = frozenset({"E0309", "E0501"})
"""Errors of which a place has one, that which says most."""
FOLLOWING = frozenset({"E0201", "E0212", "E0304", "E0310", "E0313", "W0201", "W0301", "W0302"})
"""Findings that may only be there because a syntax error took something out of the file."""


class Failed(Exception):
    """The end of a piece of a spec that has no value. What is wrong with it was reported."""


def _join(finding: Diagnostic, other: Diagnostic) -> Diagnostic | None:
    """Return one error for two of one mistake: names of one import, a declaration that does not fit where it is named."""
    if finding.code != other.code or not finding.labels or not other.labels:
        return None
    label, other_label = finding.labels[0], other.labels[0]
    if label.span.path != other_label.span.path:
        return None
    if label.span == other_label.span and finding.code in AT_ONE_PLACE:
        return max(finding, other, key=lambda item: (len(item.labels), len(item.message), item.message))
    match, second = (_IMPORT.fullmatch(item.help or "") for item in (finding, other))
    if (
        finding.code == "E0201"
        and match
        and second
        and match[1] == second[1]
        and second[2] not in match[2].split(", ")
    ):
        names = f"{match[2]}, {second[2]}"
        message = _NAMED.sub(", ".join(f"`{name}`" for name in names.split(", ")), other.message, count=1)
        finding = replace(finding, message=message, help=f"import them: `from {match[1]} import {names}`")
    elif finding.code in ("E0201", "E0209", "E0216"):
        # A name that is missing is missing wherever it stands.
        if finding.message != other.message and not (match and second and match[1] == second[1]):
            return None
    elif (
        finding.help != other.help
        or finding.code not in VALUES
        or not (
            label.text == other_label.text
            if other_label.text.startswith("the ")
            else other.labels[1:] and other.labels[1:] == finding.labels[1 : len(other.labels)]
        )
    ):
        return None
    if len(finding.labels) < MOST_PLACES and other_label.span not in [label.span for label in finding.labels]:
        finding = replace(finding, labels=(*finding.labels, Label(other_label.span, "here too")))
    return finding


def return_value(value: T) -> Callable[[], T]:
    """Return a call that has a value, for a name in a scope."""
    return lambda: value


def attempt(compute: Callable[[], T]) -> T | None:
    """Return what `compute` returns, or None if it fails."""
    try:
        return compute()
    except Failed:
        return None


def try_all(compute: Callable[[U], T], items: Iterable[U]) -> list[T]:
    """Compute each of several parts, so that the errors of all are reported. Raises `Failed` if one fails."""
    results: list[T] = []
    failed = False
    for item in items:
        try:
            results.append(compute(item))
        except Failed:
            failed = True
    if failed:
        raise Failed
    return results


@dataclass(slots=True)
class Context:
    """One evaluation. Findings are kept once each, in the order in which they are met.

    `declaration` evaluates what an expression names, and `amended` what has a block behind it: expressions and
    declarations hold each other, and this is the one way from the former to the latter (`declare.new_context`).

    `met` are the targets of those `amends` that something took, or that were refused; `passed` says why others found
    nothing to change at one place. `parents` are what records come from at first, by their places, `lacking` the settings
    that were reported as missing from all of one origin, and `lost` are the names of declarations of no kind. `refused` are
    types that calls gave parameters of other ones, by the places of the parameters.
    """

    modules: Modules
    declaration: Callable[[Context, ParsedFile, tree.ModuleItem], Value]
    amended: Callable[[Context, tree.Amend, Scope], Value]
    sets: dict[Owner, Override] = field(default_factory=dict)
    amends: dict[Owner, list[Override]] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    memo: dict[Owner, Value | None] = field(default_factory=dict)
    stack: list[tuple[Owner, Span]] = field(default_factory=list)
    used: set[Owner] = field(default_factory=set)
    used_imports: set[tuple[str, str]] = field(default_factory=set)
    params: dict[str, Value] = field(default_factory=dict)
    computed: dict[tuple[str, int], tuple[object, Any]] = field(default_factory=dict)
    depth: int = 0
    errors: int = 0
    trying: bool = False
    read: set[Span] = field(default_factory=set)
    parents: dict[Span, Span] = field(default_factory=dict)
    lacking: set[tuple[Span, tuple[str, ...]]] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    refused: dict[Span, str] = field(default_factory=dict)
    _reported: dict[tuple[object, ...], Diagnostic] = field(default_factory=dict)

    def report(self, finding: Diagnostic) -> None:
        """Keep a finding, once. Raises `Enough` when there are more errors than anybody reads."""
        span = finding.labels[0].span if finding.labels else None
        key = finding.code, span, finding.message
        if key in self._reported or (
            finding.code == "E0201" and self.lost & set(_NAMED.findall(finding.message))
        ):
            return
        for other_key, other in self._reported.items():
            if finding.severity == "error" and (joined := _join(other, finding)) is not None:
                self._reported[other_key] = joined
                return
        self._reported[key] = finding
        self.errors += finding.severity == "error"
        if self.errors >= MOST_ERRORS and not self.trying:
            self.modules.spent.stop(span)

    def error(
        self, code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
    ) -> None:
        """Report an error, after which the piece at hand can still be read."""
        self.report(error(code, message, span, text, **details))

    def fail(
        self, code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
    ) -> NoReturn:
        """Report an error of something that has no value because of it. Raises `Failed`."""
        self.refuse(error(code, message, span, text, **details))

    def refuse(self, finding: Diagnostic) -> NoReturn:
        """Report an error that was made elsewhere. Raises `Failed`."""
        self.report(finding)
        raise Failed

    def written(self, span: Span) -> str:
        """Return what a file has at a place; empty where the file's text is not known."""
        lines = self.modules.sources.get(span.path, "").split("\n")[span.line - 1 : span.end_line]
        if lines:
            lines[-1] = lines[-1][: span.end_column - 1]
            lines[0] = lines[0][span.column - 1 :]
        return "\n".join(lines)

    def spend(self, span: Span, steps: float) -> None:
        """Count steps of checking. Raises `Enough` when a spec takes more than it may."""
        self.modules.spent.add(span, steps)

    @property
    def ended(self) -> bool:
        """Return whether a bound was passed, after which the rest of the spec is not checked."""
        return self.modules.spent.refused is not None

    def trial(self) -> Context:
        """Return the same evaluation with findings of its own, which are reported nowhere."""
        return replace(self, _reported={}, trying=True)

    @property
    def reported(self) -> tuple[Diagnostic, ...]:
        """Return what was reported here, without the files' own errors."""
        return tuple(self._reported.values())

    def broken_files(self) -> set[str]:
        """Return the files with syntax errors, by the paths that are shown: declarations of theirs may be lost."""
        return {
            finding.labels[0].span.path
            for finding in self.modules.diagnostics
            if finding.severity == "error" and finding.labels and finding.code < "E02"
        }

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """Return what was found, the files' own errors first.

        Items with a syntax error are not in the tree: what is missing from such a file is not reported again.
        """
        broken = self.broken_files()
        items = {
            (span.path, find_item(self.modules.sources.get(span.path, ""), span.line))
            for finding in self.modules.diagnostics
            if finding.severity == "error" and finding.labels and finding.code < "E02"
            for span in [finding.labels[0].span]
        }

        def follows(finding: Diagnostic) -> bool:
            span = finding.labels[0].span if finding.labels else None
            return span is not None and (
                (finding.code in FOLLOWING and span.path in broken)
                or (
                    bool(items)
                    and (span.path, find_item(self.modules.sources.get(span.path, ""), span.line)) in items
                )
            )

        rest = [finding for finding in self._reported.values() if not follows(finding)]
        refused = self.modules.spent.refused
        return (*self.modules.diagnostics, *rest, *([refused] if refused is not None else []))

    def declared(self, module: ParsedFile, item: tree.ModuleItem) -> Value:
        """Return the value of a declaration or a param, computed once. Raises `Failed` if it has none."""
        owner = (module.key, item.name.name)
        return self.once(owner, item.name.span, lambda: self.declaration(self, module, item))

    def once(self, owner: Owner, span: Span, compute: Callable[[], Value]) -> Value:
        """Return the value of a declaration, computed once. Raises `Failed` if it has none, or needs itself."""
        if owner not in self.memo:
            for i, (pending, _) in enumerate(self.stack):
                if pending == owner:
                    self._refuse_circle(self.stack[i:])
            if len(self.stack) >= DEEPEST:
                self.fail("E0209", "these declarations are nested too deep", span, help="flatten the chain")
            self.stack.append((owner, span))
            try:
                self.memo[owner] = attempt(compute)
            finally:
                self.stack.pop()
        value = self.memo[owner]
        if value is None:
            raise Failed
        return value

    def derive(self, span: Span, parent: Span) -> None:
        """Note what the declaration at a place is made from, unless that is the library's."""
        first = self.find_first(parent)
        if not parent.path.startswith("std/") and first != span:
            self.parents[span] = first

    def find_first(self, span: Span) -> Span:
        """Return the place of the first declaration in the user's files that the one at a place comes from."""
        return self.parents.get(span, span)

    def compute_once(self, name: str, value: object, compute: Callable[[], T]) -> T:
        """Compute something of this very record or module, once."""
        key = name, id(value)
        if key not in self.computed:
            # The value is kept, so that no other gets its number.
            self.computed[key] = value, compute()
        result: T = self.computed[key][1]
        return result

    def _refuse_circle(self, ring: list[tuple[Owner, Span]]) -> NoReturn:
        names = [owner[1].rpartition(".")[2] for owner, _ in ring]
        chain = " → ".join([*names, names[0]])
        module = self.modules.loaded.get(ring[0][0][0]) if len(ring) == 1 else None
        nearest_name = nearest(names[0], {*module.items, *module.imports} - {names[0]}) if module else None
        self.fail(
            "E0209",
            f"`{names[0]}` needs itself",
            ring[0][1],
            "is declared by way of itself" if len(ring) > 1 else "stands in its own declaration",
            others=[
                Label(span, f"needs `{names[(i + 2) % len(names)]}`") for i, (_, span) in enumerate(ring[1:])
            ],
            notes=[chain],
            help=f"name another one in its value: `{nearest_name}`, for example"
            if nearest_name
            else "name another one in its value"
            if len(ring) == 1
            else "break the circle: one of these must not refer to the next",
        )
