"""Check that budgets of questions come from RL on the same questions, with responses that are long enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reodsl.diagnostics.model import Diagnostic, Label, error, warning
from reodsl.language.checks.cases import Case, StageCase, amount, set_here
from reodsl.language.checks.comparable import content
from reodsl.language.context import Context
from reodsl.language.resolve import ancestry
from reodsl.language.reward.selection import questions_of
from reodsl.language.stages import complete_stages
from reodsl.language.units import TOKENS, Quantity, written
from reodsl.language.values import Experiment, Record, Value, items_of, records_of


def check_rollouts(ctx: Context, case: Case, stage: StageCase) -> Iterator[Diagnostic]:
    """E0405: an arm that is not trained with RL. E0409: all arms end before the longest response. W0404: none is trained on
    the stage's questions."""
    split = stage.reward.split if stage.reward is not None else None
    if split is None or split.kind != "question_budgets":
        return
    arms = records_of(split, "rollouts")
    values = items_of(split, "rollouts")
    sampled: list[Record] = []
    for arm, each in zip(arms, values, strict=True):
        stages = own_stages(ctx, arm)
        if stages is None:
            # It lacks something, which is said where it stands.
            return
        rl = [recipe for recipe in stages if recipe.data("method") == "ppo"]
        if not rl:
            yield error(
                "E0405",
                f"`{arm.name}` has no rollouts to estimate budgets from: it is not trained with RL",
                each.span,
                "a checkpoint" if not stages else str(stages[-1].data("method")).upper(),
                help="name arms that are trained with PPO",
            )
            return
        sampled += rl
    if sampled:
        yield from _ends_early(split, stage.record, sampled)
        yield from _elsewhere(case, stage.record, values, sampled)


def own_stages(ctx: Context, record: Record) -> list[Record] | None:
    """The stages of an arm's or experiment's own training, up to its checkpoint; None where they lack something."""
    for source, last in ancestry(record):
        if isinstance(source, Experiment) and source.is_trained:
            stages: list[Record] = [stage for _, stage in complete_stages(ctx, source)]
            return stages[: None if last is None else last + 1] or None
    return []


def _ends_early(split: Record, recipe: Record, sampled: Sequence[Record]) -> Iterator[Diagnostic]:
    to = split.fields.get("to") or recipe.at("rollout.max_tokens")
    longest = amount(to.value) if to is not None else None
    slots = [stage.at("rollout.max_tokens") for stage in sampled]
    ends = [amount(slot.value) for slot in slots if slot is not None]
    most = max((end for end in ends if end is not None), default=None)
    if longest is None or most is None or most >= longest:
        return
    at = next(i for i, slot in enumerate(slots) if slot is not None and amount(slot.value) == most)
    yield error(
        "E0409",
        "the rollouts of these arms end before the longest response",
        split.span,
        f"budgets up to {int(longest)} tokens",
        others=set_here(slots[at], sampled[at]),
        help=f"name an arm with `max_tokens = {written(Quantity(int(longest), TOKENS))}`, or end both "
        f"the budgets and the responses with them, at {written(Quantity(int(most), TOKENS))}",
    )


def _elsewhere(
    case: Case, recipe: Record, values: Sequence[Value], sampled: Sequence[Record]
) -> Iterator[Diagnostic]:
    data = recipe.fields.get("data")
    wanted = recipe.sub("data")
    # Those that a selection keeps are questions of its pool: who was asked all of these was asked them too.
    every = questions_of(wanted)
    if wanted is None or every is None:
        return
    if any(content(stage.sub("data")) in (content(wanted), content(every)) for stage in sampled):
        return
    theirs = next((stage.sub("data") for stage in sampled if stage.sub("data") is not None), None)
    yield warning(
        "W0404",
        f"`{case.name}` may be asked questions that none of these arms met",
        values[0].span,
        "trained on other data" if theirs is None else f"trained on `{theirs.name}`",
        others=[Label(data.span, f"asks `{wanted.name}`")]
        if data is not None and data.span is not None
        else [],
        notes=["of a question that no rollout tells of, the whole response alone counts"],
        help=f"name arms that are trained on `{every.name}`, or train on their data",
    )
