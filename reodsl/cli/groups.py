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

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from reodsl.cli.options import token_count, token_grid
from reodsl.diagnostics import Problem, listed, misread, problem
from reodsl.diagnostics.model import quote, shorten_text, unique_record
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
    """Check that splits rise strictly, and return them; raise ValueError otherwise.

    Splits are the positions, in tokens, at which a response is divided into sections.
    """
    if list(splits) != sorted(set(splits)):
        raise ValueError("splits must rise: write them from the shortest to the longest")
    return splits


def _check_cuts(verdicts: object, parse: ValidatorFunctionWrapHandler) -> dict[int, bool]:
    """Return verdicts by cut as `parse` reads them; raise ValueError if two keys are the same cut, as `8` and `08`."""
    parsed: dict[int, bool] = parse(verdicts)
    if isinstance(verdicts, Mapping) and len(parsed) < len(verdicts):
        raise ValueError("a cut is listed twice")
    return parsed


_Count = Annotated[int, Field(ge=0, le=2**53)]
"""A number of tokens that arithmetic on rewards, in double precision, has exactly."""
_Position = Annotated[_Count, Field(gt=0)]
_Splits = Annotated[tuple[_Position, ...], AfterValidator(_check_rising)]
_CutVerdicts = Annotated[dict[_Count, bool], WrapValidator(_check_cuts)]


class GroupResponse(BaseModel, extra="forbid"):
    """A response of a group file."""

    length: _Position
    """Length in tokens."""
    correct: bool
    forced: _CutVerdicts = {}
    """Verdict on the forced answer, by cut in tokens."""
    bare: _CutVerdicts = {}
    """Verdict on the first tokens alone, without a forcing text, by cut in tokens."""
    splits: _Splits = ()
    """Positions, in tokens, at which the response is divided into sections: the ends of the sections."""
    thinking: _Count | None = None
    """Tokens of thinking."""


class GroupFile(BaseModel, extra="forbid"):
    """A group file."""

    responses: list[GroupResponse] = Field(min_length=1)
    reference: list[GroupResponse] = []
    """Responses of the reference model."""
    splits: _Splits = ()
    """Splits of all responses for which the file names none, in tokens."""


class _Verdicts(dict[int, bool]):
    """The verdicts on a response's answers, by cut in tokens.

    A missing verdict counts as wrong, and its cut is added to `missing`.
    """

    def __init__(self, verdicts: Mapping[int, bool], missing: set[int]) -> None:
        """Copy the verdicts of a response, by cut in tokens; `missing` is the set that collects cuts without a verdict."""
        super().__init__(verdicts)
        self.missing = missing

    def __missing__(self, cut: int) -> bool:
        self.missing.add(cut)
        return False


@dataclass(frozen=True, slots=True)
class SampledGroup:
    """A group of responses to a question, with their splits, and with the cuts that lack a verdict."""

    group: ResponseGroup
    splits: tuple[tuple[int, ...], ...]
    """Splits of each response: the positions, in tokens, at which it is divided into sections."""
    missing: Mapping[str, set[int]]
    """Cuts whose verdict the reward read and the group lacks, in tokens, by kind of answer.

    The kind is `forced` for an answer after a forcing text, or `bare` for the answer in the first tokens alone.
    """


def read_options(length: str | None, correct: str | None) -> GroupFile:
    """Return the group that the options `--length 10,20 --correct yes,no` describe.

    Args:
        length: Lengths of the responses in tokens, separated by commas, or None if the option is missing.
        correct: `yes` or `no` for each response, or once for all, or None if the option is missing.

    Raises:
        Problem: E0123 for a wrong option, E0114 if a length is no number.
    """
    if length is None or correct is None:
        options = {"--length": length, "--correct": correct}
        raise _refuse(
            f"missing: {' and '.join(name for name, value in options.items() if value is None)}",
            "give a group, as in `--length 10,20 --correct yes,no`, or a file of one: `--group FILE`",
        )
    lengths, answers = token_grid("--length", length), [word.strip().lower() for word in correct.split(",")]
    for word in answers:
        if word not in ("yes", "no"):
            raise _refuse(
                f"--correct {shorten_text(word)!r} is neither yes nor no", "write `--correct yes,no`"
            )
    verdicts = _repeat_single("--correct", [word == "yes" for word in answers], len(lengths))
    rows = [{"length": n, "correct": right} for n, right in zip(lengths, verdicts, strict=True)]
    return _parse({"responses": rows}, "--length")


def read_file(path: Path) -> GroupFile:
    """Read the group of responses in a JSON file.

    Raises:
        Problem: E0123 if the file cannot be read, or with its first six mistakes.
    """
    try:
        return _parse(json.loads(path.read_bytes(), object_pairs_hook=unique_record), str(path))
    except (OSError, ValueError, RecursionError) as fault:
        raise _refuse(f"the group cannot be read: {misread(fault)}", None, str(path)) from None


