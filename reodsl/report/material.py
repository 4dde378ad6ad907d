"""The report's material: a spec and its artifacts as frames of everything that is shown.

Files of samples are scanned, never read whole; only the few rows that the page shows leave the disk.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import polars as pl

from reodsl.diagnostics import first_line, problem
from reodsl.doubts import left_out_counts
from reodsl.graph.task import Role, parse_role
from reodsl.ir import Spec
from reodsl.ir.base import dumped, values_of
from reodsl.ir.data import File
from reodsl.ir.model import Folder
from reodsl.ir.study import Study
from reodsl.ir.training import FromModel, FromTraining, Stage
from reodsl.numbers.verdict import VERDICT, StudyVerdict, from_json
from reodsl.report import theme
from reodsl.store.live import STEPS, read_steps
from reodsl.store.manifest import MANIFEST, arm_labels


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of an artifact: what its store recorded when a task computed it."""

    key: str
    """Digest that names the artifact in the store."""
    seconds: float | None = None
    """Seconds that the task took."""
    device: str = ""
    """Name of the device that computed it."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of packages, by name."""
    unconfined: str = ""
    """Reason why answers were checked outside a sandbox; empty if they were checked in a sandbox."""
    hub: Mapping[str, str] = field(default_factory=dict)
    """Commits of the hub's models and data sets that the artifact was computed from, by repository."""


def read_origin(folder: Path) -> Origin:
    """Return the origin of an artifact from its manifest; if the manifest is unreadable, the origin has only the key.

    Args:
        folder: folder of the artifact in the store, whose name is the key.
    """
    try:
        record = json.loads((folder / MANIFEST).read_text("utf-8"))["made"]
        versions = {str(name): str(version) for name, version in record.get("versions", {}).items()}
        seconds, device = float(record["seconds"]), str(record.get("device", ""))
        hub = {str(repo): str(commit) for repo, commit in record.get("hub", {}).items()}
        return Origin(folder.name, seconds, device, versions, str(record.get("unconfined") or ""), hub)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Origin(folder.name)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Report a failure to read in the `with` block as damage of the artifact at `path` (E0981)."""
    try:
        yield
    except (OSError, ValueError, pl.exceptions.PolarsError) as failure:
        raise problem(
            "E0981",
            f"an artifact of this run cannot be read: {first_line(failure)}",
            where=str(path),
            help="find what is damaged with `reodsl ls --verify`; running the spec again computes it again",
        ) from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        Problem: E0981 if it cannot be read.
    """
    with reading(path):
        return json.loads(path.read_text("utf-8"))


def read_parquet(path: Path) -> pl.DataFrame:
    """Return all rows of a Parquet file.

    Raises:
        Problem: E0981 if it cannot be read.
    """
    with reading(path):
        return pl.read_parquet(path, glob=False)


MEAN = "mean"
TIMING_COLUMNS = "(?:seconds|train_tokens|mfu|memory).*"
"""Pattern of the metrics that differ between equal runs: durations, speeds and memory of a step."""

_CURVE = {
    "name": pl.String,
    "seed": pl.Int64,
    "benchmark": pl.String,
    "budget": pl.Int64,
    "accuracy": pl.Float64,
}
_SUMMARY = {
    "arm": pl.String,
    "seed": pl.Int64,
    "benchmark": pl.String,
    "accuracy": pl.Float64,
    "length": pl.Float64,
    "questions": pl.Int64,
    "samples": pl.Int64,
    "unfinished": pl.Float64,
    "verifier_timeouts": pl.Int64,
    "verifier_failures": pl.Int64,
}
_SELECTION = {"arm": pl.String, "seed": pl.Int64, "stage": pl.String, "by": pl.String} | dict.fromkeys(
    ("questions", "picked", "dropped", "lost"), pl.Int64
)


