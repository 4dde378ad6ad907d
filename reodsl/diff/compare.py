"""Compare two specs: the settings that differ, and the tasks that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from reodsl.graph.task import Graph, Task, identity, material
from reodsl.ir import Spec, canonical, digest
from reodsl.ir.base import IR, Node
from reodsl.ir.cluster import Cluster
from reodsl.ir.expression import Expression
from reodsl.ir.reward import Budgets, Exits, Measure, OracleBudgets, QuestionBudgets, Reward, Split, Steps
from reodsl.ir.reward_text import ABSENT, as_written, expression_text, let_names, reward_lines
from reodsl.ir.setting import written_fields
from reodsl.ir.study import Arm, Study
from reodsl.ir.training import FromModel, FromTraining, Ppo, Sequences, Source

Settings = dict[str, Any]


class WrittenText(str):
    """A text by which two specs are compared; `written` is the same text with the spec's own names, for people."""

    written: str

    def __new__(cls, text: str, written: str) -> WrittenText:
        """Return a text for comparison.

        Args:
            text: The text that is compared.
            written: The text that people read.
        """
        instance = super().__new__(cls, text)
        instance.written = written
        return instance


@dataclass(frozen=True, slots=True)
class DefaultValue:
    """The value of a setting at its default, which the canonical form omits."""

    value: Any


def arm_settings(arm: Arm, staged: bool, cluster: Cluster | None = None) -> Settings:
    """Return the settings of an arm's model, stages and suite, by name.

    Args:
        arm: the arm.
        staged: whether all stages are included, as `stages.0.…`; otherwise only the first, without this prefix.
        cluster: the study's cluster, to include the cluster of each experiment; None leaves clusters out.
    """
    return {**dict(_trace(arm.checkpoint, "", staged, cluster)), **dict(settings(arm.suite, "eval"))}


def has_own_cluster(arm: Arm) -> bool:
    """Return whether any experiment that leads to an arm declares its own cluster."""
    return any(experiment.cluster is not None for experiment in arm.checkpoint.experiments)


def stages_of(start: Source) -> int:
    """Return the number of stages of the experiment that trains a checkpoint, also after the checkpoint.

    It is 0 for an untrained model. Earlier experiments, whose checkpoint this experiment starts from, do not count.
    """
    return 0 if not isinstance(start, FromTraining) else max(len(start.experiment.stages), start.stage + 1)


def study_settings(study: Study) -> Settings:
    """Return the settings of the study itself by name, without those of its arms."""
    return dict(settings(study.model_copy(update={"arms": ()}), ""))


