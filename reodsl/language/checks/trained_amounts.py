"""Warn where compared arms train for unequal amounts, as their comparison is then one of amounts too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic, Label, warning
from reodsl.language.checks.cases import StudyCase, study_check
from reodsl.language.context import Context
from reodsl.language.finish import has_broken
from reodsl.language.resolve import source_of, trained_checkpoint
from reodsl.language.stages import complete_stages
from reodsl.language.units import PLAIN, Quantity
from reodsl.language.values import Arm, Record
from reodsl.numbers.learning_rate import learning_rate_factor, warmup_steps

CLOSE = 0.05
"""The relative difference up to which two amounts count as equal."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """The amounts that an arm's reinforcement learning takes in all of its stages, by the spec."""

    steps: int
    summed_rate: float
    questions: int
    responses: int

    def shares(self, of: Amounts) -> dict[str, tuple[float, float]]:
        """Return the amounts that are not another's, each with the other's, by what they count."""
        pairs = {
            "steps": (self.steps, of.steps),
            "summed learning rate": (self.summed_rate, of.summed_rate),
            "questions": (self.questions, of.questions),
            "responses": (self.responses, of.responses),
        }
        return {
            name: (here, there)
            for name, (here, there) in pairs.items()
            if abs(here - there) > CLOSE * max(here, there)
        }


@study_check
def check_trained_amounts(case: StudyCase) -> Iterator[Diagnostic]:
    """Report W0608: arms that begin at one checkpoint and learn from rewards for unequal amounts.

    What ends at a plateau is not known before the run, and SFT, preferences and other starts are not compared.
    """
    study = case.study
    if study.data("unequal") is not None:
        return
    groups: dict[object, list[tuple[Arm, Amounts]]] = {}
    for arm in study.arms:
        trained = _amounts(case.ctx, arm)
        if trained is not None:
            groups.setdefault(trained[0], []).append((arm, trained[1]))
    baseline = case["score.relative_to"]
    compared = baseline.slot.value.data if baseline.slot is not None else None
    for members in groups.values():
        usual = Counter(amounts for _, amounts in members).most_common(1)[0][0]
        first, wanted = next(
            (each for each in members if isinstance(compared, Record) and each[0].name == compared.name),
            next(each for each in members if each[1] == usual),
        )
        unequal = [(arm, shares) for arm, amounts in members if (shares := amounts.shares(wanted))]
        if unequal:
            arm, shares = unequal[0]
            others = ", ".join(f"`{each.name}`" for each, _ in unequal[1:])
            yield warning(
                "W0608",
                f"`{arm.name}` and `{first.name}` are compared, and train for unequal amounts",
                arm.span,
                "; ".join(
                    f"{name}: {here:.4g} against {there:.4g}" for name, (here, there) in shares.items()
                ),
                others=[Label(first.span, "what it is compared with")],
                notes=[f"so are {others}"] if others else [],
                help='train both for as long, or say in the study why they differ: `unequal = "…"`',
            )


def _amounts(ctx: Context, arm: Arm) -> tuple[object, Amounts] | None:
    """Return where an arm's training begins and how much it takes; None where it is not RL alone, or not known."""
    checkpoint = trained_checkpoint(arm)
    if checkpoint is None:
        return None
    experiment, last = checkpoint
    stages = [stage for _, stage in complete_stages(ctx, experiment)][: None if last is None else last + 1]
    parts = [part for stage in stages if (part := _of_stage(ctx, stage)) is not None]
    if not stages or len(parts) < len(stages):
        return None
    start, at = source_of(experiment.sub("base"))
    if start is None:
        return None
    steps, rates, questions, responses = (sum(each) for each in zip(*parts, strict=True))
    origin = (start.owner, start.name, at)
    return origin, Amounts(int(steps), float(rates), int(questions), int(responses))


def _of_stage(ctx: Context, stage: Record) -> tuple[int, float, int, int] | None:
    """Return a stage's steps, summed learning rate, questions and responses; None where the spec does not fix them."""
    optim, batch = stage.sub("optim"), stage.sub("batch")
    steps = stage.data("steps")
    if stage.data("method") != "ppo" or has_broken(ctx, stage) or stage.sub("until") is not None:
        return None
    if optim is None or batch is None or not isinstance(steps, int):
        return None
    warmup = optim.get("warmup")
    amount = warmup.data if warmup is not None and isinstance(warmup.data, Quantity) else None
    rising = 0.0 if amount is None else float(amount.number)
    if amount is not None and amount.unit == PLAIN:
        rising = warmup_steps(rising, steps)
    decay_from = optim.data("decay_from") if optim.data("decay") == "linear" else None
    factors = (learning_rate_factor(step, steps, rising, decay_from) for step in range(steps))
    questions = steps * batch.data("prompts")
    return steps, optim.data("lr") * sum(factors), questions, questions * batch.data("rollouts")
