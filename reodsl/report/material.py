"""The report's material: a spec and its artifacts as frames of everything that is shown.

Files of samples are scanned, never read whole; only the few rows that the page shows leave the disk.
"""

from __future__ import annotations

import json
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
class Made:
    """The origin of an artifact, as far as its store wrote it down: its key, seconds, device and versions.

    `unconfined` is why answers were checked outside a sandbox there; empty where they were inside. `hub` has the commits
    of a hub's models and data sets that it goes back to, by repository.
    """

    key: str
    seconds: float | None = None
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    unconfined: str = ""
    hub: Mapping[str, str] = field(default_factory=dict)


def read_origin(folder: Path) -> Made:
    """Return the store's manifest of an artifact; only its key if it has none."""
    try:
        record = json.loads((folder / MANIFEST).read_text("utf-8"))["made"]
        versions = {str(name): str(version) for name, version in record.get("versions", {}).items()}
        seconds, device = float(record["seconds"]), str(record.get("device", ""))
        hub = {str(repo): str(commit) for repo, commit in record.get("hub", {}).items()}
        return Made(folder.name, seconds, device, versions, str(record.get("unconfined") or ""), hub)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Made(folder.name)


@contextmanager
def reading(place: Path) -> Iterator[None]:
    """Says of what cannot be read in this block that the artifact at `place` is damaged (E0981)."""
    try:
        yield
    except (OSError, ValueError, pl.exceptions.PolarsError) as failure:
        raise problem(
            "E0981",
            f"an artifact of this run cannot be read: {first_line(failure)}",
            where=str(place),
            help="find what is damaged with `reodsl ls --verify`; running the spec again makes it anew",
        ) from None


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises E0981."""
    with reading(path):
        return json.loads(path.read_text("utf-8"))


def read_parquet(path: Path) -> pl.DataFrame:
    """Return a Parquet file as a whole. Raises E0981."""
    with reading(path):
        return pl.read_parquet(path, glob=False)


MEAN = "mean"
TIMED = "(?:seconds|train_tokens|mfu|memory).*"
"""The names of numbers of a step that differ from run to run: how long it took, and with how much memory."""

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
    """The material of a report. Frames may be empty; `seed` is null where a task belongs to no seed.

    `curves` and `frontiers` (name, seed, benchmark, budget, accuracy) hold each benchmark and `mean`; `summary`
    (arm, seed, benchmark, accuracy, length, …) likewise; `scores` are the rows of `reg.parquet` with `arm`, null `seed`
    over all seeds; `metrics` those of every `metrics.parquet` with arm, seed, method, stage and `at`, the step counted
    over the arm's stages; `winners` name the arms that make each frontier; `selected` maps an arm and
    seed to its `budgets.json`; `selections` has a row for each arm, seed and stage that trained on what a selection
    picked: the `questions` of the pool, the rows that were `picked` of them, those that `drop` left out (`dropped`),
    and the questions that were `lost`, with nothing to pick; `evaluations` maps an arm and seed to the folder with its
    samples, `trainings` an arm, seed and stage to that of its training, and `sampled` the task of a pool or of reference
    samples to that of its responses; `artifacts` says of each role how it was made. `accepted` are the results that a person
    let stand although what makes them changed: each with `task`, `because`, `changes` and `at`. `unfinished` says what is
    left out, where not everything was there. `foremost` are the arms that charts show, where they do not show all. `bases`
    are the arms where others start. `verdict` is that of the score, and `measures` are the rows of `measures.parquet`.
    """

    spec: Spec
    curves: pl.DataFrame
    frontiers: pl.DataFrame
    winners: pl.DataFrame
    summary: pl.DataFrame
    scores: pl.DataFrame
    metrics: pl.DataFrame
    selected: Mapping[tuple[str, int | None], Mapping[str, Any]]
    evaluations: Mapping[tuple[str, int | None], Path]
    artifacts: Mapping[str, Made]
    accepted: tuple[Mapping[str, Any], ...] = ()
    selections: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_SELECTION))
    unfinished: tuple[str, ...] = ()
    trainings: Mapping[tuple[str, int | None, int], Path] = field(default_factory=dict)
    sampled: Mapping[str, Path] = field(default_factory=dict)
    foremost: tuple[str, ...] = ()
    verdict: StudyVerdict | None = None
    measures: pl.DataFrame = field(default_factory=pl.DataFrame)
    bases: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        # Every chart asks for them, and to find them each arm is compared with what others start from.
        object.__setattr__(self, "bases", bases(self.study))

    @property
    def study(self) -> Study:
        """The study that ran."""
        return self.spec.study

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the evaluated arms, in the order of the study."""
        there = set(self.summary["arm"])
        return tuple(arm.name for arm in self.study.arms if arm.name in there)

    @property
    def drawn(self) -> tuple[str, ...]:
        """Names of the arms that there is anything of to draw, evaluated or only trained so far, in the study's order.

        Those that charts show come first, so that each has one look in all of the report.
        """
        there = set(self.summary["arm"]) | set(self.metrics["arm"])
        names = tuple(arm.name for arm in self.study.arms if arm.name in there)
        first = set(self.foremost)
        return tuple(sorted(names, key=lambda name: name not in first)) if first else names

    @property
    def colours(self) -> dict[str, str]:
        """The colour of each arm that is drawn."""
        return theme.colours(self.drawn, self.bases)

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """Names of the benchmarks, in the order of evaluation, without `mean`."""
        names = self.summary["benchmark"].unique(maintain_order=True).to_list()
        return tuple(name for name in names if name != MEAN)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that have results."""
        frames = (self.summary["seed"], self.scores["seed"] if "seed" in self.scores.columns else None)
        return tuple(sorted({seed for frame in frames if frame is not None for seed in frame.drop_nulls()}))

    @property
    def framed(self) -> tuple[str, ...]:
        """Return the result of `framed` for the study."""
        return framed(self.study)

    def frontier(self) -> pl.DataFrame:
        """Return the frontier that the study is scored against, or its first: seed, benchmark, budget, accuracy."""
        names = [f.name for f in self.study.frontiers]
        score = self.study.score
        chosen = score.frontier if score is not None else (names[0] if names else "")
        return self.frontiers.filter(pl.col("name") == chosen)


def bases(study: Study) -> tuple[str, ...]:
    """Arms that are where others start: models as they come, and checkpoints that further training began at."""
    trained = [a.checkpoint for a in study.arms if isinstance(a.checkpoint, FromTraining)]
    # Arms by the hundred start from one value, which is written out once.
    values = {id(each.experiment.start): each.experiment.start for each in trained}
    starts = {start.model_dump_json() for start in values.values()}
    return tuple(
        arm.name
        for arm in study.arms
        if isinstance(arm.checkpoint, FromModel) or arm.checkpoint.model_dump_json() in starts
    )


def framed(study: Study) -> tuple[str, ...]:
    """Return the arms that make the frontier of the score, or of any frontier when nothing is scored."""
    score = study.score
    frontiers = [f for f in study.frontiers if score is None or f.name == score.frontier]
    return tuple(name for frontier in frontiers for name in frontier.of)


def title(benchmark: str) -> str:
    """Return how a benchmark is named on the page; the mean over them is the paper's `Average`."""
    return "Average" if benchmark == MEAN else benchmark


