"""Install into the environment of a Python by uv, which reads none of pip's settings: it gets them as its variables."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "no-cache-dir": "UV_NO_CACHE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
SECTIONS = ("global", "install", ":env:")
"""Sections of pip's settings: a later one goes before."""
ELSEWHERE = ("UV_INDEX", "UV_FIND_LINKS")
"""Variables that name further places beside an index."""


def translate(listed: str) -> dict[str, str]:
    """Return the lines of `pip config list` as variables of uv."""
    found: dict[str, str] = {}
    for section in SECTIONS:
        for line in listed.splitlines():
            key, _, value = line.partition("=")
            where, _, name = key.rpartition(".")
            if where == section and name in NAMES:
                between = "," if name == "find-links" else " "
                found[NAMES[name]] = between.join(ast.literal_eval(value).split())
    return found


def main(python: str, *asked: str) -> None:
    """Install what `asked` names. A file is known by its hash, so that it does not matter which index has it."""
    pip = [sys.executable, "-P", "-m", "pip", "config", "list"]
    settings = translate(subprocess.run(pip, check=True, capture_output=True, text=True).stdout)
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", **settings, **os.environ}
    if "--default-index" in asked:
        variables = {name: value for name, value in variables.items() if name not in ELSEWHERE}
    uv = str(Path(sys.executable).with_name("uv"))
    os.execve(uv, [uv, "pip", "install", "-q", "--python", python, *asked], variables)


if __name__ == "__main__":
    main(*sys.argv[1:])
