"""Check a loss and its advantages: settings that nothing reads, and bounds that no value reaches."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.ir.expression import TRACK, Expression, Variable
from reodsl.ir.reward_text import PRODUCT, as_written, expression_text, let_names
from reodsl.ir.setting import field_places
from reodsl.ir.training import MOVING, UNBOUNDED, Ppo
from reodsl.language.checks.cases import (
    CheckedExperiment,
    CheckedStage,
    Settings,
    find_model,
    finding_at,
    is_selective,
    list_wordings,
    ppo_check,
    strip_names,
)
from reodsl.language.resolve import cap_importance
from reodsl.language.reward.body import cancelled_factors, varies
from reodsl.language.suggest import suggest
from reodsl.language.units import PLAIN, describe_unit
from reodsl.language.values import Symbol

WIDE_BOUND = 0.1
"""Bounds of ratios from this number up suit tokens. GSPO's bounds for ratios of responses are 0.0003 and 0.0004."""


@ppo_check
def check_moving(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Check numbers of the stage that are tracks or metrics of the reward, `reward.NAME`.

    Report E0203 for a name that the reward lacks, E0302 for one with a unit, and E0303 for one that may leave the
    setting's range, as far as its formula says.
    """
    paths = dict(field_places(Ppo))
    for field, range_ in MOVING.items():
        setting = stage[paths[field]]
        if setting.slot is None or not isinstance(setting.slot.value.data, Symbol):
            continue
        name, numbers, noun = setting.text.removeprefix("reward."), stage.formula.numbers, "track or metric"
        if field == "temperature":
            # A metric is known only when the responses are.
            tracks = {Variable(name=f"{TRACK}{key}") for key in numbers}
            numbers, noun = {key: it for key, it in numbers.items() if it.data in tracks}, "track"
        number = numbers.get(name)
        if number is None:
            message = f"the stage's reward has no {noun} `{name}`"
            yield setting.error(
                "E0203",
                message,
                "unknown",
                help=suggest(setting.text, (f"reward.{key}" for key in numbers), "it has"),
            )
        elif number.unit != PLAIN:
            message = f"`{setting.path}` is a plain number, and `{name}` is {describe_unit(number.unit)}"
            yield setting.error("E0302", message, help="divide it in the reward by a constant of its unit")
        elif not (range_.holds(number.low) and range_.holds(number.high)):
            found = f"`{name}` is from {number.low:g} to {number.high:g}"
            message = f"`{setting.path}` must be {range_.range_words()}, and {found}"
            hint = "bound it in the reward: `clip(…, LOW, HIGH)`"
            yield setting.error("E0303", message, "may leave the range", help=hint)


@ppo_check
def check_corrected_twice(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0516 if a loss corrects the difference between trainer and engine twice.

    The first correction is `old_logprobs = engine`: ratios divide by the engine's probabilities. The second is an
    importance weight, the trainer's over the engine's probability, by `importance_cap` or a decoupled loss.
    """
    old = stage["old_logprobs"]
    if old.text != "engine":
        return
    corrects = {
        "importance_cap": cap_importance(stage.record, on_gpus=False) is not None,
        "loss.decoupled": stage["loss.decoupled"].is_true,
    }
    for path, is_on in corrects.items():
        if is_on:
            yield stage[path].error(
                "E0516",
                "the difference between trainer and engine would be corrected twice",
                "weighs tokens by trainer over engine",
                old.label("ratios that divide by the engine's already"),
                help=f"write `old_logprobs = trainer`, or take `{path.rpartition('.')[2]}` out",
            )


@ppo_check
def check_ratios(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521 for a `clip` that does not fit the loss's `ratio`, and for `mode_tokens` without modes.

    A `clip` needs a ratio that it bounds, and `clip = factors` needs the ratio of a complete response.
    """
    clip, ratio = stage["loss.clip"], stage["loss.ratio"]
    yield from _check_modes(stage)
    if ratio.text == "none" and clip.text != "none":
        yield ratio.error(
            "E0521",
            "`clip` bounds ratios, and this loss has no ratio",
            "no ratio",
            *clip.setting_labels(f"`{clip.text}`"),
            help="write `loss { ratio = none, clip = none }`, or take `ratio` out",
        )
    if clip.text == "factors" and ratio.text != "sequence":
        hint = "write `loss { ratio = sequence, clip = factors }`"
        yield clip.error("E0521", "`factors` needs the ratio of a response", "has no effect", help=hint)


MISSING_LIMITS = {"loss": ("batch", "seconds", "memory"), "advantage": ("batch",)}
"""The limits that a user's function does not have, by the block that names it."""


@ppo_check
def check_own(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521 for limits of a user's loss or advantage function that have no effect.

    `MISSING_LIMITS` has the limits that cannot be enforced for each block. A loss, for example, runs in the
    trainer's process, where neither its time nor its memory is limited. Also report E0521 for a user's advantage
    function if the reward has parts: each part is normalised separately, and the function reads a single reward.
    """
    for block, limits in MISSING_LIMITS.items():
        own = stage[f"{block}.own"]
        if own.slot is None:
            continue
        for name in limits:
            if (limit := stage[f"{block}.own.{name}"]).is_given:
                message = f"`{name}` bounds functions of rewards, and this is a function of {block}"
                yield limit.error("E0521", message, "has no effect", help="take it out")
        if block == "advantage" and stage.reward is not None and stage.reward.parts:
            message = "each part of this reward is normalised separately, and a function of advantages reads one reward"
            yield own.error(
                "E0521", message, "needs a single reward", help="write one reward, or take the function out"
            )


@ppo_check
def check_teacher(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Check that a teacher can score the policy's responses.

    Report E0311 if the teacher is a served model, whose probabilities the trainer cannot read. Report E0514 if its
    vocabulary differs from the policy's, and E0501 if a prompt with its response may be longer than its context.
    Vocabularies are compared only if the spec lists the words of both.
    """
    model, policy = find_model(stage.record.sub("teacher")), case.model
    source, policy_source = (None if m is None else m.sub("source") for m in (model, policy))
    if model is None or source is None:
        return
    teacher = stage["teacher"]
    if source.kind == "served":
        yield teacher.error(
            "E0311",
            f"the teacher `{model.name}` is a model behind an address, whose probabilities the trainer cannot read",
            "needs weights",
            Label(source.span, "served"),
            help="name a model whose source is `hub(…)` or `folder(…)`, or an experiment that trains the teacher",
        )
        return
    words, policy_words = (
        None if s is None or s.kind != "architecture" else s.sub("tokenizer") for s in (source, policy_source)
    )
    if words is not None and policy_words is not None and strip_names(words) != strip_names(policy_words):
        yield teacher.error(
            "E0514",
            f"the teacher `{model.name}` has other tokens than the model that it teaches",
            "has another tokenizer",
            Label(words.span, "the teacher's tokens"),
            Label(policy_words.span, "the responses' tokens"),
            help="name a teacher with the same tokenizer",
        )
    context, limits = Settings(model)["context"], [stage["max_prompt"], stage["rollout.max_tokens"]]
    total = sum(int(setting.number) for setting in limits)
    if total > context.number:
        yield finding_at(
            error,
            "E0501",
            f"a prompt with its response may have {total} tokens, past the teacher's context of {context.number}",
            [
                teacher.label(f"reads {context.number} tokens"),
                *(label for setting in limits for label in setting.labels),
            ],
            "lower `max_prompt` or `max_tokens`, or name a teacher with a longer context",
        )


@ppo_check
def check_following_teacher(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Check `teacher_follows`, which updates the reference model towards the policy during a stage.

    Report E0521 if a `teacher` is read instead of the reference model, and W0523 if the first update comes too
    late for a step to read it.
    """
    follows, teacher = stage["teacher_follows"], stage["teacher"]
    if not follows.is_given:
        return
    if teacher.is_given:
        yield finding_at(
            error,
            "E0521",
            "`teacher_follows` updates the reference model, and a `teacher` is read instead",
            [follows.label("has no effect"), teacher.label("is not updated")],
            "take `teacher` out, so that the reference model teaches, or take `teacher_follows` out",
        )
    every, steps, lag = stage["teacher_follows.every"], stage["steps"], stage["lag"]
    # A loss reads the updated model in the next step, a reward only `lag` steps later, since responses lag.
    last_read = steps.number - (0 if stage.record.data("kl") else lag.number)
    if every.number >= last_read:
        shorter = f"write an interval below {last_read} steps, or " if last_read > 1 else ""
        late = "" if last_read == steps.number else f", whose rewards read it {lag.number} steps late"
        yield finding_at(
            warning,
            "W0523",
            f"no step reads an updated teacher: the first update is after step {every.number}, and the stage has"
            f" {steps.number} steps{late}",
            [every.label("the first update is too late"), *steps.labels, *(lag.labels if late else ())],
            f"{shorter}take `teacher_follows` out",
        )


def _check_modes(stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521 for `mode_tokens` in a stage without modes.

    A mode is a wording whose `prefix` begins the response. `mode_tokens = shares` compares at least two modes
    for the same question, so all wordings need different prefixes and no condition.
    """
    mode, wordings = stage["loss.mode_tokens"], list_wordings(stage.record.sub("rollout"))
    prefixes = [wording.data("prefix") for wording in wordings]
    are_modes = len(prefixes) > 1 and all(prefixes) and len(set(prefixes)) == len(prefixes)
    are_modes = are_modes and not any(map(is_selective, wordings))
    if not mode.text or mode.text == "rewarded" or (are_modes if mode.text == "shares" else any(prefixes)):
        return
    message, text = (
        ("`mode_tokens = shares` compares wordings for all questions with different prefixes", "has no modes")
        if mode.text == "shares"
        else (
            "`mode_tokens` trains the prefixes that wordings put before a response, and no wording has a `prefix`",
            "has no effect",
        )
    )
    hint = "write `rollout { wordings = [THINK, NO_THINK] }`, each with a `prefix` and for all questions, or take it out"
    yield mode.error("E0521", message, text, help=hint)


@ppo_check
def check_wide_bounds(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523 if the bounds of responses' ratios are as wide as bounds of tokens' ratios.

    A response's ratio is the geometric mean of its tokens' ratios, which is hardly ever that far from 1.
    """
    ratio = stage["loss.ratio"]
    # With `mode_tokens = shares`, the ratio of a mode's first token, and so of a short response, may be far from 1.
    if (
        ratio.text != "sequence"
        or stage["loss.clip"].text in ("factors", *UNBOUNDED)
        or stage["loss.mode_tokens"].text == "shares"
    ):
        return
    for bound in (stage["clip.low"], stage["clip.high"]):
        # `low = 1` means that ratios have no lower bound.
        if bound.slot is not None and WIDE_BOUND <= bound.number != 1:
            yield bound.warning(
                "W0523",
                f"`{bound.path}` is {bound.number:g}, and a response's ratio is hardly ever that far from 1",
                "a usual bound for tokens",
                ratio.label("a mean over the response's tokens"),
                help="write `clip { low = 3e-4, high = 4e-4 }`, the bounds of GSPO's paper",
            )
            return


@ppo_check
def check_unreached_bound(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523 for a bound of advantages above the largest z-score that a group of rollouts can have.

    The largest of n z-scores is sqrt(n - 1), which one rollout reaches if all others are equal; with the
    sample's standard deviation it is (n - 1) / sqrt(n). A reward of several parts, whose advantages add up, and
    z-scores over a batch are not checked.

    Source:
        Samuelson 1968.
    """
    bound, rollouts = stage["advantage.bound"], stage["batch.rollouts"]
    limit, count = bound.number, rollouts.number
    grouped = stage["advantage.normalise"].text == "group" and not stage["advantage.batch"].is_true
    if stage.formula.parts or not grouped or count < 2 or "advantage.own" in stage:
        return
    most = (count - 1) / math.sqrt(count) if stage["advantage.std"].text == "sample" else math.sqrt(count - 1)
    if limit >= most:
        yield bound.warning(
            "W0523",
            f"no advantage reaches {limit:g}: of {count:g} rollouts the largest z-score is {most:.3g}",
            "cuts nothing",
            *rollouts.labels,
            help=f"write a bound below {most:.3g}, or take it out",
        )


@ppo_check
def check_cancelled_factors(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523 for a factor of a reward that the normalisation of advantages cancels.

    A z-score divides by the standard deviation of the rewards of a question, or of a step with `batch`. A factor
    that is the same for all these rewards is thus lost. `products` has the expressions that may be such products,
    each with its span and whether its rewards are normalised over the step.
    """
    typed, normalise, batch = stage.formula, stage["advantage.normalise"], stage["advantage.batch"]
    if "advantage.own" in stage:
        return
    grouped, has_one_value = normalise.text == "group", batch.is_true and len(typed.values) == 1
    lets, names = {let.name: let.value for let in typed.lets}, let_names(typed.lets)
    # A reward that is the same for all responses is reported as W0301.
    earned = [(value.data, span) for value, span in typed.values if varies(value.data, lets)]
    products: list[tuple[Expression | float, Span, bool]]
    products = [(data, span, not grouped) for data, span in earned if grouped or has_one_value]
    products += [(term.weight, span, True) for term in typed.parts for _, span in earned if has_one_value]
    for product, span, over_batch in products:
        if isinstance(product, float) or not (factors := cancelled_factors(product, lets, over_batch)):
            continue
        text = as_written(" * ".join(expression_text(factor, PRODUCT) for factor in factors), names)
        hint = f"write `{text} * z(…)` with the rest of the reward in `z(…)`: a factor before `z(…)` is not cancelled"
        if typed.dense is not None or over_batch:
            hint = f"take `{text}` out, or write `advantage {{ normalise = center, batch = false }}`"
        yield warning(
            "W0523",
            f"`{text}` multiplies all rewards of a {'step' if over_batch else 'question'} equally, so their z-scores"
            " cancel it",
            span,
            "cancelled by the z-score",
            labels=batch.labels if over_batch else normalise.labels,
            help=hint,
        )


@ppo_check
def check_old_logprobs(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0516 if a stage with `lag` computes ratios or importance weights from the wrong log-probabilities.

    With a lag, older weights sampled the responses. Ratios must then divide by the engine's log-probabilities, which
    excludes `old_logprobs = trainer` and `importance_cap`. A decoupled loss corrects for the lag, and is not checked.
    """
    lag = stage["lag"]
    if not lag.number or stage["loss.decoupled"].is_true:
        return
    old, sampled = stage["old_logprobs"], lag.label("sampled by older weights")
    if old.text == "trainer":
        yield old.error(
            "E0516",
            "ratios would divide by the trainer's log-probabilities, and older weights sampled the responses",
            "ignores the change since they were sampled",
            sampled,
            help="take `old_logprobs` out, or write `loss { decoupled = true }`, which corrects for the lag",
        )
    elif cap_importance(stage.record, on_gpus=False) is not None:
        yield stage["importance_cap"].error(
            "E0516",
            "`importance_cap` bounds the weight of the trainer over the engine, and here ratios divide by the engine's",
            "has no effect",
            sampled,
            help="add `loss { decoupled = true }`, or take `importance_cap` out",
        )