def read(spec: Spec, inputs: Mapping[str, Path], accepted: Iterable[Mapping[str, Any]] = ()) -> Material:
    """Read artifacts by role (see the page STORE), and skip roles that no part of the report shows.

    Nothing that is shown names a folder of this machine.
    """
    roles = {parse_role(text): folder for text, folder in inputs.items()}
    evaluations = {(r.name, r.seed): folder for r, folder in sorted_roles(roles, "evaluate")}
    wanted = ("frontier", "score", "train", "budgets", "measure")
    frontiers, scores, trained, selected, measured = (dict(sorted_roles(roles, k)) for k in wanted)
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
        selected={(r.name, r.seed): read_json(f / "budgets.json") for r, f in selected.items()},
        evaluations=evaluations,
        artifacts={text: read_origin(folder) for text, folder in sorted(inputs.items())},
        accepted=tuple(accepted),
        selections=_selections(spec.study, dict(sorted_roles(roles, "select")), trained),
        sampled={r.name: folder for r, folder in sorted_roles(roles, "sample")},
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
    """Return the roles of a kind with their folders, by name, index and seed; no seed comes first."""

    def place(item: tuple[Role, Path]) -> tuple[str, int, bool, int]:
        role = item[0]
        return (role.name, role.index or 0, role.seed is not None, role.seed or 0)

    return sorted(((role, folder) for role, folder in roles.items() if role.kind == kind), key=place)


