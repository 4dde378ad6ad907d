"""The process that holds a tracker: lines of JSON come in, steps go to the tracker.

It stands apart from the run, so that nothing a tracker does reaches it: printing, waiting for a network, forking, or ending.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from reodsl.diagnostics import first_line
from reodsl.store.files import write_atomic
from reodsl.track.sinks import SINKS, Opening, Sink


class OpenRun:
    """A tracker's run and the last step that it has. The file `state` keeps that step for a resume."""

    def __init__(self, sink: Sink, state: Path) -> None:
        """Continue after the step that the file `state` names."""
        self.sink, self.state = sink, state
        try:
            self.last = int(state.read_text())
        except (OSError, ValueError):
            self.last = -1

    def log(self, rows: Iterable[Mapping[str, float]]) -> None:
        """Add the steps that are new."""
        for row in rows:
            step = int(row["step"])
            if step <= self.last:
                continue
            values = {
                name: float(value)
                for name, value in row.items()
                if name != "step" and isinstance(value, (int, float)) and math.isfinite(value)
            }
            self.sink.log(step, values)
            self.last = step
        if self.state.parent.is_dir():
            # The training may end meanwhile, and its work folder with it.
            with suppress(OSError):
                write_atomic(self.state, str(self.last).encode())


def work(
    lines: Iterable[str], open_sink: Callable[[Opening], Sink], say: Callable[[dict[str, Any]], None]
) -> None:
    """Do what the lines say until they end. What fails is said once a run; its other lines are passed over."""
    runs: dict[str, OpenRun] = {}
    for line in lines:
        order = json.loads(line)
        key = order["key"]
        try:
            if order["do"] == "open":
                opening = Opening(key, order["task"], order["study"], order["facts"], Path(order["folder"]))
                runs[key] = OpenRun(open_sink(opening), Path(order["state"]))
            elif order["do"] == "log" and key in runs:
                runs[key].log(order["rows"])
            elif order["do"] == "close" and key in runs:
                runs.pop(key).sink.close(order["status"])
        except Exception as caught:
            runs.pop(key, None)
            say(
                {
                    "task": order.get("task", ""),
                    "failed": f"{type(caught).__name__}: {first_line(caught, '')}",
                }
            )
    for each in runs.values():
        try:
            each.sink.close("interrupted")
        except Exception as caught:
            say({"task": "", "failed": f"{type(caught).__name__}: {first_line(caught, '')}"})


def main(name: str) -> None:
    """Hold the tracker `name`. What it prints goes nowhere; what fails is said on the stream that was standard output."""
    out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)

    def say(facts: dict[str, Any]) -> None:
        out.write(json.dumps(facts) + "\n")
        out.flush()

    work(sys.stdin, SINKS[name], say)


if __name__ == "__main__":
    main(sys.argv[1])
