"""Answer the queries of the page of `reodsl view` as JSON data, checking each query and writing no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, get_args
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
"""Responses on a page by default, and at most."""
_RIGHT = {"right": True, "wrong": False}
_TABLE = "tables/main.parquet"
_UNREADABLE = (OSError, ValueError, pl.exceptions.PolarsError)


class Api:
    """The answers to the page's queries about a store; `calls` has a method for each query."""

    def __init__(self, store: Store) -> None:
        """Prepare to answer queries about a store.

        Args:
            store: The store, which must exist.
        """
        self.store = store
        self._studies: dict[tuple[str, int, str], RunStudy] = {}
        self._reports: dict[str, tuple[Any, str]] = {}
        self._drawing = Lock()
        # Checksums stay in memory: a file is read once, and again after a change. `none` does not exist.
        self._prints = Fingerprints(store.root / "none")
        self.calls: dict[str, Callable[[Query], Any]] = {
            "runs": self.runs,
            "run": self.run,
            "responses": self.responses,
            "response": self.response,
            "rollouts": self.rollouts,
        }

    def runs(self, query: Query) -> dict[str, Any]:
        """Return the runs of the store, the latest first, each with its status, its arms' REG and its verdict.

        The verdict is the first sentence of the verdict in the run's report. The query is not used.
        """
        runs = [
            {
                "run": record.name,
                "study": record.study,
                "status": read_status(self.store, record),
                "started": record.started,
                **self._read_outcome(record),
            }
            for record in reversed(records(self.store))
        ]
        return {"store": str(self.store.root.resolve()), "runs": runs}

    def _read_outcome(self, record: RunRecord) -> dict[str, Any]:
        """Return `verdict`, the first sentence of the verdict in a run's report, and `arms`, (arm, REG in tokens) of each.

        If the file of the verdict or of the table is damaged or missing, the verdict is empty, or there are no arms. REG is
        None in a study without a score.
        """
        key = record.tasks.get("report", "")
        folder = self.store.path(key)
        lines = read_sentences(folder) if key and self._is_intact(key, (VERDICT,)) else ()
        arms: list[tuple[str, float | None]] = []
        if key and self._is_intact(key, (_TABLE,)):
            table = pl.read_parquet(folder / _TABLE, glob=False).filter(pl.col("benchmark") == MEAN)
            reg = table["reg"] if "reg" in table.columns else [None] * table.height
            arms = list(zip(table["arm"], reg, strict=True))
        return {"verdict": next(iter(lines), ""), "arms": arms}

    def run(self, query: Query) -> dict[str, Any]:
        """Return the state of the run that a query names, with the evaluations and trainings that the page can show.

        Further entries are the colours of the arms, the benchmarks, and all budgets with forced answers.
        """
        record = self._find_record(query)
        run_study = self._find_study(record)
        study = run_study.spec.study
        arms = [arm.name for arm in study.arms]
        grid: set[int] = set()
        for evaluation in run_study.evaluations.values():
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
                for evaluation in run_study.evaluations.values()
            ],
            "trainings": [
                {"name": training.task, "arm": training.arm} for training in run_study.trainings.values()
            ],
        }

    def report(self, run: str) -> str:
        """Return the present report of a run as an HTML page, which updates itself in the browser.

        The page is kept in memory, and drawn again after a change of the run's state.

        Args:
            run: Name of the run.

        Raises:
            Problem: E0954 if no run has the name.
        """
        record = self._find_record({"run": run})
        state = read_state(self.store, record, with_steps=False)
        state_key = (state.status, state.done, tuple((task.task, task.progress) for task in state.going))
        with self._drawing:
            drawn_key, html = self._reports.get(run, (None, ""))
            if drawn_key != state_key:
                html = self._draw(record)
                self._reports[run] = (state_key, html)
        return html

    def _draw(self, record: RunRecord) -> str:
        """Return the report of a run as an HTML page, drawn now.

        If the report cannot be drawn, the page has the heading of the study and the reasons.
        """
        live = f"../api/run?{urlencode({'run': record.name})}"
        try:
            material, _ = material_of(self.store, record)
        except Problem as caught:
            paragraphs = [
                tag("p", f"{diagnostic.message}. {diagnostic.help or ''}")
                for diagnostic in caught.diagnostics
            ]
            body = [
                tag("header", tag("h1", record.study), class_="top"),
                navigation((), live),
                tag("main", paragraphs),
            ]
            return document(record.study, body, Gallery(), live)
        return page(material, Gallery(), versions(), live)

    def responses(self, query: Query) -> dict[str, Any]:
        """Return the responses of a run that fit the filter in a query.

        The query may name an evaluation (`evaluation`); otherwise all evaluations of the run count. It may name another
        evaluation for comparison (`other`).

        Returns:
            `total`, the number of fitting responses; `offset` and `responses`, the page; and `unread`, the tasks of the
            evaluations whose files cannot be read.
        """
        run_study = self._find_study(self._find_record(query))
        name = query.get("evaluation", "")
        evaluations = list(run_study.evaluations.values())
        other = self._find_evaluation(run_study, query["other"]) if query.get("other") else None
        order: Order = next((order for order in get_args(Order) if order == query.get("order")), "")
        offset = _parse_number(query, "offset", 0) or 0
        limit = min(MOST_PAGE, _parse_number(query, "limit", PAGE) or PAGE)
        filter_ = Filter(
            benchmark=query.get("benchmark") or None,
            words=query.get("words") or None,
            right=_RIGHT.get(query.get("correct", "")),
            unfinished=query.get("correct") == "unfinished" or None,
            shortest=_parse_number(query, "shortest"),
            longest=_parse_number(query, "longest"),
            right_at=_parse_number(query, "right_at"),
            wrong_at=_parse_number(query, "wrong_at"),
            other=other.samples if other is not None else (),
            other_right=_RIGHT.get(query.get("others", "")),
        )
        compared = [other] if other is not None else evaluations if order == "different" else []
        readable = [evaluation for evaluation in compared if self._is_readable(evaluation, Filter())]
        selected = [self._find_evaluation(run_study, name)] if name else evaluations
        if other is not None and not readable:
            selected = []
        sources = [evaluation for evaluation in selected if self._is_readable(evaluation, filter_)]
        total, page = list_responses(sources, filter_, offset, limit, order, readable)
        unread = [
            evaluation.task
            for evaluation in (*compared, *selected)
            if evaluation not in readable and evaluation not in sources
        ]
        return {"total": total, "offset": offset, "responses": page, "unread": list(dict.fromkeys(unread))}

    def response(self, query: Query) -> dict[str, Any]:
        """Return a response of an evaluation, which the query names by its row, or by its question and sample.

        Raises:
            Problem: E0954 if the evaluation has no such response, E0981 if its files are damaged.
        """
        run_study = self._find_study(self._find_record(query))
        evaluation = self._find_evaluation(run_study, query.get("evaluation", ""))
        score = run_study.spec.study.score
        if not self._is_readable(evaluation, Filter()):
            raise _refuse_damaged("responses", evaluation.task)
        row = _parse_number(query, "row")
        if row is None:
            sample = _parse_number(query, "sample", 0) or 0
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
                help="choose a response from the list",
                where=evaluation.task,
            )
        return {
            **details,
            "wording": run_study.spec.study.arm(evaluation.arm).name_wording(details.get("mode")),
        }

    def rollouts(self, query: Query) -> dict[str, Any]:
        """Return a page of the rollouts of the training that a query names.

        They are of a question over all steps if the query names a question, else of a step, by default of the last step.
        """
        limit = min(MOST_PAGE, _parse_number(query, "limit", PAGE) or PAGE)
        step, offset = _parse_number(query, "step"), _parse_number(query, "offset", 0) or 0
        return list_rollouts(self._find_training(query), step, query.get("question") or None, offset, limit)

    def _find_training(self, query: Query) -> Training:
        """Return the training that a query names.

        Raises:
            Problem: E0954 for an unknown training or a training without rollouts, E0981 if its rollouts are damaged.
        """
        trainings = self._find_study(self._find_record(query)).trainings
        training = trainings.get(query.get("training", ""))
        if training is None:
            names = ", ".join(trainings) or "none yet"
            raise problem("E0954", "no such training has rollouts", help=f"trainings with rollouts: {names}")
        if training.is_complete and not self._is_intact(training.key, ("rollouts.parquet",)):
            raise _refuse_damaged("rollouts", training.task)
        return training

    def _find_record(self, query: Query) -> RunRecord:
        """Return the record of the run that a query names, else raise E0954."""
        name = query.get("run", "")
        record = next((record for record in records(self.store) if record.name == name), None)
        if record is None:
            raise problem("E0954", f"no run is called `{name}`", help="choose a run from the list")
        return record

    def _find_study(self, record: RunRecord) -> RunStudy:
        """Return the study of a run with its evaluations and trainings.

        They are kept in memory if the run has ended, and read again on every call while it is running.
        """
        key = (record.name, len(record.tasks), record.status)
        if record.status == "running":
            return find_evaluations(self.store, record)
        if key not in self._studies:
            self._studies[key] = find_evaluations(self.store, record)
        return self._studies[key]

    def _find_evaluation(self, run_study: RunStudy, name: str) -> Evaluation:
        """Return the evaluation called `name`, such as `vanilla@1`, else raise E0954."""
        evaluation = run_study.evaluations.get(name)
        if evaluation is None:
            names = ", ".join(run_study.evaluations) or "none yet"
            raise problem("E0954", f"nothing was evaluated as {name}", help=f"evaluations: {names}")
        return evaluation

    def _is_intact(self, key: str, files: Sequence[str] = ()) -> bool:
        """Return whether files of a result exist with the checksums in its manifest.

        Args:
            key: Key of the result.
            files: Paths of files in the result; empty for all files except weights.
        """
        manifest, folder = self.store.get(key), self.store.path(key)
        if manifest is None or not set(files) <= set(manifest.checksums):
            return False
        paths = files or [path for path in manifest.checksums if not path.startswith(WEIGHTS)]
        return all(self._prints.file(folder / path) == manifest.checksums[path] for path in paths)

    def _is_readable(self, evaluation: Evaluation, filter_: Filter) -> bool:
        """Return whether the files of an evaluation can be read with a filter.

        The files of a finished evaluation must be intact, and the filter is applied as a test.
        """
        try:
            return (not evaluation.is_complete or self._is_intact(evaluation.key)) and matching(
                evaluation, filter_
            ) is not None
        except _UNREADABLE:
            return False


def _refuse_damaged(noun: str, task: str) -> Problem:
    """Return E0981 for damaged or missing files of a task's result; `noun` names their content, such as `rollouts`."""
    message = f"the {noun} of {task} are damaged or missing"
    return problem("E0981", message, help="run the spec again", where=task)


def _parse_number(query: Query, name: str, default: int | None = None) -> int | None:
    """Return a whole number of a query, or `default` if the query lacks it.

    Args:
        query: The query.
        name: Name of the number.
        default: Value for a missing number.

    Raises:
        Problem: E0114 if the text is no whole number.
    """
    digits = query.get(name, "")
    if not digits:
        return default
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 12):
        raise problem("E0114", f"`{name}` is not a whole number: {digits[:40]!r}", help="write only digits")
    return int(digits)
