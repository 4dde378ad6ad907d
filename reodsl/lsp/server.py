"""Serve editors over standard input and output, with the pure functions of this package."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import TextDocument

import reodsl
from reodsl.diagnostics.model import Severity, Span
from reodsl.diagnostics.render import find_page
from reodsl.lsp.analysis import (
    Analysis,
    Finding,
    Position,
    TextRange,
    analyse,
    list_findings,
    place,
    range_of,
    show_finding,
    whole,
)
from reodsl.lsp.colours import OutlineSymbol, hints, symbols
from reodsl.lsp.complete import Completion, Sort, completions
from reodsl.lsp.fixes import UNUSED, Fix, fixes
from reodsl.lsp.meaning import (
    UNNAMED,
    meaning,
    references,
    rename,
)
from reodsl.lsp.outline import locate
from reodsl.syntax.formatter import format_source
from reodsl.syntax.source import Source

_ENDING = (signal.SIGINT, signal.SIGTERM)
PAUSE = 0.15
"""Seconds without a key before a text is checked."""
BURST = 1.0
"""Seconds for which an analysis answers further requests for the same texts. After that, files on the disk may be others."""
_KEPT: WeakKeyDictionary[LanguageServer, dict[str, tuple[float, dict[Path, str], Analysis]]] = (
    WeakKeyDictionary()
)
SEVERITIES: dict[Severity, types.DiagnosticSeverity] = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}
ITEMS: dict[Sort, types.CompletionItemKind] = {
    "kind": types.CompletionItemKind.Keyword,
    "setting": types.CompletionItemKind.Property,
    "word": types.CompletionItemKind.EnumMember,
    "name": types.CompletionItemKind.Variable,
    "function": types.CompletionItemKind.Function,
    "module": types.CompletionItemKind.Module,
}


def serve() -> None:
    """Answer an editor over standard input and output until it says `exit`, or until a signal ends the process."""
    # A handler would run only between two steps of Python, and the loop may just have begun to wait for the editor.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    threading.Thread(target=_leave, daemon=True).start()
    # A collection would hold up every tenth answer: there is one after each change, and what is imported stays.
    gc.freeze()
    gc.disable()
    # The server closes its end when it stops; standard output itself stays open for the command line.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        make_server().start_io(stdout=out)


def _leave() -> None:
    """Wait for a signal and exit at once: a thread waits for the editor, and a normal exit would wait for that thread."""
    number = signal.sigwait(_ENDING)
    if number == signal.SIGINT:
        os.write(sys.stderr.fileno(), b"interrupted\n")
    os._exit(128 + number)


def make_server() -> LanguageServer:
    """Make the server, with all its features."""
    server = LanguageServer("reodsl", reodsl.__version__)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def on_open(params: types.DidOpenTextDocumentParams) -> None:
        _publish(server)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def on_change(params: types.DidChangeTextDocumentParams) -> None:
        await asyncio.sleep(PAUSE)
        document = _open(server, params.text_document.uri)
        if document is not None and document.version == params.text_document.version:
            _publish(server)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def on_close(params: types.DidCloseTextDocumentParams) -> None:
        _send(server, params.text_document.uri, [])
        _publish(server)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def on_save(params: types.DidSaveTextDocumentParams) -> None:
        _publish(server)

    @server.feature(types.TEXT_DOCUMENT_DIAGNOSTIC, types.DiagnosticOptions(True, False, "reodsl"))
    def pull(params: types.DocumentDiagnosticParams) -> types.RelatedFullDocumentDiagnosticReport:
        analysis = _analysis(server, params.text_document.uri)
        found = [_diagnostic(server, analysis, each) for each in list_findings(analysis)]
        return types.RelatedFullDocumentDiagnosticReport(found)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        analysis = _analysis(server, params.text_document.uri)
        what = meaning(analysis, *_place(server, analysis, params.position))
        if what is None:
            return None
        text = types.MarkupContent(types.MarkupKind.Markdown, what.text)
        return types.Hover(text, _range(server, analysis.text, what.span))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def definition(params: types.DefinitionParams) -> types.Location | None:
        analysis = _analysis(server, params.text_document.uri)
        what = meaning(analysis, *_place(server, analysis, params.position))
        if what is None or what.defined is None:
            return None
        return _location(server, analysis, what.defined)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["."]))
    def complete(params: types.CompletionParams) -> list[types.CompletionItem]:
        analysis = _analysis(server, params.text_document.uri)
        offers = completions(analysis, *_place(server, analysis, params.position))
        return [_item(server, analysis, each) for each in offers]

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def format_document(params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        document = server.workspace.get_text_document(params.text_document.uri)
        text = document.source
        result = format_source(Source(document.path or "", text.replace("\r\n", "\n").replace("\r", "\n")))
        if result.text is None:
            return None
        return (
            []
            if result.text == text
            else [types.TextEdit(_wire(whole(text, _encoding(server))), result.text)]
        )

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outline_document(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        analysis = _analysis(server, params.text_document.uri)
        main = analysis.program.main
        return [_symbol(server, analysis, each) for each in symbols(main.module.items if main else ())]

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions([types.CodeActionKind.QuickFix]))
    def offer_fixes(params: types.CodeActionParams) -> list[types.CodeAction]:
        if params.context.only and types.CodeActionKind.QuickFix not in params.context.only:
            return []
        uri, asked = params.text_document.uri, params.range
        analysis = _analysis(server, uri)
        offers = fixes(analysis, asked.start.line + 1, asked.end.line + 1)
        return [_action(server, uri, analysis, each) for each in offers]

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def find_references(params: types.ReferenceParams) -> list[types.Location]:
        analysis = _analysis(server, params.text_document.uri)
        places = references(analysis, _texts(server), *_place(server, analysis, params.position))
        return [
            types.Location(_uri(server, each.file), _range(server, each.text, each.span)) for each in places
        ]

    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepare_rename(params: types.PrepareRenameParams) -> types.Range:
        analysis = _analysis(server, params.text_document.uri)
        at = _place(server, analysis, params.position)
        places, word = references(analysis, {}, *at, beside=False), locate(analysis.text, *at).word
        if not places or word is None:
            raise JsonRpcInvalidParams(UNNAMED)
        return _range(server, analysis.text, word.span)

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    def rename_everywhere(params: types.RenameParams) -> types.WorkspaceEdit:
        analysis = _analysis(server, params.text_document.uri)
        at = _place(server, analysis, params.position)
        places = rename(analysis, _texts(server), *at, params.new_name)
        if isinstance(places, str):
            raise JsonRpcInvalidParams(places)
        changes: dict[str, list[types.TextEdit]] = {}
        for each in places:
            edit = types.TextEdit(_range(server, each.text, each.span), params.new_name)
            changes.setdefault(_uri(server, each.file), []).append(edit)
        return types.WorkspaceEdit(changes)

    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    def show_hints(params: types.InlayHintParams) -> list[types.InlayHint]:
        analysis = _analysis(server, params.text_document.uri)
        path = str(analysis.path)
        return [
            types.InlayHint(
                _range(
                    server, analysis.text, Span(path, each.line, each.column, each.line, each.column)
                ).start,
                each.text,
            )
            for each in hints(analysis, params.range.start.line + 1, params.range.end.line + 1)
        ]

    return server


def _uri(server: LanguageServer, file: Path) -> str:
    """Return the address of a file: an open document's own spelling of it."""
    spelt = (each.uri for each in server.workspace.text_documents.values() if _path(each.uri) == file)
    return next(spelt, None) or from_fs_path(str(file)) or ""


