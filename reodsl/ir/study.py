"""Studies: arms that are evaluated alike, frontiers over some of them, scores, and the report."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_serializer, model_validator

from reodsl.ir.base import IR, without_unsaid
from reodsl.ir.cluster import Cluster
from reodsl.ir.data import Data
from reodsl.ir.model import Forcing, Wording
from reodsl.ir.settings import studies as studies_settings
from reodsl.ir.training import FromTraining, Sampling, Start

Engine = Literal["embedded", "sglang"]


class Benchmark(IR):
    """Named evaluation questions."""

    name: str
    data: Data


class Suite(studies_settings.Suite, IR):
    """How a checkpoint is evaluated: `samples` responses a question, forced at each budget of `grid`.

    `grid` holds whole tokens from 0 up; accuracy and length are those of whole responses up to `rollout.max_tokens`;
    REG integrates up to `reg_to`. A suite of accuracy alone has no `forcing`, and its grid is the longest response: no
    response goes on there. `expected_length`, in tokens, is for pricing alone.
    """

    presentation = frozenset({"name"})
    name: str
    benchmarks: tuple[Benchmark, ...]
    rollout: Sampling
    forcing: Forcing | None = None
    wording: Wording | None = None


class Arm(IR):
    """A checkpoint with a name, evaluated on a suite."""

    name: str
    checkpoint: Start
    suite: Suite

    @property
    def trained(self) -> bool:
        """Whether any training leads to this arm."""
        return isinstance(self.checkpoint, FromTraining)


class PublishedCurve(studies_settings.PublishedFrontier, studies_settings.PublishedCurve, IR):
    """A frontier as printed on one benchmark, or in older runs on a mean of several."""

    benchmark: str


class Frontier(IR):
    """The best of the arms `of` at each budget and benchmark; or, with `published`, curves given as numbers."""

    name: str
    of: tuple[str, ...] = ()
    to: int
    published: tuple[PublishedCurve, ...] = ()


class Score(studies_settings.Reg, IR):
    """REG of every arm against a frontier up to `to` tokens; differences are from the arm `relative_to`.

    Intervals are over seeds and questions, at `confidence`. `misfits` are why the frontier does not fit, where the spec
    allows that.
    """

    later = frozenset({"misfits"})
    _dump = model_serializer(mode="wrap")(without_unsaid)
    frontier: str
    misfits: tuple[str, ...] = ()
    relative_to: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_older_runs(cls, value: Any) -> Any:
        """Leave out `resamples`, which compiled specs had while intervals were those of a bootstrap."""
        if isinstance(value, dict):
            return {key: each for key, each in value.items() if key != "resamples"}
        return value


class PublishedRow(studies_settings.Row, IR):
    """A row as printed: one number for each benchmark of its table, or none of a measure that it does not give.

    Named as the arm that it is compared with; `title` is its name in print. `accuracy` holds shares, `length` and `reg`
    tokens, `reg_change` the change of REG from the table's `relative_to`, as a share.
    """

    name: str
    accuracy: tuple[float, ...] = ()
    length: tuple[float, ...] = ()
    reg: tuple[float, ...] = ()
    reg_change: tuple[float, ...] = ()


class PublishedTable(studies_settings.Published, IR):
    """A table as printed, to stand beside what is measured. `doc` says where; `mean` is the mean over benchmarks."""

    name: str
    doc: str
    rows: tuple[PublishedRow, ...]


class Table(studies_settings.Table, IR):
    """A table of the report: arms as rows.

    The `balanced` subset is the questions on which every one of these arms is right in more than half of its samples;
    lengths are then those of right responses. `published` is what it is compared with.
    """

    name: str
    rows: tuple[str, ...]
    published: PublishedTable | None = None


class Chart(studies_settings.Chart, IR):
    """A chart of the report over arms and frontiers."""

    name: str
    lines: tuple[str, ...]


class Study(studies_settings.Study, IR):
    """Everything one run does. `limit` is in GPU hours; every arm is trained and evaluated once a seed.

    What an experiment shares is trained and evaluated once for all of them.

    `cluster` is the place: an experiment that has a part of it for itself says so, and all else runs on the whole.
    `engine` generates the responses. Engines draw from other random streams, so what is sampled depends on it.
    `unequal` is why arms are compared that trained for unequal amounts.
    """

    presentation = frozenset({"name", "doc", "unequal"})
    _dump = model_serializer(mode="wrap")(without_unsaid)
    name: str
    doc: str = ""
    seeds: tuple[int, ...]
    arms: tuple[Arm, ...]
    frontiers: tuple[Frontier, ...] = ()
    score: Score | None = None
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    cluster: Cluster | None = None
    engine: Engine = "embedded"

    @property
    def shared(self) -> tuple[str, ...]:
        """The experiments whose checkpoints all seeds share, by name, with `to STAGE` where that is not the last one."""
        names: dict[str, None] = {}
        for arm in self.arms:
            for each in arm.checkpoint.experiments:
                if each.shared == len(each.stages):
                    names[each.name] = None
                elif each.shared:
                    stage = each.stages[each.shared - 1].name or str(each.shared - 1)
                    names[f"{each.name} to {stage}"] = None
        return tuple(names)

    def arm(self, name: str) -> Arm:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)
