"""`reodsl reward FILE [REWARD]`: the values of a reward for a group of responses, and the resulting advantages."""

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

A group file is JSON {"responses": [{"length": 10, "correct": true}, …]}. A response may have "forced", verdicts on answers
that are forced at a cut, as in {"8": false}, and "bare", verdicts on the first tokens up to a cut alone; "splits", the
rising positions at which it is split, and "thinking", the number of its thinking tokens. Beside "responses" there may be
"splits" for all responses, and "reference", responses of the reference model, for `ref`.
""",
)
@click.argument("spec", metavar="FILE", shell_complete=complete_files)
@click.argument("reward", required=False)
@click.option("--length", metavar="TOKENS,...", help="Length of each response of the group.")
@click.option(
    "--correct", metavar="yes|no,...", help="Whether each response is right. A single word counts for all."
)
@click.option(
    "--group", "file", type=PathOption(), metavar="FILE", help="Read the responses from a group file."
)
@click.option(
    "--given",
    multiple=True,
    metavar="NAME=NUMBER,...",
    help="A number of the question, the wording or your Python, as in --given mode=0,1 or --given score.py:f=1;"
    " the number of steps done (--given step=20), or the value of a track. Repeatable.",
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

    REWARD is a reward that the file declares or imports, a call of a reward with its arguments, or an experiment, whose
    settings of `advantage` and `credit` are then used. It may be left out if the file has only one reward. Nothing is
    trained: --length and --correct, or a group file, describe the responses.

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
            help="leave out --group, or --length and --correct",
        )
    chosen = choose_reward(spec, reward, assignments("--set", sets), assignments("--amend", amends))
    show(chosen.diagnostics, chosen.sources)
    if chosen.reward is None or has_error(chosen.diagnostics):
        raise SystemExit(1)
    described = read_file(file) if file is not None else read_options(length, correct)
    sample = make_group(chosen.reward, described, given)
    check_inputs(chosen.reward, sample)
    splits_by_response = list_splits(chosen.reward, sample)
    try_reward = load_registry().try_reward
    if try_reward is None:
        raise problem(
            "E0121",
            "these runners cannot try a reward",
            help="use the runners of reodsl: unset REODSL_RUNNERS",
        )
    tried_responses = try_reward(chosen.reward, chosen.advantage, sample.group, splits_by_response)
    # Trying the reward added the cuts that it reads and that have no verdict.
    check_inputs(chosen.reward, sample)
    facts = _describe_group(chosen.reward, chosen.advantage, chosen.experiment, sample, tried_responses)
    if as_json:
        print_json(finite(facts))
    else:
        click.echo("\n".join(_format_group(facts, chosen.reward, sample, tried_responses)))
    _check_finite(chosen.reward, tried_responses)


def _describe_group(
    reward: Reward,
    rule: Advantage,
    experiment: str | None,
    sample: SampledGroup,
    tried_responses: Sequence[TriedResponse],
) -> dict[str, Any]:
    """Return the values of a reward for a group of responses as JSON data, in which numbers may be infinite or NaN.

    A response has `sections` if the reward is a single expression or has a value at each split, a position at which a
    response is divided into sections. It has `parts` instead if the reward is a sum of parts.

    Args:
        reward: The reward.
        rule: Settings by which advantages follow from rewards.
        experiment: Name of the experiment whose settings these are, or None for default settings.
        sample: The group of responses.
        tried_responses: The reward's values for each response of the group.
    """
    names = let_names(reward.lets)
    responses = []
    for response, tried in zip(sample.group.rollouts, tried_responses, strict=True):
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
                # Advantages come from all parts together, so that a single part has none.
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
        "tracks": dict(zip((track.name for track in reward.tracks), tried_responses[0].tracks, strict=True)),
        "advantage": {
            **{name: getattr(rule, name) for name in rules},
            "own": None if rule.own is None else rule.own.function,
        },
        "responses": responses,
    }


def _format_group(
    facts: dict[str, Any], reward: Reward, sample: SampledGroup, tried_responses: Sequence[TriedResponse]
) -> list[str]:
    """Return the values of a reward for a group of responses as lines of text.

    The lines are a heading, a table with a row for each response or each section of a response, and the formulas of the
    table's columns. A section is a part of a response between two splits, which are positions in tokens.

    Args:
        facts: The same values as JSON data.
        reward: The reward.
        sample: The group of responses.
        tried_responses: The reward's values for each response of the group.
    """
    # (column, text) pairs instead of dictionaries, as a `let` may have the name of another column.
    rows: list[list[tuple[str, str]]] = []
    for number, response in enumerate(facts["responses"], 1):
        is_correct = "yes" if response["correct"] else "no"
        cells = [("response", str(number)), ("length", str(response["length"])), ("correct", is_correct)]
        cells += [(name, f"{value:g}") for name, value in response["given"].items()]
        cells += [
            (name, _format(value)) for kind in ("lets", "metrics") for name, value in response[kind].items()
        ]
        if reward.parts:
            cells += [(f"part {i}", _format(part["value"])) for i, part in enumerate(response["parts"], 1)]
            advantages = {"advantage": response["response_advantage"]}
            if any(part.on != "response" for part in reward.parts):
                advantages["of a prefix"] = response["prefix_advantage"]
            if any(part.on in ("thinking", "solution") for part in reward.parts):
                advantages["of its thinking"], advantages["of its solution"] = (
                    response["thinking_advantage"],
                    advantages.pop("advantage"),
                )
            rows.append([*cells, *((name, _format(value)) for name, value in advantages.items())])
        for section in response["sections"]:
            split = [(name, str(section[key])) for name, key in (("split", "at"), ("tokens", "tokens"))]
            section_values = [(name, _format(section[name])) for name in ("reward", "advantage")]
            rows.append([*cells, *(split if reward.dense else ()), *section_values])
            cells = [(name, "") for name, _ in cells]
    table = lay_columns([[name for name, _ in rows[0]], *([text for _, text in row] for row in rows)])
    tracks = sample.group.tracks
    after_steps = f" after {tracks[STEP]:g} steps" if tracks.get(STEP) else ""
    split_line, outcome, dense = reward.split, reward.outcome, reward.dense
    lines = [
        *(
            f"track {track.name} = {tracks[track.name]:g}, from --given"
            if track.name in tracks
            else f"track {track.name} = {track_text(track)} = {value:g}, {_describe_track_value(track, after_steps)}"
            for track, value in zip(reward.tracks, tried_responses[0].tracks, strict=True)
        ),
        *(f"{let.name} = {expression_text(let.value)}" for let in reward.lets),
        *(f"metric {metric.name} = {expression_text(metric.value)}" for metric in reward.metrics),
        *(_format_splits(tried_responses) if split_line is not None else ()),
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
    name = facts["reward"] + (f" of {facts['experiment']}" if facts["experiment"] else "")
    title = f"{name}, {plural(len(facts['responses']), 'response')}"
    return [title, "", *table, "", *formulas, f"advantage: {_advantage(facts, reward)}"]


def _describe_track_value(track: Track, after_steps: str) -> str:
    """Return in words where the value of a track comes from if --given does not give it.

    A track is a quantity that the reward carries from step to step, such as a moving average.

    Args:
        track: The track.
        after_steps: ` after N steps` if --given has a number of steps, else empty.
    """
    if track.start is None:
        return f"from this group alone{after_steps}"
    return "one step after its start, from this group alone" if after_steps else "its start"


def _format_splits(tried_responses: Sequence[TriedResponse]) -> list[str]:
    """Return lines with the splits of the responses, the positions in tokens at which each is divided into sections.

    If all responses have the same splits, there is a single line.
    """
    split_texts = [", ".join(map(str, tried.places)) for tried in tried_responses]
    if len(set(split_texts)) == 1:
        return [f"splits = {split_texts[0]} tokens"]
    return [f"splits of response {number + 1} = {splits} tokens" for number, splits in enumerate(split_texts)]


def _advantage(facts: dict[str, Any], reward: Reward) -> str:
    """Return in words how the advantages follow from the rewards, such as by a z-score over the group.

    Args:
        facts: Output of `_describe_group`, with the settings of the advantage.
        reward: The reward.
    """
    rule = facts["advantage"]
    clauses = [
        f"from `{rule['own']}`, which is not run here"
        if rule["own"]
        else {
            "group": f"z-scored over the group ({rule['std']} deviation)",
            "center": "less the group's mean",
            "leave_one_out": "less the mean of the other responses",
            "none": "the unchanged reward",
        }[rule["normalise"]]
    ]
    if reward.dense is not None:
        clauses.append(f"credit {rule['credit']}")
    rewards_whole_responses = all(part.on == "response" for part in reward.parts)
    if rule["batch"] and rewards_whole_responses:
        clauses.append("then z-scored over this group's tokens (in training: the whole step's)")
    elif rule["batch"]:
        clauses.append("before training z-scores them over all tokens of the step")
    if rule["bound"] is not None and (rewards_whole_responses or not rule["batch"]):
        clauses.append(f"cut at -{rule['bound']:g} and {rule['bound']:g}")
    if facts["experiment"] is None:
        clauses.append("with default settings; name an experiment to use its settings")
    return ", ".join(clauses)


def _format(value: float) -> str:
    return f"{value:.4g}"


def _check_finite(reward: Reward, tried_responses: Sequence[TriedResponse]) -> None:
    """Check that all rewards of a reward are finite, as a training does.

    Raises:
        Problem: E0920 for the first response with an infinite or undefined reward.
    """
    for number, tried in enumerate(tried_responses):
        for value in tried.rewards:
            if not math.isfinite(value):
                raise problem(
                    "E0920",
                    f"the reward `{reward.name}` is {value} for a response",
                    where=f"response {number + 1}",
                    help="guard the division, logarithm or root with `if`, `max(…, 1)` or `clip`, and give aggregates"
                    " an `empty:`",
                )
