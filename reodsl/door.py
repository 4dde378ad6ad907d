"""The door for notebooks: load a spec by its path, plan it, run it, and get polars frames and Altair charts.

import reodsl

study = reodsl.load("specs/quickstart.reo", n=7, amend={"reo_exp.steps": 12})
study.plan()                    # {task: verdict}
run = study.run(local=True)
run.table("main")               # a polars frame
run.curves("easy")              # an Altair chart
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from reodsl.diagnostics import Diagnostic, Problem, problem
from reodsl.diagnostics.model import missing_extra
from reodsl.diagnostics.render import render
from reodsl.interrupts import insist_on_interrupts

if TYPE_CHECKING:
    import altair as alt
    import polars as pl
    from rich.console import Console

    from reodsl.graph.job import Event
    from reodsl.graph.task import Graph
    from reodsl.ir import Spec
    from reodsl.plan.verdict import Keys, Plan, Ready
    from reodsl.store.consent import FunctionCode
    from reodsl.store.store import Store
    from reodsl.track.trackers import Trackers


@contextmanager
def _explain_problems() -> Iterator[None]:
    """Add the complete message of a `Problem` to its traceback, and make a Ctrl-C end the block.

    A missing optional package becomes a `Problem` that names the extra to install.
    """
    try:
        with insist_on_interrupts():
            yield
    except Problem as caught:
        if not getattr(caught, "__notes__", None):
            caught.add_note(render(caught.diagnostics, {}))
        raise
    except ModuleNotFoundError as unmet:
        missing = missing_extra(unmet)
        if missing is None:
            raise
        missing.add_note(render(missing.diagnostics, {}))
        raise missing from None


@_explain_problems()
def load(
    path: str | Path,
    *,
    amend: Mapping[str, object] | None = None,
    target: str | None = None,
    store: str | Path | None = None,
    **params: object,
) -> LoadedSpec:
    """Return a compiled spec, ready to be planned and run.

    A value of `amend` and `params` is a number, a bool, a list, or a text as a spec writes the value, such as
    `"2K tokens"`. For a setting that is a text, the text has quotes inside: `'"hello"'`.

    Args:
        path: The spec.
        amend: Values of settings by their dotted path, as `reodsl run --amend` takes them.
        target: The name of the study or experiment; needed if the file has several.
        store: The folder of results; by default `.reodsl` beside the spec, or the nearest in a folder above.
        **params: Values of the spec's params.

    Raises:
        Problem: The spec has errors; all of them are in the problem.
    """
    from reodsl.language import compile_file
    from reodsl.plan.verdict import prepare_study

    compiled = compile_file(str(path), sets=_spell_all(params), amends=_spell_all(amend or {}), target=target)
    errors = tuple(diagnostic for diagnostic in compiled.diagnostics if diagnostic.severity == "error")
    if compiled.spec is None or errors:
        refusal = Problem(*errors)
        refusal.add_note(render(errors, compiled.sources))
        raise refusal
    ready = prepare_study(compiled.spec, Path(path), Path(store) if store is not None else None)
    return LoadedSpec(ready.spec, ready.graph, ready.store, ready.keys)


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A compiled spec with its tasks and the store of its results. In a terminal or a notebook it shows its plan."""

    spec: Spec
    graph: Graph
    store: Store
    keys: Keys

    def __repr__(self) -> str:
        """Return the spec's name and size, as Python shows an object."""
        study = self.spec.study
        return f"<reodsl spec {study.name}: {len(study.arms)} arms, {len(self.graph.tasks)} tasks>"

    def __str__(self) -> str:
        """Return the plan as text: each task with its verdict and price."""
        from reodsl.plan.render import to_text

        return to_text(self._plan())

    def _repr_html_(self) -> str:
        """Return the plan as HTML for a notebook."""
        return f"<pre>{escape(str(self))}</pre>"

    @_explain_problems()
    def plan(self) -> dict[str, str]:
        """Return the verdict on each task by its name: `reuse`, `run`, `rerun` or `later`.

        `reuse` has a stored result, `run` has none, `rerun` has one that is out of date, and `later` depends on
        results that are not there yet.
        """
        return {item.task.id: item.verdict for item in self._plan().items}

    @_explain_problems()
    def run(
        self,
        out: str | Path | None = None,
        *,
        local: bool = False,
        address: str | None = None,
        without_sandbox: bool = False,
        allow_python: bool = False,
        allow_served: bool = False,
        track: Sequence[str] = (),
        quiet: bool = False,
    ) -> FinishedRun:
        """Run the tasks that have no result yet, write the report, and return the finished run.

        Args:
            out: The folder for report and tables; by default `runs/STUDY-DIGEST`.
            local: Whether all tasks run on this machine, even if the spec names a cluster.
            address: The address of a Ray cluster to run on.
            without_sandbox: Whether the functions of a Python package that grade answers may run on what models
                wrote if this machine has no sandbox.
            allow_python: Whether Python code that the spec names may run although it is new to this machine.
            allow_served: Whether a served model may be asked although it is new to this machine.
            track: Names of trackers that get the steps of trainings; by default the trackers of the user's
                configuration.
            quiet: Whether nothing is written to stderr; otherwise a line for each task that starts or ends,
                and its progress.

        Raises:
            Problem: The machine lacks something, or a task failed; results of finished tasks are kept.
        """
        from reodsl.plan.places import locate_failures
        from reodsl.plan.registry import Machine
        from reodsl.run import run
        from reodsl.store.layout import run_folder
        from reodsl.track.trackers import chosen

        ready = self._ready().for_run()
        plan = ready.plan()
        folder = Path(out) if out is not None else run_folder(self.spec.study.name, plan.digest)
        tracker_names, tracker_findings = chosen(track)
        notebook = _Notebook(self, quiet, tracker_names if plan.work else ())
        notebook.check(tracker_findings)
        machine = Machine(local, address, without_sandbox, allow_python, allow_served=allow_served)
        outcome = run(ready, plan, machine, folder, notebook)
        results, page = outcome.results, outcome.page
        if results.failed:
            diagnostics_of_tasks = locate_failures(self.spec, self.graph, results.failed)
            raise Problem(*(fault for diagnostics in diagnostics_of_tasks.values() for fault in diagnostics))
        if page is None:
            raise problem(
                "E0954", "the run left no report", where=str(folder), help="run the spec by the command line"
            )
        report = next(task for task in self.graph.tasks if task.kind == "report")
        inputs = {role: self.store.path(results.keys[task]) for role, task in report.inputs.items()}
        return FinishedRun(page, self.spec, inputs)

    def _plan(self) -> Plan:
        """Return the verdict on each task, from the results in the store."""
        return self._ready().plan()

    def _ready(self) -> Ready:
        """Return the spec with its graph, store and keys, as the planner takes it."""
        from reodsl.plan.verdict import Ready

        return Ready(self.spec, self.graph, self.store, self.keys)


