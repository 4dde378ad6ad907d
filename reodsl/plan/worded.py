"""Find how questions fall to wordings that are chosen by a property of each, as far as that is known before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reodsl.diagnostics import listed
from reodsl.ir.data import Data
from reodsl.ir.study import Suite
from reodsl.ir.training import Ppo
from reodsl.ir.wording import name_wordings
from reodsl.plan.verdict import Item, Plan

Count = Callable[[Ppo | Suite, int, Data | Path, Path | None, Path], Sequence[int] | None]
"""A count of the questions of each wording of a method or a suite in a task with this seed, of data on this machine or an
artifact of them, by an artifact of samples of a reference; paths start at the last argument. It is None where the data are
elsewhere."""


@dataclass(frozen=True, slots=True)
class WordedQuestions:
    """The questions of a `data` task, and the wordings that they are asked in.

    `questions` has how many in each, and is empty where that is not known. `by` is the task that decides: one that samples
    the reference, or that of the data, and `seed` draws shares, where a wording has one.
    """

    data: str
    wordings: tuple[str, ...]
    questions: tuple[int, ...]
    by: str
    seed: int | None = None


def describe_worded(worded: Sequence[WordedQuestions]) -> Iterator[str]:
    """Yield lines of a plan: the counts of each table that are known, and what will tell the others."""
    unknown: dict[tuple[str, ...], list[WordedQuestions]] = {}
    for each in worded:
        if each.questions:
            counts = (f"{n:,} in {name}" for n, name in zip(each.questions, each.wordings, strict=True))
            drawn = "" if each.seed is None else f" and seed {each.seed}"
            yield f"questions of {each.data} are asked {', '.join(counts)}, by {each.by}{drawn}"
        else:
            unknown.setdefault(each.wordings, []).append(each)
    for wordings, those in unknown.items():
        data = listed(list(dict.fromkeys(each.data for each in those)), 3)
        tellers = listed(list(dict.fromkeys(each.by for each in those)), 3)
        yield f"questions of {data} are asked in {listed(wordings, 8)}: how many in each is known after {tellers}"


def list_worded(
    plan: Plan, stored: Callable[[Item], Path | None], count: Count | None, folder: Path
) -> tuple[WordedQuestions, ...]:
    """Return what is known of each table of questions that trainings and evaluations ask so.

    `stored` finds the artifact of a task, where it is there.
    """
    items = {item.task.id: item for item in plan.items}
    arms = {arm.name: arm for arm in plan.spec.study.arms}
    methods = {
        (each.name, index): stage.method
        for arm in arms.values()
        for each in arm.checkpoint.experiments
        for index, stage in enumerate(each.stages)
    }
    found: dict[WordedQuestions, None] = {}
    for task in (item.task for item in plan.items):
        suite = arms[task.arm].suite if task.kind == "evaluate" and task.arm in arms else None
        method = methods.get((task.arm or "", task.payload["index"])) if task.kind == "train" else None
        asking = suite or (method if isinstance(method, Ppo) else None)
        if asking is None or not any(each.selective for each in asking.wordings):
            continue
        measured = any(each.reads_reference for each in asking.wordings)
        for role, data in task.inputs.items():
            if role.partition(":")[0] != "data" or items[data].task.kind != "data":
                continue
            # `data:easy` has its responses in `reference:easy`, and a training's `data` in `reference`.
            by = task.inputs.get(role.replace("data", "reference", 1), data) if measured else data
            place, counts = stored(items[by]), None
            if count is not None and (place is not None or not measured):
                table = stored(items[data]) or Data.model_validate(items[data].task.payload["data"])
                reference = place if measured else None
                counts = count(asking, task.payload["seed"], table, reference, folder)
            seed = task.payload["seed"] if any(each.share < 1 for each in asking.wordings) else None
            found[WordedQuestions(data, name_wordings(asking.wordings), tuple(counts or ()), by, seed)] = None
    return tuple(found)
