"""Groups of responses to try a reward on: made by hand on the command line, or rows of a past run."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reodsl.cli.options import token_count, token_grid
from reodsl.diagnostics import Problem, listed, problem
from reodsl.ir.base import walk
from reodsl.ir.expression import MEMORY, STEP, Aggregate, Given, Name
from reodsl.ir.reward import (
    Budgets,
    Exits,
    Group,
    QuestionBudgets,
    Reward,
    Rollout,
    Split,
    Steps,
    reached_places,
)
from reodsl.language.suggest import suggest

ANSWERS = {"yes": True, "no": False, "1": True, "0": False, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ResponseSource:
    """The source of a past run's responses: the run or the file, its training, the step and the question."""

    run: str | None
    rollouts: str | None
    task: str | None
    step: int | None
    question: str | None
    store_dir: Path | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A group, the cuts that a reward asked for and nobody gave, and the question and step of sampled ones.

    `questions` are how many groups the step has.
    """

    group: Group
    unanswered: list[tuple[str, int, int]]
    question: str | None = None
    step: int | None = None
    questions: int = 1


class _Verdicts(Mapping[int, bool]):
    """Verdicts by cut. Notes what is asked for and not there, as (option, cut, response), and answers no.

    With `since` a verdict holds until the next cut, and is no before the first.
    """

    def __init__(
        self,
        option: str,
        response: int,
        verdicts: Mapping[int, bool],
        notes: list[tuple[str, int, int]],
        since: bool,
    ) -> None:
        self.option, self.response, self.verdicts, self.notes, self.since = (
            option,
            response,
            verdicts,
            notes,
            since,
        )
        self.cuts = sorted(verdicts)

    def __getitem__(self, cut: int) -> bool:
        if cut in self.verdicts:
            return self.verdicts[cut]
        if self.since:
            at = bisect_right(self.cuts, cut)
            return self.verdicts[self.cuts[at - 1]] if at else False
        self.notes.append((self.option, cut, self.response))
        return False

    def __iter__(self) -> Iterator[int]:
        return iter(self.verdicts)

    def __len__(self) -> int:
        return len(self.verdicts)


def make_group(
    reward: Reward,
    length: str | None,
    correct: str | None,
    forced: Sequence[str],
    bare: Sequence[str],
    given: Sequence[str],
    reference: tuple[str | None, str | None],
) -> Asked:
    """Return the group that options describe. Raises E0124 if they contradict each other, E0117 if one is not a length."""
    if length is None or correct is None:
        absent = [option for option, value in (("--length", length), ("--correct", correct)) if value is None]
        raise _refuse(
            f"there is no {' and no '.join(absent)}",
            "give a group, as in `--length 10,20 --correct yes,no`, or the responses of a run: `--run RUN`",
        )
    lengths = _lengths("--length", length)
    size = len(lengths)
    verdicts = _answers("--correct", correct, size)
    unanswered: list[tuple[str, int, int]] = []
    at_cuts = {
        option: _read_verdicts(option, texts, size)
        for option, texts in (("--forced", forced), ("--bare", bare))
    }
    numbers, tracks = _numbers(reward, given, size)
    rollouts = tuple(
        Rollout(
            lengths[i],
            verdicts[i],
            forced=_Verdicts("--forced", i, _select_response(at_cuts["--forced"], i), unanswered, False),
            bare=_Verdicts("--bare", i, _select_response(at_cuts["--bare"], i), unanswered, False),
            given={name: values[i] for name, values in numbers.items()},
        )
        for i in range(size)
    )
    return Asked(Group("", rollouts, _reference(*reference), tracks), unanswered)


def _select_response(verdicts: Mapping[int, Sequence[bool]], response: int) -> dict[int, bool]:
    """One response's verdicts by cut."""
    return {cut: answers[response] for cut, answers in verdicts.items()}


