"""Prepare checks: every experiment and arm of a spec with its stages complete and its rewards typed.

A check reads settings by their paths (`stage["batch.rollouts"].number`). One that is missing or wrong has been reported,
so that reading it raises `UnknownSetting`, and the check is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.ir.reward import Selection
from reodsl.language.changes import complete_stages
from reodsl.language.context import Context
from reodsl.language.modules import STD
from reodsl.language.program import Program
from reodsl.language.resolve import find_arm_suite, find_suite, walk_ancestry
from reodsl.language.reward.body import TypedReward, type_reward
from reodsl.language.reward.selection import type_selection
from reodsl.language.units import Quantity, format_quantity
from reodsl.language.values import (
    Composite,
    DeclaredExperiment,
    DeclaredStage,
    DeclaredStudy,
    Definition,
    Record,
    Slot,
    Value,
    list_records,
    plain,
    walk,
)

LIBRARY_PATH = f"{STD}/"
LONGEST_CHAIN = 100
"""Experiments that start from each other. A model behind more of them is not looked for."""


class UnknownSetting(Exception):
    """The signal that a setting which a check reads is missing or wrong."""


class SettingView(NamedTuple):
    """A setting as a check reads it: its value, its span, and findings about it."""

    path: str
    slot: Slot | None
    """None if the setting is missing."""
    declaration: Span
    """The span of the declaration, which stands for a missing setting or a default."""

    @property
    def value(self) -> Value:
        """The setting's value.

        Raises:
            UnknownSetting: The setting is missing.
        """
        if self.slot is None:
            raise UnknownSetting
        return self.slot.value

    @property
    def number(self) -> Any:
        """The setting's number, in the base unit of its kind, such as tokens, seconds or bytes.

        Raises:
            UnknownSetting: The setting is missing or is not a number.
        """
        if not isinstance(self.value.data, Quantity):
            raise UnknownSetting
        return self.value.data.number

    @property
    def text(self) -> str:
        """The setting's word or text; empty if the setting is missing."""
        return "" if self.slot is None else str(plain(self.slot.value))

    @property
    def is_given(self) -> bool:
        """Return whether a file or the command line sets the setting; False for a default of the language."""
        return self.slot is not None and self.slot.span is not None

    @property
    def is_true(self) -> bool:
        """Return whether the setting is a flag that is true."""
        return self.slot is not None and self.slot.value.data is True

    @property
    def file(self) -> str:
        """The path of the file that sets the setting; empty for a default of the language."""
        return self.slot.span.path if self.slot is not None and self.slot.span is not None else ""

    @property
    def span(self) -> Span:
        """The span of the setting's value, or of the declaration for a default."""
        slot = self.slot
        return self.declaration if slot is None or slot.span is None else slot.value.span

    @property
    def labels(self) -> list[Label]:
        """The labels of a finding that show a numeric setting where it is set, as `32768 tokens, set here`.

        The list is empty if the setting is missing or is not a number.
        """
        slot = self.slot
        if slot is None or not isinstance(slot.value.data, Quantity):
            return []
        text = format_quantity(slot.value.data)
        if slot.span is None:
            return [Label(self.declaration, f"{text}, by default")]
        origins = (Label(span, words) for span, words in slot.value.defined_at)
        return [Label(slot.value.span, f"{text}, set here"), *origins]

    def label(self, text: str) -> Label:
        """Return a label with a text at the setting's value, for a finding."""
        return Label(self.span, text)

    def setting_labels(self, text: str) -> list[Label]:
        """Return a label over the setting's name and value, or an empty list for a default of the language."""
        return [Label(self.slot.span, text)] if self.slot is not None and self.slot.span is not None else []

    def error(self, code: str, message: str, text: str = "", *labels: Label, help: str) -> Diagnostic:
        """Return an error about the setting.

        Args:
            code: The code of the diagnostic.
            message: What is wrong.
            text: The text below the setting's value.
            *labels: Further spans with texts.
            help: What to write instead.
        """
        return error(code, message, self.span, text, labels=labels, help=help)

    def warning(
        self, code: str, message: str, text: str = "", *labels: Label, help: str, notes: Sequence[str] = ()
    ) -> Diagnostic:
        """Return a warning about the setting; the arguments are those of `error`, and `notes` are further lines."""
        return warning(code, message, self.span, text, labels=labels, help=help, notes=notes)


@dataclass(frozen=True, slots=True)
class Settings:
    """A record whose settings a check reads by their paths."""

    record: Record

    def __getitem__(self, path: str) -> SettingView:
        return SettingView(path, self.record.at(path), self.record.span)

    def __contains__(self, path: str) -> bool:
        return self.record.at(path) is not None


@dataclass(frozen=True, slots=True)
class CheckedStage(Settings):
    """A stage with all its sound settings."""

    origin: DeclaredStage | None
    """The stage as declared; None if the experiment declares no stages."""
    method: str
    """The word of the method."""
    reward: TypedReward | None
    """The reward, typed; None if it is wrong or the method has no reward."""
    selection: Selection | None
    """The selection, typed; None if it is wrong or the data is no selection."""

    @property
    def formula(self) -> TypedReward:
        """The typed reward.

        Raises:
            UnknownSetting: The stage has no sound reward.
        """
        if self.reward is None:
            raise UnknownSetting
        return self.reward

    @property
    def pool(self) -> Record | None:
        """The pool of responses that the stage's data selects from."""
        return self.record.sub("data.pool")