@dataclass(frozen=True, slots=True)
class Material:
    """The material of a report.

    Frames may be empty. `seed` is null for a task that belongs to no seed. Accuracies are shares, budgets and lengths
    tokens.
    """

    spec: Spec
    """The spec, without folders of this machine."""
    curves: pl.DataFrame
    """Curves of arms on each benchmark and `mean`: name, seed, benchmark, budget, accuracy. A page adds the ends of
    intervals (`curve_chart.add_intervals`)."""
    frontiers: pl.DataFrame
    """Frontiers, with the columns of `curves`."""
    winners: pl.DataFrame
    """Arms that make each frontier, by seed, benchmark and budget."""
    summary: pl.DataFrame
    """Results of evaluations: arm, seed, benchmark (or `mean`), accuracy, length, …"""
    scores: pl.DataFrame
    """Rows of `reg.parquet` with `arm`; `seed` is null for the mean over seeds."""
    metrics: pl.DataFrame
    """Rows of every `metrics.parquet`, with arm, seed, method, stage, and `at`, the step counted over the arm's
    stages."""
    budgets: Mapping[tuple[str, int | None], Mapping[str, Any]]
    """Content of `budgets.json`, by arm and seed."""
    evaluations: Mapping[tuple[str, int | None], Path]
    """Folders of evaluations with their samples, by arm and seed."""
    artifacts: Mapping[str, Origin]
    """Origins of results, by role."""
    acceptances: tuple[Mapping[str, Any], ...] = ()
    """Results that a person accepted after a change: `task`, `because`, `changes` and `at` of each."""
    selections: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_SELECTION))
    """Data of each training: `questions` of the pool, rows `picked`, left out by `drop` (`dropped`), and questions with
    nothing to pick (`lost`)."""
    unfinished: tuple[str, ...] = ()
    """Sentences on what the report leaves out because it does not exist yet."""
    trainings: Mapping[tuple[str, int | None, int], Path] = field(default_factory=dict)
    """Folders of trainings, by arm, seed and stage."""
    sample_folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders of responses that are sampled once and then read (pools, reference samples), by task."""
    highlighted_arms: tuple[str, ...] = ()
    """Arms that charts show; empty if they show all."""
    verdict: StudyVerdict | None = None
    """Verdict of the score."""
    measures: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Rows of `measures.parquet`."""
    bases: tuple[str, ...] = field(init=False)
    """Arms that other arms start from."""
    arms: tuple[str, ...] = field(init=False)
    """Evaluated arms, best first, the baseline among them: the order of arms everywhere on the page."""

    def __post_init__(self) -> None:
        """Find the arms that other arms start from, and the order of arms, once, since every chart needs them."""
        object.__setattr__(self, "bases", bases(self.study))
        object.__setattr__(self, "arms", rank_arms(self.study, self.summary, self.scores))

    @property
    def study(self) -> Study:
        """Return the study that ran."""
        return self.spec.study

    @property
    def ordered_arms(self) -> tuple[str, ...]:
        """Return all arms of the study in the order of the page; arms that are not evaluated come last."""
        return tuple(dict.fromkeys((*self.arms, *(arm.name for arm in self.study.arms))))

    @property
    def chart_arms(self) -> tuple[str, ...]:
        """Return the arms with results that charts can show, evaluated or trained so far.

        Highlighted arms come first, since colours are given in this order; all others are in the order of the study.
        """
        present = set(self.summary["arm"]) | set(self.metrics["arm"])
        names = tuple(arm.name for arm in self.study.arms if arm.name in present)
        first = set(self.highlighted_arms)
        return tuple(sorted(names, key=lambda name: name not in first)) if first else names

    @property
    def colours(self) -> dict[str, str]:
        """Return the colour of each arm of the charts."""
        return theme.colours(self.chart_arms, self.bases)

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """Return the benchmarks, in the order of evaluation, without `mean`."""
        names = self.summary["benchmark"].unique(maintain_order=True).to_list()
        return tuple(name for name in names if name != MEAN)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds that have results."""
        frames = (self.summary["seed"], self.scores["seed"] if "seed" in self.scores.columns else None)
        return tuple(sorted({seed for frame in frames if frame is not None for seed in frame.drop_nulls()}))

    @property
    def frontier_arms(self) -> tuple[str, ...]:
        """Return the names of the arms that make the scored frontier."""
        return frontier_arms(self.study)

    def rank(self, arm: pl.Expr) -> pl.Expr:
        """Return the ranks of arms on the page as a column, from 0; a name of no arm ranks behind all arms."""
        ranks = {name: rank for rank, name in enumerate(self.ordered_arms)}
        return arm.replace_strict(ranks, default=len(ranks), return_dtype=pl.Int64)

    def sort_arms(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a frame with the column `arm` in the order of the page; rows of an arm keep their order."""
        return frame.sort(self.rank(pl.col("arm")), maintain_order=True)

    def forced_folders(self, arm: str) -> list[Path]:
        """Return the folders of an arm's evaluations, one for each seed; empty if any lacks forced answers."""
        seeds = self.seeds or (None,)
        found = [self.evaluations.get((arm, seed)) or self.evaluations.get((arm, None)) for seed in seeds]
        folders = [folder for folder in found if folder and (folder / "forced.parquet").is_file()]
        return folders if len(folders) == len(found) else []

    def frontier(self) -> pl.DataFrame:
        """Return the frontier that the study is scored against; without a score, the study's first frontier.

        Returns:
            Columns `name`, `seed`, `benchmark`, `budget` (tokens) and `accuracy` (share).
        """
        names = [f.name for f in self.study.frontiers]
        score = self.study.score
        chosen = score.frontier if score is not None else (names[0] if names else "")
        return self.frontiers.filter(pl.col("name") == chosen)


