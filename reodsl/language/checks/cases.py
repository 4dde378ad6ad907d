"""Cases: every experiment and arm of a spec with its stages complete and its rewards typed, ready to be checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from reodsl.diagnostics.model import Diagnostic, Label, Span
from reodsl.language.finish import has_broken
from reodsl.language.modules import STD
from reodsl.language.program import Program
from reodsl.language.resolve import ancestry, arm_suite, own_suite
from reodsl.language.reward.body import TypedReward, type_reward
from reodsl.language.reward.selection import TypedSelection, type_selection
from reodsl.language.stages import complete_stages
from reodsl.language.units import Quantity, shown
from reodsl.language.values import Definition, Experiment, Record, Slot, Stage, Study, Value

LIBRARY_PATH = f"{STD}/"
LONGEST_CHAIN = 100
"""Experiments that start from each other. A model behind more of them is not looked for."""


@dataclass(frozen=True, slots=True)
class StageCase:
    """One stage with all its settings that are sound, and its reward or selection in types where that is sound."""

    part: Stage | None
    record: Record
    reward: TypedReward | None
    selection: TypedSelection | None

    @property
    def method(self) -> str:
        """How it trains."""
        return str(self.record.data("method"))


@dataclass(frozen=True, slots=True)
class Case:
    """An experiment or an arm. `suite` is what it is evaluated on; `stages` is empty where nothing is trained.

    `model` is that at the root of the chain of starting points.
    `methods` are those of its stages; None where one is wrong, and nothing is known of what it needs.
    `repeated` marks an arm that is an experiment of this file as it stands: what is wrong with it is said there.
    """

    name: str
    record: Experiment
    suite: Record | None
    stages: tuple[StageCase, ...]
    study: Study | None = None
    repeated: bool = False
    methods: frozenset[str] | None = frozenset()
    model: Record | None = None


def root_model(record: Record | None) -> Record | None:
    """The model that an experiment or a checkpoint goes back to."""
    sources = (source for source, _ in islice(ancestry(record), LONGEST_CHAIN))
    return next((source for source in sources if source.kind == "model"), None)


def cases(program: Program) -> list[Case]:
    """The experiments of the main file, then the arms of its studies."""
    alone = {
        id(record): _case(program, name, record, own_suite(record), None)
        for name, record in program.of_type(Experiment, "experiment").items()
    }
    listed = list(alone.values())
    for study in program.of_type(Study, "study").values():
        for arm in study.arms:
            suite, same = arm_suite(study, arm), alone.get(id(arm.experiment))
            if same is None or same.suite is not suite:
                listed.append(_case(program, arm.name, arm.experiment, suite, study))
                continue
            # The study's cluster is known here only.
            repeated = study.sub("cluster") is None
            listed.append(replace(same, name=arm.name, study=study, repeated=repeated))
    return listed


def _case(program: Program, name: str, record: Experiment, suite: Record | None, study: Study | None) -> Case:
    stages: list[StageCase] = []
    if record.is_trained:
        for part, stage in complete_stages(program.context, record):
            value = stage.get("reward") if stage.data("method") == "ppo" else None
            reward = value.data if value is not None and isinstance(value.data, Definition) else None
            at = value.span if value is not None else None
            typed = type_reward(program.context, reward, at=at) if reward is not None else None
            sound = stage.understood() if has_broken(program.context, stage) else stage
            stages.append(StageCase(part, sound, typed, _selection(program, stage)))
    broken = any("method" in each.record.broken for each in stages)
    methods = None if broken else frozenset(each.method for each in stages)
    return Case(name, record, suite, tuple(stages), study, methods=methods, model=root_model(record))


def _selection(program: Program, stage: Record) -> TypedSelection | None:
    data = stage.sub("data")
    rule = data.sub("selection") if data is not None and data.kind == "selected" else None
    return type_selection(program.context, rule) if isinstance(rule, Definition) else None


def amount(value: Value | None) -> int | float | None:
    """The number in a value."""
    return value.data.number if value is not None and isinstance(value.data, Quantity) else None


def place(slot: Slot | None, fallback: Span) -> Span:
    """Where a setting's value stands, or the declaration where it is a default."""
    return fallback if slot is None or slot.span is None else slot.value.span


def finding_at(
    make: Callable[..., Diagnostic], code: str, message: str, labels: Sequence[Label], help: str | None = None
) -> Diagnostic:
    """A finding at several places. The first that is in the user's own files leads, for that is what can be changed."""
    in_user_files = [label for label in labels if not label.span.path.startswith(LIBRARY_PATH)]
    lead = in_user_files[0] if in_user_files else labels[0]
    others = [label for label in labels if label is not lead]
    return make(code, message, lead.span, lead.text, others=others, help=help)


def set_here(slot: Slot | None, record: Record) -> list[Label]:
    """A label at a setting's value that shows it: `32768 tokens, set here`."""
    if slot is None or not isinstance(slot.value.data, Quantity):
        return []
    text = shown(slot.value.data)
    if slot.span is None:
        return [Label(record.span, f"{text}, by default")]
    return [
        Label(slot.value.span, f"{text}, set here"),
        *(Label(span, words) for span, words in slot.value.via),
    ]
