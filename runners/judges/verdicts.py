"""Keep a judge's verdicts beside a task, so that one that goes on asks for none of them again.

A file of lines, each with the digest of what was asked, the verdict, and the tokens that it took. A line that a crash cut
off is asked for again.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

SAYS = {"yes": True, "no": False, "unclear": None}
_WORDS = {verdict: word for word, verdict in SAYS.items()}


class Verdicts:
    """Verdicts by digest: right, wrong, or None where the judge said neither. Usable from many threads."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()
        self._kept: dict[str, bool | None] = {}
        self.tokens = 0
        text = file.read_bytes().decode("ascii", "replace") if file.exists() else ""
        # The next line is a line of its own, also after one that was cut off.
        self._torn = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            try:
                said = json.loads(line)
                self._kept[str(said["asked"])] = SAYS[said["says"]]
                self.tokens += int(said["tokens"])
            except (ValueError, LookupError, TypeError, OverflowError):
                continue

    def __contains__(self, asked: str) -> bool:
        return asked in self._kept

    def __len__(self) -> int:
        """Return how many answers are right or wrong."""
        return sum(verdict is not None for verdict in self._kept.values())

    def __getitem__(self, asked: str) -> bool | None:
        return self._kept[asked]

    def keep(self, asked: str, verdict: bool | None, tokens: int) -> None:
        """Keep a verdict, in the file before anybody reads it."""
        line = json.dumps({"asked": asked, "says": _WORDS[verdict], "tokens": tokens})
        with self._lock:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="ascii") as file:
                file.write(f"\n{line}\n" if self._torn else f"{line}\n")
            self._torn = False
            self._kept[asked] = verdict
            self.tokens += tokens
