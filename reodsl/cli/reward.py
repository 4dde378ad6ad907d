"""`reodsl reward FILE [REWARD]`: what a reward gives the responses of a group, and the advantages that follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from reodsl.cli import completing
from reodsl.cli.groups import (
    Asked,
    ResponseSource,
    check_inputs,
    make_group,
    places_of,
    read_group,
    refuse_unanswered,
)
from reodsl.cli.options import amend_option, assignments, known_store_option, set_option
from reodsl.cli.output import has_error, print_json, show
from reodsl.diagnostics import problem
from reodsl.ir.expression import STEP
from reodsl.ir.reward import Reward, Track, Tried
from reodsl.ir.reward_text import as_written, expression_text, let_names, track_text
from reodsl.ir.training import Advantage
from reodsl.plan.registry import load_registry


@dataclass(frozen=True, slots=True)
class _Shown:
    """A reward, the rule of its advantages, and what each response of a group came to."""

    reward: Reward
    rule: Advantage
    experiment: str | None
    group: Asked
    tried: tuple[Tried, ...]


@click.command(
    short_help="Try a reward on a group of responses.",
    epilog="""\b
Examples:
  reodsl reward my.reo --length 10,20,40 --correct yes,yes,no
  reodsl reward my.reo 'mine(alpha: 0.2)' --length 10,20 --correct yes,no
  reodsl reward specs/quickstart.reo 'std.rewards.reo(at: [8 tokens, 32 tokens])' --length 10,20 \\
    --correct yes,no --forced 8:no,yes
  reodsl reward my.reo my_experiment --run quickstart --task vanilla.train.s1 --step 3
