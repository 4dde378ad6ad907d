"""Do what the help of a finding says, to try advice: an edit is one of it if the finding is gone after it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from reodsl.diagnostics.model import Diagnostic, Edit, Span
from reodsl.lsp.analysis import Analysis, analyse, lines_of
from reodsl.lsp.fixes import UNUSED, add_import
from reodsl.syntax import tree
from reodsl.syntax.scanner import scan
from reodsl.syntax.source import Source

_CODE = re.compile(r"`([^`]+)`")
_IMPORT = re.compile(r"from (\.*[\w.]+) import (\w+(?:, \w+)*)")
_FROM = re.compile(r"`(\w+)`, from `(std\.\w+)`|`\w+ = (\w+)`, from `(std\.\w+)`")
_WRITTEN = re.compile(r"(\w+)\s*(\+?=|\{|:)(?!=)")
MOST = 8
"""Fixes of one finding that are tried: each compiles the file once."""
CONSTANT = ("W0301", "W0303")
"""Warnings of what no longer moves: an edit after which there is one mends nothing."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way out of a finding: a title and edits of the file, the last place first."""

    title: str
    finding: Diagnostic
    edits: tuple[Edit, ...]


def ways_out(analysis: Analysis, texts: Mapping[Path, str], first: int, last: int) -> tuple[Way, ...]:
    """List the ways out of the findings on lines `first` to `last` (from 1). `texts` are those of open editors."""
    return tuple(
        way
        for finding in analysis.findings
        for span in [_place(analysis, finding)]
        if span is not None and first <= span.end_line and span.line <= last
        for way in ways_out_of(finding, analysis, texts)
    )


def ways_out_of(finding: Diagnostic, analysis: Analysis, texts: Mapping[Path, str]) -> tuple[Way, ...]:
    """List the ways out of a finding."""
    span = _place(analysis, finding)
    if span is None or finding.help is None:
        return ()
    candidates = chain(
        ((f"Write {edit.text}", (edit,)) for edit in finding.edits), _candidates(analysis, finding.help, span)
    )
    ways: dict[str, Way] = {}
    for title, edits in islice(candidates, MOST):
        edits = tuple(sorted(edits, key=lambda each: each.span[1:], reverse=True))
        if title not in ways and mends(analysis, texts, finding, edits):
            ways[title] = Way(title, finding, edits)
    return tuple(ways.values())


def apply_edits(text: str, edits: tuple[Edit, ...]) -> str:
    """Return a text after edits, which are in the order of their places, the last first."""
    lines = list(lines_of(text))
    for edit in edits:
        span = edit.span
        head = lines[span.line - 1][: span.column - 1]
        tail = lines[span.end_line - 1][span.end_column - 1 :]
        lines[span.line - 1 : span.end_line] = (head + edit.text + tail).split("\n")
    return "\n".join(lines)


def _place(analysis: Analysis, finding: Diagnostic) -> Span | None:
    here = str(analysis.path)
    return next((label.span for label in finding.labels if label.span.path == here), None)


def mends(
    analysis: Analysis, texts: Mapping[Path, str], finding: Diagnostic, edits: tuple[Edit, ...]
) -> bool:
    """Return whether the finding is gone after the edits, and no other has come, at the edits or as one error more."""
    after = analyse(analysis.path, {**texts, analysis.path: apply_edits(analysis.text, edits)}).findings
    errors = [sum(each.severity == "error" for each in some) for some in (analysis.findings, after)]
    before = {(each.code, each.message) for each in analysis.findings}
    same = any((each.code, each.message) == (finding.code, finding.message) for each in after)
    changed = {line for edit in edits for line in _lines_after(edits, edit)}
    new = [each for each in after if (each.code, each.message) not in before and each.code != UNUSED]
    # A file that cannot be evaluated has hidden the rest: what is wrong elsewhere then comes to light.
    hidden = finding.code[1:] < "04"
    broken = any(
        not hidden
        or each.code == finding.code
        or (
            label.span.path == str(analysis.path)
            and label.span.line in changed
            and (each.severity == "error" or each.code in CONSTANT)
        )
        for each in new
        for label in each.labels[:1]
    )
    return not same and not broken and errors[1] <= errors[0]


