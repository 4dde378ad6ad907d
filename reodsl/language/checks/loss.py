"""Check a loss and its advantages: parts that nothing reads, and bounds that nothing reaches."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, Span, error, warning
from reodsl.ir.expression import Expression
from reodsl.ir.reward_text import PRODUCT, as_written, expression_text, let_names
from reodsl.ir.training import UNBOUNDED
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

WIDE_BOUND = 0.1
"""Bounds from here on are those of tokens: GSPO's, of whole responses, are 0.0003 and 0.0004."""


@ppo_check
def check_corrected_twice(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0516: weights of trainer over engine, and ratios that already divide by the engine's probability."""
    old = stage["old_logprobs"]
    if old.text != "engine":
        return
    weighing = {
        "importance_cap": cap_importance(stage.record, on_gpus=False) is not None,
        "loss.decoupled": stage["loss.decoupled"].is_true,
    }
    for path, weighs in weighing.items():
        if weighs:
            yield stage[path].error(
                "E0516",
                "the difference between trainer and engine would be corrected twice",
                "weighs tokens by trainer over engine",
                old.label("ratios that divide by the engine's already"),
                help=f"write `old_logprobs = trainer`, or take `{path.rpartition('.')[2]}` out",
            )


@ppo_check
def check_ratios(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521: clips without the ratio that they bound, and tokens of modes without modes."""
    clip, ratio = stage["loss.clip"], stage["loss.ratio"]
    yield from _check_modes(stage)
    if ratio.text == "none" and clip.text != "none":
        yield ratio.error(
            "E0521",
            "there is no ratio, and the clip is of ratios",
            "no ratio",
            *clip.setting_labels(f"`{clip.text}`"),
            help="write `loss { ratio = none, clip = none }`, or take `ratio` out",
        )
    if clip.text == "factors" and ratio.text != "sequence":
        helps = "write `loss { ratio = sequence, clip = factors }`"
        yield clip.error("E0521", "`factors` are those of a response's ratio", "there are none", help=helps)


MISSING_LIMITS = {"loss": ("batch", "seconds", "memory"), "advantage": ("batch",)}
"""The limits that functions of the user's do not have, by the block that names them."""


@ppo_check
def check_own(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521: limits that a user's function does not have, and rewards in parts for a user's advantages."""
    for block, limits in MISSING_LIMITS.items():
        own = stage[f"{block}.own"]
        if own.slot is None:
            continue
        for limit in (stage[f"{block}.own.{name}"] for name in limits):
            if limit.is_given:
                no_process = "a process of its own, and a loss has none"
                limit_owner = no_process if block == "loss" else f"what a {block} is not given"
                words = f"`{limit.path.rpartition('.')[2]}` bounds {limit_owner}"
                yield limit.error("E0521", words, "has no effect", help="take it out")
        if block == "advantage" and stage.reward is not None and stage.reward.parts:
            words = "the parts of a reward are normalised each by itself, and a function of advantages reads their sum"
            yield own.error(
                "E0521", words, "has no such sum", help="write one reward, or take the function out"
            )


@ppo_check
def check_teacher(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0311, E0501, E0514: a teacher whose weights are elsewhere, or that cannot read the policy's responses."""
    model, policy = find_model(stage.record.sub("teacher")), case.model
    source, own = (None if m is None else m.sub("source") for m in (model, policy))
    if model is None or source is None:
        return
    teacher = stage["teacher"]
    if source.kind == "served":
        yield teacher.error(
            "E0311",
            f"`{model.name}` would teach, and it is a model behind an address",
            "its distributions are not here",
            Label(source.span, "served"),
            help="name one whose source is `hub(…)` or `folder(…)`, or an experiment that trains it",
        )
        return
    words, own_words = (
        None if s is None or s.kind != "architecture" else s.sub("tokenizer") for s in (source, own)
    )
    if words is not None and own_words is not None and strip_names(words) != strip_names(own_words):
        yield teacher.error(
            "E0514",
            f"the teacher `{model.name}` has other tokens than the model that it teaches",
            "would read other words",
            Label(words.span, "its tokens"),
            Label(own_words.span, "those of the responses"),
            help="name a teacher with the same tokenizer",
        )
    context, longest = Settings(model)["context"], [stage["max_prompt"], stage["rollout.max_tokens"]]
    total = sum(int(setting.number) for setting in longest)
    if total > context.number:
        yield finding_at(
            error,
            "E0501",
            f"a prompt with its response may have {total} tokens, past the teacher's context of {context.number}",
            [
                teacher.label(f"reads {context.number} tokens"),
                *(label for setting in longest for label in setting.labels),
            ],
            "lower `max_prompt` or `max_tokens`, or name a teacher with a longer context",
        )


@ppo_check
def check_following_teacher(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521, W0523: a teacher that cannot follow the policy, or follows it only after the stage's end."""
    follows, teacher = stage["teacher_follows"], stage["teacher"]
    if not follows.is_given:
        return
    if teacher.is_given:
        yield finding_at(
            error,
            "E0521",
            "`teacher_follows` moves the reference model, and a `teacher` is read in its place",
            [follows.label("has no effect"), teacher.label("stays as it is")],
            "take `teacher` out, which leaves that model to teach, or `teacher_follows`",
        )
    every, steps, lag = stage["teacher_follows.every"], stage["steps"], stage["lag"]
    # A loss reads it in the next step, and a reward when the responses of the next one that is not yet sampled are.
    most = steps.number - (0 if stage.record.data("kl") else lag.number)
    if every.number >= most:
        shorter = f"write an interval below {most} steps, or " if most > 1 else ""
        late = "" if most == steps.number else f", whose rewards read it {lag.number} late"
        yield finding_at(
            warning,
            "W0523",
            f"no step reads a teacher that has followed: the first time is after step {every.number}, and the stage has"
            f" {steps.number}{late}",
            [every.label("moves nothing that is read"), *steps.labels, *(lag.labels if late else ())],
            f"{shorter}take `teacher_follows` out",
        )


def _check_modes(stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521: `mode_tokens` without modes, since wordings begin no response or begin all alike."""
    mode, wordings = stage["loss.mode_tokens"], list_wordings(stage.record.sub("rollout"))
    prefixes = [wording.data("prefix") for wording in wordings]
    unlike = len(prefixes) > 1 and all(prefixes) and len(set(prefixes)) == len(prefixes)
    unlike = unlike and not any(map(is_selective, wordings))
    if not mode.text or mode.text == "rewarded" or (unlike if mode.text == "shares" else any(prefixes)):
        return
    message, text = (
        ("`mode_tokens = shares` compares modes in turn, each by a wording's own `prefix`", "has no modes")
        if mode.text == "shares"
        else (
            "`mode_tokens` trains what wordings put before a response, and none has a `prefix`",
            "has no effect",
        )
    )
    helps = "write `rollout { wordings = [THINK, NO_THINK] }`, each with a `prefix` and for all questions, or take it out"
    yield mode.error("E0521", message, text, help=helps)


@ppo_check
def check_wide_bounds(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523: bounds for ratios of tokens around ratios of responses, which never differ that much from 1."""
    ratio = stage["loss.ratio"]
    # A mode's first token may be far from its share, and short responses with it.
    if (
        ratio.text != "sequence"
        or stage["loss.clip"].text in ("factors", *UNBOUNDED)
        or stage["loss.mode_tokens"].text == "shares"
    ):
        return
    for bound in (stage["clip.low"], stage["clip.high"]):
        # A low one of 1 says that there is none.
        if bound.slot is not None and WIDE_BOUND <= bound.number != 1:
            yield bound.warning(
                "W0523",
                f"`{bound.path}` is {bound.number:g}, and a response's ratio is hardly ever that far from 1",
                "so wide for tokens",
                ratio.label("a mean over the response's tokens"),
                help="write `clip { low = 3e-4, high = 4e-4 }`, the bounds of GSPO's paper",
            )
            return


@ppo_check
def check_unreached_bound(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523: a bound of advantages that no z-score over the group's rollouts reaches.

    The largest of n z-scores is sqrt(n - 1), if one rollout varies from all others, and the sample's
    deviation makes it (n - 1) / sqrt(n). Parts of a reward add up, and a batch's z-scores have no limit of
    this kind.

    Source:
        Samuelson 1968.
    """
    bound, rollouts = stage["advantage.bound"], stage["batch.rollouts"]
    cut, count = bound.number, rollouts.number
    grouped = stage["advantage.normalise"].text == "group" and not stage["advantage.batch"].is_true
    if stage.formula.parts or not grouped or count < 2 or "advantage.own" in stage:
        return
    most = (count - 1) / math.sqrt(count) if stage["advantage.std"].text == "sample" else math.sqrt(count - 1)
    if cut >= most:
        yield bound.warning(
            "W0523",
            f"no advantage reaches {cut:g}: of {count:g} rollouts the largest z-score is {most:.3g}",
            "cuts nothing",
            *rollouts.labels,
            help=f"write a bound below {most:.3g}, or take it out",
        )


@ppo_check
def check_cancelled_factors(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523: a factor of all rewards of a question or step, by which the z-score divides again."""
    typed, normalise, batch = stage.formula, stage["advantage.normalise"], stage["advantage.batch"]
    if "advantage.own" in stage:
        return
    grouped, alone = normalise.text == "group", batch.is_true and len(typed.values) == 1
    lets, names = {let.name: let.value for let in typed.lets}, let_names(typed.lets)
    # Of a reward that is the same for all W0301 tells.
    earned = [(value.data, span) for value, span in typed.values if varies(value.data, lets)]
    products: list[tuple[Expression | float, Span, bool]]
    products = [(data, span, not grouped) for data, span in earned if grouped or alone]
    products += [(term.weight, span, True) for term in typed.parts for _, span in earned if alone]
    for product, span, over_batch in products:
        if isinstance(product, float) or not (factors := cancelled_factors(product, lets, over_batch)):
            continue
        text = as_written(" * ".join(expression_text(factor, PRODUCT) for factor in factors), names)
        helps = (
            f"write `{text} * z(…)` with the rest in `z(…)`: what stands before it weighs what was normalised"
        )
        if typed.dense is not None or over_batch:
            helps = f"take `{text}` out, or write `advantage {{ normalise = center, batch = false }}`"
        yield warning(
            "W0523",
            f"`{text}` multiplies all responses of a {'step' if over_batch else 'question'} alike, and is lost in their"
            " z-scores",
            span,
            "is divided by its own deviation",
            labels=batch.labels if over_batch else normalise.labels,
            help=helps,
        )


@ppo_check
def check_old_logprobs(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0516: ratios or weights by the trainer's log-probabilities, though older weights sampled."""
    lag = stage["lag"]
    if not lag.number or stage["loss.decoupled"].is_true:
        return
    old = stage["old_logprobs"]
    sampled = lag.label("sampled by older weights")
    if old.text == "trainer":
        yield old.error(
            "E0516",
            "ratios would divide by the trainer's log-probabilities, and older weights sampled the responses",
            "leaves out what the steps between changed",
            sampled,
            help="take `old_logprobs` out, or write `loss { decoupled = true }`, which corrects for it",
        )
    elif cap_importance(stage.record, on_gpus=False) is not None:
        yield stage["importance_cap"].error(
            "E0516",
            "`importance_cap` bounds the weight of the trainer over the engine, and here ratios divide by the engine's",
            "nothing is weighed",
            sampled,
            help="write `loss { decoupled = true }` beside it, or take it out",
        )