@dataclass(frozen=True, slots=True)
class CheckedExperiment:
    """An experiment or an arm."""

    ctx: Context
    """The evaluation, which keeps results of checks."""
    name: str
    """The name of the arm or the experiment."""
    record: DeclaredExperiment
    """Its settings."""
    suite: Record | None
    """The suite that evaluates it."""
    stages: tuple[CheckedStage, ...]
    """Empty for a checkpoint that is not trained."""
    study: DeclaredStudy | None = None
    """The study of an arm; None for an experiment by itself."""
    is_repeated: bool = False
    """True if it is an arm that is an experiment of this file unchanged, whose mistakes are reported there."""
    methods: frozenset[str] | None = frozenset()
    """The methods of its stages; None if a method is wrong."""
    model: Record | None = None
    """The model from which the chain of starting points begins."""
    file_methods: frozenset[str] = frozenset()
    """The methods of all experiments and arms of the file."""
    file_studies: tuple[DeclaredStudy, ...] = ()
    """The studies of the file."""

    @property
    def owners(self) -> tuple[Record, ...]:
        """Return the records whose `cluster` may run this experiment.

        For an arm it is the study; for an experiment, the experiment and all studies of the file.
        """
        return (self.study,) if self.study is not None else (self.record, *self.file_studies)

    @property
    def context(self) -> SettingView:
        """The setting `context` of the experiment's model: the longest sequence, in tokens.

        Raises:
            UnknownSetting: The spec does not say which model the experiment starts from.
        """
        if self.model is None:
            raise UnknownSetting
        return Settings(self.model)["context"]

    @property
    def evaluation(self) -> Settings:
        """The settings of the suite that evaluates the experiment.

        Raises:
            UnknownSetting: The experiment has no suite.
        """
        if self.suite is None:
            raise UnknownSetting
        return Settings(self.suite)

    def cluster(self, record: Record) -> Record | None:
        """Return the cluster that a record, such as a stage, names; without a name, the cluster of the study."""
        return record.sub("cluster") or (self.study.sub("cluster") if self.study is not None else None)


def find_model(record: Record | None) -> Record | None:
    """Return the model whose weights an experiment or a checkpoint descends from, or None if there is no model.

    The search follows at most `LONGEST_CHAIN` experiments, since a wrong spec may have a very long chain.
    """
    sources = (source for source, _ in islice(walk_ancestry(record), LONGEST_CHAIN))
    return next((source for source in sources if source.kind == "model"), None)


def list_cases(program: Program) -> list[CheckedExperiment]:
    """Return the experiments of the main file, then the arms of its studies, prepared for checks.

    An arm that is an unchanged experiment with the same suite shares the typed stages of this experiment. It is
    marked as `is_repeated`, to be checked only once, unless the study has a cluster.
    """
    experiments = {
        id(record): _make_case(program, name, record, find_suite(record), None)
        for name, record in program.list_type(DeclaredExperiment, "experiment").items()
    }
    listed = list(experiments.values())
    for study in program.list_type(DeclaredStudy, "study").values():
        for arm in study.arms:
            suite, unchanged = find_arm_suite(study, arm), experiments.get(id(arm.experiment))
            if unchanged is None or unchanged.suite is not suite:
                listed.append(_make_case(program, arm.name, arm.experiment, suite, study))
                continue
            # With a cluster of the study, checks may find more than they find in the experiment alone.
            is_repeated = study.sub("cluster") is None
            listed.append(replace(unchanged, name=arm.name, study=study, is_repeated=is_repeated))
    methods = frozenset[str]().union(*(case.methods or () for case in listed))
    studies = tuple(program.list_type(DeclaredStudy, "study").values())
    return [replace(case, file_methods=methods, file_studies=studies) for case in listed]


def _make_case(
    program: Program, name: str, record: DeclaredExperiment, suite: Record | None, study: DeclaredStudy | None
) -> CheckedExperiment:
    """Return an experiment or arm with complete stages and typed rewards and selections.

    Args:
        program: The evaluated spec.
        name: The name of the experiment or arm.
        record: The settings of the experiment.
        suite: The suite that evaluates the experiment, if it has any.
        study: The study of the arm; None for an experiment.
    """
    stages: list[CheckedStage] = []
    if record.is_trained:
        for decl, stage in complete_stages(program.context, record):
            value = stage.get("reward") if stage.data("method") == "ppo" else None
            reward = value.data if value is not None and isinstance(value.data, Definition) else None
            span = value.span if value is not None else None
            typed = type_reward(program.context, reward, span=span) if reward is not None else None
            if value is None and "reward" not in stage.invalid and stage.data("method") == "ppo":
                typed = TypedReward(None, set(), [])  # A stage with a teacher needs no reward.
            sound = stage.only_valid()
            stages.append(
                CheckedStage(sound, decl, str(sound.data("method")), typed, _type_selection(program, stage))
            )
    has_wrong_method = any("method" in stage.record.invalid for stage in stages)
    methods = None if has_wrong_method else frozenset(stage.method for stage in stages)
    return CheckedExperiment(
        program.context, name, record, suite, tuple(stages), study, methods=methods, model=find_model(record)
    )


