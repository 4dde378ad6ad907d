"""Cases: every experiment and arm of a spec with its stages complete and its rewards typed, ready to be checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reodsl.diagnostics.model import Diagnostic, Label, Span
from reodsl.language.finish import complete_stages
from reodsl.language.modules import STD
from reodsl.language.program import Program
from reodsl.language.resolve import arm_suite, arms_of, is_trained, own_suite
from reodsl.language.reward.body import TypedReward, typed_reward
from reodsl.language.stages import StagePart
from reodsl.language.units import Quantity, shown
from reodsl.language.values import Record, Slot, Value

LIBRARY_PATH = f"{STD}/"


@dataclass(frozen=True, slots=True)
class StageCase:
    """One stage with all its settings that are sound, and its reward in types where it has a sound one."""

    part: StagePart | None
    record: Record
    reward: TypedReward | None

    @property
    def method(self) -> str:
        """How it trains."""
        return str(self.record.data("method"))


@dataclass(frozen=True, slots=True)
class Case:
    """An experiment or an arm. `suite` is what it is evaluated on; `stages` is empty where nothing is trained.

    `repeated` marks an arm that is an experiment of this file as it stands: what is wrong with it is said there.
    """

    name: str
    record: Record
    suite: Record | None
    stages: tuple[StageCase, ...]
    study: Record | None = None
    repeated: bool = False

    @property
    def model(self) -> Record | None:
        """The model at the root of the chain of starting points."""
        return root_model(self.record)


def root_model(record: Record | None) -> Record | None:
    """The model that an experiment or a checkpoint goes back to."""
    for _ in range(100):
        if record is None or record.kind == "model":
            return record
        if record.kind == "stage_of":
            record = record.made[0]
        elif record.kind == "checkpoint":
            record = record.sub("of")
        elif record.kind == "arm":
            record = record.made
        else:
            record = record.sub("base")
    return None


def cases(program: Program) -> list[Case]:
    """The experiments of the main file, then the arms of its studies."""
    alone = {
        id(record): _case(program, name, record, own_suite(record), None)
        for name, record in program.of_kind("experiment").items()
    }
    listed = list(alone.values())
    for study in program.of_kind("study").values():
        for arm in arms_of(study):
            suite, same = arm_suite(study, arm), alone.get(id(arm.made))
            if same is None or same.suite is not suite:
                listed.append(_case(program, arm.name, arm.made, suite, study))
                continue
            # The study's cluster is known here only.
            repeated = study.sub("cluster") is None
            listed.append(replace(same, name=arm.name, study=study, repeated=repeated))
    return listed


def _case(program: Program, name: str, record: Record, suite: Record | None, study: Record | None) -> Case:
    stages: list[StageCase] = []
    if is_trained(record):
        for part, stage in complete_stages(program.context, record):
            value = stage.get("reward") if stage.data("method") == "ppo" else None
            reward = value.data if value is not None and isinstance(value.data, Record) else None
            at = value.span if value is not None else None
            typed = typed_reward(program.context, reward, at=at) if reward is not None else None
            stages.append(StageCase(part, stage.understood(), typed))
    return Case(name, record, suite, tuple(stages), study)


def amount(value: Value | None) -> int | float | None:
    """The number in a value."""
    return value.data.number if value is not None and isinstance(value.data, Quantity) else None


def place(slot: Slot | None, fallback: Span) -> Span:
    """Where a setting's value stands, or the declaration where it is a default."""
    return fallback if slot is None or slot.span is None else slot.value.span


def found(
    make: Callable[..., Diagnostic], code: str, message: str, labels: Sequence[Label], help: str | None = None
) -> Diagnostic:
    """A finding at several places. The first that is in the user's own files leads, for that is what can be changed."""
    own = [label for label in labels if not label.span.path.startswith(LIBRARY_PATH)]
    lead = own[0] if own else labels[0]
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
