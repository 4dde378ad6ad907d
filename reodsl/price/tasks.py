"""Price one task: tokens, seconds, memory and disk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reodsl.graph.task import Kind
from reodsl.ir.data import Comparison, Grading, Python, Tests
from reodsl.ir.expression import UNDER, Constant
from reodsl.ir.reward import Budgets, Exits, OracleBudgets, QuestionBudgets, Reward, Split, Steps, cuts_below
from reodsl.ir.study import Suite
from reodsl.ir.training import Ppo, Preference, Sampling, Sft, Stage
from reodsl.price import memory
from reodsl.price.history import SHARE_OF_LONGEST, SHARE_OF_TRACE, Facts, text_tokens
from reodsl.price.machine import (
    HANDLE_RATE,
    HOST_RATE,
    SYNC_RATE,
    Devices,
    adapt_to_precision,
    adapt_to_width,
    lockstep,
)
from reodsl.price.memory import Sizes
from reodsl.price.rollout import (
    ForcedRound,
    LengthDistribution,
    RolloutBatch,
    drawing_seconds,
    equal_groups,
    expected_draws,
    force,
    generation_seconds,
)
from reodsl.price.value import Price

EXACT_PER_SECOND = 12_000.0
"""Answers per second that are compared as words, with the decoding of their tokens."""
CHECKERS = 2
"""The least number of processes that run programs and the user's Python at once."""
LIMIT_SECONDS = 2.0
"""Seconds beyond its limit after which the kernel ends a program that ignores the limit."""
BYTES_PER_ROLLOUT = 8.0
"""Bytes of a row of `rollouts.parquet`, and again for each cut."""
BYTES_PER_TOKEN = 1.5
"""Bytes per token of a response's text, compressed."""
BYTES_PER_FORCED = 1.0
"""Bytes of a row of `forced.parquet`, compressed."""
_NO_COUNT = "the number of questions is unknown: give the data `questions`"
STEP_SPLITS = 8
"""Assumed number of reasoning steps of a response, if a reward reads each step."""


def price_task(
    kind: Kind,
    payload: Mapping[str, Any],
    sizes: Sizes,
    facts: Facts,
    devices: Devices,
    words: bool,
    teacher: Sizes | None = None,
) -> Price:
    """Return the price of a `train`, `sample` or `evaluate` task by the formula, without results of past runs.

    Args:
        kind: kind of the task.
        payload: settings of the task.
        sizes: sizes of the task's model.
        facts: lengths and counts of the task.
        devices: devices of the task.
        words: whether the tokens of the model's vocabulary are whole words.
        teacher: sizes of the teacher, if it is another model than the stage starts from.
    """
    declared_precision = payload.get("model", {}).get("precision", "auto")
    devices = adapt_to_width(adapt_to_precision(devices, declared_precision), sizes.hidden)
    if kind == "train":
        stage = Stage.model_validate(payload["stage"])
        if not isinstance(stage.method, Ppo):
            price = _sequences(stage, stage.method, sizes, facts, devices)
        else:
            engine = payload.get("engine", "embedded")
            devices = replace(devices, small_caches=stage.method.caches == "fp8")
            price = _price_ppo(stage, stage.method, sizes, facts, devices, words, engine, teacher)
        return replace(price, sharding=devices.sharding)
    if kind == "sample":
        rollout = Sampling.model_validate(payload["rollout"])
        count = int(payload["samples"])
        gradings = [Grading.model_validate(payload["grading"])]
        return _price_responses(rollout, count, gradings, None, sizes, facts, devices, words)
    suite = Suite.model_validate(payload["suite"])
    gradings = [benchmark.data.grading for benchmark in suite.benchmarks]
    price = _price_responses(suite.rollout, suite.samples, gradings, suite, sizes, facts, devices, words)
    # Imported responses are only read, which takes less time than to generate them.
    return replace(price, generated=0.0) if "base" in payload else price


