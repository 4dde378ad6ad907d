"""The process that holds a tracker: lines of JSON come in, and each tracker's sink gets the steps.

Nothing that a tracker does in this process reaches the run: printing, waiting for a network, forking, or ending.
"""

from __future__ import annotations

import contextvars
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

from reodsl.diagnostics import first_line
from reodsl.store.files import write_atomic

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TrackedTask:
    """A training or evaluation whose steps are sent."""

    key: str
    """Key of its result, unique to it and unchanged by a resume."""
    task: str
    study: str
    facts: Mapping[str, Any]
    folder: Path

    @property
    def name(self) -> str:
        """Return a name that is unique in the study: `vanilla.train.s1-3f9a01bc`."""
        return f"{self.task}-{self.key[:8]}"


class Sink(Protocol):
    """A tracker's run."""

    def log(self, step: int, values: Values) -> None:
        """Add a step."""

    def close(self, status: str) -> None:
        """End it: `finished`, `failed` or `interrupted`."""


class Trackio:
    """A run of trackio: local, or on the Space that `TRACKIO_SPACE_ID` names."""

    def __init__(self, opening: TrackedTask) -> None:
        import trackio

        # It ends the run that its context holds when another begins; here many go at once.
        self.run = contextvars.Context().run(
            trackio.init,
            project=opening.study,
            name=opening.name,
            group=str(opening.facts.get("arm") or ""),
            resume="allow",
            config=dict(opening.facts),
            embed=False,
        )

    def log(self, step: int, values: Values) -> None:
        """Add a step."""
        self.run.log(dict(values), step=step)

    def close(self, status: str) -> None:
        """End it."""
        self.run.finish()


class Wandb:
    """A run of Weights & Biases, whose id is the result's key."""

    def __init__(self, opening: TrackedTask) -> None:
        import wandb

        offline = os.environ.get("WANDB_MODE") in ("offline", "dryrun", "disabled")
        if not offline and not wandb.api.api_key:
            raise RuntimeError("nobody is logged in: `wandb login`, or WANDB_MODE=offline")
        self.run = wandb.init(
            project=opening.study,
            id=opening.key[:32],
            name=opening.task,
            group=str(opening.facts.get("arm") or "") or None,
            config=dict(opening.facts),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def log(self, step: int, values: Values) -> None:
        """Add a step."""
        self.run.log(dict(values), step=step)

    def close(self, status: str) -> None:
        """End it."""
        self.run.finish(exit_code=0 if status == "finished" else 1)


class Tensorboard:
    """Event files in `tensorboard/STUDY/TASK-KEY` of the store; a resumed training adds a file beside the first."""

    def __init__(self, opening: TrackedTask) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.event, self.summary = Event, Summary
        self.writer = EventFileWriter(str(opening.folder), flush_secs=5)

    def log(self, step: int, values: Values) -> None:
        """Add a step."""
        scalars = [self.summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self.writer.add_event(
            self.event(wall_time=time.time(), step=step, summary=self.summary(value=scalars))
        )

    def close(self, status: str) -> None:
        """End it."""
        self.writer.close()


SINKS: Mapping[str, Callable[[TrackedTask], Sink]] = {
    "trackio": Trackio,
    "wandb": Wandb,
    "tensorboard": Tensorboard,
}


class OpenRun:
    """A tracker's run and the last step that it has. The file `state` keeps that step for a resume."""

    def __init__(self, sink: Sink, state: Path) -> None:
        """Load the last step from the file `state`, after which steps are sent."""
        self.sink, self.state = sink, state
        try:
            self.last = int(state.read_text())
        except (OSError, ValueError):
            self.last = -1

    def log(self, rows: Iterable[Mapping[str, float]]) -> None:
        """Send the steps that are new.

        Args:
            rows: metrics of each step.
        """
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
    lines: Iterable[str], open_sink: Callable[[TrackedTask], Sink], say: Callable[[dict[str, Any]], None]
) -> None:
    """Execute the lines until they end; a run's failure is reported once, and its further lines are skipped."""
    runs: dict[str, OpenRun] = {}
    for line in lines:
        order = json.loads(line)
        key = order["key"]
        try:
            if order["do"] == "open":
                opening = TrackedTask(
                    key, order["task"], order["study"], order["facts"], Path(order["folder"])
                )
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
    for run in runs.values():
        try:
            run.sink.close("interrupted")
        except Exception as caught:
            say({"task": "", "failed": f"{type(caught).__name__}: {first_line(caught, '')}"})


def main(name: str) -> None:
    """Hold the tracker `name`. Its prints are discarded; failures go to the stream that was standard output."""
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
