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
from reodsl.diagnostics.model import Severity, Span, group
from reodsl.diagnostics.render import find_page
from reodsl.language.modules import LIBRARY
from reodsl.lsp.analysis import (
    Analysis,
    Finding,
    Position,
    TextRange,
    analyse,
    find_position,
    list_findings,
    range_of,
    range_of_text,
    show_finding,
)
from reodsl.lsp.complete import Completion, Sort, completions
from reodsl.lsp.fixes import UNUSED, Fix, fixes
from reodsl.lsp.hints import OutlineSymbol, hints, symbols
from reodsl.lsp.meaning import NOT_RENAMABLE, meaning, references, rename
from reodsl.lsp.outline import locate
from reodsl.syntax.formatter import format_source
from reodsl.syntax.source import Source

_ENDING = (signal.SIGINT, signal.SIGTERM)
PAUSE_SECONDS = 0.15
"""Seconds without a key before a text is checked."""
BURST_SECONDS = 1.0
"""Seconds for which an analysis is reused for the same texts; after that, files on the disk may have changed."""
_CACHE: WeakKeyDictionary[LanguageServer, dict[str, tuple[float, dict[Path, str], Analysis]]] = (
    WeakKeyDictionary()
)
_LOADED: WeakKeyDictionary[LanguageServer, dict[str, frozenset[str]]] = WeakKeyDictionary()
"""The files of each open spec, by its URI: keys of modules, also of files that could not be read."""
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
    """Answer an editor over standard input and output until it sends `exit` or a signal ends the process."""
    # Python would run a signal handler only after the event loop stops waiting for the editor: a thread waits instead.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    threading.Thread(target=_leave, daemon=True).start()
    # Garbage collection would delay every tenth answer: it runs after each change instead, without imported modules.
    gc.freeze()
    gc.disable()
    # The server closes its output when it stops, so it gets a duplicate of standard output.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        make_server().start_io(stdout=out)


def _leave() -> None:
    """Wait for a signal and end the process at once.

    A normal exit would wait for the thread that reads from the editor.
    """
    number = signal.sigwait(_ENDING)
    if number == signal.SIGINT:
        os.write(sys.stderr.fileno(), b"interrupted\n")
    os._exit(128 + number)