def _lines_after(edits: tuple[Edit, ...], edit: Edit) -> range:
    """Return the lines of an edit's text, in the file as it is after all edits."""
    above = sum(
        each.text.count("\n") - (each.span.end_line - each.span.line)
        for each in edits
        if each.span.line < edit.span.line
    )
    first = edit.span.line + above
    return range(first, first + edit.text.count("\n") + 1)


def _candidates(analysis: Analysis, help_: str, span: Span) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """Yield the edits that a help may mean, the likeliest first."""
    around = _find_holders(analysis, span)
    # A setting that is one of another block takes its value with it.
    moved = next(
        (each for each in around if isinstance(each, tree.Assignment) and each.name.span == span), None
    )
    value = "…" if moved is None else analysis.program.context.text_at(moved.value.span)
    for code in _CODE.findall(help_):
        if moved is not None and "…" in code and _WRITTEN.match(code):
            cut = _cut_out(analysis, moved.span)
            for edits in _settle_finding(analysis, around, code.replace("…", value)):
                yield f"Write {code.replace('…', value)}", (*edits, cut)
    codes = [code for code in _CODE.findall(help_) if "…" not in code]
    imports = [code for code in codes if _IMPORT.fullmatch(code)]
    named = _FROM.search(help_)
    wanted = [*imports]
    if named is not None:
        name, module = (named[1], named[2]) if named[1] else (named[3], named[4])
        wanted.append(f"from {module} import {name}")
    imported = tuple(edit for each in wanted for edit in (_import(analysis, each),) if edit is not None)
    for code in codes:
        here = re.escape(code)
        if code in imports:
            edit = _import(analysis, code)
            if edit is not None:
                yield f"Import it: {code}", (edit,)
        elif re.search(rf"\b(?:take|leave) `{here}` out", help_):
            yield from ((f"Take {code} out", (edit,)) for edit in _without(analysis, around, span, code))
        elif re.search(rf"(?:\b(?:mean|write|take|with|add|or|study|experiment) |: |^)`{here}`", help_):
            other = re.search(rf"`(\w+)` [^`]*: `{here}`", help_)
            there = _find_declarations(analysis, other[1]) if other is not None else []
            verb = "Add" if re.search(rf"\badd `{here}`", help_) else "Write"
            yield from (
                (f"{verb} {code}", (*edits, *imported))
                for edits in _settle_finding(analysis, there or around, code)
            )
            if verb == "Add":
                edit = _add_setting(analysis, code, span)
                if edit is not None:
                    yield f"Add {code}", (edit, *imported)
            else:
                yield f"Write {code}", (Edit(span, code), *imported)
    if re.search(r"\b(?:take|leave) (?:it|this) out|\bkeep one of them", help_):
        yield from (("Take it out", (edit,)) for edit in _without(analysis, around, span, None))


def _find_declarations(analysis: Analysis, name: str) -> list[tree.Node]:
    """Return the declarations of a name in the file: of its own, or inside a study."""
    main = analysis.program.main
    nodes = tree.walk(main.module) if main is not None else ()
    return [each for each in nodes if isinstance(each, tree.Decl) and each.name.name == name]


def _find_holders(analysis: Analysis, span: Span) -> list[tree.Node]:
    """Return what holds a place, the innermost first."""
    main = analysis.program.main
    start, end = (span.line, span.column), (span.end_line, span.end_column)
    nodes = tree.walk(main.module) if main is not None else ()
    return [
        each
        for each in nodes
        if (each.span.line, each.span.column) <= start and end <= (each.span.end_line, each.span.end_column)
    ][::-1]