def rank_arms(study: Study, summary: pl.DataFrame, scores: pl.DataFrame) -> tuple[str, ...]:
    """Return the evaluated arms, best first: by rising REG, then arms without REG by falling accuracy.

    Both numbers are means over seeds and benchmarks. Arms without any come last, and equal arms are in the study's order.

    Args:
        study: the study.
        summary: frame `Material.summary`.
        scores: frame `Material.scores`.
    """
    seeded = scores.drop_nulls("seed") if "seed" in scores.columns else scores
    accuracy, reg = (
        dict(
            frame.filter(pl.col("benchmark") == MEAN)
            .group_by("arm")
            .agg(pl.col(column).mean())
            .filter(pl.col(column).is_finite())
            .iter_rows()
        )
        if column in frame.columns
        else {}
        for frame, column in ((summary, "accuracy"), (seeded if seeded.height else scores, "reg"))
    )
    names = filter(set(summary["arm"]).__contains__, (arm.name for arm in study.arms))
    return tuple(sorted(names, key=lambda arm: (reg.get(arm, math.inf), -accuracy.get(arm, -math.inf))))


def bases(study: Study) -> tuple[str, ...]:
    """Return the names of untrained arms, and of arms whose checkpoint is the start of another arm's training."""
    trained = [a.checkpoint for a in study.arms if isinstance(a.checkpoint, FromTraining)]
    # Hundreds of arms may start from one object, which is serialized once.
    values = {id(checkpoint.experiment.start): checkpoint.experiment.start for checkpoint in trained}
    starts = {start.model_dump_json() for start in values.values()}
    return tuple(
        arm.name
        for arm in study.arms
        if isinstance(arm.checkpoint, FromModel) or arm.checkpoint.model_dump_json() in starts
    )


def frontier_arms(study: Study) -> tuple[str, ...]:
    """Return the names of the arms that make the scored frontier, or any frontier of a study without a score."""
    score = study.score
    frontiers = [f for f in study.frontiers if score is None or f.name == score.frontier]
    return tuple(name for frontier in frontiers for name in frontier.of)


def title(benchmark: str) -> str:
    """Return the heading of a benchmark on the page; the mean over benchmarks is the paper's `Average`."""
    return "Average" if benchmark == MEAN else benchmark


