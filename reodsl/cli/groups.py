"""The responses that `reodsl reward` tries a reward on, from options or from a file."""

from __future__ import annotations

import json
import math
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, NonNegativeInt, PositiveInt, ValidationError

from reodsl.cli.options import token_count, token_grid
from reodsl.diagnostics import Problem, listed, misread, problem
from reodsl.ir.base import walk
from reodsl.ir.expression import READINGS, STEP, Aggregate, Attribute, TokenRun, Variable, list_sampled
from reodsl.ir.reward import (
    Budgets,
    Exits,
    QuestionBudgets,
    ResponseGroup,
    Reward,
    RewardedResponse,
    Split,
    Steps,
    reached_places,
)
from reodsl.ir.reward_text import expression_text
from reodsl.language.suggest import suggest


def _check_rising(splits: tuple[int, ...]) -> tuple[int, ...]:
    """Return splits if they rise, else raise ValueError."""
    if list(splits) != sorted(set(splits)):
        raise ValueError("it does not rise: write it from short to long")
    return splits


_Splits = Annotated[tuple[PositiveInt, ...], AfterValidator(_check_rising)]


class GroupResponse(BaseModel, extra="forbid"):
    """A response of a group file."""

    length: PositiveInt
    """Length in tokens."""
    correct: bool
    forced: dict[int, bool] = {}
    """Verdict on the forced answer, by cut in tokens."""
    bare: dict[int, bool] = {}
    """Verdict on the first tokens alone, by cut in tokens."""
    splits: _Splits = ()
    """Ends of its sections, in tokens."""
    thinking: NonNegativeInt | None = None
    """Tokens of thinking."""


class GroupFile(BaseModel, extra="forbid"):
    """A group file."""

    responses: list[GroupResponse] = Field(min_length=1)
    reference: list[GroupResponse] = []
    """Responses of the reference model."""
    splits: _Splits = ()
    """Splits of responses without their own, in tokens."""


class _Verdicts(dict[int, bool]):
    """Verdicts by cut; a missing verdict counts as wrong, and its cut is added to `missing`."""

    def __init__(self, verdicts: Mapping[int, bool], missing: set[int]) -> None:
        super().__init__(verdicts)
        self.missing = missing

    def __missing__(self, cut: int) -> bool:
        self.missing.add(cut)
        return False


@dataclass(frozen=True, slots=True)
class SampledGroup:
    """A group of responses, with their splits and the cuts that the reward needs but lacks."""

    group: ResponseGroup
    splits: tuple[tuple[int, ...], ...]
    """Splits of each response, in tokens."""
    missing: Mapping[str, set[int]]
    """Cuts without a verdict, in tokens, by kind of answer (`forced`, `bare`)."""


def read_options(length: str | None, correct: str | None) -> GroupFile:
    """Return the group of `--length 10,20 --correct yes,no`.

    Raises:
        Problem: E0123 for a wrong option, E0114 if a length is no number.
    """
    if length is None or correct is None:
        absent = [option for option, value in (("--length", length), ("--correct", correct)) if value is None]
        raise _refuse(
            f"there is no {' and no '.join(absent)}",
            "give a group, as in `--length 10,20 --correct yes,no`, or a file of one: `--group FILE`",
        )
    lengths, words = token_grid("--length", length), [word.strip().lower() for word in correct.split(",")]
    for word in words:
        if word not in ("yes", "no"):
            raise _refuse(f"--correct {word!r} is neither yes nor no", "write `--correct yes,no`")
    verdicts = _for_each("--correct", [word == "yes" for word in words], len(lengths))
    pairs = zip(lengths, verdicts, strict=True)
    return _parse({"responses": [{"length": count, "correct": right} for count, right in pairs]}, "--length")


def read_file(path: Path) -> GroupFile:
    """Return the group of a JSON file.

    Raises:
        Problem: E0123 with every mistake in the file.
    """
    try:
        return _parse(json.loads(path.read_bytes()), str(path))
    except (OSError, ValueError, RecursionError) as fault:
        raise _refuse(f"the group cannot be read: {misread(fault)}", None, str(path)) from None


