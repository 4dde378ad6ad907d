"""`reodsl reward FILE [REWARD]`: what a reward gives the responses of a group, and the advantages that follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reodsl.cli.groups import SampledGroup, check_inputs, list_splits, make_group, read_file, read_options
from reodsl.cli.options import PathOption, amend_option, assignments, complete_files, set_option
from reodsl.cli.output import has_error, lay_columns, print_json, show
from reodsl.diagnostics import plural, problem
from reodsl.ir.expression import STEP
from reodsl.ir.reward import Reward, Track, TriedResponse
from reodsl.ir.reward_text import as_written, expression_text, let_names, track_text, weight_text
from reodsl.ir.training import Advantage
from reodsl.language.chosen_reward import choose_reward
from reodsl.plan.registry import load_registry
from reodsl.report.formats import finite


@click.command(
    short_help="Try a reward on a group of responses.",
    epilog="""\b
Examples:
  reodsl reward my.reo --length 10,20,40 --correct yes,yes,no
  reodsl reward my.reo 'mine(alpha: 0.2)' --length 10,20 --correct yes,no
  reodsl reward specs/quickstart.reo 'std.rewards.reo(at: [8 tokens, 32 tokens])' --group group.json
\b
A group file is JSON {"responses": [{"length": 10, "correct": true}, …]}. A response may have "forced" and "bare", verdicts
by cut, as in {"8": false}, on the answer that is forced there and on the first so many tokens alone, "splits", where it
is split, its longest last, and "thinking", how many tokens it thinks. Beside "responses" are "splits" for all, and
"reference", the reference model's, for `ref`.
""",
)
@click.argument("spec", metavar="FILE", shell_complete=complete_files)
@click.argument("reward", required=False)
@click.option("--length", metavar="TOKENS,...", help="How long each response of the group is.")
@click.option(
    "--correct", metavar="yes|no,...", help="Whether each is right. One answer counts for all of them."
)
@click.option(
    "--group", "file", type=PathOption(), metavar="FILE", help="Take the responses of a group file."
)
@click.option(
    "--given",
    multiple=True,
    metavar="NAME=NUMBER,...",
    help="A number of the question, the wording or your Python, as in --given mode=0,1 or --given score.py:f=1;"
    " the steps that are done (--given step=20), or a track. Repeatable.",
)
@set_option
@amend_option
@click.option("--json", "as_json", is_flag=True, help="Print the values and advantages as JSON.")
def reward_command(
    spec: str,
    reward: str | None,
    length: str | None,
    correct: str | None,
    file: Path | None,
    given: tuple[str, ...],
    sets: tuple[str, ...],
    amends: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show what a reward gives each response of a group, and the advantages that PPO makes of it.

    REWARD is a reward that the file declares or imports, a call of one with its arguments, or an experiment, whose own
    settings of `advantage` and `credit` then count. It may be left out where the file has only one. Nothing is trained:
    the responses are made by hand with --length and --correct, or in a file.

    Args:
        spec: Path of the file that declares or imports the reward.
        reward: Name or call of a reward, or name of an experiment; None if the file has a single reward.
        length: Lengths of the responses in tokens, such as `10,20`, or None.
        correct: Verdicts on the responses, such as `yes,no`, or None.
        file: Group file with the responses, or None.
        given: Texts `NAME=NUMBER,...` of `--given`.
        sets: Texts `PARAM=VALUE` of `--set`.
        amends: Texts `SETTING=VALUE` of `--amend`.
        as_json: Whether to print JSON instead of text.
    """
    if file is not None and (length or correct):
        raise problem(
            "E0123",
            "--length and --correct and --group give two groups of responses",
            help="give one of them",
        )
    chosen = choose_reward(spec, reward, assignments("--set", sets), assignments("--amend", amends))
    show(chosen.diagnostics, chosen.sources)
    if chosen.reward is None or has_error(chosen.diagnostics):
        raise SystemExit(1)
    described = read_file(file) if file is not None else read_options(length, correct)
    sample = make_group(chosen.reward, described, given)
    check_inputs(chosen.reward, sample)
    places = list_splits(chosen.reward, sample)
    try_reward = load_registry().try_reward
    if try_reward is None:
        raise problem(
            "E0121", "these runners cannot try a reward", help="take those of reodsl: unset REODSL_RUNNERS"
        )
    tried = try_reward(chosen.reward, chosen.advantage, sample.group, places)
    # It knows by now at which cuts the reward wants answers.
    check_inputs(chosen.reward, sample)
    facts = _facts(chosen.reward, chosen.advantage, chosen.experiment, sample, tried)
    if as_json:
        print_json(finite(facts))
    else:
        click.echo("\n".join(_lines(facts, chosen.reward, sample, tried)))
    _refuse_endless(chosen.reward, tried)