def read(spec: Spec, inputs: Mapping[str, Path], accepted: Iterable[Mapping[str, Any]] = ()) -> Material:
    """Read the material of a report from artifacts.

    The role of an artifact says what the report needs it for, such as `train:ARM` or `evaluate:ARM`. Roles that the
    report does not show are skipped. Absolute paths in the spec are replaced, as in `hide_folders`.

    Args:
        spec: the spec that ran.
        inputs: folders of artifacts, by the text of the role.
        accepted: results that a person accepted after a change.

    Raises:
        Problem: E0981 if an artifact cannot be read.
    """
    roles = {parse_role(text): folder for text, folder in inputs.items()}
    evaluations = {(r.name, r.seed): folder for r, folder in sorted_roles(roles, "evaluate")}
    kinds = ("frontier", "score", "train", "budgets", "measure")
    frontiers, scores, trained, selected, measured = (dict(sorted_roles(roles, k)) for k in kinds)
    return Material(
        spec=hide_folders(spec),
        curves=_concat([_curves(f / "curves.json", *key) for key, f in evaluations.items()], _CURVE),
        frontiers=_concat(
            [_curves(f / "frontier.json", r.name, r.seed) for r, f in frontiers.items()], _CURVE
        ),
        winners=_concat(
            [
                _rename_arms(read_parquet(f / "winners.parquet"), "frontier", f, evaluations).with_columns(
                    pl.lit(r.name).alias("name"), pl.lit(r.seed, pl.Int64).alias("seed")
                )
                for r, f in frontiers.items()
                if (f / "winners.parquet").exists()
            ],
            {},
        ),
        summary=_concat([_summary(f / "summary.json", *key) for key, f in evaluations.items()], _SUMMARY),
        scores=_concat([_scores(f, r.seed, evaluations) for r, f in scores.items()], {}),
        metrics=_metrics(spec.study, trained),
        budgets={(r.name, r.seed): read_json(f / "budgets.json") for r, f in selected.items()},
        evaluations=evaluations,
        artifacts={text: read_origin(folder) for text, folder in sorted(inputs.items())},
        acceptances=tuple(accepted),
        selections=_selections(spec.study, dict(sorted_roles(roles, "select")), trained),
        sample_folders={r.name: folder for r, folder in sorted_roles(roles, "sample")},
        trainings={(r.name, r.seed, r.index or 0): folder for r, folder in trained.items()},
        measures=_concat(
            [
                _rename_arms(read_parquet(f / "measures.parquet"), "measure", f, evaluations)
                for f in measured.values()
            ],
            {},
        ),
        verdict=next((_verdict(f, evaluations) for f in scores.values()), None),
    )


def sorted_roles(roles: Mapping[Role, Path], kind: str) -> list[tuple[Role, Path]]:
    """Return the roles of a kind with their folders, by name, index and seed; a role without a seed comes first.

    The role of a result says what the report needs it for, such as the evaluation of an arm with a seed.

    Args:
        roles: Folders by role.
        kind: Kind of the role, such as `evaluate`.
    """
    return sorted(
        ((role, folder) for role, folder in roles.items() if role.kind == kind),
        key=lambda item: (item[0].name, item[0].index or 0, item[0].seed is not None, item[0].seed or 0),
    )


def _concat(frames: list[pl.DataFrame], schema: Mapping[str, Any]) -> pl.DataFrame:
    """Return the rows of all frames as one frame; an empty frame with the columns of `schema` if no frame has rows."""
    present = [frame for frame in frames if frame.height]
    return pl.concat(present, how="diagonal_relaxed") if present else pl.DataFrame(schema=schema)


def _curves(path: Path, name: str, seed: int | None) -> pl.DataFrame:
    """Return the curves in a file as rows, with rows of their mean at the budgets that all benchmarks have.

    A file whose only curve is named `mean` or `average` gives only rows of `mean`. A column `kind` is added if the first
    curve names its kind, which no curve of the kind `J` does. A column `inexact` is added if it has reasons why answers
    are not exactly the model's.

    Args:
        path: file of curves by benchmark.
        name: name of the arm or frontier.
        seed: seed of the task, if any.
    """
    curves = read_json(path)
    first: Mapping[str, Any] = next(iter(curves.values()), {})
    label = [pl.lit(first["kind"]).alias("kind")] if "kind" in first else []
    label += [pl.lit(", ".join(first["inexact"])).alias("inexact")] if "inexact" in first else []
    rows = [
        (name, seed, benchmark, budget, float(accuracy))
        for benchmark, curve in curves.items()
        for budget, accuracy in zip(curve["budgets"], curve["accuracy"], strict=True)
    ]
    frame = pl.DataFrame(rows, schema=_CURVE, orient="row").with_columns(label)
    benchmarks = frame["benchmark"].n_unique()
    if benchmarks == 1 and frame["benchmark"][0].lower() in (MEAN, "average"):
        return frame.with_columns(pl.lit(MEAN).alias("benchmark"))
    mean = (
        frame.group_by("name", "seed", "budget")
        .agg(pl.col("accuracy").mean(), pl.len().alias("count"))
        .filter(pl.col("count") == benchmarks)
        .sort("budget")
        .select("name", "seed", pl.lit(MEAN).alias("benchmark"), "budget", "accuracy")
        .with_columns(label)
    )
    return pl.concat([frame, mean])


