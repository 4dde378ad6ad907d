"""Compare two specs: the settings that differ, the tasks that they share, and what their runs measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from reodsl.graph.task import Graph, Task, identity, material, parse_role
from reodsl.ir import Spec, canonical, digest
from reodsl.ir.base import IR, Node, identifying
from reodsl.ir.cluster import Cluster
from reodsl.ir.expression import Expression
from reodsl.ir.reward import Budgets, Exits, Measure, OracleBudgets, QuestionBudgets, Reward, Split, Steps
from reodsl.ir.reward_text import ABSENT, as_written, expression_text, let_names, reward_lines
from reodsl.ir.study import Arm, Study
from reodsl.ir.training import FromModel, FromResults, FromTraining, Ppo, Source, Stage
from reodsl.store.manifest import arm_labels

Sections = dict[str, Any]
DERIVED = "second generation"


class WrittenText(str):
    """A text by which two specs are compared; `written` is what a person reads: names of the spec, or of a measure."""

    written: str

    def __new__(cls, text: str, written: str) -> WrittenText:
        made = super().__new__(cls, text)
        made.written = written
        return made


@dataclass(frozen=True, slots=True)
class DefaultValue:
    """The value of a setting that the canonical form omits at its default."""

    value: Any


def arm_settings(arm: Arm, staged: bool, cluster: Cluster | None = None) -> Sections:
    """Return the sections of an arm with its training's settings; these are under `stages` if `staged`.

    With `cluster`, the study's, they include what each experiment trains on.
    """
    return {**_start(arm.checkpoint, staged, cluster), "eval": plain(arm.suite)}


def has_own_cluster(arm: Arm) -> bool:
    """Return whether an experiment that leads to an arm has a cluster for itself."""
    return any(each.cluster is not None for each in arm.checkpoint.experiments)


def stages_of(start: Source) -> int:
    """Return how many stages lead to a checkpoint or follow it; 0 for a model as it comes."""
    return 0 if not isinstance(start, FromTraining) else max(len(start.experiment.stages), start.stage + 1)


def study_settings(study: Study) -> Sections:
    """Return the sections of the study as a whole."""
    return {name: plain(getattr(study, name)) for name in identifying(study) if name != "arms"}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of everything under a section: numbers, texts, lists of such, expressions."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path and key else path or str(key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        names = [item.get("name") for item in value]
        named = all(names) and len(set(names)) == len(names)
        if named and len(names) > 1:
            yield f"{path}.order", names
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{names[index]}" if named else f"{path}[{index}]")
        if not named:
            yield f"{path}.count", len(value)
    else:
        yield path, value


def plain(value: Any) -> Any:
    """Return the canonical form with every expression as a text of the language."""
    if isinstance(value, Node):
        return expression_text(cast("Expression", value))
    if isinstance(value, Measure):
        lets = [f"{each.name} = {plain(each.value)}" for each in value.lets]
        return WrittenText("; ".join([*lets, plain(value.value)]), value.name)
    if isinstance(value, IR):
        settings = {name: plain(getattr(value, name)) for name in identifying(value)}
        omitted = [name for name in value.later if name not in settings and name not in value.presentation]
        return settings | {name: _as_default(plain(getattr(value, name))) for name in sorted(omitted)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return canonical(value)


def _as_default(value: Any) -> Any:
    """Return a default as one; the settings of a block that is at its default are themselves."""
    return value if isinstance(value, dict) else DefaultValue(value)


def _start(start: Source, staged: bool, cluster: Cluster | None) -> Sections:
    if isinstance(start, FromResults):
        return {"base": canonical(start)}
    if isinstance(start, FromModel):
        return {"base": {"model": plain(start.model)}}
    experiment = start.experiment
    before = experiment.start
    base = _start(before, stages_of(before) > 1, cluster)
    sections: Sections = {"base": base["base"] if isinstance(before, FromModel) else base}
    if cluster is not None:
        sections["cluster"] = plain(experiment.cluster or cluster)
    if not staged:
        return {**sections, **_stage(experiment.stages[0])}
    stages = {str(index): _stage(stage) for index, stage in enumerate(experiment.stages)}
    return {**sections, "stages": stages, "checkpoint": {"stage": start.stage, "of": len(experiment.stages)}}


def _stage(stage: Stage) -> Sections:
    """Return a stage's settings by the names that a spec uses: a method's among them, not below it."""
    fields = plain(stage)
    method = fields.pop("method")
    sections: Sections = {"method": method.pop("kind"), "data": fields.pop("data")}
    if isinstance(stage.method, Ppo):
        reward = stage.method.reward
        method.pop("reward")
        sections["reward"] = _reward(reward)
        sections[DERIVED] = second_generation(reward)
        advantage = method.pop("advantage")
        sections["credit"] = advantage.pop("credit")
        sections["advantage"] = advantage
        sections["clip"] = {"low": method.pop("clip_low"), "high": method.pop("clip_high")}
    sections.update(method)
    sections.update(fields)
    return sections


def _reward(reward: Reward) -> Sections:
    """Return the form of a reward, its expressions as text, and its split."""
    names = let_names(reward.lets)
    sections: Sections = {
        "": [form(reward), *(WrittenText(each, as_written(each, names)) for each in reward_lines(reward))]
    }
    if reward.splits is not None:
        # `form` tells the kind.
        sections["at"] = {name: value for name, value in canonical(reward.splits).items() if name != "kind"}
    if reward.dense is not None and reward.dense.var != "L":
        sections["variable"] = reward.dense.var
    return sections


def form(reward: Reward) -> str:
    """Describe a reward: `dense over 6 budgets`, `one number per response`, `a sum of 2 parts, of 6 budgets`."""
    split = reward.splits
    if reward.dense is not None and split is not None:
        return f"dense over {_spoken(split)}"
    what = f"a sum of {len(reward.parts)} parts" if reward.parts else "one number per response"
    return what if split is None else f"{what}, of {_spoken(split)}"


def _spoken(split: Split) -> str:
    match split:
        case Budgets(budgets=budgets):
            return f"{len(budgets) + 1} budgets"
        case OracleBudgets(n=n):
            return f"{n + 1} budgets found on a frontier"
        case QuestionBudgets():
            return "one budget a question"
        case Steps():
            return "reasoning steps"
        case Exits(n=n):
            return f"{n} random exits and the end"


def second_generation(reward: Reward) -> str:
    """Describe the second generation after the responses: the forced answers that a reward needs."""
    cuts = reward.forced
    if not cuts.any:
        return "none"
    count = len(cuts.fixed) + cuts.computed
    match reward.splits if cuts.splits else None:
        case Budgets(budgets=budgets):
            count += len(budgets)
        case OracleBudgets(n=n):
            count += n
        case QuestionBudgets():
            count += 1
        case Exits(n=n):
            count += n
        case Steps():
            return "a forced answer per reasoning step"
    return f"{count} forced answer{'' if count == 1 else 's'} per response"


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A setting that differs: its dotted name and both values.

    One is `ABSENT` where a side has none, and a `DefaultValue` where it leaves the setting at its default.
    """

    setting: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Same:
    """The equal settings of a section: its name, these settings, and how many it has in all."""

    section: str
    settings: tuple[tuple[str, Any], ...]
    of: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Two arms, or two studies, of names `a` and `b`: different settings and equal ones."""

    a: str
    b: str
    rows: tuple[ChangedSetting, ...]
    same: tuple[Same, ...]


@dataclass(frozen=True, slots=True)
class TaskPairs:
    """Tasks by identity: shared ones as (id in A, id in B), and those of either side alone."""

    shared: tuple[tuple[str, str], ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference of two specs in meaning. Names for people, comments, order and units are no difference."""

    study: Compared
    arms: tuple[Compared, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    work: TaskPairs

    @property
    def different(self) -> bool:
        """Return whether the two mean different things."""
        compared = (self.study, *self.arms)
        return bool(self.only_a or self.only_b) or any(each.rows for each in compared)


Payload = Callable[[Task], Mapping[str, Any]]


def compare(
    a: Spec,
    b: Spec,
    graph_a: Graph,
    graph_b: Graph,
    payload_a: Payload = identity,
    payload_b: Payload = identity,
) -> Diff:
    """Compare two specs, given their graphs. `payload_…` returns the part of a task that its result depends on."""
    pairs = pair(a.study, b.study)
    renamed = {two.name: one.name for one, two in pairs}
    study = compared(
        a.study.name, b.study.name, study_settings(a.study), _rename_arms(study_settings(b.study), renamed)
    )
    arms = []
    for one, two in pairs:
        staged = max(stages_of(one.checkpoint), stages_of(two.checkpoint)) > 1
        # Arms that run where their studies do differ in nothing that the studies do not.
        placed_apart = has_own_cluster(one) or has_own_cluster(two)
        left, right = (
            arm_settings(arm, staged, study.cluster if placed_apart else None)
            for arm, study in ((one, a.study), (two, b.study))
        )
        difference = compared(one.name, two.name, left, _rename_arms(right, renamed))
        if one.name != two.name:
            rows = (ChangedSetting("name", one.name, two.name), *difference.rows)
            difference = Compared(difference.a, difference.b, rows, difference.same)
        arms.append(difference)
    paired_a, paired_b = {one.name for one, _ in pairs}, {two.name for _, two in pairs}
    return Diff(
        study,
        tuple(arms),
        tuple(arm.name for arm in a.study.arms if arm.name not in paired_a),
        tuple(arm.name for arm in b.study.arms if arm.name not in paired_b),
        work(graph_a, graph_b, payload_a, payload_b),
    )


def pair(a: Study, b: Study) -> tuple[tuple[Arm, Arm], ...]:
    """Pair the arms that are compared with each other.

    They are those of one name, of the others those that mean the same, and at last the one trained arm that each
    side has left.
    """
    there = {arm.name: arm for arm in b.arms}
    pairs = [(arm, there[arm.name]) for arm in a.arms if arm.name in there]
    taken = {arm.name for arm, _ in pairs}
    alike = {_meaning(arm): arm for arm in reversed(b.arms) if arm.name not in taken}
    for arm in a.arms:
        if arm.name not in taken and (twin := alike.pop(_meaning(arm), None)) is not None:
            pairs.append((arm, twin))
            taken |= {arm.name, twin.name}
    for trained in (True, False):
        left_a = [arm for arm in a.arms if arm.name not in taken and arm.trained == trained]
        left_b = [arm for arm in b.arms if arm.name not in taken and arm.trained == trained]
        if len(left_a) == len(left_b) == 1:
            pairs.append((left_a[0], left_b[0]))
    order = {arm.name: index for index, arm in enumerate(a.arms)}
    return tuple(sorted(pairs, key=lambda each: order[each[0].name]))


def _meaning(arm: Arm) -> str:
    """Return the digest of an arm without its name."""
    return digest({name: value for name, value in canonical(arm).items() if name != "name"})


def compared(name_a: str, name_b: str, a: Sections, b: Sections) -> Compared:
    """Compare sections side by side: rows for different settings, and the equal settings of each section."""
    rows, same = [], []
    for section in dict.fromkeys([*a, *b]):
        both = [dict(leaves(side[section], section)) if section in side else {} for side in (a, b)]
        left, right = _drop_defaults(*both), _drop_defaults(*reversed(both))
        equal: list[tuple[str, Any]] = []
        for setting in dict.fromkeys([*left, *right]):
            one, two = left.get(setting, ABSENT), right.get(setting, ABSENT)
            if one == two and type(one) is type(two):
                equal.append((setting, _as_written(one)))
            elif not (_lacks(setting, one, right) or _lacks(setting, two, left)):
                shown = _as_written(one), _as_written(two)
                rows.append(ChangedSetting(setting, *(shown if shown[0] != shown[1] else (one, two))))
        if equal and section != DERIVED:
            same.append(Same(section, tuple(equal), len({*left, *right})))
    return Compared(name_a, name_b, tuple(rows), tuple(same))


def _drop_defaults(settings: Sections, other: Sections) -> Sections:
    """Return the settings without omitted defaults, except where the other side has set a value."""
    return {
        name: value
        for name, value in settings.items()
        if not isinstance(value, DefaultValue) or not isinstance(other.get(name, value), DefaultValue)
    }


def _as_written(value: Any) -> Any:
    """Return a value in which lines of a reward have the names of their spec, and measures their own."""
    if isinstance(value, list):
        return [_as_written(item) for item in value]
    return getattr(value, "written", value)


def _lacks(setting: str, value: Any, other: Mapping[str, Any]) -> bool:
    """Return whether a side has no value for a setting whose parts have rows of their own on the other side."""
    return value in (None, []) and any(name.startswith(f"{setting}.") for name in other)


def work(a: Graph, b: Graph, payload_a: Payload = identity, payload_b: Payload = identity) -> TaskPairs:
    """Match the tasks of two graphs that are the same work, all inputs included."""
    left, right = fingerprints(a, payload_a), fingerprints(b, payload_b)
    there = {mark: name for name, mark in right.items()}
    shared = tuple((name, there[mark]) for name, mark in left.items() if mark in there)
    marks = set(left.values())
    return TaskPairs(
        shared,
        tuple(name for name, mark in left.items() if mark not in there),
        tuple(name for name, mark in right.items() if mark not in marks),
    )


def fingerprints(graph: Graph, payload: Payload = identity) -> dict[str, str]:
    """Return for every task the digest of what its result depends on, down to the first input."""
    digests: dict[str, str] = {}
    for task in graph.tasks:
        inputs = {role: digests[source] for role, source in task.inputs.items()}
        digests[task.id] = digest(material(task, payload(task), inputs))
    return digests


def _rename_arms(value: Any, names: Mapping[str, str]) -> Any:
    """Replace references to arms by the names that the other side has for them."""
    if not any(old != new for old, new in names.items()):
        return value
    return {key: _references(key, item, names) for key, item in value.items()}


_REFERENCES = frozenset({"of", "rows", "lines", "relative_to", "rollouts"})


def _references(key: str, value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _references(name, item, names) for name, item in value.items()}
    if key in _REFERENCES and isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        if key in _REFERENCES and all(isinstance(item, str) for item in value):
            return [names.get(item, item) for item in value]
        return [_references("", item, names) for item in value]
    return value


MEAN = "mean"
METRICS = ("accuracy", "length", "reg")


@dataclass(frozen=True, slots=True)
class Metrics:
    """Means over benchmarks and seeds: accuracy a share, length and REG in tokens; None: not measured."""

    accuracy: float | None = None
    length: float | None = None
    reg: float | None = None
    seeds: int = 0


def read_metrics(graph: Graph, folders: Mapping[str, Path]) -> dict[str, Metrics]:
    """Read metrics by arm, for the arms of the graph's report whose evaluations are in `folders` (by task id)."""
    inputs = graph["report"].inputs if "report" in graph else {}
    roles = {parse_role(role): folders[source] for role, source in inputs.items() if source in folders}
    evaluations = {
        (role.name, role.seed): folder for role, folder in roles.items() if role.kind == "evaluate"
    }
    rows: dict[str, list[dict[str, float]]] = {}
    for (arm, _), folder in evaluations.items():
        if (row := _summary(folder / "summary.json")) is not None:
            rows.setdefault(arm, []).append(row)
    regs: dict[str, list[float]] = {}
    for folder in (folder for role, folder in roles.items() if role.kind == "score"):
        called = arm_labels("score", folder, evaluations)
        for arm, value in _regs(folder / "reg.parquet").items():
            regs.setdefault(called.get(arm, arm), []).append(value)
    return {
        arm: Metrics(
            _mean([row["accuracy"] for row in seeds]),
            _mean([row["length"] for row in seeds]),
            _mean(regs.get(arm, [])),
            len(seeds),
        )
        for arm, seeds in rows.items()
    }


def read_table(folder: Path) -> dict[str, Metrics]:
    """Read metrics by arm from the main table of a run's folder; empty without one."""
    import polars as pl

    columns = ["arm", "benchmark", "seeds", "accuracy", "length", "reg"]
    try:
        table = pl.read_parquet(folder / "tables" / "main.parquet", glob=False)
    except (OSError, pl.exceptions.PolarsError):
        return {}
    if not {"arm", "benchmark", "seeds", "accuracy", "length"} <= set(table.columns):
        return {}
    metrics = {}
    for row in table.select(name for name in columns if name in table.columns).iter_rows(named=True):
        if row["benchmark"] == MEAN:
            metrics[row["arm"]] = Metrics(row["accuracy"], row["length"], row.get("reg"), row["seeds"])
    return metrics


def _summary(path: Path) -> dict[str, float] | None:
    try:
        mean: Any = json.loads(path.read_bytes())["mean"]
        return {"accuracy": float(mean["accuracy"]), "length": float(mean["length"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _regs(path: Path) -> dict[str, float]:
    import polars as pl

    try:
        table = pl.read_parquet(path, glob=False)
        means = table.filter(pl.col("benchmark") == MEAN)
    except (OSError, pl.exceptions.PolarsError):
        return {}
    if "seed" in means.columns:
        means = means.filter(pl.col("seed").is_null())
    return {
        str(name): float(reg)
        for name, reg in zip(means["model"], means["reg"], strict=True)
        if reg is not None
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
