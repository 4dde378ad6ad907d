"""Hold the state of one evaluation of a spec: its files, findings, computed values, and declarations in evaluation."""

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
DEEPEST_STACK = 60
MOST_LABELS = 4
"""Places at which a missing name is shown."""
_NAMED = re.compile("`([^`]+)`")
_IMPORT = re.compile(r"import (?:it|them): `from (\S+) import ([\w, ]+)`")
VALUE_ERRORS = frozenset({"E0301", "E0302", "E0303"})
ONE_PER_SPAN = frozenset({"E0309", "E0501"})
"""Errors of which a place has one, that which says most."""
CONSEQUENCES = frozenset({"E0201", "E0212", "E0304", "E0310", "E0313", "W0201", "W0301", "W0302"})
"""Findings that may only be there because a syntax error took something out of the file."""


class NoValue(Exception):
    """The exception that ends the evaluation of an expression or declaration with an error, which has been reported."""


def _join_errors(finding: Diagnostic, other: Diagnostic) -> Diagnostic | None:
    """Return one error for two errors with the same cause; None if the causes differ.

    Errors with different codes or files have different causes. For the same code:

    - Of two errors at one span (`ONE_PER_SPAN`), the more detailed error is kept.
    - Two missing names of the same module become one error whose help imports both.
    - Otherwise the first error gets the span of the second as a label, up to `MOST_LABELS`. This needs equal
      messages, or for errors of values (`VALUE_ERRORS`) equal help and equal labels.
    """
    if finding.code != other.code or not finding.labels or not other.labels:
        return None
    label, other_label = finding.labels[0], other.labels[0]
    if label.span.path != other_label.span.path:
        return None
    if label.span == other_label.span and finding.code in ONE_PER_SPAN:
        return max(finding, other, key=lambda item: (len(item.labels), len(item.message), item.message))
    match, other_match = (_IMPORT.fullmatch(item.help or "") for item in (finding, other))
    if (
        finding.code == "E0201"
        and match
        and other_match
        and match[1] == other_match[1]
        and other_match[2] not in match[2].split(", ")
    ):
        names = f"{match[2]}, {other_match[2]}"
        message = _NAMED.sub(", ".join(f"`{name}`" for name in names.split(", ")), other.message, count=1)
        finding = replace(finding, message=message, help=f"import them: `from {match[1]} import {names}`")
    elif finding.code in ("E0201", "E0209", "E0216"):
        # Two errors about the same missing name are one error, wherever the name is used.
        if finding.message != other.message and not (match and other_match and match[1] == other_match[1]):
            return None
    elif (
        finding.help != other.help
        or finding.code not in VALUE_ERRORS
        or not (
            label.text == other_label.text
            if other_label.text.startswith("the ")
            else other.labels[1:] and other.labels[1:] == finding.labels[1 : len(other.labels)]
        )
    ):
        return None
    if len(finding.labels) < MOST_LABELS and other_label.span not in [label.span for label in finding.labels]:
        finding = replace(finding, labels=(*finding.labels, Label(other_label.span, "here too")))
    return finding


def return_value(value: T) -> Callable[[], T]:
    """Return a function without arguments that returns `value`: a `Scope` stores such a function for each local."""
    return lambda: value


def attempt(compute: Callable[[], T]) -> T | None:
    """Return the result of `compute`, or None if it raises `NoValue`."""
    try:
        return compute()
    except NoValue:
        return None


def try_all(compute: Callable[[U], T], items: Iterable[U]) -> list[T]:
    """Return the result of `compute` for every item; after a failure the remaining items are computed too.

    In this way the errors of all items are reported.

    Raises:
        NoValue: An item has no value.
    """
    results: list[T] = []
    has_failed = False
    for item in items:
        try:
            results.append(compute(item))
        except NoValue:
            has_failed = True
    if has_failed:
        raise NoValue
    return results


