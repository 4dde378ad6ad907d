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
from reodsl.ir.expression import READINGS, STEP, Aggregate, Given, TokenRun, Variable, list_sampled
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
    """Return splits that rise. Raises ValueError for others."""
    if list(splits) != sorted(set(splits)):
        raise ValueError("it does not rise: write it from short to long")
    return splits


_Splits = Annotated[tuple[PositiveInt, ...], AfterValidator(_check_rising)]


class GroupResponse(BaseModel, extra="forbid"):
    """A response of a group file. `forced` and `bare` have a verdict by cut in tokens, and `splits` end its sections."""

    length: PositiveInt
    correct: bool
    forced: dict[int, bool] = {}
    bare: dict[int, bool] = {}
    splits: _Splits = ()
    thinking: NonNegativeInt | None = None


class GroupFile(BaseModel, extra="forbid"):
    """A group file. `reference` are the reference model's responses, and `splits` those of responses without their own."""

    responses: list[GroupResponse] = Field(min_length=1)
    reference: list[GroupResponse] = []
    splits: _Splits = ()


class _Verdicts(dict[int, bool]):
    """Verdicts by cut. A missing one is no, and noted in `missing`."""

    def __init__(self, known: Mapping[int, bool], missing: set[int]) -> None:
        super().__init__(known)
        self.missing = missing

    def __missing__(self, cut: int) -> bool:
        self.missing.add(cut)
        return False


@dataclass(frozen=True, slots=True)
class Asked:
    """A group, the splits of each response, and the cuts that a reward asked for and nobody gave, by kind of answer."""

    group: ResponseGroup
    splits: tuple[tuple[int, ...], ...]
    missing: Mapping[str, set[int]]


def read_options(length: str | None, correct: str | None) -> GroupFile:
    """Return the group of `--length 10,20 --correct yes,no`. Raises E0123, and E0114 where a length is no number."""
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
    """Return the group of a JSON file. Raises E0123 with every mistake in it."""
    try:
        return _parse(json.loads(path.read_bytes()), str(path))
    except (OSError, ValueError, RecursionError) as fault:
        raise _refuse(f"the group cannot be read: {misread(fault)}", None, str(path)) from None


def _parse(data: object, where: str) -> GroupFile:
    try:
        return GroupFile.model_validate(data)
    except ValidationError as wrong:
        faults = [f"{'.'.join(map(str, each['loc']))}: {each['msg'].lower()}" for each in wrong.errors()]
        raise problem(
            "E0123", "this is not a group of responses", where=where, notes=faults[:6], help="mend these"
        ) from None


def make_group(reward: Reward, file: GroupFile, given: Sequence[str]) -> Asked:
    """Return the group that a file or options describe, with the numbers of `--given`. Raises E0123."""
    missing: dict[str, set[int]] = {"forced": set(), "bare": set()}
    numbers, tracks = _numbers(reward, given, len(file.responses))

    def rollout(one: GroupResponse, values: Mapping[str, float]) -> RewardedResponse:
        forced, bare = _Verdicts(one.forced, missing["forced"]), _Verdicts(one.bare, missing["bare"])
        values = values if one.thinking is None else {"thinking": float(one.thinking), **values}
        return RewardedResponse(one.length, one.correct, forced, bare, values, _tokens(reward, values))

    rollouts = (
        rollout(one, {name: values[i] for name, values in numbers.items()})
        for i, one in enumerate(file.responses)
    )
    group = ResponseGroup("", tuple(rollouts), tuple(rollout(one, {}) for one in file.reference), tracks)
    return Asked(group, tuple(one.splits or file.splits for one in file.responses), missing)


def list_places(reward: Reward, asked: Asked) -> list[tuple[int, ...]]:
    """Return the splits of each response in tokens: given ones, else the reward's own; none if the reward has none.

    Where splits are `reached`, they are those below the response's end, and its end. Raises E0123 for splits in vain.
    """
    split = reward.splits
    if split is None:
        if any(asked.splits):
            raise _refuse(f"`{reward.name}` has no splits, and the group gives some", "leave `splits` out")
        return []
    own = (*split.budgets, split.l_max) if isinstance(split, Budgets) else ()
    places = [each or own for each in asked.splits]
    if isinstance(split, (Steps, Exits)) or not split.reached:
        return places
    return [reached_places(each, one.length) for each, one in zip(places, asked.group.rollouts, strict=True)]


