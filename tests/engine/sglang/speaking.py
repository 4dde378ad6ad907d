"""A process in a server's place that answers at once, from its prompt and seed alone: arguments and a key as SGLang's.

The first answers of each life come at once, the others when the file `go` is in the folder of the first model. What it
was told goes to `told.jsonl` there. It ends with who started it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

VOCAB, AT_ONCE = 30, 2


def said(prompt: list[int], seed: int, count: int) -> list[int]:
    """The `count` tokens that follow a prompt: each from all before it and its seed, and none of them special."""
    tokens = list(prompt)
    for _ in range(count):
        text = f"{seed} {len(tokens)} {tokens}"
        tokens.append(5 + hashlib.sha256(text.encode()).digest()[0] % VOCAB)
    return tokens[len(prompt) :]


class Answers(BaseHTTPRequestHandler):
    """What the server below says."""

    version, answered, lock = "0", 0, threading.Lock()

    def do_GET(self) -> None:
        self.reply({"version": "0.0.1"})

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
        path = self.path.partition("?")[0]
        if path == "/update_weights_from_disk":
            Answers.version = message["weight_version"]
        if path == "/generate":
            with self.lock:
                Answers.answered += 1
                waits = Answers.answered > AT_ONCE
            while waits and not (model / "go").exists():
                time.sleep(0.02)
        self.tell(path)
        self.reply(self.generated(message) if path == "/generate" else {"success": True})

    def generated(self, message: dict[str, Any]) -> Any:
        prompts, drawing = message["input_ids"], message["sampling_params"]
        if isinstance(drawing, list):
            return [self.one(*each) for each in zip(prompts, drawing, strict=True)]
        return self.one(prompts, drawing)

    def one(self, prompt: list[int], drawing: dict[str, Any]) -> dict[str, Any]:
        tokens = said(prompt, drawing["sampling_seed"], drawing["max_new_tokens"])
        meta = {
            "output_token_logprobs": [[-1.0, token, None] for token in tokens],
            "weight_version": Answers.version,
            "finish_reason": {"type": "length"},
            "prompt_tokens": len(prompt),
            "cached_tokens": 0,
        }
        return {"output_ids": tokens, "meta_info": meta}

    def tell(self, path: str) -> None:
        with self.lock, (model / "told.jsonl").open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), "path": path, "version": Answers.version}) + "\n")

    def reply(self, answer: object) -> None:
        allowed = self.headers.get("Authorization") == f"Bearer {os.environ['REODSL_SGLANG_KEY']}"
        self.send_response(200 if allowed else 401)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Nothing is written."""


def watch() -> None:
    """Ends this process with its owner, who holds the other end of its standard input."""
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    option = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    model = Path(option["--model-path"])
    threading.Thread(target=watch, daemon=True).start()
    ThreadingHTTPServer((option["--host"], int(option["--port"])), Answers).serve_forever()