def _scores(
    folder: Path, seed: int | None, evaluations: Mapping[tuple[str, int | None], Path]
) -> pl.DataFrame:
    """Return the rows of a score with the current names of arms.

    Args:
        folder: folder of the score.
        seed: seed of the rows in a score of an earlier version, which has no column `seed`.
        evaluations: folders of evaluations, by arm and seed.
    """
    table = _rename_arms(
        read_parquet(folder / "reg.parquet").rename({"model": "arm"}), "score", folder, evaluations
    )
    return table if "seed" in table.columns else table.with_columns(pl.lit(seed, pl.Int64).alias("seed"))


def _verdict(folder: Path, evaluations: Mapping[tuple[str, int | None], Path]) -> StudyVerdict | None:
    """Return the verdict of a score; None if an earlier version, which stored no verdict, computed the score."""
    path = folder / VERDICT
    if not path.is_file():
        return None
    with reading(path):
        return from_json(read_json(path), arm_labels("score", folder, evaluations))


def _rename_arms(
    table: pl.DataFrame,
    kind: Literal["frontier", "score", "measure"],
    folder: Path,
    evaluations: Mapping[tuple[str, int | None], Path],
) -> pl.DataFrame:
    """Return a table in which each arm has its current name in place of its name at the time of the computation.

    Args:
        table: rows with the column `arm`.
        kind: kind of the task that computed the table.
        folder: folder of the task's result.
        evaluations: folders of evaluations, by arm and seed.
    """
    return table.with_columns(pl.col("arm").replace(arm_labels(kind, folder, evaluations)))


def _summary(path: Path, arm: str, seed: int | None) -> pl.DataFrame:
    """Return the summary of an evaluation as rows with the columns of `_SUMMARY`, a row for each benchmark.

    Args:
        path: file of the summary.
        arm: name of the arm.
        seed: seed of the evaluation, if any.
    """
    rows = [
        {"arm": arm, "seed": seed, "benchmark": name, **values} for name, values in read_json(path).items()
    ]
    return pl.DataFrame(
        [{key: row.get(key) for key in _SUMMARY} for row in rows], schema=_SUMMARY, orient="row", strict=False
    )


def _selections(study: Study, chosen: Mapping[Role, Path], trained: Mapping[Role, Path]) -> pl.DataFrame:
    """Return a row for each selection of training data, and for each setting that left data out of a training.

    Args:
        study: the study.
        chosen: folders of selections, by role.
        trained: folders of trainings, by role.
    """
    rows = []
    for role, folder in [*chosen.items(), *trained.items()]:
        stage = _stage(study, role.name, role.index or 0)
        labels = {"arm": role.name, "seed": role.seed, "stage": stage.name if stage else ""}
        if role.kind == "select":
            facts = read_json(folder / "select.json")
            counts = {name: facts.get(name, 0) for name in ("questions", "picked", "dropped", "lost")}
            rows.append(labels | counts | {"by": "its selection"})
        elif stage is not None and (folder / "train.json").exists():
            limits = {name: value for name, value in stage.method if name in ("max_prompt", "max_tokens")}
            for left_out in left_out_counts(limits, read_json(folder / "train.json")):
                amounts = {
                    "questions": left_out.total,
                    "picked": left_out.total - left_out.count,
                    "dropped": 0,
                    "lost": left_out.count,
                }
                rows.append(labels | amounts | {"by": left_out.setting})
    return pl.DataFrame(rows, schema=_SELECTION, orient="row")


def _steps(folder: Path) -> pl.DataFrame:
    """Return the metrics of each step of a training, finished or under way, with the times of steps if stored."""
    if (folder / "metrics.parquet").exists() or not (folder / STEPS).exists():
        steps = read_parquet(folder / "metrics.parquet")
        if not (folder / "timings.parquet").is_file():
            return steps
        timed = read_parquet(folder / "timings.parquet").select("step", f"^{TIMING_COLUMNS}$")
        return steps.join(timed.drop(set(steps.columns) - {"step"}, strict=False), on="step", how="left")
    return pl.from_dicts(read_steps(folder), infer_schema_length=None)