def make_server() -> LanguageServer:
    """Return the language server with all its features."""
    server = LanguageServer("reodsl", reodsl.__version__)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def on_open(params: types.DidOpenTextDocumentParams) -> None:
        """Send the findings when a document is opened."""
        _publish(server)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def on_change(params: types.DidChangeTextDocumentParams) -> None:
        """Send the findings when a document was not changed for `PAUSE_SECONDS`."""
        await asyncio.sleep(PAUSE_SECONDS)
        document = _open(server, params.text_document.uri)
        if document is not None and document.version == params.text_document.version:
            _publish(server, document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def on_close(params: types.DidCloseTextDocumentParams) -> None:
        """Delete the findings of a closed document, and send the findings of open documents, which may import it."""
        _send(server, params.text_document.uri, [])
        _publish(server)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def on_save(params: types.DidSaveTextDocumentParams) -> None:
        _publish(server)

    @server.feature(types.TEXT_DOCUMENT_DIAGNOSTIC, types.DiagnosticOptions(True, False, "reodsl"))
    def pull(params: types.DocumentDiagnosticParams) -> types.RelatedFullDocumentDiagnosticReport:
        """Return the findings on a document to a client that asks for them."""
        analysis = _analysis(server, params.text_document.uri)
        items = [_diagnostic(server, analysis, finding) for finding in list_findings(analysis)]
        return types.RelatedFullDocumentDiagnosticReport(items)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        """Return the explanation of the word under the cursor."""
        analysis = _analysis(server, params.text_document.uri)
        explanation = meaning(analysis, *_place(server, analysis, params.position))
        if explanation is None:
            return None
        text = types.MarkupContent(types.MarkupKind.Markdown, explanation.text)
        return types.Hover(text, _range(server, analysis.text, explanation.span))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def definition(params: types.DefinitionParams) -> types.Location | None:
        """Return the location at which the word under the cursor is defined."""
        analysis = _analysis(server, params.text_document.uri)
        explanation = meaning(analysis, *_place(server, analysis, params.position))
        if explanation is None or explanation.definition is None:
            return None
        return _location(server, analysis, explanation.definition)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["."]))
    def complete(params: types.CompletionParams) -> list[types.CompletionItem]:
        """Return what may be written at the cursor."""
        analysis = _analysis(server, params.text_document.uri)
        offers = completions(analysis, *_place(server, analysis, params.position))
        return [_item(server, analysis, offer) for offer in offers]

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def format_document(params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        """Return the edit that replaces a document by its canonical text; None if it has syntax errors."""
        document = server.workspace.get_text_document(params.text_document.uri)
        text = document.source
        result = format_source(Source(document.path or "", text.replace("\r\n", "\n").replace("\r", "\n")))
        if result.text is None:
            return None
        return (
            []
            if result.text == text
            else [types.TextEdit(_wire(range_of_text(text, _encoding(server))), result.text)]
        )

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outline_document(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        """Return the outline of a document."""
        analysis = _analysis(server, params.text_document.uri)
        main = analysis.program.main
        return [_symbol(server, analysis, symbol) for symbol in symbols(main.module.items if main else ())]

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions([types.CodeActionKind.QuickFix]))
    def offer_fixes(params: types.CodeActionParams) -> list[types.CodeAction]:
        """Return the fixes for findings on some lines."""
        if params.context.only and types.CodeActionKind.QuickFix not in params.context.only:
            return []
        uri, lines = params.text_document.uri, params.range
        analysis = _analysis(server, uri)
        offers = fixes(analysis, lines.start.line + 1, lines.end.line + 1)
        return [_action(server, uri, analysis, fix) for fix in offers]

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def find_references(params: types.ReferenceParams) -> list[types.Location]:
        """Return the locations at which the name under the cursor is used."""
        analysis = _analysis(server, params.text_document.uri)
        places = references(analysis, _texts(server), *_place(server, analysis, params.position))
        return [types.Location(_uri(server, use.file), _range(server, use.text, use.span)) for use in places]

    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepare_rename(params: types.PrepareRenameParams) -> types.Range:
        """Return the range of the name under the cursor, or an error if it cannot be renamed."""
        analysis = _analysis(server, params.text_document.uri)
        cursor = _place(server, analysis, params.position)
        places, word = (references(analysis, {}, *cursor, folder=False), locate(analysis.text, *cursor).word)
        if not places or word is None:
            raise JsonRpcInvalidParams(NOT_RENAMABLE)
        return _range(server, analysis.text, word.span)

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    def rename_everywhere(params: types.RenameParams) -> types.WorkspaceEdit:
        """Return the edits that rename the name under the cursor in all specs of the folder."""
        analysis = _analysis(server, params.text_document.uri)
        cursor = _place(server, analysis, params.position)
        places = rename(analysis, _texts(server), *cursor, params.new_name)
        if isinstance(places, str):
            raise JsonRpcInvalidParams(places)
        edits = (
            (_uri(server, use.file), types.TextEdit(_range(server, use.text, use.span), params.new_name))
            for use in places
        )
        return types.WorkspaceEdit(group(edits))

    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    def show_hints(params: types.InlayHintParams) -> list[types.InlayHint]:
        """Return the values and units to show beside some lines."""
        analysis = _analysis(server, params.text_document.uri)
        path = str(analysis.path)
        return [
            types.InlayHint(
                _range(
                    server, analysis.text, Span(path, hint.line, hint.column, hint.line, hint.column)
                ).start,
                hint.text,
            )
            for hint in hints(analysis, params.range.start.line + 1, params.range.end.line + 1)
        ]

    return server


def _uri(server: LanguageServer, file: Path) -> str:
    """Return the URI of a file, in the spelling of the client if the file is open."""
    spelt = (doc.uri for doc in server.workspace.text_documents.values() if _path(doc.uri) == file)
    return next(spelt, None) or from_fs_path(str(file)) or ""


def _action(server: LanguageServer, uri: str, analysis: Analysis, fix: Fix) -> types.CodeAction:
    """Return a fix as the protocol's code action."""
    edit = types.TextEdit(_range(server, analysis.text, fix.edit.span), fix.edit.text)
    return types.CodeAction(
        fix.title,
        kind=types.CodeActionKind.QuickFix,
        diagnostics=[_diagnostic(server, analysis, show_finding(analysis, fix.finding))],
        edit=types.WorkspaceEdit({uri: [edit]}),
    )


def _path(uri: str) -> Path:
    """Return the path of a document; a document without a file counts as a file in the working folder."""
    return Path(to_fs_path(uri) or "untitled.reo").absolute()


def _texts(server: LanguageServer) -> dict[Path, str]:
    """Return the texts of all open documents by path."""
    return {_path(doc.uri): doc.source for doc in server.workspace.text_documents.values()}


def _open(server: LanguageServer, uri: str) -> TextDocument | None:
    """Return the open document with a URI; None if no document has it. Percent-encoded characters may differ."""
    documents = (doc for doc in server.workspace.text_documents.values() if unquote(doc.uri) == unquote(uri))
    return next(documents, None)


def _analysis(server: LanguageServer, uri: str) -> Analysis:
    """Return the analysis of a document.

    An analysis is reused for `BURST_SECONDS` while no open document changes. Files on the disk that change in
    this time are only read after it.
    """
    texts = _texts(server)
    cache: dict[str, tuple[float, dict[Path, str], Analysis]] = _CACHE.setdefault(server, {})
    seconds, old_texts, analysis = cache.get(uri, (0.0, {}, None))
    now = time.monotonic()
    if analysis is None or now - seconds > BURST_SECONDS or old_texts != texts:
        analysis = analyse(_path(uri), texts)
        cache.clear()
        cache[uri] = (time.monotonic(), texts, analysis)
        _LOADED.setdefault(server, {})[uri] = frozenset(analysis.program.context.modules.loaded)
    return analysis


def _publish(server: LanguageServer, edited: str | None = None) -> None:
    """Send the findings on every open document, or on an edited document and those that import it.

    Args:
        server: The server.
        edited: The URI of the document that was edited; None if files may have come, gone or changed on the disk.
    """
    _CACHE.pop(server, None)
    loaded, file = _LOADED.setdefault(server, {}), _path(edited or "").resolve()
    documents = [
        document
        for document in server.workspace.text_documents.values()
        # A module of the library has another key than its file.
        if edited is None
        or file.is_relative_to(LIBRARY)
        or str(file) in loaded.get(document.uri, (str(file),))
    ]
    for document in documents:
        analysis = _analysis(server, document.uri)
        _send(server, document.uri, [_diagnostic(server, analysis, item) for item in list_findings(analysis)])
    gc.collect()


def _send(server: LanguageServer, uri: str, findings: list[types.Diagnostic]) -> None:
    """Send findings on a document; send nothing to a client that requests findings itself (`pull`)."""
    client = server.client_capabilities.text_document
    if client is not None and client.diagnostic is not None:
        return
    document = _open(server, uri)
    version = document.version if document is not None else None
    server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, findings, version))


