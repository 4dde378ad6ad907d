"""Record which place of the compiler each help comes from, and try what it says on specs that get it."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, GeneratorType

from reodsl.diagnostics.model import Diagnostic, Edit
from reodsl.language import fitting, hints
from reodsl.language.fitting import TypeMismatch
from reodsl.lsp.analysis import analyse
from reodsl.syntax import mistakes
from tests.lsp.advice import apply_edits, ways_out_of

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "spec.reo"
PACKAGES = ("language", "syntax")
CODE = re.compile(r"`[^`]+`")
BY_PLACE = {
    "fail": 4,
    "finding_at": 4,
    "TypeMismatch": 4,
    "_refuse_pick": 3,
    "describe_duplicate": 3,
    "row": 2,
}
"""Calls that take a help by its place among their values, and that place."""
CHOOSERS = (hints, fitting)
"""Modules that choose a help among rows of conditions and helps."""


@dataclass(frozen=True, order=True)
class Site:
    """A call with a help in the compiler, or a row that such a call chooses: its file, and its first and last line."""

    file: str
    first: int
    last: int


@lru_cache
def list_sites() -> Mapping[str, tuple[tuple[Site, bool], ...]]:
    """Return the sites of each file of the compiler, the narrowest first, and whether each can print code or an edit."""
    sites = {}
    for package in PACKAGES:
        for path in sorted((ROOT / "reodsl" / package).rglob("*.py")):
            nodes = [*ast.walk(ast.parse(path.read_text()))]
            # A row of syntax errors is told by one call for all rows: the place is the row.
            shared = {
                id(inner)
                for node in nodes
                if isinstance(node, ast.FunctionDef) and node.name == "row"
                for inner in ast.walk(node)
            }
            calls = [node for node in nodes if isinstance(node, ast.Call) and id(node) not in shared]
            found = [
                (_site(path, call), _has_code(call, helps))
                for call in calls
                if (helps := [each for each in _list_helps(call) if not _is_passed_on(each)])
            ]
            sites[str(path)] = tuple(sorted(found, key=lambda pair: pair[0].last - pair[0].first))
    return sites


@lru_cache
def list_rows() -> Mapping[Site, re.Pattern[str]]:
    """Return the rows of which one is chosen for a help, each with a pattern of what it prints, if it can print code."""
    rows = {}
    for module in CHOOSERS:
        path = Path(module.__file__ or "")
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Tuple(elts=[_, ast.JoinedStr() | ast.Constant(value=str()) as help_]):
                    pattern = _match_text(help_)
                    if "`" in re.sub(r"`reodsl\\ explain\\ \w+`", "", pattern):
                        rows[_site(path, node)] = re.compile(pattern)
    return rows


@lru_cache
def list_slips() -> Mapping[Site, re.Pattern[str]]:
    """Return the rows of syntax errors, each with a pattern of its message."""
    path = Path(mistakes.__file__ or "")
    return {
        _site(path, node): re.compile(_match_text(node.args[1]))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "row"
    }


def _site(path: Path, node: ast.expr) -> Site:
    return Site(str(path.relative_to(ROOT)), node.lineno, node.end_lineno or node.lineno)


def _match_text(text: ast.expr) -> str:
    """Return a pattern for a text with values in it."""
    match text:
        case ast.JoinedStr():
            return "".join(map(_match_text, text.values))
        case ast.Constant():
            return re.escape(str(text.value))
    return ".+"


def _list_helps(call: ast.Call) -> list[ast.expr]:
    """Return the helps that a call is given, by name or by place."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "help"]
    return named or call.args[BY_PLACE[name] :][:2] if name in BY_PLACE else named


def _is_passed_on(help_: ast.expr) -> bool:
    """Return whether a help is handed on as another call made it."""
    return (isinstance(help_, ast.Name) and help_.id == "help") or isinstance(help_, ast.Attribute)


