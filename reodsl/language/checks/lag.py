"""Rollouts that lag behind training: what a reward, a loss, budgets and a cluster have to be for them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from reodsl.diagnostics.model import Diagnostic, Label, error, warning
from reodsl.language.checks.cases import Case, StageCase, amount, place, set_here
from reodsl.language.units import TOKENS, Quantity, written
from reodsl.language.values import Budgets, Record, Slot


def check_lag(case: Case, stage: StageCase) -> Iterator[Diagnostic]:
    """Every check of `lag`, `segment` and the decoupled loss of one stage that trains by PPO."""
    if stage.method != "ppo":
        return
    record = stage.record
    lag = record.fields.get("lag")
    lagging = lag is not None and bool(amount(lag.value))
    yield from _weighed_twice(record)
    yield from _segments(stage, lagging)
    if lag is None or not lagging:
        return
    yield from _uncorrected(record, lag)
    yield from _in_turn(case, record, lag)


def _segments(stage: StageCase, lagging: bool) -> Iterator[Diagnostic]:
    """E0524, E0525, E0526: segments without a lag, that cut nothing or too finely, or that a reward cannot have."""
    record, reward = stage.record, stage.reward
    slot = record.fields.get("segment")
    length = amount(slot.value) if slot is not None else None
    if slot is None or length is None:
        return
    where, text = place(slot, record.span), written(Quantity(int(length), TOKENS))
    if not lagging:
        yield error(
            "E0525",
            "a segment lets a response go on by the next step's weights, and `lag` says that no rollout lags",
            where,
            "goes on at the next step",
            others=set_here(record.fields.get("lag"), record),
            help="add `lag = 1 step`, or take `segment` out",
        )
    most = record.at("rollout.max_tokens")
    longest = amount(most.value) if most is not None else None
    if longest is not None and length >= longest:
        yield error(
            "E0526",
            f"a segment of {text} cuts no response",
            where,
            "has no effect",
            others=set_here(most, record),
            help=f"write a segment below {written(Quantity(int(longest), TOKENS))}, or take it out",
        )
    split = reward.split if reward is not None else None
    if isinstance(split, Budgets):
        ends = (0, *split.schedule.budgets, split.schedule.l_max)
        gap = min(b - a for a, b in pairwise(sorted(set(ends))))
        if length < gap:
            shortest = written(Quantity(gap, TOKENS))
            yield error(
                "E0526",
                f"a segment of {text} is shorter than any gap between two budgets: each section would be sampled by several"
                " weights",
                where,
                text,
                others=[Label(split.span, f"the narrowest gap is {shortest}")],
                help=f"write `segment = {shortest}` or more",
            )
    if reward is not None and {"group", "mode"} <= reward.uses:
        yield error(
            "E0524",
            "the reward compares the modes of a question's responses, and in segments unlike weights sample them",
            where,
            "long responses go on by newer weights, short ones do not",
            others=[Label(place(record.fields.get("reward"), record.span), "reads `mode` and `group`")],
            help="take `segment` out: with `lag` alone all responses of a question are of one step's weights",
        )


def _uncorrected(record: Record, lag: Slot) -> Iterator[Diagnostic]:
    """E0527: ratios or weights by the trainer's own log-probabilities, which are those of newer weights than sampled."""
    loss = record.sub("loss")
    if loss is not None and loss.data("decoupled"):
        return
    others = [Label(place(lag, record.span), "sampled by older weights"), *set_here(lag, record)][:1]
    old, cap = record.fields.get("old_logprobs"), record.fields.get("importance_cap")
    if record.data("old_logprobs") == "trainer":
        yield error(
            "E0527",
            "ratios would divide by the trainer's log-probabilities, and older weights sampled the responses",
            place(old, record.span),
            "leaves out what the steps between changed",
            others=others,
            help="take `old_logprobs` out, or write `loss { decoupled = true }`, which corrects for it",
        )
    elif record.data("importance_cap") is not None:
        yield error(
            "E0527",
            "`importance_cap` bounds the weight of the trainer over the engine, and here ratios divide by the engine's",
            place(cap, record.span),
            "nothing is weighed",
            others=others,
            help="write `loss { decoupled = true }` beside it, or take it out",
        )


def _weighed_twice(record: Record) -> Iterator[Diagnostic]:
    """E0516: a decoupled loss divides by the trainer's log-probabilities, and weighs by trainer over engine."""
    loss, old = record.sub("loss"), record.fields.get("old_logprobs")
    if loss is None or not loss.data("decoupled") or record.data("old_logprobs") != "engine":
        return
    yield error(
        "E0516",
        "the difference between trainer and engine would be corrected twice",
        place(loss.fields.get("decoupled"), record.span),
        "weighs tokens by trainer over engine",
        others=[Label(place(old, record.span), "ratios that divide by the engine's already")],
        help="write `old_logprobs = trainer`, or take `decoupled` out",
    )


def _in_turn(case: Case, record: Record, lag: Slot) -> Iterator[Diagnostic]:
    """W0528: engines and trainers take turns on the same GPUs, so that a lag saves nothing."""
    cluster = record.sub("cluster")
    if cluster is None and case.study is not None:
        cluster = case.study.sub("cluster")
    if cluster is None or record.data("segment") is not None:
        return
    counts = [amount(slot.value) for name in ("nodes", "gpus_per_node") if (slot := cluster.fields.get(name))]
    alone = counts == [1, 1]
    if cluster.data("placement") == "apart" and not alone:
        return
    yield warning(
        "W0528",
        "responses lag, and no time is saved: on this cluster generation and training take turns on the same GPUs",
        place(lag, record.span),
        "computes what it would on a cluster whose roles are apart",
        others=[Label(cluster.span, "one GPU" if alone else "`placement = colocated`")],
        help="take `lag` out" if alone else "write `placement = apart` in the cluster, or take `lag` out",
    )