def _facts(
    reward: Reward,
    rule: Advantage,
    experiment: str | None,
    sample: SampledGroup,
    every: Sequence[TriedResponse],
) -> dict[str, Any]:
    """Return the group's values as JSON data, in which numbers may be infinite or NaN."""
    names = let_names(reward.lets)
    responses = []
    for response, tried in zip(sample.group.rollouts, every, strict=True):
        splits = tried.places or [None] * len(tried.rewards)
        sections = zip(splits, tried.rewards, tried.tokens, tried.advantages, strict=False)
        parts = zip(reward.parts, tried.rewards, tried.weights, strict=True) if reward.parts else ()
        responses.append(
            {
                "length": response.length,
                "correct": response.correct,
                "given": dict(response.features),
                "lets": dict(
                    zip((names.get(let.name, let.name) for let in reward.lets), tried.lets, strict=True)
                ),
                "metrics": dict(zip((metric.name for metric in reward.metrics), tried.metrics, strict=True)),
                # Parts are normalised each by itself: they have no advantage of their own.
                "sections": []
                if reward.parts
                else [
                    dict(zip(("at", "reward", "tokens", "advantage"), section, strict=True))
                    for section in sections
                ],
                "parts": [
                    {
                        "expression": as_written(expression_text(part.value), names),
                        "weight": weight,
                        "on": part.on,
                        "value": value,
                    }
                    for part, value, weight in parts
                ],
                "prefix_advantage": tried.advantages[0] if reward.parts else None,
                "thinking_advantage": tried.advantages[1] if reward.parts else None,
                "response_advantage": tried.advantages[2] if reward.parts else None,
            }
        )
    rules = ("credit", "normalise", "std", "absent", "batch", "equal", "bound")
    return {
        "reward": reward.name,
        "experiment": experiment,
        "tracks": dict(zip((track.name for track in reward.tracks), every[0].tracks, strict=True)),
        "advantage": {
            **{name: getattr(rule, name) for name in rules},
            "own": None if rule.own is None else rule.own.function,
        },
        "responses": responses,
    }