def read_group(
    reward: Reward,
    past: ResponseSource,
    experiment: str | None,
    given: Sequence[str],
    reference: tuple[str | None, str | None],
) -> Asked:
    """Return the responses to one question in one step of a training. Raises E0124 where they are not there."""
    import polars as pl

    path = _table(past, experiment)
    try:
        table = pl.scan_parquet(path, glob=False)
        steps = table.select(pl.col("step").unique().sort()).collect()["step"].to_list()
        step = past.step if past.step is not None else steps[-1] if steps else 0
        rows = table.filter(pl.col("step") == step).collect().to_dicts()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _refuse(
            f"the responses cannot be read: {str(error).splitlines()[0]}", None, str(path)
        ) from None
    if not rows:
        there = f"steps {steps[0]} to {steps[-1]} are there" if steps else "the training has no step yet"
        raise _refuse(f"no response is of step {step}", there, str(path))
    groups: list[list[dict[str, Any]]] = []
    for row in rows:
        if row["rollout"] == 0 or not groups:
            groups.append([])
        groups[-1].append(row)
    names = [responses[0]["question"] for responses in groups]
    if past.question is not None and past.question not in names:
        raise _refuse(
            f"step {step} has no question `{past.question}`", f"it has {listed(names, 4)}", str(path)
        )
    chosen = groups[names.index(past.question) if past.question is not None else 0]
    unanswered: list[tuple[str, int, int]] = []
    numbers, tracks = _numbers(reward, given, len(chosen))
    rollouts = tuple(
        Rollout(
            row["tokens"],
            row["correct"],
            _Verdicts("--forced", i, dict(zip(row["cuts"], row["forced"], strict=True)), unanswered, False),
            _Verdicts("--bare", i, dict(zip(row["bare_cuts"], row["bare"], strict=True)), unanswered, True),
            {name: float(row[name]) for name in ("mode", "budget") if row[name] is not None}
            | {name: values[i] for name, values in numbers.items()},
        )
        for i, row in enumerate(chosen)
    )
    # A step from 1 is sampled when those before it are done.
    tracks = {STEP: float(step - 1), **tracks}
    question = chosen[0]["question"]
    mine = table.filter((pl.col("question") == question) & (pl.col("step") < step)).sort(
        "step", maintain_order=True
    )
    before = mine.select("tokens", "correct").collect().rows() if reward.remembers else []
    history = tuple(Rollout(tokens, right) for tokens, right in before[-MEMORY:])
    group = Group(question, rollouts, _reference(*reference), tracks, history=history)
    return Asked(group, unanswered, chosen[0]["question"], step, len(groups))


def _table(past: ResponseSource, experiment: str | None) -> Path:
    """Return the table of a training's responses."""
    if past.rollouts is not None:
        if past.run is not None:
            raise _refuse("--run and --rollouts name two sources of responses", "give one of them")
        return Path(past.rollouts)
    from reodsl.cli.place import existing_store
    from reodsl.store.runs import pick, records

    store = existing_store(past.store_dir)
    record = pick(records(store), past.run or "")
    tables = {
        task: path
        for task, key in record.tasks.items()
        if ".train" in task and (path := store.path(key) / "rollouts.parquet").is_file()
    }
    if past.task is not None:
        named = [past.task] if past.task in tables else []
    else:
        named = list(tables)
        matching = [task for task in tables if task.split(".")[0] == experiment]
        named = matching if len(named) > 1 and len(matching) == 1 else named
    if len(named) != 1:
        there = ", ".join(tables) or "none"
        message = (
            f"the run has no responses of `{past.task}`"
            if past.task is not None
            else f"the run has responses of {len(tables)} trainings"
        )
        raise _refuse(message, f"name one with --task: {there}", record.name)
    return tables[named[0]]


def places_of(reward: Reward, splits: Sequence[str], group: Asked) -> list[tuple[int, ...]]:
    """Return the splits of each response in tokens; none if the reward has none.

    Raises E0124 if the reward's own are not known here and none are given.
    """
    size = len(group.group.rollouts)
    split = reward.splits
    if split is None:
        if splits:
            raise _refuse(f"`{reward.name}` has no splits, and --splits gives some", "leave --splits out")
        return []
    if not splits:
        # Others were asked for before.
        return (
            _cut_at_ends(split, [(*split.budgets, split.l_max)] * size, group)
            if isinstance(split, Budgets)
            else []
        )
    places = [_lengths("--splits", text) for text in splits]
    for each in places:
        if list(each) != sorted(set(each)):
            raise _refuse(
                f"--splits {','.join(map(str, each))} does not rise", "write them from short to long"
            )
    if len(places) not in (1, size):
        raise _refuse(
            f"--splits is given {len(places)} times for {size} responses",
            "give it once, or once for each response",
        )
    return _cut_at_ends(split, places * size if len(places) == 1 else places, group)


def _cut_at_ends(split: Split, places: list[tuple[int, ...]], group: Asked) -> list[tuple[int, ...]]:
    """Return the places of each response; where splits are `reached`, those below its end, and its end."""
    if isinstance(split, (Steps, Exits)) or not split.reached:
        return places
    lengths = [rollout.length for rollout in group.group.rollouts]
    return [reached_places(each, length) for each, length in zip(places, lengths, strict=True)]


def check_inputs(reward: Reward, splits: Sequence[str], group: Asked) -> None:
    """Raise E0124 where the reward reads numbers, a reference or splits that the group does not have, with all of them."""
    given = set(group.group.rollouts[0].given)
    # A track whose value is given looks at nothing.
    looks = reward.model_copy(
        update={"tracks": tuple(each for each in reward.tracks if each.name not in group.group.tracks)}
    )
    fields = {node.field for node in walk(looks) if isinstance(node, Given)} | set(reward.functions)
    lacks = {
        f"`{_read(reward, name)}`": f"`--given {name}=…`"
        for name in sorted(fields - given)
    }  # fmt: skip
    over = {node.over for node in walk(reward) if isinstance(node, Aggregate)}
    if "ref" in over and not group.group.reference:
        lacks["`ref`, the starting model's responses"] = "`--ref-length 30,50 --ref-correct yes,no`"
    if reward.splits is not None and not splits and not isinstance(reward.splits, Budgets):
        once = ", once for each response" if isinstance(reward.splits, (Steps, Exits)) else ""
        lacks[f"its splits, which {_whence(reward.splits)}"] = (
            f"where they are, the longest response last: `--splits 16,64,128`{once}"
        )
    if lacks:
        raise _refuse(f"`{reward.name}` reads {', and '.join(lacks)}", f"give {'; '.join(lacks.values())}")


