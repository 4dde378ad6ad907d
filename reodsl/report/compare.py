"""Put the arms of several runs side by side: which can be compared, and their differences, paired where they can be.

Two arms are compared where they answered the same questions in the same way. Arms that did not stand in groups of their
own, each with what sets it apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from reodsl.diff.compare import pair
from reodsl.graph.task import VERSIONS, parse_role
from reodsl.ir import canonical, digest
from reodsl.ir.data import verifier_words
from reodsl.ir.study import CONFIDENCE, Frontier, Score, Suite
from reodsl.numbers.arm_scores import arm_scores
from reodsl.numbers.intervals import (
    STARRED,
    ArmScores,
    Comparisons,
    Measured,
    Scores,
    add_stars,
    column_weights,
    compare_arms,
    correct,
    measure_cells,
    scores,
    typical_of,
)
from reodsl.numbers.reg import integration_grid
from reodsl.numbers.verdict import common_of, judge
from reodsl.report.material import MEAN, Made, Material, read_json, reading
from reodsl.report.notes import misfits
from reodsl.store.files import LARGEST_RECORD, read_plain
from reodsl.store.store import MATERIAL

Conditions = dict[str, tuple[str, str]]
"""The conditions of an evaluation, by a reader's name for each: a mark that is equal where it is, and a few words."""

_QUESTIONS = "the questions of "
_CHANGES = ("difference", "accuracy_change", "length_change")
_Read = dict[str, dict[int | None, ArmScores]]
_MEASURES = ("accuracy", "length", *_CHANGES)


@dataclass(frozen=True, slots=True)
class Run:
    """A run under the label that it has on the page; `name` is its whole name."""

    label: str
    name: str
    material: Material


@dataclass(frozen=True, slots=True)
class ComparableArms:
    """Arms that can be compared. The material's arms are named `LABEL/ARM`.

    `against` names what each arm's difference is from, paired by question and seed: the same method in an earlier run, or
    one arm for all where no method is in two runs. `unpaired` says of which arms there is none, and why. `apart` says
    what sets the group apart from the first.
    """

    material: Material
    against: Mapping[str, str]
    unpaired: Mapping[str, str]
    apart: tuple[str, ...]

    @property
    def reference(self) -> str | None:
        """The one arm that all differences are from; None where each method is compared with itself."""
        score = self.material.study.score
        return None if score is None else score.relative_to


@dataclass(frozen=True, slots=True)
class Comparison:
    """Groups, the largest first; all trainings; arms that are one result, by name; and runs without an evaluation."""

    groups: tuple[ComparableArms, ...]
    trainings: Material
    same: Mapping[str, str]
    unevaluated: tuple[str, ...]


def compare(runs: Sequence[Run]) -> Comparison:
    """Return the arms of all runs in groups that can be compared, and their trainings.

    An arm whose results another run has too stands there once. Raises E0981 where a file of samples cannot be read.
    """
    same = _same_results(runs)
    conditions: dict[str, Conditions] = {}
    for run in runs:
        by_suite: dict[str, Conditions] = {}
        for arm in run.material.study.arms:
            name, folders = _name(run, arm.name), _folders(run, arm.name)
            if not folders or name in same:
                continue
            folder = next(iter(folders.values()))
            key = digest(canonical(arm.suite)) + str(_version(folder)) + _kind(folder)
            if key not in by_suite:
                by_suite[key] = _conditions(arm.suite, folder)
            conditions[name] = by_suite[key]
    members: dict[str, list[str]] = {}
    for name, each in conditions.items():
        marks = digest({what: mark for what, (mark, _) in each.items()})
        members.setdefault(marks, []).append(name)
    ordered = sorted(members.values(), key=len, reverse=True)
    twins = _twins(runs, same)
    groups = []
    for names in ordered:
        apart = _apart(conditions[ordered[0][0]], conditions[names[0]])
        groups.append(_group(runs, names, twins, apart))
    trained = _merge_runs(runs, [_name(run, arm) for run in runs for arm in run.material.drawn], twins)
    unevaluated = tuple(run.label for run in runs if not run.material.evaluations)
    return Comparison(tuple(groups), trained, same, unevaluated)


def _name(run: Run, arm: str) -> str:
    return f"{run.label}/{arm}"


