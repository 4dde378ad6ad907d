"""A terminal of so many columns: what is written to it in; the lines that a person sees on it out."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_PART = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\x1b.|[\s\S]")


class Screen:
    """The lines of a terminal that wraps what is too long, and knows the few movements that programs here make."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.cells: list[list[str]] = [[]]
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        for part in _PART.finditer(text):
            self._one(part)

    def lines(self) -> str:
        shown = ["".join(row).rstrip() for row in self.cells]
        return "\n".join(shown).rstrip("\n") + "\n"

    def _one(self, part: re.Match[str]) -> None:
        whole, number, letter = part[0], part[1], part[2]
        if letter == "A":
            self.row = max(0, self.row - int(number or 1))
        elif letter == "K":
            self.cells[self.row] = [] if number == "2" else self.cells[self.row][: self.column]
        elif letter is not None or whole.startswith("\x1b"):
            assert letter in (None, "m", "h", "l"), f"a movement that no test knows: {whole!r}"
        elif whole == "\r":
            self.column = 0
        elif whole == "\n":
            self.row, self.column = self.row + 1, 0
        else:
            self._put(whole)
        while len(self.cells) <= self.row:
            self.cells.append([])

    def _put(self, char: str) -> None:
        if self.column == self.columns:
            self.row, self.column = self.row + 1, 0
            while len(self.cells) <= self.row:
                self.cells.append([])
        line = self.cells[self.row]
        line.extend(" " * (self.column + 1 - len(line)))
        line[self.column] = char
        self.column += 1


@contextmanager
def terminal(columns: int, lines: int = 24) -> Iterator[tuple[TextIO, Screen]]:
    """A pseudo-terminal of that size to write to, and its screen, which is whole once the block has ended."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    screen = Screen(columns)
    heard: list[bytes] = []

    def listen() -> None:
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                return
            if not part:
                return
            heard.append(part)

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as file:
            yield file, screen
            file.flush()
    finally:
        listener.join(10)
        os.close(ours)
    screen.feed(b"".join(heard).decode())
