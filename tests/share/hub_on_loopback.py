"""A hub of the interface that huggingface_hub speaks, on the loopback: one account, its token, and what was sent."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

TOKEN = "hf_never-to-be-shown"


@dataclass
class Hub:
    """What it has: repositories by name with their files, large ones by their checksum, and the commits' messages.

    From `gone` on it answers nothing, of paths that contain this text.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    private: bool | None = None
    messages: list[str] = field(default_factory=list)
    gone: str | None = None
    ended: Event = field(default_factory=Event)


@contextmanager
def hub_on_loopback() -> Iterator[Hub]:
    """A hub while the block lasts."""
    hub = Hub()

    class Answers(BaseHTTPRequestHandler):
        def answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def do_PUT(self) -> None:
            hub.large[self.path.removeprefix("/large/")] = self.body()
            self.answer(200, {})

        def do_POST(self) -> None:
            sent = self.body()
            if hub.gone is not None and hub.gone in self.path:
                hub.ended.wait(30)
                return
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer(401, {"error": "Invalid username or password."})
            elif self.path == "/api/repos/create":
                self.create(json.loads(sent))
            elif self.path == "/api/validate-yaml":
                self.answer(200, {"errors": [], "warnings": []})
            elif self.path == "/api/models/me/tiny/preupload/main":
                files = [
                    {
                        "path": each["path"],
                        "uploadMode": "lfs" if each["path"].endswith(".safetensors") else "regular",
                        "shouldIgnore": False,
                    }
                    for each in json.loads(sent)["files"]
                ]
                self.answer(200, {"files": files})
            elif self.path == "/me/tiny.git/info/lfs/objects/batch":
                upload = lambda oid: {"upload": {"href": f"{hub.url}/large/{oid}"}}  # noqa: E731
                objects = [each | {"actions": upload(each["oid"])} for each in json.loads(sent)["objects"]]
                self.answer(200, {"transfer": "basic", "objects": objects})
            elif self.path == "/api/models/me/tiny/commit/main":
                self.commit([json.loads(line) for line in sent.splitlines()])
            else:
                self.answer(404, {"error": "Repository not found"})

        def create(self, wanted: dict[str, Any]) -> None:
            owner = wanted.get("organization", "me")
            if owner == "theirs":
                self.answer(403, {"error": f"You don't have the rights to create a model under {owner}"})
            elif owner != "me":
                self.answer(404, {"error": "not found"})
            else:
                hub.private = wanted.get("visibility") == "private" or wanted.get("private")
                self.answer(200, {"url": f"{hub.url}/me/tiny", "name": "me/tiny"})

        def commit(self, lines: list[dict[str, Any]]) -> None:
            for line in lines:
                value = line["value"]
                if line["key"] == "header":
                    hub.messages.append(value["summary"])
                elif line["key"] == "file":
                    hub.files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    content = hub.large[value["oid"]]
                    assert hashlib.sha256(content).hexdigest() == value["oid"]
                    hub.files[value["path"]] = content
            self.answer(200, {"commitUrl": f"{hub.url}/me/tiny/commit/1", "commitOid": "1"})

        def log_message(self, *_: Any) -> None:
            """Nothing is written."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        hub.ended.set()
        server.shutdown()
        server.server_close()
