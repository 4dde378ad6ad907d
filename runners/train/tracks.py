"""Keep what a reward's tracks read from step to step: tables of earlier steps, and responses to the monitor set.

Both are on the disk before a step counts as done, so that an interrupted stage finds the values that it had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.ir.expression import MEMORY, METRIC, Correct
from reodsl.ir.reward import Reward
from reodsl.ir.training import Monitor, Ppo
from reodsl.store.files import sync
from runners.data.draws import derive_seed, permutation
from runners.machine.clock import now, time_spans
from runners.rewards.tracks import COLUMNS, track_values
from runners.rollout.questions import PromptedQuestion
from runners.train.gather import METRIC_COLUMN_PREFIX as COLUMN
from runners.train.gather import StepData, rollout_columns, rollouts_schema, score
from runners.train.metrics import join_parquet, write_parquet
from runners.train.rollouts import ANSWERS, RolloutSampler

HISTORY_COLUMNS = ["question", "tokens", "correct"]
"""The columns that a question's history keeps of its responses."""
TRACK_PREFIX = "track_"
"""The start of the names of columns of `metrics.parquet` for the values of tracks."""
MONITOR_REWARD = Reward(name="monitor", outcome=Correct(of="y"))


@dataclass(slots=True)
class Tracks:
    """The tracks of a stage's reward, and what they read of earlier steps."""

    method: Ppo
    """The settings, with the reward and its monitor."""
    sampler: RolloutSampler
    """Samples the stage's questions."""
    questions: Sequence[PromptedQuestion]
    """The stage's questions, from which the monitor set is drawn."""
    file_of: Callable[[int], Path]
    """The file of a step's rollouts, by the step's number."""
    folder: Path
    """The folder of the monitor's responses."""
    tables: dict[int, pl.DataFrame] = field(default_factory=dict)
    """The columns that tracks read of recent steps, by the step's number."""
    monitored: tuple[int, pl.DataFrame] | None = None
    """The step of the last responses to the monitor set, and those responses."""
    last: Mapping[str, float] = field(default_factory=dict)
    """The tracks' values at the last step that was made, and its metrics."""
    history: dict[str, deque[tuple[float, float]]] = field(default_factory=dict)
    """Tokens and verdict of the last `MEMORY` responses to each question, if the reward reads them."""

    def prepare(self, number: int) -> tuple[RolloutSampler, dict[str, float], dict[str, float]]:
        """Return a sampler that has the tracks' values before a step; steps come in their order.

        The monitor set is answered with the weights that the engine has.

        Args:
            number: The step, counted from 0.

        Returns:
            The sampler, the values as metrics, and the seconds that the monitor took.
        """
        reward, monitor = self.method.reward, self.method.monitor
        sampler = replace(self.sampler, history=self.history)
        if not reward.tracks:
            return sampler, {}, {}
        began, table = now(), None
        if monitor is not None and reward.monitors:
            table = self._monitored(monitor, number)
        recent = [self._table(i) for i in range(max(0, number - reward.window), number)]
        values = self.last = track_values(reward, number, recent, table, before=self.last)
        seconds = time_spans("monitor", (began, now())) if table is not None else {}
        row = {f"{TRACK_PREFIX}{name}": value for name, value in values.items()}
        return replace(sampler, tracks=values), row, seconds

    def resume(self, rows: Sequence[Mapping[str, float]], waiting: Mapping[int, StepData]) -> None:
        """Restore the state after the steps that are done, and after steps that are made but not yet trained on.

        Args:
            rows: The metrics of the steps that are done.
            waiting: The data of the steps that are made, by number.
        """
        if self.method.reward.remembers:
            for number in range(len(rows)):
                self._remember(pl.read_parquet(self.file_of(number), columns=HISTORY_COLUMNS, glob=False))
        for number, step in waiting.items():
            self.record(number, step)
        metrics = [*rows[-1:], *(step.metrics for step in waiting.values())]
        if metrics:
            self.last = {
                track.name: metrics[-1][f"{TRACK_PREFIX}{track.name}"] for track in self.method.reward.tracks
            } | _read_metrics(metrics[-1])

    def record(self, number: int, step: StepData) -> None:
        """Record the rollouts and metrics of a step, and drop rollouts that no track reads any more."""
        self.last = {**self.last, **_read_metrics(step.metrics)}
        if self.method.reward.remembers:
            self._remember(step.table)
        window = self.method.reward.window
        if window:
            self.tables[number] = step.table.select(COLUMNS)
            for old in [i for i in self.tables if i <= number - window]:
                del self.tables[old]

    def write_table(self, folder: Path, steps: int) -> None:
        """Write `monitor.parquet`: all responses to the monitor set, `step` counted as the step after them."""
        monitor = self.method.monitor
        if monitor is not None and self.method.reward.monitors:
            paths = [self._path(number) for number in range(0, steps, monitor.every)]
            join_parquet(paths, self._schema, folder / "monitor.parquet")

    @property
    def _schema(self) -> dict[str, Any]:
        """Return the columns of the monitor's responses; no reward reads those that are known only after grading."""
        return {name: kind for name, kind in rollouts_schema(self.method).items() if name not in ANSWERS}

    def _remember(self, table: pl.DataFrame) -> None:
        for question, tokens, correct in table.select(HISTORY_COLUMNS).iter_rows():
            earlier = self.history.setdefault(question, deque(maxlen=MEMORY))
            earlier.append((float(tokens), float(correct)))

    def _table(self, number: int) -> pl.DataFrame:
        if number not in self.tables:
            self.tables[number] = pl.read_parquet(self.file_of(number), columns=list(COLUMNS), glob=False)
        return self.tables[number]

    def _monitored(self, monitor: Monitor, number: int) -> pl.DataFrame:
        """Return the last responses to the monitor set before a step; sample them now if it is time."""
        last = number - number % monitor.every
        if last == number and (self.monitored is None or self.monitored[0] != number):
            table = self._answered(monitor, number)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_parquet(table, self._path(number))
            # On the disk before any standing that takes this step for done.
            sync(self._path(number))
            self.monitored = number, table
        if self.monitored is None or self.monitored[0] != last:
            self.monitored = last, pl.read_parquet(self._path(last), glob=False)
        return self.monitored[1]

    def _answered(self, monitor: Monitor, number: int) -> pl.DataFrame:
        """Sample and grade responses to the monitor set, as a table of rollouts."""
        sampler = self.sampler
        seed = derive_seed(sampler.seed, "monitor")
        chosen = permutation(derive_seed(seed, "questions"), len(self.questions))[: monitor.questions]
        wordings = sampler.wordings
        plain = replace(
            sampler,
            cut_at=(),
            generator=replace(sampler.generator, forcing=None),
            reward=MONITOR_REWARD,
            rollouts=monitor.samples,
            shared_splits=(self.method.rollout.max_tokens,),
            question_splits={},
            references={},
            functions={},
            seed=seed,
            wordings=None if wordings is None else replace(wordings, seed=seed),
        )
        graded = plain.sample([self.questions[i] for i in chosen], number)
        scored = score(graded, self.method.model_copy(update={"reward": MONITOR_REWARD}))
        columns: Mapping[str, Sequence[object]] = rollout_columns(scored, number + 1)
        return pl.DataFrame(columns, schema=self._schema)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.parquet"


def _read_metrics(row: Mapping[str, float]) -> dict[str, float]:
    """Return a step's metrics by the names that tracks have for them."""
    return {name.replace(COLUMN, METRIC, 1): value for name, value in row.items() if name.startswith(COLUMN)}
