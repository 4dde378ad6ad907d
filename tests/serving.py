"""A model on the loopback for tests: a server in this process that says what a test wants it to say."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Says = Callable[[dict[str, Any]], dict[str, Any] | tuple[int, Any] | bytes]
"""What the server sends for a request: a completion, a status with its body, or bytes."""


@dataclass
class Served:
    """A server's address and the requests that it had, with their headers."""

    address: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    together: int = 0


@contextmanager
def served(says: Says, headers: dict[str, str] | None = None, models: bytes = b"none") -> Iterator[Served]:
    """A server that says `says(request)`, and `models` to whoever asks for its models."""
    lock, busy = threading.Lock(), [0]
    seen = Served("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                seen.requests.append(json.loads(body))
                seen.headers.append(dict(self.headers))
                busy[0] += 1
                seen.together = max(seen.together, busy[0])
            known = self.path == "/v1/completions"
            said = says(json.loads(body)) if known else (404, "no such path")
            status, message = said if isinstance(said, tuple) else (200, said)
            data = message if isinstance(message, bytes) else json.dumps(message).encode()
            with lock:
                busy[0] -= 1
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(models)))
            self.end_headers()
            self.wfile.write(models if self.path == "/v1/models" else b" " * len(models))

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    seen.address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        server.server_close()