def price_served(payload: Mapping[str, Any], facts: Facts) -> Price:
    """Return the price of a `sample` or `evaluate` task with a model behind a server: tokens sent and received.

    The price has no seconds, since the server's speed is unknown. An evaluation of imported responses (`base` in the
    payload) only forces answers. Without a known number of questions there is no price.

    Args:
        payload: settings of the task.
        facts: lengths and counts of the task.
    """
    if facts.questions is None:
        return Price(unpriced=_NO_COUNT)
    suite = Suite.model_validate(payload["suite"]) if "suite" in payload else None
    is_imported = "base" in payload
    rollout = suite.rollout if suite is not None else Sampling.model_validate(payload["rollout"])
    responses = float(facts.questions * int(suite.samples if suite is not None else payload["samples"]))
    expected = suite.expected_length if suite is not None else None
    lengths = LengthDistribution.of(_mean_length(facts, expected, rollout.max_tokens), rollout.max_tokens)
    prompt = facts.prompt or 0.0
    tokens_sent, answers, forced = 0.0 if is_imported else responses * prompt, 0.0, 0.0
    thinking = rollout.max_tokens if rollout.solution is None else rollout.max_tokens - rollout.solution
    # A response whose thinking is ended at its limit is sent again, to continue with the solution.
    num_ended = 0.0 if is_imported else responses * lengths.beyond(thinking)
    tokens_sent += num_ended * (prompt + thinking)
    if suite is not None and suite.forcing is not None:
        text = text_tokens(suite.forcing.text, words=False)
        for cut in cuts_below(suite.grid, rollout.max_tokens):
            count = responses * lengths.beyond(cut)
            answers += count
            tokens_sent += count * (prompt + cut + text)
        forced = answers * (text + suite.forcing.answer_tokens)
    return Price(
        requests=answers if is_imported else responses + num_ended + answers,
        sent=tokens_sent,
        generated=0.0 if is_imported else responses * lengths.mean,
        forced=forced,
        verified=responses + answers,
        gpus=1,
        disk=responses * lengths.mean * BYTES_PER_TOKEN + answers * BYTES_PER_FORCED,
    )