def _folders(run: Run, arm: str) -> dict[int | None, Path]:
    return {seed: folder for (name, seed), folder in run.material.evaluations.items() if name == arm}


def _same_results(runs: Sequence[Run]) -> dict[str, str]:
    """Arms whose evaluations an earlier run has as well, and the name that they have there."""
    first: dict[tuple[tuple[int | None, str], ...], str] = {}
    same = {}
    for run in runs:
        here = {}
        for arm in run.material.arms:
            results = tuple((seed, str(folder)) for seed, folder in _folders(run, arm).items())
            if results in first:
                same[_name(run, arm)] = first[results]
            else:
                here[results] = _name(run, arm)
        first |= here
    return same


def _conditions(suite: Suite, folder: Path) -> Conditions:
    """Return the conditions that two compared arms must have in common, by a reader's names for them."""
    path = folder / "samples.parquet"
    with reading(path):
        asked = (
            pl.scan_parquet(path, glob=False)
            .select("benchmark", "question", "text", "gold")
            .unique()
            .sort("benchmark", "question")
            .collect(engine="streaming")
        )
    conditions: Conditions = {}
    for part in asked.partition_by("benchmark", maintain_order=True):
        mark = hashlib.sha256(part.write_csv().encode()).hexdigest()
        conditions[f"{_QUESTIONS}{part['benchmark'][0]}"] = mark, f"{part['question'].n_unique():,}"
    conditions["the kind of curve"] = (_kind(folder),) * 2
    grid, rollout = suite.grid, suite.rollout
    conditions["the grid"] = digest(list(grid)), f"{len(grid)} budgets up to {grid[-1]:,} tokens"
    conditions["the longest response"] = str(rollout.max_tokens), f"{rollout.max_tokens:,} tokens"
    conditions["the sampling"] = digest(canonical(rollout)), f"temperature {rollout.temperature:g}"
    chosen = [*suite.wordings, suite.reference, suite.reference_samples]
    forcing, asked_in = suite.forcing, chosen if suite.wordings else suite.wording
    conditions["how answers are forced"] = (
        ("", "not at all") if forcing is None else (digest(canonical(forcing)), repr(forcing.text))
    )
    conditions["the wording"] = (
        ("", "the model's") if asked_in is None else (digest(canonical(asked_in)), "its own")
    )
    for benchmark in suite.benchmarks:
        grading = benchmark.data.grading
        words = f"{grading.words}, {verifier_words(grading.verifier)}"
        conditions[f"how answers of {benchmark.name} are read"] = digest(grading.essence), words
    number = _version(folder)
    conditions["the code that evaluated"] = (
        str(number),
        f"number {number}" if number is not None else "unknown",
    )
    return conditions


def _kind(folder: Path) -> str:
    """Return the kind of curves that an evaluation has."""
    with reading(folder / "curves.json"):
        return next(
            (str(curve.get("kind", "J")) for curve in read_json(folder / "curves.json").values()), "J"
        )


