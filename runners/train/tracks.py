"""The tracks of a reward: statistics over earlier steps and over responses to the monitor set, a fixed set of questions.

The tables that tracks read are on the disk before a step counts as finished, so that an interrupted stage continues with
the same values.
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
from runners.train.losses import step_numbers
from runners.train.metrics import join_parquet, write_parquet
from runners.train.rollouts import ANSWERS, RolloutSampler

HISTORY_COLUMNS = ["question", "tokens", "correct"]
"""The columns of the rollouts that become a question's history."""
TRACK_PREFIX = "track_"
"""The start of the names of columns of `metrics.parquet` for the values of tracks."""
MONITOR_REWARD = Reward(name="monitor", outcome=Correct(of="y"))


@dataclass(slots=True)
class Tracks:
    """The values of a reward's tracks, and the tables and histories of earlier steps from which they are computed."""

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
    """The step at which the monitor set was last answered, and the table of its responses."""
    last: Mapping[str, float] = field(default_factory=dict)
    """The values of tracks at the last prepared step, and the metrics of the last recorded step."""
    history: dict[str, deque[tuple[float, float]]] = field(default_factory=dict)
    """Tokens and verdict of the last `MEMORY` responses to each question, if the reward reads them."""

    def prepare(self, step: int) -> tuple[RolloutSampler, dict[str, float], dict[str, float]]:
        """Compute the tracks' values for a step, and return a sampler with them; call it for each step in order.

        A temperature that is a track is the sampler's.

        Every `monitor.every` steps, responses to the monitor set are sampled first, with the engine's current weights.
        This happens only if the reward reads them.

        Args:
            step: The step, counted from 0.

        Returns:
            The sampler, the values of tracks as metrics, and the seconds that the monitor took.
        """
        reward, monitor = self.method.reward, self.method.monitor
        sampler = replace(self.sampler, history=self.history)
        if not reward.tracks:
            return sampler, {}, {}
        start, monitor_table = now(), None
        if monitor is not None and reward.monitors:
            monitor_table = self._monitor_table(monitor, step)
        recent = [self._step_table(i) for i in range(max(0, step - reward.window), step)]
        values = self.last = track_values(reward, step, recent, monitor_table, previous=self.last)
        seconds = time_spans("monitor", (start, now())) if monitor_table is not None else {}
        row = {f"{TRACK_PREFIX}{name}": value for name, value in values.items()}
        sampler = replace(sampler, tracks=values)
        if self.method.temperature is not None:
            numbers = step_numbers(self.method, row, ("temperature",))
            heat = replace(sampler.generator.sampling, temperature=numbers["temperature"])
            sampler = replace(sampler, generator=replace(sampler.generator, sampling=heat))
        return sampler, row, seconds

    def resume(self, rows: Sequence[Mapping[str, float]], waiting: Mapping[int, StepData]) -> None:
        """Restore the state after the finished steps and after the steps that were sampled but not yet trained on.

        Args:
            rows: The metrics of the finished steps.
            waiting: The data of the sampled steps, by step number.
        """
        if self.method.reward.remembers:
            for step in range(len(rows)):
                self._remember(pl.read_parquet(self.file_of(step), columns=HISTORY_COLUMNS, glob=False))
        for step, data in waiting.items():
            self.record(step, data)
        metrics = [*rows[-1:], *(data.metrics for data in waiting.values())]
        if metrics:
            self.last = {
                track.name: metrics[-1][f"{TRACK_PREFIX}{track.name}"] for track in self.method.reward.tracks
            } | _read_metrics(metrics[-1])

    def record(self, step: int, data: StepData) -> None:
        """Record a sampled step's rollouts and metrics, and drop tables of steps that no track reads any more.

        Only what the reward reads is recorded: each question's history, and tables of the last `window` steps.
        """
        self.last = {**self.last, **_read_metrics(data.metrics)}
        if self.method.reward.remembers:
            self._remember(data.table)
        window = self.method.reward.window
        if window:
            self.tables[step] = data.table.select(COLUMNS)
            for old_step in [i for i in self.tables if i <= step - window]:
                del self.tables[old_step]

    def write_table(self, folder: Path, steps: int) -> None:
        """Write `monitor.parquet`, all responses to the monitor set.

        Args:
            folder: The folder of the file.
            steps: The number of finished steps. The column `step` counts from 1: responses before the first step have
                1.
        """
        monitor = self.method.monitor
        if monitor is not None and self.method.reward.monitors:
            paths = [self._path(step) for step in range(0, steps, monitor.every)]
            join_parquet(paths, self._schema, folder / "monitor.parquet")

    @property
    def _schema(self) -> dict[str, Any]:
        """Return the columns of the monitor's table: those of rollouts, without whether a response has an answer."""
        return {name: kind for name, kind in rollouts_schema(self.method).items() if name not in ANSWERS}

    def _remember(self, table: pl.DataFrame) -> None:
        """Add the responses of a step's table to the histories of their questions."""
        for question, tokens, correct in table.select(HISTORY_COLUMNS).iter_rows():
            earlier = self.history.setdefault(question, deque(maxlen=MEMORY))
            earlier.append((float(tokens), float(correct)))

    def _step_table(self, step: int) -> pl.DataFrame:
        """Return the columns that tracks read of an earlier step's rollouts, from memory or from the disk."""
        if step not in self.tables:
            self.tables[step] = pl.read_parquet(self.file_of(step), columns=list(COLUMNS), glob=False)
        return self.tables[step]

    def _monitor_table(self, monitor: Monitor, step: int) -> pl.DataFrame:
        """Return the latest responses to the monitor set at a step.

        New responses are sampled, and written to the disk, if the step is a multiple of `monitor.every` and they are
        not in memory yet. Otherwise the last responses come from memory or from the disk.
        """
        last_step = step - step % monitor.every
        if last_step == step and (self.monitored is None or self.monitored[0] != step):
            table = self._answer_monitor(monitor, step)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_parquet(table, self._path(step))
            # The file must be on the disk before a saved state counts this step as finished.
            sync(self._path(step))
            self.monitored = step, table
        if self.monitored is None or self.monitored[0] != last_step:
            self.monitored = last_step, pl.read_parquet(self._path(last_step), glob=False)
        return self.monitored[1]

    def _answer_monitor(self, monitor: Monitor, step: int) -> pl.DataFrame:
        """Sample and grade responses to the monitor set, and return them as a table of rollouts.

        The stage's seed determines the questions. The seed and the step determine the random numbers of responses. No
        answers are forced.
        """
        sampler = self.sampler
        seed = derive_seed(sampler.seed, "monitor")
        chosen = permutation(derive_seed(seed, "questions"), len(self.questions))[: monitor.questions]
        wordings = sampler.wordings
        monitor_sampler = replace(
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
        graded = monitor_sampler.sample([self.questions[i] for i in chosen], step)
        scored = score(graded, self.method.model_copy(update={"reward": MONITOR_REWARD}))
        columns: Mapping[str, Sequence[object]] = rollout_columns(scored, step + 1)
        return pl.DataFrame(columns, schema=self._schema)

    def _path(self, step: int) -> Path:
        """Return the file of the monitor's responses before a step."""
        return self.folder / f"{step:08d}.parquet"


def _read_metrics(row: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that the reward defines from a row of metrics, by the names that tracks use."""
    return {name.replace(COLUMN, METRIC, 1): value for name, value in row.items() if name.startswith(COLUMN)}
