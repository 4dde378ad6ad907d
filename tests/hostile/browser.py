"""A real browser on one page: a file in; what its scripts did, what it asked of the network and what it refused out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 60.0


def find() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser that is spoken to over a pair of pipes (the DevTools protocol); `events` are what it told unasked."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer = b""
        self._sent = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a method."""
        self._sent += 1
        own: dict[str, Any] = {"id": self._sent, "method": method, "params": params}
        if self._session is not None:
            own["sessionId"] = self._session
        os.write(self._write, json.dumps(own).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == own["id"]:
                assert "error" not in message, message["error"]
                found: dict[str, Any] = message["result"]
                return found
            self.events.append(message)

    def open(self, page: Path) -> None:
        """Load a page and wait until it is there."""
        self.visit(page.resolve().as_uri())

    def visit(self, address: str) -> None:
        """Load an address anew and wait until it is there."""
        if self._session is None:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        scheme = address.partition(":")[0]
        end = time.monotonic() + SECONDS
        while self.value("document.readyState + location.protocol") != f"complete{scheme}:":
            assert time.monotonic() < end, "the page did not load"
            time.sleep(0.1)

    def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Make the window so large, and its colours light or dark."""
        if self._session is None:
            self.visit("about:blank")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> Any:
        """What an expression comes to on the page; promises are waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def asked(self) -> list[str]:
        """The addresses that were asked for."""
        sent = [each for each in self.events if each.get("method") == "Network.requestWillBeSent"]
        return [each["params"]["request"]["url"] for each in sent]

    def complaints(self) -> list[str]:
        """Uncaught errors of scripts, and errors that the browser logged, such as refusals by the page's policy."""
        found = []
        for each in self.events:
            if each.get("method") == "Runtime.exceptionThrown":
                found.append(str(each["params"]["exceptionDetails"]))
            elif each.get("method") == "Log.entryAdded" and each["params"]["entry"]["level"] == "error":
                found.append(str(each["params"]["entry"]["text"]))
        return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 2**16)
            assert part, "the browser ended"
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\0", 1)
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def running(path: str, profile: Path) -> Iterator[Browser]:
    """The browser at `path`, without a window, ended with the block."""
    to_browser, ours_out = os.pipe()
    ours_in, from_browser = os.pipe()
    # It reads from descriptor 3 and writes to 4.
    command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
    process = subprocess.Popen(
        ["bash", "-c", command, path, *flags, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for end in (to_browser, from_browser):
        os.close(end)
    try:
        yield Browser(ours_in, ours_out)
    finally:
        for end in (ours_in, ours_out):
            os.close(end)
        process.terminate()
        process.wait(timeout=30)