def _diagnostic(server: LanguageServer, analysis: Analysis, finding: Finding) -> types.Diagnostic:
    """Return a finding as the protocol's diagnostic."""
    related = [
        types.DiagnosticRelatedInformation(_location(server, analysis, label.span), label.text or "here")
        for label in finding.related
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


def _item(server: LanguageServer, analysis: Analysis, offer: Completion) -> types.CompletionItem:
    """Return a completion as the protocol's completion item."""
    client = server.client_capabilities.text_document
    item = client.completion.completion_item if client is not None and client.completion is not None else None
    snippet = offer.snippet if item is not None and item.snippet_support else ""
    import_edit = offer.import_edit
    return types.CompletionItem(
        offer.label,
        insert_text_format=types.InsertTextFormat.Snippet if snippet else None,
        additional_text_edits=None
        if import_edit is None
        else [types.TextEdit(_range(server, analysis.text, import_edit.span), import_edit.text)],
        kind=ITEMS[offer.sort],
        detail=offer.detail or None,
        documentation=types.MarkupContent(types.MarkupKind.Markdown, offer.doc) if offer.doc else None,
        sort_text=f"{offer.rank}{offer.label}",
        text_edit=types.TextEdit(_range(server, analysis.text, offer.span), snippet or offer.label),
    )


def _symbol(server: LanguageServer, analysis: Analysis, symbol: OutlineSymbol) -> types.DocumentSymbol:
    """Return a declaration of the outline, with the declarations inside, as the protocol's document symbol."""
    return types.DocumentSymbol(
        symbol.name,
        types.SymbolKind.Constant if symbol.kind == "param" else types.SymbolKind.Class,
        _range(server, analysis.text, symbol.span),
        _range(server, analysis.text, symbol.name_span),
        detail=symbol.kind or None,
        children=[_symbol(server, analysis, inner) for inner in symbol.children],
    )


def _location(server: LanguageServer, analysis: Analysis, span: Span) -> types.Location:
    """Return a span as the protocol's location: the URI of its file and its range."""
    text = analysis.text if span.path == str(analysis.path) else analysis.sources.get(span.path, "")
    uri = from_fs_path(str(analysis.file_of(span.path))) or ""
    return types.Location(uri, _range(server, text, span))


def _place(server: LanguageServer, analysis: Analysis, position: types.Position) -> tuple[int, int]:
    """Return the line and column in the source, from 1, of the protocol's position."""
    return find_position(analysis.text, Position(position.line, position.character), _encoding(server))


def _range(server: LanguageServer, text: str, span: Span | None) -> types.Range:
    """Return the protocol's range of a span in a text."""
    return _wire(range_of(text, span, _encoding(server)))


def _wire(range_: TextRange) -> types.Range:
    """Return a range as the protocol's range."""
    start, end = range_.start, range_.end
    return types.Range(types.Position(start.line, start.character), types.Position(end.line, end.character))


def _encoding(server: LanguageServer) -> str:
    """Return the encoding whose code units client and server agreed to count."""
    agreed = server.workspace.position_encoding
    return str(getattr(agreed, "value", agreed) or "utf-16")