def settings(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every setting inside a value.

    Expressions and rewards become texts of the language. A tuple of declarations yields the settings of each, with their
    names or indices in the path, and their order or number as a further setting. Any other value is a setting itself.

    Args:
        value: A part of a spec.
        path: Dotted name of the value, which precedes the names of its settings.
    """
    if isinstance(value, Reward):
        yield from _walk_reward(value, path)
    elif isinstance(value, Measure):
        lets = [f"{inner.name} = {expression_text(inner.value)}" for inner in value.lets]
        yield path, WrittenText("; ".join([*lets, expression_text(value.value)]), value.name)
    elif isinstance(value, IR):
        places = dict(written_fields(type(value)))
        for name, info in type(value).model_fields.items():
            if name not in value.presentation:
                field_value = getattr(value, name)
                omitted = name in value.later and field_value == info.default
                for setting, inner in settings(field_value, _name(path, name, places.get(name, name), value)):
                    yield (
                        setting,
                        DefaultValue(inner) if omitted and not isinstance(field_value, IR) else inner,
                    )
    elif isinstance(value, tuple) and value and all(isinstance(inner, IR) for inner in value):
        names = ["name" not in inner.presentation and getattr(inner, "name", None) for inner in value]
        named = all(names) and len(set(names)) == len(names)
        if not named or len(names) > 1:
            yield (f"{path}.order", names) if named else (f"{path}.count", len(names))
        for index, inner in enumerate(value):
            yield from settings(inner, f"{path}.{names[index]}" if named else f"{path}[{index}]")
    elif isinstance(value, tuple):
        yield path, [text for inner in value for _, text in settings(inner, "")]
    else:
        yield path, expression_text(cast("Expression", value)) if isinstance(value, Node) else value


def _name(path: str, name: str, written: str | type, value: IR) -> str:
    """Return the dotted name of a field, as a spec writes it.

    Args:
        path: Dotted name of the object that has the field.
        name: Name of the field.
        written: The field's name in a spec. A name that begins with `/` is written in the block around the object's. A
            type stands for a field without a name in the spec, whose settings appear among the object's.
        value: The object.
    """
    if name == "method" or isinstance(written, type):
        return path
    if name == "kind" and isinstance(value, (Ppo, Sequences)):
        written = "method"
    if written.startswith("/"):
        # A setting that a spec writes beside an item of a list belongs to the item's path.
        path, written = (path, name) if path.endswith("]") else (path.rpartition(".")[0], written[1:])
    return f"{path}.{written}" if path else written


def _trace(start: Source, path: str, staged: bool, cluster: Cluster | None) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a checkpoint: its model, and the stages of all experiments that led to it.

    Args:
        start: The checkpoint or model.
        path: Prefix of the names.
        staged: Whether all stages are included, as `stages.0.…`; otherwise only the first, without this prefix.
        cluster: The study's cluster, to include the cluster of each experiment; None leaves clusters out.
    """
    if not isinstance(start, FromTraining):
        named = (start.model, "base.model") if isinstance(start, FromModel) else (start, "base")
        yield from settings(named[0], path + named[1])
        return
    experiment = start.experiment
    before = "" if isinstance(experiment.start, FromModel) else "base."
    yield from _trace(experiment.start, path + before, stages_of(experiment.start) > 1, cluster)
    if cluster is not None:
        yield from settings(experiment.cluster or cluster, f"{path}cluster")
    for index, stage in enumerate(experiment.stages if staged else experiment.stages[:1]):
        yield from settings(stage, f"{path}stages.{index}" if staged else path.removesuffix("."))
    if staged:
        yield from (
            (f"{path}checkpoint.stage", start.stage),
            (f"{path}checkpoint.of", len(experiment.stages)),
        )


def _walk_reward(reward: Reward, path: str) -> Iterator[tuple[str, Any]]:
    """Yield a reward's form and lines as one setting, and the settings by which it divides responses into sections."""
    names = let_names(reward.lets)
    lines = (WrittenText(line, as_written(line, names)) for line in reward_lines(reward))
    yield path, [form(reward), *lines]
    if reward.splits is not None:
        # The kind is in the words of `form` already.
        yield from (line for line in settings(reward.splits, f"{path}.at") if line[0] != f"{path}.at.kind")
    if reward.dense is not None and reward.dense.var != "L":
        yield f"{path}.variable", reward.dense.var


def form(reward: Reward) -> str:
    """Return a reward's form in words: `dense over 6 budgets`, `one number per response`, `a sum of 2 parts`."""
    split = reward.splits
    if reward.dense is not None and split is not None:
        return f"dense over {_describe_split(split)}"
    summary = f"a sum of {len(reward.parts)} parts" if reward.parts else "one number per response"
    return summary if split is None else f"{summary}, of {_describe_split(split)}"


def _describe_split(split: Split) -> str:
    """Return words for the sections into which a reward divides a response.

    Args:
        split: the reward's setting that divides responses. `n` budgets or exits make `n + 1` sections, with the end.
    """
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


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A setting that differs: its dotted name and both values.

    A value is `ABSENT` if its side does not have the setting, and a `DefaultValue` if it leaves the setting at its default.
    """

    setting: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class SettingDiff:
    """The difference of two arms or studies: different settings, and equal settings by their first word."""

    a: str
    """Name of the first."""
    b: str
    """Name of the second."""
    rows: tuple[ChangedSetting, ...]
    """Different settings."""
    same: Mapping[str, Mapping[str, Any]]
    """Equal settings by their first word."""


@dataclass(frozen=True, slots=True)
class TaskPairs:
    """The tasks of two graphs: shared tasks as (id in A, id in B), and tasks of a single side."""

    shared: tuple[tuple[str, str], ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference of two specs in meaning: labels, comments, order and units make no difference."""

    study: SettingDiff
    arms: tuple[SettingDiff, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    work: TaskPairs

    @property
    def different(self) -> bool:
        """Return whether the two specs differ in meaning."""
        compared = (self.study, *self.arms)
        return bool(self.only_a or self.only_b) or any(difference.rows for difference in compared)


Payload = Callable[[Task], Mapping[str, Any]]


def compare(
    a: Spec,
    b: Spec,
    graph_a: Graph,
    graph_b: Graph,
    payload_a: Payload = identity,
    payload_b: Payload = identity,
) -> Diff:
    """Compare two specs: the settings of the studies, the settings of each pair of arms, and the tasks.

    Arms are paired by `pair`; all other arms are only named. In the second spec's settings, paired arms are called by
    their names in the first, so a renamed arm is no difference where another setting names it.

    Args:
        a: The first spec.
        b: The second spec.
        graph_a: The first spec's tasks.
        graph_b: The second spec's tasks.
        payload_a: Returns the settings of a first task that its result depends on.
        payload_b: Returns the settings of a second task that its result depends on.
    """
    pairs = pair(a.study, b.study)
    renamed = {arm_b.name: arm_a.name for arm_a, arm_b in pairs}
    study = compared(
        a.study.name, b.study.name, study_settings(a.study), _rename_arms(study_settings(b.study), renamed)
    )
    arms = []
    for arm_a, arm_b in pairs:
        staged = max(stages_of(arm_a.checkpoint), stages_of(arm_b.checkpoint)) > 1
        # The studies' clusters are compared once, so arms include a cluster only if an experiment has its own.
        placed_apart = has_own_cluster(arm_a) or has_own_cluster(arm_b)
        settings_a, settings_b = (
            arm_settings(arm, staged, study.cluster if placed_apart else None)
            for arm, study in ((arm_a, a.study), (arm_b, b.study))
        )
        difference = compared(arm_a.name, arm_b.name, settings_a, _rename_arms(settings_b, renamed))
        if arm_a.name != arm_b.name:
            rows = (ChangedSetting("name", arm_a.name, arm_b.name), *difference.rows)
            difference = replace(difference, rows=rows)
        arms.append(difference)
    paired_a, paired_b = {arm_a.name for arm_a, _ in pairs}, {arm_b.name for _, arm_b in pairs}
    return Diff(
        study,
        tuple(arms),
        tuple(arm.name for arm in a.study.arms if arm.name not in paired_a),
        tuple(arm.name for arm in b.study.arms if arm.name not in paired_b),
        work(graph_a, graph_b, payload_a, payload_b),
    )


def pair(a: Study, b: Study) -> tuple[tuple[Arm, Arm], ...]:
    """Pair the arms of two studies, in the order of the first; arms without a counterpart are left out.

    Arms of equal names are paired first, then arms of equal settings. Last, if each study has exactly one trained arm
    that is not paired, these two are paired. The same is done for untrained arms.
    """
    arms_b = {arm.name: arm for arm in b.arms}
    pairs = [(arm, arms_b[arm.name]) for arm in a.arms if arm.name in arms_b]
    paired = {arm.name for arm, _ in pairs}
    alike = {_meaning(arm): arm for arm in reversed(b.arms) if arm.name not in paired}
    for arm in a.arms:
        if arm.name not in paired and (twin := alike.pop(_meaning(arm), None)) is not None:
            pairs.append((arm, twin))
            paired |= {arm.name, twin.name}
    for trained in (True, False):
        left_a = [arm for arm in a.arms if arm.name not in paired and arm.is_trained == trained]
        left_b = [arm for arm in b.arms if arm.name not in paired and arm.is_trained == trained]
        if len(left_a) == len(left_b) == 1:
            pairs.append((left_a[0], left_b[0]))
    order = {arm.name: index for index, arm in enumerate(a.arms)}
    return tuple(sorted(pairs, key=lambda arms: order[arms[0].name]))


def _meaning(arm: Arm) -> str:
    """Return the digest of an arm's settings without its name."""
    return digest({name: value for name, value in canonical(arm).items() if name != "name"})


def compared(name_a: str, name_b: str, a: Settings, b: Settings) -> SettingDiff:
    """Return the difference of two dictionaries of settings.

    A setting at its default on one side counts only if the other side sets a value. An empty setting is not a
    difference if the settings inside it differ.

    Args:
        name_a: Name of the first arm or study.
        name_b: Name of the second.
        a: Settings of the first.
        b: Settings of the second.
    """
    rows, same = [], dict[str, dict[str, Any]]()
    # A default that only one side has is left out, unless the other side sets a value.
    settings_a, settings_b = (
        {
            name: value
            for name, value in value_a.items()
            if not (isinstance(value, DefaultValue) and isinstance(value_b.get(name, value), DefaultValue))
        }
        for value_a, value_b in ((a, b), (b, a))
    )
    names = dict.fromkeys([*settings_a, *settings_b])
    words = list(dict.fromkeys(map(_first_word, names)))
    for name in sorted(names, key=lambda setting: words.index(_first_word(setting))):
        value_a, value_b = settings_a.get(name, ABSENT), settings_b.get(name, ABSENT)
        if value_a == value_b and type(value_a) is type(value_b):
            same.setdefault(_first_word(name), {})[name] = _as_written(value_a)
        elif not (_lacks(name, value_a, settings_b) or _lacks(name, value_b, settings_a)):
            texts = _as_written(value_a), _as_written(value_b)
            rows.append(ChangedSetting(name, *(texts if texts[0] != texts[1] else (value_a, value_b))))
    return SettingDiff(name_a, name_b, tuple(rows), same)


def _first_word(setting: str) -> str:
    """Return the first word of a setting's dotted name."""
    return setting.partition(".")[0].partition("[")[0]


def _as_written(value: Any) -> Any:
    """Return a value as people read it.

    A `WrittenText`, alone or in a list, becomes its `written` text; any other value is unchanged.
    """
    if isinstance(value, list):
        return [_as_written(item) for item in value]
    return getattr(value, "written", value)


def _lacks(setting: str, value: Any, other: Mapping[str, Any]) -> bool:
    """Return whether a setting is empty on one side while the other side has settings inside it.

    The row of such a setting would only repeat the rows of the settings inside it.

    Args:
        setting: Dotted name of the setting.
        value: Value on one side.
        other: Settings of the other side.
    """
    return value in (None, []) and any(name.startswith(f"{setting}.") for name in other)


def work(a: Graph, b: Graph, payload_a: Payload = identity, payload_b: Payload = identity) -> TaskPairs:
    """Return which tasks of two graphs would compute the same result from the same inputs, and which would not.

    Args:
        a: Tasks of the first spec.
        b: Tasks of the second spec.
        payload_a: Returns the settings of a first task that its result depends on.
        payload_b: Returns the settings of a second task that its result depends on.
    """
    marks_a, marks_b = fingerprints(a, payload_a), fingerprints(b, payload_b)
    names_b = {mark: name for name, mark in marks_b.items()}
    shared = tuple((name, names_b[mark]) for name, mark in marks_a.items() if mark in names_b)
    marks = set(marks_a.values())
    return TaskPairs(
        shared,
        tuple(name for name, mark in marks_a.items() if mark not in names_b),
        tuple(name for name, mark in marks_b.items() if mark not in marks),
    )


def fingerprints(graph: Graph, payload: Payload = identity) -> dict[str, str]:
    """Return for every task the digest of its settings and of all tasks that it depends on, by the task's id.

    Tasks of equal digests compute the same result.

    Args:
        graph: Tasks of a spec.
        payload: Returns the settings of a task that its result depends on.
    """
    digests: dict[str, str] = {}
    for task in graph.tasks:
        inputs = {role: digests[source] for role, source in task.inputs.items()}
        digests[task.id] = digest(material(task, payload(task), inputs))
    return digests


_REFERENCES = frozenset({"of", "rows", "lines", "relative_to", "rollouts"})


def _rename_arms(settings: Settings, names: Mapping[str, str]) -> Settings:
    """Return settings with arms renamed in the settings that name arms (`_REFERENCES`), as the other study names them.

    Args:
        settings: Settings by dotted name.
        names: New name by old name.
    """
    return {
        setting: (
            [names.get(name, name) for name in value] if isinstance(value, list) else names.get(value, value)
        )
        if setting.rpartition(".")[2] in _REFERENCES
        else value
        for setting, value in settings.items()
    }