def _parse(data: object, where: str) -> GroupFile:
    """Check JSON data, and return the group of responses that they describe.

    Args:
        data: The JSON data.
        where: Name of the data for the error message: a file or an option.

    Raises:
        Problem: E0123 with the first six mistakes.
    """
    try:
        return GroupFile.model_validate(data)
    except ValidationError as wrong:
        faults = [
            f"{'.'.join(shorten_text(str(key)) for key in fault['loc'])}: {fault['msg'].lower()}"
            for fault in wrong.errors()
        ]
        raise problem(
            "E0123", "this is not a group of responses", where=where, notes=faults[:6], help="correct these"
        ) from None


def make_group(reward: Reward, file: GroupFile, assignments: Sequence[str]) -> SampledGroup:
    """Return the group of responses that a file or options describe, with the numbers that `--given` adds.

    Args:
        reward: The reward that will be tried on the group; it decides which numbers are per response or per step.
        file: The responses.
        assignments: Texts of `--given`, such as `mode=0,1`.

    Raises:
        Problem: E0123 if the numbers do not suit the reward or the group.
    """
    missing: dict[str, set[int]] = {"forced": set(), "bare": set()}
    numbers, tracks = _read_given(reward, assignments, len(file.responses))

    def rollout(row: GroupResponse, values: Mapping[str, float]) -> RewardedResponse:
        """Return a response of the file in the form that a reward reads, with `values`, its numbers by name."""
        forced, unforced = (_Verdicts(row.forced, missing["forced"]), _Verdicts(row.bare, missing["bare"]))
        values = values if row.thinking is None else {"thinking": float(row.thinking), **values}
        return RewardedResponse(
            row.length, row.correct, forced, unforced, values, _set_tokens(reward, values)
        )

    group = ResponseGroup(
        "",
        tuple(
            rollout(row, {name: values[i] for name, values in numbers.items()})
            for i, row in enumerate(file.responses)
        ),
        tuple(rollout(row, {}) for row in file.reference),
        tracks,
    )
    return SampledGroup(group, tuple(row.splits or file.splits for row in file.responses), missing)


def list_splits(reward: Reward, sample: SampledGroup) -> list[tuple[int, ...]]:
    """Return the splits of each response: the positions, in tokens, at which the reward divides it into sections.

    The positions are those in the group file, or else the budgets in the reward. If the reward uses only positions that a
    response reaches (`reached`), the positions after the response's end are left out, and its end is added.

    Returns:
        Splits in tokens by response; an empty list if the reward has no splits.

    Raises:
        Problem: E0123 for splits that the reward does not use.
    """
    split = reward.splits
    if split is None:
        if any(sample.splits):
            raise _refuse(f"`{reward.name}` has no splits, and the group gives some", "leave `splits` out")
        return []
    reward_splits = (*split.budgets, split.l_max) if isinstance(split, Budgets) else ()
    splits_by_response = [splits or reward_splits for splits in sample.splits]
    if isinstance(split, (Steps, Exits)) or not split.reached:
        return splits_by_response
    return [
        reached_places(ends, r.length)
        for ends, r in zip(splits_by_response, sample.group.rollouts, strict=True)
    ]


def check_inputs(reward: Reward, sample: SampledGroup) -> None:
    """Check that a group of responses has every number, split and verdict that the reward reads.

    Missing verdicts at cuts are known only after the reward was tried on the group (`sample.missing`).

    Raises:
        Problem: E0123 with everything that is missing, and the options that give it.
    """
    group = sample.group
    # A track whose value is in --given reads nothing of the responses.
    reduced_reward = reward.model_copy(
        update={"tracks": tuple(track for track in reward.tracks if track.name not in group.tracks)}
    )
    remedies = {
        f"`{_spell_number(reward, name)}`": f"`--given {shlex.quote(name)}=…`"
        for name in sorted(_list_numbers(reduced_reward))
        if not all(name in response.features for response in group.rollouts)
    }
    aggregated_groups = {node.over for node in walk(reward) if isinstance(node, Aggregate)}
    if "ref" in aggregated_groups and not group.reference:
        remedies["`ref`, the reference model's responses"] = '`"reference": […]` in a group file'
    elif list_sampled(reduced_reward) and not all(response.features for response in group.reference):
        remedies["`thinking(z)` of `ref`"] = '`"thinking": 20` of each in `"reference"` of a group file'
    if reward.splits is not None and not isinstance(reward.splits, Budgets) and not all(sample.splits):
        remedies[f"its splits, which {_origin(reward.splits)}"] = '`"splits": [16, 64, 128]` in a group file'
    for kind, cuts in sample.missing.items():
        if cuts:
            cut_list = listed([str(cut) for cut in sorted(cuts)], 6)
            remedies[f"the {kind} answer at {cut_list} tokens"] = (
                f'`"{kind}": {{"{min(cuts)}": true}}` of each response in a group file'
            )
    if remedies:
        raise _refuse(
            f"`{reward.name}` reads {', and '.join(remedies)}", f"give {'; '.join(remedies.values())}"
        )