def _action(server: LanguageServer, uri: str, analysis: Analysis, fix: Fix) -> types.CodeAction:
    edit = types.TextEdit(_range(server, analysis.text, fix.edit.span), fix.edit.text)
    return types.CodeAction(
        fix.title,
        kind=types.CodeActionKind.QuickFix,
        diagnostics=[_diagnostic(server, analysis, show_finding(analysis, fix.finding))],
        edit=types.WorkspaceEdit({uri: [edit]}),
    )


def _path(uri: str) -> Path:
    """Return the path of a document; one without a file is taken to be in the working folder."""
    return Path(to_fs_path(uri) or "untitled.reo").absolute()


def _texts(server: LanguageServer) -> dict[Path, str]:
    return {_path(each.uri): each.source for each in server.workspace.text_documents.values()}


def _open(server: LanguageServer, uri: str) -> TextDocument | None:
    """Find an open document by its address; two spellings of it may quote different characters."""
    same = (each for each in server.workspace.text_documents.values() if unquote(each.uri) == unquote(uri))
    return next(same, None)


def _analysis(server: LanguageServer, uri: str) -> Analysis:
    """Return the analysis of a document; one burst of requests gets one analysis, with files beside it as they were."""
    texts = _texts(server)
    kept: dict[str, tuple[float, dict[Path, str], Analysis]] = _KEPT.setdefault(server, {})
    at, of, analysis = kept.get(uri, (0.0, {}, None))
    now = time.monotonic()
    if analysis is None or now - at > BURST or of != texts:
        analysis = analyse(_path(uri), texts)
        kept.clear()
        kept[uri] = (time.monotonic(), texts, analysis)
    return analysis


