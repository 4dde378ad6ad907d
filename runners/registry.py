"""The registry that the compiler finds through the entry-point group `reodsl.runners`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reodsl.diagnostics import Diagnostic
from reodsl.graph.task import Task
from reodsl.ir import Spec
from reodsl.ir.reward import Group, Reward, Tried
from reodsl.ir.training import Advantage
from reodsl.numbers.responses import Found, Import
from reodsl.plan.registry import Execution, Machine, Part, Registry, Results
from reodsl.rehearse import StandIns


def _check(tasks: tuple[Task, ...], spec: Spec, folder: Path, machine: Machine) -> tuple[Diagnostic, ...]:
    from runners.execute.check import check

    return check(tasks, spec, folder, machine)


def _execute(run: Execution) -> Results:
    from runners.execute import execute

    return execute(run)


def _count_questions(tasks: Sequence[Task], folder: Path) -> Mapping[str, int]:
    from runners.execute.questions import counts

    return counts(tasks, folder)


def _survey() -> tuple[Part, ...]:
    from runners.execute.survey import survey

    return survey()


def _probe(store: Path, address: str | None) -> Mapping[str, Sequence[Part]]:
    from runners.execute.probes import probe_nodes

    return probe_nodes(store, address)


def _try_reward(
    reward: Reward, rule: Advantage, group: Group, places: Sequence[Sequence[int]]
) -> tuple[Tried, ...]:
    from runners.train.advantages import try_reward

    return try_reward(reward, rule, group, places)


def _stand_ins(spec: Spec, folder: Path, place: Path) -> StandIns:
    from runners.stand_ins import stand_ins

    return stand_ins(spec, folder, place)


def _import_results(asked: Import) -> tuple[Found, ...]:
    from runners.results.table import import_results

    return import_results(asked)


REGISTRY = Registry(
    runners={
        "model": "runners.prepare:model",
        "data": "runners.prepare:data",
        "train": "runners.train.run:train",
        "sample": "runners.evaluate.run:sample",
        "select": "runners.select.run:select",
        "evaluate": "runners.evaluate.run:evaluate",
        "results": "runners.results.arm:results",
        "frontier": "runners.evaluate.frontier:frontier",
        "budgets": "runners.evaluate.frontier:budgets",
        "score": "runners.evaluate.frontier:score",
        "measure": "runners.evaluate.measures:measure",
        "report": "reodsl.report.run:report",
    },
    check=_check,
    execute=_execute,
    survey=_survey,
    probe=_probe,
    try_reward=_try_reward,
    stand_ins=_stand_ins,
    count_questions=_count_questions,
    import_results=_import_results,
)