def _lines(
    facts: dict[str, Any], reward: Reward, sample: SampledGroup, every: Sequence[TriedResponse]
) -> list[str]:
    """Return the group as a table, a row for each response or split, and formulas that explain its columns."""
    # Pairs, as a let may have the name of a column.
    rows: list[list[tuple[str, str]]] = []
    for number, response in enumerate(facts["responses"], 1):
        right = "yes" if response["correct"] else "no"
        head = [("response", str(number)), ("length", str(response["length"])), ("correct", right)]
        head += [(name, f"{value:g}") for name, value in response["given"].items()]
        head += [
            (name, _number(value)) for kind in ("lets", "metrics") for name, value in response[kind].items()
        ]
        if reward.parts:
            head += [(f"part {i}", _number(part["value"])) for i, part in enumerate(response["parts"], 1)]
            ends = {"advantage": response["response_advantage"]}
            if any(part.on != "response" for part in reward.parts):
                ends["of a prefix"] = response["prefix_advantage"]
            if any(part.on in ("thinking", "solution") for part in reward.parts):
                ends["of its thinking"], ends["of its solution"] = (
                    response["thinking_advantage"],
                    ends.pop("advantage"),
                )
            rows.append([*head, *((name, _number(value)) for name, value in ends.items())])
        for section in response["sections"]:
            split = [(name, str(section[key])) for name, key in (("split", "at"), ("tokens", "tokens"))]
            paid = [(name, _number(section[name])) for name in ("reward", "advantage")]
            rows.append([*head, *(split if reward.dense else ()), *paid])
            head = [(name, "") for name, _ in head]
    table = lay_columns([[name for name, _ in rows[0]], *([text for _, text in row] for row in rows)])
    tracks = sample.group.tracks
    after = f" after {tracks[STEP]:g} steps" if tracks.get(STEP) else ""
    split_line, outcome, dense = reward.split, reward.outcome, reward.dense
    lines = [
        *(
            f"track {track.name} = {tracks[track.name]:g}, as given"
            if track.name in tracks
            else f"track {track.name} = {track_text(track)} = {value:g}, {_origin(track, after)}"
            for track, value in zip(reward.tracks, every[0].tracks, strict=True)
        ),
        *(f"{let.name} = {expression_text(let.value)}" for let in reward.lets),
        *(f"metric {metric.name} = {expression_text(metric.value)}" for metric in reward.metrics),
        *(_splits(every) if split_line is not None else ()),
        *([f"reward = {expression_text(outcome)}"] if outcome is not None else ()),
        *([f"reward at a split {dense.var} = {expression_text(dense.value)}"] if dense is not None else ()),
        *(
            f"part {number} = {expression_text(part.value)}, normalised, times {weight_text(part.weight)},"
            f" earned by the {part.on}"
            for number, part in enumerate(reward.parts, 1)
        ),
    ]
    names = let_names(reward.lets)
    formulas = [as_written(line, names) for line in lines]
    return [_title(facts), "", *table, "", *formulas, f"advantage: {_rule(facts, reward)}"]


def _origin(track: Track, after: str) -> str:
    """Return words for what a track's value is if the command gives none; `after` ends them for a later step."""
    if track.start is None:
        return f"of this group alone{after}"
    return "one step after its start, of this group alone" if after else "its start"


def _splits(every: Sequence[TriedResponse]) -> list[str]:
    """Return where an outcome's statistics are taken: one line if all responses agree."""
    places = [", ".join(map(str, tried.places)) for tried in every]
    if len(set(places)) == 1:
        return [f"splits = {places[0]} tokens"]
    return [f"splits of response {number + 1} = {splits} tokens" for number, splits in enumerate(places)]


def _title(facts: dict[str, Any]) -> str:
    """Return the heading: the reward, its experiment and the number of responses."""
    name = facts["reward"] + (f" of {facts['experiment']}" if facts["experiment"] else "")
    return f"{name}, {plural(len(facts['responses']), 'response')}"


def _rule(facts: dict[str, Any], reward: Reward) -> str:
    """Return in words how advantages are made."""
    rule = facts["advantage"]
    words = [
        f"of `{rule['own']}`, which is not run here"
        if rule["own"]
        else {
            "group": f"z-scored over the group ({rule['std']} deviation)",
            "center": "less the group's mean",
            "leave_one_out": "less the mean of the others",
            "none": "the reward as it is",
        }[rule["normalise"]]
    ]
    if reward.dense is not None:
        words.append(f"credit {rule['credit']}")
    comparable = all(part.on == "response" for part in reward.parts)
    if rule["batch"] and comparable:
        words.append("then z-scored over this group's tokens, where training takes those of the whole step")
    elif rule["batch"]:
        words.append("before training z-scores them over the step's tokens")
    if rule["bound"] is not None and (comparable or not rule["batch"]):
        words.append(f"cut at -{rule['bound']:g} and {rule['bound']:g}")
    if facts["experiment"] is None:
        words.append("the default settings; name an experiment for its own")
    return ", ".join(words)


def _number(value: float) -> str:
    return f"{value:.4g}"


def _refuse_endless(reward: Reward, every: Sequence[TriedResponse]) -> None:
    """Raise E0920 for a reward that is not a number, as a training does."""
    for number, tried in enumerate(every):
        for value in tried.rewards:
            if not math.isfinite(value):
                raise problem(
                    "E0920",
                    f"the reward `{reward.name}` is {value} for a response",
                    where=f"response {number + 1}",
                    help="guard the division, logarithm or root with `if`, `max(…, 1)` or `clip`, and give aggregates"
                    " an `empty:`",
                )