def _parse(data: object, where: str) -> GroupFile:
    """Return the group of JSON data; E0123 with every mistake."""
    try:
        return GroupFile.model_validate(data)
    except ValidationError as wrong:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg'].lower()}" for fault in wrong.errors()]
        raise problem(
            "E0123", "this is not a group of responses", where=where, notes=faults[:6], help="mend these"
        ) from None


def make_group(reward: Reward, file: GroupFile, assignments: Sequence[str]) -> SampledGroup:
    """Return the group that a file or options describe, with the numbers of `--given`.

    Raises:
        Problem: E0123 if the numbers do not suit the reward or the group.
    """
    missing: dict[str, set[int]] = {"forced": set(), "bare": set()}
    numbers, tracks = _numbers(reward, assignments, len(file.responses))

    def rollout(row: GroupResponse, values: Mapping[str, float]) -> RewardedResponse:
        forced, bare = (_Verdicts(row.forced, missing["forced"]), _Verdicts(row.bare, missing["bare"]))
        values = values if row.thinking is None else {"thinking": float(row.thinking), **values}
        return RewardedResponse(row.length, row.correct, forced, bare, values, _tokens(reward, values))

    rollouts = (
        rollout(row, {name: values[i] for name, values in numbers.items()})
        for i, row in enumerate(file.responses)
    )
    group = ResponseGroup("", tuple(rollouts), tuple(rollout(row, {}) for row in file.reference), tracks)
    return SampledGroup(group, tuple(row.splits or file.splits for row in file.responses), missing)


def list_splits(reward: Reward, sample: SampledGroup) -> list[tuple[int, ...]]:
    """Return the splits of each response in tokens: its own, else the reward's; empty if the reward has none.

    If splits are `reached`, they are those below the response's end, and its end.

    Raises:
        Problem: E0123 for splits that the reward does not use.
    """
    split = reward.splits
    if split is None:
        if any(sample.splits):
            raise _refuse(f"`{reward.name}` has no splits, and the group gives some", "leave `splits` out")
        return []
    own = (*split.budgets, split.l_max) if isinstance(split, Budgets) else ()
    places = [splits or own for splits in sample.splits]
    if isinstance(split, (Steps, Exits)) or not split.reached:
        return places
    return [reached_places(ends, r.length) for ends, r in zip(places, sample.group.rollouts, strict=True)]


def check_inputs(reward: Reward, sample: SampledGroup) -> None:
    """Check that the group has everything the reward reads.

    Raises:
        Problem: E0123 with all that is lacking.
    """
    group = sample.group
    # A track whose value is given looks at nothing.
    looks = reward.model_copy(
        update={"tracks": tuple(track for track in reward.tracks if track.name not in group.tracks)}
    )
    lacks = {
        f"`{_read(reward, name)}`": f"`--given {shlex.quote(name)}=…`"
        for name in sorted(_list_given(looks))
        if not all(name in response.features for response in group.rollouts)
    }
    over = {node.over for node in walk(reward) if isinstance(node, Aggregate)}
    if "ref" in over and not group.reference:
        lacks["`ref`, the reference model's responses"] = '`"reference": […]` in a group file'
    elif list_sampled(looks) and not all(response.features for response in group.reference):
        lacks["`thinking(z)` of `ref`"] = '`"thinking": 20` of each in `"reference"` of a group file'
    if reward.splits is not None and not isinstance(reward.splits, Budgets) and not all(sample.splits):
        lacks[f"its splits, which {_origin(reward.splits)}"] = '`"splits": [16, 64, 128]` in a group file'
    for kind, cuts in sample.missing.items():
        if cuts:
            places = listed([str(cut) for cut in sorted(cuts)], 6)
            lacks[f"the {kind} answer at {places} tokens"] = (
                f'`"{kind}": {{"{min(cuts)}": true}}` of each response in a group file'
            )
    if lacks:
        raise _refuse(f"`{reward.name}` reads {', and '.join(lacks)}", f"give {'; '.join(lacks.values())}")