def cuts_of(reward: Reward, longest: int) -> tuple[int, ...]:
    """Return the cuts in tokens, below `longest`, at which a reward needs forced answers.

    Cuts that only a run knows are assumed: those of `_assumed_splits`, and a cut that the reward computes from a
    response at a quarter of `longest`.

    Args:
        reward: the reward.
        longest: most tokens of a response.
    """
    cuts = reward.forced
    places = set(cuts.fixed)
    if cuts.splits and reward.splits is not None:
        places.update(_assumed_splits(reward.splits))
    if cuts.computed:
        places.add(longest // 4)
    return cuts_below(sorted(places), longest)


def _assumed_splits(split: Split) -> tuple[int, ...]:
    """Return the positions, in tokens, at which a reward is assumed to divide a response into sections.

    Declared budgets are returned as they are. Budgets that a run selects on a frontier are assumed to halve from
    `l_max` down, a question's own budget to be a quarter of `l_max`, and exits and reasoning steps to be evenly spaced.

    Args:
        split: the reward's setting that divides responses.
    """
    match split:
        case Budgets():
            return split.budgets
        case OracleBudgets():
            return tuple(round(split.l_max / 2 ** (split.n - i)) for i in range(split.n))
        case QuestionBudgets():
            return (split.l_max // 4,)
        case Exits():
            return tuple(split.l_max * i // (split.n + 1) for i in range(1, split.n + 1))
        case Steps():
            return tuple(split.l_max * i // STEP_SPLITS for i in range(1, STEP_SPLITS))


def count_scorings(stage: Stage, method: Ppo, engine: str, width: int, rounded: bool = False) -> int:
    """Return how many passes the trainer makes over a step's responses for their old log-probabilities: 0, 1 or 2.

    There is no pass if the log-probabilities that the engine recorded are used. This needs sampling from the full
    distribution at temperature 1, and a setting that chooses the engine's values or an engine that computes the same
    values. There are two passes if top-p or top-k is combined with a temperature other than 0 and 1, else one.

    Args:
        stage: the stage.
        method: the method of the stage.
        engine: `embedded` or `sglang`.
        width: bytes of a weight in a pass, if the stage's precision is `auto`.
        rounded: whether the model's weights are rounded to bfloat16.
    """
    rollout = method.rollout
    cropped = _crops(rollout)
    plain = rollout.temperature == 1.0 and not (method.temperature or cropped or method.trains_given)
    same = (
        engine == "embedded"
        and not rounded
        and (stage.precision == "float32" or (stage.precision == "auto" and width == 4))
    )
    older = method.lag > 0 and not method.loss.decoupled
    reuses_engine = method.old_logprobs == "engine" or (
        method.old_logprobs == "auto" and (older or (same and not method.weighs))
    )
    if plain and reuses_engine:
        return 0
    # The engine's log-probabilities are at temperature 1, so a second pass at temperature 1 is compared with them.
    return 2 if cropped and (method.temperature or rollout.temperature not in (0.0, 1.0)) else 1


def _price_ppo(
    stage: Stage,
    method: Ppo,
    sizes: Sizes,
    facts: Facts,
    devices: Devices,
    words: bool,
    engine: str,
    teacher: Sizes | None,
) -> Price:
    """Return the price of an RL stage.

    A step draws responses, forces answers and grades, once or with `resample` several times; `rounds` counts these draws
    over all steps. Responses with a thinking cut are continued from a prefix (`gone_on`). The policy also answers the
    monitor set `times` times, with `watched` responses each time. The trainer then passes over `run` responses.

    Args:
        stage: the stage.
        method: the method of the stage.
        sizes: sizes of the policy.
        facts: lengths and counts of the task.
        devices: devices of the task.
        words: whether the model's vocabulary has whole words.
        engine: `embedded` or `sglang`.
        teacher: sizes of the teacher, if it is another model than the stage starts from.
    """
    recipe = memory.Recipe.of(stage, sizes, teacher)
    if engine == "embedded" or not devices.disaggregated:
        devices = replace(devices, resident_bytes=memory.kept_bytes(sizes, devices, recipe))
    rounded = devices.unit == "seconds" and devices.width == 2
    scored = count_scorings(stage, method, engine, devices.width, rounded)
    batch, longest = method.batch, method.rollout.max_tokens
    responses = batch.prompts * batch.rollouts
    prompt = min(facts.prompt if facts.prompt is not None else method.max_prompt / 4, method.max_prompt)
    lengths = LengthDistribution.of(_mean_length(facts, stage.expected_length, longest), longest)
    load = RolloutBatch(responses, batch.prompts, prompt, lengths)
    # Only complete responses are sampled from their beginning; cut ones continue from a prefix.
    drawn_whole = replace(load, responses=float(batch.prompts * method.whole_rollouts))
    cut, solution, num_parts = method.cut_at, float(method.rollout.solution or 0), 1 + len(method.cut_at)
    kept_share, kept_square_share = (
        (1 + sum(cut)) / num_parts,
        (1 + sum(share**2 for share in cut)) / num_parts,
    )
    trained_length = lengths.mean * kept_share + solution * len(cut) / num_parts
    rule = method.rollout.model_copy(update={"solution": None}) if cut else method.rollout
    gone_on = force(drawn_whole, [share * lengths.mean for share in cut], 0.0, solution, sizes, devices)
    steps = facts.steps or stage.steps
    cuts = cuts_of(method.reward, longest) if method.forcing is not None else ()
    text = text_tokens(method.forcing.text, words) if method.forcing is not None else 0.0
    answer = method.forcing.answer_tokens if method.forcing is not None else 0
    forced = force(load, cuts, text, answer, sizes, devices)
    # Tokens without an advantage are still passed through the model if another part of the loss needs them.
    run = responses * (facts.trained_share if method.crops else 1.0)
    answered = run * trained_length
    tokens = answered + run * prompt
    # Entropies and whole distributions need further logits: computed, recomputed, and a backward pass of two products.
    remade = 4 * bool(method.entropy) + 4 * bool(method.kl and method.loss.compares_all)
    logits = method.epochs * remade * sizes.logits_flops(answered)
    # Attention is causal: a token attends to half of its sequence on average.
    context = run * (prompt**2 + 2 * prompt * trained_length + lengths.square * kept_square_share) / 2
    read = _pass_flops(stage, sizes, (tokens, context), devices, method.epochs, scored)
    other = teacher or sizes
    frozen = _read_by_frozen(method, other, (tokens, context), answered)
    verified = responses + forced.answers
    draws = _count_draws(method, facts)
    rounds = steps * draws
    policy_scoring = _read_about_tokens(method, sizes, load, text, teacher=False)
    teacher_scoring = _read_about_tokens(method, other, load, text, teacher=True)
    cached = responses / devices.engines * (prompt + lengths.mean)
    # A server on a processor keeps its memory while the trainer runs; on GPUs only one of the two is resident.
    keeps = engine == "sglang" and devices.unit == "seconds"
    stays = memory.served_bytes(sizes, devices, cached) if keeps else 0.0
    engine_peak = memory.engine_bytes(sizes, devices, cached)
    engine_peak = engine_peak if devices.disaggregated else max(engine_peak, devices.resident_bytes)
    # If trainers score tokens for the reward, they take turns with the engines.
    overlaps = method.lag > 0 and devices.disaggregated and not method.asks_trainers
    watched, times = _count_monitored(method, steps)
    watched_load = RolloutBatch(
        watched, watched / method.monitor.samples if method.monitor else 0.0, prompt, lengths
    )
    sync = steps * _transfer_time(sizes, devices)
    updates = method.epochs * method.minibatches
    exchange = _exchange_time(sizes, recipe, devices, updates, method.epochs * tokens, scored * tokens)
    gathered = (
        HOST_RATE["batch"] * responses * (prompt + lengths.mean) if devices.unit == "gpu_hours" else 0.0
    )
    # The process that reads all responses may take longer than the engines.
    host = (
        HOST_RATE["logprobs"] * drawn_whole.responses * lengths.mean if devices.unit == "gpu_hours" else 0.0
    )
    generation = rounds * (max(host, _round_time(drawn_whole, rule, sizes, devices)) + gone_on.seconds)
    generation += times * _round_time(watched_load, rule, sizes, devices) if times else 0.0
    checking = (rounds * verified + times * watched) / _rate(stage.data.verifier, devices)
    forcing = rounds * forced.seconds
    seconds = {
        "start": devices.start,
        "generation": generation,
        "forcing": forcing,
        "verification": _price_late_grading(checking, generation + forcing, method.rollout, devices),
        "training": steps
        * (_pass_time(read[0] + logits + frozen[0], read[1] + frozen[1], devices, exchange) + gathered)
        + rounds
        * _pass_time(policy_scoring[0] + teacher_scoring[0], policy_scoring[1] + teacher_scoring[1], devices)
        + sync,
    }
    return Price(
        generated=(rounds * drawn_whole.responses + times * watched) * lengths.mean + rounds * gone_on.tokens,
        forced=rounds * forced.tokens,
        read_again=rounds
        * (forced.read_again + gone_on.read_again + _end_thinking(load, rule, sizes, devices).read_again),
        trained=steps * answered * method.epochs,
        verified=rounds * verified + times * watched,
        checked_within=bound_check_seconds(stage.data.verifier, verified),
        seconds=seconds,  # type: ignore[arg-type]
        gpus=devices.gpus,
        memory={
            "trainer": memory.trainer_bytes(sizes, devices, prompt + longest, recipe, feeds=True) + stays,
            "engine": engine_peak,
        },
        disk=memory.checkpoint_bytes(sizes)
        + memory.optimizer_bytes(sizes, stage.optim.algorithm, recipe)
        + rounds * responses * BYTES_PER_ROLLOUT * (1 + len(cuts)),
        steps=steps,
        draws=draws,
        overlaps=overlaps,
        sync=sync,
    )


def _read_by_frozen(
    method: Ppo, other: Sizes, read: tuple[float, float], answered: float
) -> tuple[float, float]:
    """Return the FLOPs of a step in the reference model or teacher, and the FLOPs of attention among them.

    Both are 0 without a KL term. The model makes one forward pass over the batch. If the KL term compares complete
    distributions without `top_k`, it makes a pass in each epoch, and the loss computes the logits again.

    Args:
        method: the method of the stage.
        other: sizes of the reference model or teacher.
        read: tokens, and the sum of positions that they attend to.
        answered: tokens of responses, which have logits.
    """
    if not method.kl:
        return 0.0, 0.0
    forward, attention = other.forward_flops(*read), other.attention_flops(read[1])
    if not method.loss.compares_all or method.loss.top_k is not None:
        return forward, attention
    return method.epochs * (forward + other.logits_flops(answered)), method.epochs * attention


def _read_about_tokens(
    method: Ppo, model: Sizes, load: RolloutBatch, text: float, *, teacher: bool
) -> tuple[float, float]:
    """Return the FLOPs to compute token probabilities or entropies for the reward, and the FLOPs of attention in them.

    The numbers are for one draw of responses. The policy reads its responses again only for entropies, since the engine
    knows their probabilities. The probability of the reference answer takes a pass for each cut after which it is
    appended; a cut that the reward computes is assumed at a quarter of the longest response.

    Args:
        method: the method of the stage.
        model: sizes of the model that computes them.
        load: responses of the draw.
        text: tokens of the forcing text.
        teacher: whether the model is the teacher; otherwise it is the policy.
    """
    flops = attention = 0.0
    mine = [term for term in method.reward.tokens if any(n.endswith(UNDER) == teacher for n in term.names)]
    entropies = any("entropy" in name for term in mine for name in term.names)
    lengths, prompt = load.lengths, load.prompt
    reads = set[tuple[float, float]]()
    if any(not term.truth and (teacher or entropies) for term in mine):
        reads.add((lengths.mean, lengths.square))
    for cut in {term.cut for term in mine if term.truth}:
        position = (
            cut.value if isinstance(cut, Constant) else math.inf if cut is None else lengths.longest / 4
        )
        count = min(position, lengths.mean) + text
        reads.add((count, count**2))
    for mean, square in reads:
        context = load.responses * (prompt**2 + 2 * prompt * mean + square) / 2
        flops += model.forward_flops(load.responses * (prompt + mean), context)
        flops += entropies * model.logits_flops(load.responses * mean)
        attention += model.attention_flops(context)
    return flops, attention


def _pass_flops(
    stage: Stage, sizes: Sizes, read: tuple[float, float], devices: Devices, trained: int, forward: float
) -> tuple[float, float]:
    """Return the FLOPs of passes over some tokens, and the FLOPs of attention among them.

    A pass with a gradient costs as much as three forward passes. With adapters on GPUs, which also recompute
    activations, the gradients of the model's weights are not computed. This leaves three of four matrix products.
    Attention has no weights, so it costs the same.

    Args:
        stage: the stage.
        sizes: sizes of the model.
        read: tokens, and the sum of positions that they attend to.
        devices: devices of the task.
        trained: passes with a gradient.
        forward: passes without a gradient.
    """
    attention = sizes.attention_flops(read[1])
    products = 3 * 3 / 4 if stage.lora is not None and devices.unit == "gpu_hours" else 3
    attended = (3 * trained + forward) * attention
    return (products * trained + forward) * (sizes.forward_flops(*read) - attention) + attended, attended


def _count_monitored(method: Ppo, steps: int) -> tuple[int, int]:
    """Return the responses to the monitor set in one measurement, and the number of measurements in `steps` steps.

    The monitor set are questions that the policy answers from time to time. Both are 0 if the reward reads no such
    measurement.
    """
    monitor = method.monitor
    if monitor is None or not method.reward.monitors:
        return 0, 0
    return monitor.questions * monitor.samples, math.ceil(steps / monitor.every)


def _round_time(load: RolloutBatch, rollout: Sampling, sizes: Sizes, devices: Devices) -> float:
    """Return the seconds of a round of responses: to generate and sample them, and to continue those with a solution.

    Args:
        load: responses of the round.
        rollout: settings of sampling.
        sizes: sizes of the model.
        devices: devices of the engines.
    """
    draw = "greedy" if rollout.temperature == 0.0 else "cut" if _crops(rollout) else "whole"
    seconds = generation_seconds(load, sizes, devices) + drawing_seconds(load, draw, sizes, devices)
    return seconds + _end_thinking(load, rollout, sizes, devices).seconds


def _end_thinking(load: RolloutBatch, rollout: Sampling, sizes: Sizes, devices: Devices) -> ForcedRound:
    """Return the cost of continuing responses whose thinking is ended at a limit; engines read their prefixes again.

    Args:
        load: responses of the round.
        rollout: settings of sampling; the cost is 0 if no tokens are reserved for the solution (`solution`).
        sizes: sizes of the model.
        devices: devices of the engines.
    """
    if rollout.solution is None:
        return ForcedRound(0.0, 0.0, 0.0, 0.0)
    uncached = replace(devices, hardware=devices.hardware.model_copy(update={"prefix_cache": False}))
    return force(load, (rollout.max_tokens - rollout.solution,), 0.0, 0, sizes, uncached)


def _crops(rollout: Sampling) -> bool:
    """Return whether sampling is limited to likely tokens, by top-p or top-k."""
    return rollout.top_p < 1.0 or rollout.top_k > 0


def _count_draws(method: Ppo, facts: Facts) -> float:
    """Return how often a step draws questions on average until its batch is full.

    A step with `resample` draws again if responses to some questions all earned the same, at most `resample` times.
    The number is 1 without this setting. It is taken from the last result, else from `expected_draws`.

    Args:
        method: the method of the stage.
        facts: lengths and counts of the task.
    """
    if not method.resample:
        return 1.0
    most = 1 + method.resample
    if facts.draws is not None:
        return min(facts.draws, most)
    equal = equal_groups(method.batch.rollouts) if facts.equal is None else facts.equal
    return expected_draws(method.batch.prompts, most, equal)


def _sequences(stage: Stage, method: Sft | Preference, sizes: Sizes, facts: Facts, devices: Devices) -> Price:
    """Return the price of a stage of SFT on traces, or of preference training on pairs of responses.

    Args:
        stage: the stage.
        method: the method of the stage.
        sizes: sizes of the policy.
        facts: lengths and counts of the task.
        devices: devices of the task.
    """
    sequences = method.batch * (1 if isinstance(method, Sft) else 2)
    prompt = min(facts.prompt or 0.0, method.max_tokens / 2)
    trace = facts.length or stage.expected_length or max(1.0, method.max_tokens * SHARE_OF_TRACE - prompt)
    steps = facts.steps or stage.steps
    if facts.steps is None and stage.passes is not None and facts.questions is not None:
        steps = min(steps, math.ceil(stage.passes * facts.questions / method.batch))
    tokens, context = sequences * (prompt + trace), sequences * (prompt + trace) ** 2 / 2
    recipe = memory.Recipe.of(stage, sizes)
    read = _pass_flops(stage, sizes, (tokens, context), devices, 1, method.uses_reference)
    return Price(
        trained=steps * sequences * trace,
        seconds={
            "start": devices.start,
            "training": steps * _pass_time(*read, devices, _exchange_time(sizes, recipe, devices, 1, tokens)),
        },
        gpus=devices.gpus,
        memory={"trainer": memory.trainer_bytes(sizes, devices, method.max_tokens, recipe)},
        disk=memory.checkpoint_bytes(sizes) + memory.optimizer_bytes(sizes, stage.optim.algorithm, recipe),
        steps=steps,
    )


def _price_responses(
    rollout: Sampling,
    samples: int,
    gradings: Sequence[Grading],
    suite: Suite | None,
    sizes: Sizes,
    facts: Facts,
    devices: Devices,
    words: bool,
) -> Price:
    """Return the price of sampling and grading responses to all questions.

    Args:
        rollout: settings of sampling.
        samples: responses to a question.
        gradings: how the answers of each benchmark are graded; the first sets the rate.
        suite: suite that forces answers over its grid, if any.
        sizes: sizes of the model.
        facts: lengths and counts of the task.
        devices: devices of the task.
        words: whether the model's vocabulary has whole words.
    """
    if facts.questions is None:
        return Price(gpus=devices.gpus, unpriced=_NO_COUNT)
    responses = float(facts.questions * samples)
    expected = suite.expected_length if suite is not None else None
    lengths = LengthDistribution.of(_mean_length(facts, expected, rollout.max_tokens), rollout.max_tokens)
    prompt = facts.prompt or 0.0
    load = RolloutBatch(responses, facts.questions, prompt, lengths)
    cuts = cuts_below(suite.grid, rollout.max_tokens) if suite is not None else ()
    forcing = suite.forcing if suite is not None else None
    text = text_tokens(forcing.text, words) if forcing is not None else 0.0
    answer = forcing.answer_tokens if forcing is not None else 0
    forced = force(load, cuts, text, answer, sizes, devices, soon=True)
    verified = responses + forced.answers
    host = HOST_RATE["tokens"] * responses * lengths.mean if devices.unit == "gpu_hours" else 0.0
    generation = max(host, _round_time(load, rollout, sizes, devices))
    checking = verified / _rate(gradings[0].verifier, devices)
    checking = _price_late_grading(checking, generation + forced.seconds, rollout, devices)
    return Price(
        generated=responses * lengths.mean,
        forced=forced.tokens,
        read_again=forced.read_again + _end_thinking(load, rollout, sizes, devices).read_again,
        verified=verified,
        checked_within=max(bound_check_seconds(grading.verifier, verified) for grading in gradings),
        seconds={
            "start": devices.start,
            "generation": generation,
            "forcing": forced.seconds,
            "verification": checking,
        },
        gpus=devices.gpus,
        memory={
            "engine": memory.engine_bytes(
                sizes, devices, responses / devices.engines * (prompt + lengths.mean)
            )
        },
        disk=responses * lengths.mean * BYTES_PER_TOKEN + responses * len(cuts) * BYTES_PER_FORCED,
    )


def _mean_length(facts: Facts, expected: int | None, longest: int) -> float:
    """Return the mean length of responses: measured, else declared, else assumed; at most `longest`.

    Args:
        facts: measured lengths, if any.
        expected: declared length in tokens, if any.
        longest: most tokens of a response.
    """
    return min(facts.length or expected or longest * SHARE_OF_LONGEST, longest)


def _exchange_time(
    sizes: Sizes, recipe: memory.Recipe, devices: Devices, updates: int, trained: float, scored: float = 0.0
) -> float:
    """Return the seconds in which nodes exchange weights and gradients in a step.

    If one copy of the weights is sharded over all nodes, it is gathered for each forward and backward pass of a
    micro-batch, and gradients are reduced. If each node holds a copy, only the gradients of an update are all-reduced.
    The seconds are 0 if the network's rate is not declared.

    Args:
        sizes: sizes of the policy.
        recipe: settings that change the memory.
        devices: devices of the training.
        updates: updates of a step.
        trained: tokens with a gradient, over all updates.
        scored: tokens without a gradient.
    """
    nodes, network = max(1.0, devices.training / devices.gpus_per_node), devices.hardware.network
    if network is None:
        return 0.0
    summed = memory.GRADIENT * (sizes.parameters if recipe.adapters is None else recipe.adapters)
    if devices.copies > 1:
        num_bytes = updates * 2.0 * summed
    else:
        at_once, weights = devices.microbatch * devices.training, devices.width * sizes.parameters
        num_bytes = max(updates, math.ceil(trained / at_once)) * (2 * weights + summed)
        num_bytes += math.ceil(scored / at_once) * weights
    return num_bytes * (1 - 1 / nodes) / network


def _pass_time(flops: float, attention: float, devices: Devices, exchanged: float = 0.0) -> float:
    """Return the seconds of a pass on all training devices, at least the seconds of the exchange between nodes.

    Attention and other products have different utilisation. Devices also wait for the slowest of them (`lockstep`).

    Args:
        flops: FLOPs of the pass.
        attention: FLOPs of attention among them.
        devices: devices of the training.
        exchanged: seconds in which nodes exchange weights and gradients meanwhile.
    """
    hardware = devices.hardware
    products = (flops - attention) / hardware.mfu_train
    shares = products + attention / (hardware.mfu_attention or hardware.mfu_train)
    return max(exchanged, shares / (devices.training * hardware.flops * lockstep(devices.training)))


def _transfer_time(sizes: Sizes, devices: Devices) -> float:
    """Return the seconds to send new weights to every engine; 0 with a single device.

    The rate is the measured one, or half the interconnect's if that is lower. Engines on the trainers' own GPUs read
    weights by handles of memory, which is faster.
    """
    if devices.gpus == 1:
        return 0.0
    rate = SYNC_RATE if devices.disaggregated else HANDLE_RATE
    return sizes.parameters * devices.width / min(rate, devices.hardware.interconnect / 2)


def _price_late_grading(checking: float, making: float, rollout: Sampling, devices: Devices) -> float:
    """Return the seconds of grading that a task waits for.

    On GPUs answers are graded while further responses are generated, so only the excess counts. All seconds count on
    this machine, and for responses whose thinking and solution are generated in two phases.

    Args:
        checking: seconds of grading.
        making: seconds of generating and forcing.
        rollout: settings of sampling.
        devices: devices of the task.
    """
    hidden = rollout.solution is None and devices.unit == "gpu_hours"
    return max(0.0, checking - making) if hidden else checking


def bound_check_seconds(verifier: Comparison, answers: float) -> float:
    """Return the most seconds to check a batch of answers: each uses up its time limit.

    It is 0 if the verifier runs neither test programs nor the user's Python.

    Args:
        verifier: how answers are compared.
        answers: number of answers.
    """
    if not isinstance(verifier, (Tests, Python)):
        return 0.0
    return answers * (verifier.seconds + LIMIT_SECONDS) / CHECKERS


def _rate(verifier: Comparison, devices: Devices) -> float:
    """Return the number of answers checked per second."""
    return EXACT_PER_SECOND if verifier == "exact" else devices.hardware.verifications