def _publish(server: LanguageServer) -> None:
    """Send the findings on every open document: one may import another."""
    _KEPT.pop(server, None)
    for document in server.workspace.text_documents.values():
        analysis = _analysis(server, document.uri)
        _send(server, document.uri, [_diagnostic(server, analysis, each) for each in list_findings(analysis)])
    gc.collect()


def _send(server: LanguageServer, uri: str, findings: list[types.Diagnostic]) -> None:
    """Publish findings, but for a client that asks for them."""
    told = server.client_capabilities.text_document
    if told is not None and told.diagnostic is not None:
        return
    document = _open(server, uri)
    version = document.version if document is not None else None
    server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, findings, version))


def _diagnostic(server: LanguageServer, analysis: Analysis, finding: Finding) -> types.Diagnostic:
    related = [
        types.DiagnosticRelatedInformation(_location(server, analysis, each.span), each.text or "here")
        for each in finding.related
    ]
    return types.Diagnostic(
        _range(server, analysis.text, finding.span),
        finding.message,
        severity=SEVERITIES[finding.severity],
        code=finding.code,
        code_description=types.CodeDescription(page.as_uri()) if (page := find_page(finding.code)) else None,
        tags=[types.DiagnosticTag.Unnecessary] if finding.code in (UNUSED, "W0604") else None,
        source="reodsl",
        related_information=related or None,
    )


def _item(server: LanguageServer, analysis: Analysis, each: Completion) -> types.CompletionItem:
    told = server.client_capabilities.text_document
    item = told.completion.completion_item if told is not None and told.completion is not None else None
    snippet = each.snippet if item is not None and item.snippet_support else ""
    adds = each.adds
    return types.CompletionItem(
        each.label,
        insert_text_format=types.InsertTextFormat.Snippet if snippet else None,
        additional_text_edits=None
        if adds is None
        else [types.TextEdit(_range(server, analysis.text, adds.span), adds.text)],
        kind=ITEMS[each.sort],
        detail=each.detail or None,
        documentation=types.MarkupContent(types.MarkupKind.Markdown, each.doc) if each.doc else None,
        sort_text=f"{0 if each.first else 1}{each.label}",
        text_edit=types.TextEdit(_range(server, analysis.text, each.span), snippet or each.label),
    )


def _symbol(server: LanguageServer, analysis: Analysis, each: OutlineSymbol) -> types.DocumentSymbol:
    return types.DocumentSymbol(
        each.name,
        types.SymbolKind.Constant if each.kind == "param" else types.SymbolKind.Class,
        _range(server, analysis.text, each.span),
        _range(server, analysis.text, each.at),
        detail=each.kind or None,
        children=[_symbol(server, analysis, inner) for inner in each.inside],
    )


def _location(server: LanguageServer, analysis: Analysis, span: Span) -> types.Location:
    text = analysis.text if span.path == str(analysis.path) else analysis.sources.get(span.path, "")
    uri = from_fs_path(str(analysis.file_of(span.path))) or ""
    return types.Location(uri, _range(server, text, span))


def _place(server: LanguageServer, analysis: Analysis, position: types.Position) -> tuple[int, int]:
    return place(analysis.text, Position(position.line, position.character), _encoding(server))


def _range(server: LanguageServer, text: str, span: Span | None) -> types.Range:
    return _wire(range_of(text, span, _encoding(server)))


def _wire(range_: TextRange) -> types.Range:
    start, end = range_.start, range_.end
    return types.Range(types.Position(start.line, start.character), types.Position(end.line, end.character))


def _encoding(server: LanguageServer) -> str:
    """Return the code units that client and server agreed on."""
    agreed = server.workspace.position_encoding
    return str(getattr(agreed, "value", agreed) or "utf-16")
