"""A process that answers what watches and feeds servers asks, and generates nothing: arguments and a key as SGLang's."""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

HEALTHY = ("/health", "/model_info", "/server_info", "/flush_cache", "/update_weights_from_disk")


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        print(self.path, body.decode(), flush=True)
        path = self.path.partition("?")[0]
        allowed = self.headers.get("Authorization") == f"Bearer {os.environ['REODSL_SGLANG_KEY']}"
        known = path in HEALTHY and not (path == "/flush_cache" and os.path.exists(f"{model}/busy"))
        self.send_response(200 if allowed and known else 400)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"version": "0.0.1", "success": known}).encode())

    def log_message(self, *_: object) -> None:
        """Its log has what it was asked alone."""


option = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
model = option["--model-path"]
HTTPServer((option["--host"], int(option["--port"])), Answers).serve_forever()