def check_inputs(reward: Reward, asked: Asked) -> None:
    """Raise E0123 with everything that the reward reads, or has asked for, and the group lacks."""
    group = asked.group
    # A track whose value is given looks at nothing.
    looks = reward.model_copy(
        update={"tracks": tuple(each for each in reward.tracks if each.name not in group.tracks)}
    )
    lacks = {
        f"`{_read(reward, name)}`": f"`--given {shlex.quote(name)}=…`"
        for name in sorted(_list_given(looks))
        if not all(name in each.given for each in group.rollouts)
    }
    over = {node.over for node in walk(reward) if isinstance(node, Aggregate)}
    if "ref" in over and not group.reference:
        lacks["`ref`, the reference model's responses"] = '`"reference": […]` in a group file'
    elif list_sampled(looks) and not all(each.given for each in group.reference):
        lacks["`thinking(z)` of `ref`"] = '`"thinking": 20` of each in `"reference"` of a group file'
    if reward.splits is not None and not isinstance(reward.splits, Budgets) and not all(asked.splits):
        lacks[f"its splits, which {_whence(reward.splits)}"] = '`"splits": [16, 64, 128]` in a group file'
    for kind, cuts in asked.missing.items():
        if cuts:
            places = listed([str(cut) for cut in sorted(cuts)], 6)
            lacks[f"the {kind} answer at {places} tokens"] = (
                f'`"{kind}": {{"{min(cuts)}": true}}` of each response in a group file'
            )
    if lacks:
        raise _refuse(f"`{reward.name}` reads {', and '.join(lacks)}", f"give {'; '.join(lacks.values())}")


def _list_given(reward: Reward) -> set[str]:
    """Return the names of the numbers of each response that a reward is given, those of its tokens by their text."""
    sampled = set(map(id, list_sampled(reward)))
    fields = {node.field for node in walk(reward) if isinstance(node, Given) and id(node) not in sampled}
    return fields | set(reward.functions) | set(map(expression_text, reward.tokens))


def _tokens(reward: Reward, given: Mapping[str, float]) -> dict[TokenRun, Mapping[int, float]]:
    """Return what is given of a response's tokens, the same at each cut."""
    texts = {expression_text(node): node for node in reward.tokens}
    return {texts[name]: defaultdict(partial(float, value)) for name, value in given.items() if name in texts}


def _read(reward: Reward, name: str) -> str:
    """Return how a reward reads a number that it is given."""
    if " for t in " in name:
        return name
    if name in reward.functions:
        return f"python({json.dumps(name)}, y)"
    return f"{name}(y)" if name in READINGS else f"x.{name}"


def _whence(split: Split) -> str:
    """Return where a training gets splits from that are not in the spec."""
    match split:
        case Steps():
            return "are where its reasoning steps end"
        case Exits():
            return "are drawn for each response"
        case QuestionBudgets():
            return "follow from other trainings"
    return "are found on a frontier of the study"


def _for_each(option: str, values: list[Any], size: int) -> list[Any]:
    """Return one value for each response; a single one counts for all."""
    if len(values) not in (1, size):
        raise _refuse(
            f"{option} has {len(values)} values for {size} responses",
            "give one for each response, or one for all",
        )
    return values * size if len(values) == 1 else values


def _numbers(
    reward: Reward, texts: Sequence[str], size: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the numbers that --given names: those of each response, and those of the step, as `Group.tracks` has them."""
    each_has = _list_given(reward)
    tracks = {track.name for track in reward.tracks}
    reads_step = any(
        node.name == STEP for each in reward.tracks for node in walk(each) if isinstance(node, Variable)
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
        numbers[name] = [_number(each.strip()) for each in values.split(",")]
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
    try:
        value = float(text)
    except ValueError:
        return float(token_count("--given", text))
    if not math.isfinite(value):
        raise _refuse(f"--given {text} is not a number that a question has", "give a finite one")
    return value


def _refuse(message: str, help: str | None, where: str | None = None) -> Problem:
    return problem("E0123", message, where=where, help=help)