def _metrics(study: Study, trained: Mapping[Role, Path]) -> pl.DataFrame:
    """Return the metrics of each step of all trainings, with the arm, seed, stage and method.

    The column `at` is the step counted over all stages of the arm and seed.

    Args:
        study: the study.
        trained: folders of trainings by role, each arm's stages in order.
    """
    frames: list[pl.DataFrame] = []
    last_steps: dict[tuple[str, int | None], int] = {}
    for role, folder in trained.items():
        frame = _steps(folder)
        stage = _stage(study, role.name, role.index or 0)
        before = last_steps.get((role.name, role.seed), 0)
        step = pl.col("step").cast(pl.Int64)
        frames.append(
            frame.with_columns(
                pl.lit(role.name).alias("arm"),
                pl.lit(role.seed, pl.Int64).alias("seed"),
                pl.lit(role.index or 0, pl.Int64).alias("index"),
                pl.lit(stage.name if stage else "").alias("stage"),
                pl.lit(stage.method.kind if stage else "").alias("method"),
                (step + before).alias("at"),
            )
        )
        if frame.height:
            last_steps[role.name, role.seed] = before + int(frame["step"].max() or 0)  # type: ignore[arg-type]
    return _concat(frames, {"arm": pl.String, "seed": pl.Int64, "method": pl.String, "at": pl.Int64})


def _stage(study: Study, arm: str, index: int) -> Stage | None:
    """Return the stage of an arm by its index; None if the study has no such stage."""
    stages = next((study_arm.stages for study_arm in study.arms if study_arm.name == arm), ())
    return stages[index] if index < len(stages) else None


_PATHS_IN_SPEC = re.compile(r'\b(?:folder|file)\(\s*"(/[^"\\]*)"')


def hide_folders(spec: Spec) -> Spec:
    """Return the spec without absolute paths of this machine, in its settings and in its source texts.

    A path below the spec's folder becomes relative to this folder. Any other path becomes its last component, with as
    many components before it as make it different from all other paths. In further paths in source texts, the user's
    home folder becomes `~`. A spec without such paths is returned unchanged.
    """
    source_paths = [source.path for source in values_of(spec.study, Folder)]
    source_paths += (source.path for source in values_of(spec.study, File))
    # Declarations that the study does not use have paths too.
    source_paths += (path for text in spec.sources.values() for path in _PATHS_IN_SPEC.findall(text))
    files = (spec.folder, spec.path, *spec.sources, *(source.path for source in spec.origins.values()))
    paths = {path for path in (*source_paths, *files) if path.startswith("/") and path.strip("/")}
    home = os.path.expanduser("~").rstrip("/")
    if not paths and not (home and any(f"{home}/" in text for text in spec.sources.values())):
        return spec
    replacements = {home: "~"} if home else {}
    replacements |= {path: _relative(path, spec.folder, {*source_paths, *paths}) for path in paths}
    # A path occurs in strings of JSON, and with double escapes in source text inside such strings.
    spelled = {_escape_json(path): _escape_json(new) for path, new in replacements.items()}
    spelled |= {
        _escape_json(_escape_json(path)): _escape_json(_escape_json(new))
        for path, new in replacements.items()
    }
    longest = sorted(spelled, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w.~/-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])")
    text = json.dumps(dumped(spec), ensure_ascii=False)
    return Spec.model_validate_json(pattern.sub(lambda path: spelled[path[0]], text))


def _relative(path: str, folder: str, paths: set[str]) -> str:
    """Return a path relative to `folder`, or for a path elsewhere its shortest tail that no other path ends in.

    The tail is the last component if every tail of the path is also another path's.

    Args:
        path: an absolute path.
        folder: folder of the spec.
        paths: all paths of the spec.
    """
    if folder.startswith("/") and PurePosixPath(path).is_relative_to(folder):
        return str(PurePosixPath(path).relative_to(folder))
    parts = PurePosixPath(path).parts[1:]
    tails = ("/".join(parts[-count:]) for count in range(1, len(parts)))
    unique = (
        tail for tail in tails if sum(f"/{other}".rstrip("/").endswith(f"/{tail}") for other in paths) == 1
    )
    return next(unique, parts[-1] if parts else ".")


def _escape_json(text: str) -> str:
    """Return a text as JSON has it between quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
