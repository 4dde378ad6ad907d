"""Serve the page of `reodsl view` to this machine only, for reading, to everyone who has the key."""

from __future__ import annotations

import gzip
import hmac
import json
import os
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from reodsl.diagnostics import Problem, first_line, problem
from reodsl.report.formats import finite
from reodsl.store.files import state_folder
from reodsl.view.api import Api

HOST = "127.0.0.1"
PORT = 8377
_HERE = Path(__file__).parent
_REPORT = _HERE.parent / "report"
_HTML = "text/html; charset=utf-8"
_SCRIPT = "text/javascript; charset=utf-8"
_FILES = {
    "": (_HERE / "page.html", _HTML),
    "page.css": (_REPORT / "page.css", "text/css; charset=utf-8"),
    "elements.js": (_REPORT / "elements.js", _SCRIPT),
    **{name: (_HERE / name, _SCRIPT) for name in ("view.js", "training.js", "responses.js")},
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LONG_QUERY = 4096
"""Characters of a query at most."""
_WORTH_PACKING = 2048
"""Bytes; larger answers are compressed."""


class Viewer(ThreadingHTTPServer):
    """The server of a store's page, which runs until it is shut down."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, api: Api, key: str, port: int | None = None) -> None:
        """Listen for requests.

        Args:
            api: Answers about a store.
            key: Secret that addresses must contain.
            port: Port to listen on; None for the usual port, or any free port if the usual port is in use.

        Raises:
            Problem: E0114 if `port` is in use.
        """
        self.api, self.key = api, key
        self.moved = False
        try:
            super().__init__((HOST, PORT if port is None else port), _Handler)
        except OSError as caught:
            if port is not None:
                raise problem(
                    "E0114",
                    f"cannot listen at port {port}: {(caught.strerror or str(caught)).lower()}",
                    help="name another port, or leave out --port to use a free port",
                ) from None
            self.moved = True
            super().__init__((HOST, 0), _Handler)

    @property
    def address(self) -> str:
        """Return the page's address, with its key."""
        return f"http://{HOST}:{self.server_port}/{self.key}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no error if a browser closes its connection."""


class _Handler(BaseHTTPRequestHandler):
    """The handler of a request for the page, its scripts, a report or an answer of the API."""

    server: Viewer
    protocol_version = "HTTP/1.1"
    server_version = "reodsl"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        """Answer a request for a file of the page, a report or an answer of the API; answer 404 to all other requests.

        The path must start with the key, and the request must be for this machine's own host name.
        """
        parts = urlsplit(self.path)
        key, _, rest = parts.path.lstrip("/").partition("/")
        # The host is checked, because a stranger's domain name may resolve to this machine (DNS rebinding).
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        is_allowed = hmac.compare_digest(key.encode(), self.server.key.encode())
        if not is_allowed or self.headers.get("Host") not in hosts or "/" + key == parts.path:
            self._send(404, b"not found\n", "text/plain; charset=utf-8")
        elif rest in _FILES:
            path, kind = _FILES[rest]
            self._send(200, path.read_bytes(), kind)
        elif rest.startswith("report/"):
            self._send_report(unquote(rest.removeprefix("report/")))
        elif rest.startswith("api/"):
            self._send_answer(rest.removeprefix("api/"), parts.query)
        else:
            self._send(404, b"not found\n", "text/plain; charset=utf-8")

    def _send_report(self, run: str) -> None:
        """Send the report of a run as HTML, or 404 for an unknown run."""
        try:
            html = self.server.api.report(run)
        except Problem as caught:
            self._send(404, f"{caught.diagnostics[0].message}\n".encode(), "text/plain; charset=utf-8")
        else:
            # The page itself has a further policy, which names its scripts by their hashes.
            self._send(200, html.encode("utf-8", "replace"), _HTML, "frame-ancestors 'none'")

    def _send_answer(self, name: str, query: str) -> None:
        """Send the answer to a query of the API as JSON, or an error with the status 400, 404 or 500.

        Args:
            name: Name of a method of the API, such as `runs`.
            query: The query part of the address.
        """
        call = self.server.api.calls.get(name)
        if call is None or len(query) > _LONG_QUERY:
            self._send_json(404, {"error": "unknown or too long query"})
            return
        try:
            value = call(dict(parse_qsl(query)))
        except Problem as caught:
            first = caught.diagnostics[0]
            self._send_json(400, {"error": f"{first.message}; {first.help}" if first.help else first.message})
        except Exception as caught:
            # The store may be changing, or have files of another version: the page shows the error and continues.
            self._send_json(
                500, {"error": f"this cannot be read: {type(caught).__name__}: {first_line(caught, '')}"}
            )
        else:
            self._send_json(200, value)

    def _send_json(self, status: int, value: Any) -> None:
        """Send a value as JSON with an HTTP status; infinite numbers become null."""
        data = json.dumps(finite(value), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        self._send(status, data, "application/json; charset=utf-8")

    def _send(self, status: int, data: bytes, kind: str, policy: str = _POLICY) -> None:
        """Send data with the headers of every answer, compressed if the data are large and the browser can read it.

        Args:
            status: HTTP status.
            data: Body of the answer.
            kind: Its content type.
            policy: Its content security policy.
        """
        is_packed = len(data) > _WORTH_PACKING and "gzip" in self.headers.get("Accept-Encoding", "")
        if is_packed:
            data = gzip.compress(data, 1)
        self.send_response(status)
        headers = {"Content-Security-Policy": policy, "Content-Type": kind, "Content-Length": str(len(data))}
        for name, value in (_HEADERS | headers).items():
            self.send_header(name, value)
        if is_packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, since an address contains the key."""


def read_key(path: Path) -> str:
    """Return the key for the page's address, which this user's file keeps so that links stay valid.

    If the file is missing or has no valid key, a new key is made and stored. If it cannot be stored, it is valid until the
    server stops.

    Args:
        path: The file, which only this user can read.
    """
    try:
        stored_key = path.read_text("ascii").strip()
        if len(stored_key) >= 22 and stored_key.replace("-", "").replace("_", "").isalnum():
            return stored_key
    except (OSError, ValueError):
        pass
    key = secrets.token_urlsafe(24)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(key + "\n")
    except OSError:
        pass
    return key


def key_place() -> Path:
    """Return the path of the file with this user's key: `$XDG_STATE_HOME/reodsl/view.key`."""
    return state_folder() / "view.key"
