"""Find the stages of RL whose rollouts tell the budgets of questions, or why an arm has none."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics import problem
from reodsl.graph.payload import data_payload
from reodsl.ir.data import Data, File, HubData
from reodsl.ir.study import Arm
from reodsl.ir.training import Experiment, FromTraining, Ppo


def stages_of_rl(arm: Arm, data: Data) -> Iterator[tuple[str, Experiment, int]]:
    """Roles and stages whose rollouts tell of the questions of `data`: the arm's own ones of RL, up to its checkpoint.

    Raises a Problem (E0405) where there are none, or their questions cannot be told from other ones.
    """
    start = arm.checkpoint
    stages = start.experiment.stages[: start.stage + 1] if isinstance(start, FromTraining) else ()
    of_rl = [index for index, stage in enumerate(stages) if isinstance(stage.method, Ppo)]
    if not of_rl or not isinstance(start, FromTraining):
        raise problem(
            "E0405",
            f"`{arm.name}` has no rollouts to estimate budgets from: it is not trained with RL",
            help="name arms that are trained with PPO",
        )
    for index in of_rl:
        _require_comparable(arm.name, stages[index].data, data)
        yield f"arm:{arm.name}" + (f":{index}" if len(of_rl) > 1 else ""), start.experiment, index


def _require_comparable(arm: str, theirs: Data, ours: Data) -> None:
    """An id that a column gives may be another question in other data; one made from the question may not."""
    named = any(
        isinstance(source, (File, HubData)) and source.columns.id is not None
        for data in (theirs, ours)
        for source in data.sources
    )
    if named and data_payload(theirs) != data_payload(ours):
        raise problem(
            "E0405",
            f"the rollouts of `{arm}` may be of other questions: they have ids of their own, in other data",
            help="name arms that are trained on the same data, or leave out the column of ids",
        )