def _read(reward: Reward, name: str) -> str:
    """Return how a reward reads a number that it is given."""
    if name in reward.functions:
        return f"python({json.dumps(name)}, y)"
    return "mode(y)" if name == "mode" else f"x.{name}"


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


def refuse_unanswered(reward: Reward, group: Asked) -> None:
    """Raise E0124 where the reward asked for answers at cuts that are not known, with what to write."""
    if not group.unanswered:
        return
    cuts = sorted(
        {(option, cut) for option, cut, _ in group.unanswered},
        key=lambda each: (each[0] == "--bare", each[1]),
    )
    what = {"--forced": "the forced answer", "--bare": "the bare answer"}
    asked = " and ".join(
        f"{what[option]} is right at {listed(places, 6)} tokens"
        for option in dict.fromkeys(option for option, _ in cuts)
        for places in [[str(cut) for each, cut in cuts if each == option]]
    )
    example = ",".join(["yes"] * len(group.group.rollouts))
    options = " ".join(f"{option} {cut}:{example}" for option, cut in cuts[:12]) + (
        " …" if len(cuts) > 12 else ""
    )
    raise _refuse(
        f"`{reward.name}` asks whether {asked}",
        f"say it of each response: `{options}`"
        if group.question is None
        else "try a reward that cuts where the run did, or make the group by hand",
    )


def _lengths(option: str, text: str) -> tuple[int, ...]:
    lengths = token_grid(option, text)
    if min(lengths) < 1:
        raise _refuse(f"{option} has a length of 0", "a response has at least 1 token")
    return lengths


def _answers(option: str, text: str, size: int) -> list[bool]:
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in ANSWERS:
            raise _refuse(f"{option} {word!r} is neither yes nor no", f"write `{option} yes,no`")
    return _for_each(option, [ANSWERS[word] for word in words], size)


def _for_each(option: str, values: list[Any], size: int) -> list[Any]:
    """One value for each response; a single one counts for all."""
    if len(values) not in (1, size):
        raise _refuse(
            f"{option} has {len(values)} values for {size} responses",
            "give one for each response, or one for all",
        )
    return values * size if len(values) == 1 else values


def _read_verdicts(option: str, texts: Sequence[str], size: int) -> dict[int, list[bool]]:
    verdicts: dict[int, list[bool]] = {}
    for text in texts:
        cut, colon, answers = text.partition(":")
        if not colon:
            raise _refuse(f"{option} {text!r} has no cut", f"write `{option} 64:yes,no`")
        place = token_count(option, cut.strip())
        if place in verdicts:
            raise _refuse(f"{option} gives the cut {place} twice", "give it once")
        verdicts[place] = _answers(option, answers, size)
    return verdicts


def _numbers(
    reward: Reward, texts: Sequence[str], size: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the numbers that --given names: those of each response, and those of the step, as `Group.tracks` has them."""
    each_has = {node.field for node in walk(reward) if isinstance(node, Given)} | set(reward.functions)
    tracks = {track.name for track in reward.tracks}
    reads_step = any(
        node.name == STEP for each in reward.tracks for node in walk(each) if isinstance(node, Name)
    )
    if reads_step or any(track.start is not None for track in reward.tracks):
        tracks.add(STEP)
    numbers: dict[str, list[float]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
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
        if name not in each_has and len(numbers[name]) != 1:
            raise _refuse(
                f"`{name}` is one number in a step, and --given has {len(numbers[name])}",
                f"write `--given {name}={values.split(',')[0].strip()}`",
            )
        if (
            name == STEP
            and name not in each_has
            and not (numbers[name][0] >= 0 and numbers[name][0].is_integer())
        ):
            raise _refuse(f"no training has done {numbers[name][0]:g} steps", "write `--given step=20`")
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


def _reference(length: str | None, correct: str | None) -> tuple[Rollout, ...]:
    if length is None and correct is None:
        return ()
    if length is None or correct is None:
        raise _refuse("--ref-length and --ref-correct go together", "give both")
    lengths = _lengths("--ref-length", length)
    verdicts = _answers("--ref-correct", correct, len(lengths))
    return tuple(Rollout(n, right) for n, right in zip(lengths, verdicts, strict=True))


def _refuse(message: str, help: str | None, where: str | None = None) -> Problem:
    return problem("E0124", message, where=where, help=help)