def _concat(frames: list[pl.DataFrame], schema: Mapping[str, Any]) -> pl.DataFrame:
    present = [frame for frame in frames if frame.height]
    return pl.concat(present, how="diagonal_relaxed") if present else pl.DataFrame(schema=schema)


def _curves(path: Path, name: str, seed: int | None) -> pl.DataFrame:
    """Return a file of curves as rows, with the mean over benchmarks at the budgets that all of them have.

    Those of another kind than `J` have it in a column `kind`, and inexact ones the reasons in `inexact`.
    """
    drawn = read_json(path)
    first: Mapping[str, Any] = next(iter(drawn.values()), {})
    label = [pl.lit(first["kind"]).alias("kind")] if "kind" in first else []
    label += [pl.lit(", ".join(first["inexact"])).alias("inexact")] if "inexact" in first else []
    rows = [
        (name, seed, benchmark, budget, float(accuracy))
        for benchmark, curve in drawn.items()
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
    """Return the rows of a score, with the names that arms have now; those of runs before scores had seeds are of one."""
    table = _rename_arms(
        read_parquet(folder / "reg.parquet").rename({"model": "arm"}), "score", folder, evaluations
    )
    return table if "seed" in table.columns else table.with_columns(pl.lit(seed, pl.Int64).alias("seed"))


def _verdict(folder: Path, evaluations: Mapping[tuple[str, int | None], Path]) -> StudyVerdict | None:
    """Return the verdict of a score; None in results of versions that gave none."""
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
    """Return a table of arms with the names that they have now."""
    return table.with_columns(pl.col("arm").replace(arm_labels(kind, folder, evaluations)))


def _summary(path: Path, arm: str, seed: int | None) -> pl.DataFrame:
    rows = [
        {"arm": arm, "seed": seed, "benchmark": name, **values} for name, values in read_json(path).items()
    ]
    return pl.DataFrame(
        [{key: row.get(key) for key in _SUMMARY} for row in rows], schema=_SUMMARY, orient="row", strict=False
    )


def _selections(study: Study, chosen: Mapping[Role, Path], trained: Mapping[Role, Path]) -> pl.DataFrame:
    """Return how much each training had of its data: what a selection picked, and what was too long or had no budget."""
    rows = []
    for role, folder in [*chosen.items(), *trained.items()]:
        stage = _stage(study, role.name, role.index or 0)
        place = {"arm": role.name, "seed": role.seed, "stage": stage.name if stage else ""}
        if role.kind == "select":
            facts = read_json(folder / "select.json")
            counts = {name: facts.get(name, 0) for name in ("questions", "picked", "dropped", "lost")}
            rows.append(place | counts | {"by": "its selection"})
        elif stage is not None and (folder / "train.json").exists():
            limits = {name: value for name, value in stage.method if name in ("max_prompt", "max_tokens")}
            for each in left_out_counts(limits, read_json(folder / "train.json")):
                kept = {
                    "questions": each.total,
                    "picked": each.total - each.count,
                    "dropped": 0,
                    "lost": each.count,
                }
                rows.append(place | kept | {"by": each.setting})
    return pl.DataFrame(rows, schema=_SELECTION, orient="row")


def _steps(folder: Path) -> pl.DataFrame:
    """Return the steps of a training: of its result, or as far as they are where the folder is of one under way."""
    if (folder / "metrics.parquet").exists() or not (folder / STEPS).exists():
        steps = read_parquet(folder / "metrics.parquet")
        if not (folder / "timings.parquet").is_file():
            return steps
        timed = read_parquet(folder / "timings.parquet").select("step", f"^{TIMED}$")
        return steps.join(timed.drop(set(steps.columns) - {"step"}, strict=False), on="step", how="left")
    return pl.from_dicts(read_steps(folder), infer_schema_length=None)


def _metrics(study: Study, trained: Mapping[Role, Path]) -> pl.DataFrame:
    frames: list[pl.DataFrame] = []
    reached: dict[tuple[str, int | None], int] = {}
    for role, folder in trained.items():
        frame = _steps(folder)
        stage = _stage(study, role.name, role.index or 0)
        before = reached.get((role.name, role.seed), 0)
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
            reached[role.name, role.seed] = before + int(frame["step"].max() or 0)  # type: ignore[arg-type]
    return _concat(frames, {"arm": pl.String, "seed": pl.Int64, "method": pl.String, "at": pl.Int64})


def _stage(study: Study, arm: str, index: int) -> Stage | None:
    stages = next((each.stages for each in study.arms if each.name == arm), ())
    return stages[index] if index < len(stages) else None


_NAMED = re.compile(r'\b(?:folder|file)\(\s*"(/[^"\\]*)"')


def hide_folders(spec: Spec) -> Spec:
    """Return the spec with relative paths in the place of absolute ones, in its settings and in its text alike.

    A path below the spec's folder starts there, any other is its last name, with as many before it as tell it from the
    others. What else in the text is below the user's folder starts with `~`.
    """
    named = [each.path for each in values_of(spec.study, Folder)]
    named += (each.path for each in values_of(spec.study, File))
    # Declarations that the study does not use have paths too.
    named += (path for text in spec.sources.values() for path in _NAMED.findall(text))
    files = (spec.folder, spec.path, *spec.sources, *(each.path for each in spec.origins.values()))
    paths = {path for path in (*named, *files) if path.startswith("/") and path.strip("/")}
    home = os.path.expanduser("~").rstrip("/")
    if not paths and not (home and any(f"{home}/" in text for text in spec.sources.values())):
        return spec
    shown = {home: "~"} if home else {}
    shown |= {path: _relative(path, spec.folder, {*named, *paths}) for path in paths}
    # As they are spelled in JSON, and in a text of the language that JSON holds.
    spelled = {_escape_json(path): _escape_json(new) for path, new in shown.items()}
    spelled |= {
        _escape_json(_escape_json(path)): _escape_json(_escape_json(new)) for path, new in shown.items()
    }
    longest = sorted(spelled, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w.~/-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])")
    text = json.dumps(dumped(spec), ensure_ascii=False)
    return Spec.model_validate_json(pattern.sub(lambda path: spelled[path[0]], text))


def _relative(path: str, folder: str, others: set[str]) -> str:
    if folder.startswith("/") and PurePosixPath(path).is_relative_to(folder):
        return str(PurePosixPath(path).relative_to(folder))
    parts = PurePosixPath(path).parts[1:]
    tails = ("/".join(parts[-count:]) for count in range(1, len(parts)))
    alone = (
        tail for tail in tails if sum(f"/{each}".rstrip("/").endswith(f"/{tail}") for each in others) == 1
    )
    return next(alone, parts[-1] if parts else ".")


def _escape_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