@dataclass(slots=True)
class Context:
    """The state of evaluating a spec: its files, its findings, and the values computed so far."""

    modules: Modules
    """The files of the spec."""
    evaluator: Callable[[Context, ParsedFile, tree.ModuleItem], Value]
    """Evaluates a declaration; expressions and declarations hold each other, and this is the way back."""
    amend: Callable[[Context, tree.Amend, Scope], Value]
    """Evaluates `base { … }`."""
    sets: dict[Owner, Override] = field(default_factory=dict)
    """The `--set` of each param."""
    amends: dict[Owner, list[Override]] = field(default_factory=dict)
    """The `--amend` of each declaration."""
    applied_amends: set[str] = field(default_factory=set)
    """Targets of amends that changed a record or were refused."""
    memo: dict[Owner, Value | None] = field(default_factory=dict)
    """Values of declarations; None for a declaration without a value."""
    stack: list[tuple[Owner, Span]] = field(default_factory=list)
    """The declarations being evaluated, each with the span that names it."""
    used_items: set[Owner] = field(default_factory=set)
    """Declarations that another names."""
    used_imports: set[tuple[str, str]] = field(default_factory=set)
    """Names that files use of their imports."""
    stage_numbers: set[str] = field(default_factory=set)
    """Names of tracks and metrics that settings read of rewards, as `reward.NAME`."""
    unread_tracks: list[tuple[str, Diagnostic]] = field(default_factory=list)
    """The name and warning of each track that its reward does not read; void if a setting reads the name."""
    params: dict[str, Value] = field(default_factory=dict)
    """Values of params by name."""
    memos: dict[tuple[str, int], tuple[object, Any]] = field(default_factory=dict)
    """Values of `memoize`, by the name of the computation and the `id` of its record."""
    depth: int = 0
    """The depth of the current expression."""
    errors: int = 0
    """The count of reported errors."""
    is_trial: bool = False
    """True if the findings are reported nowhere."""
    visited_bodies: set[Span] = field(default_factory=set)
    """Bodies of rewards whose unread names are reported."""
    parents: dict[Span, Span] = field(default_factory=dict)
    """The first declaration that a declaration comes from, by the spans of both."""
    missing_settings: set[tuple[Span, tuple[str, ...]]] = field(default_factory=set)
    """Settings reported as missing from all declarations that come from the same declaration."""
    lost_names: set[str] = field(default_factory=set)
    """Names of declarations of an unknown kind."""
    refused_types: dict[Span, str] = field(default_factory=dict)
    """Types of arguments that do not fit their parameter, by the parameter's span."""
    _reported: dict[tuple[object, ...], Diagnostic] = field(default_factory=dict)
    """Findings by code, span and message."""

    def report(self, finding: Diagnostic) -> None:
        """Record a finding, or join it with an earlier error that has the same cause.

        A finding is ignored if it was recorded before. An unknown name is ignored too if it is in `lost_names`:
        its declaration is of an unknown kind, and this error was reported.

        Raises:
            LimitReached: There are `MOST_ERRORS` errors; not raised in a trial.
        """
        span = finding.labels[0].span if finding.labels else None
        key = finding.code, span, finding.message
        if key in self._reported or (
            finding.code == "E0201" and self.lost_names & set(_NAMED.findall(finding.message))
        ):
            return
        for other_key, other in self._reported.items():
            if finding.severity == "error" and (joined := _join_errors(other, finding)) is not None:
                self._reported[other_key] = joined
                return
        self._reported[key] = finding
        self.errors += finding.severity == "error"
        if self.errors >= MOST_ERRORS and not self.is_trial:
            self.modules.work_limit.stop(span)

    def error(
        self, code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
    ) -> None:
        """Report an error and go on.

        Args:
            code: The stable code, as `E0402`.
            message: The mistake, with the value.
            span: The primary span.
            text: The words beside the underline.
            **details: Further fields of the diagnostic: `labels`, `where`, `notes`, `help` and `edits`.
        """
        self.report(error(code, message, span, text, **details))

    def fail(
        self, code: str, message: str, span: Span | None = None, text: str = "", **details: Unpack[Details]
    ) -> NoReturn:
        """Report an error and give up the expression or declaration that has it.

        Args:
            code: The stable code, as `E0402`.
            message: The mistake, with the value.
            span: The primary span.
            text: The words beside the underline.
            **details: Further fields of the diagnostic: `labels`, `where`, `notes`, `help` and `edits`.

        Raises:
            NoValue: Always.
        """
        self.refuse(error(code, message, span, text, **details))

    def refuse(self, finding: Diagnostic) -> NoReturn:
        """Report a finding and give up the expression or declaration that has it.

        Raises:
            NoValue: Always.
        """
        self.report(finding)
        raise NoValue

    def text_at(self, span: Span) -> str:
        """Return the source text at a span; empty if the file's text is not known."""
        lines = self.modules.sources.get(span.path, "").split("\n")[span.line - 1 : span.end_line]
        if lines:
            lines[-1] = lines[-1][: span.end_column - 1]
            lines[0] = lines[0][span.column - 1 :]
        return "\n".join(lines)

    def charge(self, span: Span, steps: float) -> None:
        """Count steps of work on the spec.

        Args:
            span: The source that takes the steps, for the message.
            steps: The number of further steps.

        Raises:
            LimitReached: The spec takes more steps than `WorkLimit` allows.
        """
        self.modules.work_limit.charge(span, steps)

    @property
    def is_stopped(self) -> bool:
        """Return whether a limit of work or errors was passed; then the checks of the spec have ended."""
        return self.modules.work_limit.refusal is not None

    def trial(self) -> Context:
        """Return a copy of this context whose findings are not reported to the user."""
        return replace(self, _reported={}, is_trial=True)

    @property
    def own_findings(self) -> tuple[Diagnostic, ...]:
        """Return the findings of the evaluation, without the errors of reading and parsing files."""
        return tuple(self._reported.values())

    def broken_files(self) -> set[str]:
        """Return the displayed paths of files with syntax errors; declarations of these files may be missing."""
        return {
            finding.labels[0].span.path
            for finding in self.modules.diagnostics
            if finding.severity == "error" and finding.labels and finding.code < "E02"
        }

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """Return all findings: first of reading and parsing files, then of the evaluation, then a passed limit.

        A syntax error removes a declaration from the tree. Findings that this may have caused are left out:
        findings in the same declaration, and in the same file those with a code of `CONSEQUENCES`.
        """
        broken = self.broken_files()
        items = {
            (span.path, find_item(self.modules.sources.get(span.path, ""), span.line))
            for finding in self.modules.diagnostics
            if finding.severity == "error" and finding.labels and finding.code < "E02"
            for span in [finding.labels[0].span]
        }

        def follows(finding: Diagnostic) -> bool:
            """Return whether a finding may be a consequence of a syntax error in its file."""
            span = finding.labels[0].span if finding.labels else None
            return span is not None and (
                (finding.code in CONSEQUENCES and span.path in broken)
                or (
                    bool(items)
                    and (span.path, find_item(self.modules.sources.get(span.path, ""), span.line)) in items
                )
            )

        remaining = [finding for finding in self._reported.values() if not follows(finding)]
        refused = self.modules.work_limit.refusal
        return (*self.modules.diagnostics, *remaining, *([refused] if refused is not None else []))

    def value_of(self, module: ParsedFile, item: tree.ModuleItem) -> Value:
        """Return the value of a declaration or param; it is computed at the first call and stored.

        Args:
            module: The file that declares it.
            item: The declaration or param in the syntax tree.

        Raises:
            NoValue: The declaration has an error, which was reported.
        """
        owner = (module.key, item.name.name)
        return self.evaluate_once(owner, item.name.span, lambda: self.evaluator(self, module, item))

    def evaluate_once(self, owner: Owner, span: Span, compute: Callable[[], Value]) -> Value:
        """Return the value of a declaration, calling `compute` at the first call only.

        Args:
            owner: The file and name of the declaration, the key of the stored value.
            span: The span of the declaration's name, for error messages.
            compute: Evaluates the declaration.

        Raises:
            NoValue: The declaration has an error, or its value depends on itself; the error was reported.
        """
        if owner not in self.memo:
            for i, (pending, _) in enumerate(self.stack):
                if pending == owner:
                    self._refuse_circle(self.stack[i:])
            if len(self.stack) >= DEEPEST_STACK:
                self.fail("E0209", "these declarations are nested too deep", span, help="flatten the chain")
            self.stack.append((owner, span))
            try:
                self.memo[owner] = attempt(compute)
            finally:
                self.stack.pop()
        value = self.memo[owner]
        if value is None:
            raise NoValue
        return value

    def derive(self, span: Span, parent: Span) -> None:
        """Record that the declaration at `span` is made from the declaration at `parent`.

        Parents in the standard library are not recorded, because the user cannot change them.
        """
        first = self.find_first(parent)
        if not parent.path.startswith("std/") and first != span:
            self.parents[span] = first

    def find_first(self, span: Span) -> Span:
        """Return the span of the earliest ancestor of the declaration at `span` in the user's files.

        A declaration without a recorded parent is its own ancestor.
        """
        return self.parents.get(span, span)

    def memoize(self, name: str, value: object, compute: Callable[[], T]) -> T:
        """Return the result of a computation on an object; a second call returns the stored result.

        Args:
            name: The name of the computation.
            value: The object; it is compared by identity.
            compute: The computation.
        """
        key = name, id(value)
        if key not in self.memos:
            # Keeping a reference to the object ensures that no other object gets its `id`.
            self.memos[key] = value, compute()
        result: T = self.memos[key][1]
        return result

    def _refuse_circle(self, cycle: list[tuple[Owner, Span]]) -> NoReturn:
        """Report E0209 for declarations whose values depend on each other.

        Args:
            cycle: The file and name of each declaration, with the span of its name. Each declaration needs
                the next one, and the last needs the first.

        Raises:
            NoValue: Always.
        """
        names = [owner[1].rpartition(".")[2] for owner, _ in cycle]
        chain = " → ".join([*names, names[0]])
        module = self.modules.loaded.get(cycle[0][0][0]) if len(cycle) == 1 else None
        nearest_name = nearest(names[0], {*module.items, *module.imports} - {names[0]}) if module else None
        self.fail(
            "E0209",
            f"`{names[0]}` depends on itself",
            cycle[0][1],
            "its declaration leads back to itself" if len(cycle) > 1 else "is used in its own declaration",
            labels=[
                Label(span, f"needs `{names[(i + 2) % len(names)]}`") for i, (_, span) in enumerate(cycle[1:])
            ],
            notes=[chain],
            help=f"use another name in its value: `{nearest_name}`, for example"
            if nearest_name
            else "use another name in its value"
            if len(cycle) == 1
            else "break the cycle: remove one of these references",
        )