def _settle_finding(analysis: Analysis, around: list[tree.Node], code: str) -> Iterator[tuple[Edit, ...]]:
    """Write an argument or a setting where it is, else where it can be, the innermost place first."""
    written = _WRITTEN.match(code)
    if written is None:
        return
    name, sign, value = written[1], written[2], code[written.end() :].strip()
    if sign == ":":
        for call in around:
            if isinstance(call, tree.Call):
                given = next(
                    (arg for arg in call.args if arg.name is not None and arg.name.name == name), None
                )
                last = call.span
                end = _empty(last.path, last.end_line, last.end_column - 1)
                yield (Edit(given.value.span, value) if given else Edit(end, f", {code}"),)
        return
    for block in (each for node in around for each in _blocks(node)):
        item = _item(block, name) if sign != "+=" else None
        if isinstance(item, tree.NamedBlock) and sign == "{":
            inner = value.removesuffix("}").strip()
            yield from _settle_finding(analysis, [item.block], inner)
        elif item is not None:
            yield (Edit(item.span, code),)
        else:
            start = _empty(block.span.path, block.span.line, block.span.column)
            edit = _add_setting(analysis, code, start)
            if edit is not None:
                yield (edit,)


def _blocks(node: tree.Node) -> Iterator[tree.BraceBlock]:
    """Return the block that a node is, or has."""
    match node:
        case tree.BraceBlock():
            yield node
        case tree.Decl(value=tree.Amend(block=block)) | tree.Decl(block=tree.BraceBlock() as block):
            yield block


def _item(block: tree.BraceBlock, name: str) -> tree.Assignment | tree.NamedBlock | None:
    return next(
        (
            each
            for each in block.items
            if isinstance(each, (tree.Assignment, tree.NamedBlock)) and each.name.name == name
        ),
        None,
    )


def _without(analysis: Analysis, around: list[tree.Node], span: Span, name: str | None) -> Iterator[Edit]:
    """Take out the setting of a name, or whatever of a list, a block or an import is at a place."""
    if name is None:
        parts = (
            tree.Assignment,
            tree.NamedBlock,
            tree.Decl,
            tree.Let,
            tree.ImportName,
            tree.Param,
            tree.ParamDecl,
        )
        whole: list[tree.Node] = [each for each in around if isinstance(each, parts) or each.span == span]
    else:
        whole = [
            item for node in around for block in _blocks(node) if (item := _item(block, name)) is not None
        ]
    for node in whole:
        yield _cut_out(analysis, node.span)


def _cut_out(analysis: Analysis, span: Span) -> Edit:
    """Take out a place with its comma, and with its line where nothing else is on it."""
    lines = list(lines_of(analysis.text))
    head, tail = lines[span.line - 1][: span.column - 1], lines[span.end_line - 1][span.end_column - 1 :]
    if not head.strip() and not tail.strip(" ,") and span.end_line < len(lines):
        return Edit(Span(span.path, span.line, 1, span.end_line + 1, 1), "")
    comma = re.match(r"\s*,\s*", tail)
    if comma is not None:
        return Edit(span._replace(end_column=span.end_column + comma.end()), "")
    before = re.search(r"\s*,\s*$", head)
    return Edit(span._replace(column=before.start() + 1) if before is not None else span, "")


def _import(analysis: Analysis, clause: str) -> Edit | None:
    match = _IMPORT.fullmatch(clause)
    return None if match is None else add_import(analysis, match[1], match[2])


def _add_setting(analysis: Analysis, setting: str, span: Span) -> Edit | None:
    """Return a setting at the start of the block that opens after a place, or of the one around it."""
    tokens = scan(Source("", analysis.text)).tokens
    opened = None
    for at, token in enumerate(tokens):
        if (token.span.line, token.span.column) < (span.line, span.column):
            continue
        if token.type == "LBRACE":
            opened = at
            break
        if token.type == "NEWLINE" and (token.span.line, token.span.column) >= (
            span.end_line,
            span.end_column,
        ):
            break
    if opened is None:
        return None
    brace, after = tokens[opened], tokens[opened + 1] if opened + 1 < len(tokens) else None
    place = _empty(str(analysis.path), brace.span.end_line, brace.span.end_column)
    if after is not None and after.type == "NEWLINE":
        line = lines_of(analysis.text)[brace.span.line - 1]
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        return Edit(place, f"\n{indent}{setting}")
    return Edit(place, f" {setting} " if after is not None and after.type == "RBRACE" else f" {setting},")


def _empty(path: str, line: int, column: int) -> Span:
    return Span(path, line, column, line, column)
