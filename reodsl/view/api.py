"""Answer the page's queries as JSON data. Nothing here writes, and every query is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any
from urllib.parse import urlencode

import polars as pl

from reodsl.diagnostics import Problem, problem
from reodsl.numbers.verdict import VERDICT
from reodsl.report import theme
from reodsl.report.figures import Gallery
from reodsl.report.markup import tag
from reodsl.report.material import MEAN, bases
from reodsl.report.page import document, navigation, page
from reodsl.report.provenance import versions
from reodsl.report.run import material_of
from reodsl.report.verdict_words import read_sentences
from reodsl.store.external import Fingerprints
from reodsl.store.runs import RunRecord, records
from reodsl.store.store import WEIGHTS, Store
from reodsl.view.responses import (
    Evaluation,
    Filter,
    Order,
    RunStudy,
    budgets,
    find_evaluations,
    list_responses,
    matching,
    response,
    row_of,
)
from reodsl.view.trainings import Training, list_rollouts
from reodsl.watch import read_state, read_status, to_json

Query = Mapping[str, str]

PAGE, MOST_PAGE = 50, 200
ORDERS: tuple[Order, ...] = ("longest", "shortest", "different")
_RIGHT = {"right": True, "wrong": False}
_TABLE = "tables/main.parquet"
_UNREADABLE = (OSError, ValueError, pl.exceptions.PolarsError)


class Api:
    """The answers of the page about a store."""

    def __init__(self, store: Store) -> None:
        """Serve an existing store."""
        self.store = store
        self._studied: dict[tuple[str, int, str], RunStudy] = {}
        self._reports: dict[str, tuple[Any, str]] = {}
        self._drawing = Lock()
        # In memory alone, as nothing here writes: a file is read once, and again where something touched it.
        self._prints = Fingerprints(store.root / "none")
        self.calls: dict[str, Callable[[Query], Any]] = {
            "runs": self.runs,
            "run": self.run,
            "responses": self.responses,
            "response": self.response,
            "rollouts": self.rollouts,
        }

    def runs(self, query: Query) -> dict[str, Any]:
        """Return the runs of the store, the latest first: their state, their arms with REG, and the verdict's headline."""
        runs = [
            {
                "run": record.name,
                "study": record.study,
                "status": read_status(self.store, record),
                "started": record.started,
                **self._outcome(record),
            }
            for record in reversed(records(self.store))
        ]
        return {"store": str(self.store.root.resolve()), "runs": runs}

    def _outcome(self, record: RunRecord) -> dict[str, Any]:
        """Return the headline of a run's report, and REG by arm (None without a score), from its intact files."""
        key = record.tasks.get("report", "")
        folder = self.store.path(key)
        lines = read_sentences(folder) if key and self._whole(key, (VERDICT,)) else ()
        arms: list[tuple[str, float | None]] = []
        if key and self._whole(key, (_TABLE,)):
            table = pl.read_parquet(folder / _TABLE, glob=False).filter(pl.col("benchmark") == MEAN)
            reg = table["reg"] if "reg" in table.columns else [None] * table.height
            arms = list(zip(table["arm"], reg, strict=True))
        return {"verdict": next(iter(lines), ""), "arms": arms}

    def run(self, query: Query) -> dict[str, Any]:
        """Return how far a run is, and its evaluations."""
        record = self._record(query)
        studied = self._of(record)
        study = studied.spec.study
        arms = [arm.name for arm in study.arms]
        grid: set[int] = set()
        for evaluation in studied.evaluations.values():
            with suppress(*_UNREADABLE):
                grid |= set(budgets(evaluation))
        names = [benchmark.name for arm in study.arms for benchmark in arm.suite.benchmarks]
        return {
            **to_json(read_state(self.store, record, with_steps=False)),
            "doc": study.doc,
            "colours": theme.colours(arms, bases(study)),
            "benchmarks": list(dict.fromkeys(names)),
            "budgets": sorted(grid),
            "evaluations": [
                {
                    "name": evaluation.name,
                    "arm": evaluation.arm,
                    "seed": evaluation.seed,
                    "whole": evaluation.is_complete,
                }
                for evaluation in studied.evaluations.values()
            ],
            "trainings": [
                {"name": evaluation.task, "arm": evaluation.arm} for evaluation in studied.trainings.values()
            ],
        }

    def report(self, run: str) -> str:
        """Return a run's report as it is now, as a page that follows the run.

        Raises:
            Problem: E0954 if there is no such run.
        """
        record = self._record({"run": run})
        state = read_state(self.store, record, with_steps=False)
        now = (state.status, state.done, tuple((task.task, task.progress) for task in state.going))
        with self._drawing:
            before, html = self._reports.get(run, (None, ""))
            if before != now:
                html = self._draw(record)
                self._reports[run] = (now, html)
        return html

    def _draw(self, record: RunRecord) -> str:
        """Return the page of a run, or of the problem that prevents it."""
        live = f"../api/run?{urlencode({'run': record.name})}"
        try:
            material, _ = material_of(self.store, record)
        except Problem as caught:
            words = [
                tag("p", f"{diagnostic.message}. {diagnostic.help or ''}")
                for diagnostic in caught.diagnostics
            ]
            body = [
                tag("header", tag("h1", record.study), class_="top"),
                navigation((), live),
                tag("main", words),
            ]
            return document(record.study, body, Gallery(), live)
        return page(material, Gallery(), versions(), live)

    def responses(self, query: Query) -> dict[str, Any]:
        """Return a page of the responses that fit a filter."""
        studied = self._of(self._record(query))
        chosen = query.get("evaluation", "")
        every = list(studied.evaluations.values())
        other = self._evaluation(studied, query["other"]) if query.get("other") else None
        order: Order = next((evaluation for evaluation in ORDERS if evaluation == query.get("order")), "")
        offset = _whole(query, "offset", 0) or 0
        limit = min(MOST_PAGE, _whole(query, "limit", PAGE) or PAGE)
        filter_ = _filter(query, other)
        compared = [other] if other is not None else every if order == "different" else []
        readable = [evaluation for evaluation in compared if self._reads(evaluation, Filter())]
        listed = [self._evaluation(studied, chosen)] if chosen else every
        if other is not None and not readable:
            listed = []
        read = [evaluation for evaluation in listed if self._reads(evaluation, filter_)]
        total, page = list_responses(read, filter_, offset, limit, order, readable)
        unread = [
            evaluation.task
            for evaluation in (*compared, *listed)
            if evaluation not in readable and evaluation not in read
        ]
        return {"total": total, "offset": offset, "responses": page, "unread": list(dict.fromkeys(unread))}

    def response(self, query: Query) -> dict[str, Any]:
        """Return a response, by its row or by its question and sample."""
        studied = self._of(self._record(query))
        evaluation, score = self._evaluation(studied, query.get("evaluation", "")), studied.spec.study.score
        if not self._reads(evaluation, Filter()):
            raise _damaged("responses", evaluation.task)
        row = _whole(query, "row")
        if row is None:
            sample = _whole(query, "sample", 0) or 0
            row = row_of(evaluation, query.get("benchmark", ""), query.get("question", ""), sample)
        details = (
            None
            if row is None
            else response(evaluation, row, query.get("whole") == "1", score.to if score is not None else None)
        )
        if details is None:
            raise problem(
                "E0954",
                f"{evaluation.name} has no such response",
                help="choose one from the list",
                where=evaluation.task,
            )
        return {
            **details,
            "wording": studied.spec.study.arm(evaluation.arm).name_wording(details.get("mode")),
        }

    def rollouts(self, query: Query) -> dict[str, Any]:
        """Return a page of the rollouts of a step, the last unless asked for another, or of a question over the steps."""
        limit = min(MOST_PAGE, _whole(query, "limit", PAGE) or PAGE)
        step, offset = _whole(query, "step"), _whole(query, "offset", 0) or 0
        return list_rollouts(self._training(query), step, query.get("question") or None, offset, limit)

    def _training(self, query: Query) -> Training:
        """Return a training with readable rollouts."""
        trainings = self._of(self._record(query)).trainings
        training = trainings.get(query.get("training", ""))
        if training is None:
            names = ", ".join(trainings) or "none yet"
            raise problem("E0954", "no such training has rollouts", help=f"there is {names}")
        if training.is_complete and not self._whole(training.key, ("rollouts.parquet",)):
            raise _damaged("rollouts", training.task)
        return training

    def _record(self, query: Query) -> RunRecord:
        """Return the run that a query names."""
        name = query.get("run", "")
        record = next((record for record in records(self.store) if record.name == name), None)
        if record is None:
            raise problem("E0954", f"no run is called `{name}`", help="choose one from the list")
        return record

    def _of(self, record: RunRecord) -> RunStudy:
        """Find the evaluations of a run; again while it goes, as more come."""
        key = (record.name, len(record.tasks), record.status)
        if record.status == "running":
            return find_evaluations(self.store, record)
        if key not in self._studied:
            self._studied[key] = find_evaluations(self.store, record)
        return self._studied[key]

    def _evaluation(self, studied: RunStudy, name: str) -> Evaluation:
        """Return the evaluation called `name`."""
        evaluation = studied.evaluations.get(name)
        if evaluation is None:
            names = ", ".join(studied.evaluations) or "none yet"
            raise problem("E0954", f"nothing was evaluated as {name}", help=f"there is {names}")
        return evaluation

    def _whole(self, key: str, files: Sequence[str] = ()) -> bool:
        """Return whether files of a result, by default all but its weights, have their checksums."""
        manifest, folder = self.store.get(key), self.store.path(key)
        if manifest is None or not set(files) <= set(manifest.checksums):
            return False
        read = files or [path for path in manifest.checksums if not path.startswith(WEIGHTS)]
        return all(self._prints.file(folder / path) == manifest.checksums[path] for path in read)

    def _reads(self, evaluation: Evaluation, filter_: Filter) -> bool:
        """Return whether an evaluation can be read with a filter."""
        try:
            return (not evaluation.is_complete or self._whole(evaluation.key)) and matching(
                evaluation, filter_
            ) is not None
        except _UNREADABLE:
            return False


def _damaged(noun: str, task: str) -> Problem:
    """Return E0981 for damaged or missing results of a task."""
    message = f"the {noun} of {task} are damaged or missing"
    return problem("E0981", message, help="run the spec again", where=task)


def _filter(query: Query, other: Evaluation | None) -> Filter:
    """Return the filter of a query."""
    return Filter(
        benchmark=query.get("benchmark") or None,
        words=query.get("words") or None,
        right=_RIGHT.get(query.get("correct", "")),
        unfinished=query.get("correct") == "unfinished" or None,
        shortest=_whole(query, "shortest"),
        longest=_whole(query, "longest"),
        right_at=_whole(query, "right_at"),
        wrong_at=_whole(query, "wrong_at"),
        other=other.samples if other is not None else (),
        other_right=_RIGHT.get(query.get("others", "")),
    )


def _whole(query: Query, name: str, otherwise: int | None = None) -> int | None:
    """Return a whole number of the query, or E0114."""
    text = query.get(name, "")
    if not text:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise problem("E0114", f"`{name}` is not a whole number: {text[:40]!r}", help="write digits alone")
    return int(text)