def _list_given(reward: Reward) -> set[str]:
    """Return the names of the numbers that a reward reads of each response; numbers of tokens by their text."""
    sampled = set(map(id, list_sampled(reward)))
    fields = {node.field for node in walk(reward) if isinstance(node, Attribute) and id(node) not in sampled}
    return fields | set(reward.functions) | set(map(expression_text, reward.tokens))


def _tokens(reward: Reward, own: Mapping[str, float]) -> dict[TokenRun, Mapping[int, float]]:
    """Return the given numbers of a response's tokens, equal at each cut."""
    texts = {expression_text(node): node for node in reward.tokens}
    return {texts[name]: defaultdict(partial(float, value)) for name, value in own.items() if name in texts}


def _read(reward: Reward, name: str) -> str:
    """Return how the reward spells a number that it reads."""
    if " for t in " in name:
        return name
    if name in reward.functions:
        return f"python({json.dumps(name)}, y)"
    return f"{name}(y)" if name in READINGS else f"x.{name}"


def _origin(split: Split) -> str:
    """Return where a training gets splits from that the spec does not contain."""
    match split:
        case Steps():
            return "are where its reasoning steps end"
        case Exits():
            return "are drawn for each response"
        case QuestionBudgets():
            return "follow from other trainings"
    return "are found on a frontier of the study"


def _for_each(option: str, values: list[Any], size: int) -> list[Any]:
    """Return a value for each response; a single value counts for all."""
    if len(values) not in (1, size):
        raise _refuse(
            f"{option} has {len(values)} values for {size} responses",
            "give one for each response, or one for all",
        )
    return values * size if len(values) == 1 else values


def _numbers(
    reward: Reward, texts: Sequence[str], size: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the numbers of `--given`: of each response, and of the step.

    Returns:
        Values by name for each response, and single values by name as `ResponseGroup.tracks` has them.
    """
    each_has = _list_given(reward)
    tracks = {track.name for track in reward.tracks}
    reads_step = any(
        node.name == STEP for track in reward.tracks for node in walk(track) if isinstance(node, Variable)
    )
    if reads_step or any(track.start is not None for track in reward.tracks):
        tracks.add(STEP)
    numbers: dict[str, list[float]] = {}
    for text in texts:
        # A condition on tokens has such signs as well.
        name, equals, values = text.rpartition("=")
        name = name.strip()
        if not (equals and name and values.strip()):
            raise _refuse(
                f"--given {text!r} is not an assignment", "write `--given budget=1K` or `--given mode=0,1`"
            )
        if name not in each_has | tracks:
            raise _refuse(
                f"`{reward.name}` reads no `{name}`, which --given names",
                suggest(name, each_has | tracks, "it reads"),
            )
        if name in numbers:
            raise _refuse(f"--given names `{name}` twice", "give it once, with a value for each response")
        numbers[name] = [_number(value.strip()) for value in values.split(",")]
        if name in each_has:
            continue
        first, *more = numbers[name]
        if more:
            raise _refuse(
                f"`{name}` is one number in a step, and --given has {len(numbers[name])}",
                f"write `--given {name}={values.split(',')[0].strip()}`",
            )
        if name == STEP and not (first >= 0 and first.is_integer()):
            raise _refuse(f"no training has done {first:g} steps", "write `--given step=20`")
    return (
        {name: _for_each("--given", values, size) for name, values in numbers.items() if name in each_has},
        {name: values[0] for name, values in numbers.items() if name not in each_has},
    )


def _number(text: str) -> float:
    """Return the number that a text names, such as `0.5` or `1K`."""
    try:
        value = float(text)
    except ValueError:
        return float(token_count("--given", text))
    if not math.isfinite(value):
        raise _refuse(f"--given {text} is not a number that a question has", "give a finite one")
    return value


def _refuse(message: str, help: str | None, where: str | None = None) -> Problem:
    return problem("E0123", message, where=where, help=help)