def _has_code(call: ast.Call, helps: list[ast.expr]) -> bool:
    """Return whether a help may have code: a backtick in its words, words made elsewhere, or edits beside it."""
    if all(isinstance(each, ast.Constant) and each.value is None for each in helps):
        return False
    words = [
        [
            node.value
            for node in ast.walk(each)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        for each in helps
    ]
    edits = any(keyword.arg == "edits" for keyword in call.keywords)
    return edits or any(not each or any("`" in word for word in each) for each in words)


def find_site() -> Site | None:
    """Return the innermost site among the callers."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_qualname == "row.<locals>.report_row":
            message = frame.f_locals["message"]
            return next(site for site, pattern in list_slips().items() if pattern.fullmatch(message))
        for site, _ in list_sites().get(frame.f_code.co_filename, ()):
            if site.first <= frame.f_lineno <= site.last:
                return site
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _find_row(code: CodeType, help_: str) -> set[Site]:
    """Return the row of a function that printed a help: that with the most words of its own, of those that can."""
    last = max(line or 0 for *_, line in code.co_lines())
    fitting_rows = [
        row
        for row, pattern in list_rows().items()
        if str(ROOT / row.file) == code.co_filename
        and code.co_firstlineno <= row.first <= last
        and pattern.fullmatch(help_)
    ]
    return {*sorted(fitting_rows, key=lambda row: len(list_rows()[row].pattern))[-1:]}


@dataclass
class Tried:
    """The sites whose help was printed, whose remedy worked in some spec, and the edits that mended nothing."""

    reached: set[Site] = field(default_factory=set)
    mended: set[Site] = field(default_factory=set)
    failed: dict[Site, tuple[str, str]] = field(default_factory=dict)
    wrong: list[tuple[str, str, str]] = field(default_factory=list)


@contextmanager
def noting_sites() -> Iterator[Mapping[str, set[Site]]]:
    """Note for each help the sites that it came from while this is open."""
    made: dict[str, set[Site]] = defaultdict(set)
    originals = {kind: kind.__init__ for kind in (Diagnostic, TypeMismatch)}
    choose = hints.first_help

    def noting(kind: type) -> None:
        original = originals[kind]

        def init(self: object, *values: object, **named: object) -> None:
            original(self, *values, **named)
            help_ = self.help or getattr(self, "otherwise", None)  # type: ignore[attr-defined]
            site = find_site() if help_ else None
            if site is not None:
                made[help_].add(site)

        kind.__init__ = init  # type: ignore[misc]

    def noting_rows(rows: Iterable[tuple[bool, str]]) -> str | None:
        code = rows.gi_code if isinstance(rows, GeneratorType) else sys._getframe(1).f_code
        help_ = choose(rows)
        if help_ is not None:
            made[help_] |= _find_row(code, help_)
        return help_

    for kind in originals:
        noting(kind)
    for module in CHOOSERS:
        module.first_help = noting_rows  # type: ignore[attr-defined]
    try:
        yield made
    finally:
        for kind, original in originals.items():
            kind.__init__ = original  # type: ignore[method-assign]
        for module in CHOOSERS:
            module.first_help = choose  # type: ignore[attr-defined]


def _leads_on(text: str, finding: Diagnostic, edit: Edit, depth: int = 5) -> bool:
    """Return whether an edit removes its finding, and the errors that come to light have edits that end in none.

    What is wrong with the rest of a formula shows when its parts have types.
    """
    before = {(each.code, each.message) for each in analyse(PATH, {PATH: text}).findings}
    before.discard((finding.code, finding.message))
    mended = apply_edits(text, (edit,))
    after = analyse(PATH, {PATH: mended}).findings
    new = [
        each
        for each in after
        if each.severity == finding.severity and (each.code, each.message) not in before
    ]
    if not new:
        return True
    if finding.code[1:] >= "04" or not depth:
        return False
    first = new[0]
    if not first.edits:
        # A text that could not be read hid what is wrong elsewhere.
        return first.labels == () or first.labels[0].span.line not in range(
            edit.span.line, edit.span.end_line + 1
        )
    return all(_leads_on(mended, first, each, depth - 1) for each in first.edits)


def try_remedies(text: str, tried: Tried) -> None:
    """Try the remedies of all findings of a spec whose sites have not been seen to work."""
    with noting_sites() as made:
        analysis = analyse(PATH, {PATH: text})
        findings = analysis.findings
        sources = {help_: set(sites) for help_, sites in made.items()}
    here = str(PATH)
    for finding in findings:
        places = [label.span for label in finding.labels if label.span.path == here][:1]
        sites = sources.get(finding.help or "", set())
        if not places or not (finding.edits or CODE.search(finding.help or "")):
            continue
        tried.reached |= sites
        for edit in finding.edits:
            if edit.span.path == here and not _leads_on(text, finding, edit):
                tried.wrong.append((finding.code, f"{finding.help} → {edit.text}", text))
        if sites <= tried.mended:
            continue
        ways = [
            way
            for way in ways_out_of(finding, analysis, {PATH: text})
            if apply_edits(text, way.edits) != text
        ]
        if ways:
            tried.mended |= sites
        else:
            for site in sites:
                tried.failed[site] = (f"{finding.code} {finding.message}: {finding.help}", text)
