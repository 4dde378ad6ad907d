"""The process of a tracker: it reads orders as lines of JSON from stdin, and sends steps to the tracker.

A tracker may print, wait for a network, fork or end its process without an effect on the run.
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
    """Key of the task's result, which a resumed attempt has as well."""
    task: str
    """Name of the task."""
    study: str
    """Name of the study."""
    facts: Mapping[str, Any]
    """Configuration that the tracker shows, such as arm, seed and settings of the stage."""
    folder: Path
    """Folder for trackers that write files."""

    @property
    def name(self) -> str:
        """Return a name that is unique in the study: `vanilla.train.s1-3f9a01bc`."""
        return f"{self.task}-{self.key[:8]}"


class Sink(Protocol):
    """A run of a tracker, which receives the steps of a task."""

    def log(self, step: int, values: Values) -> None:
        """Send a step with its metrics by name."""

    def close(self, status: str) -> None:
        """End the run with a status: `finished`, `failed` or `interrupted`."""


class Trackio:
    """A run of trackio: local, or on the Space that `TRACKIO_SPACE_ID` names."""

    def __init__(self, task: TrackedTask) -> None:
        """Begin the run of a task, or continue the run of an earlier attempt."""
        import trackio

        # trackio ends the run in its context when another begins; a context for each allows several runs at once.
        self.run = contextvars.Context().run(
            trackio.init,
            project=task.study,
            name=task.name,
            group=str(task.facts.get("arm") or ""),
            resume="allow",
            config=dict(task.facts),
            embed=False,
        )

    def log(self, step: int, values: Values) -> None:
        """Add the metrics of a step to the run, by name."""
        self.run.log(dict(values), step=step)

    def close(self, status: str) -> None:
        """End the run; trackio has no status of a run, so `status` is not used."""
        self.run.finish()


class Wandb:
    """A run of Weights & Biases, whose id is the result's key."""

    def __init__(self, task: TrackedTask) -> None:
        """Begin the run of a task, or continue the run of an earlier attempt at the task.

        Raises:
            RuntimeError: nobody is logged in, and the environment does not choose the offline mode.
        """
        import wandb

        offline = os.environ.get("WANDB_MODE") in ("offline", "dryrun", "disabled")
        if not offline and not wandb.api.api_key:
            raise RuntimeError("nobody is logged in: `wandb login`, or WANDB_MODE=offline")
        self.run = wandb.init(
            project=task.study,
            id=task.key[:32],
            name=task.task,
            group=str(task.facts.get("arm") or "") or None,
            config=dict(task.facts),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def log(self, step: int, values: Values) -> None:
        """Add the metrics of a step to the run, by name."""
        self.run.log(dict(values), step=step)

    def close(self, status: str) -> None:
        """End the run, which is shown as failed if the status is not `finished`."""
        self.run.finish(exit_code=0 if status == "finished" else 1)


class Tensorboard:
    """The event files of a task in `tensorboard/STUDY/TASK-KEY` of the store; a resumed training adds a file."""

    def __init__(self, task: TrackedTask) -> None:
        """Open an event file in the task's folder."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.event, self.summary = Event, Summary
        self.writer = EventFileWriter(str(task.folder), flush_secs=5)

    def log(self, step: int, values: Values) -> None:
        """Add the metrics of a step to the run, by name."""
        scalars = [self.summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self.writer.add_event(
            self.event(wall_time=time.time(), step=step, summary=self.summary(value=scalars))
        )

    def close(self, status: str) -> None:
        """Close the event file; TensorBoard has no status of a run, so `status` is not used."""
        self.writer.close()


SINKS: Mapping[str, Callable[[TrackedTask], Sink]] = {
    "trackio": Trackio,
    "wandb": Wandb,
    "tensorboard": Tensorboard,
}


class OpenRun:
    """A tracker's run of a task, with the last step that the tracker has received.

    The file `state` keeps the number of that step, so that a resumed training sends only later steps.
    """

    def __init__(self, sink: Sink, state: Path) -> None:
        """Read the last step that the tracker has received.

        Args:
            sink: The tracker's run.
            state: File with the number of the last step; if it is missing, all steps will be sent.
        """
        self.sink, self.state = sink, state
        try:
            self.last = int(state.read_text())
        except (OSError, ValueError):
            self.last = -1

    def log(self, rows: Iterable[Mapping[str, float]]) -> None:
        """Send the steps after the last sent step.

        Args:
            rows: Metrics of each step by name, with `step`; values that are not finite numbers are left out.
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
            # The training may end at the same time, which removes the work folder.
            with suppress(OSError):
                write_atomic(self.state, str(self.last).encode())


def work(
    lines: Iterable[str], make_sink: Callable[[TrackedTask], Sink], report: Callable[[dict[str, Any]], None]
) -> None:
    """Execute orders until the lines end, then close all open runs of the tracker as `interrupted`.

    If an order fails, the failure is reported, and further orders for the same run are skipped.

    Args:
        lines: Orders as JSON: `open`, `log` or `close` a run, which the key of a result names.
        make_sink: Function that begins a tracker's run for a task.
        report: Function that receives failures, each with the task and a message.
    """
    runs: dict[str, OpenRun] = {}
    for line in lines:
        order = json.loads(line)
        key = order["key"]
        try:
            if order["do"] == "open":
                tracked_task = TrackedTask(
                    key, order["task"], order["study"], order["facts"], Path(order["folder"])
                )
                runs[key] = OpenRun(make_sink(tracked_task), Path(order["state"]))
            elif order["do"] == "log" and key in runs:
                runs[key].log(order["rows"])
            elif order["do"] == "close" and key in runs:
                runs.pop(key).sink.close(order["status"])
        except Exception as caught:
            runs.pop(key, None)
            report(
                {
                    "task": order.get("task", ""),
                    "failed": f"{type(caught).__name__}: {first_line(caught, '')}",
                }
            )
    for run in runs.values():
        try:
            run.sink.close("interrupted")
        except Exception as caught:
            report({"task": "", "failed": f"{type(caught).__name__}: {first_line(caught, '')}"})


def main(name: str) -> None:
    """Execute orders from stdin for the tracker `name`, and write failures to stdout as lines of JSON.

    What the tracker itself prints is discarded.
    """
    failures: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null_device = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null_device, stream)

    def report(facts: dict[str, Any]) -> None:
        failures.write(json.dumps(facts) + "\n")
        failures.flush()

    work(sys.stdin, SINKS[name], report)


if __name__ == "__main__":
    main(sys.argv[1])