class _Notebook:
    """The listener that shows a run below a notebook's cell: lines on stderr, and doubts as Python warnings."""

    def __init__(self, loaded: LoadedSpec, quiet: bool, trackers: Sequence[str] = ()) -> None:
        """Set up the display on stderr; the trackers start with the run.

        Args:
            loaded: The spec.
            quiet: Whether nothing is written to stderr.
            trackers: The names of the trackers to start.
        """
        from reodsl.cli.watch import display

        name, total = loaded.spec.study.name, len(loaded.graph.tasks)
        self.loaded = loaded
        self.display = display(total, name, quiet, is_terminal=False)
        self.wanted = trackers
        self.trackers: Trackers | None = None

    def check(self, findings: tuple[Diagnostic, ...]) -> None:
        """Raise a `Problem` if a finding is an error, else show each finding as a Python warning."""
        if any(finding.severity == "error" for finding in findings):
            lacking = Problem(*findings)
            lacking.add_note(render(findings, self.loaded.spec.sources))
            raise lacking
        for finding in findings:
            # The stack level makes Python name the notebook's line that called `run`.
            warnings.warn(f"{finding.code}: {finding.message}", stacklevel=5)

    def allow(self, codes: Sequence[FunctionCode], is_allowed: bool) -> bool:
        """Print the code that may run if it `is_allowed`, and return `is_allowed`; a notebook asks nobody."""
        from reodsl.store.consent import name_allowed

        for line in name_allowed(codes) if is_allowed else ():
            print(f"allowed  {line}", file=sys.stderr)
        return is_allowed

    def begin(self) -> None:
        """Start the trackers."""
        if self.wanted:
            from reodsl.track.trackers import Trackers

            loaded = self.loaded
            self.trackers = Trackers(self.wanted, loaded.store, loaded.graph, loaded.spec.study.name)

    def hear(self, event: Event) -> None:
        """Pass an event of a task to the trackers and the display."""
        if self.trackers is not None:
            self.trackers.hear(event)
        if self.display is not None:
            self.display.hear(event)

    def done(self, task_id: str, key: str) -> None:
        """Do nothing with a single result: the table of results is returned after the run."""

    def close(self) -> None:
        """End the display and the trackers, and show what the trackers report."""
        if self.display is not None:
            self.display.close()
        if self.trackers is not None:
            self.trackers.close()
            self.check(tuple(self.trackers.news()))


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A finished run. In a terminal or a notebook it shows its main table: the averages of each arm.

    `report` is the page. `inputs` has the folders of the results from which the report was made, by names such
    as `evaluate:ARM@SEED`.
    """

    report: Path
    spec: Spec
    inputs: Mapping[str, Path]

    def __repr__(self) -> str:
        """Return the study's name and the report's path, as Python shows an object."""
        return f"<reodsl run of {self.spec.study.name}: {self.report}>"

    def __str__(self) -> str:
        """Return the main table as text, and the report's path."""
        console = self._summary()
        return f"{console.export_text().rstrip()}\nreport: {self.report}"

    def _repr_html_(self) -> str:
        """Return the main table as HTML for a notebook, with a link to the report."""
        page = quote(self.report.as_posix())
        table = self._summary().export_html(inline_styles=True, code_format="<pre>{code}</pre>")
        return f'{table}<a href="{escape(page)}">report</a>'

    def _summary(self) -> Console:
        """Return a recorded console with the main table; it is empty if the report has no main table."""
        import io

        from rich.console import Console

        from reodsl.report.results import report_summary

        console = Console(record=True, file=io.StringIO(), width=100)
        if "main" in self.tables():
            console.print(report_summary(self.report.parent, average_only=True, width=console.width))
        return console

    def tables(self) -> tuple[str, ...]:
        """Return the names of the report's tables, which `table` takes."""
        return tuple(sorted(path.stem for path in (self.report.parent / "tables").glob("*.parquet")))

    @_explain_problems()
    def table(self, name: str = "main") -> pl.DataFrame:
        """Return a table of the report, such as `main`, `per_seed`, `curves`, `frontier`, `training` or `budgets`.

        Raises:
            Problem: E0954, if the report has no table of that name.
        """
        import polars as pl

        path = self.report.parent / "tables" / f"{name}.parquet"
        if name not in self.tables():
            raise problem("E0954", f"there is no table {name!r}", help=f"there is {', '.join(self.tables())}")
        return pl.read_parquet(path, glob=False)

    @_explain_problems()
    def samples(self, arm: str, seed: int) -> pl.DataFrame:
        """Return every evaluated response of an arm, one per row, with the columns of `samples.parquet`.

        Args:
            arm: The name of the arm.
            seed: The seed of the training.

        Raises:
            Problem: E0954, if the run has no such evaluation.
        """
        import polars as pl

        return pl.read_parquet(self._evaluated(arm, seed) / "samples.parquet", glob=False)

    @_explain_problems()
    def checkpoint(self, arm: str, seed: int) -> Path:
        """Return the folder of an arm's trained model: weights, config and tokenizer, in the format of `transformers`.

        Args:
            arm: The name of the arm.
            seed: The seed of the training.

        Raises:
            Problem: E0954, if the run has no evaluation of that arm and seed.
        """
        from reodsl.store.layout import arm_folder

        self._evaluated(arm, seed)
        return self.report.parent / arm_folder(arm, str(seed)) / "checkpoint"

    @_explain_problems()
    def curves(self, benchmark: str = "mean", **options: Any) -> alt.LayerChart:
        """Return the chart of accuracy over token budgets on a benchmark, with the frontier.

        Args:
            benchmark: The name of the benchmark, or `mean` for the average over benchmarks.
            **options: Options of `reodsl.report.curve_chart.curves`.

        Raises:
            Problem: E0954, if the run did not evaluate on the benchmark.
        """
        import altair as alt

        from reodsl.report.curve_chart import curves
        from reodsl.report.material import read

        material = read(self.spec, self.inputs)
        benchmarks = sorted({str(name) for name in material.curves["benchmark"]})
        if benchmark not in benchmarks:
            raise problem(
                "E0954", f"nothing was evaluated on {benchmark!r}", help=f"there is {', '.join(benchmarks)}"
            )
        return alt.LayerChart.from_dict(curves(material, benchmark, **options))

    def _evaluated(self, arm: str, seed: int) -> Path:
        """Return the folder with the evaluation of an arm and seed.

        Raises:
            Problem: E0954, if the run has no such evaluation.
        """
        role = f"evaluate:{arm}@{seed}"
        if role not in self.inputs:
            names = sorted(
                name.removeprefix("evaluate:") for name in self.inputs if name.startswith("evaluate:")
            )
            raise problem(
                "E0954", f"nothing was evaluated as {arm}@{seed}", help=f"there is {', '.join(names)}"
            )
        return self.inputs[role]


def _spell_all(values: Mapping[str, object]) -> dict[str, str]:
    """Return Python values by name as texts that the command line would take.

    Raises:
        Problem: E0114, if `values` is not a mapping with texts as keys.
    """
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise problem(
            "E0114",
            f"`amend` is {values!r}, which is not a mapping of settings by their paths",
            help='write `amend={"optim.lr": 1e-4}`',
        )
    return {name: _spell(value) for name, value in values.items()}


def _spell(value: object) -> str:
    """Return a Python value as the text that the command line would take: `true`, `[1, 2]`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"[{', '.join(map(_spell, value))}]" if isinstance(value, (list, tuple)) else str(value)