def _type_selection(program: Program, stage: Record) -> Selection | None:
    """Return the typed rule by which a stage's data selects from a pool; None if it is wrong or missing."""
    rule = stage.sub("data.selection")
    return type_selection(program.context, rule) if isinstance(rule, Definition) else None


def list_wordings(record: Record | None) -> list[Record]:
    """Return the wordings (variants of the prompt) that a record's setting `wordings` lists."""
    return list_records(record, "wordings")


def is_selective(wording: Record) -> bool:
    """Return whether a wording is used for some questions only, as its `when` or `share` says."""
    return wording.get("when") is not None or wording.data("share") not in (None, 1)


def finding_at(
    make: Callable[..., Diagnostic], code: str, message: str, labels: Sequence[Label], help: str | None = None
) -> Diagnostic:
    """Return a finding with labels at several spans.

    The main span is the first in a file of the user, who can change it, or else the first label's.

    Args:
        make: `error` or `warning`.
        code: The code of the diagnostic.
        message: What is wrong.
        labels: The spans to show, each with a text.
        help: What to write instead.
    """
    in_user_files = [label for label in labels if not label.span.path.startswith(LIBRARY_PATH)]
    lead = in_user_files[0] if in_user_files else labels[0]
    rest = [label for label in labels if label is not lead]
    return make(code, message, lead.span, lead.text, labels=rest, help=help)


def strip_names(record: Record | None) -> object:
    """Return a record's settings without names and spans, to compare records by their meaning.

    Returns:
        (kind, sorted (path, value) pairs, stripped child records or None), or None for no record.
    """
    if record is None:
        return None

    def strip_value(value: object) -> object:
        # Studies compare hundreds of arms, and most values are numbers or words: test for these first.
        if not isinstance(value, (Record, tuple)):
            return value
        return strip_names(value) if isinstance(value, Record) else tuple(strip_value(item) for item in value)

    settings = tuple(sorted((path, strip_value(plain(slot.value))) for path, slot in walk(record)))
    parts = tuple(strip_names(child) for child in record.parts) if isinstance(record, Composite) else None
    return (record.kind, settings, parts)


def means_same(a: object, b: object) -> bool:
    """Return whether two records have equal settings, whatever their names are; other values must be equal."""
    if a is b:
        return True
    first, second = (strip_names(item) if isinstance(item, Record) else item for item in (a, b))
    return bool(first == second)


@dataclass(frozen=True, slots=True)
class CheckedStudy(Settings):
    """A study with its arms."""

    ctx: Context
    study: DeclaredStudy
    cases: Sequence[CheckedExperiment]
    """The arms, checked."""

    @property
    def frontier(self) -> Record:
        """The frontier against which the study is scored.

        Raises:
            UnknownSetting: The study has no score.
        """
        frontier = self["score.against"].value.data
        if not isinstance(frontier, Record):
            raise UnknownSetting
        return frontier


StageCheck: TypeAlias = Callable[[CheckedExperiment, CheckedStage], Iterable[Diagnostic]]
ExperimentCheck: TypeAlias = Callable[[CheckedExperiment], Iterator[Diagnostic]]
StudyCheck: TypeAlias = Callable[[CheckedStudy], Iterator[Diagnostic]]
STAGE_CHECKS: list[StageCheck] = []
"""The checks of one stage, in the order in which they run."""
CASE_CHECKS: list[ExperimentCheck] = []
"""The checks of an experiment or an arm as a whole."""
STUDY_CHECKS: list[StudyCheck] = []
"""The checks of a study."""


def stage_check(check: StageCheck) -> StageCheck:
    """Register a function as a check of every stage (a decorator)."""
    STAGE_CHECKS.append(check)
    return check


def ppo_check(check: StageCheck) -> StageCheck:
    """Register a function as a check of every stage that trains by PPO (a decorator)."""
    STAGE_CHECKS.append(lambda case, stage: check(case, stage) if stage.method == "ppo" else ())
    return check


def case_check(check: ExperimentCheck) -> ExperimentCheck:
    """Register a function as a check of every experiment and arm (a decorator)."""
    CASE_CHECKS.append(check)
    return check


def study_check(check: StudyCheck) -> StudyCheck:
    """Register a function as a check of every study (a decorator)."""
    STUDY_CHECKS.append(check)
    return check


def run_checks(
    checks: Sequence[Callable[..., Iterable[Diagnostic]]], *subject: object
) -> Iterator[Diagnostic]:
    """Run checks on their arguments and yield the findings.

    A check that reads a missing or wrong setting ends silently, since this setting has its own finding.
    """
    for check in checks:
        try:
            yield from check(*subject)
        except UnknownSetting:
            continue
