"""Answer the page's queries as JSON data. Nothing here writes, and every query is checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Any

import polars as pl

from reodsl.diagnostics import problem
from reodsl.report import theme
from reodsl.report.material import bases
from reodsl.report.verdict_words import said
from reodsl.store.external import Fingerprints
from reodsl.store.live import read_steps
from reodsl.store.runs import Record, alive, records
from reodsl.store.store import WEIGHTS, Store
from reodsl.view.evaluations import Evaluation, Studied, Training, studied
from reodsl.view.responses import Filter, budgets, listed, matching, response, row_of
from reodsl.watch.state import read_state, to_json

Query = Mapping[str, str]

PAGE, MOST_PAGE = 50, 200
MOST_POINTS = 400
"""Points of a curve; where a training is longer, all are thinned to means of even stretches."""

_UNREADABLE = (OSError, ValueError, pl.exceptions.PolarsError)


class Api:
    """Answers about one store."""

    def __init__(self, store: Store) -> None:
        """Of a store that is there."""
        self.store = store
        self._studied: dict[tuple[str, int, str], Studied] = {}
        # In memory alone, as nothing here writes: a file is read once, and again where something touched it.
        self._prints = Fingerprints(store.root / "none")
        self.calls: dict[str, Callable[[Query], Any]] = {
            "runs": self.runs,
            "run": self.run,
            "curves": self.curves,
            "responses": self.responses,
            "response": self.response,
        }

    def runs(self, query: Query) -> dict[str, Any]:
        """The runs of the store, the latest first."""
        runs = []
        for record in reversed(records(self.store)):
            status = record.status
            going = status == "running" and alive(self.store, record)
            runs.append(
                {
                    "run": record.name,
                    "study": record.study,
                    "spec": record.spec[:8],
                    "status": "stopped" if status == "running" and not going else status,
                    "started": record.started,
                    "results": len(record.tasks),
                }
            )
        return {"store": str(self.store.root.resolve()), "runs": runs}

    def run(self, query: Query) -> dict[str, Any]:
        """How far a run is, and what of it there is to look at."""
        record = self._record(query)
        there = self._of(record)
        study = there.spec.study
        arms = [arm.name for arm in study.arms]
        colours = theme.colours(arms, bases(study))
        grid: set[int] = set()
        for each in there.evaluations.values():
            with suppress(*_UNREADABLE):
                grid |= set(budgets(each))
        report = record.tasks.get("report")
        names = [benchmark.name for arm in study.arms for benchmark in arm.suite.benchmarks]
        return {
            **to_json(read_state(self.store, record, steps=False)),
            "doc": study.doc,
            "verdict": list(said(self.store.path(report)) if report and self._whole(report) else ()),
            "unread": ["report"] if report and not self._whole(report) else [],
            "arms": arms,
            "colours": colours,
            "dashes": {
                arm: " ".join(map(str, theme.DASHES[kind])) if kind else ""
                for arm, kind in theme.dashes(colours).items()
            },
            "benchmarks": list(dict.fromkeys(names)),
            "budgets": sorted(grid),
            "evaluations": [
                {
                    "name": each.name,
                    "arm": each.arm,
                    "seed": each.seed,
                    "task": each.task,
                    "whole": each.whole,
                }
                for each in there.evaluations.values()
            ],
            "trainings": len(there.trainings),
        }

    def curves(self, query: Query) -> dict[str, Any]:
        """The metrics of every training of a run, those under way as far as they are, stages one after another."""
        record = self._record(query)
        metrics: dict[str, None] = {}
        lines: dict[tuple[str, int | None], dict[str, Any]] = {}
        unread = []
        for each in sorted(
            self._of(record).trainings, key=lambda each: (each.arm, each.seed or 0, each.stage)
        ):
            table = self._table(each)
            if table is None:
                unread.append(each.task)
                continue
            line = lines.setdefault(
                (each.arm, each.seed), {"arm": each.arm, "seed": each.seed, "stages": [], "values": {}}
            )
            begin = line["stages"][-1]["end"] if line["stages"] else 0
            steps = [begin + int(step) for step in table["step"]]
            line["stages"].append({"task": each.task, "begin": begin, "end": steps[-1] if steps else begin})
            for name in table.columns:
                if name == "step":
                    continue
                metrics[name] = None
                line["values"].setdefault(name, []).extend(
                    [step, value]
                    for step, value in zip(steps, table[name].to_list(), strict=True)
                    if value is not None and math.isfinite(value)
                )
        longest = max((line["stages"][-1]["end"] for line in lines.values()), default=0)
        stretch = -(-longest // MOST_POINTS)
        for line in lines.values():
            line["values"] = {name: _thinned(points, stretch) for name, points in line["values"].items()}
        order = ("accuracy", "reward", "length", "loss")
        names = [name for name in order if name in metrics] + [name for name in metrics if name not in order]
        return {"metrics": names, "lines": list(lines.values()), "unread": unread}

    def responses(self, query: Query) -> dict[str, Any]:
        """A page of the responses that fit a filter."""
        there = self._of(self._record(query))
        chosen = query.get("evaluation", "")
        evaluations = [self._evaluation(there, chosen)] if chosen else list(there.evaluations.values())
        offset = _whole(query, "offset", 0) or 0
        limit = min(MOST_PAGE, _whole(query, "limit", PAGE) or PAGE)
        wanted = _filter(query)
        unread = {each.name: each.task for each in evaluations if not self._reads(each, wanted)}
        read = [each for each in evaluations if each.name not in unread]
        total, page = listed(read, wanted, offset, limit)
        return {"total": total, "offset": offset, "responses": page, "unread": list(unread.values())}

    def response(self, query: Query) -> dict[str, Any]:
        """One response, by its row or by what it answers."""
        each = self._evaluation(self._of(self._record(query)), query.get("evaluation", ""))
        if not self._reads(each, Filter()):
            raise problem(
                "E0981",
                f"the responses of {each.name} are damaged or missing",
                help="run the spec again",
                where=each.task,
            )
        row = _whole(query, "row")
        if row is None:
            sample = _whole(query, "sample", 0) or 0
            row = row_of(each, query.get("benchmark", ""), query.get("question", ""), sample)
        details = None if row is None else response(each, row, query.get("whole") == "1")
        if details is None:
            raise problem(
                "E0969", f"{each.name} has no such response", help="choose one of the list", where=each.task
            )
        return details

    def _record(self, query: Query) -> Record:
        name = query.get("run", "")
        record = next((each for each in records(self.store) if each.name == name), None)
        if record is None:
            raise problem("E0954", f"no run is called `{name}`", help="choose one of the list")
        return record

    def _of(self, record: Record) -> Studied:
        """What there is of a run; looked for again while it goes, as more comes."""
        key = (record.name, len(record.tasks), record.status)
        if record.status == "running":
            return studied(self.store, record)
        if key not in self._studied:
            self._studied[key] = studied(self.store, record)
        return self._studied[key]

    def _evaluation(self, there: Studied, name: str) -> Evaluation:
        evaluation = there.evaluations.get(name)
        if evaluation is None:
            known = ", ".join(there.evaluations) or "none yet"
            raise problem("E0969", f"nothing was evaluated as {name}", help=f"there is {known}")
        return evaluation

    def _whole(self, key: str) -> bool:
        """Return whether a result is there, and all that is shown of it has its checksum: weights are not read."""
        manifest, folder = self.store.get(key), self.store.path(key)
        return manifest is not None and all(
            path.startswith(WEIGHTS) or self._prints.file(folder / path) == checksum
            for path, checksum in manifest.checksums.items()
        )

    def _reads(self, each: Evaluation, wanted: Filter) -> bool:
        try:
            return (not each.whole or self._whole(each.key)) and matching(each, wanted) is not None
        except _UNREADABLE:
            return False

    def _table(self, training: Training) -> pl.DataFrame | None:
        """A training's steps; None where they are damaged, missing or cannot be read."""
        if training.whole and not self._whole(training.key):
            return None
        try:
            if training.whole:
                return pl.read_parquet(training.folder / "metrics.parquet", glob=False)
            rows = read_steps(training.folder)
            return pl.from_dicts(rows, infer_schema_length=None) if rows else None
        except _UNREADABLE:
            return None


def _thinned(points: list[list[float]], stretch: int) -> list[list[float]]:
    """Points as the mean of every `stretch` steps, at the last of them. All lines have their points at the same steps."""
    if stretch <= 1:
        return points
    parts = [list(part) for _, part in groupby(points, lambda point: (point[0] - 1) // stretch)]
    return [[part[-1][0], sum(value for _, value in part) / len(part)] for part in parts]


def _filter(query: Query) -> Filter:
    right = {"right": True, "wrong": False}.get(query.get("correct", ""))
    return Filter(
        benchmark=query.get("benchmark") or None,
        words=query.get("words") or None,
        right=right,
        shortest=_whole(query, "shortest"),
        longest=_whole(query, "longest"),
        flip=_whole(query, "flip"),
        to="wrong" if query.get("to") == "wrong" else "right",
    )


def _whole(query: Query, name: str, otherwise: int | None = None) -> int | None:
    """A whole number of the query. Raises E0114 for anything else."""
    text = query.get(name, "")
    if not text:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise problem("E0114", f"`{name}` is not a whole number: {text[:40]!r}", help="write digits alone")
    return int(text)