def _list_numbers(reward: Reward) -> set[str]:
    """Return the names of the numbers that a reward reads for each response, besides its length and verdict.

    There are three kinds of names: a field of the question, `FILE.py:FUNCTION` for a function of the user, and the text of
    an expression for a number of the response's text or a statistic over its tokens, such as `count(…)`.
    """
    sampled = set(map(id, list_sampled(reward)))
    return {
        *(node.key for node in walk(reward) if isinstance(node, Attribute) and id(node) not in sampled),
        *reward.functions,
        *map(expression_text, reward.tokens),
    }


def _set_tokens(reward: Reward, features: Mapping[str, float]) -> dict[TokenRun, Mapping[int, float]]:
    """Return a response's statistics over tokens from `--given`, by expression; the same value counts at every cut.

    Args:
        reward: The reward, whose `tokens` are expressions for statistics over tokens, such as `count(…)`.
        features: The response's numbers by name; names of other numbers are skipped.
    """
    nodes_by_text = {expression_text(node): node for node in reward.tokens}
    return {
        nodes_by_text[name]: defaultdict(partial(float, value))
        for name, value in features.items()
        if name in nodes_by_text
    }


def _spell_number(reward: Reward, name: str) -> str:
    """Return the expression by which the reward reads the number called `name`, such as `x.name`."""
    if "(" in name:
        return name
    if name in reward.functions:
        return f"python({quote(name)}, y)"
    return f"{name}(y)" if name in READINGS else f"x.{name}"


def _origin(split: Split) -> str:
    """Return in words where a training gets the positions at which it divides responses, if the spec does not list them."""
    match split:
        case Steps():
            return "are the ends of its reasoning steps"
        case Exits():
            return "are sampled for each response"
        case QuestionBudgets():
            return "follow from other trainings"
    return "are chosen on a frontier of the study"


def _repeat_single(option: str, values: list[Any], size: int) -> list[Any]:
    """Return a list of `size` values, one for each response; a single value is repeated.

    Args:
        option: Name of the option with the values, for the error message.
        values: The values: one for each response, or a single value.
        size: Number of responses.

    Raises:
        Problem: E0123 for another number of values.
    """
    if len(values) not in (1, size):
        raise _refuse(
            f"{option} has {len(values)} values for {size} responses",
            "give a value for each response, or one value for all",
        )
    return values * size if len(values) == 1 else values


def _read_given(
    reward: Reward, assignments: Sequence[str], size: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the numbers of `--given` in two groups: numbers of each response, and numbers of the training step.

    Args:
        reward: The reward, which says which names it reads.
        assignments: Texts such as `mode=0,1`, of which each names a number and its values.
        size: Number of responses.

    Returns:
        (values of all responses, by name; single values of the training step, by name). A value of the step is the number
        of steps done, under `step`, or the value of a track, a quantity that the reward carries from step to step.

    Raises:
        Problem: E0123 for a text that is no assignment, an unknown or repeated name, or a wrong number of values.
    """
    response_names = _list_numbers(reward)
    step_names = {track.name for track in reward.tracks}
    reads_step = any(
        node.name == STEP for track in reward.tracks for node in walk(track) if isinstance(node, Variable)
    )
    if reads_step or any(track.start is not None for track in reward.tracks):
        step_names.add(STEP)
    numbers: dict[str, list[float]] = {}
    for text in assignments:
        # The name may be a condition on tokens, which contains `=` as well.
        name, sign, values = text.rpartition("=")
        name = name.strip()
        if not (sign and name and values.strip()):
            raise _refuse(
                f"--given {shorten_text(text)!r} is not an assignment",
                "write `--given budget=1K` or `--given mode=0,1`",
            )
        if name not in response_names | step_names:
            raise _refuse(
                f"`{reward.name}` reads no `{shorten_text(name)}`, which --given names",
                suggest(name, response_names | step_names, "it reads"),
            )
        if name in numbers:
            raise _refuse(f"--given names `{name}` twice", "write it once, with a value for each response")
        numbers[name] = [_parse_number(value.strip()) for value in values.split(",")]
        if name in response_names:
            continue
        first, *others = numbers[name]
        if others:
            raise _refuse(
                f"`{name}` has one value in a step, and --given has {len(numbers[name])}",
                f"write `--given {name}={values.split(',')[0].strip()}`",
            )
        if name == STEP and not (first >= 0 and first.is_integer()):
            raise _refuse(f"`step` is a whole number of steps, not {first:g}", "write `--given step=20`")
    return (
        {
            name: _repeat_single("--given", values, size)
            for name, values in numbers.items()
            if name in response_names
        },
        {name: values[0] for name, values in numbers.items() if name not in response_names},
    )


def _parse_number(text: str) -> float:
    """Return the number that a text names, such as `0.5` or `1K`."""
    try:
        value = float(text)
    except ValueError:
        return float(token_count("--given", text))
    if not math.isfinite(value):
        raise _refuse(f"--given {text} is not finite", "write a finite number")
    return value


def _refuse(message: str, help: str | None, where: str | None = None) -> Problem:
    """Return E0123, the diagnostic for a wrong group of responses."""
    return problem("E0123", message, where=where, help=help)
