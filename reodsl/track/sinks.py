"""A sink for each tracker: a training's steps in one run, which a resumed training continues.

Each is opened in a process of its own (`worker`), and may fail there in whatever way it likes.
"""

from __future__ import annotations

import contextvars
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Opening:
    """A training or evaluation whose steps come. `key` is that of its result: the same after a resume, and no other's."""

    key: str
    task: str
    study: str
    facts: Mapping[str, Any]
    folder: Path

    @property
    def name(self) -> str:
        """Unique among the study's: `vanilla.train.s1-3f9a01bc`."""
        return f"{self.task}-{self.key[:8]}"


class Sink(Protocol):
    """A tracker's run."""

    def log(self, step: int, values: Values) -> None:
        """Add a step."""

    def close(self, status: str) -> None:
        """End it: `finished`, `failed` or `interrupted`."""


class Trackio:
    """A run of trackio: local, or on the Space that `TRACKIO_SPACE_ID` names."""

    def __init__(self, opening: Opening) -> None:
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

    def __init__(self, opening: Opening) -> None:
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


class Mlflow:
    """A run of MLflow, found again by the tag `reodsl.key`; where it is kept, `MLFLOW_TRACKING_URI` says."""

    def __init__(self, opening: Opening) -> None:
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        self.client, self.metric = MlflowClient(), Metric
        experiment = self.client.get_experiment_by_name(opening.study)
        experiment_id = (
            experiment.experiment_id
            if experiment is not None
            else self.client.create_experiment(opening.study)
        )
        before = self.client.search_runs(
            [experiment_id], f"tags.`reodsl.key` = '{opening.key}'", max_results=1
        )
        if before:
            self.id = before[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
        else:
            tags = {f"reodsl.{name}": str(value) for name, value in opening.facts.items() if name != "stage"}
            tags["reodsl.key"] = opening.key
            self.id = self.client.create_run(experiment_id, run_name=opening.task, tags=tags).info.run_id

    def log(self, step: int, values: Values) -> None:
        """Add a step."""
        now = int(1000 * time.time())
        self.client.log_batch(
            self.id, [self.metric(name, value, now, step) for name, value in values.items()]
        )

    def close(self, status: str) -> None:
        """End it."""
        ends = {"finished": "FINISHED", "failed": "FAILED"}
        self.client.set_terminated(self.id, ends.get(status, "KILLED"))


class Tensorboard:
    """Event files in `tensorboard/STUDY/TASK-KEY` of the store; a resumed training adds a file beside the first."""

    def __init__(self, opening: Opening) -> None:
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


SINKS: Mapping[str, Callable[[Opening], Sink]] = {
    "trackio": Trackio,
    "wandb": Wandb,
    "mlflow": Mlflow,
    "tensorboard": Tensorboard,
}