def _version(folder: Path) -> int | None:
    """Return the number of the code that evaluated, which is part of a result's identity; None outside of a store."""
    try:
        made = json.loads(read_plain(folder / MATERIAL, LARGEST_RECORD))
        # Results of others stand beside what this version evaluates.
        return VERSIONS["evaluate"] if made.get("kind") == "results" else int(made["version"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _apart(first: Conditions, other: Conditions) -> tuple[str, ...]:
    """Return the differences between the conditions of two groups, in words."""
    lines = []
    for what in dict.fromkeys([*first, *other]):
        if what in first and what in other:
            (one, there), (two, here) = first[what], other[what]
            if one != two:
                lines.append(f"{what} ({there} there, {here} here)" if there != here else what)
        elif what.startswith(_QUESTIONS):
            lines.append(f"{what} are only {'there' if what in first else 'here'}")
    return tuple(lines)


def _twins(runs: Sequence[Run], same: Mapping[str, str]) -> dict[str, str]:
    """Return the same method in the first run that has it, by arm."""
    twins: dict[str, str] = {}
    for place, run in enumerate(runs):
        for earlier in runs[:place]:
            for one, two in pair(earlier.material.study, run.material.study):
                there = _name(earlier, one.name)
                twins.setdefault(_name(run, two.name), same.get(there, there))
    return twins


def _group(
    runs: Sequence[Run], names: Sequence[str], twins: Mapping[str, str], apart: tuple[str, ...]
) -> ComparableArms:
    against = {name: twins[name] for name in names if twins.get(name) in names}
    twinned = bool(against)
    # Methods stand beside themselves.
    names = sorted(names, key=lambda name: names.index(against.get(name, name)))
    reference = _reference(runs, names)
    if not against:
        against = {name: reference for name in names if name != reference}
    merged = _merge_runs(runs, names, twins)
    home = next(run for run in runs if reference.startswith(f"{run.label}/"))
    score = home.material.study.score
    suite = next(arm.suite for arm in home.material.study.arms if _name(home, arm.name) == reference)
    to = score.to if score is not None else suite.reg_to or suite.grid[-1]
    folders = {
        (name, seed): folder
        for run in runs
        for name in names
        if name.startswith(f"{run.label}/")
        for seed, folder in _folders(run, name.removeprefix(f"{run.label}/")).items()
    }
    read, budgets = _read(folders, names)
    comparisons, seeds = _compare(read, budgets, against, to)
    table, unpaired = _scores(read, budgets, against, to, comparisons)
    edges = _shared_frontier(runs, names, to)
    frontiers: tuple[Frontier, ...] = ()
    if edges is not None and score is not None:
        table = _add_reg(table, runs, names)
        frontiers = tuple(each for each in home.material.study.frontiers if each.name == score.frontier)
    study = merged.study.model_copy(
        update={
            "score": Score(
                frontier=frontiers[0].name if frontiers else "",
                to=to,
                relative_to=None if twinned else reference,
                confidence=CONFIDENCE,
                misfits=misfits(home.material.study) if frontiers else (),
            ),
            "frontiers": tuple(each.model_copy(update={"of": ()}) for each in frontiers),
        }
    )
    material = replace(
        merged,
        spec=merged.spec.model_copy(update={"study": study}),
        scores=table,
        frontiers=edges if edges is not None else merged.frontiers,
        verdict=None
        if comparisons is None
        else judge(
            comparisons,
            common=common_of({key: at for key, at in folders.items() if key[1] in (None, *seeds)}),
        ),
    )
    return ComparableArms(material, against, unpaired, apart)


def _reference(runs: Sequence[Run], names: Sequence[str]) -> str:
    """Return the arm that others are compared with if no method is in two runs: a baseline, else the first."""
    for run in runs:
        score = run.material.study.score
        if score is not None and score.relative_to and _name(run, score.relative_to) in names:
            return _name(run, score.relative_to)
    return names[0]


def _merge_runs(runs: Sequence[Run], names: Sequence[str], twins: Mapping[str, str]) -> Material:
    """Return the material of some arms, in order, as one study without scores and frontiers, with arms named `LABEL/ARM`.

    A method has one colour in all runs.
    """
    wanted = {name: place for place, name in enumerate(names)}

    def renamed(frame: pl.DataFrame, column: str, run: Run) -> pl.DataFrame:
        if column not in frame.columns:
            return frame
        full = frame.with_columns((pl.lit(f"{run.label}/") + pl.col(column)).alias(column))
        return full.filter(pl.col(column).is_in(names))

    def together(attribute: str, column: str) -> pl.DataFrame:
        frames = [renamed(getattr(run.material, attribute), column, run) for run in runs]
        return pl.concat(frames, how="diagonal_relaxed")

    arms = sorted(
        (
            arm.model_copy(update={"name": _name(run, arm.name)})
            for run in runs
            for arm in run.material.study.arms
            if _name(run, arm.name) in wanted
        ),
        key=lambda arm: wanted[arm.name],
    )
    first = runs[0].material
    study = first.study.model_copy(
        update={
            "name": " and ".join(run.label for run in runs),
            "arms": tuple(arms),
            "frontiers": (),
            "score": None,
            "tables": (),
            "charts": (),
        }
    )
    artifacts: dict[str, Made] = {}
    for run in runs:
        for text, artifact in run.material.artifacts.items():
            role = parse_role(text)
            if role.kind in ("evaluate", "train") and _name(run, role.name) in wanted:
                artifacts[text.replace(f":{role.name}", f":{_name(run, role.name)}", 1)] = artifact
    return replace(
        first,
        spec=first.spec.model_copy(update={"study": study}),
        curves=together("curves", "name"),
        frontiers=first.frontiers.clear(),
        winners=first.winners.clear(),
        summary=together("summary", "arm"),
        scores=pl.DataFrame(),
        metrics=together("metrics", "arm"),
        selected={},
        selections=together("selections", "arm"),
        evaluations={
            (_name(run, arm), seed): folder
            for run in runs
            for (arm, seed), folder in run.material.evaluations.items()
            if _name(run, arm) in wanted
        },
        trainings={
            (_name(run, arm), seed, index): folder
            for run in runs
            for (arm, seed, index), folder in run.material.trainings.items()
            if _name(run, arm) in wanted
        },
        artifacts=artifacts,
        accepted=(),
        unfinished=(),
        twins=twins,
    )


def _read(
    folders: Mapping[tuple[str, int | None], Path], names: Sequence[str]
) -> tuple[_Read, tuple[int, ...]]:
    """Return the scores by arm and seed, arms in the order of `names`, and the budgets."""
    read: _Read = {name: {} for name in names}
    budgets: tuple[int, ...] = ()
    for (name, seed), folder in folders.items():
        with reading(folder):
            read[name][seed], budgets = arm_scores(folder, name)
    return read, budgets


def _compare(
    read: _Read, budgets: Sequence[int], against: Mapping[str, str], to: int
) -> tuple[Comparisons | None, Sequence[int | None]]:
    """Return the comparisons of all arms over their common seeds, and these; None without any, or with no budgets."""
    seeded = [set(of_seeds) for of_seeds in read.values() if None not in of_seeds]
    seeds = sorted(set.intersection(*seeded) if seeded else {None}, key=lambda seed: seed or 0)
    if not seeds or len(budgets) < 2:
        return None, seeds
    arms = {name: _select_seeds(of_seeds, seeds) for name, of_seeds in read.items()}
    comparisons = compare_arms(
        arms,
        budgets,
        seeds=len(seeds),
        l_max=to,
        grid=budgets,
        against=against,
        confidence=CONFIDENCE,
    )
    return comparisons, seeds


def _correct_alone(paired: Sequence[Scores], against: Mapping[str, str]) -> Comparisons:
    """Return the comparisons of a table by themselves, where no seeds are common to all arms."""
    means = {row.model: row for row in paired if row.benchmark == MEAN}
    reg = {(name, against[name]): row.difference for name, row in means.items() if row.difference is not None}
    accuracy = {name: row.accuracy_change for name, row in means.items() if row.accuracy_change is not None}
    corrected = correct([*reg.values(), *accuracy.values()], CONFIDENCE)
    return Comparisons(
        (),
        dict(zip(reg, corrected, strict=False)),
        dict(zip(accuracy, corrected[len(reg) :], strict=True)),
        {},
        against,
        len(corrected),
        *(0, 0),
        CONFIDENCE,
    )


def _scores(
    read: _Read,
    budgets: Sequence[int],
    against: Mapping[str, str],
    to: int,
    comparisons: Comparisons | None,
) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return the rows of a table of scores, without REG, and the arms without a difference, with the reason.

    An arm's difference is over the seeds that it shares with the one `against` it; accuracy and length are over all seeds.
    Stars are those of the `comparisons`.
    """
    names = list(read)
    # Of whole responses alone there is no curve, and no area under it.
    whole_alone = len(budgets) < 2
    weights = np.zeros(1) if whole_alone else column_weights(budgets, integration_grid(to, budgets))
    benchmarks = tuple(next(iter(read[names[0]].values())).forced)
    places = {**{b: (b,) for b in benchmarks}, MEAN: benchmarks}
    unpaired: dict[str, str] = {}
    shared: dict[str, tuple[int | None, ...]] = {}
    # By the seeds that are shared, the arms that are compared over them.
    compared: dict[tuple[int | None, ...], dict[str, Measured]] = {}
    for name in names:
        other = against.get(name)
        seeds = tuple(_common(read[name], read[other])) if other is not None else ()
        if other is not None and seeds:
            shared[name] = seeds
            for each in (name, other):
                of_seeds = _select_seeds(read[each], seeds)
                compared.setdefault(seeds, {})[each] = measure_cells(
                    of_seeds, benchmarks, len(seeds), weights
                )
        elif other is not None:
            unpaired[name] = "no seed in common"
        elif name not in against.values():
            unpaired[name] = "in no other run"
    paired: list[Scores] = []
    for title, where in places.items():
        typical = {seeds: typical_of(models.values(), where) for seeds, models in compared.items()}
        for name, seeds in shared.items():
            two = compared[seeds][name], compared[seeds][against[name]]
            difference = scores(name, title, where, *two, CONFIDENCE, typical[seeds])
            paired.append(replace(difference, difference=None) if whole_alone else difference)
    starred = add_stars(paired, comparisons or _correct_alone(paired, against))
    differences = {(each.model, each.benchmark): each for each in starred}
    rows: list[dict[str, Any]] = []
    for name in names:
        whole = measure_cells(list(read[name].values()), benchmarks, len(read[name]), weights)
        for title, where in places.items():
            row = _row(scores(name, title, where, whole, None, CONFIDENCE), ("accuracy", "length"))
            if name in shared:
                row |= _row(differences[name, title], _CHANGES)
            rows.append(row)
    ends = [f"{measure}{end}" for measure in _MEASURES for end in ("", "_low", "_high")]
    numbers = dict.fromkeys([*ends, *(f"{measure}_p" for measure in STARRED)], pl.Float64)
    schema: dict[str, type[pl.DataType]] = {"arm": pl.String, "benchmark": pl.String, **numbers}
    schema |= {f"{measure}_star": pl.Boolean for measure in STARRED}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return table.with_columns(pl.lit(None, pl.Int64).alias("seed")), unpaired


def _common(one: Mapping[int | None, ArmScores], other: Mapping[int | None, ArmScores]) -> list[int | None]:
    """Return the seeds that two arms share; an arm without seeds is the same in each."""
    if None in one:
        return list(other)
    return list(one) if None in other else [seed for seed in one if seed in other]


def _select_seeds(read: Mapping[int | None, ArmScores], seeds: Sequence[int | None]) -> list[ArmScores]:
    return [read[None]] if None in read else [read[seed] for seed in seeds]


def _row(of: Scores, measures: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"arm": of.model, "benchmark": of.benchmark}
    for measure in measures:
        value = getattr(of, measure)
        if value is not None:
            row |= {measure: value.value, f"{measure}_low": value.low, f"{measure}_high": value.high}
            if measure in STARRED:
                row |= {f"{measure}_p": value.p_holm, f"{measure}_star": value.significant}
    return row


def _shared_frontier(runs: Sequence[Run], names: Sequence[str], to: int) -> pl.DataFrame | None:
    """Return the frontier that all runs of a group were scored against; None where they were not, or not as far."""
    frames = []
    for run in runs:
        if not any(name.startswith(f"{run.label}/") for name in names):
            continue
        score = run.material.study.score
        if score is None or score.to != to or "reg" not in run.material.scores.columns:
            return None
        columns = ["seed", "benchmark", "budget", "accuracy"]
        frames.append(run.material.frontier().sort(columns[:3]))
    same = bool(frames) and all(
        frame.drop("name").equals(frames[0].drop("name")) for frame in frames[1:] if frames[0].height
    )
    return frames[0] if same and frames[0].height else None


def _add_reg(table: pl.DataFrame, runs: Sequence[Run], names: Sequence[str]) -> pl.DataFrame:
    """Return the table with each arm's REG as its own run scored it."""
    known = []
    for run in runs:
        of_run = run.material.scores
        if "reg" not in of_run.columns:
            continue
        wanted = ("arm", "benchmark", "reg", "reg_low", "reg_high", "reg_plain")
        over_seeds = of_run.filter(pl.col("seed").is_null()) if "seed" in of_run.columns else of_run
        part = over_seeds.select(name for name in wanted if name in over_seeds.columns)
        known.append(part.with_columns((pl.lit(f"{run.label}/") + pl.col("arm")).alias("arm")))
    return table.join(
        pl.concat(known, how="diagonal_relaxed"), on=["arm", "benchmark"], how="left", maintain_order="left"
    )
