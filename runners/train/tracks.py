"""Keep what a reward's tracks look at from step to step: tables of steps before, and responses to the monitor set.

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
from runners.machine.clock import now, spent
from runners.rewards.tracks import COLUMNS, track_values
from runners.rollout.questions import AskedQuestion
from runners.train.gather import METRIC as COLUMN
from runners.train.gather import StepData, rollout_columns, rollouts_schema, score
from runners.train.metrics import join_parquet, write_parquet
from runners.train.rollouts import GRADED, RolloutSampler

REMEMBERED = ("question", "tokens", "correct")
"""The columns that are remembered of a question's responses."""
PREFIX = "track_"
"""The start of the names of columns of `metrics.parquet` for the values of tracks."""
PLAIN = Reward(name="monitor", outcome=Correct(of="y"))


@dataclass(slots=True)
class Tracks:
    """The tracks of a stage's reward. `part(n)` is the file of step n's rollouts, `folder` where the monitor's are kept.

    `last` are their values at the last step that was made, and its metrics. `history` are the lengths and verdicts of each
    question's responses in the steps that were made, the last `MEMORY` of them, if the reward reads them.
    """

    method: Ppo
    sampler: RolloutSampler
    questions: Sequence[AskedQuestion]
    part: Callable[[int], Path]
    folder: Path
    tables: dict[int, pl.DataFrame] = field(default_factory=dict)
    asked: tuple[int, pl.DataFrame] | None = None
    last: Mapping[str, float] = field(default_factory=dict)
    history: dict[str, deque[tuple[float, float]]] = field(default_factory=dict)

    def at(self, number: int) -> tuple[RolloutSampler, dict[str, float], dict[str, float]]:
        """Return a sampler that knows the values before step `number` (from 0), these as metrics, and the seconds it took.

        The monitor set is answered by the weights that the engine has. Steps come in their order.
        """
        reward, monitor = self.method.reward, self.method.monitor
        sampler = replace(self.sampler, history=self.history)
        if not reward.tracks:
            return sampler, {}, {}
        began, table = now(), None
        if monitor is not None and reward.monitors:
            table = self._monitored(monitor, number)
        recent = [self._table(each) for each in range(max(0, number - reward.window), number)]
        values = self.last = track_values(reward, number, recent, table, before=self.last)
        seconds = spent("monitor", (began, now())) if table is not None else {}
        row = {f"{PREFIX}{name}": value for name, value in values.items()}
        return replace(sampler, tracks=values), row, seconds

    def resume(self, rows: Sequence[Mapping[str, float]], waiting: Mapping[int, StepData]) -> None:
        """Take up what was known after the steps with these metrics, and those that wait for their turn."""
        if self.method.reward.remembers:
            for number in range(len(rows)):
                self._remember(pl.read_parquet(self.part(number), columns=list(REMEMBERED), glob=False))
        for number, step in waiting.items():
            self.keep(number, step)
        metrics = [*rows[-1:], *(step.metrics for step in waiting.values())]
        if metrics:
            self.last = {
                each.name: metrics[-1][f"{PREFIX}{each.name}"] for each in self.method.reward.tracks
            } | _read_metrics(metrics[-1])

    def keep(self, number: int, step: StepData) -> None:
        """Keep the rollouts and metrics of a step, and drop rollouts that no track looks at any more."""
        self.last = {**self.last, **_read_metrics(step.metrics)}
        if self.method.reward.remembers:
            self._remember(step.table)
        window = self.method.reward.window
        if window:
            self.tables[number] = step.table.select(COLUMNS)
            for old in [each for each in self.tables if each <= number - window]:
                del self.tables[old]

    def write_table(self, folder: Path, steps: int) -> None:
        """Write `monitor.parquet`: all responses to the monitor set, `step` counted as the step after them."""
        monitor = self.method.monitor
        if monitor is not None and self.method.reward.monitors:
            paths = [self._path(number) for number in range(0, steps, monitor.every)]
            join_parquet(paths, self._schema, folder / "monitor.parquet")

    @property
    def _schema(self) -> dict[str, Any]:
        """Return the columns of the monitor's responses, of which no reward reads what is known once they are graded."""
        return {name: kind for name, kind in rollouts_schema(self.method).items() if name not in GRADED}

    def _remember(self, table: pl.DataFrame) -> None:
        for question, tokens, correct in table.select(REMEMBERED).iter_rows():
            earlier = self.history.setdefault(question, deque(maxlen=MEMORY))
            earlier.append((float(tokens), float(correct)))

    def _table(self, number: int) -> pl.DataFrame:
        if number not in self.tables:
            self.tables[number] = pl.read_parquet(self.part(number), columns=list(COLUMNS), glob=False)
        return self.tables[number]

    def _monitored(self, monitor: Monitor, number: int) -> pl.DataFrame:
        """Return the last responses to the monitor set before a step; make them now if it is time."""
        last = number - number % monitor.every
        if last == number and (self.asked is None or self.asked[0] != number):
            table = self._answered(monitor, number)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_parquet(table, self._path(number))
            # On the disk before any standing that takes this step for done.
            sync(self._path(number))
            self.asked = number, table
        if self.asked is None or self.asked[0] != last:
            self.asked = last, pl.read_parquet(self._path(last), glob=False)
        return self.asked[1]

    def _answered(self, monitor: Monitor, number: int) -> pl.DataFrame:
        sampler = self.sampler
        seed = derive_seed(sampler.seed, "monitor")
        chosen = permutation(derive_seed(seed, "questions"), len(self.questions))[: monitor.questions]
        wordings = sampler.wordings
        plain = replace(
            sampler,
            cut_at=(),
            generator=replace(sampler.generator, forcing=None),
            reward=PLAIN,
            rollouts=monitor.samples,
            places=(self.method.rollout.max_tokens,),
            own_places={},
            references={},
            functions={},
            seed=seed,
            wordings=None if wordings is None else replace(wordings, seed=seed),
        )
        graded = plain.sample([self.questions[i] for i in chosen], number)
        scored = score(graded, self.method.model_copy(update={"reward": PLAIN}))
        columns: Mapping[str, Sequence[object]] = rollout_columns(scored, number + 1)
        return pl.DataFrame(columns, schema=self._schema)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.parquet"


def _read_metrics(row: Mapping[str, float]) -> dict[str, float]:
    """Return a step's metrics by the names that tracks have for them."""
    return {name.replace(COLUMN, METRIC, 1): value for name, value in row.items() if name.startswith(COLUMN)}