""",
)
@click.argument("spec", metavar="FILE", shell_complete=completing.files)
@click.argument("reward", required=False)
@click.option("--length", metavar="TOKENS,...", help="How long each response of the group is.")
@click.option(
    "--correct", metavar="yes|no,...", help="Whether each is right. One answer counts for all of them."
)
@click.option(
    "--forced",
    multiple=True,
    metavar="CUT:yes|no,...",
    help="Whether the answer forced after so many tokens is right, of each response. Repeatable.",
)
@click.option(
    "--bare",
    multiple=True,
    metavar="CUT:yes|no,...",
    help="Whether the first so many tokens hold the right answer with nothing forced. Repeatable.",
)
@click.option(
    "--given",
    multiple=True,
    metavar="NAME=NUMBER,...",
    help="A number of the question, the wording or your Python, as in --given mode=0,1 or --given score.py:f=1;"
    " the steps that are done (--given step=20), or a track. Repeatable.",
)
@click.option(
    "--splits",
    multiple=True,
    metavar="TOKENS,...",
    help="Where responses are split, the longest response last. Once for all, or once for each response.",
)
@click.option(
    "--ref-length", metavar="TOKENS,...", help="Lengths of the starting model's responses, for `ref`."
)
@click.option("--ref-correct", metavar="yes|no,...", help="Whether the starting model's responses are right.")
@click.option(
    "--run", metavar="RUN", help="Take the responses of a past run: a study, or the start of a run's name."
)
@click.option("--rollouts", metavar="FILE", help="Take the responses of a rollouts.parquet.")
@click.option("--task", metavar="TASK", help="Which training of the run, as in vanilla.train.s1.")
@click.option("--step", type=click.IntRange(min=1), help="Which step of the training. Default: the last.")
@click.option("--question", metavar="ID", help="Which question of the step. Default: the first.")
@set_option
@amend_option
@known_store_option
@click.option("--json", "as_json", is_flag=True, help="Print the values and advantages as JSON.")
def reward_command(
    spec: str,
    reward: str | None,
    length: str | None,
    correct: str | None,
    forced: tuple[str, ...],
    bare: tuple[str, ...],
    given: tuple[str, ...],
    splits: tuple[str, ...],
    ref_length: str | None,
    ref_correct: str | None,
    run: str | None,
    rollouts: str | None,
    task: str | None,
    step: int | None,
    question: str | None,
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    store_dir: Path | None,
    as_json: bool,
) -> None:
    """Show what a reward gives each response of a group, and the advantages that PPO makes of it.

    REWARD is a reward that the file declares or imports, a call of one with its arguments, or an experiment, whose own
    settings of `advantage` and `credit` then count. It may be left out where the file has only one. Nothing is trained:
    the responses are made by hand with --length and --correct, or were sampled in a past run.
    """
    from reodsl.language.chosen_reward import choose_reward

    chosen = choose_reward(spec, reward, assignments("--set", sets), assignments("--amend", amends))
    show(chosen.diagnostics, chosen.sources)
    if chosen.reward is None or has_error(chosen.diagnostics):
        raise SystemExit(1)
    reference = (ref_length, ref_correct)
    by_hand = {"--length": length, "--correct": correct, "--forced": forced, "--bare": bare}
    of_run = {"--task": task, "--step": step, "--question": question}
    sampled = run is not None or rollouts is not None
    for option, value in (by_hand if sampled else of_run).items():
        if value:
            raise problem(
                "E0124",
                f"{option} is of a group made by hand, and these responses were sampled"
                if sampled
                else f"{option} is of responses of a past run, and no run is named",
                help=f"leave {option} out" + ("" if sampled else ", or name a run: --run RUN"),
            )
    if sampled:
        past = ResponseSource(run, rollouts, task, step, question, store_dir)
        group = read_group(chosen.reward, past, chosen.experiment, given, reference)
    else:
        group = make_group(chosen.reward, length, correct, forced, bare, given, reference)
    check_inputs(chosen.reward, splits, group)
    places = places_of(chosen.reward, splits, group)
    try_reward = load_registry().try_reward
    if try_reward is None:
        raise problem(
            "E0964", "these runners cannot try a reward", help="take those of reodsl: unset REODSL_RUNNERS"
        )
    tried = try_reward(chosen.reward, chosen.advantage, group.group, places)
    refuse_unanswered(chosen.reward, group)
    shown = _Shown(chosen.reward, chosen.advantage, chosen.experiment, group, tried)
    if as_json:
        print_json(_finite(_facts(shown)))
    else:
        click.echo("\n".join(_lines(shown)))
    _refuse_endless(shown)


def _facts(shown: _Shown) -> dict[str, Any]:
    """Return what is printed, as docs/JSON.md has it; numbers may still be infinite or none."""
    reward = shown.reward
    names = let_names(reward.lets)
    rule = {
        name: getattr(shown.rule, name)
        for name in ("credit", "normalise", "std", "absent", "batch", "equal", "bound")
    }
    responses = []
    for response, tried in zip(shown.group.group.rollouts, shown.tried, strict=True):
        at = tried.places or [None] * len(tried.rewards)
        sections = zip(at, tried.rewards, tried.tokens, tried.advantages, strict=False)
        parts = zip(reward.parts, tried.rewards, strict=False)
        responses.append(
            {
                "length": response.length,
                "correct": response.correct,
                "given": dict(response.given),
                "lets": dict(
                    zip((names.get(let.name, let.name) for let in reward.lets), tried.lets, strict=True)
                ),
                "metrics": dict(zip((each.name for each in reward.metrics), tried.metrics, strict=True)),
                # Parts are normalised each by itself: they have no advantage of their own.
                "sections": []
                if reward.parts
                else [
                    dict(zip(("at", "reward", "tokens", "advantage"), each, strict=True)) for each in sections
                ],
                "parts": [
                    {
                        "expression": as_written(expression_text(part.value), names),
                        "weight": part.weight,
                        "on": part.on,
                        "value": value,
                    }
                    for part, value in parts
                ],
                "prefix_advantage": tried.advantages[0] if reward.parts else None,
                "response_advantage": tried.advantages[1] if reward.parts else None,
            }
        )
    return {
        "reward": reward.name,
        "experiment": shown.experiment,
        "question": shown.group.question,
        "step": shown.group.step,
        "questions": shown.group.questions,
        "tracks": dict(zip((each.name for each in reward.tracks), shown.tried[0].tracks, strict=True)),
        "advantage": rule,
        "responses": responses,
    }


def _finite(value: Any) -> Any:
    """Return data as JSON can hold it: numbers that are not finite are null."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lines(shown: _Shown) -> list[str]:
    """Return the group as a table, a row a response or a split of it, and what its columns are."""
    reward = shown.reward
    # Pairs, as a let may have the name of a column.
    rows: list[list[tuple[str, str]]] = []
    for number, each in enumerate(_facts(shown)["responses"], 1):
        right = "yes" if each["correct"] else "no"
        head = [("response", str(number)), ("length", str(each["length"])), ("correct", right)]
        head += [(name, f"{value:g}") for name, value in each["given"].items()]
        head += [(name, _number(value)) for kind in ("lets", "metrics") for name, value in each[kind].items()]
        if reward.parts:
            head += [(f"part {i}", _number(part["value"])) for i, part in enumerate(each["parts"], 1)]
            ends = {"advantage": each["response_advantage"], "of a prefix": each["prefix_advantage"]}
            rows.append([*head, *((name, _number(value)) for name, value in ends.items())])
        for section in each["sections"]:
            split = [(name, str(section[key])) for name, key in (("split", "at"), ("tokens", "tokens"))]
            paid = [(name, _number(section[name])) for name in ("reward", "advantage")]
            rows.append([*head, *(split if reward.dense else ()), *paid])
            head = [(name, "") for name, _ in head]
    cells = [[name for name, _ in rows[0]], *([text for _, text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]
    lines = []
    given = shown.group.group.tracks
    done = f" after {given[STEP]:g} steps" if given.get(STEP) else ""
    lines += [
        f"track {each.name} = {given[each.name]:g}, as given"
        if each.name in given
        else f"track {each.name} = {track_text(each)} = {value:g}, {_whence(each, done)}"
        for each, value in zip(reward.tracks, shown.tried[0].tracks, strict=True)
    ]
    lines += [f"{let.name} = {expression_text(let.value)}" for let in reward.lets]
    lines += [f"metric {each.name} = {expression_text(each.value)}" for each in reward.metrics]
    if reward.split is not None:
        lines += _splits(shown)
    if reward.outcome is not None:
        lines.append(f"reward = {expression_text(reward.outcome)}")
    if reward.dense is not None:
        lines.append(f"reward at a split {reward.dense.var} = {expression_text(reward.dense.value)}")
    lines += [
        f"part {number} = {expression_text(part.value)}, normalised, times {part.weight:g}, earned by the {part.on}"
        for number, part in enumerate(reward.parts, 1)
    ]
    names = let_names(reward.lets)
    formulas = [as_written(line, names) for line in lines]
    return [_title(shown), "", *table, "", *formulas, f"advantage: {_rule(shown)}"]


def _whence(track: Track, done: str) -> str:
    """Return where the value of a track comes from, where none is given."""
    if track.start is None:
        return f"of this group alone{done}"
    return "one step after its start, of this group alone" if done else "its start"


def _splits(shown: _Shown) -> list[str]:
    """Return where an outcome's statistics look at responses: once where that is the same for all."""
    places = [", ".join(map(str, each.places)) for each in shown.tried]
    if len(set(places)) == 1:
        return [f"splits = {places[0]} tokens"]
    return [f"splits of response {number + 1} = {each} tokens" for number, each in enumerate(places)]


def _title(shown: _Shown) -> str:
    group = shown.group
    name = f"{shown.reward.name}" + (f" of {shown.experiment}" if shown.experiment else "")
    size = len(group.group.rollouts)
    responses = f"{size} response{'' if size == 1 else 's'}"
    if group.question is None:
        return f"{name}, {responses}"
    others = "" if group.questions == 1 else f", one of {group.questions} questions"
    return f"{name}, {responses} to {group.question} at step {group.step}{others}"


def _rule(shown: _Shown) -> str:
    """Return in words how advantages are made."""
    rule = shown.rule
    words = [
        {
            "group": f"z-scored over the group ({rule.std} deviation)",
            "center": "less the group's mean",
            "leave_one_out": "less the mean of the others",
            "none": "the reward as it is",
        }[rule.normalise]
    ]
    if shown.reward.dense is not None:
        words.append(f"credit {rule.credit}")
    if rule.batch and not shown.reward.parts:
        words.append("then z-scored over this group's tokens, where training takes those of the whole step")
    # Parts are not normalised over the batch here, which is what a bound would come after.
    if rule.bound is not None and not (rule.batch and shown.reward.parts):
        words.append(f"cut at -{rule.bound:g} and {rule.bound:g}")
    if shown.experiment is None:
        words.append("the default settings; name an experiment for its own")
    return ", ".join(words)


def _number(value: float) -> str:
    return f"{value:.4g}"


def _refuse_endless(shown: _Shown) -> None:
    """Raise E0920 for a reward that is not a number, as a training does."""
    for number, tried in enumerate(shown.tried):
        for value in tried.rewards:
            if not math.isfinite(value):
                raise problem(
                    "E0920",
                    f"the reward `{shown.reward.name}` is {value} for a response",
                    where=f"response {number + 1}",
                    help="guard the division, logarithm or root with `if`, `max(…, 1)` or `clip`, and give aggregates"
                    " an `empty:`",
                )
